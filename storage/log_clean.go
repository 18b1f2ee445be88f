package storage

import (
	"errors"
	"path/filepath"
	"slices"
	"time"

	"gregor/storage/cleaner"
	"gregor/storage/segment"
	"gregor/storage/vfs"
)

// Segments returns the segments for the cleaner and tiered storage, ascending; the last one is written to.
func (l *Log) Segments() []*segment.Segment { return slices.Clone(l.state.Load().segments) }

// SegmentOptions returns the options to create segments for ReplaceSegments with.
func (l *Log) SegmentOptions() segment.Options { return l.segmentOptions() }

// Generation counts truncations; see ReplaceSegments.
func (s *State) Generation() int64 { return s.generation }

// ReplaceSegments puts cleaned segments, written under segment.CleanedSuffix and closed for writing, in place
// of consecutive sealed ones with the same records. A crash at any moment leaves either the old ones or, by the
// .swap files, the new ones: the new ones from when the lowest has become .swap, which it does last. Several are the pieces of
// one that is split.
// A truncation since generation (of the State that the old ones come from) makes the new ones void:
// ErrOffsetOutOfRange. ErrNoSpace says that there was no room for their names: they are gone, the old ones are in place.
func (l *Log) ReplaceSegments(cleaned, old []*segment.Segment, generation int64) error {
	l.lockSettled()
	defer l.unlock()
	if err := l.usable(); err != nil {
		return err
	}
	w := &l.w
	if w.generation != generation {
		return ErrOffsetOutOfRange
	}
	at := slices.Index(w.segments, old[0])
	if at < 0 || at+len(old) >= len(w.segments) || !slices.Equal(w.segments[at:at+len(old)], old) {
		return ErrOffsetOutOfRange // deleted meanwhile
	}
	if err := l.beginSwap(cleaned); err != nil {
		return l.refuse("swap of cleaned segments", err)
	}
	if err := l.swapIn(cleaned, old); err != nil {
		return l.fail("swap of cleaned segments", err)
	}
	segments := slices.Concat(w.segments[:at], cleaned, w.segments[at+len(old):])
	w.setSegments(segments)
	l.publish()
	return nil
}

// beginSwap makes cleaned segments ready to be swapped in by whoever opens the log next. Where the directory has no room
// for that they are removed, and it is as if there had been none.
func (l *Log) beginSwap(cleaned []*segment.Segment) error {
	for _, s := range cleaned {
		if err := s.SyncAll(); err != nil {
			return err
		}
	}
	for _, s := range slices.Backward(cleaned) {
		if err := s.ChangeSuffix(segment.SwapSuffix); err != nil {
			if vfs.IsNoSpace(err) {
				err = errors.Join(err, l.removeCleaned(cleaned))
			}
			return err
		}
		// In this order on disk, too.
		if err := l.fs.SyncDir(l.w.dir); err != nil {
			return err
		}
	}
	return nil
}

// removeCleaned removes segments that are not swapped in. The lowest, which makes the others void, goes last.
func (l *Log) removeCleaned(cleaned []*segment.Segment) (err error) {
	for _, s := range slices.Backward(cleaned) {
		err = errors.Join(err, s.Remove(), l.fs.SyncDir(l.w.dir))
	}
	return err
}

// swapIn puts the .swap files in place of the old ones.
func (l *Log) swapIn(cleaned, old []*segment.Segment) error {
	bases := map[int64]bool{}
	for _, s := range cleaned {
		bases[s.Base()] = true
	}
	for _, s := range old {
		if err := s.Retire(); err != nil {
			return err
		}
		l.discard(trashItem{segment: s})
		if bases[s.Base()] {
			continue
		}
		path, ok, err := l.w.producers.MarkSnapshotDeleted(s.Base())
		if err != nil {
			return err
		}
		if ok {
			l.discard(trashItem{file: filepath.Base(path)})
		}
	}
	for _, s := range cleaned {
		if err := s.ChangeSuffix(""); err != nil {
			return err
		}
	}
	return l.fs.SyncDir(l.w.dir)
}

// setCleanedTo notes where the next cleaning starts, unless the log was truncated since generation.
func (l *Log) setCleanedTo(offset, generation int64) error {
	l.mu.Lock()
	defer l.unlock()
	if err := l.usable(); err != nil {
		return err
	}
	if l.w.generation != generation {
		return cleaner.ErrAborted
	}
	l.w.cleanedTo = offset
	l.publish()
	return nil
}

// cleanable is a log as the cleaner sees it.
type cleanable struct {
	m *Manager
	l *Log
	d *logDir
}

var _ cleaner.Log = cleanable{}

