package replica

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"gregor/protocol/record"
	"gregor/storage"
	"gregor/storage/vfs"
)

// newTestPartition is partition t-0 on broker 1 with an empty log in memory.
func newTestPartition(t *testing.T, configs map[string]string) *Partition {
	t.Helper()
	c, err := storage.DefaultLogConfig().With(configs)
	if err != nil {
		t.Fatal(err)
	}
	log, err := storage.OpenLog(storage.LogOptions{FS: vfs.NewMem(), Dir: "/d/t-0", Topic: "t", TopicID: [16]byte{7}, Config: c, HadCleanShutdown: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	p := newPartition(1, log)
	log.SetObserver(p.watch.moved)
	return p
}

func batch(t *testing.T, values ...string) record.Batch {
	t.Helper()
	b := record.NewBuilder(record.BuilderOptions{})
	for i, v := range values {
		b.Add(int64(1000+i), nil, []byte(v), nil)
	}
	res, err := record.ValidateProduce(append([]byte(nil), b.Bytes()...), record.ProduceOptions{
		NowMillis: 1000, TimestampBeforeMaxMillis: 1 << 60, TimestampAfterMaxMillis: 1 << 60, TargetCodec: record.CodecProducer, RequestVersion: 9, MaxBatchBytes: 1 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	return res.Batch
}

func mustApply(t *testing.T, p *Partition, a Assignment) {
	t.Helper()
	if err := p.apply(a); err != nil {
		t.Fatal(err)
	}
}

func alone(epoch int32) Assignment {
	return Assignment{Leader: 1, LeaderEpoch: epoch, PartitionEpoch: epoch, Replicas: []int32{1}, ISR: []int32{1}}
}

func appendOne(t *testing.T, p *Partition, acksAll bool, value string) storage.AppendInfo {
	t.Helper()
	info, err := p.AppendAsLeader(batch(t, value), acksAll, storage.AppendOptions{LogAppendTimeMillis: -1})
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func TestAloneInTheISRTheHighWatermarkFollowsTheLogEnd(t *testing.T) {
	p := newTestPartition(t, nil)
	mustApply(t, p, alone(0))
	for i := range int64(3) {
		if info := appendOne(t, p, true, "x"); info.FirstOffset != i {
			t.Errorf("append %d got offset %d", i, info.FirstOffset)
		}
		if hw := p.State().HighWatermark; hw != i+1 {
			t.Errorf("high watermark %d after %d appends", hw, i+1)
		}
	}
}

func TestHighWatermarkIsTheSmallestLogEndOfTheISR(t *testing.T) {
	p := newTestPartition(t, nil)
	mustApply(t, p, Assignment{Leader: 1, Replicas: []int32{1, 2, 3}, ISR: []int32{1, 2}})
	appendOne(t, p, false, "a")
	appendOne(t, p, false, "b")
	check := func(want int64) {
		t.Helper()
		if hw := p.State().HighWatermark; hw != want {
			t.Errorf("high watermark %d, want %d", hw, want)
		}
	}
	fetched := func(id int32, offset int64) {
		t.Helper()
		if err := p.FollowerFetched(id, offset, 0, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	check(0)
	fetched(3, 2) // not in sync: does not count
	check(0)
	fetched(2, 1)
	check(1)
	fetched(2, 2)
	check(2)
	if err := p.FollowerFetched(9, 2, 0, time.Now()); !errors.Is(err, kerr.UnknownTopicOrPartition) {
		t.Errorf("a fetch by a broker without a replica: %v", err)
	}
}

func TestWaitReplicatedEndsWhenTheFollowersHaveIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestPartition(t, nil)
		mustApply(t, p, Assignment{Leader: 1, Replicas: []int32{1, 2}, ISR: []int32{1, 2}})
		appendOne(t, p, true, "a")
		done := make(chan error, 1)
		go func() { done <- p.WaitReplicated(t.Context(), 1, 0) }()
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("ended before the follower fetched: %v", err)
		default:
		}
		if err := p.FollowerFetched(2, 1, 0, time.Now()); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Errorf("%v", err)
		}
	})
}

func TestWaitReplicatedEndsAtItsDeadlineAndWhenLeadershipIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestPartition(t, nil)
		a := Assignment{Leader: 1, Replicas: []int32{1, 2}, ISR: []int32{1, 2}}
		mustApply(t, p, a)
		appendOne(t, p, true, "a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.WaitReplicated(ctx, 1, 0); !errors.Is(err, kerr.RequestTimedOut) {
			t.Errorf("at the deadline: %v", err)
		}
		done := make(chan error, 1)
		go func() { done <- p.WaitReplicated(t.Context(), 1, 0) }()
		synctest.Wait()
		a.Leader, a.LeaderEpoch, a.PartitionEpoch = 2, 1, 1
		mustApply(t, p, a)
		if err := <-done; !errors.Is(err, kerr.NotLeaderForPartition) {
			t.Errorf("after a leader change: %v", err)
		}
	})
}

