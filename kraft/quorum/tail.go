package quorum

import (
	"gregor/protocol/record"
)

// tailCache keeps the newest batches of the log, so that raft does not read back from the file what it has just
// written. The bytes are shared and never changed.
//
// Invariant: batches are contiguous in offsets, oldest first.
type tailCache struct {
	batches   []record.Batch
	sizeBytes int
}

// add appends a batch; one that does not follow on clears what was there.
func (c *tailCache) add(b record.Batch) {
	if n := len(c.batches); n > 0 && c.batches[n-1].NextOffset() != b.BaseOffset() {
		c.reset()
	}
	c.batches = append(c.batches, b)
	c.sizeBytes += len(b)
	drop := 0
	for drop < len(c.batches)-1 && c.sizeBytes > tailCacheBytes {
		c.sizeBytes -= len(c.batches[drop])
		c.batches[drop] = nil
		drop++
	}
	c.batches = c.batches[drop:]
}

// from returns copies of the batches from the one that holds offset on, at least one and else up to maxBytes; nil
// when the cache does not hold the offset.
func (c *tailCache) from(offset int64, maxBytes int) []byte {
	if len(c.batches) == 0 || offset < c.batches[0].BaseOffset() {
		return nil
	}
	lo, hi := 0, len(c.batches)
	for lo < hi { // first batch that ends at or after offset
		mid := int(uint(lo+hi) >> 1)
		if c.batches[mid].LastOffset() < offset {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	var out []byte
	for _, b := range c.batches[lo:] {
		if len(out) > 0 && len(out)+len(b) > maxBytes {
			break
		}
		out = append(out, b...)
	}
	return out
}

// truncate drops the batches that reach endOffset or more.
func (c *tailCache) truncate(endOffset int64) {
	for n := len(c.batches); n > 0 && c.batches[n-1].LastOffset() >= endOffset; n-- {
		c.sizeBytes -= len(c.batches[n-1])
		c.batches[n-1] = nil
		c.batches = c.batches[:n-1]
	}
}

func (c *tailCache) reset() { *c = tailCache{} }
