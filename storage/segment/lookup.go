package segment

import (
	"errors"

	"gregor/protocol/record"
)

// Entry is where a batch is.
type Entry struct {
	Position   int64
	SizeBytes  int64
	BaseOffset int64
	LastOffset int64
}

// Find returns the first batch whose last offset is at or above offset, looking at bytes below end (at most
// SizeBytes). ok is false when there is none.
func (s *Segment) Find(offset, end int64) (e Entry, ok bool, err error) {
	return s.find(offset, end, true)
}

// Position is Find for callers that need the position only; at the end of the log it costs no read.
func (s *Segment) Position(offset, end int64) (position int64, ok bool, err error) {
	if t := s.tail.Load(); t != nil && offset >= s.base {
		if p, found := t.find(s.base, offset); found && p < end {
			return p, true, nil
		}
	}
	e, ok, err := s.find(offset, end, true)
	return e.Position, ok, err
}

func (s *Segment) find(offset, end int64, mayRepair bool) (Entry, bool, error) {
	from, indexed, err := s.floor(offset)
	if err != nil {
		return Entry{}, false, err
	}
	if from >= end {
		from, indexed = 0, -1
	}
	sc := s.scan(from, end)
	defer sc.close()
	for first := true; sc.next(); first = false {
		if first && indexed >= 0 && sc.batch.LastOffset() != indexed {
			sc.err = &CorruptError{File: s.offsets.path, Position: from, Cause: errIndexDamage}
			break
		}
		if sc.batch.LastOffset() >= offset {
			return Entry{
				Position: sc.position, SizeBytes: sc.sizeBytes,
				BaseOffset: sc.batch.BaseOffset(), LastOffset: sc.batch.LastOffset(),
			}, true, nil
		}
	}
	if sc.err == nil {
		return Entry{}, false, nil
	}
	if from == 0 || !mayRepair || !errors.Is(sc.err, ErrCorrupt) || s.written.Load() {
		return Entry{}, false, sc.err
	}
	// The index sent us to a place that is no batch.
	if err := s.rebuildIndexes(); err != nil {
		return Entry{}, false, err
	}
	return s.find(offset, end, false)
}

// floor returns the position of the last indexed batch at or below offset and its last offset, 0 and -1 when
// none is indexed.
func (s *Segment) floor(offset int64) (position, lastOffset int64, err error) {
	entries, err := s.offsetEntries()
	if err != nil {
		return 0, -1, err
	}
	n := search(entries, offsetEntryBytes, func(b []byte) bool {
		return s.base+int64(offsetEntry(b).RelativeOffset) <= offset
	})
	if n == 0 {
		return 0, -1, nil
	}
	e := offsetEntry(entries[(n-1)*offsetEntryBytes:])
	return int64(e.Position), s.base + int64(e.RelativeOffset), nil
}

// UpperBound returns an offset above all batches that start below position, from the index alone; ok is false
// when the index ends before.
func (s *Segment) UpperBound(position int64) (offset int64, ok bool, err error) {
	for attempt := 1; ; attempt++ {
		entries, err := s.offsetEntries()
		if err != nil {
			return 0, false, err
		}
		n := search(entries, offsetEntryBytes, func(b []byte) bool { return int64(offsetEntry(b).Position) < position })
		if n*offsetEntryBytes == len(entries) {
			return 0, false, nil
		}
		e := offsetEntry(entries[n*offsetEntryBytes:])
		offset = s.base + int64(e.RelativeOffset)
		if attempt > 1 || s.written.Load() || s.isTrue(e) {
			return offset, true, nil
		}
		if err := s.rebuildIndexes(); err != nil {
			return 0, false, err
		}
	}
}

// isTrue tells whether the batch that an index entry names is where it says. The file has no checksum.
func (s *Segment) isTrue(e OffsetIndexEntry) bool {
	sc := s.scan(int64(e.Position), s.size.Load())
	defer sc.close()
	sc.lastSizeBytes = scanChunkBytes // only the header is wanted
	return sc.next() && sc.batch.LastOffset() == s.base+int64(e.RelativeOffset)
}

func (s *Segment) offsetEntries() ([]byte, error) { return s.entries(s.offsets) }

func (s *Segment) timeEntries() ([]byte, error) { return s.entries(s.times) }

// entries loads an index, and rebuilds both when it is damaged.
func (s *Segment) entries(x *index) ([]byte, error) {
	v, err := x.load()
	if err == nil || !errors.Is(err, ErrCorrupt) || s.written.Load() {
		if errors.Is(err, ErrCorrupt) {
			err = nil // the good part will do: the index is sparse
		}
		return v, err
	}
	if err := s.rebuildIndexes(); err != nil {
		return nil, err
	}
	return x.load()
}

// rebuildIndexes makes both indexes anew from the batch headers.
func (s *Segment) rebuildIndexes() error {
	s.repair.Lock()
	defer s.repair.Unlock()
	if err := errors.Join(s.offsets.reset(), s.times.reset()); err != nil {
		return err
	}
	r := rebuild{s: s, largest: TimestampOffset{Timestamp: record.NoTimestamp, Offset: s.base}}
	sc := s.scan(0, s.size.Load())
	defer sc.close()
	for sc.next() {
		if err := r.add(sc.batch, sc.position); err != nil {
			return err
		}
	}
	if sc.err != nil {
		return sc.err
	}
	return r.finish()
}

