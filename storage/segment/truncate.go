package segment

import (
	"errors"
	"io/fs"

	"gregor/protocol/record"
	"gregor/storage/vfs"
)

// TruncateTo removes all batches that hold an offset at or above offset (a batch is never cut in two) and the
// index entries with them. generation is the owner's new count of truncations. The file is not synced. By the
// writer.
func (s *Segment) TruncateTo(offset, generation, nowMillis int64) (truncatedBytes int64, err error) {
	size := s.size.Load()
	e, found, err := s.find(offset, size, true)
	if err != nil {
		return 0, err
	}
	if err := s.truncateIndexes(offset); err != nil {
		return 0, err
	}
	if found {
		if err := s.cutLog(e.Position, generation); err != nil {
			return 0, err
		}
		truncatedBytes = size - e.Position
	}
	if s.size.Load() == 0 {
		s.createdMillis = nowMillis
		s.first.Store(unknownTimestamp)
	}
	s.bytesSinceLast = 0
	return truncatedBytes, s.reloadMaxTimestamp()
}

func (s *Segment) truncateIndexes(offset int64) error {
	offsets, err := s.offsetEntries()
	if err != nil {
		return err
	}
	times, err := s.timeEntries()
	if err != nil {
		return err
	}
	keepOffsets := search(offsets, offsetEntryBytes, func(b []byte) bool {
		return s.base+int64(offsetEntry(b).RelativeOffset) < offset
	})
	keepTimes := search(times, timeEntryBytes, func(b []byte) bool {
		return s.base+int64(timeEntry(b).RelativeOffset) < offset
	})
	return errors.Join(s.offsets.keep(keepOffsets), s.times.keep(keepTimes), s.txns.keep(offset))
}

// cutLog shortens the file while no Range reads from it; Ranges that reach beyond learn of it.
func (s *Segment) cutLog(position, generation int64) error {
	s.gate.Lock()
	defer s.gate.Unlock()
	var cuts []cut
	if old := s.cuts.Load(); old != nil {
		cuts = append(cuts, *old...)
	}
	cuts = append(cuts, cut{generation: generation, position: position})
	s.cuts.Store(&cuts)
	s.tail.Store(nil)
	s.reserve.Lock()
	s.allocatedBytes = 0
	s.reserve.Unlock()
	s.size.Store(position)
	return s.log.Truncate(position)
}

// reloadMaxTimestamp finds the largest timestamp that is left: the last time index entry, or a later batch.
func (s *Segment) reloadMaxTimestamp() error {
	times, err := s.timeEntries()
	if err != nil {
		return err
	}
	largest := s.lastTime(times)
	from, _, err := s.floor(largest.Offset)
	if err != nil {
		return err
	}
	sc := s.scan(from, s.size.Load())
	defer sc.close()
	for sc.next() {
		if ts := sc.batch.MaxTimestamp(); ts > largest.Timestamp {
			largest = TimestampOffset{Timestamp: ts, Offset: sc.batch.LastOffset()}
		}
	}
	if sc.err != nil {
		return sc.err
	}
	if s.size.Load() == 0 {
		largest = TimestampOffset{Timestamp: record.NoTimestamp, Offset: s.base}
	}
	s.max.Store(&largest)
	return nil
}

// ChangeSuffix renames the files, e.g. from "" to DeletedSuffix. Files that do not exist are passed over.
func (s *Segment) ChangeSuffix(suffix string) error {
	return s.move(func(p *place) { p.suffix = suffix }, true)
}

// Retire renames the files of a segment that is no longer part of the log to *.deleted and closes them: Ranges
// given out stay readable, new reads fail. That they cannot open the files again matters because a later segment
// with the same base may be retired under the same names. Where the directory has no room for the longer names, the files
// are removed at once: deleting is what makes room.
func (s *Segment) Retire() error {
	err := s.ChangeSuffix(DeletedSuffix)
	if vfs.IsNoSpace(err) {
		if err := s.Remove(); err != nil {
			return err
		}
		// As if they had been renamed: a later Remove must not take those of a segment that has the names by then.
		return s.move(func(p *place) { p.suffix = DeletedSuffix }, false)
	}
	if err != nil {
		return err
	}
	return s.Close()
}

// DirRenamed tells the segment that its directory has another name now.
func (s *Segment) DirRenamed(dir string) error {
	return s.move(func(p *place) { p.dir = dir }, false)
}

func (s *Segment) move(change func(p *place), rename bool) error {
	s.gate.Lock()
	defer s.gate.Unlock()
	old, oldLog := s.place, s.path(LogSuffix)
	change(&s.place)
	if rename {
		if err := s.fs().Rename(oldLog, s.path(LogSuffix)); err != nil {
			s.place = old
			return err
		}
	}
	s.log.Renamed(s.path(LogSuffix))
	return errors.Join(
		s.offsets.rename(s.path(IndexSuffix), rename),
		s.times.rename(s.path(TimeIndexSuffix), rename),
		s.txns.rename(s.path(TxnIndexSuffix), rename))
}

// Remove closes the segment and removes its files. Ranges stay readable.
func (s *Segment) Remove() error {
	s.gate.Lock()
	defer s.gate.Unlock()
	closeErr := s.log.Close()
	if errors.Is(closeErr, fs.ErrClosed) {
		closeErr = nil
	}
	err := s.fs().Remove(s.path(LogSuffix))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, closeErr, s.offsets.remove(), s.times.remove(), s.txns.remove())
}
