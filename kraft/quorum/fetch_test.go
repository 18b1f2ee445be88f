package quorum

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"gregor/protocol"
	"gregor/protocol/record"
	"gregor/storage"
)

// serverOf is a Node around a machine that a test moves by hand.
func serverOf(n *testNode) *Node {
	return &Node{machine: n.machine, board: n.board, acc: n.acc, o: n.opts}
}

// epochs makes a leader with several epochs: 1 from offset 0, 2 from 6, 3 from 9, log end 12, snapshots 4-1 and 8-2.
func epochs(t *testing.T) (*cluster, *testNode) {
	t.Helper()
	c := newCluster(t, 1)
	c.format(1)
	c.must(c.start(1))
	n := c.nodes[1]
	propose := func(names ...string) {
		t.Helper()
		if _, _, err := c.propose(n, names...); err != nil {
			t.Fatal(err)
		}
	}
	snapshotAt := func() {
		t.Helper()
		if _, err := c.snapshot(n); err != nil {
			t.Fatal(err)
		}
	}
	propose("a")
	snapshotAt()
	propose("b", "c")
	c.must(n.machine.startRaft())
	c.must(c.settle(n))
	propose("d")
	snapshotAt()
	propose("e")
	c.must(n.machine.startRaft())
	c.must(c.settle(n))
	propose("f", "g")
	if got := c.status(); got != "1 leader epoch=3 leader=1 log=[0,12) hw=12 voters=[1] snapshots=[0-0 4-1 8-2]\n" {
		t.Fatal(got)
	}
	return c, n
}

func TestFetchComparesLogsAsKRaftDoes(t *testing.T) {
	c, n := epochs(t)
	for _, tc := range []struct {
		offset int64
		epoch  int32
		want   string
	}{
		{0, 0, "records from 0"},
		{12, 3, "nothing"},
		{10, 3, "records from 10"},
		{9, 2, "records from 9"},
		{6, 1, "records from 6"},
		{5, 1, "records from 5"},
		{13, 3, "diverging: epoch 3 ends at 12"},
		{8, 1, "diverging: epoch 1 ends at 6"},
		{10, 2, "diverging: epoch 2 ends at 9"},
		{12, 9, "diverging: epoch 3 ends at 12"},
	} {
		if got := describeFetch(serverOf(n), tc.offset, tc.epoch); got != tc.want {
			t.Errorf("offset %d epoch %d: %s, want %s", tc.offset, tc.epoch, got, tc.want)
		}
	}
	// With the log before 8-2 gone, whoever is not beyond its end gets the snapshot.
	c.must(n.machine.storage.deleteBefore(SnapshotID{8, 2}, time.Now()))
	for _, tc := range []struct {
		offset int64
		epoch  int32
		want   string
	}{
		{0, 0, "snapshot 8-2"},
		{5, 1, "snapshot 8-2"},
		{8, 1, "snapshot 8-2"},
		{8, 2, "records from 8"},
		{9, 2, "records from 9"},
		{10, 2, "diverging: epoch 2 ends at 9"},
		{12, 3, "nothing"},
		{12, 1, "snapshot 8-2"},
	} {
		if got := describeFetch(serverOf(n), tc.offset, tc.epoch); got != tc.want {
			t.Errorf("log start 8: offset %d epoch %d: %s, want %s", tc.offset, tc.epoch, got, tc.want)
		}
	}
}

// TestSnapshotsBeforeTheLogStartAreForgottenAtTheStart: a crash can come between the move of the log start and the
// renames of the older snapshots. Were they listed on, compare would send whoever has just the newest one for it for ever.
func TestSnapshotsBeforeTheLogStartAreForgottenAtTheStart(t *testing.T) {
	c, n := epochs(t)
	if _, err := n.machine.storage.log.IncrementLogStartOffset(8); err != nil {
		t.Fatal(err)
	}
	c.close(1)
	c.must(c.start(1))
	if got := n.machine.storage.snapshots.list(); got[0] != (SnapshotID{8, 2}) {
		t.Errorf("snapshots %v beside a log that begins at 8", got)
	}
	if diverging, snapshot := n.machine.storage.compare(8, 2); diverging != nil || snapshot != nil {
		t.Errorf("a log that ends where snapshot 8-2 does is sent to %v, %v", diverging, snapshot)
	}
}

func TestInstalledSnapshotReplacesTheOlderOnes(t *testing.T) {
	c, n := epochs(t)
	c.must(n.machine.storage.install(SnapshotID{8, 2}, n.machine.storage.history.last().config))
	if got := n.machine.storage.snapshots.list(); got[0] != (SnapshotID{8, 2}) {
		t.Errorf("snapshots %v beside a log that begins at 8", got)
	}
}

