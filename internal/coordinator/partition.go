package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
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

// task is an operation on its way to the owner goroutine.
type task[R any, M Machine[R]] struct {
	kind taskKind
	run  func(M) (Effect[R], error)
	// done is called exactly once.
	done func(error)

	producer         Producer
	verified         any
	coordinatorEpoch int32
	commit           bool
	queuedAt         time.Time
}

// partition owns the machine of one partition in one leader epoch.
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
	// wake has room for one token: there may be something to do.
	wake chan struct{}

	mu    sync.Mutex
	queue []task[R, M]

	// What follows belongs to the owner goroutine alone.
	loaded *loaded[R, M]
	// timerTrouble is with timer operations: each is tried again and again, as while the disk is full.
	timerTrouble outage.Outage
}

// loaded is the machine and what the runtime knows about it while it serves.
type loaded[R any, M Machine[R]] struct {
	machine  M
	registry *timeline.Registry
	timers   *timers[R]
	batch    *openBatch[R, M]
	deferred []deferred
	// broken is set when the machine must be loaded again.
	broken error
}

// mustReload tells whether the machine differs from what the log says.
func (l *loaded[R, M]) mustReload() bool { return l.broken != nil }

// deferred is an answer that waits for the high watermark to reach offset.
type deferred struct {
	offset int64
	done   func(error)
	effect func(error)
}

func newPartition[R any, M Machine[R]](rt *Runtime[R, M], id, epoch int32) *partition[R, M] {
	ctx, stop := context.WithCancel(context.Background()) //nolint:gosec // whoever ends the partition calls stop
	return &partition[R, M]{
		rt: rt, id: id, epoch: epoch, ctx: ctx, stop: stop,
		logger:  rt.opts.Logger.With("coordinator", rt.opts.Name, "partition", id, "leaderEpoch", epoch),
		stopped: make(chan struct{}),
		wake:    make(chan struct{}, 1),
	}
}

// submit queues a task, or says why it cannot be served now.
func (p *partition[R, M]) submit(t task[R, M]) error {
	t.queuedAt = time.Now()
	p.mu.Lock()
	switch p.state.Load() {
	case stateActive:
	case stateLoading:
		p.mu.Unlock()
		return ErrLoading
	default:
		p.mu.Unlock()
		return ErrNotCoordinator
	}
	if p.ctx.Err() != nil {
		p.mu.Unlock()
		return ErrNotCoordinator
	}
	p.queue = append(p.queue, t)
	p.mu.Unlock()
	p.poke()
	return nil
}

func (p *partition[R, M]) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
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

// serve runs operations until the partition is given up (nil) or the machine
// has to be loaded again (the cause).
func (p *partition[R, M]) serve() error {
	l := p.loaded
	cancel, err := p.rt.opts.Log.WatchHighWatermark(p.id, p.highWatermarkMoved)
	if err != nil {
		return fmt.Errorf("watch the high watermark: %w", err)
	}
	defer cancel()
	// The watch tells of changes only; catch up with those before it.
	if offsets, err := p.rt.opts.Log.Offsets(p.id); err == nil {
		p.highWatermarkMoved(offsets.HighWatermark)
	}
	p.state.Store(stateActive)

	alarm := time.NewTimer(time.Hour)
	defer alarm.Stop()
	for !l.mustReload() {
		p.setAlarm(alarm)
		select {
		case <-p.ctx.Done():
			return nil
		case <-p.wake:
			// Others are about to come: what they write shares the append.
			runtime.Gosched()
		case <-alarm.C:
		}
		p.commit()
		p.runTimers()
		p.runQueue()
	}
	return l.broken
}

// setAlarm sets the timer that ends the next wait of the loop.
func (p *partition[R, M]) setAlarm(alarm *time.Timer) {
	wait := time.Hour
	if next, ok := p.loaded.timers.next(); ok {
		wait = max(time.Until(next), 0)
	}
	alarm.Reset(wait)
}

// highWatermarkMoved may be called from any goroutine.
func (p *partition[R, M]) highWatermarkMoved(offset int64) {
	for {
		old := p.highWatermark.Load()
		if offset <= old {
			return
		}
		if p.highWatermark.CompareAndSwap(old, offset) {
			p.poke()
			return
		}
	}
}

// runQueue runs all tasks that wait, and appends what they wrote.
func (p *partition[R, M]) runQueue() {
	p.mu.Lock()
	tasks := p.queue
	p.queue = nil
	p.mu.Unlock()
	for i := range tasks {
		if p.ctx.Err() != nil || p.loaded.mustReload() {
			tasks[i].done(ErrNotCoordinator)
			continue
		}
		p.execute(&tasks[i])
	}
	_ = p.flush() // it has answered
	p.commit()
}

// runTimers runs the timers that are due.
func (p *partition[R, M]) runTimers() {
	now := time.Now()
	for p.ctx.Err() == nil && !p.loaded.mustReload() {
		t := p.loaded.timers.due(now)
		if t == nil {
			return
		}
		p.execute(&task[R, M]{
			kind: taskTimer, queuedAt: t.deadline,
			run:  func(M) (Effect[R], error) { return t.op() },
			done: func(err error) { p.timerDone(t, err) },
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

// commit moves the committed state to the high watermark and gives out the
// answers that waited for it.
func (p *partition[R, M]) commit() {
	l := p.loaded
	hw := p.highWatermark.Load()
	l.registry.Commit(hw)
	n := 0
	for n < len(l.deferred) && l.deferred[n].offset <= hw {
		p.complete(l.deferred[n], nil)
		n++
	}
	if n > 0 {
		clear(l.deferred[:n])
		l.deferred = append(l.deferred[:0], l.deferred[n:]...)
	}
}

// complete runs the machine's hook, then gives out the answer.
func (p *partition[R, M]) complete(d deferred, err error) {
	if d.effect != nil {
		_ = p.guarded("hook", func() error {
			d.effect(err)
			return nil
		})
	}
	if d.done != nil {
		d.done(err)
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
	tasks := p.queue
	p.queue = nil
	p.mu.Unlock()
	for i := range tasks {
		tasks[i].done(ErrNotCoordinator)
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
