package javaorder

import (
	"cmp"
	"encoding/binary"
	"math/bits"
)

// UUID is the hash of Kafka's class Uuid.
func UUID(id [16]byte) int32 {
	mixed := binary.BigEndian.Uint64(id[:8]) ^ binary.BigEndian.Uint64(id[8:])
	return int32(mixed>>32) ^ int32(mixed)
}

// Capacity is the number of slots of a java.util.HashMap that is made with that
// size as its argument.
func Capacity(argument int) int {
	if argument <= 1 {
		return 1
	}
	return 1 << bits.Len(uint(argument-1))
}

// CopyCapacity is the number of slots of a java.util.HashSet that is made of a
// collection of that size. Java 17 counts so; since Java 19 a set of 12, 24, 48
// and so on, which just fits, has half of that.
func CopyCapacity(size int) int { return Capacity(max(FitArgument(size), minCapacity)) }

// FitArgument is what programs pass to a java.util.HashMap for that many keys.
func FitArgument(size int) int { return int(float32(size)/0.75) + 1 }

// Grown is the number of slots of a java.util.HashMap that had capacity slots and
// then held size keys.
func Grown(capacity, size int) int {
	for 4*size > 3*capacity {
		capacity *= 2
	}
	return capacity
}

// Java makes a slot of more than eight keys a tree, but only in a table of 64
// slots or more: a smaller one grows instead.
const (
	fullSlot  = 8
	treeSlots = 64
)

// Put is the number of slots of a java.util.HashMap after a key was put into it,
// the last of hashes.
func Put(capacity int, hashes []int32) int {
	if len(hashes) > fullSlot && capacity < treeSlots && inSlotOfLast(capacity, hashes) > fullSlot {
		capacity *= 2
	}
	return Grown(capacity, len(hashes))
}

func inSlotOfLast(capacity int, hashes []int32) int {
	slot, n := Slot(hashes[len(hashes)-1], capacity), 0
	for _, hash := range hashes {
		if Slot(hash, capacity) == slot {
			n++
		}
	}
	return n
}

// PutAll is the number of slots of a java.util.HashMap after all keys were put
// into it one by one.
func PutAll(capacity int, hashes []int32) int {
	for n := fullSlot + 1; n <= len(hashes) && capacity < treeSlots; n++ {
		capacity = Put(Grown(capacity, n-1), hashes[:n])
	}
	return Grown(capacity, len(hashes))
}

// Slots puts entries into the order of a java.util.HashMap with that many slots.
func Slots[T any](entries []Entry[T], capacity int) {
	bySlot(entries, func(hash int32) uint32 { return Slot(hash, capacity) }, cmp.Compare[uint64])
}

// Slot is where a java.util.HashMap with that many slots has a hash.
func Slot(hash int32, capacity int) uint32 {
	return (uint32(hash) ^ uint32(hash)>>16) & uint32(capacity-1)
}

// Table is a java.util.HashMap as far as its order goes. Its capacity is the
// number of slots it has or will have with the first key.
type Table[T any] struct {
	capacity int
	entries  []Entry[T]
	hashes   []int32
	// The arrivals of the first and the last key.
	first, last uint64
}

// NewTable returns an empty table with that many slots, a power of two.
func NewTable[T any](capacity int) *Table[T] {
	return &Table[T]{capacity: capacity, first: 1 << 63, last: 1 << 63}
}

// Put adds a key that is not there, as HashMap.put does: as the last of its slot.
func (t *Table[T]) Put(hash int32, value T) {
	t.last++
	t.entries = append(t.entries, Entry[T]{Hash: hash, Arrival: t.last, Value: value})
	t.hashes = append(t.hashes, hash)
	t.capacity = Put(t.capacity, t.hashes)
}

// Compute adds a key that is not there, as HashMap.computeIfAbsent does: as the
// first of its slot, after a Touch. A full slot makes the table grow, a full table
// does not before the next Touch.
func (t *Table[T]) Compute(hash int32, value T) {
	t.first--
	t.entries = append(t.entries, Entry[T]{Hash: hash, Arrival: t.first, Value: value})
	t.hashes = append(t.hashes, hash)
	if len(t.hashes) >= fullSlot && t.capacity < treeSlots && inSlotOfLast(t.capacity, t.hashes) >= fullSlot {
		t.capacity *= 2
	}
}

// Touch is what HashMap.computeIfAbsent begins with, whether it finds its key or
// not: the table grows when that is due.
func (t *Table[T]) Touch() {
	if 4*len(t.entries) > 3*t.capacity {
		t.capacity *= 2
	}
}

// Delete removes the keys whose values it is told to.
func (t *Table[T]) Delete(gone func(T) bool) {
	kept := t.entries[:0]
	for _, e := range t.entries {
		if !gone(e.Value) {
			kept = append(kept, e)
		}
	}
	clear(t.entries[len(kept):])
	t.entries, t.hashes = kept, t.hashes[:0]
	for _, e := range kept {
		t.hashes = append(t.hashes, e.Hash)
	}
}

// Entries returns the keys in order. The table is not changed any more.
func (t *Table[T]) Entries() []Entry[T] {
	Slots(t.entries, t.capacity)
	return t.entries
}

// Copied puts entries into the order of a java.util.HashMap with that many slots,
// to which they were added in the order in which they are.
func Copied[T any](entries []Entry[T], capacity int) {
	hashes := make([]int32, len(entries))
	for i := range entries {
		entries[i].Arrival = uint64(i)
		hashes[i] = entries[i].Hash
	}
	Slots(entries, PutAll(capacity, hashes))
}
