package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"gregor/internal/invariants"
	"gregor/internal/outage"
	"gregor/internal/timeline"
)

// States of a partition. Only an active one takes operations.
const (
	stateLoading int32 = iota
	stateActive
	stateFailed
	stateClosed
)

// Bounds of the wait before a failed load is tried again.
const (
	minLoadBackoff = time.Second
	maxLoadBackoff = 30 * time.Second
)

type taskKind int8

const (
	taskWrite taskKind = iota
	taskTxnWrite
	taskEndTxn
	taskRead
	taskTimer
)

// task is an operation on its way to the machine.
type task[R any, M Machine[R]] struct {
	kind taskKind
	// long: it may take its time, and is not run by who cannot wait for it.
	long bool
	operation[R, M]

	producer         Producer
	verified         any
	coordinatorEpoch int32
	commit           bool
	queuedAt         time.Time
}

// operation is what a task does. run is called at most once, done exactly once.
type operation[R any, M Machine[R]] interface {
	run(m M) (Effect[R], error)
	answer
}

// answer is given to whoever waits for the end of an operation.
type answer interface{ done(err error) }

// operationFuncs is an operation made of functions.
type operationFuncs[R any, M Machine[R]] struct {
	runs func() (Effect[R], error)
	ends func(error)
}

func (f operationFuncs[R, M]) run(M) (Effect[R], error) { return f.runs() }
func (f operationFuncs[R, M]) done(err error)           { f.ends(err) }

// partition runs the machine of one partition in one leader epoch.
type partition[R any, M Machine[R]] struct {
	rt     *Runtime[R, M]
	id     int32
	epoch  int32
	logger *slog.Logger

	ctx     context.Context //nolint:containedctx // the lifetime of the goroutine that owns the partition
	stop    context.CancelFunc
	stopped chan struct{}

	state atomic.Int32
	// highWatermark is the newest that the watch reported.
	highWatermark atomic.Int64
	// wake has room for one token: the owner has something to look at.
	wake chan struct{}

	mu sync.Mutex
	// queue are the tasks that wait; whoever has the turn runs them. Guarded by mu.
	queue []task[R, M]
	// turn says who may touch what follows. Guarded by mu.
	turn turn
	// wanted is set while the owner waits for the turn. Guarded by mu.
	wanted bool

	// What follows belongs to whoever has the turn.
	loaded *loaded[R, M]
	alarm  alarm
	// timerTrouble is with timer operations: each is tried again and again, as while the disk is full.
	timerTrouble outage.Outage
}

// loaded is the machine and what the runtime knows about it while it serves.
type loaded[R any, M Machine[R]] struct {
	machine  M
	registry *timeline.Registry
	timers   *timers[R]
	// batch is open, or nil; spareBatch has the memory of one that was.
	batch, spareBatch *openBatch[R, M]
	deferred          []deferred
	// expired are the first of deferred whose answers have timed out.
	expired int
	// committed is the high watermark up to which answers were given out.
	committed int64
	// tasks are those of the round that did not run yet; spare is an empty queue to swap with.
	tasks, spare []task[R, M]
	// encoded and scratch are memory for the records of one operation.
	encoded []encoded
	scratch []byte
	// now is when the round began.
	now time.Time
	// broken is set when the machine must be loaded again.
	broken error
}

// mustReload tells whether the machine differs from what the log says.
func (l *loaded[R, M]) mustReload() bool { return l.broken != nil }

// deferred is an answer that waits for the high watermark to reach offset.
type deferred struct {
	offset int64
	// answer is nil once it was given out.
	answer answer
	effect func(error)
	// expires is when nobody waits any longer; zero: never.
	expires time.Time
}

func newPartition[R any, M Machine[R]](rt *Runtime[R, M], id, epoch int32) *partition[R, M] {
	ctx, stop := context.WithCancel(context.Background()) //nolint:gosec // whoever ends the partition calls stop
	return &partition[R, M]{
		rt: rt, id: id, epoch: epoch, ctx: ctx, stop: stop,
		logger:  rt.opts.Logger.With("coordinator", rt.opts.Name, "partition", id, "leaderEpoch", epoch),
		stopped: make(chan struct{}),
		wake:    make(chan struct{}, 1),
		turn:    turnTaken, // the owner's, to load
	}
}

