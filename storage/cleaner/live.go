package cleaner

import "math/bits"

// liveOffsets tells, of the records that were put into the map, which are the newest of their key: those whose offsets
// are still in it. So records of the dirty part need not be looked up by key again, and batches of which nothing is left
// need not be read.
//
// It is a set of bits, one for so many consecutive offsets that the set keeps to its memory; usually for one.
type liveOffsets struct {
	from, to int64 // what it tells of, to exclusive; nothing if they are equal
	shift    uint  // offsets per bit, as a power of 2
	bits     []uint64
}

// build makes the set of a map for the offsets from one on to the end of the map.
func (l *liveOffsets) build(m *offsetMap, from int64) {
	m.spare = nil
	l.from, l.to, l.shift = from, max(m.latest+1, from), 0
	n := uint64(l.to - l.from)
	for n>>l.shift >= m.liveBits() {
		l.shift++
	}
	words := int(n>>l.shift/64) + 1
	if cap(l.bits) < words {
		l.bits = make([]uint64, words)
	}
	l.bits = l.bits[:words]
	clear(l.bits)
	m.offsets(func(offset int64) {
		if l.covers(offset) {
			at := uint64(offset-l.from) >> l.shift
			l.bits[at/64] |= 1 << (at % 64)
		}
	})
}

// covers tells whether the set tells of an offset.
func (l *liveOffsets) covers(offset int64) bool { return offset >= l.from && offset < l.to }

// none tells whether no offset from first to last, both covered, is live.
func (l *liveOffsets) none(first, last int64) bool {
	at, end := uint64(first-l.from)>>l.shift, uint64(last-l.from)>>l.shift
	for at <= end {
		if word := l.bits[at/64] >> (at % 64); word != 0 {
			return at+uint64(bits.TrailingZeros64(word)) > end
		}
		at = (at/64 + 1) * 64
	}
	return true
}

// has tells of a covered offset whether it is live; certain is false where that would take a look into the map.
func (l *liveOffsets) has(offset int64) (live, certain bool) {
	live = !l.none(offset, offset)
	return live, !live || l.shift == 0
}
