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
	"gregor/storage/vfs"
)

// segmentFor returns the segment that an append belongs into: the active one, or, when that is full, or too old (segment.ms,
// by the timestamps of the batches or, without, by the clock), or its indexes are full, or the offsets are too far from its
// base, a new one, which is not part of the log yet.
func (l *Log) segmentFor(bytes int, a appended) (*segment.Segment, error) {
	full, err := l.activeIsFull(bytes, a)
	if err != nil {
		return nil, err
	}
	if full {
		next, err := l.createNext(max(a.firstOffset, l.w.logEnd))
		if next != nil || err != nil {
			return next, err
		}
	}
	return l.w.active, l.settleWithdrawn()
}

func (l *Log) activeIsFull(bytes int, a appended) (bool, error) {
	active, c := l.w.active, l.config.Load()
	size := active.SizeBytes()
	if size > int64(c.SegmentBytes)-int64(bytes) && size > 0 || !active.Fits(a.lastOffset) {
		return true, nil
	}
	if size == 0 {
		return false, nil
	}
	waited, err := timeWaited(active, a.maxTimestamp)
	if err != nil {
		return false, l.refuse("read", err)
	}
	if waited > c.SegmentMillis-l.w.jitterMillis {
		return true, nil
	}
	indexesFull, err := active.IndexesFull()
	if err != nil {
		return false, l.refuse("read of an index", err)
	}
	return indexesFull, nil
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

// rollAt seals the active segment and creates the one with the given base. With the writer's lock held; the caller
// publishes.
func (l *Log) rollAt(base int64) error {
	next, err := l.createNext(base)
	if next != nil {
		l.commitRoll(next)
	}
	return err
}

// createNext seals the active segment and creates the one that is to follow it, which commitRoll makes part of the log and
// withdraw gives up: before that only the entry that a sealed segment's time index ends with is new, and true. Nil when the
// active segment is the empty one with the base already. With the writer's lock held.
func (l *Log) createNext(base int64) (*segment.Segment, error) {
	w := &l.w
	old := w.active
	if base <= old.Base() {
		if old.SizeBytes() == 0 {
			return nil, nil
		}
		return nil, fmt.Errorf("%w: a segment at %d cannot follow that at %d", ErrUnexpectedOffset, base, old.Base())
	}
	if err := old.SealLater(); err != nil {
		return nil, l.refuse("seal of a segment", err)
	}
	if at, ok := w.producers.LatestSnapshotOffset(); ok && at == base {
		// Nothing was appended since a start or a truncation took the snapshot that is to tell recovery that this
		// segment is whole. Rare, so it may wait.
		if err := l.sealDurably(old); err != nil {
			return nil, l.refuse("seal of a segment", err)
		}
	}
	if w.withdrawn != nil && w.withdrawn.Base() != base {
		if err := l.settleWithdrawn(); err != nil {
			return nil, err
		}
	}
	next, err := segment.Create(w.dir, base, nowMillis(), "", l.segmentOptions())
	if vfs.IsNoSpace(err) {
		l.withdraw(segment.Open(w.dir, base, 0, nowMillis(), "", l.segmentOptions()))
	}
	if err != nil {
		return nil, l.refuse("creation of a segment", err)
	}
	return next, nil
}

// withdraw gives up a segment that did not become part of the log for want of space.
func (l *Log) withdraw(next *segment.Segment) {
	l.w.withdrawn = next
	_ = next.Remove() // settleWithdrawn tries again
}

// settleWithdrawn makes sure that the file of a withdrawn segment does not come back with a crash: before records with its
// offsets go into the segment before it.
func (l *Log) settleWithdrawn() error {
	w := &l.w
	if w.withdrawn == nil {
		return nil
	}
	if err := w.withdrawn.Remove(); err != nil {
		return l.refuse("removal of an unused segment", err)
	}
	if err := l.fs.SyncDir(w.dir); err != nil {
		return l.fail("removal of an unused segment", err)
	}
	w.withdrawn = nil
	return nil
}

// commitRoll makes a created segment the active one. What takes long (producer snapshot, trimming, syncs, the new index
// files) is left to the background. With the writer's lock held; the caller publishes.
func (l *Log) commitRoll(next *segment.Segment) {
	w := &l.w
	old := w.active
	l.flush.filesChanged()
	w.producers.UpdateMapEndOffset(next.Base())
	r := roll{old: old, next: next, snapshot: w.producers.BeginSnapshot(), generation: w.generation}
	w.withdrawn = nil
	w.sealedBytes += old.SizeBytes()
	w.segments = append(slices.Clip(w.segments), next)
	w.active = next
	w.unsealed = append(w.unsealed, old.Base())
	w.jitterMillis = rollJitter(*l.config.Load())
	w.reserveAt = 0
	w.rolls = append(w.rolls, r)
	l.bg.run(l.finishRolls)
}

// roll is what remains to be done for a segment that was sealed.
type roll struct {
	old, next  *segment.Segment
	snapshot   *producer.Snapshot // of the producers at next's base; nil when there is one
	generation int64              // of the log
}

// finishRolls does what is left of the rolls, in their order: a flush takes what lies below a finished one for durable. One
// that finds no space is tried again later, and those after it wait. It runs in the background; truncations wait for it.
func (l *Log) finishRolls() {
	for {
		l.mu.Lock()
		if len(l.w.rolls) == 0 || l.w.closed {
			l.mu.Unlock()
			return
		}
		r := l.w.rolls[0]
		l.mu.Unlock()
		err := l.finishRoll(r)
		if err != nil {
			err = l.refuse("roll", err)
		}
		l.mu.Lock()
		if errors.Is(err, ErrNoSpace) {
			l.retryRolls()
			l.mu.Unlock()
			return
		}
		l.w.rolls = slices.Delete(l.w.rolls, 0, 1)
		l.unlock()
	}
}

// retryRolls has finishRolls run again after a while. With the writer's lock held.
func (l *Log) retryRolls() {
	if l.w.rollTimer != nil || l.w.closed {
		return
	}
	l.w.rollTimer = time.AfterFunc(spaceRetryPause, func() {
		l.mu.Lock()
		defer l.unlock()
		l.w.rollTimer = nil
		if !l.w.closed {
			// With the lock held, so that it does not begin while a truncation counts on idle segments.
			l.bg.run(l.finishRolls)
		}
	})
}

// isGone tells whether background work failed because retention has deleted its segments meanwhile.
func (l *Log) isGone(err error, segments ...*segment.Segment) bool {
	if !errors.Is(err, fs.ErrClosed) && !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.isGoneNow(err, segments...)
}

// isGoneNow is isGone with the writer's lock held.
func (l *Log) isGoneNow(err error, segments ...*segment.Segment) bool {
	return (errors.Is(err, fs.ErrClosed) || errors.Is(err, fs.ErrNotExist)) &&
		slices.ContainsFunc(segments, func(s *segment.Segment) bool { return !slices.Contains(l.w.segments, s) })
}

// finishRoll makes a sealed segment durable. All of it may be done again.
func (l *Log) finishRoll(r roll) error {
	if l.failure.Load() != nil {
		return nil
	}
	if err := l.sealRolled(r, l.isGone); err != nil {
		return err
	}
	l.opts.space.worked()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.noteRolled(r); err != nil {
		return err
	}
	if l.w.closed {
		return nil
	}
	l.publish()
	return nil
}

// sealRolled is the part of finishRoll that writes.
func (l *Log) sealRolled(r roll, gone func(err error, segments ...*segment.Segment) bool) error {
	// Retention may have deleted either of them meanwhile, with all before it.
	if err := r.next.WriteIndexes(); err != nil && !gone(err, r.next) {
		return err
	}
	if err := l.sealDurably(r.old); err != nil && !gone(err, r.old) {
		return err
	}
	if r.snapshot != nil {
		// Last: that it exists tells recovery that the segment before it is whole.
		if err := r.snapshot.Write(); err != nil {
			return err
		}
	}
	return l.saveEpochs() // before the recovery point passes them
}

// noteRolled enters that a sealed segment is durable. With the writer's lock held.
func (l *Log) noteRolled(r roll) error {
	l.flush.advance(r.next.Base(), r.generation)
	l.w.unsealed = slices.DeleteFunc(l.w.unsealed, func(base int64) bool { return base == r.old.Base() })
	if r.snapshot == nil {
		return nil
	}
	return l.w.producers.FinishSnapshot(r.snapshot)
}

// finishRollsNow is finishRolls for a log that is about to be truncated or closed, with the writer's lock held and nothing in
// the background.
func (l *Log) finishRollsNow() error {
	for _, r := range l.w.rolls {
		if err := l.sealRolled(r, l.isGoneNow); err != nil {
			return err
		}
		if err := l.noteRolled(r); err != nil {
			return err
		}
	}
	l.w.rolls = nil
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
	item.timer = time.AfterFunc(delay, func() { l.bg.runAside(func() { l.removeTrash(id) }) })
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
	if err == nil {
		return
	}
	if errors.Is(l.refuse("removal of a deleted segment", err), ErrNoSpace) {
		l.mu.Lock()
		defer l.unlock()
		if !l.w.closed {
			l.discard(item) // some file systems cannot even remove without space
		}
		return
	}
	l.report()
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