func (p *partition[R, M]) queued() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.queue)
}

// run is the owner goroutine: load, serve, unload; again while the broker is
// still elected. after is closed when the earlier owner of the partition ended.
func (p *partition[R, M]) run(after <-chan struct{}) {
	defer close(p.stopped)
	if after != nil {
		<-after
	}
	backoff := minLoadBackoff
	for p.ctx.Err() == nil {
		p.state.Store(stateLoading)
		err := p.load()
		if err == nil {
			backoff = minLoadBackoff
			err = p.serve()
			p.unload()
		}
		if p.ctx.Err() != nil {
			break
		}
		if errors.Is(err, errOutOfSync) {
			p.logger.Warn("reloading", "cause", err)
			continue
		}
		p.state.Store(stateFailed)
		p.logger.Error("coordinator partition failed; it will be loaded again", "cause", err, "after", backoff)
		if p.rt.opts.Events.LoadFailed != nil {
			p.rt.opts.Events.LoadFailed(p.id, err)
		}
		p.sleep(backoff)
		backoff = min(2*backoff, maxLoadBackoff)
	}
	p.state.Store(stateClosed)
}

// sleep waits, but not beyond the partition's end.
func (p *partition[R, M]) sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.ctx.Done():
	}
}

// runTimers runs the timers that are due.
func (p *partition[R, M]) runTimers() {
	for p.ctx.Err() == nil && !p.loaded.mustReload() {
		t := p.loaded.timers.due(p.loaded.now)
		if t == nil {
			return
		}
		p.execute(&task[R, M]{
			kind: taskTimer, queuedAt: t.deadline,
			operation: operationFuncs[R, M]{runs: t.op, ends: func(err error) { p.timerDone(t, err) }},
		})
	}
}

func (p *partition[R, M]) timerDone(t *timer[R], err error) {
	now := time.Now()
	if err == nil {
		if say, lasted := p.timerTrouble.Ends(now); say {
			p.logger.Info("timer operations work again", "after", lasted.Round(time.Millisecond))
		}
		return
	}
	if errors.Is(err, ErrNotCoordinator) {
		return
	}
	if say, lasted := p.timerTrouble.Fails(now); say {
		p.logger.Warn("timer operation failed", "timer", t.key, "retry", t.retry, "cause", err, "failing", lasted.Round(time.Millisecond))
	}
	if t.retry && !p.loaded.timers.Scheduled(t.key) {
		p.loaded.timers.Schedule(t.key, retryBackoff, true, t.op)
	}
}

// unload answers everything that waits with NOT_COORDINATOR and drops the
// machine.
func (p *partition[R, M]) unload() {
	l := p.loaded
	p.mu.Lock()
	if p.ctx.Err() != nil {
		p.state.Store(stateClosed)
	} else {
		p.state.Store(stateLoading)
	}
	tasks := slices.Concat(l.tasks, p.queue)
	p.queue = nil
	p.mu.Unlock()
	for i := range tasks {
		p.complete(deferred{answer: tasks[i]}, ErrNotCoordinator)
	}
	if l.batch != nil {
		for _, d := range l.batch.waiting {
			p.complete(d, ErrNotCoordinator)
		}
	}
	for _, d := range l.deferred {
		p.complete(d, ErrNotCoordinator)
	}
	l.machine.Unloaded(ErrNotCoordinator)
	p.loaded = nil
	p.logger.Info("coordinator partition unloaded")
}

// guarded runs an operation. A panic in it is a programmer's error: it costs
// the partition a reload, not the process its life.
func (p *partition[R, M]) guarded(what string, op func() error) (err error) {
	if invariants.Enabled {
		return op()
	}
	defer func() {
		if r := recover(); r != nil {
			p.logger.Error("panic in a coordinator operation", "operation", what, "panic", r, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic in %s: %v", what, r)
			p.loaded.broken = fmt.Errorf("%w: %w", errOutOfSync, err)
		}
	}()
	return op()
}
