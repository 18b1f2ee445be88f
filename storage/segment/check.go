package segment

import (
	"bytes"
	"fmt"
)

// rebuiltIndexes is what the batches of a segment say that its indexes must be.
type rebuiltIndexes struct {
	lastOffsets   map[int64]int64 // by the position of the batch
	maxTimestamps map[int64]int64 // by the last offset of the batch that raised the maximum
	offsets       []byte
	times         []byte
}

// CheckIndexes reads all batches and checks that every index entry is true of them; with exact, that the indexes
// are what a rebuild gives. It is for tests and offline checks.
func (s *Segment) CheckIndexes(exact bool) error {
	offsets, err := s.offsets.load()
	if err != nil {
		return err
	}
	times, err := s.times.load()
	if err != nil {
		return err
	}
	want, err := s.rebuild()
	if err != nil {
		return err
	}
	if err := want.agree(s.base, offsets, times); err != nil {
		return err
	}
	if exact && (!bytes.Equal(offsets, want.offsets) || !bytes.Equal(times, want.times)) {
		return fmt.Errorf("indexes %x %x differ from rebuilt ones %x %x", offsets, times, want.offsets, want.times)
	}
	return nil
}

// rebuild reads the whole segment.
func (s *Segment) rebuild() (*rebuiltIndexes, error) {
	r := &rebuiltIndexes{lastOffsets: map[int64]int64{}, maxTimestamps: map[int64]int64{}}
	largest, lastEntry := TimestampOffset{Timestamp: -1, Offset: s.base}, int64(0)
	sc := s.scan(0, s.size.Load())
	defer sc.close()
	for sc.next() {
		last := sc.batch.LastOffset()
		r.lastOffsets[sc.position] = last
		if ts := sc.batch.MaxTimestamp(); ts > largest.Timestamp {
			largest = TimestampOffset{Timestamp: ts, Offset: last}
			r.maxTimestamps[last] = ts
		}
		if sc.position-lastEntry > int64(s.opts.Load().IndexIntervalBytes) {
			r.offsets = OffsetIndexEntry{RelativeOffset: int32(last - s.base), Position: int32(sc.position)}.append(r.offsets)
			r.noteTime(s.base, largest)
			lastEntry = sc.position
		}
	}
	r.noteTime(s.base, largest)
	return r, sc.err
}

// noteTime adds an entry of the time index, unless the last one says as much.
func (r *rebuiltIndexes) noteTime(base int64, largest TimestampOffset) {
	before := int64(-1)
	if n := len(r.times); n > 0 {
		before = timeEntry(r.times[n-timeEntryBytes:]).Timestamp
	}
	if largest.Timestamp > before {
		r.times = TimeIndexEntry{Timestamp: largest.Timestamp, RelativeOffset: int32(largest.Offset - base)}.append(r.times)
	}
}

// agree checks each entry of the indexes by the batches.
func (r *rebuiltIndexes) agree(base int64, offsets, times []byte) error {
	for at := 0; at < len(offsets); at += offsetEntryBytes {
		e := offsetEntry(offsets[at:])
		if last, ok := r.lastOffsets[int64(e.Position)]; !ok || last != base+int64(e.RelativeOffset) {
			return fmt.Errorf("offset index entry %+v: the batch there ends with %d (%t)", e, last, ok)
		}
	}
	for at := 0; at < len(times); at += timeEntryBytes {
		e := timeEntry(times[at:])
		if ts, ok := r.maxTimestamps[base+int64(e.RelativeOffset)]; !ok || ts != e.Timestamp {
			return fmt.Errorf("time index entry %v: the largest timestamp there is %d (%t)", e, ts, ok)
		}
	}
	return nil
}
