package network

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestATaskRunsOneAtATimeAndNoWakeIsLost(t *testing.T) {
	const wakers, wakes = 8, 500
	s := startServer(t, Options{Handler: HandlerFunc(func(_ context.Context, r *Request) {
		var mu sync.Mutex
		begun, seen, running := 0, 0, false // begun is guarded by mu; the others are the task's
		var task *Task
		task = r.NewTask(func() {
			if running {
				t.Error("a task runs twice at a time")
			}
			running = true
			mu.Lock()
			seen = begun
			mu.Unlock()
			runtime.Gosched()
			running = false
			if seen == wakers*wakes {
				r.Reply(BytesResponse(answer(r, r.Body)))
				task.Done()
			}
		})
		task.Wake() // not before Start
		for range wakers {
			go func() {
				for range wakes {
					mu.Lock()
					begun++
					mu.Unlock()
					task.Wake()
				}
			}()
		}
		task.Start()
	})}, ListenerOptions{})
	for range 4 {
		c := s.dial(t)
		c.send(request(1, []byte("x")))
		c.expect(1, []byte("x"))
	}
}

func TestATaskIsRunWhileOthersAreServedAndWhenNobodyIs(t *testing.T) {
	wake := make(chan *Task, 1)
	s := startServer(t, Options{Handler: HandlerFunc(func(_ context.Context, r *Request) {
		if string(r.Body) != "park" {
			r.Reply(BytesResponse(answer(r, r.Body)))
			return
		}
		var task *Task
		task = r.NewTask(func() {
			r.Reply(BytesResponse(answer(r, r.Body)))
			task.Done()
		})
		task.Start()
		wake <- task
	})}, ListenerOptions{})
	parked, other := s.dial(t), s.dial(t)
	for i := range int32(50) {
		parked.send(request(i, []byte("park")))
		task := <-wake
		if i%2 == 0 {
			other.send(request(i, []byte("other")))
		} else if i%10 == 1 {
			<-time.After(2 * alertTime) // until the workers rest
		}
		task.Wake()
		parked.expect(i, []byte("park"))
		task.Wake() // nothing any more
		if i%2 == 0 {
			other.expect(i, []byte("other"))
		}
	}
}

func TestWorkersRestWhenLittleHappensAndComeBackForMuch(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(5)) // four workers
	var gates atomic.Pointer[gate]
	gates.Store(newGate())
	s := startServerAs(t, Options{Handler: HandlerFunc(func(ctx context.Context, r *Request) { gates.Load().Serve(ctx, r) })}, ListenerOptions{}, true)
	clients := make([]*testClient, 8)
	for i := range clients {
		clients[i] = s.dial(t)
	}
	p := s.pollerOrNil()
	for round := range int32(3) {
		for deadline := time.Now().Add(testTimeout); int(p.rest.asleep.Load()) != p.workerCount()-1; {
			if time.Now().After(deadline) {
				t.Fatalf("%d of %d workers are asleep, want all but one", p.rest.asleep.Load(), p.workerCount())
			}
			<-time.After(time.Millisecond)
		}
		clients[0].send(request(2*round, []byte("go")))
		clients[0].expect(2*round, []byte("go"))
		// Each of these keeps a worker, and then there is none that waits.
		g := newGate()
		gates.Store(g)
		for _, c := range clients {
			c.send(request(2*round+1, []byte("stay")))
		}
		for range clients {
			<-g.entered
		}
		close(g.opened)
		for _, c := range clients {
			c.expect(2*round+1, []byte("stay"))
		}
	}
}
