package segment

import (
	"bytes"
	"errors"
	"io"
	"path"
	"slices"
	"testing"

	"gregor/protocol/record"
	"gregor/storage/vfs"
)

const testDir = "/t-0"

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func testOptions(fsys vfs.FS) Options {
	return Options{
		Files: vfs.NewCache(fsys, 10), Indexes: NewIndexCache(1 << 20),
		IndexIntervalBytes: 100, IndexMaxBytes: 4096, MaxBytes: 1 << 20,
	}
}

func newSegment(t testing.TB, fsys vfs.FS, base int64, o Options) *Segment {
	t.Helper()
	must(t, fsys.MkdirAll(testDir))
	s, err := Create(testDir, base, 1, "", o)
	must(t, err)
	return s
}

// reopen closes a segment and opens its files anew.
func reopen(t testing.TB, s *Segment, o Options) *Segment {
	t.Helper()
	must(t, s.Close())
	return Open(testDir, s.base, s.SizeBytes(), 1, "", o)
}

// batch makes a batch of n records with timestamps from timestamp on.
func batch(base int64, n int, timestamp int64) record.Batch {
	b := record.NewBuilder(record.BuilderOptions{BaseOffset: base})
	for i := range n {
		b.Add(timestamp+int64(i), nil, []byte("0123456789"), nil)
	}
	return b.Bytes()
}

// fill appends n batches of two records; batch i has offsets 2i and 2i+1 and the timestamps 10i and 10i+1.
func fill(t testing.TB, s *Segment, n int) {
	t.Helper()
	for i := range int64(n) {
		must(t, s.Append(batch(s.base+2*i, 2, 10*i)))
	}
}

func TestEveryOffsetIsFoundWithAndWithoutItsIndex(t *testing.T) {
	fsys := vfs.NewMem()
	o := testOptions(fsys)
	s := newSegment(t, fsys, 1000, o)
	fill(t, s, 50)
	check := func(s *Segment) {
		t.Helper()
		size := s.SizeBytes() / 50
		for offset := int64(990); offset < 1100; offset++ {
			e, ok, err := s.Find(offset, s.SizeBytes())
			must(t, err)
			at := max(0, (offset-1000)/2)
			if !ok || e != (Entry{Position: at * size, SizeBytes: size, BaseOffset: 1000 + 2*at, LastOffset: 1001 + 2*at}) {
				t.Fatalf("offset %d: %+v, %t", offset, e, ok)
			}
			p, ok, err := s.Position(offset, s.SizeBytes())
			if p != e.Position || !ok || err != nil {
				t.Fatalf("position of %d: %d, %t, %v", offset, p, ok, err)
			}
			// A view that ends before does not see it.
			if _, ok, err := s.Find(offset, at*size); ok || err != nil {
				t.Fatalf("offset %d below its own position: %t, %v", offset, ok, err)
			}
		}
		if _, ok, err := s.Find(1100, s.SizeBytes()); ok || err != nil {
			t.Errorf("an offset above the end: %t, %v", ok, err)
		}
		if next, err := s.NextOffset(); next != 1100 || err != nil {
			t.Errorf("next offset %d, %v", next, err)
		}
		must(t, s.CheckIndexes(false))
	}
	check(s)
	must(t, s.Seal())
	sealed := reopen(t, s, o)
	check(sealed)
	must(t, sealed.Close())
	must(t, fsys.Remove(path.Join(testDir, FileName(1000, IndexSuffix))))
	check(Open(testDir, 1000, s.SizeBytes(), 1, "", o))
}