func describeFetch(n *Node, offset int64, epoch int32) string {
	resp, _ := n.fetchNow(FetchRequest{CurrentLeaderEpoch: 3, FetchOffset: offset, LastFetchedEpoch: epoch, MaxBytes: 1 << 20, HighWatermark: math.MaxInt64})
	switch {
	case resp.Err != nil:
		return resp.Err.Error()
	case resp.Diverging != nil:
		return fmt.Sprintf("diverging: epoch %d ends at %d", resp.Diverging.Epoch, resp.Diverging.EndOffset)
	case resp.Snapshot != nil:
		return fmt.Sprintf("snapshot %v", *resp.Snapshot)
	case len(resp.Records) == 0:
		return "nothing"
	default:
		return fmt.Sprintf("records from %d", record.Batch(resp.Records).BaseOffset())
	}
}

func TestFetchIsAnsweredByTheLeaderOfTheEpochOnly(t *testing.T) {
	c := newCluster(t, 1)
	c.format(1, 2, 3)
	for id := int32(1); id <= 3; id++ {
		c.must(c.start(id))
	}
	c.campaign(1)
	c.stabilize()
	leader, follower := serverOf(c.nodes[1]), serverOf(c.nodes[2])
	for _, tc := range []struct {
		name  string
		node  *Node
		epoch int32
		at    int64
		want  error
	}{
		{"right epoch", leader, 1, 0, nil},
		{"unknown to the sender", leader, -1, 0, nil},
		{"older epoch", leader, 0, 0, kerr.FencedLeaderEpoch},
		{"newer epoch", leader, 2, 0, kerr.UnknownLeaderEpoch},
		{"follower", follower, 1, 0, kerr.NotLeaderForPartition},
		{"negative offset", leader, 1, -1, kerr.InvalidRequest},
	} {
		resp, _ := tc.node.fetchNow(FetchRequest{CurrentLeaderEpoch: tc.epoch, FetchOffset: tc.at, MaxBytes: 1000})
		if !errors.Is(resp.Err, tc.want) || resp.Leader != (LeaderAndEpoch{1, 1}) {
			t.Errorf("%s: %v, leader %v", tc.name, resp.Err, resp.Leader)
		}
		snap := tc.node.FetchSnapshot(FetchSnapshotRequest{CurrentLeaderEpoch: tc.epoch, ID: SnapshotID{}, Position: tc.at})
		if want := tc.want; !errors.Is(snap.Err, want) && !errors.Is(want, kerr.InvalidRequest) {
			t.Errorf("%s: snapshot: %v", tc.name, snap.Err)
		}
	}
	if _, err := follower.Describe(); !errors.Is(err, ErrNotLeader) {
		t.Errorf("a follower describes the quorum: %v", err)
	}
}

func TestFetchSnapshotServesPieces(t *testing.T) {
	_, n := epochs(t)
	server := serverOf(n)
	var file []byte
	id := SnapshotID{4, 1}
	for {
		resp := server.FetchSnapshot(FetchSnapshotRequest{CurrentLeaderEpoch: 3, ID: id, Position: int64(len(file)), MaxBytes: 77})
		if resp.Err != nil || resp.ID != id || resp.Position != int64(len(file)) || len(resp.Bytes) == 0 {
			t.Fatalf("at %d: %+v", len(file), resp)
		}
		file = append(file, resp.Bytes...)
		if int64(len(file)) == resp.SizeBytes {
			break
		}
	}
	if size := n.machine.storage.snapshots.sizeOf(id); int64(len(file)) != size {
		t.Fatalf("%d of %d bytes", len(file), size)
	}
	for _, tc := range []struct {
		id       SnapshotID
		position int64
		want     error
	}{
		{id, int64(len(file)), kerr.PositionOutOfRange},
		{id, -1, kerr.PositionOutOfRange},
		{SnapshotID{5, 1}, 0, kerr.SnapshotNotFound},
	} {
		if resp := server.FetchSnapshot(FetchSnapshotRequest{CurrentLeaderEpoch: 3, ID: tc.id, Position: tc.position}); !errors.Is(resp.Err, tc.want) {
			t.Errorf("%v at %d: %v", tc.id, tc.position, resp.Err)
		}
	}
}

