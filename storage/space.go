package storage

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"gregor/storage/vfs"
)

const (
	// spaceRetryPause is how long what a log could not write in the background waits for the next try.
	spaceRetryPause = 5 * time.Second
	// spaceBackAfter is how long nothing must have been refused before a directory counts as having space again: on one that
	// is nearly full, small appends fit where large ones do not.
	spaceBackAfter = 5 * time.Second
)

// spaceWatch knows whether a directory's file system is full, as its writers have met it. It says so once, and once when it
// is over, however many of them were refused meanwhile.
type spaceWatch struct {
	fs  vfs.FS
	log *slog.Logger
	dir string

	full atomic.Bool

	mu      sync.Mutex // all below
	since   time.Time
	last    time.Time // of a refusal
	refused int64
}

func newSpaceWatch(fsys vfs.FS, log *slog.Logger, dir string) *spaceWatch {
	return &spaceWatch{fs: fsys, log: log, dir: dir}
}

// met notes that an operation found no space.
func (w *spaceWatch) met(op, path string, cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = time.Now()
	w.refused++
	if w.full.Swap(true) {
		return
	}
	w.since, w.refused = w.last, 1
	free := int64(-1)
	// The failure of a statistic says nothing of the data.
	if _, usable, err := w.fs.DiskUsage(w.dir); err == nil {
		free = usable
	}
	w.log.Error("Log directory is full: what does not fit is refused (producers get KAFKA_STORAGE_ERROR) or waits, the directory "+
		"stays online and goes on when there is space. Delete records or topics, lower the retention, or enlarge the file system or the quota",
		"dir", w.dir, "operation", op, "path", path, "usableBytes", free, "error", cause)
}

// worked notes that a write found space. It is called with every append: without a full disk it costs one load.
func (w *spaceWatch) worked() {
	if !w.full.Load() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if !w.full.Load() || now.Sub(w.last) < spaceBackAfter {
		return
	}
	w.full.Store(false)
	w.log.Info("Log directory has space again", "dir", w.dir, "afterSeconds", int64(now.Sub(w.since).Seconds()), "refused", w.refused)
}

// refuse is fail for an operation that has left the log as it was, or as good as that, when it failed: where that was for
// want of space nothing is latched, and the error is an ErrNoSpace.
func (l *Log) refuse(op string, cause error) error {
	if !vfs.IsNoSpace(cause) || errors.Is(cause, ErrStorage) {
		return l.fail(op, cause)
	}
	l.opts.space.met(op, l.opts.dir, cause)
	return &NoSpaceError{Op: op, Dir: l.opts.dir, Cause: cause}
}

// refuse sorts out the failure of an operation that has left the directory as it was: an ErrNoSpace, or an ErrStorage, for
// dirFailed.
func (d *logDir) refuse(op string, cause error) error {
	if !vfs.IsNoSpace(cause) || errors.Is(cause, ErrStorage) {
		return storageErrorf(d.path, op, cause)
	}
	d.space.met(op, d.path, cause)
	return &NoSpaceError{Op: op, Dir: d.path, Cause: cause}
}

// saveEpochs makes the leader epochs durable before the recovery point passes their records. Without space the recovery
// point stays where it is until they are: above it recovery learns the epochs from the batches, which are durable.
func (l *Log) saveEpochs() error {
	err := l.epochs.flush()
	switch {
	case err == nil:
		l.flush.hold(noHold)
	case vfs.IsNoSpace(err):
		_ = l.refuse("write of the leader epochs", err) // told; nothing is refused to anybody
		if l.flush.hold(l.state.Load().RecoveryPoint) {
			time.AfterFunc(spaceRetryPause, l.retryEpochs)
		}
		err = nil
	}
	return err
}

// retryEpochs tries to write the leader epochs that the recovery point waits for.
func (l *Log) retryEpochs() {
	l.flush.retried()
	l.mu.Lock()
	defer l.unlock()
	if l.w.closed {
		return
	}
	l.bg.run(func() {
		l.flushEpochs()
		l.mu.Lock()
		defer l.unlock()
		if !l.w.closed && l.recoveryPoint() != l.state.Load().RecoveryPoint {
			l.publish()
		}
	})
}
