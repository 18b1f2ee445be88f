package storage

import (
	"fmt"
	"slices"

	"gregor/storage/segment"
)

// TruncateTo removes all batches that hold an offset at or above offset; the log ends at offset then, or where
// it ended before if that is lower. It is durable when it returns. Ranges that reach beyond answer
// segment.ErrRangeGone. ErrNoSpace says that the lower recovery point, or what a roll has left to do, could not be written
// and nothing is changed; a full disk that stops the change of the files half way fails the log.
func (l *Log) TruncateTo(offset int64) error {
	if offset < 0 {
		return fmt.Errorf("%w: truncation to %d", ErrOffsetOutOfRange, offset)
	}
	l.lockIdle()
	defer l.unlock()
	if err := l.usable(); err != nil {
		return err
	}
	w := &l.w
	if offset >= w.logEnd {
		// A former leader may have an entry for an epoch in which it never appended.
		if l.epochs.truncateEnd(w.logEnd) {
			l.bg.run(l.flushEpochs)
			l.publish()
		}
		return nil
	}
	if offset < w.segments[0].Base() {
		return l.restartAt(offset)
	}
	if err := l.settleWithdrawn(); err != nil {
		return err
	}
	// The producers' snapshots that are taken below say of the segments before them that they are durable.
	if err := l.finishRollsNow(); err != nil {
		return l.refuse("roll", err)
	}
	keep := l.state.Load().floor(offset)
	if err := l.lowerRecoveryPoint(offset); err != nil {
		return err
	}
	gone := w.segments[keep+1:]
	if err := l.deleteSegments(slices.Backward(gone)); err != nil {
		return err
	}
	// The later segments must not come back behind a shorter one.
	if err := l.flush.syncDir(); err != nil {
		return l.fail("sync before truncation", err)
	}
	w.generation++
	active := w.segments[keep]
	if _, err := active.TruncateTo(offset, w.generation, nowMillis()); err != nil {
		return l.fail("truncation", err)
	}
	// Before anything is written anew: half old, half new bytes would be valid batches.
	if err := active.SyncLog(); err != nil {
		return l.fail("sync after truncation", err)
	}
	w.setSegments(slices.Clip(w.segments[:keep+1]))
	w.unsealed = slices.DeleteFunc(w.unsealed, func(base int64) bool { return base >= active.Base() })
	w.reserveAt = 0
	active.SetOptions(l.segmentOptions())
	return l.truncated(offset)
}

// truncated brings everything besides the files to the log's new end.
func (l *Log) truncated(end int64) error {
	w := &l.w
	w.logEnd = end
	w.logStart = min(w.logStart, end)
	w.cleanedTo = min(w.cleanedTo, w.active.Base())
	w.highWatermark = max(min(w.highWatermark, end), w.logStart)
	l.flush.truncated(end, w.generation)
	if err := l.flush.syncDir(); err != nil {
		return l.fail("sync after truncation", err)
	}
	if l.epochs.truncateEnd(end) {
		if err := l.saveEpochs(); err != nil {
			return l.fail("write of the leader epochs", err)
		}
	}
	if err := l.rebuildProducers(false); err != nil {
		return l.fail("reload of the producers", err)
	}
	l.setHighWatermark(w.highWatermark)
	l.publish()
	return nil
}

// lowerRecoveryPoint tells the owner of a lower recovery point. What counts is how far the log was ever synced: the recovery
// point may be held back now (a roll that finds no space), and the owner has written a higher one before.
func (l *Log) lowerRecoveryPoint(offset int64) error {
	if offset >= l.flush.flushed() || l.opts.events.RecoveryPointLowered == nil {
		return nil
	}
	if err := l.opts.events.RecoveryPointLowered(l, offset); err != nil {
		return l.refuse("write of the recovery point", err)
	}
	return nil
}

// TruncateFullyAndStartAt deletes everything; the log is empty then and starts and ends at offset.
func (l *Log) TruncateFullyAndStartAt(offset int64) error {
	if offset < 0 {
		return fmt.Errorf("%w: start at %d", ErrOffsetOutOfRange, offset)
	}
	l.lockIdle()
	defer l.unlock()
	if err := l.usable(); err != nil {
		return err
	}
	return l.restartAt(offset)
}

func (l *Log) restartAt(offset int64) error {
	w := &l.w
	if err := l.settleWithdrawn(); err != nil {
		return err
	}
	// The old records may reach above offset: without a lower point, recovery would take what is written anew
	// there for synced.
	if err := l.lowerRecoveryPoint(min(offset, w.segments[0].Base())); err != nil {
		return err
	}
	if err := l.deleteSegments(slices.Backward(w.segments)); err != nil {
		return err
	}
	if err := l.flush.syncDir(); err != nil {
		return l.fail("sync after truncation", err)
	}
	next, err := segment.Create(w.dir, offset, nowMillis(), "", l.segmentOptions())
	if err != nil {
		return l.fail("creation of a segment", err)
	}
	l.flush.filesChanged()
	if err := w.producers.TruncateFullyAndStartAt(offset); err != nil {
		return l.fail("deletion of producer snapshots", err)
	}
	if l.epochs.clear() {
		if err := l.saveEpochs(); err != nil {
			return l.fail("write of the leader epochs", err)
		}
	}
	w.generation++
	w.setSegments([]*segment.Segment{next})
	w.unsealed, w.rolls, w.reserveAt = nil, nil, 0
	w.cleanedTo = min(w.cleanedTo, offset)
	w.logStart, w.highWatermark, w.logEnd = offset, offset, offset
	l.flush.restart(offset, w.generation)
	if err := l.flush.syncDir(); err != nil {
		return l.fail("sync after truncation", err)
	}
	l.publish()
	return nil
}
