package network

import (
	"sync/atomic"
	"time"
)

// guardInterval is how often the guard looks when no worker does.
const guardInterval = 2 * time.Millisecond

// guard sees to it that a handler that does not return soon holds up nobody but
// its own connection: what waits for a worker that has been at one request from
// one look to the next is given to another one. Those look that wait for events
// and have got none for a while; the timer only does when there are none.
type guard struct {
	set   atomic.Bool // the timer runs
	timer *time.Timer
}

// watch has the timer look soon.
func (p *poller) watch() {
	if !p.guard.set.Load() && p.guard.set.CompareAndSwap(false, true) {
		p.guard.timer.Reset(guardInterval)
	}
}

// look is the timer's.
func (p *poller) look() {
	again := p.rescue() && p.alert.Load() == 0
	if !again {
		p.guard.set.Store(false)
		// One may have begun just before, and saw that we were there.
		again = p.alert.Load() == 0 && p.anyBusy() && p.guard.set.CompareAndSwap(false, true)
	}
	if again && !p.ended.Load() {
		p.guard.timer.Reset(guardInterval)
	}
}

// sight is what somebody saw who looked at the workers.
type sight struct {
	// workers is how many there are, stuck how many are at the same request as the
	// last time; busy tells whether any is at work.
	workers, stuck int
	busy           bool
	// left and gathered are what waited for those that are stuck. Whoever looked has to
	// see to it.
	left     []*Conn
	gathered []gathered
	// served changes whenever a worker does something.
	served uint64
}

// waits tells whether something waited for a worker that is stuck.
func (s *sight) waits() bool { return len(s.left)+len(s.gathered) > 0 }

// inspect looks at all workers.
func (p *poller) inspect() (s sight) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.workers = len(p.workers)
	for w := range p.workers {
		serial := w.serial.Load()
		s.served += serial
		if !w.busy() {
			continue
		}
		s.busy = true
		stuck := serial == w.seen && serial%2 == 1
		w.seen = serial
		if !stuck {
			continue
		}
		s.stuck++
		w.mu.Lock()
		s.left, s.gathered = append(s.left, w.ready...), append(s.gathered, w.gathered...)
		w.ready, w.gathered = nil, nil
		w.mu.Unlock()
	}
	return s
}

func (w *worker) busy() bool { return w.serial.Load()%2 == 1 || w.queued() > 0 }

func (p *poller) anyBusy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.workers {
		if w.busy() {
			return true
		}
	}
	return false
}

// rescue sees to it that somebody serves what waits for workers that are stuck, and
// tells whether any worker is busy.
func (p *poller) rescue() (busy bool) {
	s := p.inspect()
	needed := s.stuck > 0 && (p.waiting.Load() == 0 || p.tasks.queued.Load() > 0)
	if s.waits() || needed && !p.rest.wake() {
		p.start(&worker{poller: p, rescuer: true, ready: s.left, gathered: s.gathered})
	}
	return s.busy
}

// lookAround is what a worker does for which nothing came for alertTime; true if it
// should wait on, or has got something to do.
func (w *worker) lookAround() bool {
	p := w.poller
	s := p.inspect()
	if s.waits() {
		w.mu.Lock()
		w.ready, w.gathered = append(w.ready, s.left...), append(w.gathered, s.gathered...)
		w.mu.Unlock()
		return true
	}
	happened := s.busy || s.served != w.served
	w.served = s.served
	w.spare = s.stuck+1 < s.workers
	return happened && p.waiting.Load() <= maxAlert
}

// mayLeave tells a rescuer whether others do without it.
func (w *worker) mayLeave() bool {
	p := w.poller
	if p.waiting.Load() == 0 && (!w.spare || p.rest.asleep.Load() > 0 && !p.rest.wake()) {
		return false
	}
	p.watch() // they may have relied on us to look
	return true
}
