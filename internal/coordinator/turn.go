package coordinator

import (
	"fmt"
	"runtime"
	"time"
)

// turn says who may touch a partition's machine. Whoever submits a task while nobody has the turn takes it, and runs the
// task at once: to wake a goroutine for it would cost more than most operations. What others submit meanwhile he runs
// as well, and it shares his append. The owner goroutine does what is nobody's errand: it loads and unloads, runs
// timers, follows a high watermark that moves while nobody has the turn, and takes over from a caller who has done
// enough for others, or finds something long in the queue.
type turn int8

const (
	turnFree turn = iota
	turnTaken
	// turnOffered is passed on to the owner goroutine, which has been woken.
	turnOffered
)

// maxCallerTasks bounds how many tasks one caller runs, his own and those of others, before the owner takes over.
const maxCallerTasks = 64

// runner is what the goroutine that has the turn may do with it.
type runner struct {
	// tasks that it may still run.
	tasks int
	// patient: also long ones.
	patient bool
	// timers: and timers that are due.
	timers bool
}

func ownerRuns() runner { return runner{tasks: 1 << 30, patient: true, timers: true} }

// takes returns how many tasks from the front of the queue the runner may run.
func takes[R any, M Machine[R]](r runner, queue []task[R, M]) int {
	n := min(r.tasks, len(queue))
	if r.patient {
		return n
	}
	for i := range n {
		if queue[i].long {
			return i
		}
	}
	return n
}

// submit queues a task, or says why it cannot be served now. When nobody has the turn the task runs before submit
// returns.
func (p *partition[R, M]) submit(t task[R, M]) error {
	if p.rt.opts.Events.Executed != nil {
		t.queuedAt = time.Now()
	}
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
	free := p.turn == turnFree
	if free {
		p.turn = turnTaken
	}
	p.mu.Unlock()
	if !free {
		return nil
	}
	// Who submits something long has time.
	for r := (runner{tasks: maxCallerTasks, patient: t.long}); ; {
		r.tasks -= p.round(r)
		if p.endRound(r) {
			return nil
		}
	}
}

// poke makes the owner goroutine look.
func (p *partition[R, M]) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// serve runs operations until the partition is given up (nil) or the machine has to be loaded again (the cause). The
// owner has the turn before and after.
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
	p.alarm.start()
	defer p.alarm.stop()
	p.state.Store(stateActive)
	for {
		p.round(ownerRuns())
		if l.mustReload() || p.ctx.Err() != nil {
			return l.broken
		}
		if p.endRound(ownerRuns()) {
			p.takeTurn()
		}
	}
}

// takeTurn waits until there is something to do for the owner, and for the turn.
func (p *partition[R, M]) takeTurn() {
	select {
	case <-p.ctx.Done():
	case <-p.wake:
		// Others are about to come: what they write shares the append.
		runtime.Gosched()
	case <-p.alarm.C:
	}
	for {
		p.mu.Lock()
		if p.turn != turnTaken {
			p.turn, p.wanted = turnTaken, false
			p.mu.Unlock()
			return
		}
		p.wanted = true
		p.mu.Unlock()
		<-p.wake
	}
}

// round does what waits, as far as the runner may: it moves the committed state, runs the timers that are due and the
// tasks of the queue, and appends what they wrote. It returns the number of tasks.
func (p *partition[R, M]) round(r runner) (ran int) {
	_ = p.guarded("round", func() error { // which has noted that the machine is broken
		p.loaded.now = time.Now()
		p.commit()
		if r.timers {
			p.runTimers()
		}
		ran = p.runQueue(r)
		return nil
	})
	return ran
}

// endRound ends a round, and the turn unless the runner can do more of what is to be done.
func (p *partition[R, M]) endRound(r runner) (over bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	more := len(p.queue) > 0 || p.highWatermark.Load() > p.loaded.committed
	switch {
	case p.wanted, p.loaded.mustReload(), len(p.queue) > 0 && takes(r, p.queue) == 0:
		p.turn, p.wanted = turnOffered, false
		p.poke()
		return true
	case more:
		return false
	}
	p.setAlarm()
	p.turn = turnFree
	return true
}

