package quorum

import (
	"bytes"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gregor/protocol"
	"gregor/storage/vfs"
)

// follower makes an observer with the log of a leader.
func follower(t *testing.T) (*cluster, *testNode, *testNode) {
	t.Helper()
	c, leader := epochs(t)
	n := c.add(7, 0)
	n.opts.Observer = true
	c.must(c.start(7))
	c.must(c.observe(n, leader))
	if !bytes.Equal(readLog(t, n, 0), readLog(t, leader, 0)) {
		t.Fatal("the observer's log differs")
	}
	return c, n, leader
}

func TestObserverRefusesAnswersThatDoNotFit(t *testing.T) {
	_, n, _ := follower(t)
	good := batchAt(t, 12, 3, 1)
	bad := slices.Clone(good)
	bad[len(bad)-1] ^= 1
	before := readLog(t, n, 0)
	for name, records := range map[string][]byte{
		"gap": batchAt(t, 13, 3, 1), "already there": batchAt(t, 11, 3, 1), "bad CRC": bad, "cut": good[:len(good)-1],
		"older epoch": batchAt(t, 12, 2, 1), "epoch above the leader's": batchAt(t, 12, 4, 1),
		"second one does not follow": slices.Concat(good, batchAt(t, 14, 3, 1)), "garbage": []byte("garbage, more of it, and more"),
	} {
		err := n.machine.follow(FetchedFromLeader{Leader: LeaderAndEpoch{1, 3}, HighWatermark: 12, Records: records})
		if !errors.Is(err, ErrCorrupt) || !errors.Is(err, errBadAnswer) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !bytes.Equal(readLog(t, n, 0), before) {
		t.Fatal("the log changed")
	}
	if err := n.machine.follow(FetchedFromLeader{Leader: LeaderAndEpoch{1, 3}, HighWatermark: 13, Records: good}); err != nil {
		t.Fatal(err)
	}
	if got := n.board.load().highWatermark; got != 13 {
		t.Fatalf("high watermark %d", got)
	}
}

func TestObserverTruncatesAtTheDivergingEpochNeverBelowItsHighWatermark(t *testing.T) {
	_, n, _ := follower(t)
	for _, b := range [][]byte{batchAt(t, 12, 3, 1), batchAt(t, 13, 4, 2)} {
		if err := n.machine.follow(FetchedFromLeader{Leader: LeaderAndEpoch{2, 4}, HighWatermark: -1, Records: b}); err != nil {
			t.Fatal(err)
		}
	}
	// Epoch 5's leader has epoch 3 up to 13 and nothing of epoch 4.
	diverge := func(epoch int32, end int64) error {
		return n.machine.follow(FetchedFromLeader{Leader: LeaderAndEpoch{3, 5}, HighWatermark: -1, Diverging: &EpochEndOffset{epoch, end}})
	}
	if err := diverge(3, 13); err != nil || n.machine.storage.endOffset() != 13 {
		t.Fatalf("log end %d, %v", n.machine.storage.endOffset(), err)
	}
	// An answer of an old leader changes nothing.
	if err := n.machine.follow(FetchedFromLeader{Leader: LeaderAndEpoch{2, 4}, Diverging: &EpochEndOffset{1, 3}}); err != nil || n.machine.storage.endOffset() != 13 {
		t.Fatalf("log end %d, %v", n.machine.storage.endOffset(), err)
	}
	if err := diverge(2, 9); !errors.Is(err, ErrLogLost) {
		t.Fatalf("below the high watermark 12: %v", err)
	}
	if err := diverge(3, -1); !errors.Is(err, errBadAnswer) {
		t.Fatalf("negative end: %v", err)
	}
}

func TestObserverKeepsLeaderAndEpochAndNeverVotes(t *testing.T) {
	c, n, _ := follower(t)
	if got := n.machine.states.hardState(); got.term != 3 || got.leader != 1 || got.vote != 0 {
		t.Fatalf("quorum state %+v", got)
	}
	for _, l := range []LeaderAndEpoch{{2, 2}, {-1, 3}, {NoLeader, 2}} {
		if _, err := n.machine.adoptLeader(l); err != nil {
			t.Fatal(err)
		}
		if got := n.board.load().leader; got != (LeaderAndEpoch{1, 3}) {
			t.Errorf("%v was taken for news: %v", l, got)
		}
	}
	if _, err := n.machine.adoptLeader(LeaderAndEpoch{NoLeader, 6}); err != nil {
		t.Fatal(err)
	}
	c.crash(7, 0)
	c.must(c.start(7))
	if got := n.board.load(); got.leader != (LeaderAndEpoch{NoLeader, 6}) || !got.following || got.role != "unattached" {
		t.Errorf("after a restart: %+v", got)
	}
	// A broker without the controller role does not become a voter, whatever it is sent.
	c.campaign(1)
	c.stabilize()
	if n.machine.rn != nil {
		t.Error("the observer votes")
	}
}

func TestObserverLosesOnlyWhatItCanFetchAgain(t *testing.T) {
	c, n, leader := follower(t)
	for seed := range uint64(20) {
		c.crash(7, seed)
		c.must(c.start(7))
		c.must(c.observe(n, leader))
		if !bytes.Equal(readLog(t, n, 0), readLog(t, leader, 0)) {
			t.Fatalf("seed %d: the logs differ", seed)
		}
		if _, _, err := c.propose(leader, "more"); err != nil {
			t.Fatal(err)
		}
		c.must(c.observe(n, leader))
	}
}

// fetchLoop is what package kraft does for an observer.
func fetchLoop(t *testing.T, n *Node, board *switchboard, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		st := n.FetchState()
		if !st.Following {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		leader := anyLeader(board)
		if leader == nil {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		resp := leader.Fetch(t.Context(), FetchRequest{
			Replica: n.machine.self(), CurrentLeaderEpoch: -1, FetchOffset: st.FetchOffset, LastFetchedEpoch: st.LastFetchedEpoch,
			MaxBytes: 1 << 20, MaxWait: 500 * time.Millisecond, HighWatermark: st.HighWatermark,
		})
		if resp.Err != nil {
			_ = n.HandleLeader(t.Context(), resp.Leader)
			time.Sleep(100 * time.Millisecond)
			continue
		}
		if resp.Snapshot != nil {
			if err := fetchWhole(n, leader, *resp.Snapshot); err != nil {
				t.Error(err)
			}
			continue
		}
		err := n.HandleFetched(t.Context(), FetchedFromLeader{
			Leader: resp.Leader, HighWatermark: resp.HighWatermark, Records: resp.Records, Diverging: resp.Diverging,
		})
		if err != nil && !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	}
}

func anyLeader(board *switchboard) *Node {
	board.mu.Lock()
	defer board.mu.Unlock()
	for _, n := range board.nodes {
		if n.board.load().leads() {
			return n
		}
	}
	return nil
}

func fetchWhole(n, leader *Node, id SnapshotID) error {
	d, err := n.BeginSnapshot(id)
	if err != nil {
		return err
	}
	for {
		piece := leader.FetchSnapshot(FetchSnapshotRequest{CurrentLeaderEpoch: -1, ID: id, Position: d.Position(), MaxBytes: 64})
		if piece.Err != nil {
			d.Abort()
			return piece.Err
		}
		if _, err := d.Write(piece.Bytes); err != nil {
			return err
		}
		if d.Position() == piece.SizeBytes {
			return d.Complete()
		}
	}
}

// snapshotAndForget lets a leader write a snapshot of its first 5 offsets and delete the log before its end.
func snapshotAndForget(t *testing.T, n *Node) {
	t.Helper()
	w, err := n.CreateSnapshot(t.Context(), 5, 1000)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Append(topicRecords("a", "b")...), w.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := n.CreateSnapshot(t.Context(), 5, 1000); !errors.Is(err, ErrSnapshotExists) {
		t.Fatalf("the same snapshot again: %v", err)
	}
	if _, err := n.CreateSnapshot(t.Context(), 6, 1000); !errors.Is(err, ErrSnapshotOffset) {
		t.Fatalf("a snapshot above the high watermark: %v", err)
	}
	err = n.do(t.Context(), func(m *machine) (error, error) { return m.storage.deleteBefore(SnapshotID{5, 1}, time.Now()), nil })
	if err != nil {
		t.Fatal(err)
	}
}

// joined starts node 1 as the only voter and node 2 as an observer that has fetched a snapshot; stop ends the fetching.
func joined(t *testing.T) (board *switchboard, sm *lockedMachine, stop func()) {
	t.Helper()
	board, nodes, _ := quorumOf(t, 1)
	startAll(t, nodes)
	synctest.Wait()
	if _, _, err := nodes[1].Propose(1, topicRecords("a", "b")); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	snapshotAndForget(t, nodes[1])
	mem := vfs.NewMem()
	if err := mem.MkdirAll("/n2"); err != nil {
		t.Fatal(err)
	}
	sm = openNode(t, board, mem, 2)
	n2 := board.nodes[2]
	if err := n2.Start(); err != nil {
		t.Fatal(err)
	}
	if err := nodes[1].AddVoter(t.Context(), testVoter(2, 0), true); !errors.Is(err, ErrNotCaughtUp) {
		t.Fatalf("before it fetched: %v", err)
	}
	ended := make(chan struct{})
	var loop sync.WaitGroup
	loop.Go(func() { fetchLoop(t, n2, board, ended) })
	time.Sleep(2 * time.Second)
	synctest.Wait()
	if got := sm.names(); !slices.Equal(got, []string{"a", "b"}) {
		t.Fatalf("the observer has %v", got)
	}
	return board, sm, func() {
		close(ended)
		loop.Wait()
	}
}

func TestControllerJoinsAsObserverAndBecomesAVoter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board, sm, stop := joined(t)
		n1, n2 := board.nodes[1], board.nodes[2]
		if err := n1.AddVoter(t.Context(), Voter{Key: ReplicaKey{ID: 2, DirectoryID: protocol.UUID{}}}, true); !errors.Is(err, ErrInvalidVoters) {
			t.Fatalf("without directory: %v", err)
		}
		if err := n1.AddVoter(t.Context(), testVoter(2, 0), true); err != nil {
			t.Fatal(err)
		}
		if got := n1.Voters().IDs(); !slices.Equal(got, []int32{1, 2}) || n1.KRaftVersion() != 1 {
			t.Fatalf("voters %v", got)
		}
		if _, _, err := n1.Propose(1, topicRecords("c")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n2.FetchState().Following || !slices.Equal(sm.names(), []string{"a", "b", "c"}) {
			t.Fatalf("node 2 follows %v, has %v", n2.FetchState().Following, sm.names())
		}
		// The first voter leaves; the second one leads.
		if err := n1.RemoveVoter(t.Context(), testVoter(1, 0).Key); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if l := n2.Leader(); l.LeaderID != 2 || !n1.FetchState().Following {
			t.Fatalf("leader %v, node 1 follows: %v", l, n1.FetchState().Following)
		}
		stop()
		stopAll(t, board.nodes)
	})
}
