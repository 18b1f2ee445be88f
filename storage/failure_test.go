package storage

import (
	"errors"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"

	"gregor/protocol/record"
	"gregor/storage/vfs"
)

// failingLog opens a log over a file system whose failures the test switches on.
func failingLog(t *testing.T) (l *Log, mem *vfs.Mem, failures *vfs.Switch, told *atomic.Int64) {
	t.Helper()
	mem, failures, told = vfs.NewMem(), &vfs.Switch{}, &atomic.Int64{}
	o := testOptions(vfs.NewErr(mem, failures))
	o.Config.SegmentMillis = 1 << 40
	o.Events.Failed = func(_ *Log, err error) {
		if !errors.Is(err, ErrStorage) {
			t.Errorf("told of %v", err)
		}
		told.Add(1)
	}
	l = openLog(t, o)
	l.bg.wait()
	return l, mem, failures, told
}

func isLog(op vfs.Op) bool { return vfs.MatchPath(".log")(op) }

func TestFailedRollbackLeavesNoBatchAfterTheTornOne(t *testing.T) {
	l, mem, failures, _ := failingLog(t)
	appendBatch(t, l, 2, 1)
	size := l.State().SizeBytes
	failures.Set(vfs.InjectorFunc(func(op vfs.Op) error {
		switch {
		case op.Kind == vfs.OpWrite && isLog(op):
			return &vfs.ShortWrite{Bytes: 70, Err: syscall.EIO}
		case op.Kind == vfs.OpTruncate && isLog(op):
			return syscall.EIO
		}
		return nil
	}))
	if _, err := l.AppendAsLeader(batchOf(2, 2, record.BuilderOptions{}), 0, AppendOptions{}); !errors.Is(err, syscall.EIO) {
		t.Fatalf("got %v", err)
	}
	failures.Set(nil)
	if n := len(readFile(t, mem, "00000000000000000000.log")); int64(n) != size+70 {
		t.Fatalf("%d bytes, the torn write is not there", n)
	}
	again := openLog(t, testOptions(mem))
	if s := again.State(); s.LogEndOffset != 2 || s.SizeBytes != size {
		t.Errorf("recovered to %+v", s)
	}
}

func TestFailedSyncIsNeverRetried(t *testing.T) {
	l, _, failures, told := failingLog(t)
	appendBatch(t, l, 1, 1)
	syncs := 0
	failures.Set(vfs.InjectorFunc(func(op vfs.Op) error {
		if op.Kind == vfs.OpSync && isLog(op) {
			if syncs++; syncs == 1 {
				return syscall.EIO
			}
		}
		return nil
	}))
	for range 3 {
		if err := l.Flush(1); !errors.Is(err, ErrStorage) {
			t.Fatalf("got %v", err)
		}
	}
	_ = l.Close()
	if syncs != 1 || told.Load() != 1 || l.State().RecoveryPoint != 0 {
		t.Errorf("%d syncs, told %d times, recovery point %d", syncs, told.Load(), l.State().RecoveryPoint)
	}
}

// TestAnyFailedOperationFailsTheLogAndLosesNothing fails each operation of a workload in turn.
func TestAnyFailedOperationFailsTheLogAndLosesNothing(t *testing.T) {
	workload := func(l *Log) (acknowledged int64, err error) {
		for i := range 12 {
			info, err := l.AppendAsLeader(batchOf(2, int64(i), record.BuilderOptions{}), int32(i/5), AppendOptions{AloneInSync: true})
			if err != nil {
				return acknowledged, err
			}
			acknowledged = info.LastOffset + 1
			switch i {
			case 4, 8:
				err = l.Roll()
			case 6:
				err = l.Flush(acknowledged)
			case 10:
				_, err = l.IncrementLogStartOffset(11)
				if err == nil {
					_, err = l.DeleteOldSegments(l.LastFlushed())
				}
			}
			if err != nil {
				return acknowledged, err
			}
			l.bg.wait()
		}
		return acknowledged, l.Close()
	}
	for nth := int64(1); ; nth++ {
		var seen atomic.Int64
		l, mem, failures, told := failingLog(t)
		c := *l.Config()
		c.FileDeleteDelayMillis = 1 << 40
		l.UpdateConfig(c)
		failures.Set(vfs.InjectorFunc(func(op vfs.Op) error {
			changes := []vfs.OpKind{vfs.OpWrite, vfs.OpSync, vfs.OpTruncate, vfs.OpCreate, vfs.OpRename, vfs.OpSyncDir}
			if slices.Contains(changes, op.Kind) && seen.Add(1) == nth {
				return syscall.EIO
			}
			return nil
		}))
		end, err := workload(l)
		failures.Set(nil)
		if seen.Load() < nth {
			if nth < 40 {
				t.Errorf("only %d operations", nth)
			}
			return
		}
		if err == nil || !errors.Is(err, ErrStorage) || told.Load() != 1 {
			t.Fatalf("operation %d: %v, told %d times", nth, err, told.Load())
		}
		l.CloseUnclean()
		again, err := OpenLog(testOptions(mem))
		must(t, err)
		// An append that failed after its bytes were written may be there; one that was acknowledged must be.
		if s := again.State(); s.LogEndOffset < end || s.LogEndOffset > end+2 {
			t.Fatalf("operation %d: the log ends at %d, %d were acknowledged", nth, s.LogEndOffset, end)
		}
		again.CloseUnclean()
	}
}

