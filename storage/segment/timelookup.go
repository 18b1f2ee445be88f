package segment

import (
	"gregor/protocol/record"
)

// FoundTimestamp is a record found by time.
type FoundTimestamp struct {
	Timestamp   int64
	Offset      int64
	LeaderEpoch int32 // of its batch
}

// OffsetForTimestamp returns the first record at or above minOffset whose timestamp is at least millis, among
// the batches below end. It reads the records of the batches that may hold it.
func (s *Segment) OffsetForTimestamp(millis, minOffset, end int64, lim record.Limits) (FoundTimestamp, bool, error) {
	entries, err := s.timeEntries()
	if err != nil {
		return FoundTimestamp{}, false, err
	}
	// The last entry at or below millis: everything in front of its batch is older.
	from := s.base
	if n := search(entries, timeEntryBytes, func(b []byte) bool { return timeEntry(b).Timestamp <= millis }); n > 0 {
		from += int64(timeEntry(entries[(n-1)*timeEntryBytes:]).RelativeOffset)
	}
	position, _, err := s.floor(max(from, minOffset))
	if err != nil {
		return FoundTimestamp{}, false, err
	}
	if position >= end {
		position = 0
	}
	sc := s.scan(position, end)
	defer sc.close()
	for sc.next() {
		if sc.batch.MaxTimestamp() < millis || sc.batch.LastOffset() < minOffset {
			continue
		}
		b, err := sc.readBatch()
		if err != nil {
			return FoundTimestamp{}, false, err
		}
		for r, err := range b.Records(lim) {
			if err != nil {
				return FoundTimestamp{}, false, &CorruptError{File: s.log.Name(), Position: sc.position, Cause: err}
			}
			if r.Timestamp >= millis && r.Offset >= minOffset {
				return FoundTimestamp{Timestamp: r.Timestamp, Offset: r.Offset, LeaderEpoch: b.LeaderEpoch()}, true, nil
			}
		}
	}
	return FoundTimestamp{}, false, sc.err
}
