package cleaner

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// put puts a key at once; false says that the map is full.
func put(m *offsetMap, key []byte, offset int64) bool { return !m.add(key, offset) && !m.flush() }

// get looks up one key.
func get(m *offsetMap, key []byte) int64 {
	k := []lookup{{hash: m.hasher.hash(key)}}
	m.find(k)
	return k[0].newest
}

func TestOffsetMapIsAMapUntilItIsFull(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slots := rapid.SampledFrom([]int{1, 2, 7, 100, 5000}).Draw(t, "slots")
		load := rapid.SampledFrom([]float64{0.5, 0.9, 1}).Draw(t, "load")
		m := newOffsetMap(int64(slots*entryBytes), load)
		for range 2 { // the memory is used again
			want := map[string]int64{}
			keys := rapid.IntRange(1, 2*slots).Draw(t, "keys")
			for offset := range int64(min(3*slots, 8000)) {
				key := fmt.Sprint("key-", (int(offset)*7919)%keys)
				full := len(want) >= m.limit
				if put(m, []byte(key), offset) {
					if full {
						t.Fatalf("took a key with %d of %d", len(want), m.limit)
					}
					want[key] = offset
					if m.latest != offset {
						t.Fatalf("complete to %d after %d", m.latest, offset)
					}
				} else if !full && len(m.shards) == 1 {
					t.Fatalf("refused %s with %d of %d", key, len(want), m.limit)
				}
			}
			for i := range 2*slots + 10 {
				key := fmt.Sprint("key-", i)
				offset, known := want[key]
				if !known {
					offset = -1
				}
				if got := get(m, []byte(key)); got != offset {
					t.Fatalf("%s at %d, want %d", key, got, offset)
				}
			}
			if m.entries != len(want) {
				t.Fatalf("%d entries, want %d", m.entries, len(want))
			}
			m.reset()
			if get(m, []byte("key-0")) != -1 || m.latest != -1 {
				t.Fatalf("something is left after a reset")
			}
		}
	})
}

// TestGroupsOfKeysArePutAsOneByOne compares with a map that puts each key at once.
func TestGroupsOfKeysArePutAsOneByOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slots := rapid.SampledFrom([]int{1, 5, 100, 400}).Draw(t, "slots")
		m, single := newOffsetMap(int64(slots*entryBytes), 0.9), newOffsetMap(int64(slots*entryBytes), 0.9)
		offset := int64(0)
		for range rapid.IntRange(0, 500).Draw(t, "keys") {
			offset += 2
			key := []byte{rapid.Byte().Draw(t, "key"), rapid.ByteMax(3).Draw(t, "key")}
			full := m.add(key, offset)
			if got := single.add(key, offset) || single.flush(); got != full {
				t.Fatalf("full at %d: %t, want %t", offset, full, got)
			}
			if full {
				break
			}
			if rapid.Bool().Draw(t, "end of batch") {
				m.completeTo(offset + 1)
				single.completeTo(offset + 1)
			}
		}
		if m.flush() {
			t.Fatal("full at the end")
		}
		if m.latest != single.latest || m.entries != single.entries {
			t.Fatalf("complete to %d with %d entries, want %d with %d", m.latest, m.entries, single.latest, single.entries)
		}
		sum, want := int64(0), int64(0)
		m.offsets(func(offset int64) { sum += offset })
		single.offsets(func(offset int64) { want += offset })
		if sum != want {
			t.Fatalf("offsets sum up to %d, want %d", sum, want)
		}
	})
}

func TestOffsetMapKeepsToItsMemoryAndItsLimit(t *testing.T) {
	const bytes = 1 << 20
	m := newOffsetMap(bytes, 0.9)
	defer m.release()
	m.hasher = hasherOf(&[16]byte{1}) // with which no shard of a map as small as this is full before the limit is reached
	n := 0
	for ; put(m, fmt.Appendf(nil, "key-%d", n), int64(n)); n++ {
	}
	if n != m.limit || n < bytes/entryBytes*88/100 {
		t.Errorf("%d keys in %d bytes, limit %d", n, bytes, m.limit)
	}
	if got := int64(len(m.slots)) * entryBytes; got > bytes {
		t.Errorf("%d bytes, %d are allowed", got, bytes)
	}
	if spare := cap(m.spare) * entryBytes; spare > bytes/len(m.shards)+firstSlots*entryBytes {
		t.Errorf("%d bytes are held to grow in", spare)
	}
	for i := range n {
		if got := get(m, fmt.Appendf(nil, "key-%d", i)); got != int64(i) {
			t.Fatalf("key %d at %d", i, got)
		}
	}
	if u := m.utilization(); u < 0.88 || u > 0.91 {
		t.Errorf("utilization %f", u)
	}
	m.release()
	if m.slots != nil || m.memory.mapped != nil || m.usedBytes() != 0 || m.entries != 0 || get(m, []byte("key-1")) != -1 {
		t.Error("memory is held after the release")
	}
	if !put(m, []byte("key-1"), 7) || get(m, []byte("key-1")) != 7 || get(m, []byte("key-2")) != -1 {
		t.Error("the map does not work after a release")
	}
	m.release()
}

func TestFewKeysTouchLittleMemory(t *testing.T) {
	m := newOffsetMap(128<<20, 0.9)
	defer m.release()
	for i := range 1000 {
		put(m, fmt.Appendf(nil, "key-%d", i), int64(i))
	}
	if used := m.usedBytes(); used > 256<<10 {
		t.Errorf("%d bytes for 1000 keys", used)
	}
}

func BenchmarkOffsetMap(b *testing.B) {
	keys := make([][]byte, 1<<16)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "customer-%08d", i)
	}
	m := newOffsetMap(int64(len(keys)*entryBytes)*10/9+entryBytes*manyShards, 0.95)
	b.Run("put", func(b *testing.B) {
		b.ReportAllocs()
		for i := range b.N {
			put(m, keys[i&(len(keys)-1)], int64(i))
		}
	})
	b.Run("get", func(b *testing.B) {
		b.ReportAllocs()
		for i := range b.N {
			get(m, keys[i&(len(keys)-1)])
		}
	})
}
