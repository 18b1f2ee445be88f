package segment

import (
	"bytes"
	"slices"
	"testing"

	"gregor/storage/vfs"
)

func TestIndexesOfSealedSegmentsAreDroppedBeyondTheBound(t *testing.T) {
	fsys := vfs.NewMem()
	o := testOptions(fsys)
	o.Indexes = NewIndexCache(700)
	var segments []*Segment
	for i := range int64(8) {
		s := newSegment(t, fsys, i*1000, o)
		fill(t, s, 40)
		must(t, s.Seal())
		segments = append(segments, reopen(t, s, o))
	}
	for range 3 {
		for _, s := range segments {
			if _, ok, err := s.Find(s.base+70, s.SizeBytes()); !ok || err != nil {
				t.Fatalf("segment %d: %t, %v", s.base, ok, err)
			}
			if n := o.Indexes.Bytes(); n > 700 {
				t.Fatalf("%d bytes held", n)
			}
		}
	}
	loaded := 0
	for _, s := range segments {
		if s.offsets.view.Load() != nil {
			loaded++
		}
	}
	if loaded == 0 || loaded == len(segments) {
		t.Errorf("%d of %d indexes are loaded", loaded, len(segments))
	}
	for _, s := range segments {
		must(t, s.Close())
	}
	if n := o.Indexes.Bytes(); n != 0 {
		t.Errorf("%d bytes held after closing", n)
	}
}

func TestIndexFilesGrowToFullSizeAndAreCutWhenSealed(t *testing.T) {
	fsys := vfs.NewMem()
	o := testOptions(fsys)
	o.IndexMaxBytes = 1001
	s := newSegment(t, fsys, 0, o)
	sizes := func() []int64 {
		var list []int64
		for _, suffix := range []string{IndexSuffix, TimeIndexSuffix} {
			info, err := fsys.Stat(FilePath(testDir, 0, suffix))
			must(t, err)
			list = append(list, info.Size())
		}
		return list
	}
	must(t, s.WriteIndexes())
	if got := sizes(); !slices.Equal(got, []int64{1000, 996}) {
		t.Errorf("full sizes %v", got)
	}
	fill(t, s, 10) // 95 bytes each: an entry for every other one
	must(t, s.Seal())
	if got := sizes(); !slices.Equal(got, []int64{4 * 8, 5 * 12}) {
		t.Errorf("sealed sizes %v", got)
	}
}

func TestFullIndexTakesNoMoreEntriesButTheLastTimestamp(t *testing.T) {
	fsys := vfs.NewMem()
	o := testOptions(fsys)
	o.IndexMaxBytes = 36 // 4 offsets, 3 times
	s := newSegment(t, fsys, 0, o)
	fill(t, s, 4)
	if full, err := s.IndexesFull(); full || err != nil {
		t.Errorf("full with %d entries, %v", s.offsets.count(), err)
	}
	for i := range int64(20) {
		must(t, s.Append(batch(8+2*i, 2, 100+10*i)))
	}
	if full, err := s.IndexesFull(); !full || err != nil {
		t.Errorf("not full with %d and %d entries, %v", s.offsets.count(), s.times.count(), err)
	}
	must(t, s.Seal())
	if s.offsets.count() != 4 || s.times.count() != 3 {
		t.Errorf("%d and %d entries", s.offsets.count(), s.times.count())
	}
	must(t, s.CheckIndexes(false))
	if m, err := reopen(t, s, o).MaxTimestamp(); err != nil || m.Timestamp != 291 {
		t.Errorf("largest timestamp %+v, %v", m, err)
	}
}

func TestTimestampZeroIsAnEntryOnlyWhenTheFileEndsThere(t *testing.T) {
	if e, err := DecodeTimeIndex(make([]byte, 12)); err != nil || len(e) != 1 {
		t.Errorf("%v, %v", e, err)
	}
	if e, err := DecodeTimeIndex(make([]byte, 24)); err != nil || len(e) != 0 {
		t.Errorf("%v, %v", e, err)
	}
	raw := TimeIndexEntry{Timestamp: 9, RelativeOffset: 3}.append(make([]byte, 12))
	if e, err := DecodeTimeIndex(append(raw, make([]byte, 120)...)); err != nil || len(e) != 2 || e[1].Timestamp != 9 {
		t.Errorf("%v, %v", e, err)
	}
}

