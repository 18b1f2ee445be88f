package kraft

import (
	"slices"
	"strings"
	"testing"

	"gregor/kraft/metadata"
	"gregor/protocol"
	"gregor/protocol/record"
	"gregor/storage/vfs"
)

const logFile = "/data/__cluster_metadata-0/00000000000000000000.log"

// readLog decodes the data records of a metadata log with one segment.
func readLog(t *testing.T, fs vfs.FS) []metadata.Record {
	t.Helper()
	b, err := vfs.ReadFile(fs, logFile)
	if err != nil {
		t.Fatal(err)
	}
	var out []metadata.Record
	for len(b) > 0 {
		batch, rest, err := record.Next(b)
		if err != nil {
			break // a segment may have been allocated beyond its end
		}
		b = rest
		if batch.IsControl() {
			continue
		}
		for rec, err := range batch.Records(record.Limits{MaxDecompressedBytes: 1 << 20}) {
			if err != nil {
				t.Fatal(err)
			}
			decoded, err := metadata.Decode(rec.Value)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, decoded)
		}
	}
	return out
}

func containsRun[T comparable](list, run []T) bool {
	for i := range list {
		if i+len(run) <= len(list) && slices.Equal(list[i:i+len(run)], run) {
			return true
		}
	}
	return false
}

func countSnapshots(t *testing.T, fs vfs.FS) int {
	t.Helper()
	entries, err := fs.ReadDir("/data/__cluster_metadata-0")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".checkpoint") {
			n++
		}
	}
	return n
}

// openTransaction writes the beginning of a transaction that never ends, as a controller that dies in between does.
func openTransaction(t *testing.T, n *Node) {
	t.Helper()
	id := protocol.RandomUUID()
	records := []metadata.Record{
		metadata.NewBeginTransactionRecord(), &metadata.TopicRecord{Name: "half", TopicID: id},
	}
	_, last, err := n.quorum.Propose(n.Leader().Epoch, versioned(records, metadata.LatestMetadataVersion))
	if err != nil {
		t.Fatal(err)
	}
	until(t, "commit", func() bool { return n.HighWatermark() > last })
}
