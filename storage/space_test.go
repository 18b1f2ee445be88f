package storage

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"gregor/protocol/record"
	"gregor/storage/producer"
	"gregor/storage/segment"
	"gregor/storage/vfs"
)

// takesSpace selects the operations that a full disk refuses: growth, and new names. Truncations are taken for growth that
// make an index or a preallocated segment of the tests full size.
func takesSpace(op vfs.Op) bool {
	return growth(op) || op.Kind == vfs.OpTruncate && op.Offset >= 1500
}

var growth = vfs.MatchKind(vfs.OpWrite, vfs.OpCreate, vfs.OpRename, vfs.OpMkdir, vfs.OpAllocate)

// fillingDisk refuses some operations while it is full. Nil never is.
type fillingDisk struct {
	refused *atomic.Int64

	mu   sync.Mutex
	dice *rand.Rand
	full bool
}

// fill makes the disk full, or not.
func (d *fillingDisk) fill(dice *rand.Rand) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.full = dice.IntN(2) == 0
}

func (d *fillingDisk) empty() {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.full = false
}

// Inject implements vfs.Injector.
func (d *fillingDisk) Inject(op vfs.Op) error {
	if d == nil || !takesSpace(op) {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.full || d.dice.IntN(3) > 0 {
		return nil
	}
	d.refused.Add(1)
	if op.Kind == vfs.OpWrite {
		return &vfs.ShortWrite{Bytes: d.dice.Int64N(op.Bytes + 1), Err: syscall.EDQUOT}
	}
	return syscall.ENOSPC
}

func mustOrFull(t testing.TB, err error) {
	t.Helper()
	if err != nil && (!errors.Is(err, ErrNoSpace) || errors.Is(err, ErrStorage)) {
		t.Fatal(err)
	}
}

// workload is appends that touch every file of a log: rolls, leader epochs, producers, an aborted transaction.
func workload() []record.Batch {
	data := func(id int64, sequence int32, transactional bool, n int) record.Batch {
		return batchOf(n, 1000, record.BuilderOptions{HasProducer: true, ProducerID: id, BaseSequence: sequence, Transactional: transactional})
	}
	return []record.Batch{
		data(5, 0, false, 20), data(7, 0, true, 3), data(5, 20, false, 20),
		record.BuildEndTxnMarker(record.EndTxnOptions{ProducerID: 7, CoordinatorEpoch: 1, TimestampMillis: 1000}),
		data(5, 40, false, 1), data(7, 3, true, 20), data(5, 41, false, 30), data(5, 71, false, 30),
	}
}

// figures is what appends change of a log.
func figures(t testing.TB, l *Log) string {
	t.Helper()
	s := l.State()
	text := fmt.Sprintln(s.LogStartOffset, s.LogEndOffset, s.SizeBytes, s.Segments, s.LatestEpoch, l.EpochEntries())
	for _, p := range l.ActiveProducers() {
		text += fmt.Sprintln(p.ProducerID, p.Epoch, p.CoordinatorEpoch, p.CurrentTxnFirstOffset, p.LastSequence(), p.LastOffset())
	}
	for _, seg := range s.segments {
		aborted, err := seg.Aborted()
		must(t, err)
		text += fmt.Sprintln(seg.Base(), aborted)
	}
	return text + fmt.Sprintf("%x", sha256.Sum256(contents(t, l, UpToLogEnd)))
}

// fullLog is a log whose disk the test fills, and what it should hold.
type fullLog struct {
	t       *testing.T
	mem     *vfs.Mem
	disk    vfs.Switch
	options LogOptions
	l       *Log
}

func newFullLog(t *testing.T, preallocate bool) *fullLog {
	f := &fullLog{t: t, mem: vfs.NewMem()}
	must(t, f.mem.MkdirAll(path.Dir(testDir)))
	must(t, f.mem.SyncDir("/"))
	f.options = testOptions(vfs.NewErr(f.mem, &f.disk))
	c := &f.options.Config
	c.SegmentBytes, c.IndexIntervalBytes, c.SegmentMillis, c.Preallocate = 1000, 50, 1<<40, preallocate
	f.options.TopicID = [16]byte{1}
	f.options.TopicIDLater = true
	return f
}

// append appends batch i. The test fails when what is refused has changed anything.
func (f *fullLog) append(i int) error {
	f.t.Helper()
	before := figures(f.t, f.l)
	o := AppendOptions{Origin: FromCoordinator, AloneInSync: true, LogAppendTimeMillis: -1}
	_, err := f.l.AppendAsLeader(workload()[i], int32(i/3), o)
	if err != nil {
		if now := figures(f.t, f.l); now != before {
			f.t.Fatalf("append %d was refused (%v) and has changed\n%s\nto\n%s", i, err, before, now)
		}
	}
	return err
}

// agrees opens what is left on a disk and compares it.
func (f *fullLog) agrees(how string, fsys vfs.FS, clean bool, want string) {
	f.t.Helper()
	o := f.options
	o.FS, o.HadCleanShutdown = fsys, clean
	l, err := OpenLog(o)
	must(f.t, err)
	defer l.CloseUnclean()
	if got := figures(f.t, l); got != want {
		f.t.Errorf("%s:\n%s\nwant\n%s", how, got, want)
	}
}

// run appends all, on a disk that is full by an injector until an append is refused, and then for two more tries.
func (f *fullLog) run(full vfs.Injector) (offline bool) {
	t := f.t
	var err error
	f.l, err = OpenLog(f.options)
	must(t, err)
	f.disk.Set(full)
	refused := 0
	for i := 0; i < len(workload()); {
		err := f.append(i)
		synctest.Wait()
		switch {
		case err == nil:
			i++
		case errors.Is(err, ErrNoSpace) && !errors.Is(err, ErrStorage) && errors.Is(err, syscall.ENOSPC):
			if refused++; refused == 3 {
				f.disk.Set(nil)
			}
			if refused > 3 {
				t.Fatalf("refused without need: %v", err)
			}
		default:
			return true
		}
	}
	f.disk.Set(nil)
	time.Sleep(spaceRetryPause)
	synctest.Wait()
	return f.l.Err() != nil
}

// TestAppendThatFindsNoSpaceIsUndoneWholeAndGoesOnLater fails each operation of a workload in turn for want of space, with
// all or none of those after it, and compares the log with one that had space at every moment.
func TestAppendThatFindsNoSpaceIsUndoneWholeAndGoesOnLater(t *testing.T) {
	changes := vfs.MatchKind(vfs.OpWrite, vfs.OpCreate, vfs.OpRename, vfs.OpMkdir, vfs.OpAllocate, vfs.OpTruncate, vfs.OpRemove)
	for name, c := range map[string]struct {
		preallocate bool
		fails       func(n int64) vfs.Injector
	}{
		"growth once":               {false, func(n int64) vfs.Injector { return vfs.FailNth(n, syscall.ENOSPC, takesSpace) }},
		"growth from then on":       {false, func(n int64) vfs.Injector { return vfs.FailFrom(n, syscall.ENOSPC, takesSpace) }},
		"any change once":           {true, func(n int64) vfs.Injector { return vfs.FailNth(n, syscall.ENOSPC, changes) }},
		"any change from then on":   {true, func(n int64) vfs.Injector { return vfs.FailFrom(n, syscall.ENOSPC, changes) }},
		"any, without preallocated": {false, func(n int64) vfs.Injector { return vfs.FailFrom(n, syscall.ENOSPC, changes) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reference := newFullLog(t, c.preallocate)
				reference.run(nil)
				want := figures(t, reference.l)
				must(t, reference.l.Close())
				for n := int64(1); ; n++ {
					var seen atomic.Int64
					fails := c.fails(n)
					f := newFullLog(t, c.preallocate)
					offline := f.run(vfs.InjectorFunc(func(op vfs.Op) error {
						err := fails.Inject(op)
						if err != nil {
							seen.Add(1)
						}
						return err
					}))
					if offline {
						t.Fatalf("operation %d: %v", n, f.l.Err())
					}
					if seen.Load() == 0 {
						f.l.CloseUnclean()
						if n < 20 {
							t.Errorf("only %d operations", n)
						}
						return
					}
					if got := figures(t, f.l); got != want {
						t.Fatalf("operation %d:\n%s\nwant\n%s", n, got, want)
					}
					f.agrees(fmt.Sprintf("operation %d, after a crash that kept all", n), f.mem.Crash(vfs.CrashKeepAll), false, want)
					must(t, f.l.Flush(f.l.State().LogEndOffset))
					f.agrees(fmt.Sprintf("operation %d, after a power cut", n), f.mem.Crash(0), false, want)
					if s := f.l.State(); s.RecoveryPoint != s.LogEndOffset {
						t.Fatalf("operation %d: recovery point %d, log end %d", n, s.RecoveryPoint, s.LogEndOffset)
					}
					must(t, f.l.Close())
					f.agrees(fmt.Sprintf("operation %d, after a clean stop", n), f.mem, true, want)
					if t.Failed() {
						return
					}
				}
			})
		})
	}
}

