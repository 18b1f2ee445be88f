package cleaner

import "math/bits"

// entryBytes is what a key costs: a hash of 16 bytes and an offset, as in Kafka's SkimpyOffsetMap.
const entryBytes = 24

const (
	// manyShards is how many parts a large map grows in.
	manyShards = 64
	// manyShardsFrom is how many slots make a map large.
	manyShardsFrom = 64 * manyShards
	firstSlots     = 64
	// groupKeys is how many keys are looked up together: while the slot of one is fetched from memory, so are the next.
	groupKeys = 64
)

// offsetMap maps keys to their newest offset in a fixed number of bytes. Of a key it knows only a hash of 128 bits.
//
// The memory is one array, divided into shards by hash. Of each shard only the first part is used, which grows in
// place: pages of the array that no growth has reached cost no memory, so that a small log costs little. Release it.
type offsetMap struct {
	hasher     hasher
	memory     mapMemory
	slots      []mapEntry // of memory, nil until used
	shards     []shard
	shardSlots int // most slots of a shard
	entries    int
	limit      int   // entries that put accepts
	latest     int64 // offset up to which the map is complete, -1 for none
	spare      []mapEntry
	queue      []queuedKey // added, but not put yet
	touched    int64       // keeps the compiler from leaving out what flush reads ahead
}

type mapEntry struct {
	hash keyHash
	next int64 // offset + 1; 0 marks a free slot
}

type shard struct{ slots, entries int }

// queuedKey is a key with its offset. With it in the map, the map is complete up to another offset, further on.
type queuedKey struct {
	hash               keyHash
	offset, completeTo int64
}

// newOffsetMap makes a map of so many bytes, at least a slot, which takes entries up to the load factor.
func newOffsetMap(maxBytes int64, loadFactor float64) *offsetMap {
	slots := max(int(maxBytes/entryBytes), 1)
	n := 1
	if slots >= manyShardsFrom {
		n = manyShards
	}
	m := &offsetMap{hasher: newHasher(), shards: make([]shard, n), shardSlots: slots / n}
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
	m.entries, m.latest, m.queue = 0, -1, m.queue[:0]
}

// release forgets everything and gives the memory back.
func (m *offsetMap) release() {
	m.memory.free()
	m.slots, m.spare, m.queue = nil, nil, nil
	m.reset()
}

// liveBits is how many bits a set of offsets may have besides the map: those of the memory that a shard needs to grow,
// which is free when the map is complete.
func (m *offsetMap) liveBits() uint64 {
	const leastBytes = 4096
	return uint64(max(m.shardSlots*entryBytes, leastBytes)) * 8
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

// add notes the newest offset of a key; full says that the map has no room for it, or for one shortly before it: latest
// tells how far it got. Keys are put in groups; flush puts the last one.
func (m *offsetMap) add(key []byte, offset int64) (full bool) {
	m.queue = append(m.queue, queuedKey{hash: m.hasher.hash(key), offset: offset, completeTo: offset})
	if len(m.queue) < min(groupKeys, m.limit-m.entries) {
		return false
	}
	return m.flush()
}

// completeTo notes that what was added makes the map complete up to an offset.
func (m *offsetMap) completeTo(offset int64) {
	if n := len(m.queue); n > 0 {
		m.queue[n-1].completeTo = offset
		return
	}
	m.latest = offset
}

// flush puts the keys that were added; full as with add.
func (m *offsetMap) flush() (full bool) {
	m.makeReady()
	var sum int64
	for i := range m.queue {
		sum += m.home(m.queue[i].hash).next // for the fetch
	}
	m.touched = sum
	for i := range m.queue {
		q := &m.queue[i]
		if !m.putHash(q.hash, q.offset) {
			full = true
			break
		}
		m.latest = q.completeTo
	}
	m.queue = m.queue[:0]
	return full
}

func (m *offsetMap) makeReady() {
	if m.slots == nil {
		m.slots = m.memory.entries(len(m.shards) * m.shardSlots)
	}
}

// putHash notes the newest offset of a key; false says that the map is full.
func (m *offsetMap) putHash(h keyHash, offset int64) bool {
	if m.entries >= m.limit {
		return false
	}
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
	return true
}

// lookup asks for a key.
type lookup struct {
	hash   keyHash
	record int   // who asks: the place of its record
	newest int64 // the answer: the newest offset, -1 when there is none
}

// find answers at most groupKeys lookups.
func (m *offsetMap) find(keys []lookup) {
	if m.entries == 0 {
		for i := range keys {
			keys[i].newest = -1
		}
		return
	}
	var sum int64
	for i := range keys {
		sum += m.home(keys[i].hash).next // for the fetch
	}
	m.touched = sum
	for i := range keys {
		k := &keys[i]
		k.newest = -1
		if e := find(m.table(m.shardOf(k.hash)), k.hash); e != nil {
			k.newest = e.next - 1
		}
	}
}

// offsets calls visit with each offset in the map.
func (m *offsetMap) offsets(visit func(offset int64)) {
	if m.entries == 0 {
		return
	}
	for i := range m.shards {
		for _, e := range m.table(i) {
			if e.next != 0 {
				visit(e.next - 1)
			}
		}
	}
}

// shardOf divides by the number of shards, which is 1 or manyShards.
func (m *offsetMap) shardOf(h keyHash) int { return int(h[0]) & (len(m.shards) - 1) }

// home is where the search for a hash begins.
func (m *offsetMap) home(h keyHash) *mapEntry {
	table := m.table(m.shardOf(h))
	at, _ := bits.Mul64(h[1], uint64(len(table)))
	return &table[at]
}

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
