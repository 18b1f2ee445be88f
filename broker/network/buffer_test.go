package network

import (
	"bytes"
	"testing"

	"gregor/internal/invariants"
)

func TestBufferClasses(t *testing.T) {
	for size, want := range map[int]int{0: 4 << 10, 1: 4 << 10, 4096: 4 << 10, 4097: 8 << 10, 65536: 64 << 10, 65537: 128 << 10, 4 << 20: 4 << 20, 4<<20 + 1: 4<<20 + 1} {
		b := NewBuffer(size)
		if cap(b.B) != want || len(b.B) != 0 {
			t.Errorf("buffer for %d bytes has %d of %d", size, len(b.B), cap(b.B))
		}
		b.Release()
	}
}

func TestReleasedBufferIsUsedAgain(t *testing.T) {
	b := NewBuffer(3 << 20)
	b.B = append(b.B, "old"...)
	store := b.store
	b.Retain()
	b.Release()
	if !b.sole() || string(b.B) != "old" {
		t.Fatal("a retained buffer was given back")
	}
	b.Release()
	if invariants.Enabled && !bytes.Equal(store[:3], []byte{poison, poison, poison}) {
		t.Errorf("released memory still holds %q", store[:3])
	}
	again := NewBuffer(3 << 20)
	defer again.Release()
	if &again.store[0] != &store[0] || len(again.B) != 0 {
		t.Error("the buffer did not come from the pool")
	}
}

func TestOutgrownBufferReturnsItsPooledMemory(t *testing.T) {
	b := NewBuffer(4096)
	b.B = append(b.B, make([]byte, 100_000)...)
	b.Release()
	if b.B != nil || len(b.store) != 4096 {
		t.Errorf("%d bytes in the pool's smallest class", len(b.store))
	}
}

func TestThePoolKeepsABoundedAmount(t *testing.T) {
	var all []*Buffer
	for range 2*maxIdleClassBytes>>22 + 4 {
		all = append(all, NewBuffer(4<<20))
	}
	for _, b := range all {
		b.Release()
	}
	if idle := len(bufferPool[bufferClasses-1].idle); idle != maxIdleClassBytes>>22 {
		t.Errorf("%d buffers of 4 MiB are kept", idle)
	}
}

func TestReleasingTwiceIsFoundInInvariantsBuilds(t *testing.T) {
	if !invariants.Enabled {
		t.Skip("needs the tag invariants")
	}
	b := NewBuffer(8 << 20) // not pooled
	b.Release()
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	b.Release()
}
