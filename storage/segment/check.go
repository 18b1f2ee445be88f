package segment

import (
	"bytes"
	"fmt"
)

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
	var wantOffsets, wantTimes []byte
	lastAt := map[int64]int64{}
	largest, lastEntry := TimestampOffset{Timestamp: -1, Offset: s.base}, int64(0)
	noteTime := func() {
		if n := len(wantTimes); n == 0 && largest.Timestamp >= 0 || n > 0 && timeEntry(wantTimes[n-timeEntryBytes:]).Timestamp < largest.Timestamp {
			wantTimes = TimeIndexEntry{Timestamp: largest.Timestamp, RelativeOffset: int32(largest.Offset - s.base)}.append(wantTimes)
		}
	}
	sc := s.scan(0, s.size.Load())
	defer sc.close()
	maxAt := map[int64]int64{}
	for sc.next() {
		lastAt[sc.position] = sc.batch.LastOffset()
		if ts := sc.batch.MaxTimestamp(); ts > largest.Timestamp {
			largest = TimestampOffset{Timestamp: ts, Offset: sc.batch.LastOffset()}
			maxAt[largest.Offset] = ts
		}
		if sc.position-lastEntry > int64(s.opts.Load().IndexIntervalBytes) {
			wantOffsets = OffsetIndexEntry{RelativeOffset: int32(sc.batch.LastOffset() - s.base), Position: int32(sc.position)}.append(wantOffsets)
			noteTime()
			lastEntry = sc.position
		}
	}
	if sc.err != nil {
		return sc.err
	}
	noteTime()
	for at := 0; at < len(offsets); at += offsetEntryBytes {
		e := offsetEntry(offsets[at:])
		if last, ok := lastAt[int64(e.Position)]; !ok || last != s.base+int64(e.RelativeOffset) {
			return fmt.Errorf("offset index entry %+v: the batch there ends with %d (%t)", e, last, ok)
		}
	}
	for at := 0; at < len(times); at += timeEntryBytes {
		e := timeEntry(times[at:])
		if ts, ok := maxAt[s.base+int64(e.RelativeOffset)]; !ok || ts != e.Timestamp {
			return fmt.Errorf("time index entry %v: the largest timestamp there is %d (%t)", e, ts, ok)
		}
	}
	if exact && (!bytes.Equal(offsets, wantOffsets) || !bytes.Equal(times, wantTimes)) {
		return fmt.Errorf("indexes %x %x differ from rebuilt ones %x %x", offsets, times, wantOffsets, wantTimes)
	}
	return nil
}
