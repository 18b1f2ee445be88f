package network

import (
	"context"
	"sync"
	"sync/atomic"
)

// byteBudget bounds the bytes of requests in memory, over all connections
// (queued.max.request.bytes). As in Kafka a request is let in as long as
// anything is left, so that one larger than the whole budget gets through.
type byteBudget struct {
	maxBytes int64 // 0 or less: no bound
	gauge    *atomic.Int64

	mu      sync.Mutex
	used    int64
	waiting []chan struct{} // first come, first served
}

// take waits until there is room, then takes n bytes.
func (b *byteBudget) take(ctx context.Context, n int) error {
	if b.maxBytes <= 0 {
		return nil
	}
	b.mu.Lock()
	if b.takeLocked(n) {
		b.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	b.waiting = append(b.waiting, turn)
	b.mu.Unlock()
	select {
	case <-turn: // give has removed us and left room
		b.mu.Lock()
		b.add(int64(n))
		b.wake()
		b.mu.Unlock()
		return nil
	case <-ctx.Done():
		b.mu.Lock()
		b.leave(turn)
		b.mu.Unlock()
		return ctx.Err()
	}
}

// tryTake takes n bytes if there is room and nobody waits for it.
func (b *byteBudget) tryTake(n int) bool {
	if b.maxBytes <= 0 {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.takeLocked(n)
}

func (b *byteBudget) takeLocked(n int) bool {
	if b.used >= b.maxBytes || len(b.waiting) > 0 {
		return false
	}
	b.add(int64(n))
	return true
}

// give returns n bytes.
func (b *byteBudget) give(n int) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	b.add(-int64(n))
	b.wake()
	b.mu.Unlock()
}

func (b *byteBudget) add(n int64) {
	b.used += n
	b.gauge.Store(b.used)
}

// wake lets the first in line go on when there is room. It takes its bytes
// itself and wakes the next.
func (b *byteBudget) wake() {
	if len(b.waiting) > 0 && b.used < b.maxBytes {
		close(b.waiting[0])
		b.waiting = b.waiting[1:]
	}
}

// leave takes a waiter that gave up out of the line; if its turn had come
// meanwhile, the next one has it.
func (b *byteBudget) leave(turn chan struct{}) {
	for i, w := range b.waiting {
		if w == turn {
			b.waiting = append(b.waiting[:i:i], b.waiting[i+1:]...)
			return
		}
	}
	b.wake()
}
