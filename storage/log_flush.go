package storage

import (
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"gregor/storage/segment"
	"gregor/storage/vfs"
)

// flusher makes batches durable. Many that wait share one sync (group commit): whoever comes while a sync runs
// waits for it and then, if its batches came too late for it, for the next one, which one of them runs for all.
type flusher struct {
	fs         vfs.FS
	lastMillis atomic.Int64 // when the last sync ended

	mu         sync.Mutex
	done       int64         // everything below is durable
	generation int64         // truncations that done takes into account
	syncing    chan struct{} // closed when the running sync ends; nil when none runs
	dir        string        // to be synced together with its files when dirty
	dirty      int64         // counts creations and renames in dir
	dirDone    int64         // of these, durable
	parent     bool          // dir itself was created
	held       int64         // the recovery point must not pass it, noHold for no such bound
	retrying   bool          // what it is held for will be tried again

	asked   []askedSync // by SyncAppendedThen
	serving bool        // a goroutine serves asked
}

// askedSync is an append that is to be synced, and who is told then.
type askedSync struct {
	info AppendInfo
	done func(error)
}

// noHold stands for no bound of the recovery point.
const noHold = int64(-1)

// hold keeps the recovery point at or below an offset; noHold lets it go. It returns whether the caller is to see to another
// try, and to call retried with it.
func (f *flusher) hold(offset int64) (retry bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held = offset
	retry = offset != noHold && !f.retrying
	f.retrying = f.retrying || retry
	return retry
}

// retried says that the other try that hold has asked for begins.
func (f *flusher) retried() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.retrying = false
}

// passable is what the recovery point may be as far as batches and leader epochs are concerned.
func (f *flusher) passable() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.held != noHold {
		return min(f.done, f.held)
	}
	return f.done
}

func (f *flusher) flushed() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.done
}

// filesChanged notes that names in the directory are not durable.
func (f *flusher) filesChanged() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dirty++
}

// leaveParent leaves it to the owner to make the name of the directory durable.
func (f *flusher) leaveParent() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.parent = false
}

func (f *flusher) dirRenamed(dir string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dir = dir
}

// truncated says that the log ends at offset now.
func (f *flusher) truncated(offset, generation int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.done, f.generation = min(f.done, offset), generation
}

// restart says that the log was replaced by an empty one that starts at offset.
func (f *flusher) restart(offset, generation int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.done, f.generation = offset, generation
}

// advance says that everything below offset is durable, in a log of the given generation.
func (f *flusher) advance(offset, generation int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if generation == f.generation {
		f.done = max(f.done, offset)
	}
	f.lastMillis.Store(nowMillis())
}

// syncDir makes the names in the directory durable, if any changed.
func (f *flusher) syncDir() error { return f.syncNames(func() error { return nil }) }

// syncNames runs a sync of files and, at the same time, makes the names in the directory durable, if any changed, and the
// directory's own: the file system joins the syncs, and the first append of a log waits for one instead of three.
func (f *flusher) syncNames(files func() error) error {
	f.mu.Lock()
	dir, dirty, parent := f.dir, f.dirty, f.parent
	changed := dirty != f.dirDone
	f.mu.Unlock()
	var wg sync.WaitGroup
	var dirErr, parentErr error
	if changed {
		wg.Go(func() { dirErr = f.fs.SyncDir(dir) })
	}
	if parent {
		wg.Go(func() { parentErr = f.fs.SyncDir(filepath.Dir(dir)) })
	}
	err := files()
	wg.Wait()
	if err := errors.Join(dirErr, parentErr); err != nil {
		return err // rather than that of a file which retention has deleted meanwhile
	}
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dirDone = max(f.dirDone, dirty)
	if parent {
		f.parent = false
	}
	return nil
}

// syncSegments syncs the batches of all segments that may hold unsynced ones, and the directory.
func (f *flusher) syncSegments(segments []*segment.Segment) error {
	from := f.flushed()
	return f.syncNames(func() error { return syncFrom(segments, from) })
}

