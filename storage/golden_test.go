package storage

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gregor/protocol/record"
	"gregor/storage/producer"
	"gregor/storage/segment"
	"gregor/storage/vfs"
)

// goldenBatch is a line of batches.tsv.
type goldenBatch struct {
	file                                        string
	position, size, base, last, crc, max, epoch int64
}

func goldenBatches(t testing.TB, rows [][]string) []goldenBatch {
	t.Helper()
	var list []goldenBatch
	for _, r := range rows {
		list = append(list, goldenBatch{
			r[0], number(t, r[1]), number(t, r[2]), number(t, r[3]), number(t, r[4]), number(t, r[5]), number(t, r[6]), number(t, r[7]),
		})
	}
	return list
}

// checkBatches compares what the log reads with what Kafka's own reader found, batch by batch, with positions.
func checkBatches(t *testing.T, l *Log, want []goldenBatch) {
	t.Helper()
	want = slices.DeleteFunc(want, func(b goldenBatch) bool { return b.last < l.State().LogStartOffset })
	i := 0
	for b, err := range record.Batches(contents(t, l, UpToLogEnd)) {
		must(t, err)
		if i == len(want) {
			t.Fatalf("batch %d-%d is one too many", b.BaseOffset(), b.LastOffset())
		}
		w := want[i]
		i++
		if b.BaseOffset() != w.base && b.Magic() >= 2 || b.LastOffset() != w.last || int64(len(b)) != w.size ||
			int64(b.CRC()) != w.crc && b.Magic() >= 2 || b.MaxTimestamp() != w.max || int64(b.LeaderEpoch()) != w.epoch {
			t.Fatalf("batch %d-%d of %d bytes, crc %d, max timestamp %d, epoch %d; want %+v",
				b.BaseOffset(), b.LastOffset(), len(b), b.CRC(), b.MaxTimestamp(), b.LeaderEpoch(), w)
		}
		s := l.State()
		seg := s.segments[s.floor(w.last)]
		e, ok, err := seg.Find(w.last, seg.SizeBytes())
		must(t, err)
		if !ok || e.Position != w.position || segment.FileName(seg.Base(), segment.LogSuffix) != w.file {
			t.Fatalf("batch %d-%d is found at %+v of segment %d, want %+v", w.base, w.last, e, seg.Base(), w)
		}
	}
	if i != len(want) {
		t.Fatalf("%d batches, want %d", i, len(want))
	}
}

func TestKafkasDirectoriesReadAsKafkaReadThem(t *testing.T) {
	for _, name := range []string{"plain", "transactions", "compacted"} {
		a := readArchive(t, name)
		batches, offsets := a.table(t, "batches.tsv"), a.table(t, "offsets.tsv")
		for dir, files := range a.dirs() {
			t.Run(name+"/"+dir, func(t *testing.T) {
				fsys := vfs.NewMem()
				install(t, fsys, testDir, files)
				before := fsys.Ops()
				o := testOptions(fsys)
				o.HadCleanShutdown, o.LogStartOffset = true, a.checkpointOf("log-start-offset-checkpoint", dir)
				o.RecoveryPoint = a.checkpointOf("recovery-point-offset-checkpoint", dir)
				l := openLog(t, o)
				l.bg.wait()
				// Where DeleteRecords left snapshots below the log start, or a leader epoch without records, they go.
				tidy := strings.HasPrefix(dir, "records-deleted") || strings.HasPrefix(dir, "empty")
				if name == "plain" && fsys.Ops() != before && !tidy {
					t.Errorf("a clean start changed files")
				}
				_, err := l.UpdateHighWatermark(1 << 60)
				must(t, err)
				s, want := l.State(), offsets[dir][0]
				if s.LogStartOffset != number(t, want[0]) || s.HighWatermark != number(t, want[1]) || s.LastStableOffset != number(t, want[2]) {
					t.Errorf("start %d, high watermark %d, last stable %d; Kafka says %v", s.LogStartOffset, s.HighWatermark, s.LastStableOffset, want)
				}
				found, err := l.OffsetForTimestamp(MaxTimestamp, UpToLogEnd)
				must(t, err)
				if found.Offset != number(t, want[3]) {
					t.Errorf("offset of the largest timestamp is %+v, Kafka says %s", found, want[3])
				}
				checkBatches(t, l, goldenBatches(t, batches[dir]))
			})
		}
	}
}

func TestOldFormatsAreReadAndIndexed(t *testing.T) {
	a := readArchive(t, "legacy")
	batches, offsets := a.table(t, "batches.tsv"), a.table(t, "offsets.tsv")
	for dir, files := range a.dirs() {
		t.Run(dir, func(t *testing.T) {
			fsys := vfs.NewMem()
			install(t, fsys, testDir, files)
			l := openLog(t, testOptions(fsys))
			s, want := l.State(), offsets[dir][0]
			if s.LogStartOffset != number(t, want[0]) || s.LogEndOffset != number(t, want[1]) {
				t.Errorf("start %d, end %d; Kafka says %v", s.LogStartOffset, s.LogEndOffset, want)
			}
			found, err := l.OffsetForTimestamp(MaxTimestamp, UpToLogEnd)
			must(t, err)
			if found.Offset != number(t, want[3]) {
				t.Errorf("offset of the largest timestamp is %+v, Kafka says %s", found, want[3])
			}
			checkBatches(t, l, goldenBatches(t, batches[dir]))
			must(t, l.Close())
			mustEqualBytes(t, "log", readFile(t, fsys, "00000000000000000000.log"), files["00000000000000000000.log"])
		})
	}
}

