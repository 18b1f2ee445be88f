package quorum

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"gregor/kraft/metadata"
	"gregor/protocol"
	"gregor/storage/vfs"
)

// switchboard carries messages between the Nodes of a test.
type switchboard struct {
	mu    sync.Mutex
	nodes map[int32]*Node
	cut   map[int32]bool
	sent  int
}

type line struct {
	board *switchboard
	from  int32
}

func (l line) Send(to Peer, msg []byte) {
	l.board.mu.Lock()
	defer l.board.mu.Unlock()
	l.board.sent++
	if n := l.board.nodes[to.ID]; n != nil && !l.board.cut[l.from] && !l.board.cut[to.ID] {
		_ = n.Receive(msg)
	}
}

func (s *switchboard) messages() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent
}

func (s *switchboard) setCut(id int32, cut bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut[id] = cut
}

// quorumOf makes nodes that are not started.
func quorumOf(t *testing.T, ids ...int32) (*switchboard, map[int32]*Node, map[int32]*lockedMachine) {
	t.Helper()
	board := &switchboard{nodes: map[int32]*Node{}, cut: map[int32]bool{}}
	voters := set(t, ids...)
	machines := map[int32]*lockedMachine{}
	for _, id := range ids {
		fs := vfs.NewMem()
		dir := fmt.Sprintf("/n%d", id)
		if err := fs.MkdirAll(dir); err != nil {
			t.Fatal(err)
		}
		writeBootstrap(t, fs, dir+"/"+DirName, config{level: 1, voters: voters})
		machines[id] = openNode(t, board, fs, id)
	}
	return board, maps.Clone(board.nodes), machines
}

func openNode(t *testing.T, board *switchboard, fs vfs.FS, id int32) *lockedMachine {
	t.Helper()
	n, err := Open(Options{
		NodeID: id, DirectoryID: testVoter(id, 0).Key.DirectoryID, ClusterID: testClusterID, FS: fs,
		Dir: fmt.Sprintf("/n%d/%s", id, DirName), Transport: line{board, id},
	})
	if err != nil {
		t.Fatal(err)
	}
	sm := &lockedMachine{}
	n.Register(sm)
	board.mu.Lock()
	board.nodes[id] = n
	board.mu.Unlock()
	return sm
}

// lockedMachine is a recordingMachine that a test may look at while it runs.
type lockedMachine struct {
	mu sync.Mutex
	recordingMachine
	hold chan struct{} // Commit waits for it when set
}

func (l *lockedMachine) Commit(b CommittedBatch) {
	if l.hold != nil {
		<-l.hold
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.recordingMachine.Commit(b)
}

func (l *lockedMachine) LoadSnapshot(r *SnapshotReader) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.recordingMachine.LoadSnapshot(r)
}

func (l *lockedMachine) LeaderChange(c LeaderAndEpoch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.recordingMachine.LeaderChange(c)
}

func (l *lockedMachine) names() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.topics)
}

func (l *lockedMachine) told() LeaderAndEpoch {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leader
}

func topicRecords(names ...string) []VersionedRecord {
	var out []VersionedRecord
	for _, n := range names {
		out = append(out, VersionedRecord{Record: &metadata.TopicRecord{Name: n, TopicID: protocol.UUID{15: 9}}})
	}
	return out
}

func startAll(t *testing.T, nodes map[int32]*Node) {
	t.Helper()
	for _, n := range nodes {
		if err := n.Start(); err != nil {
			t.Fatal(err)
		}
	}
}

func stopAll(t *testing.T, nodes map[int32]*Node) {
	t.Helper()
	for _, n := range nodes {
		if err := n.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// settledLeader waits until all running nodes know one leader, in fake time.
func settledLeader(t *testing.T, nodes map[int32]*Node, except ...int32) *Node {
	t.Helper()
	for range 200 {
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		var leader LeaderAndEpoch
		agreed := true
		for id, n := range nodes {
			if slices.Contains(except, id) {
				continue
			}
			l := n.Leader()
			if l.LeaderID == NoLeader || leader != (LeaderAndEpoch{}) && l != leader {
				agreed = false
			}
			leader = l
		}
		if agreed && nodes[leader.LeaderID] != nil && !slices.Contains(except, leader.LeaderID) && nodes[leader.LeaderID].board.load().leads() {
			return nodes[leader.LeaderID]
		}
	}
	t.Fatal("no leader within 20 s")
	return nil
}

func TestOnlyVoterLeadsWhenStartReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board, nodes, machines := quorumOf(t, 1)
		begin := time.Now()
		startAll(t, nodes)
		n := nodes[1]
		if l := n.Leader(); l != (LeaderAndEpoch{1, 1}) || time.Since(begin) > 0 {
			t.Fatalf("leader %v after %v", l, time.Since(begin))
		}
		base, last, err := n.Propose(1, topicRecords("a", "b"))
		if err != nil || base != 3 || last != 4 {
			t.Fatalf("offsets %d to %d, %v", base, last, err)
		}
		synctest.Wait()
		if got := machines[1].names(); !slices.Equal(got, []string{"a", "b"}) || machines[1].told() != (LeaderAndEpoch{1, 1}) {
			t.Fatalf("state machine has %v, leader %v", got, machines[1].told())
		}
		if n.machine.needsTicks() || board.messages() > 0 {
			t.Fatal("the only voter counts time or sends messages")
		}
		stopAll(t, nodes)
		if _, _, err := n.Propose(1, topicRecords("c")); !errors.Is(err, ErrNotLeader) {
			t.Fatalf("proposal after Stop: %v", err)
		}
	})
}

func TestLeaderIsReplacedAfterItFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board, nodes, machines := quorumOf(t, 1, 2, 3)
		startAll(t, nodes)
		first := settledLeader(t, nodes)
		old := first.Leader()
		if _, _, err := first.Propose(old.Epoch, topicRecords("a")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		board.setCut(old.LeaderID, true)
		if _, _, err := first.Propose(old.Epoch, topicRecords("lost")); err != nil {
			t.Fatal(err)
		}
		second := settledLeader(t, nodes, old.LeaderID)
		next := second.Leader()
		if next.LeaderID == old.LeaderID || next.Epoch <= old.Epoch {
			t.Fatalf("leader %v after %v", next, old)
		}
		// CheckQuorum: within two election timeouts the old leader notices by itself.
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if l := first.Leader(); l.LeaderID == old.LeaderID {
			t.Fatalf("the leader that was cut off still leads: %v", l)
		}
		if _, _, err := first.Propose(old.Epoch, topicRecords("b")); !errors.Is(err, ErrNotLeader) || !errors.Is(err, kerr.NotLeaderForPartition) {
			t.Fatalf("proposal of a deposed leader: %v", err)
		}
		if _, _, err := second.Propose(next.Epoch, topicRecords("b")); err != nil {
			t.Fatal(err)
		}
		board.setCut(old.LeaderID, false)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		for id, sm := range machines {
			if got := sm.names(); !slices.Equal(got, []string{"a", "b"}) || len(sm.faults) > 0 {
				t.Errorf("node %d has %v, faults %v", id, got, sm.faults)
			}
		}
		// PreVote: the return of the old leader did not disturb the new one.
		if l := second.Leader(); l != next {
			t.Errorf("leader %v became %v", next, l)
		}
		stopAll(t, nodes)
	})
}

func TestStopHandsLeadershipOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, nodes, _ := quorumOf(t, 1, 2, 3)
		startAll(t, nodes)
		first := settledLeader(t, nodes)
		old := first.Leader()
		begin := time.Now()
		if err := first.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		delete(nodes, old.LeaderID)
		synctest.Wait()
		for id, n := range nodes {
			if l := n.Leader(); l.LeaderID == old.LeaderID || l.LeaderID == NoLeader {
				t.Errorf("node %d: leader %v right after the stop", id, l)
			}
		}
		if took := time.Since(begin); took > 100*time.Millisecond {
			t.Errorf("handing over took %v", took)
		}
		stopAll(t, nodes)
	})
}

// countSyncs counts the syncs of log segments.
func countSyncs(fs *vfs.Mem) func() int {
	var mu sync.Mutex
	count := 0
	fs.OnOp(func(_ int64, op vfs.Op) {
		if op.Kind == vfs.OpSync && strings.HasSuffix(op.Name, ".log") {
			mu.Lock()
			defer mu.Unlock()
			count++
		}
	})
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return count
	}
}

func TestConcurrentProposalsShareOneSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, nodes, machines := quorumOf(t, 1)
		startAll(t, nodes)
		n := nodes[1]
		synctest.Wait()
		syncs := countSyncs(n.o.FS.(*vfs.Mem))
		// The loop is held while proposals come in, as a slow disk would hold it.
		held, release := make(chan struct{}), make(chan struct{})
		go func() {
			_ = n.do(context.Background(), func(*machine) (error, error) {
				close(held)
				<-release
				return nil, nil
			})
		}()
		<-held
		var offsets sync.Map
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				_, last, err := n.Propose(1, topicRecords(strconv.Itoa(i)))
				if err != nil {
					t.Error(err)
				}
				if _, taken := offsets.LoadOrStore(last, i); taken {
					t.Errorf("offset %d given twice", last)
				}
			})
		}
		wg.Wait() // none of them waits for the disk
		close(release)
		synctest.Wait()
		names := machines[1].names()
		if len(names) != 100 {
			t.Fatalf("%d records committed", len(names))
		}
		for i, name := range names {
			if got, _ := offsets.Load(int64(3 + i)); fmt.Sprint(got) != name {
				t.Fatalf("offset %d holds %s, promised to %v", 3+i, name, got)
			}
		}
		if got := syncs(); got > 2 {
			t.Errorf("%d syncs for 100 proposals", got)
		}
		stopAll(t, nodes)
	})
}

func TestSlowStateMachineHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, nodes, machines := quorumOf(t, 1)
		slow := &lockedMachine{hold: make(chan struct{})}
		nodes[1].Register(slow)
		startAll(t, nodes)
		for i := range 50 {
			if _, _, err := nodes[1].Propose(1, topicRecords(strconv.Itoa(i))); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if got := len(machines[1].names()); got != 50 {
			t.Fatalf("the quick machine has %d records", got)
		}
		if got := slow.told(); got.LeaderID == 1 {
			t.Fatal("the slow machine was told to lead before it had seen all")
		}
		close(slow.hold)
		synctest.Wait()
		if got := slow.names(); len(got) != 50 || slow.told() != (LeaderAndEpoch{1, 1}) {
			t.Fatalf("the slow machine has %d records, leader %v", len(got), slow.told())
		}
		stopAll(t, nodes)
	})
}

func TestProposalsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board, nodes, _ := quorumOf(t, 1, 2)
		startAll(t, nodes)
		n := settledLeader(t, nodes)
		n.acc.maxBytes = 1000
		epoch := n.Leader().Epoch
		board.setCut(n.Leader().LeaderID, true)
		var err error
		for i := 0; err == nil && i < 100; i++ {
			_, _, err = n.Propose(epoch, topicRecords(strconv.Itoa(i)))
		}
		if !errors.Is(err, ErrTooManyUncommitted) {
			t.Fatalf("error %v", err)
		}
		board.setCut(n.Leader().LeaderID, false)
		time.Sleep(time.Second)
		synctest.Wait()
		if _, _, err := n.Propose(n.Leader().Epoch, topicRecords("again")); err != nil {
			t.Fatalf("after the commit: %v", err)
		}
		stopAll(t, nodes)
	})
}

func TestIdleQuorumSendsOnlyHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board, nodes, _ := quorumOf(t, 1, 2, 3)
		startAll(t, nodes)
		settledLeader(t, nodes)
		before := board.messages()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		// Every 200 ms to two followers, and their answers.
		if sent := board.messages() - before; sent > 10*5*4+8 {
			t.Errorf("%d messages in 10 s", sent)
		}
		stopAll(t, nodes)
	})
}

func TestFailureOfTheDiskEndsTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board := &switchboard{nodes: map[int32]*Node{}, cut: map[int32]bool{}}
		mem := vfs.NewMem()
		if err := mem.MkdirAll("/n1"); err != nil {
			t.Fatal(err)
		}
		set, err := NewVoterSet([]Voter{testVoter(1, 0)})
		if err != nil {
			t.Fatal(err)
		}
		writeBootstrap(t, mem, "/n1/"+DirName, config{level: 1, voters: set})
		var broken sync.Mutex
		fail := false
		fs := vfs.NewErr(mem, vfs.InjectorFunc(func(op vfs.Op) error {
			broken.Lock()
			defer broken.Unlock()
			if fail && op.Kind == vfs.OpSync && strings.HasSuffix(op.Name, ".log") {
				return errors.New("disk is gone")
			}
			return nil
		}))
		sm := openNode(t, board, fs, 1)
		n := board.nodes[1]
		if err := n.Start(); err != nil {
			t.Fatal(err)
		}
		broken.Lock()
		fail = true
		broken.Unlock()
		if _, _, err := n.Propose(1, topicRecords("never")); err != nil {
			t.Fatal(err)
		}
		<-n.Done()
		if n.Err() == nil || slices.Contains(sm.names(), "never") {
			t.Fatalf("error %v, committed %v", n.Err(), sm.names())
		}
		if _, _, err := n.Propose(1, topicRecords("x")); !errors.Is(err, ErrNotLeader) {
			t.Errorf("proposal after the failure: %v", err)
		}
		_ = n.Stop(t.Context())
	})
}
