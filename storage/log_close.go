package storage

import (
	"errors"

	"gregor/storage/vfs"
)

// replacer replaces a file so that a crash leaves its old or its new contents.
type replacer func(name string, contents []byte) error

// closing says how a clean stop makes the files of a log durable.
type closing struct {
	// batch collects what many logs write, for the caller to commit; nil to have each log sync its own files.
	batch *vfs.Batch
	// named says that the caller makes the name of the directory durable.
	named bool
}

func (c closing) replacer(fsys vfs.FS) replacer {
	if c.batch != nil {
		return c.batch.Replace
	}
	return func(name string, contents []byte) error { return vfs.ReplaceFile(fsys, name, contents) }
}

// Close stops the log cleanly: everything is synced, the indexes are cut to their entries, a producer snapshot
// at the log end is written. Ranges handed out stay readable. Without space for that the log is closed uncleanly.
func (l *Log) Close() error { return l.close(closing{}) }

// close is Close. With a batch nothing is durable yet when it returns; closedDurably is to be called when it is.
func (l *Log) close(c closing) error {
	l.lockIdle()
	defer l.unlock()
	w := &l.w
	if w.closed {
		return ErrClosed
	}
	w.stop()
	if f := l.failure.Load(); f != nil {
		return errors.Join(f, l.closeFiles())
	}
	if c.named {
		l.flush.leaveParent()
	}
	if err := l.closeClean(c); err != nil {
		return errors.Join(l.refuse("clean close", err), l.closeFiles())
	}
	l.publish()
	return l.closeFiles()
}

func (l *Log) closeClean(c closing) error {
	w, replace := &l.w, c.replacer(l.fs)
	if err := l.topicID.write(replace); err != nil {
		return err
	}
	if err := l.settleWithdrawn(); err != nil {
		return err
	}
	if l.unchanged() {
		return l.epochs.replace(replace) // all that can be new are epochs without records
	}
	if err := l.finishRollsNow(); err != nil {
		return err
	}
	if err := l.unlessDamaged(w.active.SealLater()); err != nil {
		return err
	}
	trim := w.active.Trim
	if l.config.Load().KeepActiveIndexSize {
		trim = w.active.WriteIndexes
	}
	if err := l.unlessDamaged(trim()); err != nil {
		return err
	}
	if err := l.epochs.replace(replace); err != nil {
		return err
	}
	l.flush.hold(noHold)
	if snapshot := w.producers.BeginSnapshot(); snapshot != nil {
		if err := replace(snapshot.File()); err != nil {
			return err
		}
		if err := w.producers.FinishSnapshot(snapshot); err != nil {
			return err
		}
	}
	if c.batch != nil {
		return nil
	}
	// One sync of the directory for all that has got its name in it.
	l.flush.filesChanged()
	if err := l.flush.syncUnsynced(w.segments, w.logEnd, w.active.SyncTrimmed); err != nil {
		return err
	}
	l.flush.advance(w.logEnd, w.generation)
	return nil
}

// closedDurably tells a log that was closed with a batch that all of it is durable.
func (l *Log) closedDurably() {
	l.mu.Lock()
	defer l.unlock()
	if l.failure.Load() != nil {
		return
	}
	l.flush.advance(l.w.logEnd, l.w.generation)
	l.publish()
}

// unchanged tells whether the files of a log that was opened after a clean stop are as that left them.
func (l *Log) unchanged() bool {
	s := l.state.Load()
	return l.opened != nil && s.sameFiles(l.opened) && s.LogEndOffset == l.opened.LogEndOffset && !l.w.active.Changed()
}

// stop ends the timers. What they would have done is done by the next start.
func (w *writer) stop() {
	w.closed = true
	if w.flushTimer != nil {
		w.flushTimer.Stop()
	}
	if w.rollTimer != nil {
		w.rollTimer.Stop()
	}
	w.trash.stop()
}

func (l *Log) closeFiles() error {
	var err error
	for _, s := range l.w.segments {
		err = errors.Join(err, s.Close())
	}
	return err
}

// CloseUnclean gives up the descriptors and writes nothing: for a log whose directory failed or is about to be
// removed.
func (l *Log) CloseUnclean() {
	l.lockIdle()
	defer l.unlock()
	if l.w.closed {
		return
	}
	l.w.stop()
	// Nothing is written any more, so there is nothing that closing could lose.
	_ = l.closeFiles()
}

// Delete closes the log and removes its directory.
func (l *Log) Delete() error {
	l.CloseUnclean()
	l.mu.Lock()
	defer l.unlock()
	if err := l.topicID.removeDir(func() error { return l.fs.RemoveAll(l.w.dir) }); err != nil {
		return l.fail("removal of the directory", err)
	}
	return nil
}