func TestAcksAllIsRefusedBelowMinISRBeforeTheAppendAndReportedAfterIt(t *testing.T) {
	p := newTestPartition(t, map[string]string{"min.insync.replicas": "2"})
	a := Assignment{Leader: 1, Replicas: []int32{1, 2}, ISR: []int32{1}}
	mustApply(t, p, a)
	if _, err := p.AppendAsLeader(batch(t, "x"), true, storage.AppendOptions{}); !errors.Is(err, kerr.NotEnoughReplicas) {
		t.Errorf("acks=all with one of two in sync: %v", err)
	}
	if end := p.State().LogEndOffset; end != 0 {
		t.Errorf("the refused batch was appended: log end %d", end)
	}
	appendOne(t, p, false, "acks=1 goes through")

	a.ISR, a.PartitionEpoch = []int32{1, 2}, 1
	mustApply(t, p, a)
	appendOne(t, p, true, "y")
	if err := p.FollowerFetched(2, 2, 0, time.Now()); err != nil {
		t.Fatal(err)
	}
	a.ISR, a.PartitionEpoch = []int32{1}, 2
	mustApply(t, p, a)
	if err := p.WaitReplicated(t.Context(), 2, 0); !errors.Is(err, kerr.NotEnoughReplicasAfterAppend) {
		t.Errorf("the in-sync set shrank after the append: %v", err)
	}
}

// Strict min ISR (KIP-966): what too few replicas have is not committed, whatever the acks.
func TestHighWatermarkStandsStillBelowMinISR(t *testing.T) {
	p := newTestPartition(t, map[string]string{"min.insync.replicas": "2"})
	a := Assignment{Leader: 1, Replicas: []int32{1, 2}, ISR: []int32{1}}
	mustApply(t, p, a)
	appendOne(t, p, false, "x")
	if hw := p.State().HighWatermark; hw != 0 {
		t.Errorf("one of two in sync: high watermark %d", hw)
	}
	a.ISR, a.PartitionEpoch = []int32{1, 2}, 1
	mustApply(t, p, a)
	appendOne(t, p, true, "y")
	a.ISR, a.PartitionEpoch = []int32{1}, 2
	mustApply(t, p, a)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := p.WaitReplicated(ctx, 2, 0); !errors.Is(err, kerr.RequestTimedOut) {
		t.Errorf("the in-sync set shrank before the follower had the record: %v", err)
	}
	a.ISR, a.PartitionEpoch = []int32{1, 2}, 3
	mustApply(t, p, a)
	if err := p.FollowerFetched(2, 2, 0, time.Now()); err != nil || p.State().HighWatermark != 2 {
		t.Errorf("two in sync have it: high watermark %d, %v", p.State().HighWatermark, err)
	}
}

// An append that began in a role which is over by now must not write into the log of a follower: the fetches that its
// records are to be equal by begin at its end.
func TestAppendThatARoleChangeOvertakesIsRefused(t *testing.T) {
	p := newTestPartition(t, nil)
	a := Assignment{Leader: 1, LeaderEpoch: 1, PartitionEpoch: 1, Replicas: []int32{1, 2}, ISR: []int32{1, 2}}
	mustApply(t, p, a)
	old := p.role.Load()
	follower := a
	follower.Leader, follower.LeaderEpoch, follower.PartitionEpoch = 2, 2, 2
	mustApply(t, p, follower)
	if _, err := p.appendIn(old, batch(t, "x"), false, storage.AppendOptions{LogAppendTimeMillis: -1}); !errors.Is(err, kerr.NotLeaderForPartition) {
		t.Errorf("appended in epoch 1 while another broker leads in epoch 2: %v", err)
	}
	if st := p.State(); st.HighWatermark != 0 || st.LogEndOffset != 0 {
		t.Errorf("the follower's log ends at %d, high watermark %d", st.LogEndOffset, st.HighWatermark)
	}
	again := a
	again.LeaderEpoch, again.PartitionEpoch = 3, 3
	mustApply(t, p, again)
	appendOne(t, p, false, "y")
}

// Neither may it write into the log of the new epoch: followers would take its records for those of the older one.
func TestAppendInAnOldEpochDoesNotReachTheNewOne(t *testing.T) {
	p := newTestPartition(t, nil)
	mustApply(t, p, alone(1))
	old := p.role.Load()
	mustApply(t, p, alone(2))
	if _, err := p.appendIn(old, batch(t, "x"), false, storage.AppendOptions{LogAppendTimeMillis: -1}); !errors.Is(err, kerr.NotLeaderForPartition) {
		t.Errorf("appended in epoch 1 after epoch 2 began: %v", err)
	}
	if epoch, _ := p.log.LatestEpoch(); epoch != 2 || p.State().LogEndOffset != 0 {
		t.Errorf("latest epoch %d, log end %d", epoch, p.State().LogEndOffset)
	}
}

