package storage

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"gregor/protocol/record"
	"gregor/storage/segment"
	"gregor/storage/vfs"
)

// overflowedOffsets are the batches of a segment with base 0 as a Kafka before 2.0 could leave it.
var overflowedOffsets = map[string][]int64{
	"in the middle":        {5, math.MaxInt32 - 1, math.MaxInt32, math.MaxInt32 + 1, math.MaxInt32 + 9, 2*math.MaxInt32 + 50, 2*math.MaxInt32 + 51},
	"from the first batch": {math.MaxInt32 + 7, math.MaxInt32 + 8, 3 * math.MaxInt32},
	"at the last batch":    {0, 1, 2, math.MaxInt32 + 1},
}

// overflowedLog is a log whose first segment overflows, followed by an ordinary one.
func overflowedLog(t *testing.T, offsets []int64) (fsys *vfs.Mem, want []byte, bases []int64) {
	t.Helper()
	fsys = vfs.NewMem()
	batches := func(offsets ...int64) (raw []byte) {
		for _, o := range offsets {
			raw = append(raw, batchOf(1, o, record.BuilderOptions{BaseOffset: o})...)
		}
		return raw
	}
	next := offsets[len(offsets)-1] + 100
	first, second := batches(offsets...), batches(next, next+1)
	install(t, fsys, testDir, map[string][]byte{
		segment.FileName(0, segment.LogSuffix): first, segment.FileName(next, segment.LogSuffix): second,
		segment.FileName(next, segment.SnapshotSuffix): emptySnapshot(t),
	})
	must(t, fsys.SyncDir("/"))
	bases = []int64{0}
	for _, o := range offsets {
		if o-bases[len(bases)-1] > math.MaxInt32 {
			bases = append(bases, o)
		}
	}
	return fsys, slices.Concat(first, second), append(bases, next)
}

// emptySnapshot is a producer snapshot without producers, which tells that the segment before it was sealed.
func emptySnapshot(t *testing.T) []byte {
	t.Helper()
	fsys := vfs.NewMem()
	l, err := OpenLog(testOptions(fsys))
	must(t, err)
	appendBatch(t, l, 1, 1)
	must(t, l.Close())
	return readFile(t, fsys, segment.FileName(1, segment.SnapshotSuffix))
}

func basesOf(l *Log) (bases []int64) {
	for _, s := range l.Segments() {
		bases = append(bases, s.Base())
	}
	return bases
}

// checkSplit checks a log that was split.
func checkSplit(l *Log, want []byte, bases []int64) error {
	got, err := allBatches(l)
	if err != nil || !bytes.Equal(got, want) {
		return fmt.Errorf("%d bytes of batches, want %d: %w", len(got), len(want), err)
	}
	if found := basesOf(l); !slices.Equal(found, bases) {
		return fmt.Errorf("segments at %v, want %v", found, bases)
	}
	for _, s := range l.Segments() {
		if err := s.CheckIndexes(true); err != nil {
			return fmt.Errorf("segment %d: %w", s.Base(), err)
		}
	}
	return nil
}

func allBatches(l *Log) (all []byte, err error) {
	for at := l.State().LogStartOffset; at < l.State().LogEndOffset; {
		raw, err := l.ReadBatches(at, nil, 1, UpToLogEnd)
		if err != nil {
			return all, err
		}
		b, _, err := record.Next(raw)
		if err != nil {
			return all, err
		}
		all, at = append(all, b...), b.NextOffset()
	}
	return all, nil
}

func TestSegmentWhoseOffsetsOverflowIsSplitAsKafkaDoes(t *testing.T) {
	for name, offsets := range overflowedOffsets {
		for _, clean := range []bool{false, true} { // after a clean stop the missing index makes the start read the segment
			t.Run(fmt.Sprintf("%s, clean %t", name, clean), func(t *testing.T) {
				fsys, want, bases := overflowedLog(t, offsets)
				o := testOptions(fsys)
				o.HadCleanShutdown = clean
				l := openLog(t, o)
				must(t, checkSplit(l, want, bases))
				appendBatch(t, l, 1, 1)
				end := l.State().LogEndOffset
				must(t, l.Close())
				for _, n := range namesIn(t, fsys, testDir) {
					if strings.HasSuffix(n, segment.CleanedSuffix) || strings.HasSuffix(n, segment.SwapSuffix) {
						t.Errorf("%s is left", n)
					}
				}
				o.HadCleanShutdown = true
				if l = openLog(t, o); l.State().LogEndOffset != end {
					t.Errorf("ends at %d after a restart, was %d", l.State().LogEndOffset, end)
				}
			})
		}
	}
}

