package quorum

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"gregor/kraft/metadata"
)

// maintenanceInterval is how often old snapshots are looked for and late writes are made.
const maintenanceInterval = 10 * time.Second

// maxBatchBytes is how large a record may be, as a batch: what Kafka's raft client takes.
const maxBatchBytes = 8 << 20

// inboxMessages is how many received messages may wait; raft copes with the loss of more.
const inboxMessages = 256

// Node is a replica of the metadata log. Its methods may be called from any goroutine.
type Node struct {
	o       Options
	machine *machine // of the loop's goroutine
	board   *board
	acc     *accumulator
	// endAtOpen is the log end offset that Open found.
	endAtOpen int64

	inbox       chan []byte
	unreachable chan int32
	calls       chan call
	proposed    chan struct{}
	stop        chan struct{}
	done        chan struct{}
	stopOnce    sync.Once
	closeOnce   sync.Once

	mu        sync.Mutex
	err       error
	machines  []StateMachine
	started   bool
	consumers sync.WaitGroup
}

// call is work for the loop's goroutine. fatal errors end the node, result goes to the caller.
type call struct {
	run  func(m *machine) (result, fatal error)
	done chan error
}

// Open opens the directory without starting anything. Close it with Stop.
func Open(o Options) (*Node, error) {
	if err := o.setDefaults(); err != nil {
		return nil, err
	}
	n := &Node{
		o: o, board: newBoard(), inbox: make(chan []byte, inboxMessages),
		unreachable: make(chan int32, inboxMessages), calls: make(chan call),
		proposed: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
	n.acc = newAccumulator(o.Log.MaxUncommittedBytes, func() {
		select {
		case n.proposed <- struct{}{}:
		default:
		}
	})
	m, err := openMachine(&n.o, n.board, n.acc)
	if err != nil {
		return nil, fmt.Errorf("metadata quorum: %w", err)
	}
	n.machine, n.endAtOpen = m, m.storage.log.State().LogEndOffset
	return n, nil
}

// Register adds a state machine. It must be called before Start.
func (n *Node) Register(sm StateMachine) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.machines = append(n.machines, sm)
}

// Start begins to vote, if this node is a voter, and to call the state machines. The only voter leads when Start
// returns.
func (n *Node) Start() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.started {
		return errors.New("metadata quorum: started twice")
	}
	n.started = true
	if m := n.machine; !n.o.Observer && m.config.voters.Contains(m.self()) {
		err := m.startRaft()
		if err == nil {
			err = m.drain()
		}
		if err != nil {
			// Nothing runs that Stop could wait for.
			n.err = fmt.Errorf("metadata quorum: %w", err)
			n.stopOnce.Do(func() { close(n.stop) })
			close(n.done)
			return n.err
		}
	}
	for _, sm := range n.machines {
		c := newConsumer(sm, n.machine.storage, n.board, n.stop)
		n.consumers.Go(func() {
			if err := c.run(); err != nil {
				n.Fail(err)
			}
		})
	}
	n.machine.storage.full.waits, n.machine.storage.full.stop = true, n.stop
	go n.loop()
	return nil
}

// Stop hands leadership over if there is somebody to take it, waits for that at most as long as ctx allows and one
// election timeout, stops all goroutines and closes the log.
func (n *Node) Stop(ctx context.Context) error {
	n.mu.Lock()
	started := n.started
	n.started = true
	n.mu.Unlock()
	if started && n.Err() == nil {
		n.handOver(ctx)
	}
	n.stopOnce.Do(func() { close(n.stop) })
	n.acc.close()
	if started {
		<-n.done
		n.consumers.Wait()
	}
	var err error
	n.closeOnce.Do(func() { err = n.machine.close() })
	return err
}

// Done is closed when the node failed or was stopped.
func (n *Node) Done() <-chan struct{} { return n.stop }

// Err tells why the node failed. The process should end.
func (n *Node) Err() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.err
}

// Fail ends the node: its log is lost, or a state machine cannot follow it. The first reason is that of Err.
func (n *Node) Fail(err error) {
	n.mu.Lock()
	if n.err == nil {
		n.err = err
		n.o.Logger.Error("metadata quorum: failed", "error", err)
	}
	n.mu.Unlock()
	n.acc.close()
	n.stopOnce.Do(func() { close(n.stop) })
}

// loop is the goroutine of the machine.
func (n *Node) loop() {
	defer close(n.done)
	maintenance := time.NewTicker(maintenanceInterval)
	defer maintenance.Stop()
	ticker := time.NewTicker(n.o.Timing.TickInterval)
	defer ticker.Stop()
	ticking := true
	for {
		if want := n.machine.needsTicks(); want != ticking {
			ticking = want
			if want {
				ticker.Reset(n.o.Timing.TickInterval)
			} else {
				ticker.Stop()
			}
		}
		var err error
		select {
		case <-n.stop:
			return
		case msg := <-n.inbox:
			err = n.receive(msg)
		case c := <-n.calls:
			result, fatal := c.run(n.machine)
			c.done <- result
			err = fatal
		case id := <-n.unreachable:
			err = n.machine.unreachable(id)
		case <-n.proposed:
		case <-ticker.C:
			err = n.machine.tick()
		case <-maintenance.C:
			err = n.machine.maintain(time.Now())
		}
		if err == nil {
			err = n.machine.drain()
		}
		if err != nil {
			if errors.Is(err, ErrClosed) {
				return // stopped while it waited for space
			}
			n.Fail(err)
			return
		}
	}
}

