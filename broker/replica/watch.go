package replica

import (
	"slices"
	"sync"
	"sync/atomic"

	"gregor/storage"
)

// Waiter is what a parked request waits on: it is registered with the watch of one or several partitions and is
// told once when any of them reaches its offset. It may be registered again after it was woken.
type Waiter struct {
	// C receives one value when a watch wakes the waiter. A wake-up may be early: the waiter looks again.
	C chan struct{}
}

// NewWaiter returns a waiter that is registered nowhere.
func NewWaiter() *Waiter { return &Waiter{C: make(chan struct{}, 1)} }

// wake never blocks: a waiter that was already told needs no second wake-up.
func (w *Waiter) wake() {
	select {
	case w.C <- struct{}{}:
	default:
	}
}

// watch knows who waits for a partition's offsets.
type watch struct {
	// count mirrors len(entries), so that an append without waiters costs one atomic load.
	count   atomic.Int32
	mu      sync.Mutex
	entries []watchEntry

	// listeners are told of every high watermark; the slice is replaced, never changed.
	listeners     atomic.Pointer[[]*hwListener]
	lastTold      int64 // of listeners; guarded by the log's writer lock
	listenersLock sync.Mutex
}

// hwListener is somebody who follows a high watermark for long: a coordinator.
type hwListener struct{ moved func(highWatermark int64) }

type watchEntry struct {
	waiter *Waiter
	bound  storage.Bound
	// offset is reached when the bound is above it.
	offset int64
}

// add registers w to be woken when the bound of the partition is above offset. The caller must look at the
// partition once more after adding: the offset may have been reached just before.
func (x *watch) add(w *Waiter, bound storage.Bound, offset int64) {
	x.mu.Lock()
	x.entries = append(x.entries, watchEntry{waiter: w, bound: bound, offset: offset})
	x.count.Store(int32(len(x.entries)))
	x.mu.Unlock()
}

// remove forgets every registration of w.
func (x *watch) remove(w *Waiter) {
	if x.count.Load() == 0 {
		return
	}
	x.mu.Lock()
	x.filter(func(e watchEntry) bool { return e.waiter != w })
	x.mu.Unlock()
}

// moved wakes and forgets those whose offset is reached. It runs under the log's writer lock.
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
	x.filter(func(e watchEntry) bool {
		if s.End(e.bound) <= e.offset {
			return true
		}
		e.waiter.wake()
		return false
	})
	x.mu.Unlock()
}

// wakeAll wakes and forgets everybody: the role changed, so that each must look again and get an error.
func (x *watch) wakeAll() {
	x.mu.Lock()
	for _, e := range x.entries {
		e.waiter.wake()
	}
	clear(x.entries)
	x.entries = x.entries[:0]
	x.count.Store(0)
	x.mu.Unlock()
}

// filter keeps the entries for which keep is true. The caller holds mu.
func (x *watch) filter(keep func(watchEntry) bool) {
	kept := x.entries[:0]
	for _, e := range x.entries {
		if keep(e) {
			kept = append(kept, e)
		}
	}
	clear(x.entries[len(kept):])
	x.entries = kept
	x.count.Store(int32(len(kept)))
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