// Name implements cleaner.Log.
func (c cleanable) Name() string { return c.l.topicPartition().String() }

// Dir implements cleaner.Log.
func (c cleanable) Dir() string { return c.d.path }

// View implements cleaner.Log.
func (c cleanable) View() cleaner.View {
	s, config := c.l.State(), c.l.config.Load()
	return cleaner.View{
		Offsets:  cleaner.Offsets{LogStart: s.LogStartOffset, LastStable: s.LastStableOffset, LogEnd: s.LogEndOffset, CleanedTo: s.CleanedTo},
		Segments: s.segments, Generation: s.generation,
		Policy: cleaner.Policy{
			Delete: config.CleanupDelete, MinDirtyRatio: config.MinCleanableDirtyRatio, MinLagMillis: config.MinCompactionLagMillis,
			MaxLagMillis: config.MaxCompactionLagMillis, DeleteRetentionMillis: config.DeleteRetentionMillis,
			SegmentBytes: config.SegmentBytes, SegmentIndexBytes: config.SegmentIndexBytes,
			MaxDecompressedBytes: int64(config.MaxDecompressedMessageBytes),
		},
	}
}

// Check implements cleaner.Log.
func (c cleanable) Check(v *cleaner.View) error {
	if c.l.Err() != nil || c.l.state.Load().generation != v.Generation || !c.l.config.Load().CleanupCompact {
		return cleaner.ErrAborted
	}
	return nil
}

// HighWatermark implements cleaner.Log.
func (c cleanable) HighWatermark() int64 { return c.l.State().HighWatermark }

// LastRecords implements cleaner.Log.
func (c cleanable) LastRecords() map[int64]cleaner.LastRecord {
	states := c.l.ActiveProducers()
	last := make(map[int64]cleaner.LastRecord, len(states))
	for i := range states {
		last[states[i].ProducerID] = cleaner.LastRecord{LastOffset: states[i].LastOffset(), Epoch: states[i].Epoch}
	}
	return last
}

// Flush implements cleaner.Log.
func (c cleanable) Flush(upTo int64) error { return abortedIfGone(c.l.Flush(upTo)) }

// Create implements cleaner.Log.
func (c cleanable) Create(base int64) (*segment.Segment, error) {
	dir, o := c.l.Dir(), c.l.segmentOptions()
	s, err := segment.Create(dir, base, nowMillis(), segment.CleanedSuffix, o)
	if vfs.IsNoSpace(err) {
		err = errors.Join(err, segment.Open(dir, base, 0, nowMillis(), segment.CleanedSuffix, o).Remove())
	}
	return s, err
}

// Replace implements cleaner.Log.
func (c cleanable) Replace(v *cleaner.View, cleaned *segment.Segment, old []*segment.Segment) error {
	return swapped(c.l.ReplaceSegments([]*segment.Segment{cleaned}, old, v.Generation))
}

// Split implements cleaner.Log.
func (c cleanable) Split(v *cleaner.View, s *segment.Segment) (ok bool, err error) {
	ok, err = c.l.splitOverflowed(s, v.Generation)
	return ok, swapped(err)
}

// SetCleanedTo implements cleaner.Log.
func (c cleanable) SetCleanedTo(v *cleaner.View, offset int64) error {
	if err := c.l.setCleanedTo(offset, v.Generation); err != nil {
		return abortedIfGone(err)
	}
	_ = c.m.checkpointCleaned(c.d) // dealt with; the next one tries again
	return nil
}

// DeleteOldSegments implements cleaner.Log.
func (c cleanable) DeleteOldSegments(now time.Time) error {
	_, err := c.l.DeleteOldSegments(now)
	if errors.Is(err, ErrNoSpace) {
		return nil // the directory has said so, and there will be another time
	}
	return abortedIfGone(err)
}

// NoSpace implements cleaner.Log.
func (c cleanable) NoSpace(err error) { _ = c.l.refuse("cleaning", err) }

// Fail implements cleaner.Log.
func (c cleanable) Fail(err error) {
	_ = c.l.fail("cleaning", err)
	c.l.report()
}

// swapped is abortedIfGone for the end of a swap. One that has failed may have begun: what is new must stay for the next
// start, which finishes it.
func swapped(err error) error {
	if errors.Is(err, ErrStorage) {
		return err
	}
	return abortedIfGone(err)
}

// abortedIfGone translates what a log answers that was truncated, closed or has failed, which it has reported
// itself.
func abortedIfGone(err error) error {
	if errors.Is(err, ErrOffsetOutOfRange) || errors.Is(err, ErrClosed) || errors.Is(err, ErrStorage) {
		return errors.Join(cleaner.ErrAborted, err)
	}
	return err
}