func readFile(t testing.TB, fsys vfs.FS, name string) []byte {
	t.Helper()
	b, err := vfs.ReadFile(fsys, path.Join(testDir, name))
	must(t, err)
	return b
}

// goldenConfig is the config that a topic of the recordings had.
func goldenConfig(dir string) LogConfig {
	c := testConfig()
	switch {
	case strings.HasPrefix(dir, "codec-"), strings.HasPrefix(dir, "records-deleted"), strings.HasPrefix(dir, "idem"), strings.HasPrefix(dir, "txn-"):
		c.SegmentMillis = 60000
	case strings.HasPrefix(dir, "large"):
		c.SegmentBytes = 1500000
	case strings.HasPrefix(dir, "indexed"):
		c.IndexIntervalBytes, c.SegmentMillis = 512, 100000
	case strings.HasPrefix(dir, "txnroll"):
		c.SegmentBytes = 1048576
	}
	return c
}

// TestAppendingKafkasBatchesGivesKafkasFiles appends the batches of the recordings one by one and compares every
// file after a clean close.
func TestAppendingKafkasBatchesGivesKafkasFiles(t *testing.T) {
	for _, name := range []string{"plain", "transactions"} {
		a := readArchive(t, name)
		for dir, files := range a.dirs() {
			t.Run(name+"/"+dir, func(t *testing.T) {
				fsys := vfs.NewMem()
				o := testOptions(fsys)
				o.Config = goldenConfig(dir)
				l := openLog(t, o)
				must(t, l.AssignEpochStart(0, 0))
				for _, file := range slices.Sorted(maps.Keys(files)) {
					if !strings.HasSuffix(file, segment.LogSuffix) {
						continue
					}
					for b, err := range record.Batches(files[file]) {
						must(t, err)
						_, err = l.AppendAsFollower(b, 1000)
						must(t, err)
						_, err = l.UpdateHighWatermark(b.NextOffset())
						must(t, err)
					}
				}
				l.bg.wait()
				_, err := l.IncrementLogStartOffset(a.checkpointOf("log-start-offset-checkpoint", dir))
				must(t, err)
				must(t, l.Close())
				compareDirs(t, fsys, files)
			})
		}
	}
}

func compareDirs(t *testing.T, fsys vfs.FS, files map[string][]byte) {
	t.Helper()
	entries, err := fsys.ReadDir(testDir)
	must(t, err)
	names := []string{"partition.metadata"} // written with a topic id, which the log did not get
	for _, e := range entries {
		names = append(names, e.Name())
	}
	slices.Sort(names)
	if want := slices.Sorted(maps.Keys(files)); !slices.Equal(names, want) {
		t.Fatalf("files\n%s\nwant\n%s", strings.Join(names, "\n"), strings.Join(want, "\n"))
	}
	for file, want := range files {
		switch {
		case file == "partition.metadata":
		case strings.HasSuffix(file, segment.SnapshotSuffix):
			if got := readFile(t, fsys, file); !sameSnapshot(t, got, want) {
				t.Errorf("%s: got %x, want %x", file, got, want)
			}
		default:
			mustEqualBytes(t, file, readFile(t, fsys, file), want)
		}
	}
}

// sameSnapshot compares producer snapshots, whose entries Kafka writes in the order of a hash map.
func sameSnapshot(t testing.TB, a, b []byte) bool {
	t.Helper()
	sorted := func(raw []byte) []byte {
		states, err := producer.DecodeSnapshot(raw)
		must(t, err)
		slices.SortFunc(states, func(a, b producer.State) int { return int(a.ProducerID - b.ProducerID) })
		return producer.EncodeSnapshot(states)
	}
	return bytes.Equal(sorted(a), sorted(b))
}

