package quorum

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"gregor/kraft/metadata"
	"gregor/protocol"
	"gregor/protocol/record"
	"gregor/storage"
	"gregor/storage/vfs"
)

const testClusterID = "test-cluster-0000000001"

// testingT is what testing.TB and rapid.T have in common.
type testingT interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// cluster is a quorum in one goroutine: machines, their disks, and the messages between them, all moved by the test.
type cluster struct {
	t     testingT
	nodes map[int32]*testNode
	queue []testMessage
	// cut says which links lose messages, in both directions.
	cut map[[2]int32]bool
	// committed is every batch that any node ever took for committed, by base offset: it must never change.
	committed map[int64][]byte
	// committedEnd is the largest high watermark seen.
	committedEnd int64
	level        int16
	incarnation  byte
	// promised says what was proposed at an offset in an epoch; leaders who led an epoch.
	promised map[promise]string
	leaders  map[uint64]int32
}

type promise struct {
	epoch  int32
	offset int64
}

type testMessage struct {
	from, to int32
	bytes    []byte
}

// testNode is a machine with its disk. machine is nil while the node is down.
type testNode struct {
	id       int32
	opts     Options
	fs       *vfs.Mem
	machine  *machine
	board    *board
	acc      *accumulator
	consumer *consumer
	events   *recordingMachine
	checked  int64 // up to here the committed log was compared
	// remains is the disk after a crash in the middle of the event that is being handled. What the machine does
	// after it does not happen.
	remains atomic.Pointer[vfs.Mem]
}

func newCluster(t testingT, level int16) *cluster {
	return &cluster{
		t: t, nodes: map[int32]*testNode{}, cut: map[[2]int32]bool{}, committed: map[int64][]byte{}, level: level,
		promised: map[promise]string{}, leaders: map[uint64]int32{},
	}
}