func TestSyncedRecordsAreCommittedOneByOne(t *testing.T) {
	p := newTestPartition(t, map[string]string{"flush.messages": "1"})
	mustApply(t, p, alone(0))
	for i := range int64(3) {
		appendOne(t, p, true, "x")
		if hw := p.State().HighWatermark; hw != i+1 {
			t.Errorf("high watermark %d after %d appends", hw, i+1)
		}
	}
}

func TestMinISRAboveTheReplicationFactorIsCapped(t *testing.T) {
	p := newTestPartition(t, map[string]string{"min.insync.replicas": "2"})
	mustApply(t, p, alone(0))
	appendOne(t, p, true, "x")
}

func TestLeaderEpochsAreChecked(t *testing.T) {
	p := newTestPartition(t, nil)
	mustApply(t, p, alone(3))
	appendOne(t, p, false, "x")
	for epoch, want := range map[int32]error{NoEpoch: nil, 3: nil, 2: kerr.FencedLeaderEpoch, 4: kerr.UnknownLeaderEpoch} {
		_, err := p.Read(ReadRequest{LeaderEpoch: epoch, LastFetchedEpoch: NoEpoch, MaxBytes: 1000, Bound: storage.UpToHighWatermark})
		if !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Errorf("Read with epoch %d: %v, want %v", epoch, err, want)
		}
		if _, err := p.OffsetForTimestamp(LatestTimestamp, epoch, storage.UpToHighWatermark); (err == nil) != (want == nil) {
			t.Errorf("OffsetForTimestamp with epoch %d: %v, want %v", epoch, err, want)
		}
	}
}

func TestOlderImagesDoNotTurnARoleBack(t *testing.T) {
	p := newTestPartition(t, nil)
	mustApply(t, p, alone(5))
	old := alone(4)
	old.Leader = 2
	mustApply(t, p, old)
	if epoch, leading := p.Leading(); epoch != 5 || !leading {
		t.Errorf("epoch %d, leading %v", epoch, leading)
	}
}

func TestReadsStayWithinTheirBound(t *testing.T) {
	p := newTestPartition(t, nil)
	mustApply(t, p, Assignment{Leader: 1, Replicas: []int32{1, 2}, ISR: []int32{1, 2}})
	appendOne(t, p, false, "a")
	appendOne(t, p, false, "b")
	if err := p.FollowerFetched(2, 1, 0, time.Now()); err != nil {
		t.Fatal(err)
	}
	read := func(offset int64, bound storage.Bound) (int, error) {
		res, err := p.Read(ReadRequest{Offset: offset, LeaderEpoch: NoEpoch, LastFetchedEpoch: NoEpoch, MaxBytes: 1 << 20, Bound: bound, AtLeastOne: true})
		if err != nil || res.Fetched.Range == nil {
			return 0, err
		}
		defer res.Fetched.Range.Release()
		return res.Fetched.Range.Len(), nil
	}
	one := len(batch(t, "a"))
	for _, c := range []struct {
		offset int64
		bound  storage.Bound
		want   int
		err    error
	}{
		{0, storage.UpToLogEnd, 2 * one, nil},
		{0, storage.UpToHighWatermark, one, nil},
		{1, storage.UpToHighWatermark, 0, nil},
		{2, storage.UpToHighWatermark, 0, nil},
		{3, storage.UpToHighWatermark, 0, kerr.OffsetOutOfRange},
		{-1, storage.UpToHighWatermark, 0, kerr.OffsetOutOfRange},
	} {
		if n, err := read(c.offset, c.bound); n != c.want || !errors.Is(err, c.err) {
			t.Errorf("read at %d up to %v: %d bytes, %v; want %d, %v", c.offset, c.bound, n, err, c.want, c.err)
		}
	}
}

func TestDivergingEpochIsTold(t *testing.T) {
	p := newTestPartition(t, nil)
	mustApply(t, p, alone(1))
	appendOne(t, p, false, "a")
	mustApply(t, p, alone(4))
	appendOne(t, p, false, "b")
	read := func(offset int64, epoch int32) (*Diverging, error) {
		res, err := p.Read(ReadRequest{Offset: offset, LeaderEpoch: NoEpoch, LastFetchedEpoch: epoch, MaxBytes: 1, Bound: storage.UpToHighWatermark})
		if res.Fetched.Range != nil {
			res.Fetched.Range.Release()
		}
		return res.Diverging, err
	}
	if d, err := read(1, 1); d != nil || err != nil {
		t.Errorf("same epoch: %v, %v", d, err)
	}
	if d, err := read(2, 2); err != nil || d == nil || *d != (Diverging{Epoch: 1, EndOffset: 1}) {
		t.Errorf("an epoch that the leader skipped: %v, %v", d, err)
	}
	if _, err := read(1, 9); !errors.Is(err, kerr.OffsetOutOfRange) {
		t.Errorf("an epoch that never was: %v", err)
	}
}