// TestFailedSyncTakesTheDirectoryOfflineWhateverItsErrno: after it nobody knows what is on the disk.
func TestFailedSyncTakesTheDirectoryOfflineWhateverItsErrno(t *testing.T) {
	for _, errno := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EIO} {
		for _, kind := range []vfs.OpKind{vfs.OpSync, vfs.OpSyncDir} {
			l, _, failures, told := failingLog(t)
			appendBatch(t, l, 1, 1)
			failures.Set(vfs.FailNth(1, errno, vfs.MatchKind(kind)))
			if err := l.Flush(1); !errors.Is(err, ErrStorage) || errors.Is(err, ErrNoSpace) || !errors.Is(err, errno) {
				t.Errorf("%v of %v: %v", errno, kind, err)
			}
			if told.Load() != 1 || !errors.Is(l.Err(), errno) {
				t.Errorf("%v of %v: told %d times, %v", errno, kind, told.Load(), l.Err())
			}
		}
	}
}

func TestVerifiedTransactionStaysVerifiedWhenItsAppendFindsNoSpace(t *testing.T) {
	f := newFullLog(t, false)
	f.options.VerifyTransactions = true
	var err error
	f.l, err = OpenLog(f.options)
	must(t, err)
	defer f.l.CloseUnclean()
	guard, err := f.l.StartVerification(producer.VerificationOptions{ProducerID: 7})
	must(t, err)
	batch := func() record.Batch {
		return batchOf(1, 1, record.BuilderOptions{HasProducer: true, ProducerID: 7, Transactional: true})
	}
	f.disk.Set(vfs.FailFrom(1, syscall.EDQUOT, takesSpace))
	for range 3 {
		if _, err := f.l.AppendAsLeader(batch(), 0, AppendOptions{Guard: guard}); !errors.Is(err, ErrNoSpace) {
			t.Fatal(err)
		}
	}
	f.disk.Set(nil)
	_, err = f.l.AppendAsLeader(batch(), 0, AppendOptions{Guard: guard})
	must(t, err)
}

