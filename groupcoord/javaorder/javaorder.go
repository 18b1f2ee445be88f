// Package javaorder knows in which order Kafka's hash tables give out what is in
// them.
//
// Kafka promises no order for the groups of ListGroups and the members of
// DescribeGroups and ConsumerGroupDescribe, but gives them in that of its tables,
// and what prints or compares them without sorting shows it. The order follows
// from the hashes of the keys, from the largest number of keys that the table had
// to hold (none of them shrinks) and, within a slot, from the order in which the
// keys came. Nothing here costs anything before somebody asks for the order.
//
// Not modeled: a slot of java.util.HashMap with more than eight keys becomes a
// tree, or makes a table of less than 64 slots grow before it is full; and a
// TimelineHashMap that is changed while it is read gives what was changed first.
package javaorder

import (
	"cmp"
	"math/bits"
	"slices"
	"unicode/utf16"
	"unicode/utf8"
)

// String is the hash of a string: over its UTF-16 code units.
func String(s string) int32 {
	h := int32(0)
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return unicodeString(s)
		}
		h = 31*h + int32(s[i])
	}
	return h
}

func unicodeString(s string) int32 {
	h := int32(0)
	for _, unit := range utf16.Encode([]rune(s)) {
		h = 31*h + int32(unit)
	}
	return h
}

// TopicPartition is the hash of Kafka's class of that name.
func TopicPartition(topic string, partition int32) int32 {
	return 31*(31+partition) + String(topic)
}

// Entry is a key of a table.
type Entry[T any] struct {
	Hash int32
	// Arrival orders the keys by when they came into the table.
	Arrival uint64
	Value   T
}

// Timeline puts entries into the order of a TimelineHashMap, made without a size,
// that has had room for that many keys. A slot gives its last key first.
func Timeline[T any](entries []Entry[T], room int) {
	capacity := 2
	for 3*room > 4*capacity {
		capacity *= 2
	}
	shift := 64 - bits.TrailingZeros(uint(capacity))
	bySlot(entries, func(hash int32) uint32 {
		return uint32(uint64(hash) * 0x9E3779B97F4A7C15 >> shift)
	}, func(a, b uint64) int { return cmp.Compare(b, a) })
}

// HashMap puts entries into the order of a java.util.HashMap, made without a size,
// that has held that many keys.
func HashMap[T any](entries []Entry[T], peak int) {
	hashMap(entries, func(capacity int) bool { return 4*peak > 3*capacity })
}

// ConcurrentHashMap puts entries into the order of a
// java.util.concurrent.ConcurrentHashMap, made without a size, that has held that
// many keys.
func ConcurrentHashMap[T any](entries []Entry[T], peak int) {
	hashMap(entries, func(capacity int) bool { return 4*peak >= 3*capacity })
}

// minCapacity is that of both of Java's maps.
const minCapacity = 16

func hashMap[T any](entries []Entry[T], grows func(capacity int) bool) {
	capacity := minCapacity
	for grows(capacity) {
		capacity *= 2
	}
	Slots(entries, capacity)
}

func bySlot[T any](entries []Entry[T], slot func(hash int32) uint32, arrivals func(a, b uint64) int) {
	slices.SortFunc(entries, func(a, b Entry[T]) int {
		return cmp.Or(cmp.Compare(slot(a.Hash), slot(b.Hash)), arrivals(a.Arrival, b.Arrival))
	})
}
