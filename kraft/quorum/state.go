package quorum

import (
	"sync"
	"sync/atomic"
)

// state is what the machine publishes: immutable, replaced as a whole.
type state struct {
	leader LeaderAndEpoch
	// highWatermark is the exclusive end of what is known to be committed here.
	highWatermark int64
	// committedTo is the exclusive end of what raft says is committed, or the leader that this observer fetches from. It
	// runs ahead of the high watermark while this node applies or fetches what it lacks.
	committedTo int64
	// epochStart is the offset of the LeaderChange batch of the epoch in which this node leads, else -1.
	epochStart int64
	// config is the voter set in force.
	config config
	// role is Kafka's name of what the node is, vote whom it voted for in the epoch.
	role string
	vote int32
	// following says that the node is an observer, so that somebody has to fetch for it.
	following bool
}

// leads tells whether this node leads and has committed the start of its epoch.
func (s *state) leads() bool { return s.epochStart >= 0 && s.highWatermark > s.epochStart }

// board holds the published state and wakes those who wait for a change of it or of the log's end.
type board struct {
	current atomic.Pointer[state]

	mu      sync.Mutex
	changed chan struct{} // nil when nobody waits
}

func newBoard() *board {
	b := &board{}
	b.current.Store(&state{leader: LeaderAndEpoch{LeaderID: NoLeader}, epochStart: -1, vote: NoLeader})
	return b
}

func (b *board) load() *state { return b.current.Load() }

// committed notes how far the log is committed; those who wait are woken when the high watermark follows. Like publish it
// is called by the machine's goroutine alone.
func (b *board) committed(to int64) {
	if s := *b.load(); to > s.committedTo {
		s.committedTo = to
		b.current.Store(&s)
	}
}

// publish replaces the state and wakes all who wait.
func (b *board) publish(s *state) {
	b.current.Store(s)
	b.wake()
}

// wake says that something changed.
func (b *board) wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.changed != nil {
		close(b.changed)
		b.changed = nil
	}
}

// watch returns a channel that is closed at the next change. Take it before looking at the state.
func (b *board) watch() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.changed == nil {
		b.changed = make(chan struct{})
	}
	return b.changed
}