func TestDamagedIndexesAreRebuilt(t *testing.T) {
	for name, damage := range map[string]func(b []byte) []byte{
		"zeros":        func(b []byte) []byte { return make([]byte, len(b)) },
		"odd length":   func(b []byte) []byte { return append(b, 1, 2, 3) },
		"random":       func(b []byte) []byte { return bytes.Repeat([]byte{7, 0x91, 3, 5}, len(b)/4) },
		"descending":   func(b []byte) []byte { return append(slices.Clone(b[12:24]), b...) },
		"shifted":      func(b []byte) []byte { b[len(b)-1]++; return b },
		"first entry":  func(b []byte) []byte { b[7]++; return b },
		"beyond":       func(b []byte) []byte { return append(b, 0x7f, 0, 0, 0, 0x7f, 0, 0, 0, 0x7f, 0, 0, 1) },
		"zero tail":    func(b []byte) []byte { return append(b, make([]byte, 4000)...) },
		"cut in entry": func(b []byte) []byte { return b[:len(b)-1] },
	} {
		t.Run(name, func(t *testing.T) {
			fsys := vfs.NewMem()
			o := testOptions(fsys)
			s := newSegment(t, fsys, 0, o)
			fill(t, s, 50)
			must(t, s.Seal())
			must(t, s.Close())
			for _, suffix := range []string{IndexSuffix, TimeIndexSuffix} {
				file := FilePath(testDir, 0, suffix)
				b, err := vfs.ReadFile(fsys, file)
				must(t, err)
				must(t, vfs.WriteFile(fsys, file, damage(b)))
			}
			s = Open(testDir, 0, s.SizeBytes(), 1, "", o)
			for offset := range int64(100) {
				e, ok, err := s.Find(offset, s.SizeBytes())
				if err != nil || !ok || e.BaseOffset > offset || e.LastOffset < offset {
					t.Fatalf("offset %d: %+v, %t, %v", offset, e, ok, err)
				}
			}
			if name == "first entry" || name == "shifted" {
				return // a wrong time index entry shows only when it contradicts
			}
			for millis := int64(-5); millis < 491; millis += 5 {
				f, ok, err := s.OffsetForTimestamp(millis, 0, s.SizeBytes(), record.Limits{})
				want := max(0, millis+9) / 10 * 2
				if err != nil || !ok || f.Offset != want {
					t.Fatalf("timestamp %d: %+v, %t, %v, want %d", millis, f, ok, err, want)
				}
			}
		})
	}
}

func TestTimestampSearchIsExactInsideBatches(t *testing.T) {
	fsys := vfs.NewMem()
	s := newSegment(t, fsys, 0, testOptions(fsys))
	times := []int64{5, 100, 7, 100, 200, 3}
	for i, codec := range []record.Codec{record.CodecNone, record.CodecZstd, record.CodecLZ4} {
		b := record.NewBuilder(record.BuilderOptions{BaseOffset: int64(i * len(times)), Codec: codec})
		for _, ts := range times {
			b.Add(ts+int64(i)*1000, nil, nil, nil)
		}
		must(t, s.Append(b.Bytes()))
	}
	for _, c := range []struct{ millis, low, want int64 }{
		{0, 0, 0},
		{6, 0, 1},
		{100, 0, 1},
		{101, 0, 4},
		{201, 0, 6},
		{1101, 0, 10},
		{2200, 0, 16},
		{2201, 0, -1},
		{0, 5, 5},
		{100, 2, 3},
		{100, 5, 6},
		{2000, 17, 17},
	} {
		f, ok, err := s.OffsetForTimestamp(c.millis, c.low, s.SizeBytes(), record.Limits{})
		must(t, err)
		if !ok {
			f.Offset = -1
		}
		if f.Offset != c.want {
			t.Errorf("timestamp %d from %d: %+v, want %d", c.millis, c.low, f, c.want)
		}
	}
	if m, err := s.MaxTimestamp(); err != nil || m != (TimestampOffset{Timestamp: 2200, Offset: 17}) {
		t.Errorf("largest %+v, %v", m, err)
	}
	if first, ok, err := s.FirstTimestamp(); first != 200 || !ok || err != nil {
		t.Errorf("first %d, %t, %v", first, ok, err)
	}
}