func (n *Node) receive(msg []byte) error {
	malformed, err := n.machine.receive(msg)
	if malformed {
		n.o.Logger.Warn("metadata quorum: message refused", "error", err)
		return nil
	}
	return err
}

// do runs work on the loop's goroutine and returns its result.
func (n *Node) do(ctx context.Context, run func(m *machine) (result, fatal error)) error {
	c := call{run: run, done: make(chan error, 1)}
	select {
	case n.calls <- c:
	case <-n.stop:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	return <-c.done
}

// Receive takes a message that a controller's Transport sent to this node. It does not wait; when too many messages
// are waiting, this one is lost. The message must not be changed afterwards. Only messages that cannot be one are
// answered with an error.
func (n *Node) Receive(msg []byte) error {
	if _, s := parseEnvelope(msg); s.err != nil {
		return fmt.Errorf("%w: message of a controller: %w", ErrCorrupt, s.err)
	}
	select {
	case <-n.stop:
		return ErrClosed
	case n.inbox <- msg:
	default:
	}
	return nil
}

// ReportUnreachable says that a message to a node could not be delivered. It does not wait; a Transport may call it
// from Send.
func (n *Node) ReportUnreachable(id int32) {
	select {
	case n.unreachable <- id:
	default: // raft finds out by itself
	}
}

// Propose appends records as the leader of an epoch, one batch each, with contiguous offsets that are known at once.
// It does not wait: Commit tells when they are committed. When the node loses its leadership before that, they may
// or may not be committed; LeaderChange tells it. Errors wrap ErrNotLeader, ErrTooManyUncommitted, ErrRecordTooLarge,
// or are those of the records' encoding.
func (n *Node) Propose(epoch int32, records []VersionedRecord) (baseOffset, lastOffset int64, err error) {
	if len(records) == 0 {
		return 0, 0, errors.New("metadata quorum: nothing to propose")
	}
	now := time.Now().UnixMilli()
	entries := make([]*raftpb.Entry, len(records))
	for i, r := range records {
		b, err := dataBatch(r, now)
		if err == nil && len(b) > min(maxBatchBytes, int(n.o.Log.SegmentBytes)) {
			err = fmt.Errorf("%w: %d bytes", ErrRecordTooLarge, len(b))
		}
		if err != nil {
			return 0, 0, fmt.Errorf("metadata record %d of %d: %w", i+1, len(records), err)
		}
		entries[i] = &raftpb.Entry{Data: b}
	}
	return n.acc.add(epoch, entries)
}

// Resign gives up leadership of an epoch, if the node still has it. The only voter leads again at once, in a new epoch.
func (n *Node) Resign(ctx context.Context, epoch int32) error {
	return n.do(ctx, func(m *machine) (error, error) {
		if m.rn == nil || m.seen.role != raft.StateLeader || epochOf(m.seen.term) != epoch {
			return nil, nil
		}
		return nil, m.startRaft()
	})
}

// handOver asks the most advanced follower to lead and waits until it does.
func (n *Node) handOver(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, n.o.Timing.ElectionTimeout)
	defer cancel()
	handing := false
	err := n.do(ctx, func(m *machine) (error, error) {
		var fatal error
		handing, fatal = m.handOver()
		return nil, fatal
	})
	for err == nil && handing {
		changed := n.board.watch()
		if n.board.load().leader.LeaderID != n.o.NodeID {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		case <-n.stop:
			return
		}
	}
}

// Leader is who leads, as far as this node knows.
func (n *Node) Leader() LeaderAndEpoch { return n.board.load().leader }

// HighWatermark is the exclusive end of what this node knows to be committed.
func (n *Node) HighWatermark() int64 { return n.board.load().highWatermark }

// CommittedTo is the exclusive end of what raft, or the leader, says is committed. It is never below the high watermark,
// and above it while this node still applies or fetches what it lacks. What the log held when it was opened counts as
// committed as far as no leader has cut it off: the node may have acted on it, and a leader that lacks its last answers
// tells it only piece by piece.
func (n *Node) CommittedTo() int64 {
	s := n.board.load()
	return max(s.committedTo, s.highWatermark, min(n.endAtOpen, n.LogEndOffset()))
}

// LogEndOffset is the exclusive end of the log on disk.
func (n *Node) LogEndOffset() int64 { return n.machine.storage.log.State().LogEndOffset }

// LogStartOffset is the first offset of the log.
func (n *Node) LogStartOffset() int64 { return n.machine.storage.log.State().LogStartOffset }

// Voters is the voter set in force.
func (n *Node) Voters() VoterSet { return n.board.load().config.voters }

// KRaftVersion is the level of the feature kraft.version.
func (n *Node) KRaftVersion() int16 { return n.board.load().config.level }

// Bootstrap reads the records of the format command, which the first active controller writes to the empty log. false:
// there are none.
func (n *Node) Bootstrap() ([]metadata.Record, bool, error) {
	return bootstrapRecords(&n.o, n.machine.storage.snapshots)
}
