package replica

import (
	"slices"
	"sync"
	"sync/atomic"

	"gregor/internal/invariants"
	"gregor/storage"
)

// Waiter is what a request waits on, or what collects for it what happens meanwhile: it is told of each of its
// subscriptions that fires.
type Waiter struct {
	// C receives a value when a subscription has fired; one value may stand for several. A value may also be late:
	// whoever receives it takes the fired ones and finds none.
	C chan struct{}

	mu     sync.Mutex
	fired  *Subscription // guarded by mu; linked by next
	notify func()        // guarded by mu
}

// NewWaiter returns a waiter without subscriptions.
func NewWaiter() *Waiter { return &Waiter{C: make(chan struct{}, 1)} }

// TakeFired appends the subscriptions that have fired since the last call, in no order. They are free to be used
// again.
func (w *Waiter) TakeFired(out []*Subscription) []*Subscription {
	w.mu.Lock()
	defer w.mu.Unlock()
	for s := w.fired; s != nil; {
		next := s.next
		s.next, s.fired = nil, false
		out = append(out, s)
		s = next
	}
	w.fired = nil
	return out
}

// Notify has f called, instead of a value sent, when a subscription fires; nil ends that. f must not wait and not call
// the partition: it may run within an append. Notify returns whether one has fired before.
func (w *Waiter) Notify(f func()) (fired bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notify = f
	return w.fired != nil
}

// fire never blocks: a waiter that was already told needs no second wake-up.
func (w *Waiter) fire(s *Subscription) {
	w.mu.Lock()
	s.next, s.fired, w.fired = w.fired, true, s
	notify := w.notify
	w.mu.Unlock()
	if notify != nil {
		notify()
		return
	}
	select {
	case w.C <- struct{}{}:
	default:
	}
}

// forget takes a fired subscription out of the list.
func (w *Waiter) forget(s *Subscription) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !s.fired {
		return
	}
	at := &w.fired
	for *at != s {
		at = &(*at).next
	}
	*at, s.next, s.fired = s.next, nil, false
}

// Subscription asks to be told, once, of what a partition comes to. It fires when the bound is above Offset, when the
// role of the replica changes and, with Moves, when the high watermark or the log start offset is not the one named.
// The fields must not be changed between Subscribe and the firing or Unsubscribe; then it can be used again.
type Subscription struct {
	// Owner is the subscriber's own, to know the subscription by.
	Owner any

	Bound  storage.Bound
	Offset int64

	Moves                         bool
	HighWatermark, LogStartOffset int64

	waiter *Waiter
	place  int           // in watch.entries, counted from 1; 0: not there. Guarded by watch.mu.
	next   *Subscription // in Waiter.fired; guarded by Waiter.mu
	fired  bool          // guarded by Waiter.mu
}

// due tells whether there is something to be told.
func (s *Subscription) due(state *storage.State) bool {
	return state.End(s.Bound) > s.Offset ||
		s.Moves && (state.HighWatermark != s.HighWatermark || state.LogStartOffset != s.LogStartOffset)
}

// watch knows who waits for a partition.
type watch struct {
	// count mirrors len(entries), so that an append without waiters costs one atomic load.
	count   atomic.Int32
	mu      sync.Mutex
	entries []*Subscription // guarded by mu; in no order
	// turns counts the changes of the role; changed under mu.
	turns atomic.Uint64

	// listeners are told of every high watermark; the slice is replaced, never changed.
	listeners     atomic.Pointer[[]*hwListener]
	lastTold      int64 // of listeners; guarded by the log's writer lock
	listenersLock sync.Mutex
}

// hwListener is somebody who follows a high watermark for long: a coordinator.
type hwListener struct{ moved func(highWatermark int64) }

// subscribe registers s, or fires it at once when the role is not the one of that turn any more or when the newest
// state already is what it waits for: nothing that happens meanwhile is missed.
func (x *watch) subscribe(w *Waiter, s *Subscription, turn uint64, newest func() *storage.State) {
	x.mu.Lock()
	defer x.mu.Unlock()
	invariants.Assert(s.place == 0, "subscription is registered already")
	s.waiter = w
	if x.turns.Load() != turn {
		w.fire(s)
		return
	}
	x.entries = append(x.entries, s)
	s.place = len(x.entries)
	// The count is stored before the state is looked at, and a writer publishes the state before it looks at the
	// count: one of them sees the other.
	x.count.Store(int32(len(x.entries)))
	if s.due(newest()) {
		x.drop(s)
		w.fire(s)
	}
}

// unsubscribe takes s back, whether it has fired or not.
func (x *watch) unsubscribe(s *Subscription) {
	x.mu.Lock()
	registered := s.place != 0
	if registered {
		x.drop(s)
	}
	x.mu.Unlock()
	if !registered && s.waiter != nil {
		s.waiter.forget(s)
	}
}

// drop removes an entry. The caller holds mu.
func (x *watch) drop(s *Subscription) {
	last := len(x.entries) - 1
	moved := x.entries[last]
	x.entries[s.place-1], moved.place = moved, s.place
	x.entries[last] = nil
	x.entries = x.entries[:last]
	s.place = 0
	x.count.Store(int32(last))
}

// moved fires what is due. It runs under the log's writer lock.
func (x *watch) moved(s *storage.State) {
	if all := x.listeners.Load(); all != nil && s.HighWatermark != x.lastTold {
		x.lastTold = s.HighWatermark
		for _, l := range *all {
			l.moved(s.HighWatermark)
		}
	}
	if x.count.Load() == 0 {
		return
	}
	x.mu.Lock()
	for i := 0; i < len(x.entries); {
		if e := x.entries[i]; e.due(s) {
			x.drop(e) // puts another one in its place
			e.waiter.fire(e)
		} else {
			i++
		}
	}
	x.mu.Unlock()
}

// turned fires everything: the role changed, so that each must look again and get an error or another log.
func (x *watch) turned() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.turns.Add(1)
	for _, e := range x.entries {
		e.place = 0
		e.waiter.fire(e)
	}
	clear(x.entries)
	x.entries = x.entries[:0]
	x.count.Store(0)
}

// listen has moved called with every new high watermark until cancel is called.
func (x *watch) listen(moved func(int64)) (cancel func()) {
	l := &hwListener{moved: moved}
	x.change(func(all []*hwListener) []*hwListener { return append(slices.Clone(all), l) })
	return func() {
		x.change(func(all []*hwListener) []*hwListener {
			return slices.DeleteFunc(slices.Clone(all), func(o *hwListener) bool { return o == l })
		})
	}
}

func (x *watch) change(f func([]*hwListener) []*hwListener) {
	x.listenersLock.Lock()
	defer x.listenersLock.Unlock()
	var all []*hwListener
	if p := x.listeners.Load(); p != nil {
		all = *p
	}
	all = f(all)
	x.listeners.Store(&all)
}
