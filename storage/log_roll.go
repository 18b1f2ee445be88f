package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"time"

	"gregor/storage/producer"
	"gregor/storage/segment"
)

// rollIfFull starts a new segment when the append does not belong into the active one: it is full, or too old
// (segment.ms, by the timestamps of the batches or, without, by the clock), or its indexes are full, or the
// offsets are too far from its base.
func (l *Log) rollIfFull(bytes int, a appended) error {
	active, c := l.w.active, l.config.Load()
	size := active.SizeBytes()
	full := size > int64(c.SegmentBytes)-int64(bytes) && size > 0 || !active.Fits(a.lastOffset)
	if !full && size > 0 {
		waited, err := timeWaited(active, a.maxTimestamp)
		if err != nil {
			return l.fail("read", err)
		}
		full = waited > c.SegmentMillis-l.w.jitterMillis
	}
	if !full {
		indexesFull, err := active.IndexesFull()
		if err != nil {
			return l.fail("read of an index", err)
		}
		full = indexesFull && size > 0
	}
	if !full {
		return nil
	}
	return l.rollAt(max(a.firstOffset, l.w.logEnd))
}

// timeWaited is how long the segment has been filled when a batch with this timestamp comes.
func timeWaited(s *segment.Segment, timestamp int64) (millis int64, err error) {
	first, ok, err := s.FirstTimestamp()
	if err != nil {
		return 0, err
	}
	if ok && first >= 0 {
		return timestamp - first, nil
	}
	return nowMillis() - s.CreatedMillis(), nil
}

// Roll starts a new segment unless the active one is empty.
func (l *Log) Roll() error {
	l.mu.Lock()
	defer l.unlock()
	if err := l.usable(); err != nil {
		return err
	}
	if l.w.active.SizeBytes() == 0 {
		return nil
	}
	if err := l.rollAt(l.w.logEnd); err != nil {
		return err
	}
	l.publish()
	return nil
}

// rollAt seals the active segment and creates the one with the given base. What takes long (producer snapshot,
// trimming, syncs, the new index files) is left to the background. With the writer's lock held; the caller
// publishes.
func (l *Log) rollAt(base int64) error {
	w := &l.w
	old := w.active
	if base <= old.Base() {
		if old.SizeBytes() == 0 {
			return nil // an empty segment that is there already
		}
		return fmt.Errorf("%w: a segment at %d cannot follow that at %d", ErrUnexpectedOffset, base, old.Base())
	}
	if err := old.SealLater(); err != nil {
		return l.fail("seal of a segment", err)
	}
	if at, ok := w.producers.LatestSnapshotOffset(); ok && at == base {
		// Nothing was appended since a start or a truncation took the snapshot that is to tell recovery that this
		// segment is whole. Rare, so it may wait.
		if err := l.sealDurably(old); err != nil {
			return l.fail("seal of a segment", err)
		}
	}
	next, err := segment.Create(w.dir, base, nowMillis(), "", l.segmentOptions())
	if err != nil {
		return l.fail("creation of a segment", err)
	}
	l.flush.filesChanged()
	w.producers.UpdateMapEndOffset(base)
	snapshot := w.producers.BeginSnapshot()
	w.sealedBytes += old.SizeBytes()
	w.segments = append(slices.Clip(w.segments), next)
	w.active = next
	w.unsealed = append(w.unsealed, old.Base())
	w.jitterMillis = rollJitter(*l.config.Load())
	w.reserveAt = 0
	generation := w.generation
	l.bg.run(func() {
		if err := l.finishRoll(old, next, snapshot, generation); err != nil {
			_ = l.fail("roll", err)
			l.report()
		}
	})
	return nil
}

// isGone tells whether background work failed because retention has deleted its segments meanwhile.
func (l *Log) isGone(err error, segments ...*segment.Segment) bool {
	if !errors.Is(err, fs.ErrClosed) && !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(segments, func(s *segment.Segment) bool { return !slices.Contains(l.w.segments, s) })
}

