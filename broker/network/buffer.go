package network

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"gregor/internal/invariants"
)

// Size classes of pooled memory: powers of two from 4 KiB to 4 MiB. Larger
// buffers are left to the garbage collector.
const (
	minClassShift = 12
	maxClassShift = 22
	bufferClasses = maxClassShift - minClassShift + 1
	// maxIdleClassBytes bounds what a class keeps for later. It is never given
	// back: fresh memory costs a page fault for each 4 KiB.
	maxIdleClassBytes = 32 << 20
)

// poison is what released memory is filled with in invariants builds, so that
// whoever still reads it is found out.
const poison = 0xdb

// Buffer is pooled memory with a count of its users. A new one has one user; the
// memory returns to the pool with the last Release.
type Buffer struct {
	// B is what the owner appends to. When it outgrows the pooled memory, append
	// moves it to the heap and the pooled memory still returns to the pool.
	B []byte

	store []byte // the whole of the pooled memory
	class int8   // -1: not pooled
	users atomic.Int32
}

type bufferClass struct {
	mu   sync.Mutex
	idle []*Buffer
}

var bufferPool [bufferClasses]bufferClass

// NewBuffer returns an empty buffer with room for at least that many bytes.
func NewBuffer(capacityBytes int) *Buffer {
	class := classOf(capacityBytes)
	if class >= bufferClasses {
		b := &Buffer{store: make([]byte, capacityBytes), class: -1}
		b.B = b.store[:0]
		b.users.Store(1)
		return b
	}
	pool := &bufferPool[class]
	pool.mu.Lock()
	var b *Buffer
	if last := len(pool.idle) - 1; last >= 0 {
		b, pool.idle[last] = pool.idle[last], nil
		pool.idle = pool.idle[:last]
	}
	pool.mu.Unlock()
	if b == nil {
		b = &Buffer{store: make([]byte, 1<<(class+minClassShift)), class: int8(class)}
	}
	b.B = b.store[:0]
	b.users.Store(1)
	return b
}

// classOf returns the class that holds so many bytes.
func classOf(sizeBytes int) int {
	return max(bits.Len(uint(max(sizeBytes, 1)-1)), minClassShift) - minClassShift
}

// Retain adds a user.
func (b *Buffer) Retain() {
	users := b.users.Add(1)
	invariants.Assert(users > 1, "buffer retained after its last release")
}

// Release ends one use. Nobody may touch the bytes after the last one.
func (b *Buffer) Release() {
	users := b.users.Add(-1)
	invariants.Assert(users >= 0, "buffer released once too often")
	if users != 0 {
		return
	}
	if invariants.Enabled {
		for i := range b.store {
			b.store[i] = poison
		}
	}
	b.B = nil
	if b.class < 0 {
		b.store = nil
		return
	}
	pool := &bufferPool[b.class]
	pool.mu.Lock()
	if (len(pool.idle)+1)<<(int(b.class)+minClassShift) <= maxIdleClassBytes {
		pool.idle = append(pool.idle, b)
	}
	pool.mu.Unlock()
}

// sole reports whether the caller is the only user.
func (b *Buffer) sole() bool { return b.users.Load() == 1 }
