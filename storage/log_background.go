package storage

import "sync"

// background runs the work of a log that must not hold up the writer, one piece after the other, on a goroutine
// that exists only while there is work: tens of thousands of idle logs cost nothing.
type background struct {
	workers *Workers // nil for no bound

	mu      sync.Mutex
	queue   []func()
	aside   []func() // done when queue is empty
	pending int      // pieces of queue, with the one that runs
	running bool
	// Closed when running ends, and when nothing is pending; made by waiters.
	idle, settled chan struct{}
}

// run queues work. It may be called with the writer's lock held; the work runs without it.
func (b *background) run(work func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue = append(b.queue, work)
	b.pending++
	b.startLocked()
}

// runAside queues work that has no part in the segments of the log, and for which nobody waits but who stops the log or
// moves its files.
func (b *background) runAside(work func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.aside = append(b.aside, work)
	b.startLocked()
}

func (b *background) startLocked() {
	if !b.running {
		b.running = true
		go b.loop()
	}
}

func (b *background) loop() {
	for {
		work, pending := b.next()
		if work == nil {
			return
		}
		b.workers.do(work)
		if pending {
			b.mu.Lock()
			if b.pending--; b.pending == 0 {
				wake(&b.settled)
			}
			b.mu.Unlock()
		}
	}
}

// next takes the next piece of work, nil to end; pending tells that it is one of queue.
func (b *background) next() (work func(), pending bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	from := &b.queue
	if len(b.queue) == 0 {
		from = &b.aside
	}
	if len(*from) == 0 {
		b.running = false
		wake(&b.idle)
		return nil, false
	}
	work = (*from)[0]
	*from = (*from)[1:]
	return work, from == &b.queue
}

// wake ends the waiting on a channel.
func wake(c *chan struct{}) {
	if *c != nil {
		close(*c)
		*c = nil
	}
}

// Workers bounds how much background work of many logs runs at the same time: each piece sits in system calls, with a
// thread of its own, and ten thousand threads end a Go process.
type Workers struct{ slots chan struct{} }

// NewWorkers makes a bound of n pieces of work.
func NewWorkers(n int) *Workers { return &Workers{slots: make(chan struct{}, n)} }

// do runs work when there is room for it. Work must not wait for that of other logs.
func (w *Workers) do(work func()) {
	if w == nil {
		work()
		return
	}
	w.slots <- struct{}{}
	defer func() { <-w.slots }()
	work()
}

// wait returns when nothing is queued or running.
func (b *background) wait() { b.await(&b.idle, func() bool { return !b.running }) }

// waitSettled returns when nothing is queued or running but what runs aside.
func (b *background) waitSettled() { b.await(&b.settled, func() bool { return b.pending == 0 }) }

func (b *background) await(c *chan struct{}, done func() bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for !done() {
		if *c == nil {
			*c = make(chan struct{})
		}
		over := *c
		b.mu.Unlock()
		<-over
		b.mu.Lock()
	}
}

func (b *background) isIdle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.running
}

func (b *background) isSettled() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pending == 0
}

// lockIdle takes the writer's lock at a moment when no background work is queued or running, so that all files stand still.
func (l *Log) lockIdle() { l.lockWhen(l.bg.wait, l.bg.isIdle) }

// lockSettled is lockIdle but for work that runs aside: the files of the log's segments stand still.
func (l *Log) lockSettled() { l.lockWhen(l.bg.waitSettled, l.bg.isSettled) }

func (l *Log) lockWhen(wait func(), done func() bool) {
	for {
		wait()
		l.mu.Lock()
		if done() {
			return
		}
		l.unlock()
	}
}
