package network

import "sync/atomic"

// Task goes on with a request when something that it waits for has happened, on
// the goroutines that serve the connections: a request that waits then costs no
// goroutine, and one that is served can finish another without waking anybody.
type Task struct {
	request *Request
	run     func()
	state   atomic.Int32
}

// States of a task.
const (
	taskIdle int32 = iota
	taskQueued
	taskRunning
	taskAgain // running, and woken since
	taskDone
)

// NewTask returns a task for the request, which is not answered yet. run must not
// wait; it runs once for each Wake, or once for several, and never twice at a
// time. Nothing runs before Start. Done ends it; the server's Stop waits for that.
// A panic in run is handled as one in Serve, and ends the task.
func (r *Request) NewTask(run func()) *Task {
	r.Conn.server.working.Add(1)
	t := &Task{request: r, run: run}
	t.state.Store(taskRunning)
	return t
}

// Start lets the task run.
func (t *Task) Start() {
	if !t.state.CompareAndSwap(taskRunning, taskIdle) && t.state.CompareAndSwap(taskAgain, taskQueued) {
		t.request.Conn.server.schedule(t)
	}
}

// Wake has the task run soon. It never waits and may be called from anywhere, also
// after Done.
func (t *Task) Wake() {
	for {
		switch t.state.Load() {
		case taskIdle:
			if t.state.CompareAndSwap(taskIdle, taskQueued) {
				t.request.Conn.server.schedule(t)
				return
			}
		case taskRunning:
			if t.state.CompareAndSwap(taskRunning, taskAgain) {
				return
			}
		default:
			return
		}
	}
}

// Done ends the task, also from within run.
func (t *Task) Done() {
	if t.state.Swap(taskDone) != taskDone {
		t.request.Conn.server.working.Done()
	}
}

// execute runs a queued task.
func (t *Task) execute() {
	for t.state.CompareAndSwap(taskQueued, taskRunning) {
		t.runGuarded()
		if t.state.CompareAndSwap(taskRunning, taskIdle) || !t.state.CompareAndSwap(taskAgain, taskQueued) {
			return
		}
	}
}

func (t *Task) runGuarded() {
	defer func() {
		if p := recover(); p != nil {
			_ = t.request.Conn.panicked(t.request, p) // it is the cause of the connection's end
			t.Done()
		}
	}()
	t.run()
}

// schedule has a task run soon.
func (s *Server) schedule(t *Task) {
	if p := s.pollerOrNil(); p == nil || !p.schedule(t) {
		go t.execute()
	}
}

// schedule gives a task to the worker that is free first; false when the poller
// has ended.
func (p *poller) schedule(t *Task) bool {
	p.tasks.Lock()
	defer p.tasks.Unlock() // with it held the descriptors are open
	if p.tasks.ended {
		return false
	}
	p.tasks.queue = append(p.tasks.queue, t)
	p.tasks.queued.Store(int32(len(p.tasks.queue)))
	// A worker looks for tasks after it has said that it is not serving, and we look
	// for one that is serving after the task is there: one of us sees the other.
	switch {
	case p.serving.Load() == 0:
		p.rouse()
	case p.alert.Load() == 0:
		p.watch() // those who serve may be stuck
	}
	return true
}

// nextTask takes the first task; nil if there is none.
func (p *poller) nextTask() *Task {
	if p.tasks.queued.Load() == 0 {
		return nil
	}
	p.tasks.Lock()
	defer p.tasks.Unlock()
	q := p.tasks.queue
	if len(q) == 0 {
		return nil
	}
	t := q[0]
	n := copy(q, q[1:])
	q[n] = nil
	p.tasks.queue = q[:n]
	p.tasks.queued.Store(int32(n))
	return t
}

// runTasks runs the tasks that are queued by now.
func (w *worker) runTasks() {
	for range w.poller.tasks.queued.Load() {
		t := w.poller.nextTask()
		if t == nil {
			return
		}
		w.serial.Add(1)
		t.execute()
		w.serial.Add(1)
	}
}

// endTasks runs what is left; later tasks run elsewhere.
func (p *poller) endTasks() {
	p.tasks.Lock()
	p.tasks.ended = true
	p.tasks.Unlock()
	for t := p.nextTask(); t != nil; t = p.nextTask() {
		t.execute()
	}
}