func TestRollbackThatFindsNoSpaceIsMadeUpForBeforeTheNextWrite(t *testing.T) {
	l, mem, failures, told := failingLog(t)
	appendBatch(t, l, 2, 1)
	size := l.State().SizeBytes
	torn := func(rollback error) {
		t.Helper()
		failures.Set(vfs.InjectorFunc(func(op vfs.Op) error {
			switch {
			case op.Kind == vfs.OpWrite && isLog(op):
				return &vfs.ShortWrite{Bytes: 100, Err: syscall.ENOSPC}
			case op.Kind == vfs.OpTruncate && isLog(op):
				return rollback
			}
			return nil
		}))
		both := slices.Concat(batchOf(1, 2, record.BuilderOptions{}), batchOf(9, 2, record.BuilderOptions{}))
		if _, err := l.AppendAsLeader(both, 0, AppendOptions{}); !errors.Is(err, ErrNoSpace) {
			t.Fatalf("got %v", err)
		}
		failures.Set(nil)
	}
	torn(syscall.ENOSPC)
	if n := int64(len(readFile(t, mem, "00000000000000000000.log"))); n != size+100 {
		t.Fatalf("%d bytes, the torn write is not there", n)
	}
	appendBatch(t, l, 1, 3) // shorter than what the torn write has left
	if s := l.State(); s.LogEndOffset != 3 || s.SizeBytes != int64(len(readFile(t, mem, "00000000000000000000.log"))) {
		t.Fatalf("%+v", s)
	}
	torn(nil)
	torn(syscall.ENOSPC)
	must(t, l.Roll())
	l.bg.wait()
	if told.Load() != 0 || l.Err() != nil {
		t.Fatal(l.Err())
	}
	again := openLog(t, testOptions(mem.Crash(vfs.CrashKeepAll)))
	if s := again.State(); s.LogEndOffset != 3 {
		t.Errorf("recovered to %+v", s)
	}
}