func TestTruncatedSegmentIsIndexedAsIfNeverLonger(t *testing.T) {
	for cut := int64(0); cut <= 21; cut++ {
		fsys := vfs.NewMem()
		o := testOptions(fsys)
		s := newSegment(t, fsys, 0, o)
		fill(t, s, 10)
		must(t, s.AppendAborted(AbortedTxn{ProducerID: 1, FirstOffset: 2, LastOffset: 5, LastStableOffset: 6}))
		must(t, s.AppendAborted(AbortedTxn{ProducerID: 2, FirstOffset: 8, LastOffset: 11, LastStableOffset: 12}))
		size := s.SizeBytes() / 10
		n, err := s.TruncateTo(cut, 1, 5)
		must(t, err)
		kept := min(cut/2, 10)
		if n != (10-kept)*size || s.SizeBytes() != kept*size {
			t.Fatalf("cut at %d: %d bytes gone, %d left", cut, n, s.SizeBytes())
		}
		must(t, s.CheckIndexes(false))
		want := TimestampOffset{Timestamp: record.NoTimestamp, Offset: 0}
		if kept > 0 {
			want = TimestampOffset{Timestamp: (kept-1)*10 + 1, Offset: 2*kept - 1}
		}
		if m, err := s.MaxTimestamp(); err != nil || m != want {
			t.Fatalf("cut at %d: largest timestamp %+v, %v, want %+v", cut, m, err, want)
		}
		aborted, err := s.Aborted()
		must(t, err)
		wantAborted := 0
		for _, last := range []int64{5, 11} {
			if last < cut {
				wantAborted++
			}
		}
		if len(aborted) != wantAborted {
			t.Fatalf("cut at %d: aborted %v", cut, aborted)
		}
		must(t, s.Append(batch(2*kept, 1, 1000)))
		must(t, s.Seal())
		must(t, reopen(t, s, o).CheckIndexes(false))
	}
}

func TestRecoveryKeepsValidBatchesAndRebuildsIndexes(t *testing.T) {
	flip := func(at int64) func(b []byte) []byte {
		return func(b []byte) []byte { b[at] ^= 0x10; return b }
	}
	size := int64(len(batch(0, 2, 0)))
	for name, c := range map[string]struct {
		damage func(b []byte) []byte
		kept   int64
	}{
		"none":           {func(b []byte) []byte { return b }, 20},
		"cut body":       {func(b []byte) []byte { return b[:len(b)-1] }, 19},
		"cut header":     {func(b []byte) []byte { return b[:19*size+30] }, 19},
		"cut prefix":     {func(b []byte) []byte { return b[:19*size+3] }, 19},
		"zeros":          {func(b []byte) []byte { return append(b, make([]byte, 5000)...) }, 20},
		"garbage":        {func(b []byte) []byte { return append(b, bytes.Repeat([]byte{0xee, 1, 2}, 100)...) }, 20},
		"crc":            {flip(7*size + 80), 7},
		"length":         {flip(7*size + 11), 7},
		"huge length":    {func(b []byte) []byte { copy(b[7*size+8:], []byte{0x7f, 0xff, 0xff, 0xff}); return b }, 7},
		"magic":          {flip(7*size + 16), 7},
		"offset falls":   {func(b []byte) []byte { b[7*size+7] = 3; return b }, 7},
		"offset too far": {func(b []byte) []byte { b[7*size] = 1; return b }, 7},
		"empty":          {func([]byte) []byte { return nil }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			fsys := vfs.NewMem()
			o := testOptions(fsys)
			s := newSegment(t, fsys, 0, o)
			fill(t, s, 20)
			must(t, s.WriteIndexes())
			must(t, s.Close())
			file := FilePath(testDir, 0, LogSuffix)
			b, err := vfs.ReadFile(fsys, file)
			must(t, err)
			damaged := c.damage(slices.Clone(b))
			must(t, vfs.WriteFile(fsys, file, damaged))
			s = Open(testDir, 0, int64(len(damaged)), 1, "", o)
			visited := int64(0)
			r, err := s.Recover(0, 0, func(record.Batch) error { visited++; return nil })
			must(t, err)
			if r.NextOffset != 2*c.kept || visited != c.kept || s.SizeBytes() != c.kept*size || r.TruncatedBytes != int64(len(damaged))-c.kept*size {
				t.Fatalf("%+v, %d visited, %d bytes", r, visited, s.SizeBytes())
			}
			if (r.Damage == nil) != (r.TruncatedBytes == 0) {
				t.Errorf("damage %v", r.Damage)
			}
			must(t, s.CheckIndexes(true))
			after, err := vfs.ReadFile(fsys, file)
			must(t, err)
			if !bytes.Equal(after, b[:c.kept*size]) {
				t.Errorf("%d bytes are left", len(after))
			}
			if next, err := s.NextOffset(); next != 2*c.kept || err != nil {
				t.Errorf("next offset %d, %v", next, err)
			}
		})
	}
}

