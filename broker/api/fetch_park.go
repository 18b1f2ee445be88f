package api

import (
	"context"
	"sync/atomic"
	"time"

	"gregor/broker/network"
	"gregor/broker/replica"
)

// parkedFetch is a fetch that waits until the answer is due, the time is over, or the client comes with the session's
// next fetch on another connection. It holds no goroutine: the append that it waits for, or the timer, has it go on.
type parkedFetch struct {
	h       *fetch
	w       *fetchWork
	session *fetchSession // locked; nil without one
	waiter  *replica.Waiter
	task    *network.Task
	timer   *time.Timer
	forget  func() bool // takes back what the connection's end would do
	over    atomic.Bool // answer with what there is
}

// park has the fetch wait.
func (h *fetch) park(w *fetchWork, wait time.Duration) {
	p := &parkedFetch{h: h, w: w, session: w.session, waiter: w.waiter}
	if p.session != nil {
		p.waiter = p.session.waiter
	}
	p.task = w.r.NewTask(p.run)
	w.holdNames()
	w.r.Release()
	if p.waiter.Notify(p.task.Wake) {
		p.task.Wake()
	}
	for i := range w.reads {
		w.subscribe(p.waiter, i)
	}
	p.timer = time.AfterFunc(wait, p.end)
	p.forget = context.AfterFunc(w.r.Conn.Context(), p.end)
	if p.session != nil {
		p.session.parked.Store(p)
		if p.session.arriving.Load() > 0 { // it may not have seen us
			p.end()
		}
	}
	p.task.Start()
}

// end has the fetch answer with what there is.
func (p *parkedFetch) end() {
	p.over.Store(true)
	p.task.Wake()
}

// run reads what has changed meanwhile, and answers if it is time to.
func (p *parkedFetch) run() {
	due := true // also if reading panics
	defer func() {
		if due {
			p.leave()
		}
	}()
	if due = p.over.Load() || p.h.readFired(p.w, p.waiter); due {
		// The memory of the fetch is another's afterwards.
		p.waiter.Notify(nil)
		p.timer.Stop()
		p.forget()
		p.h.finish(p.w)
	}
}

// leave ends the fetch.
func (p *parkedFetch) leave() {
	p.task.Done()
	if p.session != nil {
		p.session.parked.Store(nil)
		p.session.mu.Unlock()
	}
}
