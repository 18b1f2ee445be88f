package api

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/broker/network"
)

// queues run the waiting requests of a connection one after the other, so that two commits sent back to back are
// applied in that order, while whoever reads from the connection goes on reading and notices when the client leaves.
// Requests that are answered before Serve returns never come here.
type queues struct {
	conns sync.Map // *network.Conn to *queue
}

// queue is what one connection has under way: a flight that was entered, or a goroutine that runs tasks. It is in
// queues.conns while there is something.
type queue struct {
	mu sync.Mutex
	// flying is set while the flight has not landed, ended is closed then if somebody waits for that.
	flying bool
	ended  chan struct{}
	tasks  []task
	// draining is set while a goroutine runs the tasks.
	draining bool
	// left is set when the queue is out of queues.conns.
	left bool
}

type task struct {
	run  func()
	fail func(error)
}

// idle tells whether nothing of the connection is under way: a request that does not wait can then be answered
// at once without overtaking another.
func (q *queues) idle(c *network.Conn) bool {
	_, busy := q.conns.Load(c)
	return !busy
}

// enter makes later requests of an idle connection wait for the flight, unless that was answered already. Like push it
// is called by Serve, for one request of a connection at a time.
func (q *queues) enter(ctx context.Context, f *flight) {
	if f.state.Load() == landed {
		return
	}
	r := f.call.Inbound
	x := &queue{flying: true}
	q.conns.Store(r.Conn, x)
	f.left = func() { q.leave(r.Conn, x) }
	if f.long {
		r.Release() // the decoded request does not alias the frame
		f.stop = context.AfterFunc(ctx, f.abandon)
	}
	if !f.state.CompareAndSwap(flying, awaited) {
		f.leave()
	}
}

// leave takes out the queue of a flight that has landed, unless tasks were waiting for that.
func (q *queues) leave(c *network.Conn, x *queue) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.flying = false
	if x.ended != nil {
		close(x.ended)
	}
	if !x.draining {
		x.left = true
		q.conns.CompareAndDelete(c, x)
	}
}

// push runs the request's task when those before it are done. The goroutine that does is one of the connection's, so
// that a stopping server waits for it.
func (q *queues) push(r *network.Request, run func()) {
	t := task{run: run, fail: r.Fail}
	if x, ok := q.conns.Load(r.Conn); ok && q.add(x.(*queue), t, r) {
		return
	}
	x := &queue{}
	q.conns.Store(r.Conn, x)
	q.add(x, t, r)
}

// add appends the task of r to a queue, and sees to it that somebody runs it. It fails when the queue has just left.
func (q *queues) add(x *queue, t task, r *network.Request) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.left {
		return false
	}
	x.tasks = append(x.tasks, t)
	if !x.draining {
		x.draining = true
		if x.flying {
			x.ended = make(chan struct{})
		}
		r.Go(func(context.Context) { q.drain(r.Conn, x) })
	}
	return true
}

// drain runs the tasks of a queue until there are none.
func (q *queues) drain(c *network.Conn, x *queue) {
	if x.ended != nil {
		<-x.ended
	}
	for {
		x.mu.Lock()
		if len(x.tasks) == 0 {
			x.left = true
			q.conns.CompareAndDelete(c, x)
			x.mu.Unlock()
			return
		}
		t := x.tasks[0]
		x.tasks = x.tasks[1:]
		x.mu.Unlock()
		runTask(t)
	}
}

// runTask keeps a panic of one request from ending the process: a peer's bytes must never do that.
func runTask(t task) {
	defer func() {
		if p := recover(); p != nil {
			t.fail(panicError{p})
		}
	}()
	t.run()
}

// States of a flight.
const (
	flying  int32 = iota
	awaited       // left is set
	landed
)

// flight is a request that a Starter has begun to answer.
type flight struct {
	call Call
	// long says that the answer may be long in coming: the request is given up with its connection.
	long bool
	// given is set by who gives the answer: the Starter, or the end of the connection.
	given atomic.Bool
	state atomic.Int32

	// left is called when the flight has landed; stop, if set, ends the watch of the connection.
	left func()
	stop func() bool
}

// reply is the flight's Reply.
func (f *flight) reply(resp kmsg.Response) {
	if f.given.Swap(true) {
		return
	}
	f.answer(resp)
	f.land()
}

// answer is called by somebody who must not die of an answer that cannot be encoded.
func (f *flight) answer(resp kmsg.Response) {
	defer func() {
		if p := recover(); p != nil {
			f.call.Inbound.Fail(panicError{p})
		}
	}()
	f.call.answer(resp)
}

// abandon ends a flight whose connection is gone.
func (f *flight) abandon() {
	if f.given.Swap(true) {
		return
	}
	f.call.Inbound.Reply(network.Response{None: true})
	f.land()
}

func (f *flight) land() {
	if f.state.Swap(landed) == awaited {
		f.leave()
	}
}

func (f *flight) leave() {
	if f.stop != nil {
		f.stop()
	}
	f.left()
}

// await waits until the flight has landed, at the latest with its connection.
func (f *flight) await(ctx context.Context) {
	ended := make(chan struct{})
	f.left = func() { close(ended) }
	if !f.state.CompareAndSwap(flying, awaited) {
		return
	}
	select {
	case <-ended:
	case <-ctx.Done():
		f.abandon()
	}
}
