package producer

import (
	"bytes"
	"encoding/binary"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"gregor/internal/recording"
	"gregor/protocol/record"
	"gregor/storage/vfs"
)

// golden is the files of a data directory that Kafka 4.4.0 wrote: partition directory, file name, contents.
func golden(t *testing.T, name string) map[string]map[string][]byte {
	t.Helper()
	dirs := map[string]map[string][]byte{}
	for name, b := range recording.Read(t, os.DirFS("testdata"), name) {
		dir, file := filepath.Split(name)
		dir = filepath.Clean(dir)
		if dirs[dir] == nil {
			dirs[dir] = map[string][]byte{}
		}
		dirs[dir][file] = b
	}
	return dirs
}

// joined is the files with an extension, in the order of their names.
func joined(files map[string][]byte, ext string) []byte {
	var all []byte
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if filepath.Ext(name) == ext {
			all = append(all, files[name]...)
		}
	}
	return all
}

func count(files map[string][]byte, ext string) int {
	n := 0
	for name := range files {
		if filepath.Ext(name) == ext {
			n++
		}
	}
	return n
}

// sortedEntries orders the entries of a snapshot, which Kafka writes in the order of a hash map.
func sortedEntries(b []byte) []byte {
	entries := slices.Collect(slices.Chunk(b[snapshotHeaderBytes:], snapshotEntryBytes))
	slices.SortFunc(entries, bytes.Compare)
	return bytes.Join(entries, nil)
}

// TestReplayedLogGivesKafkasSnapshotsAndTransactionIndexes replays logs with commits, aborts, fenced and open
// transactions and compares, wherever Kafka took a snapshot or wrote an index entry.
func TestReplayedLogGivesKafkasSnapshotsAndTransactionIndexes(t *testing.T) {
	for _, archive := range []string{"transactions-v1.tar.gz", "transactions-v2.tar.gz"} {
		for dir, files := range golden(t, archive) {
			t.Run(archive+"/"+dir, func(t *testing.T) {
				m := newManager(t, vfs.NewMem())
				log, index := joined(files, ".log"), joined(files, ".txnindex")
				var got []byte
				compared := 0
				check := func() {
					want, ok := files[SnapshotName(m.MapEndOffset())]
					if !ok {
						return
					}
					compared++
					if b := EncodeSnapshot(m.Active()); len(b) != len(want) || !bytes.Equal(sortedEntries(b), sortedEntries(want)) {
						t.Fatalf("snapshot at %d: got %x, Kafka wrote %x", m.MapEndOffset(), b, want)
					}
				}
				for b, err := range record.Batches(log) {
					must(t, err)
					a := m.Prepare(AppendOptions{Origin: FromReplication})
					txn, err := a.Check(b)
					must(t, err)
					m.Update(a)
					if txn != nil {
						if txn.Aborted {
							got = appendIndexEntry(got, *txn, m.LastStableOffset(*txn))
						}
						m.CompleteTxn(*txn)
					}
					m.UpdateMapEndOffset(b.NextOffset())
					check()
				}
				if !bytes.Equal(got, index) {
					t.Fatalf("transaction index: got %x, Kafka wrote %x", got, index)
				}
				if snapshots := count(files, ".snapshot"); compared != snapshots || compared == 0 {
					t.Fatalf("compared %d of %d snapshots", compared, snapshots)
				}
			})
		}
	}
}

func appendIndexEntry(dst []byte, txn CompletedTxn, lastStable int64) []byte {
	dst = binary.BigEndian.AppendUint16(dst, 0)
	for _, v := range []int64{txn.ProducerID, txn.FirstOffset, txn.LastOffset, lastStable} {
		dst = binary.BigEndian.AppendUint64(dst, uint64(v))
	}
	return dst
}

func TestKafkasSnapshotsAreReadAndGivenBackByteForByte(t *testing.T) {
	seen := 0
	for _, archive := range []string{"transactions-v1.tar.gz", "transactions-v2.tar.gz"} {
		for dir, files := range golden(t, archive) {
			for name, want := range files {
				offset, ok := ParseSnapshotName(name)
				if !ok {
					continue
				}
				seen++
				states, err := DecodeSnapshot(want)
				must(t, err)
				if got := EncodeSnapshot(states); !bytes.Equal(got, want) {
					t.Fatalf("%s/%s: got %x, want %x", dir, name, got, want)
				}
				if SnapshotName(offset) != name {
					t.Fatalf("%s is named %s", name, SnapshotName(offset))
				}
			}
		}
	}
	if seen < 20 {
		t.Fatalf("only %d snapshots", seen)
	}
}

func TestLastStableOffsetAfterReplayIsThatOfTheOpenTransaction(t *testing.T) {
	m := newManager(t, vfs.NewMem())
	files := golden(t, "transactions-v2.tar.gz")["txn-0"]
	for b, err := range record.Batches(joined(files, ".log")) {
		must(t, err)
		replay(t, m, b)
	}
	m.OnHighWatermark(50)
	if got, ok := m.FirstUnstableOffset(); !ok || got != 40 {
		t.Fatalf("first unstable offset %d, %v; Kafka's last stable offset was 40", got, ok)
	}
}
