package storage

import "sync"

// background runs the work of a log that must not hold up the writer, one piece after the other, on a goroutine
// that exists only while there is work: tens of thousands of idle logs cost nothing.
type background struct {
	workers *Workers // nil for no bound

	mu      sync.Mutex
	queue   []func()
	running bool
	idle    chan struct{} // closed when running ends; made by waiters
}

// run queues work. It may be called with the writer's lock held; the work runs without it.
func (b *background) run(work func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue = append(b.queue, work)
	if !b.running {
		b.running = true
		go b.loop()
	}
}

func (b *background) loop() {
	for {
		b.mu.Lock()
		if len(b.queue) == 0 {
			b.running = false
			if b.idle != nil {
				close(b.idle)
				b.idle = nil
			}
			b.mu.Unlock()
			return
		}
		work := b.queue[0]
		b.queue = b.queue[1:]
		b.mu.Unlock()
		b.workers.do(work)
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
func (b *background) wait() {
	for {
		b.mu.Lock()
		if !b.running {
			b.mu.Unlock()
			return
		}
		if b.idle == nil {
			b.idle = make(chan struct{})
		}
		idle := b.idle
		b.mu.Unlock()
		<-idle
	}
}

func (b *background) isIdle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.running
}

// lockIdle takes the writer's lock at a moment when no background work is queued or running, so that the files
// of sealed segments stand still.
func (l *Log) lockIdle() {
	for {
		l.bg.wait()
		l.mu.Lock()
		if l.bg.isIdle() {
			return
		}
		l.unlock()
	}
}
