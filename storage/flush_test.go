package storage

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gregor/protocol/record"
	"gregor/storage/vfs"
)

// syncCounter counts the syncs of .log files and can hold them up.
type syncCounter struct {
	count atomic.Int64
	hold  chan struct{} // when set, a sync waits for a token
}

func (c *syncCounter) Inject(op vfs.Op) error {
	if op.Kind == vfs.OpSync && isLog(op) {
		c.count.Add(1)
		if c.hold != nil {
			<-c.hold
		}
	}
	return nil
}

func TestManyWaitersShareOneSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		syncs := &syncCounter{}
		o := testOptions(vfs.NewErr(vfs.NewMem(), syncs))
		o.Config.FlushMessages = 1
		l, err := OpenLog(o)
		must(t, err)
		synctest.Wait()
		syncs.hold = make(chan struct{})
		const writers = 32
		var wg sync.WaitGroup
		var acknowledged atomic.Int64
		for range writers {
			wg.Go(func() {
				_, err := l.AppendAsLeader(batchOf(1, 1, record.BuilderOptions{}), 0, AppendOptions{})
				if err != nil {
					t.Error(err)
				}
				acknowledged.Add(1)
			})
		}
		synctest.Wait() // all have written; one syncs, the others wait
		if acknowledged.Load() != 0 || l.State().LogEndOffset != writers {
			t.Fatalf("%d acknowledged before the sync, end %d", acknowledged.Load(), l.State().LogEndOffset)
		}
		syncs.hold <- struct{}{}
		synctest.Wait()
		if n := acknowledged.Load(); n == 0 || n == writers && syncs.count.Load() > 1 {
			t.Errorf("%d acknowledged by the first sync", n)
		}
		for acknowledged.Load() < writers {
			syncs.hold <- struct{}{}
			synctest.Wait()
		}
		wg.Wait()
		if n := syncs.count.Load(); n > 2 {
			t.Errorf("%d syncs for %d appends", n, writers)
		}
		if l.State().RecoveryPoint != writers {
			t.Errorf("recovery point %d", l.State().RecoveryPoint)
		}
		l.CloseUnclean()
	})
}

func TestFlushMessagesSyncsWhenReached(t *testing.T) {
	syncs := &syncCounter{}
	o := testOptions(vfs.NewErr(vfs.NewMem(), syncs))
	o.Config.FlushMessages = 5
	l := openLog(t, o)
	for i, want := range []int64{0, 0, 1, 1, 1, 2} {
		appendBatch(t, l, 2, 1)
		if got := syncs.count.Load(); got != want {
			t.Errorf("%d syncs after %d records, want %d", got, (i+1)*2, want)
		}
	}
	info, err := l.AppendAsLeader(batchOf(9, 1, record.BuilderOptions{}), 0, AppendOptions{SyncLater: true, AloneInSync: true})
	must(t, err)
	if got := syncs.count.Load(); got != 2 || !info.Unsynced || l.State().HighWatermark > info.FirstOffset {
		t.Errorf("SyncLater: %d syncs, unsynced %v, high watermark %d", got, info.Unsynced, l.State().HighWatermark)
	}
	must(t, l.SyncAppended(info))
	if got := syncs.count.Load(); got != 3 || l.State().HighWatermark != info.LastOffset+1 {
		t.Errorf("SyncAppended: %d syncs, high watermark %d, want 3 and %d", got, l.State().HighWatermark, info.LastOffset+1)
	}
	info, err = l.AppendAsLeader(batchOf(1, 1, record.BuilderOptions{}), 0, AppendOptions{SyncLater: true, AloneInSync: true})
	must(t, err)
	if info.Unsynced || l.State().HighWatermark != info.LastOffset+1 {
		t.Errorf("below flush.messages: unsynced %v, high watermark %d", info.Unsynced, l.State().HighWatermark)
	}
	// A follower is held to it too.
	_, err = l.AppendAsFollower(batchOf(4, 1, record.BuilderOptions{BaseOffset: 22}), 0)
	must(t, err)
	if got := syncs.count.Load(); got != 4 {
		t.Errorf("%d syncs after the follower's append", got)
	}
}