// syncUnsynced is syncSegments when the log, which ends at an offset, stands still, together with one more sync.
func (f *flusher) syncUnsynced(segments []*segment.Segment, end int64, more func() error) error {
	from := f.flushed()
	return f.syncNames(func() error {
		if from < end {
			if err := syncFrom(segments, from); err != nil {
				return err
			}
		}
		return more()
	})
}

func syncFrom(segments []*segment.Segment, from int64) error {
	for i, s := range segments {
		if i+1 < len(segments) && segments[i+1].Base() <= from {
			continue
		}
		if err := s.SyncLog(); err != nil {
			return err
		}
	}
	return nil
}

// Flush returns when all batches below upTo (exclusive, at most the log end) are durable, and the names of the
// files that hold them. A failed sync fails the log.
func (l *Log) Flush(upTo int64) error {
	f := &l.flush
	for {
		if failure := l.failure.Load(); failure != nil {
			return failure
		}
		f.mu.Lock()
		if f.done >= min(upTo, l.state.Load().LogEndOffset) {
			f.mu.Unlock()
			return nil
		}
		if syncing := f.syncing; syncing != nil {
			f.mu.Unlock()
			<-syncing
			continue
		}
		f.syncing = make(chan struct{})
		f.mu.Unlock()
		if err := l.syncAll(); err != nil {
			return err
		}
	}
}

// Syncing tells whether a sync is under way: a Flush that comes now waits for it and for one more.
func (l *Log) Syncing() bool {
	l.flush.mu.Lock()
	defer l.flush.mu.Unlock()
	return l.flush.syncing != nil
}

// SyncAppendedThen is SyncAppended for who cannot wait: done is called with its result, on another goroutine, on which it
// must not wait either. What is asked for while a sync runs shares the next one.
func (l *Log) SyncAppendedThen(info AppendInfo, done func(error)) {
	f := &l.flush
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, askedSync{info: info, done: done})
	if !f.serving {
		f.serving = true
		go l.serveSyncs()
	}
}

// serveSyncs runs until nothing is asked for.
func (l *Log) serveSyncs() {
	f := &l.flush
	for {
		f.mu.Lock()
		asked := f.asked
		f.asked = nil
		f.serving = len(asked) > 0
		f.mu.Unlock()
		if len(asked) == 0 {
			return
		}
		// One sync does for all: the others find that it is done.
		for _, a := range slices.Backward(asked) {
			a.done(l.SyncAppended(a.info))
		}
	}
}

// syncAll is one sync for all that wait.
func (l *Log) syncAll() error {
	f := &l.flush
	s := l.state.Load()
	err := f.syncSegments(s.segments)
	if err == nil {
		err = l.saveEpochs() // below the recovery point nothing else tells the epochs
	}
	if err == nil {
		f.advance(s.LogEndOffset, s.generation)
	}
	if err != nil {
		if l.isGone(err, s.segments...) {
			err = nil // a segment was deleted meanwhile: the next round does without it
		} else {
			err = l.fail("sync", err)
		}
	}
	f.mu.Lock()
	close(f.syncing)
	f.syncing = nil
	f.mu.Unlock()
	if err != nil {
		l.report()
		return err
	}
	l.mu.Lock()
	defer l.unlock()
	if l.w.closed {
		return ErrClosed
	}
	if l.recoveryPoint() != l.state.Load().RecoveryPoint {
		l.publish()
	}
	return nil
}

// LastFlushed returns when batches were last made durable; the time of opening before the first sync.
func (l *Log) LastFlushed() time.Time { return time.UnixMilli(l.flush.lastMillis.Load()) }

// armFlushTimer starts the time of flush.ms for what was just appended. With the writer's lock held.
func (l *Log) armFlushTimer(c *LogConfig) {
	const longestMillis = int64(1<<63-1) / int64(time.Millisecond)
	if c.FlushMillis >= longestMillis || l.w.flushTimer != nil {
		return
	}
	l.w.flushTimer = time.AfterFunc(time.Duration(c.FlushMillis)*time.Millisecond, func() {
		l.mu.Lock()
		l.w.flushTimer = nil
		closed := l.w.closed
		l.unlock()
		if !closed {
			// A failure has been latched and reported by Flush itself.
			_ = l.Flush(l.state.Load().LogEndOffset)
		}
	})
}
