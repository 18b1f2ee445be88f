package cleaner

import (
	"testing"

	"pgregory.net/rapid"
)

func TestLiveOffsetsAreThoseOfTheMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newOffsetMap(1<<16, 0.9)
		step := rapid.SampledFrom([]int64{1, 3, 64, 1000, 1 << 40}).Draw(t, "step")
		from := rapid.Int64Range(0, 1000).Draw(t, "from")
		offsets := map[int64]bool{}
		newest := map[byte]int64{}
		at := from
		for range rapid.IntRange(0, 300).Draw(t, "records") {
			at += rapid.Int64Range(1, step).Draw(t, "gap")
			key := rapid.Byte().Draw(t, "key")
			put(m, []byte{key}, at)
			if old, ok := newest[key]; ok {
				delete(offsets, old)
			}
			newest[key], offsets[at] = at, true
		}
		m.completeTo(at + 1)
		var l liveOffsets
		l.build(m, from)
		if len(l.bits) > int(m.liveBits()/64) {
			t.Fatalf("%d words", len(l.bits))
		}
		exact := uint64(at+2-from) < m.liveBits()
		if exact != (l.shift == 0) {
			t.Fatalf("a bit for %d offsets, %d in all", 1<<l.shift, at+2-from)
		}
		if l.covers(from-1) || !l.covers(from) || !l.covers(at+1) || l.covers(at+2) {
			t.Fatalf("covers %d to %d", l.from, l.to)
		}
		for range 100 {
			first := rapid.Int64Range(from, at+1).Draw(t, "first")
			last := rapid.Int64Range(first, min(at+1, first+rapid.SampledFrom([]int64{0, 1, 70, 500, step}).Draw(t, "length"))).Draw(t, "last")
			want := true
			for o := range offsets {
				want = want && (o < first || o > last)
			}
			if got := l.none(first, last); got && !want || exact && got != want {
				t.Fatalf("none of %d-%d: %t, want %t", first, last, got, want)
			}
			if live, certain := l.has(first); certain && live != offsets[first] || offsets[first] && !live || exact && !certain {
				t.Fatalf("%d is live: %t, certain %t, want %t", first, live, certain, offsets[first])
			}
		}
	})
}

func TestNothingIsLiveOfAnEmptyMap(t *testing.T) {
	m := newOffsetMap(1<<16, 0.9)
	var l liveOffsets
	l.build(m, 7)
	if l.covers(6) || l.covers(7) {
		t.Errorf("covers %d to %d", l.from, l.to)
	}
}