func TestRetentionMakesRoomWhereNothingCanBeCreatedOrRenamed(t *testing.T) {
	f := newFullLog(t, false)
	f.options.Config.RetentionMillis, f.options.Config.FileDeleteDelayMillis = 1000, 1<<40
	var err error
	f.l, err = OpenLog(f.options)
	must(t, err)
	defer f.l.CloseUnclean()
	for i := range 5 {
		appendBatch(t, f.l, 10, 1)
		if i < 4 {
			must(t, f.l.Roll())
		}
		f.l.bg.wait()
	}
	_, err = f.l.UpdateHighWatermark(50)
	must(t, err)
	f.disk.Set(vfs.FailFrom(1, syscall.ENOSPC, takesSpace))
	n, err := f.l.DeleteOldSegments(time.Now())
	must(t, err)
	if s := f.l.State(); n != 4 || s.LogStartOffset != 40 || s.LogEndOffset != 50 {
		t.Fatalf("%d deleted, %+v", n, s)
	}
	f.l.bg.wait()
	for _, name := range namesIn(t, f.mem, testDir) {
		if base, _, ok := segment.ParseFileName(name); ok && base < 40 {
			t.Errorf("%s takes space", name)
		}
	}
	f.disk.Set(nil)
	n, err = f.l.DeleteOldSegments(time.Now())
	must(t, err)
	if s := f.l.State(); n != 1 || s.LogStartOffset != 50 || s.Segments != 1 {
		t.Fatalf("%d deleted, %+v", n, s)
	}
}

// TestSegmentOfARefusedAppendDoesNotComeBack: a smaller append goes into the segment before it afterwards, with the offsets
// that it was made for.
func TestSegmentOfARefusedAppendDoesNotComeBack(t *testing.T) {
	newLog := vfs.MatchPath("00000000000000000040.log")
	for name, c := range map[string]struct {
		preallocate bool
		fails       vfs.Match
	}{
		"write":                 {false, vfs.MatchKind(vfs.OpWrite).And(newLog)},
		"write and its removal": {false, vfs.MatchKind(vfs.OpWrite, vfs.OpRemove).And(newLog)},
		"creation":              {true, vfs.MatchKind(vfs.OpTruncate).And(newLog)},
		"creation and removal":  {true, vfs.MatchKind(vfs.OpTruncate, vfs.OpRemove).And(newLog)},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFullLog(t, c.preallocate)
			var err error
			f.l, err = OpenLog(f.options)
			must(t, err)
			defer f.l.CloseUnclean()
			appendBatch(t, f.l, 20, 1)
			appendBatch(t, f.l, 20, 1)
			must(t, f.l.Flush(40))
			f.disk.Set(vfs.InjectorFunc(func(op vfs.Op) error {
				if !c.fails(op) {
					return nil
				}
				// The name is durable by a flush at the wrong moment.
				return errors.Join(f.mem.SyncDir(testDir), syscall.ENOSPC)
			}))
			if _, err := f.l.AppendAsLeader(batchOf(40, 1, record.BuilderOptions{}), 0, AppendOptions{}); !errors.Is(err, ErrNoSpace) {
				t.Fatal(err)
			}
			f.disk.Set(nil)
			if info := appendBatch(t, f.l, 2, 1); info.FirstOffset != 40 || f.l.State().Segments != 1 {
				t.Fatalf("%+v", f.l.State())
			}
			must(t, f.l.Flush(42))
			want := figures(t, f.l)
			f.options.RecoveryPoint = f.l.State().RecoveryPoint // recovery begins at the segment that holds it
			for _, seed := range []uint64{0, vfs.CrashKeepAll} {
				f.agrees("after a crash", f.mem.Crash(seed), false, want)
			}
			if exists(t, f.mem, testDir+"/00000000000000000040.log") {
				t.Error("the segment is still there")
			}
			_, err = f.l.AppendAsLeader(batchOf(40, 1, record.BuilderOptions{}), 0, AppendOptions{})
			must(t, err)
			if s := f.l.State(); s.Segments != 2 || s.LogEndOffset != 82 {
				t.Errorf("%+v", s)
			}
		})
	}
}

func TestRecoveryPointWaitsForLeaderEpochsThatThereIsNoSpaceFor(t *testing.T) {
	synctest.Test(t, recoveryPointWaits)
}

