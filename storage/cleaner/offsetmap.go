package cleaner

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
)

// entryBytes is what a key costs: a hash of 16 bytes and an offset, as in Kafka's SkimpyOffsetMap.
const entryBytes = 24

const (
	// manyShards is how many parts a large map grows in.
	manyShards = 64
	// manyShardsFrom is how many slots make a map large.
	manyShardsFrom = 64 * manyShards
	firstSlots     = 64
)

// offsetMap maps keys to their newest offset in a fixed number of bytes. Of a key it knows only a hash of 128 bits; a
// cryptographic one, because two keys with the same hash would cost a record.
//
// The memory is one array, divided into shards by hash. Of each shard only the first part is used, which grows in
// place: pages of the array that no growth has reached cost no memory, so that a small log costs little.
type offsetMap struct {
	slots      []mapEntry // nil until used
	shards     []shard
	shardSlots int // most slots of a shard
	entries    int
	limit      int   // entries that put accepts
	latest     int64 // offset up to which the map is complete, -1 for none
	spare      []mapEntry
}

type mapEntry struct {
	hash keyHash
	next int64 // offset + 1; 0 marks a free slot
}

type keyHash [2]uint64

type shard struct{ slots, entries int }

// newOffsetMap makes a map of so many bytes, at least a slot, which takes entries up to the load factor.
func newOffsetMap(maxBytes int64, loadFactor float64) *offsetMap {
	slots := max(int(maxBytes/entryBytes), 1)
	n := 1
	if slots >= manyShardsFrom {
		n = manyShards
	}
	m := &offsetMap{shards: make([]shard, n), shardSlots: slots / n}
	m.limit = max(int(float64(n*m.shardSlots)*min(loadFactor, 1)), 1)
	m.reset()
	return m
}

// reset forgets everything but keeps the memory.
func (m *offsetMap) reset() {
	for i := range m.shards {
		if m.slots != nil {
			clear(m.slots[i*m.shardSlots:][:m.shards[i].slots])
		}
		m.shards[i] = shard{slots: min(firstSlots, m.shardSlots)}
	}
	m.entries, m.latest = 0, -1
}

// release forgets everything and gives the memory back.
func (m *offsetMap) release() {
	m.slots, m.spare = nil, nil
	m.reset()
}

// utilization is the used part of what put accepts, 0 to 1.
func (m *offsetMap) utilization() float64 {
	return float64(m.entries) / float64(len(m.shards)*m.shardSlots)
}

// usedBytes is the memory that has been used since it was set aside.
func (m *offsetMap) usedBytes() int64 {
	if m.slots == nil {
		return 0
	}
	used := 0
	for _, s := range m.shards {
		used += s.slots
	}
	return int64(used) * entryBytes
}

func hashOf(key []byte) keyHash {
	sum := sha256.Sum256(key)
	return keyHash{binary.LittleEndian.Uint64(sum[:]), binary.LittleEndian.Uint64(sum[8:])}
}

// put notes the newest offset of a key; false says that the map is full.
func (m *offsetMap) put(key []byte, offset int64) bool {
	if m.entries >= m.limit {
		return false
	}
	if m.slots == nil {
		m.slots = make([]mapEntry, len(m.shards)*m.shardSlots)
	}
	h := hashOf(key)
	i := m.shardOf(h)
	s := &m.shards[i]
	if s.entries*4 >= s.slots*3 && s.slots < m.shardSlots {
		m.grow(i)
	}
	e := find(m.table(i), h)
	if e == nil {
		return false // only this shard is full, which hashes make unlikely before the limit is reached
	}
	if e.next == 0 {
		e.hash = h
		s.entries++
		m.entries++
	}
	e.next = offset + 1
	m.latest = offset
	return true
}

// get returns the newest offset of a key, -1 when there is none.
func (m *offsetMap) get(key []byte) int64 {
	if m.entries == 0 {
		return -1
	}
	h := hashOf(key)
	e := find(m.table(m.shardOf(h)), h)
	if e == nil {
		return -1
	}
	return e.next - 1
}

func (m *offsetMap) shardOf(h keyHash) int { return int(h[0] % uint64(len(m.shards))) }

func (m *offsetMap) table(shard int) []mapEntry {
	return m.slots[shard*m.shardSlots:][:m.shards[shard].slots]
}

// find returns the slot that holds the hash, or the free one where it belongs; nil when there is neither.
func find(table []mapEntry, h keyHash) *mapEntry {
	home, _ := bits.Mul64(h[1], uint64(len(table)))
	at := int(home)
	for range table {
		e := &table[at]
		if e.next == 0 || e.hash == h {
			return e
		}
		if at++; at == len(table) {
			at = 0
		}
	}
	return nil
}

// grow doubles the used part of a shard.
func (m *offsetMap) grow(i int) {
	old := m.table(i)
	m.spare = append(m.spare[:0], old...)
	clear(old)
	m.shards[i].slots = min(2*len(old), m.shardSlots)
	table := m.table(i)
	for _, e := range m.spare {
		if e.next != 0 {
			*find(table, e.hash) = e
		}
	}
}