func TestSyncsThatAreAskedForShareThem(t *testing.T) {
	var syncs syncCounter
	o := testOptions(vfs.NewErr(vfs.NewMem(), &syncs))
	o.Config.FlushMessages = 1
	l := openLog(t, o)
	const appends = 200
	done := make(chan error)
	for i := range appends {
		info, err := l.AppendAsLeader(batchOf(1, int64(i), record.BuilderOptions{}), 0, AppendOptions{SyncLater: true, AloneInSync: true})
		must(t, err)
		if info.Unsynced { // another one's sync may have had it
			go l.SyncAppendedThen(info, func(err error) {
				if err == nil && l.State().HighWatermark <= info.LastOffset {
					err = fmt.Errorf("high watermark %d after the sync of %d", l.State().HighWatermark, info.LastOffset)
				}
				done <- err
			})
		} else {
			go func() { done <- nil }()
		}
	}
	for range appends {
		must(t, <-done)
	}
	if n := syncs.count.Load(); n == 0 || n > appends {
		t.Errorf("%d syncs of %d appends", n, appends)
	}
	// What fails is told.
	info, err := l.AppendAsLeader(batchOf(1, 1, record.BuilderOptions{}), 0, AppendOptions{SyncLater: true, AloneInSync: true})
	must(t, err)
	l.CloseUnclean()
	l.SyncAppendedThen(info, func(err error) { done <- err })
	mustBe(t, <-done, ErrStorage, "")
}

func TestFlushMillisSyncsAfterTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(vfs.NewMem())
		o.Config.FlushMillis = 1000
		l, err := OpenLog(o)
		must(t, err)
		defer l.CloseUnclean()
		time.Sleep(time.Hour)
		appendBatch(t, l, 1, 1)
		time.Sleep(999 * time.Millisecond)
		synctest.Wait()
		if l.State().RecoveryPoint != 0 {
			t.Error("synced too early")
		}
		appendBatch(t, l, 1, 1)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if l.State().RecoveryPoint != 2 {
			t.Errorf("recovery point %d after flush.ms", l.State().RecoveryPoint)
		}
		if l.LastFlushed() != time.Now() {
			t.Errorf("last flush %v", l.LastFlushed())
		}
		appendBatch(t, l, 1, 1)
		time.Sleep(1001 * time.Millisecond)
		synctest.Wait()
		if l.State().RecoveryPoint != 3 {
			t.Error("the timer is not armed again")
		}
	})
}

func TestDeletedFilesGoAfterTheDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := vfs.NewMem()
		o := testOptions(fsys)
		o.Config.FileDeleteDelayMillis = 60000
		l, err := OpenLog(o)
		must(t, err)
		defer l.CloseUnclean()
		appendBatch(t, l, 1, 1)
		must(t, l.Roll())
		_, err = l.UpdateHighWatermark(1)
		must(t, err)
		f, err := l.Read(0, 1000, UpToLogEnd, true)
		must(t, err)
		_, err = l.IncrementLogStartOffset(1)
		must(t, err)
		n, err := l.DeleteOldSegments(time.Now())
		must(t, err)
		if n != 1 {
			t.Fatalf("%d deleted", n)
		}
		exists := func() bool {
			there, err := vfs.Exists(fsys, testDir+"/00000000000000000000.log.deleted")
			must(t, err)
			return there
		}
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if !exists() {
			t.Error("removed too early")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if exists() {
			t.Error("still there")
		}
		// What was promised to a reader outlives the file.
		buf := make([]byte, f.Range.Len())
		if n, err := f.Range.ReadAt(buf, 0); n != len(buf) {
			t.Errorf("read of a removed segment: %d, %v", n, err)
		}
		f.Range.Release()
	})
}

func TestSegmentsRollByTheClockWithoutTimestamps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(vfs.NewMem())
		o.Config.SegmentMillis = 1000
		l, err := OpenLog(o)
		must(t, err)
		defer l.CloseUnclean()
		appendBatch(t, l, 1, -1)
		time.Sleep(1000 * time.Millisecond)
		appendBatch(t, l, 1, -1)
		if l.State().Segments != 1 {
			t.Error("rolled too early")
		}
		time.Sleep(time.Millisecond)
		appendBatch(t, l, 1, -1)
		if l.State().Segments != 2 {
			t.Error("not rolled after segment.ms")
		}
		l.bg.wait()
	})
}

func TestJitterShortensSegmentMillis(t *testing.T) {
	c := testConfig()
	c.SegmentMillis, c.SegmentJitterMillis = 1000, 100
	seen := map[int64]bool{}
	for range 1000 {
		j := rollJitter(c)
		if j < 0 || j >= 100 {
			t.Fatalf("jitter %d", j)
		}
		seen[j] = true
	}
	if len(seen) < 50 {
		t.Errorf("only %d values", len(seen))
	}
}

