package coordinator

import (
	"container/heap"
	"time"
)

// retryBackoff is how long a failed timer operation waits before it runs again.
const retryBackoff = 500 * time.Millisecond

// timers holds the waiting operations of one machine. Whoever has the turn of
// the partition is its only user.
type timers[R any] struct {
	byKey map[string]*timer[R]
	queue timerHeap[R]
	seq   uint64
}

type timer[R any] struct {
	key      string
	deadline time.Time
	// seq orders timers of one deadline by when they were set.
	seq   uint64
	retry bool
	op    func() (Effect[R], error)
	index int
}

func newTimers[R any]() *timers[R] {
	return &timers[R]{byKey: make(map[string]*timer[R])}
}

// Schedule implements [Timers].
func (t *timers[R]) Schedule(key string, after time.Duration, retry bool, op func() (Effect[R], error)) {
	t.seq++
	deadline := time.Now().Add(after)
	if old := t.byKey[key]; old != nil {
		old.deadline, old.seq, old.retry, old.op = deadline, t.seq, retry, op
		heap.Fix(&t.queue, old.index)
		return
	}
	n := &timer[R]{key: key, deadline: deadline, seq: t.seq, retry: retry, op: op}
	t.byKey[key] = n
	heap.Push(&t.queue, n)
}

// Cancel implements [Timers].
func (t *timers[R]) Cancel(key string) {
	if old := t.byKey[key]; old != nil {
		delete(t.byKey, key)
		heap.Remove(&t.queue, old.index)
	}
}

// Scheduled implements [Timers].
func (t *timers[R]) Scheduled(key string) bool { return t.byKey[key] != nil }

// next returns when the earliest timer is due.
func (t *timers[R]) next() (time.Time, bool) {
	if len(t.queue) == 0 {
		return time.Time{}, false
	}
	return t.queue[0].deadline, true
}

// due takes out the earliest timer if it is due at now.
func (t *timers[R]) due(now time.Time) *timer[R] {
	if len(t.queue) == 0 || t.queue[0].deadline.After(now) {
		return nil
	}
	n := heap.Pop(&t.queue).(*timer[R])
	delete(t.byKey, n.key)
	return n
}

// timerHeap orders timers by deadline.
type timerHeap[R any] []*timer[R]

func (h timerHeap[R]) Len() int { return len(h) }

func (h timerHeap[R]) Less(i, j int) bool {
	if h[i].deadline.Equal(h[j].deadline) {
		return h[i].seq < h[j].seq
	}
	return h[i].deadline.Before(h[j].deadline)
}

func (h timerHeap[R]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *timerHeap[R]) Push(x any) {
	n := x.(*timer[R])
	n.index = len(*h)
	*h = append(*h, n)
}

func (h *timerHeap[R]) Pop() any {
	old := *h
	n := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return n
}
