package segment

import (
	"errors"
	"slices"

	"gregor/protocol/record"
)

// FoundTimestamp is a record found by time.
type FoundTimestamp struct {
	Timestamp   int64
	Offset      int64
	LeaderEpoch int32 // of its batch
}

// timeFloor returns the last entry of the time index at or below a time: everything in front of its batch is older.
func (s *Segment) timeFloor(millis int64) (TimestampOffset, error) {
	for attempt := 1; ; attempt++ {
		entries, err := s.timeEntries()
		if err != nil {
			return TimestampOffset{}, err
		}
		n := search(entries, timeEntryBytes, func(b []byte) bool { return timeEntry(b).Timestamp <= millis })
		found := s.lastTime(entries[:n*timeEntryBytes])
		if repaired, err := s.repairTimes(found); err != nil || !repaired || attempt > 1 {
			return found, err
		}
	}
}

// repairTimes rebuilds the indexes when an entry of the time index is false, and tells whether it has. The file has no
// checksum, but the batch that an entry names must have its timestamp. (Kafka before 3.8 noted the record, not the last
// of its batch.) The index of a segment that is written comes from memory.
func (s *Segment) repairTimes(e TimestampOffset) (repaired bool, err error) {
	if e.Timestamp == record.NoTimestamp || s.written.Load() {
		return false, nil
	}
	b, ok, err := s.headerAt(e.Offset)
	if errors.Is(err, ErrCorrupt) {
		return false, nil // the log itself is damaged, which its readers see
	}
	if err != nil || ok && b.MaxTimestamp() == e.Timestamp {
		return false, err
	}
	if err := s.rebuildIndexes(); errors.Is(err, ErrCorrupt) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	return true, nil
}

// headerAt returns the header of the first batch that ends at or above an offset; ok is false when it does not hold the
// offset, as after compaction, or when there is none.
func (s *Segment) headerAt(offset int64) (header record.Batch, ok bool, err error) {
	e, ok, err := s.Find(offset, s.size.Load())
	if err != nil || !ok {
		return nil, false, err
	}
	sc := s.scan(e.Position, e.Position+e.SizeBytes)
	defer sc.close()
	if !sc.next() {
		return nil, false, sc.err
	}
	return slices.Clone(sc.batch), e.BaseOffset <= offset || sc.batch.Magic() < 2, nil
}

// OffsetForTimestamp returns the first record at or above minOffset whose timestamp is at least millis, among
// the batches below end. It reads the records of the batches that may hold it.
func (s *Segment) OffsetForTimestamp(millis, minOffset, end int64, lim record.Limits) (FoundTimestamp, bool, error) {
	from, err := s.timeFloor(millis)
	if err != nil {
		return FoundTimestamp{}, false, err
	}
	first, ok, err := s.find(max(from.Offset, minOffset), end, true)
	if err != nil || !ok {
		return FoundTimestamp{}, false, err
	}
	sc := s.scan(first.Position, end)
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
