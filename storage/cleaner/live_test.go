package cleaner

import (
	"strings"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"gregor/protocol/record"
	"gregor/storage/vfs"
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

// TestManyOffsetsToABitDecideAlike cleans two logs that differ in how far off the last batch is: so far that the set of live
// offsets of one has a bit for many of them.
func TestManyOffsetsToABitDecideAlike(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // delete horizons follow the clock
		rapid.Check(struct{ *testing.T }{t}, func(rt *rapid.T) { manyOffsetsToABit(t, rt) })
	})
}

func manyOffsetsToABit(t *testing.T, rt *rapid.T) {
	var shifts [2]uint
	var stats [2]Stats
	var got [2]string
	var contents [][]string
	for range rapid.IntRange(1, 20).Draw(rt, "batches") {
		contents = append(contents, rapid.SliceOfN(rapid.SampledFrom([]string{"a=1", "b=1", "c=1", "d=1", "e=1", "f", "=1"}), 1, 6).Draw(rt, "records"))
	}
	cleanBatches := rapid.IntRange(0, len(contents)-1).Draw(rt, "clean")
	codec := rapid.SampledFrom([]record.Codec{record.CodecNone, record.CodecLZ4}).Draw(rt, "codec")
	for i, gap := range []int64{0, 1 << 26} {
		l := newFakeLog(t, vfs.NewMem(), "t-0")
		for n, records := range contents {
			if n == cleanBatches {
				l.cleaned = l.end
			}
			l.add(keyed(record.BuilderOptions{Codec: codec}, 1, records...))
		}
		l.end += gap
		l.add(keyed(record.BuilderOptions{}, 1, "z=1"))
		l.roll()
		m := newOffsetMap(1<<16, 0.9)
		stats[i] = cleanFrom(t, l, m)
		var set liveOffsets
		set.build(m, 0)
		shifts[i] = set.shift
		got[i] = strings.SplitN(l.lines(), " z=1", 2)[0]
		got[i] = got[i][:strings.LastIndex(got[i], "\n")] // the last batch has another offset
		stats[i].Took, stats[i].IndexTook = 0, 0
	}
	if shifts[0] != 0 || shifts[1] < 5 {
		rt.Fatalf("bits for %d and %d offsets", 1<<shifts[0], 1<<shifts[1])
	}
	if got[0] != got[1] || stats[0] != stats[1] {
		rt.Fatalf("%+v\n%s\nwith many offsets to a bit: %+v\n%s", stats[0], got[0], stats[1], got[1])
	}
}