func TestFetchWaitsForRecordsOrANewHighWatermark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, nodes, _ := quorumOf(t, 1)
		startAll(t, nodes)
		n := nodes[1]
		synctest.Wait()
		observer := ReplicaKey{ID: 9, DirectoryID: protocol.UUID{1: 1}}
		fetch := func(offset, knows int64) (FetchResponse, time.Duration) {
			begin := time.Now()
			resp := n.Fetch(t.Context(), FetchRequest{
				Replica: observer, CurrentLeaderEpoch: 1, FetchOffset: offset, LastFetchedEpoch: 1, MaxBytes: 1 << 20,
				MaxWait: 500 * time.Millisecond, HighWatermark: knows,
			})
			if resp.Err != nil {
				t.Error(resp.Err)
			}
			return resp, time.Since(begin)
		}
		if resp, took := fetch(1, 0); len(resp.Records) == 0 || took != 0 {
			t.Errorf("records that are there: %d bytes after %v", len(resp.Records), took)
		}
		if resp, took := fetch(3, 2); len(resp.Records) != 0 || resp.HighWatermark != 3 || took != 0 {
			t.Errorf("newer high watermark: %+v after %v", resp, took)
		}
		if resp, took := fetch(3, 3); len(resp.Records) != 0 || took != 500*time.Millisecond {
			t.Errorf("nothing new: %+v after %v", resp, took)
		}
		go func() {
			time.Sleep(100 * time.Millisecond)
			if _, _, err := n.Propose(1, topicRecords("x")); err != nil {
				t.Error(err)
			}
		}()
		if resp, took := fetch(3, math.MaxInt64); len(resp.Records) == 0 || took != 100*time.Millisecond {
			t.Errorf("new records: %d bytes after %v", len(resp.Records), took)
		}
		d, err := n.Describe()
		if err != nil || len(d.Observers) != 1 || d.Observers[0].Key != observer || d.Observers[0].LogEndOffset != 3 {
			t.Errorf("observers %+v, %v", d.Observers, err)
		}
		if m := n.Metrics(); m.CurrentState != "leader" || m.CurrentVote != 1 || m.Observers != 1 || m.LogEndOffset != 4 || m.LogEndEpoch != 1 {
			t.Errorf("metrics %+v", m)
		}
		go func() {
			time.Sleep(100 * time.Millisecond)
			_ = n.Stop(t.Context())
		}()
		resp := n.Fetch(t.Context(), FetchRequest{CurrentLeaderEpoch: 1, FetchOffset: 4, LastFetchedEpoch: 1, MaxWait: time.Hour, HighWatermark: math.MaxInt64})
		if !errors.Is(resp.Err, ErrNotLeader) {
			t.Errorf("fetch while the node stops: %v", resp.Err)
		}
	})
}

// racingLog changes before it is read.
type racingLog struct {
	partitionLog
	before func()
}

func (l *racingLog) ReadBatches(offset int64, buf []byte, maxBytes int, upTo storage.Bound) ([]byte, error) {
	l.before()
	return l.partitionLog.ReadBatches(offset, buf, maxBytes, upTo)
}

// The leader loses its epoch between comparing the logs and reading: an observer that got what the new leader wrote
// would append it to records that the new leader has cut off.
func TestFetchDoesNotMixTheLogsOfTwoLeaders(t *testing.T) {
	_, n := epochs(t)
	s := n.machine.storage
	log := s.log
	s.log = &racingLog{partitionLog: log, before: func() {
		if err := log.TruncateTo(10); err != nil {
			t.Fatal(err)
		}
		if _, err := log.AppendRaft(slices.Concat(batchAt(t, 10, 4, 1), batchAt(t, 11, 4, 1), batchAt(t, 12, 4, 1))); err != nil {
			t.Fatal(err)
		}
	}}
	if got := describeFetch(serverOf(n), 11, 3); got != ErrNotLeader.Error() {
		t.Errorf("answered with %s", got)
	}
}

// What a peer asks for does not decide how much memory it gets.
func TestFetchGivesABoundedPiece(t *testing.T) {
	_, n := epochs(t)
	var asked int
	s := n.machine.storage
	s.log = &boundedLog{partitionLog: s.log, asked: &asked}
	serverOf(n).fetchNow(FetchRequest{CurrentLeaderEpoch: 3, FetchOffset: 10, LastFetchedEpoch: 3, MaxBytes: math.MaxInt32})
	if asked != maxFetchBytes {
		t.Errorf("%d bytes were read for it", asked)
	}
}

type boundedLog struct {
	partitionLog
	asked *int
}

func (l *boundedLog) ReadBatches(offset int64, buf []byte, maxBytes int, upTo storage.Bound) ([]byte, error) {
	*l.asked = maxBytes
	return l.partitionLog.ReadBatches(offset, buf, maxBytes, upTo)
}