// TestPowerCutDuringASplitLosesNothing cuts the power before every operation of a start that splits, and before every one
// of the start after that.
func TestPowerCutDuringASplitLosesNothing(t *testing.T) {
	points := 0
	for name, offsets := range overflowedOffsets {
		fsys, want, bases := overflowedLog(t, offsets)
		check := func(disk *vfs.Mem, when string) {
			t.Helper()
			points++
			l, err := OpenLog(testOptions(disk))
			if err == nil {
				err = checkSplit(l, want, bases)
				l.CloseUnclean()
			}
			if err != nil {
				t.Errorf("%s: %s: %v\n%s", name, when, err, listing(disk))
			}
		}
		for i, cut := range cutsDuringOpen(t, fsys) {
			check(cut.fsys.Crash(0), cut.when)
			if i%27 == 0 {
				for _, again := range cutsDuringOpen(t, cut.fsys) {
					check(again.fsys, cut.when+", then "+again.when)
				}
			}
		}
	}
	if points < 3000 {
		t.Errorf("only %d power cuts", points)
	}
	t.Logf("%d power cuts", points)
}

// overflowedCompactedLog is overflowedLog, opened, with keys, and with indexes, so that the start does not read the segment.
// The batch in the middle of it has a value of so many bytes; the one before is of an aborted transaction, whose marker is the
// last batch.
func overflowedCompactedLog(t *testing.T, offsets []int64, valueBytes int) (fsys *vfs.Mem, s *vfs.Switch, l *Log) {
	t.Helper()
	fsys, _, _ = overflowedLog(t, offsets)
	aborted, marker := len(offsets)/2-1, len(offsets)-1
	next := offsets[marker] + 100
	var raw []byte
	for i, offset := range append(slices.Clone(offsets), next, next+1) {
		o, value := record.BuilderOptions{BaseOffset: offset}, []byte("value")
		switch i {
		case aborted:
			o.HasProducer, o.ProducerID, o.Transactional = true, 5, true
		case aborted + 1:
			value = make([]byte, valueBytes)
		}
		b := record.NewBuilder(o)
		b.Add(7, strconv.AppendInt(nil, offset, 10), value, nil)
		one := b.Bytes()
		if i == marker {
			one = record.BuildEndTxnMarker(record.EndTxnOptions{TimestampMillis: 7, ProducerID: 5})
			one.SetBaseOffset(offset)
		}
		raw = append(raw, one...)
		if i == marker {
			indexed, err := segment.Create(testDir, 0, 1, "", segment.Options{Files: vfs.NewCache(fsys, 9), IndexMaxBytes: 4096})
			must(t, err)
			must(t, indexed.AppendAborted(segment.AbortedTxn{ProducerID: 5, FirstOffset: offsets[aborted], LastOffset: offset, LastStableOffset: offset + 1}))
			must(t, indexed.Seal())
			must(t, indexed.SyncAll())
			must(t, indexed.Close())
			install(t, fsys, testDir, map[string][]byte{segment.FileName(0, segment.LogSuffix): raw})
			raw = nil
		}
	}
	install(t, fsys, testDir, map[string][]byte{segment.FileName(next, segment.LogSuffix): raw})
	s = new(vfs.Switch)
	o := testOptions(vfs.NewErr(fsys, s))
	o.Config.CleanupCompact, o.Config.CleanupDelete, o.Config.MinCleanableDirtyRatio = true, false, 0
	o.HadCleanShutdown = true
	l = openLog(t, o)
	must(t, l.Roll())
	_, err := l.UpdateHighWatermark(l.State().LogEndOffset)
	must(t, err)
	l.bg.wait()
	must(t, fsys.SyncDir(testDir))
	return fsys, s, l
}

// everything is what is in a log: all batches, and what a consumer finds with read_committed.
func everything(t *testing.T, l *Log) (batches []byte, found map[string]string) {
	t.Helper()
	_, err := l.UpdateHighWatermark(l.State().LogEndOffset)
	must(t, err)
	batches, err = allBatches(l)
	must(t, err)
	return batches, latest(t, l)
}

func TestCleanerSplitsASegmentWhoseOffsetsOverflow(t *testing.T) {
	for name, offsets := range overflowedOffsets {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, _, bases := overflowedLog(t, offsets)
				fsys, _, l := overflowedCompactedLog(t, offsets, 2<<20)
				want, wantFound := everything(t, l)
				bases = append(bases, l.State().LogEndOffset)
				p := cleanAll(fsys, l)
				if m := p.Metrics(); len(m.Uncleanable) > 0 || m.Rounds > 0 {
					t.Errorf("%+v", m)
				}
				must(t, checkSplit(l, want, bases))
				for _, base := range bases[1:] {
					if _, err := vfs.ReadFile(fsys, path.Join(testDir, segment.FileName(base, segment.SnapshotSuffix))); err != nil {
						t.Error(err)
					}
				}
				if _, found := everything(t, l); !maps.Equal(found, wantFound) || len(found) != len(offsets) {
					t.Errorf("a consumer finds %d keys, want %d", len(found), len(wantFound))
				}
				// The next round cleans the pieces.
				p = cleanAll(fsys, l)
				if m := p.Metrics(); len(m.Uncleanable) > 0 || m.Rounds == 0 || l.State().CleanedTo != l.State().LogEndOffset {
					t.Errorf("cleaned to %d: %+v", l.State().CleanedTo, m)
				}
				if _, found := everything(t, l); !maps.Equal(found, wantFound) {
					t.Errorf("a consumer finds %d keys, want %d", len(found), len(wantFound))
				}
				must(t, l.Close())
			})
		})
	}
}

