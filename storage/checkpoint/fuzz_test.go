package checkpoint

import (
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"
)

// fuzzReader checks that any bytes are either refused or read, and that what was read is written and read again
// as it is.
func fuzzReader[T any](f *testing.F, seeds []string, parse func([]byte) (T, error), format func(T) []byte, equal func(a, b T) bool) {
	for _, name := range seeds {
		f.Add(kafkas(f, name))
	}
	f.Add([]byte("0\n1\n1 2\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := parse(b)
		if err != nil {
			return
		}
		again, err := parse(format(v))
		if err != nil || !equal(v, again) {
			t.Fatalf("%q: %+v became %+v, %v", b, v, again, err)
		}
	})
}

func deepEqual[T any](a, b T) bool { return reflect.DeepEqual(a, b) }

func FuzzOffsets(f *testing.F) {
	fuzzReader(f, []string{RecoveryPointFile}, parseOffsets, formatOffsets, maps.Equal)
}

func FuzzEpochs(f *testing.F) {
	fuzzReader(f, []string{LeaderEpochFile}, parseEpochs, EncodeEpochs, slices.Equal)
}

func FuzzMetaProperties(f *testing.F) {
	fuzzReader(f, []string{MetaPropertiesFile}, parseMetaProperties,
		func(m MetaProperties) []byte { return m.format(time.Unix(0, 0)) },
		func(a, b MetaProperties) bool {
			a.NodeID, b.NodeID = max(a.NodeID, -1), max(b.NodeID, -1)
			return deepEqual(a, b)
		})
}

func FuzzPartitionMetadata(f *testing.F) {
	fuzzReader(f, []string{PartitionMetadataFile}, parsePartitionMetadata, EncodePartitionMetadata, deepEqual)
}

func FuzzQuorumState(f *testing.F) {
	fuzzReader(f, []string{"quorum-state.v0", "quorum-state.v1"}, parseQuorumState, formatQuorumState, deepEqual)
}

func FuzzCleanShutdown(f *testing.F) {
	fuzzReader(f, []string{"kafka_cleanshutdown"}, parseCleanShutdown, formatCleanShutdown, deepEqual)
}