func TestBatchLargerThanTheBufferIsRecovered(t *testing.T) {
	fsys := vfs.NewMem()
	o := testOptions(fsys)
	o.MaxBytes = 1 << 30
	s := newSegment(t, fsys, 0, o)
	b := record.NewBuilder(record.BuilderOptions{})
	b.Add(1, nil, make([]byte, 3<<20), nil)
	large := b.Bytes()
	must(t, s.Append(large))
	must(t, s.Append(batch(1, 1, 2)))
	r, err := s.Recover(0, 0, func(record.Batch) error { return nil })
	if err != nil || r.NextOffset != 2 || r.TruncatedBytes != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	_, err = s.log.WriteAt([]byte{1}, 2<<20)
	must(t, err)
	r, err = s.Recover(0, 0, func(record.Batch) error { return nil })
	if err != nil || r.NextOffset != 0 || s.SizeBytes() != 0 {
		t.Fatalf("a flipped byte: %+v, %v", r, err)
	}
}

func TestVerifyNamesTheDamagedPlace(t *testing.T) {
	fsys := vfs.NewMem()
	s := newSegment(t, fsys, 0, testOptions(fsys))
	fill(t, s, 5)
	size := s.SizeBytes() / 5
	must(t, s.Verify(func(b record.Batch, position int64) error {
		if position != b.BaseOffset()/2*size {
			t.Errorf("batch %d at %d", b.BaseOffset(), position)
		}
		return nil
	}))
	_, err := s.log.WriteAt([]byte{0xff}, 3*size+70)
	must(t, err)
	var corrupt *CorruptError
	if err := s.Verify(func(record.Batch, int64) error { return nil }); !errors.As(err, &corrupt) || corrupt.Position != 3*size || !errors.Is(err, ErrCorrupt) {
		t.Errorf("got %v", err)
	}
}

func TestOffsetsOutsideTheSegmentsRangeAreRefused(t *testing.T) {
	fsys := vfs.NewMem()
	s := newSegment(t, fsys, 100, testOptions(fsys))
	for _, base := range []int64{99, 100 + 1<<31} {
		if err := s.Append(batch(base, 1, 0)); !errors.Is(err, ErrOffsetOverflow) {
			t.Errorf("offset %d: %v", base, err)
		}
	}
	must(t, s.Append(batch(100+1<<31-1, 1, 0)))
	if s.SizeBytes() != int64(len(batch(0, 1, 0))) {
		t.Errorf("%d bytes", s.SizeBytes())
	}
}

func TestAbortedTransactionsAreCollectedUntilNoneCanFollow(t *testing.T) {
	fsys := vfs.NewMem()
	o := testOptions(fsys)
	s := newSegment(t, fsys, 0, o)
	all := []AbortedTxn{{1, 0, 10, 5}, {2, 5, 15, 16}, {3, 18, 30, 31}}
	for _, a := range all {
		must(t, s.AppendAborted(a))
	}
	for _, s := range []*Segment{s, reopen(t, s, o)} {
		for _, c := range []struct {
			from, to int64
			want     []int64
			complete bool
		}{
			{0, 100, []int64{1, 2, 3}, false},
			{0, 32, []int64{1, 2, 3}, false},
			{0, 31, []int64{1, 2, 3}, true},
			{0, 18, []int64{1, 2}, true},
			{0, 16, []int64{1, 2}, true},
			{0, 5, []int64{1}, true},
			{11, 31, []int64{2, 3}, true},
			{16, 18, nil, true},
			{31, 40, nil, false},
		} {
			found, complete, err := s.CollectAborted(nil, c.from, c.to)
			must(t, err)
			var ids []int64
			for _, a := range found {
				ids = append(ids, a.ProducerID)
			}
			if !slices.Equal(ids, c.want) || complete != c.complete {
				t.Errorf("[%d, %d): %v, complete %t, want %v, %t", c.from, c.to, ids, complete, c.want, c.complete)
			}
		}
	}
}