// With flush.messages=1 an answer means that the record is on the disk: also the answer to a retry that comes while the
// sync of the original runs. Nobody reads the record before.
func TestRetryIsNotAnsweredBeforeTheOriginalIsSynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		syncs := &syncCounter{}
		o := testOptions(vfs.NewErr(vfs.NewMem(), syncs))
		o.Config.FlushMessages = 1
		l, err := OpenLog(o)
		must(t, err)
		defer l.CloseUnclean()
		synctest.Wait()
		syncs.hold = make(chan struct{})
		producer := record.BuilderOptions{HasProducer: true, ProducerID: 7, BaseSequence: 0}
		answers := make(chan AppendInfo, 2)
		for range 2 {
			go func() {
				info, err := l.AppendAsLeader(batchOf(1, 1, producer), 0, AppendOptions{AloneInSync: true})
				if err != nil {
					t.Error(err)
				}
				answers <- info
			}()
		}
		synctest.Wait()
		if s := l.State(); s.LogEndOffset != 1 || s.HighWatermark != 0 {
			t.Errorf("log end %d, high watermark %d before the sync", s.LogEndOffset, s.HighWatermark)
		}
		if n := len(answers); n > 0 {
			t.Errorf("%d answers before the sync", n)
		}
		syncs.hold <- struct{}{}
		first, second := <-answers, <-answers
		if first.LastOffset != 0 || second.LastOffset != 0 || first.Duplicate == second.Duplicate {
			t.Errorf("%+v and %+v", first, second)
		}
	})
}

func TestAppendInAnEpochThatIsOverIsRefused(t *testing.T) {
	l := openLog(t, testOptions(vfs.NewMem()))
	must(t, l.AssignEpochStart(3, 0))
	_, err := l.AppendAsLeader(batchOf(1, 1, record.BuilderOptions{}), 3, AppendOptions{})
	must(t, err)
	must(t, l.AssignEpochStart(5, 1))
	if _, err := l.AppendAsLeader(batchOf(1, 1, record.BuilderOptions{}), 3, AppendOptions{}); !errors.Is(err, ErrOldLeaderEpoch) {
		t.Errorf("appended in epoch 3: %v", err)
	}
	if got := l.EpochEntries(); len(got) != 2 || got[1].Epoch != 5 || l.State().LogEndOffset != 1 {
		t.Errorf("epochs %v, log end %d", got, l.State().LogEndOffset)
	}
}

func TestJoinedBatchesAreAppendedAsIfOneByOneOrNotAtAll(t *testing.T) {
	o := testOptions(vfs.NewMem())
	o.Config.FlushMessages = 3
	l := openLog(t, o)
	producer := func(id int64, sequence int32) record.BuilderOptions {
		return record.BuilderOptions{HasProducer: true, ProducerID: id, BaseSequence: sequence}
	}
	joined := AppendOptions{Origin: FromClient, SyncLater: true, AloneInSync: true, Joined: true}
	batches := []record.Batch{batchOf(1, 10, producer(1, 0)), batchOf(2, 30, producer(2, 0)), batchOf(1, 20, producer(1, 1))}
	info, err := l.AppendAsLeader(bytes.Join([][]byte{batches[0], batches[1], batches[2]}, nil), 0, joined)
	must(t, err)
	next := info.FirstOffset
	for i, b := range batches {
		part := info.Part(next, b)
		if want := []int64{0, 2, 3}[i]; part.FirstOffset != next || part.LastOffset != want || part.MaxTimestamp != b.MaxTimestamp() || part.Bytes != len(b) {
			t.Errorf("part %d: %+v", i, part)
		}
		must(t, l.SyncAppended(part))
		if got := l.State().HighWatermark; got != part.LastOffset+1 {
			t.Errorf("high watermark %d after part %d", got, i)
		}
		next = part.LastOffset + 1
	}
	retry := bytes.Join([][]byte{batchOf(1, 10, producer(3, 0)), batchOf(2, 30, producer(2, 0))}, nil)
	if _, err := l.AppendAsLeader(retry, 0, joined); !errors.Is(err, ErrJoinedRetry) {
		t.Errorf("a retry among joined batches: %v", err)
	}
	gap := bytes.Join([][]byte{batchOf(1, 10, producer(3, 0)), batchOf(1, 30, producer(2, 7))}, nil)
	if _, err := l.AppendAsLeader(gap, 0, joined); err == nil {
		t.Error("a sequence too far ahead among joined batches is taken")
	}
	if got := l.State().LogEndOffset; got != 4 {
		t.Errorf("log end offset %d after refused batches", got)
	}
	if info, err := l.AppendAsLeader(batchOf(1, 10, producer(3, 0)), 0, AppendOptions{Origin: FromClient}); err != nil || info.FirstOffset != 4 || info.Duplicate {
		t.Errorf("one of the refused batches alone: %+v, %v", info, err)
	}
}