// TestPowerCutWhileTheCleanerSplitsLosesNothing starts with every recovery point that may have been noted before.
func TestPowerCutWhileTheCleanerSplitsLosesNothing(t *testing.T) {
	points := 0
	for name, offsets := range overflowedOffsets {
		for seed := range uint64(10) {
			synctest.Test(t, func(t *testing.T) {
				fsys, _, l := overflowedCompactedLog(t, offsets, 10)
				want, wantFound := everything(t, l)
				for i, d := range cutsDuringCleaning(fsys, l, 1, 1000*seed+3) {
					points++
					o := testOptions(d.fsys)
					o.RecoveryPoint = []int64{0, offsets[len(offsets)/2], l.State().LogEndOffset}[i%3]
					again, err := OpenLog(o)
					must(t, err)
					if got, found := everything(t, again); !bytes.Equal(got, want) || !maps.Equal(found, wantFound) {
						t.Errorf("%s: %s: %d bytes of batches, want %d\n%s", name, d.when, len(got), len(want), listing(d.fsys))
					}
					again.CloseUnclean()
				}
			})
		}
	}
	if points < 2000 {
		t.Errorf("only %d power cuts", points)
	}
	t.Logf("%d power cuts", points)
}

// TestFailureWhileTheCleanerSplitsLosesNothing fails one operation after the other.
func TestFailureWhileTheCleanerSplitsLosesNothing(t *testing.T) {
	for name, offsets := range overflowedOffsets {
		n := int64(1)
		for met := true; met; n++ {
			met = false
			synctest.Test(t, func(t *testing.T) {
				fsys, s, l := overflowedCompactedLog(t, offsets, 10)
				want, wantFound := everything(t, l)
				failing := &told{Injector: vfs.FailNth(n, syscall.EIO, changes)}
				s.Set(failing)
				cleanAll(fsys, l)
				l.CloseUnclean()
				failed := failing.what()
				met = failed != ""
				again, err := OpenLog(testOptions(fsys))
				must(t, err)
				if got, found := everything(t, again); !bytes.Equal(got, want) || !maps.Equal(found, wantFound) {
					t.Errorf("%s: after a failed %s %d bytes of batches, want %d\n%s", name, failed, len(got), len(want), listing(fsys))
				}
				again.CloseUnclean()
			})
		}
		if n < 20 {
			t.Errorf("%s: only %d failures", name, n)
		}
	}
}

// cutsDuringOpen opens the log and returns what power cuts before each operation would have left.
func cutsDuringOpen(t *testing.T, fsys *vfs.Mem) (disks []crashed) {
	t.Helper()
	fsys.OnOp(func(n int64, op vfs.Op) {
		if op.Kind == vfs.OpRead {
			return
		}
		for _, seed := range []uint64{0, vfs.CrashKeepAll, uint64(n)} {
			disks = append(disks, crashed{fsys: fsys.Crash(seed), when: fmt.Sprintf("before operation %d (%s %s), seed %d", n, op.Kind, path.Base(op.Name), seed)})
		}
	})
	l, err := OpenLog(testOptions(fsys))
	must(t, err)
	l.bg.wait()
	fsys.OnOp(nil)
	l.CloseUnclean()
	return disks
}

func TestDamageBehindAnOverflowIsCutOnlyAboveTheRecoveryPoint(t *testing.T) {
	offsets := overflowedOffsets["in the middle"]
	for _, point := range []int64{0, math.MaxInt64} {
		fsys, want, _ := overflowedLog(t, offsets)
		name := path.Join(testDir, segment.FileName(0, segment.LogSuffix))
		raw, err := vfs.ReadFile(fsys, name)
		must(t, err)
		size := len(raw) / len(offsets)
		raw = bytes.Clone(raw)
		raw[5*size+record.HeaderSizeBytes+2] ^= 1
		must(t, vfs.WriteFile(fsys, name, raw))
		o := testOptions(fsys)
		o.RecoveryPoint = point
		l, err := OpenLog(o)
		if point > 0 {
			if _, corrupt := errors.AsType[*CorruptError](err); !corrupt {
				t.Fatalf("got %v", err)
			}
			continue
		}
		must(t, err)
		got, err := allBatches(l)
		must(t, err)
		if !bytes.Equal(got, want[:5*size]) {
			t.Errorf("%d bytes, want %d", len(got), 5*size)
		}
		l.CloseUnclean()
	}
}
