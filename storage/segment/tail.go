package segment

import "sync/atomic"

// tailSlots is how many of the newest batches a tail remembers.
const tailSlots = 32

// tail remembers where the newest batches start, so that a reader at the end of the log, and the high watermark,
// find their position without the index and without reading the file. Slots are overwritten in a ring; a reader
// sees each slot whole (one atomic word) or not at all.
type tail struct {
	slots [tailSlots]atomic.Uint64
	next  int // the writer's
}

const noBatch = ^uint64(0)

func newTail() *tail {
	t := &tail{}
	for i := range t.slots {
		t.slots[i].Store(noBatch)
	}
	return t
}

func (t *tail) add(base, offset, position int64) {
	t.slots[t.next].Store(uint64(offset-base)<<32 | uint64(uint32(position)))
	t.next = (t.next + 1) % tailSlots
}

// find returns the position of the batch that starts with an offset.
func (t *tail) find(base, offset int64) (position int64, ok bool) {
	want := uint64(offset - base)
	for i := range t.slots {
		if slot := t.slots[i].Load(); slot>>32 == want && slot != noBatch {
			return int64(uint32(slot)), true
		}
	}
	return 0, false
}