func (c *cluster) ids() []int32 {
	var ids []int32
	for id := range c.nodes {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func testVoter(id int32, incarnation byte) Voter {
	return Voter{
		Key:             ReplicaKey{ID: id, DirectoryID: protocol.UUID{0: 0xd0, 1: incarnation, 15: byte(id)}},
		Endpoints:       []Endpoint{{Name: "CONTROLLER", Host: "localhost", Port: uint16(9000 + id)}},
		MaxKRaftVersion: 1,
	}
}

// format makes the disks of new nodes that start with the same voters, as the format command would.
func (c *cluster) format(ids ...int32) {
	c.t.Helper()
	var voters []Voter
	for _, id := range ids {
		voters = append(voters, testVoter(id, 0))
	}
	set, err := NewVoterSet(voters)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, id := range ids {
		n := c.add(id, 0)
		cfg := config{level: c.level, voters: set}
		if c.level == 0 {
			static := make([]Voter, len(voters))
			for i, v := range voters {
				static[i] = Voter{Key: ReplicaKey{ID: v.Key.ID}, Endpoints: v.Endpoints}
			}
			n.opts.StaticVoters = static
		}
		writeBootstrap(c.t, n.fs, n.opts.Dir, cfg)
	}
}

// add makes an empty node that is no voter.
func (c *cluster) add(id int32, incarnation byte) *testNode {
	fs := vfs.NewMem()
	if err := errors.Join(fs.MkdirAll(fmt.Sprintf("/n%d", id)), fs.SyncDir("/")); err != nil {
		c.t.Fatal(err)
	}
	n := &testNode{id: id, fs: fs, opts: Options{
		NodeID: id, DirectoryID: testVoter(id, incarnation).Key.DirectoryID, ClusterID: testClusterID, FS: fs,
		Dir: fmt.Sprintf("/n%d/%s", id, DirName), Log: LogOptions{SegmentBytes: 16 << 10},
	}}
	if err := n.opts.setDefaults(); err != nil {
		c.t.Fatal(err)
	}
	c.nodes[id] = n
	return n
}

func writeBootstrap(t testingT, fs vfs.FS, dir string, cfg config) {
	t.Helper()
	err := WriteBootstrap(fs, dir, BootstrapOptions{
		KRaftVersion: cfg.level, Voters: cfg.voters, NowMillis: 1,
		Records: []VersionedRecord{{Record: &metadata.FeatureLevelRecord{Name: "metadata.version", FeatureLevel: 33}}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// start opens a node's disk and lets it run.
func (c *cluster) start(id int32) error {
	c.t.Helper()
	n := c.nodes[id]
	n.board = newBoard()
	n.remains.Store(nil)
	n.acc = newAccumulator(n.opts.Log.MaxUncommittedBytes, func() {})
	n.opts.FS = n.fs
	m, err := openMachine(&n.opts, n.board, n.acc)
	if err != nil {
		return err
	}
	m.send = func(to Peer, msg []byte) {
		if n.remains.Load() == nil {
			c.queue = append(c.queue, testMessage{from: id, to: to.ID, bytes: msg})
		}
	}
	n.machine, n.checked = m, 0
	n.events = &recordingMachine{}
	n.consumer = newConsumer(n.events, m.storage, n.board, nil)
	if m.config.voters.Contains(m.self()) && !n.opts.Observer {
		if err := m.startRaft(); err != nil {
			return err
		}
	}
	return c.settle(n)
}

// settle does what the loop of a Node does after each event, and checks what was promised.
func (c *cluster) settle(n *testNode) error {
	c.t.Helper()
	if err := n.machine.drain(); err != nil {
		return err
	}
	if disk := n.remains.Load(); disk != nil {
		n.fs.OnOp(nil)
		n.machine, n.fs = nil, disk
		return nil
	}
	if l := &n.machine.lead; l.opened {
		if other, ok := c.leaders[l.term]; ok && other != n.id {
			c.t.Fatalf("nodes %d and %d both lead epoch %d", other, n.id, l.term)
		}
		c.leaders[l.term] = n.id
	}
	for {
		busy, err := n.consumer.step()
		if err != nil {
			return err
		}
		if !busy {
			break
		}
	}
	c.verify(n)
	return nil
}

// must fails the test when a node failed.
func (c *cluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatalf("%v", err)
	}
}

// crash loses what a node did not sync, as the seed decides, and its memory.
func (c *cluster) crash(id int32, seed uint64) {
	n := c.nodes[id]
	n.machine = nil
	n.fs = n.fs.Crash(seed)
}

// crashIn lets a node crash at one of its next writes to the log, the quorum state or a snapshot.
func (c *cluster) crashIn(n *testNode, operations int, seed uint64) {
	disk := n.fs
	var left atomic.Int64
	left.Store(int64(operations))
	disk.OnOp(func(_ int64, op vfs.Op) {
		if !strings.HasSuffix(op.Name, ".log") && !strings.Contains(op.Name, quorumStateFile) && !strings.Contains(op.Name, checkpointSuffix) {
			return
		}
		if left.Add(-1) == -1 {
			n.remains.Store(disk.Crash(seed))
		}
	})
}

// close stops a node properly.
func (c *cluster) close(id int32) {
	c.t.Helper()
	n := c.nodes[id]
	c.must(n.machine.close())
	n.machine = nil
}

func (c *cluster) up(id int32) bool { return c.nodes[id] != nil && c.nodes[id].machine != nil }

// deliver moves the message at a position of the queue.
func (c *cluster) deliver(i int) error {
	c.t.Helper()
	msg := c.queue[i]
	c.queue = slices.Delete(c.queue, i, i+1)
	if !c.up(msg.to) || c.cut[[2]int32{msg.from, msg.to}] {
		return nil
	}
	n := c.nodes[msg.to]
	malformed, err := n.machine.receive(msg.bytes)
	if malformed {
		return nil // refused, as a Node would log
	}
	if err != nil {
		return err
	}
	return c.settle(n)
}

// stabilize delivers until nothing moves.
func (c *cluster) stabilize() {
	c.t.Helper()
	for i := 0; len(c.queue) > 0; i++ {
		if i > 100000 {
			c.t.Fatal("messages without end")
		}
		c.must(c.deliver(0))
	}
}

// campaign makes a node stand for election. The others forget their leader, or they would not vote.
func (c *cluster) campaign(id int32) {
	c.t.Helper()
	for _, other := range c.ids() {
		if c.up(other) && c.nodes[other].machine.rn != nil {
			m := c.nodes[other].machine
			c.must(guard(func() error {
				_ = m.rn.ForgetLeader()
				return m.ready()
			}))
			c.must(c.settle(c.nodes[other]))
		}
	}
	if !c.up(id) || c.nodes[id].machine.rn == nil {
		return
	}
	m := c.nodes[id].machine
	c.must(guard(func() error {
		if err := m.rn.Campaign(); err != nil {
			return err
		}
		return m.ready()
	}))
	c.must(c.settle(c.nodes[id]))
}

// leader returns the leader of the highest epoch that takes proposals; nil when there is none.
func (c *cluster) leader() *testNode {
	var best *testNode
	for _, id := range c.ids() {
		n := c.nodes[id]
		if n.machine != nil && n.machine.lead.opened && (best == nil || n.machine.lead.term > best.machine.lead.term) {
			best = n
		}
	}
	return best
}

// propose appends topics as the node's own epoch.
func (c *cluster) propose(n *testNode, names ...string) (base, last int64, err error) {
	epoch, _ := n.acc.nextOffset()
	var entries []VersionedRecord
	for _, name := range names {
		entries = append(entries, VersionedRecord{Record: &metadata.TopicRecord{Name: name, TopicID: protocol.UUID{15: 7}}})
	}
	node := &Node{acc: n.acc, o: n.opts}
	base, last, err = node.Propose(epoch, entries)
	if err != nil {
		return 0, 0, err
	}
	for i, name := range names {
		c.promised[promise{epoch, base + int64(i)}] = name
	}
	return base, last, c.settle(n)
}

// verify compares what a node takes for committed with what any node ever did.
func (c *cluster) verify(n *testNode) {
	c.t.Helper()
	s := n.board.load()
	st := n.machine.storage.log.State()
	if s.highWatermark > st.LogEndOffset {
		c.t.Fatalf("node %d: high watermark %d above the log end %d", n.id, s.highWatermark, st.LogEndOffset)
	}
	n.checked = max(n.checked, st.LogStartOffset)
	for n.checked < s.highWatermark {
		b, err := n.machine.storage.log.ReadBatches(n.checked, nil, scanBytes, storage.UpToLogEnd)
		if err != nil {
			c.t.Fatalf("node %d: offset %d: %v", n.id, n.checked, err)
		}
		for batch := range record.Validated(b) {
			if batch.LastOffset() >= s.highWatermark {
				c.committedEnd = max(c.committedEnd, s.highWatermark)
				if batch.BaseOffset() < s.highWatermark {
					c.t.Fatalf("node %d: high watermark %d inside the batch %d to %d", n.id, s.highWatermark, batch.BaseOffset(), batch.LastOffset())
				}
				return
			}
			c.checkCommitted(n, batch)
			n.checked = batch.NextOffset()
		}
	}
	c.committedEnd = max(c.committedEnd, s.highWatermark)
}

func (c *cluster) checkCommitted(n *testNode, b record.Batch) {
	c.t.Helper()
	before, ok := c.committed[b.BaseOffset()]
	if want := c.promised[promise{b.LeaderEpoch(), b.BaseOffset()}]; want != "" && want != describeContent(b) {
		c.t.Fatalf("offset %d of epoch %d was promised to %q and is %q", b.BaseOffset(), b.LeaderEpoch(), want, describeContent(b))
	}
	if !ok {
		c.committed[b.BaseOffset()] = slices.Clone(b)
		return
	}
	if !bytes.Equal(before, b) {
		c.t.Fatalf("node %d: committed batch at offset %d is epoch %d, %d bytes; it was epoch %d, %d bytes", n.id,
			b.BaseOffset(), b.LeaderEpoch(), len(b), record.Batch(before).LeaderEpoch(), len(before))
	}
}

// dump lists the batches of a node's log.
func (n *testNode) dump(from int64) string {
	var out strings.Builder
	st := n.machine.storage.log.State()
	for offset := max(from, st.LogStartOffset); offset < st.LogEndOffset; {
		b, err := n.machine.storage.log.ReadBatches(offset, nil, scanBytes, storage.UpToLogEnd)
		if err != nil {
			return out.String() + err.Error() + "\n"
		}
		for batch := range record.Validated(b) {
			fmt.Fprintln(&out, describeBatch(batch))
			offset = batch.NextOffset()
		}
	}
	return out.String()
}

func describeBatch(b record.Batch) string {
	offsets := strconv.FormatInt(b.BaseOffset(), 10)
	if b.LastOffsetDelta() > 0 {
		offsets = fmt.Sprintf("%d-%d", b.BaseOffset(), b.LastOffset())
	}
	return fmt.Sprintf("%s epoch=%d %s", offsets, b.LeaderEpoch(), describeContent(b))
}

func describeContent(b record.Batch) string {
	var parts []string
	if b.IsControl() {
		ctl, err := readControl(b)
		if err != nil {
			return err.Error()
		}
		if l := ctl.leaderChange; l != nil {
			var voters, granting []int32
			for _, v := range l.Voters {
				voters = append(voters, v.VoterID)
			}
			for _, v := range l.GrantingVoters {
				granting = append(granting, v.VoterID)
			}
			parts = append(parts, fmt.Sprintf("LeaderChange leader=%d voters=%v granting=%v", l.LeaderID, voters, granting))
		}
		if ctl.level != nil {
			parts = append(parts, fmt.Sprintf("KRaftVersion %d", *ctl.level))
		}
		if ctl.voters != nil {
			parts = append(parts, fmt.Sprintf("KRaftVoters %v", ctl.voters.IDs()))
		}
		return strings.Join(parts, " ")
	}
	out, err := committedBatch(b)
	if err != nil {
		return err.Error()
	}
	for _, r := range out.Records {
		if topic, ok := r.(*metadata.TopicRecord); ok {
			parts = append(parts, topic.Name)
		} else {
			parts = append(parts, r.MessageName())
		}
	}
	return strings.Join(parts, " ")
}

// snapshot writes a checkpoint of what a node's state machine holds.
func (c *cluster) snapshot(n *testNode) (SnapshotID, error) {
	id, cfg, err := n.machine.storage.snapshotAt(n.events.next, n.board.load().highWatermark)
	if err != nil {
		return SnapshotID{}, err
	}
	if err := n.machine.storage.log.Flush(id.Offset); err != nil {
		return SnapshotID{}, err
	}
	w, err := n.machine.storage.snapshots.newSnapshotWriter(snapshotSpec{id: id, config: cfg, nowMillis: 1})
	if err != nil {
		return SnapshotID{}, err
	}
	for _, name := range n.events.topics {
		if err := w.Append(VersionedRecord{Record: &metadata.TopicRecord{Name: name, TopicID: protocol.UUID{15: 7}}}); err != nil {
			return SnapshotID{}, err
		}
	}
	return id, w.Close()
}

// finish heals the network, elects a leader if there is none, and checks that all logs are equal byte for byte up to
// the commit and that nothing committed was lost.
func (c *cluster) finish() {
	c.t.Helper()
	clear(c.cut)
	for range 20 {
		c.stabilize()
		c.tickAll(3)
		if c.converged() {
			break
		}
		if l := c.leader(); l == nil || !l.board.load().leads() {
			for _, id := range c.ids() {
				c.campaign(id)
				c.stabilize()
				if l := c.leader(); l != nil && l.board.load().leads() {
					break
				}
			}
		}
	}
	if !c.converged() {
		c.t.Fatalf("no convergence:\n%s", c.status())
	}
	for _, id := range c.ids() {
		n := c.nodes[id]
		if n.machine == nil {
			continue
		}
		if n.board.load().highWatermark < c.committedEnd && c.leader().machine.config.voters.Contains(n.machine.self()) {
			c.t.Fatalf("node %d: high watermark %d, committed before up to %d", id, n.board.load().highWatermark, c.committedEnd)
		}
		if len(n.events.faults) > 0 {
			c.t.Fatalf("node %d: state machine: %v", id, n.events.faults)
		}
	}
}

func (c *cluster) tickAll(count int) {
	c.t.Helper()
	for range count {
		for _, id := range c.ids() {
			// Followers do not count time here, so that no election depends on raft's dice.
			if n := c.nodes[id]; n.machine != nil && n.machine.seen.role.String() == "StateLeader" {
				c.must(n.machine.tick())
				c.must(c.settle(n))
			} else if n.machine != nil && n.machine.rn != nil {
				c.must(n.machine.tickTransfers())
				c.must(c.settle(n))
			}
		}
		c.stabilize()
	}
}

// converged tells whether there is a leader and all voters that are up have its high watermark and log end.
func (c *cluster) converged() bool {
	l := c.leader()
	if l == nil || !l.board.load().leads() || l.board.load().highWatermark != l.machine.storage.endOffset() {
		return false
	}
	for _, id := range c.ids() {
		n := c.nodes[id]
		if n.machine == nil || n.machine.rn == nil || !l.machine.config.voters.Contains(n.machine.self()) {
			continue // down, an observer, or a voter that missed its removal
		}
		if n.board.load().highWatermark != l.board.load().highWatermark || n.machine.storage.endOffset() != l.machine.storage.endOffset() {
			return false
		}
	}
	return true
}

// status is a line per node.
func (c *cluster) status() string {
	var out strings.Builder
	for _, id := range c.ids() {
		n := c.nodes[id]
		if n.machine == nil {
			fmt.Fprintf(&out, "%d down\n", id)
			continue
		}
		s, st := n.board.load(), n.machine.storage.log.State()
		role := "observer"
		if n.machine.rn != nil {
			role = strings.ToLower(strings.TrimPrefix(n.machine.seen.role.String(), "State"))
		}
		fmt.Fprintf(&out, "%d %s epoch=%d leader=%d log=[%d,%d) hw=%d voters=%v", id, role, s.leader.Epoch, s.leader.LeaderID,
			st.LogStartOffset, st.LogEndOffset, s.highWatermark, s.config.voters.IDs())
		if ids := n.machine.storage.snapshots.list(); len(ids) > 0 {
			fmt.Fprintf(&out, " snapshots=%v", ids)
		}
		out.WriteByte('\n')
	}
	return out.String()
}