// rebuild adds the index entries that appending the same batches would have added.
type rebuild struct {
	s         *Segment
	largest   TimestampOffset
	lastEntry int64
}

func (r *rebuild) add(b record.Batch, position int64) error {
	if ts := b.MaxTimestamp(); ts > r.largest.Timestamp {
		r.largest = TimestampOffset{Timestamp: ts, Offset: b.LastOffset()}
	}
	if position-r.lastEntry <= int64(r.s.opts.Load().IndexIntervalBytes) {
		return nil
	}
	r.lastEntry = position
	return r.s.addEntries(b.LastOffset(), position, r.largest)
}

func (r *rebuild) finish() error {
	r.s.max.Store(&r.largest)
	if err := r.s.addTimeEntry(r.largest, true); err != nil {
		return err
	}
	return errors.Join(r.s.offsets.trim(), r.s.times.trim())
}

// NextOffset is the offset after the last batch, the base of an empty segment. It reads from the last index
// entry on.
func (s *Segment) NextOffset() (int64, error) {
	entries, err := s.offsetEntries()
	if err != nil {
		return 0, err
	}
	next, from := s.base, int64(0)
	if n := len(entries); n > 0 {
		last := offsetEntry(entries[n-offsetEntryBytes:])
		from = int64(last.Position)
		if !s.written.Load() && !s.isTrue(last) {
			if err := s.rebuildIndexes(); err != nil {
				return 0, err
			}
			from = 0 // once, and then the indexes are right
		}
	}
	sc := s.scan(from, s.size.Load())
	defer sc.close()
	for sc.next() {
		next = sc.batch.NextOffset()
	}
	return next, sc.err
}

// CollectAborted appends to dst the aborted transactions that overlap [from, to): those whose marker is at or
// above from and that begin below to. complete says that no later segment can add one.
func (s *Segment) CollectAborted(dst []AbortedTxn, from, to int64) (all []AbortedTxn, complete bool, err error) {
	entries, err := s.txns.load()
	if err != nil {
		return dst, false, err
	}
	for _, a := range entries {
		if a.LastOffset >= from && a.FirstOffset < to {
			dst = append(dst, a)
		}
		if a.LastStableOffset >= to {
			return dst, true, nil
		}
	}
	return dst, false, nil
}

// Aborted returns all entries of the transaction index. On the first call it makes sure that they are true of the log,
// for the file has no checksum and consumers with isolation.level=read_committed go by it: each entry costs two or three
// reads of a header.
func (s *Segment) Aborted() ([]AbortedTxn, error) {
	entries, err := s.txns.load()
	if err != nil || s.txns.trusted.Load() {
		return entries, err
	}
	stable := int64(0)
	for i, a := range entries {
		ok, err := s.isTrueAborted(a, stable)
		if err != nil {
			return nil, err
		}
		if !ok {
			return entries[:i], &CorruptError{File: s.txns.path, Position: int64(i * txnEntryBytes), Cause: errIndexDamage}
		}
		stable = a.LastStableOffset
	}
	s.txns.trusted.Store(true)
	return entries, nil
}

// isTrueAborted checks an entry of the transaction index against the batches that it names: the marker, the first of
// the transaction, and the first of the transaction that held back the last stable offset, which never falls. Batches
// that compaction took, or that are in other segments, cannot contradict it.
func (s *Segment) isTrueAborted(a AbortedTxn, stableBefore int64) (bool, error) {
	if a.LastStableOffset > a.LastOffset+1 || a.LastStableOffset < stableBefore || a.LastOffset < s.base {
		return false, nil
	}
	for _, named := range []struct {
		offset int64
		fits   func(b record.Batch) bool
	}{
		{a.LastOffset, func(b record.Batch) bool { return b.IsControl() && b.ProducerID() == a.ProducerID }},
		{a.FirstOffset, func(b record.Batch) bool {
			return b.IsTransactional() && b.ProducerID() == a.ProducerID && b.BaseOffset() == a.FirstOffset
		}},
		{a.LastStableOffset, func(b record.Batch) bool { return b.IsTransactional() && b.BaseOffset() == a.LastStableOffset }},
	} {
		if named.offset < s.base || named.offset == a.LastOffset+1 {
			continue
		}
		b, ok, err := s.headerAt(named.offset)
		if errors.Is(err, ErrCorrupt) {
			continue // the log itself is damaged, which its readers see
		}
		if err != nil {
			return false, err
		}
		if ok && !named.fits(b) || b == nil {
			return false, nil
		}
	}
	return true, nil
}

// BatchBytes returns the size of the batch at a position.
func (s *Segment) BatchBytes(position, end int64) (int64, error) {
	sc := s.scan(position, end)
	defer sc.close()
	sc.lastSizeBytes = scanChunkBytes // only the header is wanted
	if !sc.next() {
		return 0, sc.err
	}
	return sc.sizeBytes, nil
}