// highWatermarkMoved may be called from any goroutine, also from the one that has the turn and appends. It does not
// block.
func (p *partition[R, M]) highWatermarkMoved(offset int64) {
	for {
		old := p.highWatermark.Load()
		if offset <= old {
			return
		}
		if p.highWatermark.CompareAndSwap(old, offset) {
			break
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// Who has the turn looks before he gives it up.
	if p.turn == turnFree {
		p.poke()
	}
}

// runQueue runs the tasks that wait, as far as the runner may, and appends what they wrote.
func (p *partition[R, M]) runQueue(r runner) (ran int) {
	l := p.loaded
	p.mu.Lock()
	if n := takes(r, p.queue); n == len(p.queue) {
		l.tasks, p.queue = p.queue, l.spare
		l.spare = nil
	} else {
		l.tasks = append(l.tasks, p.queue[:n]...)
		rest := copy(p.queue, p.queue[n:])
		clear(p.queue[rest:])
		p.queue = p.queue[:rest]
	}
	p.mu.Unlock()
	all := l.tasks
	for len(l.tasks) > 0 {
		t := &l.tasks[0]
		l.tasks = l.tasks[1:]
		if p.ctx.Err() != nil || l.mustReload() {
			p.complete(deferred{answer: t}, ErrNotCoordinator)
			continue
		}
		p.execute(t)
	}
	_ = p.flush() // it has answered
	p.commit()
	clear(all)
	l.tasks = nil
	if cap(all) <= maxSpareTasks {
		l.spare = all[:0]
	}
	return len(all)
}

// maxSpareTasks is the largest queue whose memory is kept.
const maxSpareTasks = 1024

// commit moves the committed state to the high watermark and gives out the answers that waited for it, and those that
// have waited for too long.
func (p *partition[R, M]) commit() {
	l := p.loaded
	l.committed = p.highWatermark.Load()
	l.registry.Commit(l.committed)
	n := 0
	for n < len(l.deferred) && l.deferred[n].offset <= l.committed {
		p.complete(l.deferred[n], nil)
		n++
	}
	if n > 0 {
		rest := copy(l.deferred, l.deferred[n:])
		clear(l.deferred[rest:])
		l.deferred = l.deferred[:rest]
		l.expired = max(l.expired-n, 0)
	}
	for ; l.expired < len(l.deferred); l.expired++ {
		d := &l.deferred[l.expired]
		if d.expires.After(l.now) {
			return
		}
		if !d.expires.IsZero() {
			p.complete(deferred{answer: d.answer}, ErrTimedOut)
			d.answer = nil
		}
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
	if d.answer != nil {
		d.answer.done(err)
	}
}

// alarm wakes the owner when something is due.
type alarm struct {
	*time.Timer
	// at is when it goes off; zero: not set.
	at time.Time
}

// idleAlarm is how long the owner sleeps when nothing is due.
const idleAlarm = time.Hour

func (a *alarm) start() {
	a.Timer, a.at = time.NewTimer(idleAlarm), time.Time{}
}

func (a *alarm) stop() { a.Stop() }

// setAlarm sets the alarm to what is due next. It is only ever moved forward: most timers are set anew before they are
// due, and an alarm that comes too early costs less than one that is moved each time.
func (p *partition[R, M]) setAlarm() {
	l := p.loaded
	next, ok := l.timers.next()
	if l.expired < len(l.deferred) {
		if d := &l.deferred[l.expired]; !d.expires.IsZero() && (!ok || d.expires.Before(next)) {
			next, ok = d.expires, true
		}
	}
	if !ok {
		next = l.now.Add(idleAlarm)
	}
	if set := p.alarm.at.After(l.now); set && (!ok || !next.Before(p.alarm.at)) {
		return
	}
	p.alarm.at = next
	p.alarm.Reset(max(time.Until(next), 0))
}