func recoveryPointWaits(t *testing.T) {
	f := newFullLog(t, false)
	var err error
	f.l, err = OpenLog(f.options)
	must(t, err)
	defer f.l.CloseUnclean()
	for epoch := range int32(2) {
		_, err := f.l.AppendAsLeader(batchOf(5, 1, record.BuilderOptions{}), epoch, AppendOptions{})
		must(t, err)
		must(t, f.l.Flush(f.l.State().LogEndOffset))
		f.disk.Set(vfs.FailFrom(1, syscall.ENOSPC, vfs.MatchKind(vfs.OpWrite).And(vfs.MatchPath("leader-epoch"))))
	}
	if s := f.l.State(); s.RecoveryPoint != 5 || s.LogEndOffset != 10 || f.l.Err() != nil {
		t.Fatalf("%+v", s)
	}
	if exists(t, f.mem, testDir+"/leader-epoch-checkpoint.tmp") {
		t.Error("the temporary file takes space")
	}
	f.options.RecoveryPoint = f.l.State().RecoveryPoint
	f.agrees("after a power cut", f.mem.Crash(0), false, figures(t, f.l))
	time.Sleep(10 * spaceRetryPause)
	if s := f.l.State(); s.RecoveryPoint != 5 {
		t.Fatalf("%+v", s)
	}
	f.disk.Set(nil)
	time.Sleep(spaceRetryPause)
	synctest.Wait()
	if s := f.l.State(); s.RecoveryPoint != 10 {
		t.Fatalf("%+v", s)
	}
	f.options.RecoveryPoint = 10
	f.agrees("after another", f.mem.Crash(0), false, figures(t, f.l))
}

func TestTruncationWaitsForARollThatHasNoSpace(t *testing.T) {
	f := newFullLog(t, false)
	var err error
	f.l, err = OpenLog(f.options)
	must(t, err)
	defer f.l.CloseUnclean()
	appendBatch(t, f.l, 40, 1)
	f.disk.Set(vfs.FailFrom(1, syscall.ENOSPC, vfs.MatchKind(vfs.OpCreate).And(vfs.MatchPath(".index"))))
	must(t, f.l.Roll())
	appendBatch(t, f.l, 5, 1)
	f.l.bg.wait()
	before := figures(t, f.l)
	mustBe(t, f.l.TruncateTo(40), ErrNoSpace, ".index")
	if now := figures(t, f.l); now != before {
		t.Fatalf("%s\nwant\n%s", now, before)
	}
	if exists(t, f.mem, testDir+"/00000000000000000040.snapshot") {
		t.Error("the snapshot says that the segment before it is durable")
	}
	f.disk.Set(nil)
	must(t, f.l.TruncateTo(40))
	if s := f.l.State(); s.LogEndOffset != 40 || len(f.l.w.rolls)+len(f.l.w.unsealed) != 0 {
		t.Fatalf("%+v, %v", s, f.l.w.unsealed)
	}
}

// TestFullDiskIsSaidOnceAndItsEndOnce however many appends it refuses, and although small ones succeed in between.
func TestFullDiskIsSaidOnceAndItsEndOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines := &syncBuffer{}
		f := newFullLog(t, false)
		f.options.Logger = textLogger(lines)
		var err error
		f.l, err = OpenLog(f.options)
		must(t, err)
		defer f.l.CloseUnclean()
		for range 100 {
			f.disk.Set(vfs.FailFrom(1, syscall.ENOSPC, takesSpace))
			if _, err := f.l.AppendAsLeader(batchOf(1, 1, record.BuilderOptions{}), 0, AppendOptions{}); !errors.Is(err, ErrNoSpace) {
				t.Fatal(err)
			}
			f.disk.Set(nil)
			appendBatch(t, f.l, 1, 1)
			time.Sleep(time.Second)
		}
		time.Sleep(spaceBackAfter)
		appendBatch(t, f.l, 1, 1)
		appendBatch(t, f.l, 1, 1)
		full, back := strings.Count(lines.String(), "Log directory is full"), strings.Count(lines.String(), "Log directory has space again")
		if full != 1 || back != 1 || !strings.Contains(lines.String(), "refused=100") || !strings.Contains(lines.String(), "usableBytes=") {
			t.Errorf("%d and %d lines:\n%s", full, back, lines.String())
		}
	})
}
