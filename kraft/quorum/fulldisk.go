package quorum

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"gregor/storage"
	"gregor/storage/vfs"
)

// fullDiskPause is how long a write that found no space waits for the next try.
const fullDiskPause = 500 * time.Millisecond

// fullDisk makes writes wait for space. What raft has decided must be written before anything else can be done, so the
// machine's goroutine stands still meanwhile: nothing is promised, nothing is committed, and proposals queue up to their
// bound. A leader with followers so loses its leadership to one that has space; the only voter goes on where it was. The
// zero value does not wait: a node that cannot even start for want of space says so and ends.
type fullDisk struct {
	waits  bool
	stop   <-chan struct{} // ends the waiting
	logger *slog.Logger
	dir    string
	said   bool // that writes of the maintenance are put off
}

// isFull tells that a write has changed nothing for want of space. A log that has failed because of it never goes on.
func isFull(err error) bool { return vfs.IsNoSpace(err) && !errors.Is(err, storage.ErrStorage) }

// write calls a write until it finds space. The write must have changed nothing when it finds none.
func (f *fullDisk) write(what string, write func() error) error {
	err := write()
	if !isFull(err) || !f.waits {
		return err
	}
	began := time.Now()
	f.logger.Error("metadata quorum: the disk is full; nothing is committed here until there is space. Free some, or enlarge "+
		"the file system or the quota", "dir", f.dir, "operation", what, "error", err)
	for isFull(err) {
		select {
		case <-f.stop:
			return fmt.Errorf("%w, waiting for space: %w", ErrClosed, err)
		case <-time.After(fullDiskPause):
		}
		err = write()
	}
	if err == nil {
		f.logger.Info("metadata quorum: there is space again", "dir", f.dir, "afterSeconds", int64(time.Since(began).Seconds()))
	}
	return err
}

// putOff leaves out that there is no space for a write that will be tried again anyway, and promises nothing before.
func (f *fullDisk) putOff(err error) error {
	if !isFull(err) {
		if err == nil {
			f.said = false
		}
		return err
	}
	if !f.said {
		f.said = true
		f.logger.Warn("metadata quorum: no space for what is not urgent; trying again", "dir", f.dir, "error", err)
	}
	return nil
}