// finishRoll makes a sealed segment durable. It runs in the background; truncations wait for it.
func (l *Log) finishRoll(old, next *segment.Segment, snapshot *producer.Snapshot, generation int64) error {
	if l.failure.Load() != nil {
		return nil
	}
	// Retention may have deleted either of them meanwhile, with all before it.
	if err := next.WriteIndexes(); err != nil && !l.isGone(err, next) {
		return err
	}
	if err := l.sealDurably(old); err != nil && !l.isGone(err, old) {
		return err
	}
	if snapshot != nil {
		// Last: that it exists tells recovery that the segment before it is whole.
		if err := snapshot.Write(); err != nil {
			return err
		}
	}
	if err := l.epochs.flush(); err != nil { // before the recovery point passes them
		return err
	}
	l.flush.advance(next.Base(), generation)
	l.mu.Lock()
	defer l.mu.Unlock()
	if snapshot != nil {
		if err := l.w.producers.FinishSnapshot(snapshot); err != nil {
			return err
		}
	}
	l.w.unsealed = slices.DeleteFunc(l.w.unsealed, func(base int64) bool { return base == old.Base() })
	if l.w.closed {
		return nil
	}
	l.publish()
	return nil
}

func (l *Log) sealDurably(s *segment.Segment) error {
	if err := s.Trim(); err != nil {
		return err
	}
	if err := s.SyncAll(); err != nil {
		return err
	}
	return l.flush.syncDir()
}

// trash is what waits for file.delete.delay.ms, renamed to *.deleted.
type trash struct {
	next  int
	items map[int]trashItem
}

type trashItem struct {
	timer   *time.Timer
	segment *segment.Segment // or
	file    string           // name within the directory
}

func (t *trash) stop() {
	for _, item := range t.items {
		item.timer.Stop() // the next start removes the files
	}
	t.items = nil
}

func (t *trash) dirRenamed(dir string) {
	for item := range maps.Values(t.items) {
		if item.segment != nil {
			// Only notes the path.
			_ = item.segment.DirRenamed(dir)
		}
	}
}

// discard removes an item after file.delete.delay.ms. With the writer's lock held.
func (l *Log) discard(item trashItem) {
	w := &l.w
	id := w.trash.next
	w.trash.next++
	if w.trash.items == nil {
		w.trash.items = map[int]trashItem{}
	}
	const longestMillis = math.MaxInt64 / int64(time.Millisecond)
	delay := time.Duration(min(l.config.Load().FileDeleteDelayMillis, longestMillis)) * time.Millisecond
	item.timer = time.AfterFunc(delay, func() { l.bg.run(func() { l.removeTrash(id) }) })
	w.trash.items[id] = item
}

func (l *Log) removeTrash(id int) {
	l.mu.Lock()
	item, ok := l.w.trash.items[id]
	delete(l.w.trash.items, id)
	dir := l.w.dir
	l.unlock()
	if !ok || l.failure.Load() != nil {
		return
	}
	var err error
	if item.segment != nil {
		err = item.segment.Remove()
	} else {
		err = removeIfExists(l.fs, filepath.Join(dir, item.file))
	}
	if err != nil {
		_ = l.fail("removal of a deleted segment", err)
		l.report()
	}
}

// deleteSegments renames the files of segments that are no longer part of the log to *.deleted, in the order
// given, and has them removed later. The order must leave no hole in the log after a crash half way. With the
// writer's lock held.
func (l *Log) deleteSegments(gone iter.Seq2[int, *segment.Segment]) error {
	for _, s := range gone {
		if err := s.Retire(); err != nil {
			return l.fail("deletion of a segment", err)
		}
		l.discard(trashItem{segment: s})
		l.w.unsealed = slices.DeleteFunc(l.w.unsealed, func(base int64) bool { return base == s.Base() })
		path, ok, err := l.w.producers.MarkSnapshotDeleted(s.Base())
		if err != nil {
			return l.fail("deletion of a producer snapshot", err)
		}
		if ok {
			l.discard(trashItem{file: filepath.Base(path)})
		}
	}
	l.flush.filesChanged()
	return nil
}
