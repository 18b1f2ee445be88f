package cleaner

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

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
				if m.put([]byte(key), offset) {
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
				if got := m.get([]byte(key)); got != offset {
					t.Fatalf("%s at %d, want %d", key, got, offset)
				}
			}
			if m.entries != len(want) {
				t.Fatalf("%d entries, want %d", m.entries, len(want))
			}
			m.reset()
			if m.get([]byte("key-0")) != -1 || m.latest != -1 {
				t.Fatalf("something is left after a reset")
			}
		}
	})
}

func TestOffsetMapKeepsToItsMemoryAndItsLimit(t *testing.T) {
	const bytes = 1 << 20
	m := newOffsetMap(bytes, 0.9)
	n := 0
	for ; m.put(fmt.Appendf(nil, "key-%d", n), int64(n)); n++ {
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
		if got := m.get(fmt.Appendf(nil, "key-%d", i)); got != int64(i) {
			t.Fatalf("key %d at %d", i, got)
		}
	}
	if u := m.utilization(); u < 0.88 || u > 0.91 {
		t.Errorf("utilization %f", u)
	}
	m.release()
	if m.slots != nil || m.usedBytes() != 0 || m.entries != 0 {
		t.Error("memory is held after the release")
	}
}

func TestFewKeysTouchLittleMemory(t *testing.T) {
	m := newOffsetMap(128<<20, 0.9)
	for i := range 1000 {
		m.put(fmt.Appendf(nil, "key-%d", i), int64(i))
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
			m.put(keys[i&(len(keys)-1)], int64(i))
		}
	})
	b.Run("get", func(b *testing.B) {
		b.ReportAllocs()
		for i := range b.N {
			m.get(keys[i&(len(keys)-1)])
		}
	})
}