// checkDecoded is what must hold of a decoded index: the entries ascend and encode to a prefix of the file; an
// error only when something other than zeros follows.
func checkDecoded(t *testing.T, raw, encoded []byte, err error, ascending bool) {
	t.Helper()
	if !ascending {
		t.Error("the entries do not ascend")
	}
	if !bytes.HasPrefix(raw, encoded) {
		t.Errorf("decoded %x from %x", encoded, raw)
	}
	if (err == nil) != isZero(raw[len(encoded):]) {
		t.Errorf("error %v for a rest of %x", err, raw[len(encoded):])
	}
}

func FuzzOffsetIndex(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0, 2, 0, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 20})
	f.Add([]byte{0xff, 0xff, 0xff, 1, 0, 0, 0, 9, 1})
	f.Fuzz(func(t *testing.T, raw []byte) {
		entries, err := DecodeOffsetIndex(raw)
		var encoded []byte
		for _, e := range entries {
			encoded = e.append(encoded)
		}
		checkDecoded(t, raw, encoded, err, slices.IsSortedFunc(entries, func(a, b OffsetIndexEntry) int {
			if a.RelativeOffset < b.RelativeOffset && a.Position < b.Position {
				return -1
			}
			return 1
		}))
	})
}

func FuzzTimeIndex(f *testing.F) {
	f.Add([]byte{})
	f.Add(make([]byte, 12))
	f.Add(make([]byte, 36))
	f.Add(TimeIndexEntry{Timestamp: 9, RelativeOffset: 3}.append(TimeIndexEntry{Timestamp: 5, RelativeOffset: 1}.append(nil)))
	f.Add(TimeIndexEntry{Timestamp: 5, RelativeOffset: 3}.append(TimeIndexEntry{Timestamp: 9, RelativeOffset: 1}.append(nil)))
	f.Fuzz(func(t *testing.T, raw []byte) {
		entries, err := DecodeTimeIndex(raw)
		var encoded []byte
		for _, e := range entries {
			encoded = e.append(encoded)
		}
		checkDecoded(t, raw, encoded, err, slices.IsSortedFunc(entries, func(a, b TimeIndexEntry) int {
			if a.Timestamp < b.Timestamp && a.RelativeOffset < b.RelativeOffset {
				return -1
			}
			return 1
		}))
	})
}

func FuzzTxnIndex(f *testing.F) {
	f.Add([]byte{})
	f.Add(AbortedTxn{1, 2, 3, 4}.append(nil))
	f.Add(AbortedTxn{1, 2, 5, 4}.append(AbortedTxn{5, 1, 4, 9}.append(nil)))
	f.Add(append(AbortedTxn{1, 2, 3, 4}.append(nil), 0, 1))
	f.Fuzz(func(t *testing.T, raw []byte) {
		entries, err := DecodeTxnIndex(raw)
		var encoded []byte
		for _, e := range entries {
			encoded = e.append(encoded)
		}
		if !bytes.HasPrefix(raw, encoded) || (err == nil) != (len(encoded) == len(raw)) {
			t.Errorf("decoded %v, %v from %x", entries, err, raw)
		}
	})
}

// FuzzRecovery recovers a segment from any bytes: what is left is valid, and a second recovery changes nothing.
func FuzzRecovery(f *testing.F) {
	two := slices.Concat([]byte(batch(0, 2, 1)), []byte(batch(2, 3, 5)))
	f.Add(two)
	f.Add(two[:len(two)-5])
	f.Add(append(slices.Clone(two), make([]byte, 100)...))
	f.Add(append(slices.Clone(two), two...))
	f.Fuzz(func(t *testing.T, raw []byte) {
		fsys := vfs.NewMem()
		o := testOptions(fsys)
		must(t, fsys.MkdirAll(testDir))
		must(t, vfs.WriteFile(fsys, FilePath(testDir, 0, LogSuffix), raw))
		s := Open(testDir, 0, int64(len(raw)), 1, "", o)
		first, err := s.Recover(0, 0, visitNothing)
		must(t, err)
		if s.SizeBytes()+first.TruncatedBytes != int64(len(raw)) {
			t.Fatalf("%d bytes and %d cut of %d", s.SizeBytes(), first.TruncatedBytes, len(raw))
		}
		must(t, s.CheckIndexes(true))
		if next, err := s.NextOffset(); err != nil || next != first.NextOffset {
			t.Fatalf("next offset %d, %v, recovered %d", next, err, first.NextOffset)
		}
		second, err := s.Recover(0, 0, visitNothing)
		if err != nil || second.TruncatedBytes != 0 || second.NextOffset != first.NextOffset {
			t.Fatalf("second recovery %+v, %v", second, err)
		}
	})
}