func TestRangeOutlivesRemovalAndRefusesTruncatedBytes(t *testing.T) {
	fsys := vfs.NewMem()
	s := newSegment(t, fsys, 0, testOptions(fsys))
	fill(t, s, 4)
	size := int(s.SizeBytes() / 4)
	r, err := s.Range(int64(size), 2*size, 0)
	must(t, err)
	buf := make([]byte, 3*size)
	n, err := r.ReadAt(buf, 0)
	if n != 2*size || !errors.Is(err, io.EOF) {
		t.Errorf("read %d, %v", n, err)
	}
	if n, err := r.ReadAt(buf[:5], int64(2*size-3)); n != 3 || !errors.Is(err, io.EOF) {
		t.Errorf("read at the end: %d, %v", n, err)
	}
	if n, err := r.ReadAt(buf[:5], int64(2*size)+1); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("read beyond the end: %d, %v", n, err)
	}
	_, err = s.TruncateTo(7, 1, 0) // the last batch
	must(t, err)
	if _, err := r.ReadAt(buf[:5], 0); err != nil {
		t.Errorf("a range below the truncation: %v", err)
	}
	if _, err := s.Range(int64(3*size), size, 0); !errors.Is(err, ErrRangeGone) {
		t.Errorf("a range of an old view: %v", err)
	}
	must(t, s.Remove())
	if n, err := r.ReadAt(buf[:size], 0); n != size || err != nil {
		t.Errorf("read after removal: %d, %v", n, err)
	}
	r.Release()
	if _, err := s.Range(0, 1, 5); err == nil {
		t.Error("a range of a removed segment")
	}
}

func TestSuffixChangeMovesAllFiles(t *testing.T) {
	fsys := vfs.NewMem()
	s := newSegment(t, fsys, 7, testOptions(fsys))
	fill(t, s, 20)
	must(t, s.AppendAborted(AbortedTxn{ProducerID: 1, FirstOffset: 7, LastOffset: 8, LastStableOffset: 9}))
	must(t, s.WriteIndexes())
	must(t, s.ChangeSuffix(DeletedSuffix))
	entries, err := fsys.ReadDir(testDir)
	must(t, err)
	if len(entries) != 4 {
		t.Errorf("%d files", len(entries))
	}
	for _, e := range entries {
		base, suffix, ok := ParseFileName(e.Name())
		if !ok || base != 7 || path.Ext(suffix) != DeletedSuffix {
			t.Errorf("file %s", e.Name())
		}
	}
	if _, ok, err := s.Find(8, s.SizeBytes()); !ok || err != nil {
		t.Errorf("read after the rename: %t, %v", ok, err)
	}
	must(t, s.Remove())
	if entries, err := fsys.ReadDir(testDir); err != nil || len(entries) != 0 {
		t.Errorf("%d files are left, %v", len(entries), err)
	}
}

func TestFileNames(t *testing.T) {
	if got := FileName(42, LogSuffix); got != "00000000000000000042.log" {
		t.Errorf("got %s", got)
	}
	for name, want := range map[string]struct {
		offset int64
		suffix string
		ok     bool
	}{
		"00000000000000000042.log.swap": {42, ".log.swap", true}, "00000000000000000000.index": {0, ".index", true},
		"00000000000000000042-0000000001.checkpoint": {}, "leader-epoch-checkpoint": {}, "-1.log": {}, "+1.log": {}, ".lock": {}, "partition.metadata": {},
		"99999999999999999999.log": {},
	} {
		offset, suffix, ok := ParseFileName(name)
		if offset != want.offset || suffix != want.suffix || ok != want.ok {
			t.Errorf("%s: %d, %q, %t", name, offset, suffix, ok)
		}
	}
}

func TestReservedBlocksAreAskedForInStepsWithinTheSegment(t *testing.T) {
	mem := vfs.NewMem()
	var asked []int64
	fsys := vfs.NewErr(mem, vfs.InjectorFunc(func(op vfs.Op) error {
		if op.Kind == vfs.OpAllocate {
			asked = append(asked, op.Offset, op.Bytes)
		}
		return nil
	}))
	o := testOptions(fsys)
	o.MaxBytes = 1500
	s := newSegment(t, fsys, 0, o)
	s.Reserve(1000)
	s.Reserve(1000) // still there
	must(t, s.Append(batch(0, 30, 0)))
	size := s.SizeBytes()
	if size < 500 || size > 1000 {
		t.Fatalf("%d bytes", size)
	}
	s.Reserve(1000) // up to the segment's end
	s.Reserve(1000)
	if !slices.Equal(asked, []int64{0, 1000, 1000, 500}) {
		t.Errorf("asked for %v", asked)
	}
}
