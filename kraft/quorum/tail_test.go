package quorum

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"gregor/protocol/record"
)

// The cache answers as the list of all batches would, or not at all.
func TestTailCacheAgreesWithTheWholeLog(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var cache tailCache
		var all []record.Batch
		next := int64(0)
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			switch rapid.IntRange(0, 5).Draw(rt, "action") {
			case 0:
				to := rapid.Int64Range(0, next).Draw(rt, "truncate to")
				for len(all) > 0 && all[len(all)-1].LastOffset() >= to {
					all = all[:len(all)-1]
				}
				cache.truncate(to)
				next = 0
				if len(all) > 0 {
					next = all[len(all)-1].NextOffset()
				}
			case 1:
				cache.reset()
			case 2:
				offset := rapid.Int64Range(0, max(next-1, 0)).Draw(rt, "offset")
				limit := rapid.IntRange(0, 1000).Draw(rt, "limit")
				got := cache.from(offset, limit)
				if got != nil && !bytes.Equal(got, batchesFrom(all, offset, limit)) {
					rt.Fatalf("from offset %d: %d bytes", offset, len(got))
				}
			default:
				b := batchAt(t, next, 1, rapid.IntRange(1, 4).Draw(rt, "records"))
				all = append(all, b)
				cache.add(b)
				next = b.NextOffset()
			}
		}
	})
}

func batchesFrom(all []record.Batch, offset int64, limit int) []byte {
	var out []byte
	for _, b := range all {
		if b.LastOffset() < offset {
			continue
		}
		if len(out) > 0 && len(out)+len(b) > limit {
			break
		}
		out = append(out, b...)
	}
	return out
}

func TestTailCacheForgetsTheOldest(t *testing.T) {
	var cache tailCache
	for i := range int64(40000) {
		cache.add(batchAt(t, i, 1, 1))
	}
	if cache.sizeBytes > tailCacheBytes || cache.from(0, 1) != nil || cache.from(39999, 1) == nil {
		t.Fatalf("%d bytes, %d batches", cache.sizeBytes, len(cache.batches))
	}
	cache.add(batchAt(t, 50000, 1, 1))
	if len(cache.batches) != 1 || cache.from(39999, 1) != nil {
		t.Fatal("a gap did not clear the cache")
	}
}
