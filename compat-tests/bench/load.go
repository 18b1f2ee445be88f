package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// load is a closed loop: so many connections keep so many requests each in flight until the time or the bytes are over.
type load struct {
	addr        string
	connections int
	inFlight    int
	// frame makes the request of a connection; only its correlation id changes from one to the next.
	frame func(connection int) []byte
	// check looks at one answer, the correlation id included.
	check func(answer []byte) error
	// pace, if not 0, is the time between two requests of a connection: an open loop, in which latency counts from when
	// the request was due.
	pace time.Duration
	// maxBytes ends a run early, so that its data fits into memory.
	maxBytes int64
}

// result is what a load did.
type result struct {
	requests  int
	elapsed   time.Duration
	latencies []time.Duration // sorted
	broker    usage           // of the broker meanwhile
}

// perSecond is the rate of requests.
func (r *result) perSecond() float64 { return float64(r.requests) / r.elapsed.Seconds() }

// percentile of the latencies, p from 0 to 1.
func (r *result) percentile(p float64) time.Duration {
	if len(r.latencies) == 0 {
		return 0
	}
	return r.latencies[min(int(p*float64(len(r.latencies))), len(r.latencies)-1)]
}

// cpuPerRequest is the broker's processor time per request.
func (r *result) cpuPerRequest() time.Duration {
	return r.broker.cpu / time.Duration(max(r.requests, 1))
}

// closeConnections closes those of the workers that there are.
func closeConnections(workers []*worker) {
	for _, w := range workers {
		if w != nil {
			w.conn.close()
		}
	}
}

// run drives the broker with the process id for a time.
func (l *load) run(ctx context.Context, pid int, d time.Duration) (*result, error) {
	workers := make([]*worker, l.connections)
	defer closeConnections(workers)
	for i := range workers {
		c, err := dial(ctx, l.addr)
		if err != nil {
			return nil, err
		}
		if err := c.SetDeadline(time.Now().Add(d + ioTimeout)); err != nil {
			return nil, err
		}
		workers[i] = &worker{load: l, conn: c, frame: l.frame(i), sentAt: make([]time.Time, l.inFlight)}
	}
	before, err := usageOf(pid)
	if err != nil {
		return nil, err
	}
	var sentBytes atomic.Int64
	began := time.Now()
	var wg sync.WaitGroup
	errs := make([]error, len(workers))
	for i, w := range workers {
		wg.Go(func() { errs[i] = w.run(began.Add(d), &sentBytes) })
	}
	wg.Wait()
	r := &result{elapsed: time.Since(began)}
	after, err := usageOf(pid)
	if err := errors.Join(errors.Join(errs...), err); err != nil {
		return nil, err
	}
	r.broker = after.since(before)
	for _, w := range workers {
		r.requests += len(w.latencies)
		r.latencies = append(r.latencies, w.latencies...)
	}
	slices.Sort(r.latencies)
	return r, nil
}

// worker is one connection under load.
type worker struct {
	load      *load
	conn      *conn
	frame     []byte
	sent      int
	received  int
	sentAt    []time.Time // ring of those in flight
	latencies []time.Duration
	answer    []byte
}

func (w *worker) run(until time.Time, sentBytes *atomic.Int64) error {
	due := time.Now()
	for range w.load.inFlight {
		if err := w.send(due, sentBytes); err != nil {
			return err
		}
	}
	for w.received < w.sent {
		now, err := w.receive()
		if err != nil {
			return err
		}
		if !now.Before(until) || w.load.maxBytes > 0 && sentBytes.Load() >= w.load.maxBytes {
			continue // only what is in flight is still waited for
		}
		due = now
		if w.load.pace > 0 {
			due = w.pause()
		}
		if err := w.send(due, sentBytes); err != nil {
			return err
		}
	}
	return nil
}

// pause waits until the next request is due and returns when that was.
func (w *worker) pause() time.Time {
	due := w.sentAt[(w.sent-1)%w.load.inFlight].Add(w.load.pace)
	if wait := time.Until(due); wait > 0 {
		<-time.After(wait)
	}
	return due
}

func (w *worker) send(due time.Time, sentBytes *atomic.Int64) error {
	binary.BigEndian.PutUint32(w.frame[correlationAt:], uint32(w.sent))
	w.sentAt[w.sent%w.load.inFlight] = due
	w.sent++
	sentBytes.Add(int64(len(w.frame)))
	_, err := w.conn.Write(w.frame)
	return err
}

func (w *worker) receive() (time.Time, error) {
	var err error
	if w.answer, err = w.conn.receive(w.answer); err != nil {
		return time.Time{}, err
	}
	now := time.Now()
	if got := binary.BigEndian.Uint32(w.answer); got != uint32(w.received) {
		return now, fmt.Errorf("answer to request %d, want %d", got, w.received)
	}
	if err := w.load.check(w.answer); err != nil {
		return now, err
	}
	w.latencies = append(w.latencies, now.Sub(w.sentAt[w.received%w.load.inFlight]))
	w.received++
	return now, nil
}
