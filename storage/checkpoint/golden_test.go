package checkpoint

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"gregor/storage/vfs"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// kafkas is a file that Kafka 4.4.0 wrote.
func kafkas(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	must(t, err)
	return b
}

// given puts contents at /f of a file system in memory.
func given(t testing.TB, contents []byte) *vfs.Mem {
	t.Helper()
	m := vfs.NewMem()
	must(t, vfs.WriteFile(m, "/f", contents))
	return m
}

func contents(t testing.TB, fsys vfs.FS) []byte {
	t.Helper()
	b, err := vfs.ReadFile(fsys, "/f")
	must(t, err)
	return b
}

func wantBytes(t testing.TB, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Fatalf("wrote\n%q\nKafka wrote\n%q", got, want)
	}
}

func TestKafkasMetaPropertiesIsGivenBackByteForByte(t *testing.T) {
	want := kafkas(t, "meta.properties")
	m := given(t, want)
	p, err := ReadMetaProperties(m, "/f")
	must(t, err)
	if p.Version != 1 || p.NodeID != 1 || p.ClusterID != "cGxhaW4tZ29sZGVuLTAwMQ" || formatUUID(p.DirectoryID) != "RDaUwGFN2TCrfz8iprWmCw" {
		t.Fatalf("%+v", p)
	}
	must(t, WriteMetaProperties(m, "/f", p, time.Date(2026, 11, 29, 19, 16, 52, 0, time.UTC)))
	wantBytes(t, contents(t, m), want)
}

func TestKafkasOffsetCheckpointsAreGivenBack(t *testing.T) {
	for name, entries := range map[string]int{RecoveryPointFile: 21, HighWatermarkFile: 21, LogStartOffsetFile: 2} {
		want := kafkas(t, name)
		m := given(t, want)
		offsets, err := ReadOffsets(m, "/f")
		must(t, err)
		if len(offsets) != entries {
			t.Fatalf("%s: %d entries", name, len(offsets))
		}
		must(t, WriteOffsets(m, "/f", offsets))
		// Kafka's order is that of a hash map.
		if got := contents(t, m); !slices.Equal(sortedLines(got), sortedLines(want)) {
			t.Fatalf("%s: wrote\n%s\nKafka wrote\n%s", name, got, want)
		}
	}
	offsets, err := ReadOffsets(given(t, kafkas(t, LogStartOffsetFile)), "/f")
	must(t, err)
	want := map[TopicPartition]int64{{"records-deleted", 0}: 23, {"records-deleted", 1}: 40}
	if !maps.Equal(offsets, want) {
		t.Fatal(offsets)
	}
}

func sortedLines(b []byte) []string {
	var lines []string
	for line := range bytes.Lines(b) {
		lines = append(lines, string(line))
	}
	slices.Sort(lines)
	return lines
}

func TestKafkasLeaderEpochsAreGivenBackByteForByte(t *testing.T) {
	want := kafkas(t, LeaderEpochFile)
	m := given(t, want)
	epochs, err := ReadEpochs(m, "/f")
	must(t, err)
	if len(epochs) < 2 {
		t.Fatal(epochs)
	}
	wantBytes(t, EncodeEpochs(epochs), want)
}

func TestKafkasPartitionMetadataIsGivenBackByteForByte(t *testing.T) {
	want := kafkas(t, PartitionMetadataFile)
	m := given(t, want)
	id, err := ReadPartitionMetadata(m, "/f")
	must(t, err)
	wantBytes(t, EncodePartitionMetadata(id), want)
	if len(want) != 43 {
		t.Fatal(len(want))
	}
}

func TestKafkasQuorumStatesAreGivenBackByteForByte(t *testing.T) {
	for name, check := range map[string]func(s QuorumState) bool{
		"quorum-state.v0": func(s QuorumState) bool {
			return s.Version == 0 && s.LeaderID == 2 && s.LeaderEpoch == 3 && s.VotedID == 2 && slices.Equal(s.CurrentVoters, []int32{1, 2, 3})
		},
		"quorum-state.v1": func(s QuorumState) bool {
			return s.Version == 1 && s.LeaderID == 1 && s.LeaderEpoch == 1 && s.VotedID == -1 && s.VotedDirectoryID == [16]byte{}
		},
	} {
		want := kafkas(t, name)
		m := given(t, want)
		s, err := ReadQuorumState(m, "/f")
		must(t, err)
		if !check(s) {
			t.Fatalf("%s: %+v", name, s)
		}
		must(t, WriteQuorumState(m, "/f", s))
		wantBytes(t, contents(t, m), want)
	}
}

func TestObserversQuorumStateHasNoVoters(t *testing.T) {
	want := `{"clusterId":"","leaderId":-1,"leaderEpoch":0,"votedId":-1,"appliedOffset":0,"currentVoters":[],"data_version":0}`
	s, err := parseQuorumState([]byte(want))
	must(t, err)
	if len(s.CurrentVoters) != 0 || s.LeaderID != -1 {
		t.Fatalf("%+v", s)
	}
	wantBytes(t, formatQuorumState(s), []byte(want))
}

func TestKafkasCleanShutdownFileIsGivenBackByteForByte(t *testing.T) {
	want := kafkas(t, "kafka_cleanshutdown")
	m := given(t, want)
	epoch, err := ReadCleanShutdown(m, "/f")
	must(t, err)
	if epoch != 14 {
		t.Fatal(epoch)
	}
	must(t, WriteCleanShutdown(m, "/f", epoch))
	wantBytes(t, contents(t, m), want)
}