// TestDamagedDirectoriesRecoverAsKafkaRecoveredThem opens the directories of a killed broker with 16 kinds of
// damage, becomes leader of epoch 2 as that broker did, closes cleanly and compares batches, offsets and files.
func TestDamagedDirectoriesRecoverAsKafkaRecoveredThem(t *testing.T) {
	a := readArchive(t, "crashed")
	batches, offsets, hashes := a.table(t, "after.batches.tsv"), a.table(t, "after.offsets.tsv"), a.table(t, "after.files.tsv")
	tested := 0
	for dir, files := range a.dirs() {
		if _, ok := offsets[dir]; !ok {
			continue // not a partition any more
		}
		tested++
		t.Run(dir, func(t *testing.T) {
			fsys := vfs.NewMem()
			install(t, fsys, testDir, files)
			o := testOptions(fsys)
			o.RecoveryPoint = a.checkpointOf("recovery-point-offset-checkpoint", dir)
			o.Config.IndexIntervalBytes, o.Config.SegmentMillis = 256, 60000
			l := openLog(t, o)
			s, want := l.State(), offsets[dir][0]
			if s.LogStartOffset != number(t, want[0]) || s.LogEndOffset != number(t, want[1]) {
				t.Errorf("start %d, end %d; Kafka says %v", s.LogStartOffset, s.LogEndOffset, want)
			}
			if s.RecoveryPoint > 42 {
				t.Errorf("recovery point %d although nothing has been synced", s.RecoveryPoint)
			}
			must(t, l.AssignEpochStart(2, s.LogEndOffset))
			checkBatches(t, l, goldenBatches(t, batches[dir]))
			must(t, l.Close())
			for name, row := range hashes {
				sub, file := path.Split(name)
				if path.Clean(sub) == dir {
					compareHash(t, fsys, dir, file, row[0])
				}
			}
		})
	}
	if tested != 16 {
		t.Fatalf("%d directories", tested)
	}
}

func compareHash(t *testing.T, fsys vfs.FS, dir, file string, want []string) {
	t.Helper()
	switch {
	case dir == "badindex-0" && (file == "00000000000000000000.index" || strings.HasPrefix(file, "00000000000000000021.")):
		return // Kafka leaves these damaged; here, having been read, they are rebuilt
	case dir == "swapped-0" && (file == "00000000000000000000.index" || file == "00000000000000000000.timeindex"):
		return // Kafka leaves the one as zeros and the other empty; here they are rebuilt
	}
	got, err := vfs.ReadFile(fsys, path.Join(testDir, file))
	if err != nil {
		t.Error(err)
		return
	}
	sum := sha256.Sum256(got)
	if hex.EncodeToString(sum[:]) != want[1] {
		t.Errorf("%s: %d bytes %.60x, Kafka has other %s bytes", file, len(got), got, want[0])
	}
}

// consume reads as a consumer of an isolation level does: by the list of aborted transactions of each fetch.
func consume(t *testing.T, l *Log, upTo Bound, maxBytes int) string {
	t.Helper()
	var offsets []string
	for at := l.State().LogStartOffset; ; {
		f, err := l.Read(at, maxBytes, upTo, true)
		must(t, err)
		if f.Range == nil {
			return strings.Join(offsets, " ")
		}
		buf := make([]byte, f.Range.Len())
		_, err = f.Range.ReadAt(buf, 0)
		must(t, err)
		f.Range.Release()
		pending, aborted := slices.Clone(f.AbortedTxns), map[int64]bool{}
		for b, err := range record.Batches(buf) {
			if err != nil {
				break // cut at the end
			}
			at = b.NextOffset()
			pending = slices.DeleteFunc(pending, func(a AbortedTxn) bool {
				if a.FirstOffset <= b.LastOffset() {
					aborted[a.ProducerID] = true
					return true
				}
				return false
			})
			if b.IsControl() {
				if control, _, _, err := record.ParseEndTxnBatch(b, record.Limits{}); err == nil && control == record.ControlAbort {
					delete(aborted, b.ProducerID())
				}
				continue
			}
			if upTo == UpToLastStable && b.IsTransactional() && aborted[b.ProducerID()] {
				continue
			}
			for r, err := range b.Records(record.Limits{}) {
				must(t, err)
				offsets = append(offsets, strconv.FormatInt(r.Offset, 10))
			}
		}
	}
}

func TestConsumersOfBothIsolationLevelsSeeWhatKafkasDo(t *testing.T) {
	a := readArchive(t, "transactions")
	committed, uncommitted := a.table(t, "committed.tsv"), a.table(t, "uncommitted.tsv")
	for dir, files := range a.dirs() {
		t.Run(dir, func(t *testing.T) {
			for _, clean := range []bool{true, false} {
				fsys := vfs.NewMem()
				install(t, fsys, testDir, files)
				o := testOptions(fsys)
				o.HadCleanShutdown = clean // else the transaction indexes are rebuilt
				l := openLog(t, o)
				_, err := l.UpdateHighWatermark(1 << 60)
				must(t, err)
				for _, maxBytes := range []int{1, 200, 1 << 20} {
					if got := consume(t, l, UpToLastStable, maxBytes); got != committed[dir][0][0] {
						t.Errorf("read_committed, %d bytes a fetch:\n%s\nKafka's:\n%s", maxBytes, got, committed[dir][0][0])
					}
					if got := consume(t, l, UpToHighWatermark, maxBytes); got != uncommitted[dir][0][0] {
						t.Errorf("read_uncommitted, %d bytes a fetch:\n%s\nKafka's:\n%s", maxBytes, got, uncommitted[dir][0][0])
					}
				}
				for file, want := range files {
					if strings.HasSuffix(file, segment.TxnIndexSuffix) {
						mustEqualBytes(t, file, readFile(t, fsys, file), want)
					}
				}
			}
		})
	}
}