func TestReadErrorFailsTheLog(t *testing.T) {
	l, _, failures, told := failingLog(t)
	for i := range 100 {
		appendBatch(t, l, 1, int64(i))
	}
	failures.Set(vfs.FailFrom(1, syscall.EIO, vfs.MatchKind(vfs.OpRead)))
	if _, err := l.ReadBatches(0, nil, 1000, UpToLogEnd); !errors.Is(err, ErrStorage) {
		t.Fatalf("got %v", err)
	}
	if told.Load() != 1 {
		t.Errorf("told %d times", told.Load())
	}
}

func TestDamageBelowTheRecoveryPointTakesTheReplicaOfflineAndIsNotCut(t *testing.T) {
	mem := vfs.NewMem()
	o := testOptions(mem)
	o.Config.IndexIntervalBytes = 100
	l := openLog(t, o)
	for i := range 50 {
		appendBatch(t, l, 1, int64(i))
	}
	size := l.State().SizeBytes / 50
	must(t, l.Close())
	f, err := mem.OpenReadWrite(testDir + "/00000000000000000000.log")
	must(t, err)
	_, err = f.WriteAt([]byte{0xff, 0xff, 0xff, 0xff}, size*20+8) // a batch length
	must(t, err)
	o.HadCleanShutdown, o.RecoveryPoint = true, 50
	l = openLog(t, o)
	_, err = l.ReadBatches(20, nil, 100, UpToLogEnd)
	var corrupt *CorruptError
	if !errors.As(err, &corrupt) || !errors.Is(err, ErrCorrupt) || corrupt.Position != size*20 && corrupt.Position != 0 {
		t.Fatalf("got %v", err)
	}
	if !errors.Is(l.Damage(), ErrStorage) || !errors.As(l.Err(), &corrupt) || l.State().LogEndOffset != 50 {
		t.Errorf("the log says %v, end %d", l.Err(), l.State().LogEndOffset)
	}
	if _, err := l.AppendAsLeader(batchOf(1, 1, record.BuilderOptions{}), 0, AppendOptions{LogAppendTimeMillis: -1}); !errors.As(err, &corrupt) {
		t.Errorf("an append answers %v", err)
	}
	if err := l.TruncateTo(3); !errors.As(err, &corrupt) {
		t.Errorf("a truncation answers %v", err)
	}
	must(t, l.Close())
	if n := int64(len(readFile(t, mem, "00000000000000000000.log"))); n != size*50 {
		t.Errorf("%d bytes are left of %d", n, size*50)
	}
}

func TestUnsavedRecoveryPointStopsATruncation(t *testing.T) {
	mem := vfs.NewMem()
	o := testOptions(mem)
	o.Events.RecoveryPointLowered = func(l *Log, offset int64) error {
		if offset != 2 || l.State().LogEndOffset != 4 {
			t.Errorf("asked for %d at end %d", offset, l.State().LogEndOffset)
		}
		return syscall.EROFS
	}
	l := openLog(t, o)
	for i := range 4 {
		appendBatch(t, l, 1, int64(i))
	}
	must(t, l.Flush(4))
	size := l.State().SizeBytes
	if err := l.TruncateTo(2); !errors.Is(err, syscall.EROFS) || !errors.Is(err, ErrStorage) {
		t.Fatalf("got %v", err)
	}
	if n := len(readFile(t, mem, "00000000000000000000.log")); int64(n) != size {
		t.Errorf("%d bytes are left", n)
	}
}