func TestLatestOffsetIsNotToldWhileTheHighWatermarkLagsTheEpoch(t *testing.T) {
	p := newTestPartition(t, nil)
	mustApply(t, p, Assignment{Leader: 2, Replicas: []int32{1, 2}, ISR: []int32{1, 2}})
	b := batch(t, "a")
	b.SetLeaderEpoch(0)
	if _, err := p.log.AppendAsFollower(b, 0); err != nil {
		t.Fatal(err)
	}
	mustApply(t, p, Assignment{Leader: 1, LeaderEpoch: 1, PartitionEpoch: 1, Replicas: []int32{1, 2}, ISR: []int32{1, 2}})
	if _, err := p.OffsetForTimestamp(LatestTimestamp, NoEpoch, storage.UpToHighWatermark); !errors.Is(err, kerr.OffsetNotAvailable) {
		t.Errorf("a new leader before its followers caught up: %v", err)
	}
	if err := p.FollowerFetched(2, 1, 0, time.Now()); err != nil {
		t.Fatal(err)
	}
	if f, err := p.OffsetForTimestamp(LatestTimestamp, NoEpoch, storage.UpToHighWatermark); err != nil || f.Offset != 1 {
		t.Errorf("after they caught up: %+v, %v", f, err)
	}
}

func TestDeleteRecordsMovesTheStartWithinTheHighWatermark(t *testing.T) {
	p := newTestPartition(t, nil)
	mustApply(t, p, alone(0))
	for i := range 5 {
		appendOne(t, p, false, strconv.Itoa(i))
	}
	for _, c := range []struct {
		offset, low int64
		err         error
	}{{2, 2, nil}, {1, 2, nil}, {2, 2, nil}, {6, -1, kerr.OffsetOutOfRange}, {-2, -1, kerr.OffsetOutOfRange}, {-1, 5, nil}} {
		if low, err := p.DeleteRecords(c.offset); low != c.low || !errors.Is(err, c.err) {
			t.Errorf("DeleteRecords(%d) = %d, %v; want %d, %v", c.offset, low, err, c.low, c.err)
		}
	}
	compacted := newTestPartition(t, map[string]string{"cleanup.policy": "compact"})
	mustApply(t, compacted, alone(0))
	if _, err := compacted.DeleteRecords(0); !errors.Is(err, kerr.PolicyViolation) {
		t.Errorf("a compacted topic: %v", err)
	}
}

func TestHighWatermarkListenersHearEachMoveUntilTheyCancel(t *testing.T) {
	p := newTestPartition(t, nil)
	mustApply(t, p, alone(0))
	var heard []int64
	cancel := p.WatchHighWatermark(func(hw int64) { heard = append(heard, hw) })
	appendOne(t, p, true, "a")
	appendOne(t, p, true, "b")
	cancel()
	appendOne(t, p, true, "c")
	if fmt.Sprint(heard) != "[1 2]" {
		t.Errorf("heard %v", heard)
	}
}

func TestACoordinatorAppendsOnlyInItsEpoch(t *testing.T) {
	p := newTestPartition(t, nil)
	mustApply(t, p, alone(2))
	if _, err := p.AppendAt(1, batch(t, "x"), storage.AppendOptions{Origin: storage.FromCoordinator}); !errors.Is(err, kerr.NotLeaderForPartition) {
		t.Errorf("an older epoch: %v", err)
	}
	if _, err := p.AppendAt(2, batch(t, "x"), storage.AppendOptions{Origin: storage.FromCoordinator}); err != nil {
		t.Error(err)
	}
}

func TestConcurrentAppendsWaitsAndRoleChangesAgree(t *testing.T) {
	p := newTestPartition(t, nil)
	mustApply(t, p, alone(0))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				info, err := p.AppendAsLeader(batch(t, "x"), true, storage.AppendOptions{LogAppendTimeMillis: -1})
				if err != nil {
					t.Error(err)
					return
				}
				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
				if err := p.WaitReplicated(ctx, info.LastOffset+1, info.LeaderEpoch); err != nil && !errors.Is(err, kerr.NotLeaderForPartition) {
					t.Error(err)
				}
				cancel()
			}
		})
	}
	for epoch := range int32(10) {
		mustApply(t, p, alone(epoch+1))
	}
	wg.Wait()
	if s := p.State(); s.LogEndOffset != 200 || s.HighWatermark != 200 {
		t.Errorf("log end %d, high watermark %d", s.LogEndOffset, s.HighWatermark)
	}
}
