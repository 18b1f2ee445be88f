package storage

import (
	"errors"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"sync"

	"gregor/storage/checkpoint"
	"gregor/storage/vfs"
)

// epochCache is the history of leader epochs of a partition: which epoch's records start where (KIP-101). It
// is kept in leader-epoch-checkpoint. It has its own lock, so that questions about epochs do not wait for
// appends.
//
// Invariant: entries ascend strictly in both epoch and start offset.
type epochCache struct {
	fs vfs.FS
	// end is where the log ends: epochs that start there have no record, and come into the file with the clean stop only,
	// since opening the log drops them. Nil, while the log is being loaded, for no such bound.
	end func() int64

	mu      sync.RWMutex
	entries []EpochEntry

	fileMu sync.Mutex // one write at a time; taken before mu
	path   string
	// saved is what the file holds; savedKnown is false after a write that failed.
	saved      []EpochEntry
	savedKnown bool
}

func loadEpochs(fsys vfs.FS, dir string) (*epochCache, error) {
	c := &epochCache{fs: fsys, path: filepath.Join(dir, checkpoint.LeaderEpochFile)}
	entries, err := checkpoint.ReadEpochs(fsys, c.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.savedKnown = true // no file says the same as an empty one
		return c, nil
	case errors.Is(err, checkpoint.ErrSyntax):
		return nil, &CorruptError{File: c.path, Cause: err}
	case err != nil:
		return nil, err
	}
	for _, e := range entries {
		c.assignLocked(e)
	}
	c.saved, c.savedKnown = entries, true
	return c, nil
}

// assign notes that an epoch starts at an offset, unless it is the newest one already. Entries that contradict
// it (an epoch or a start at or above its own) go. It tells whether anything changed.
func (c *epochCache) assign(epoch int32, startOffset int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.assignLocked(EpochEntry{Epoch: epoch, StartOffset: startOffset})
}

func (c *epochCache) assignLocked(e EpochEntry) bool {
	if e.Epoch < 0 || e.StartOffset < 0 {
		return false
	}
	if n := len(c.entries); n > 0 && c.entries[n-1].Epoch == e.Epoch && e.StartOffset >= c.entries[n-1].StartOffset {
		return false
	}
	keep := len(c.entries)
	for keep > 0 && (c.entries[keep-1].Epoch >= e.Epoch || c.entries[keep-1].StartOffset >= e.StartOffset) {
		keep--
	}
	c.entries = append(slices.Clone(c.entries[:keep]), e)
	return true
}

// latest returns the newest entry's epoch, -1 without one.
func (c *epochCache) latest() int32 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if n := len(c.entries); n > 0 {
		return c.entries[n-1].Epoch
	}
	return -1
}

// view returns the entries, not to be changed, for restore.
func (c *epochCache) view() []EpochEntry {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.entries
}

// restore takes back what was assigned since view.
func (c *epochCache) restore(entries []EpochEntry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries = entries
}

func (c *epochCache) all() []EpochEntry {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.Clone(c.entries)
}

// endOffset returns the newest epoch at or below the asked one and where it ends; (-1, -1) when the epoch is
// unknown here: negative, or above all that is known.
func (c *epochCache) endOffset(epoch int32, logEnd int64) (found int32, end int64) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	n := len(c.entries)
	if epoch < 0 || n == 0 {
		return -1, -1
	}
	if c.entries[n-1].Epoch == epoch {
		return epoch, logEnd
	}
	next := slices.IndexFunc(c.entries, func(e EpochEntry) bool { return e.Epoch > epoch })
	switch next {
	case -1:
		return -1, -1
	case 0:
		// Older than all that is known: it ended where the first known one starts.
		return epoch, c.entries[0].StartOffset
	}
	return c.entries[next-1].Epoch, c.entries[next].StartOffset
}

// forOffset returns the epoch of the record at an offset.
func (c *epochCache) forOffset(offset int64) (int32, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, v := range slices.Backward(c.entries) {
		if v.StartOffset <= offset {
			return v.Epoch, true
		}
	}
	return -1, false
}

// truncateEnd removes the entries that start at or above the log's new end.
func (c *epochCache) truncateEnd(end int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	keep := len(c.entries)
	for keep > 0 && c.entries[keep-1].StartOffset >= end {
		keep--
	}
	if keep == len(c.entries) {
		return false
	}
	c.entries = slices.Clone(c.entries[:keep])
	return true
}

// truncateStart removes the entries that end at or below the log's new start; the one that holds it starts
// there.
func (c *epochCache) truncateStart(start int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	holder := -1
	for holder+1 < len(c.entries) && c.entries[holder+1].StartOffset <= start {
		holder++
	}
	if holder < 0 || holder == 0 && c.entries[0].StartOffset == start {
		return false
	}
	c.entries = slices.Clone(c.entries[holder:])
	c.entries[0].StartOffset = start
	return true
}

func (c *epochCache) clear() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.entries) == 0 {
		return false
	}
	c.entries = nil
	return true
}

// flush makes the newest entries durable, as far as they have records.
func (c *epochCache) flush() error {
	c.fileMu.Lock()
	defer c.fileMu.Unlock()
	end := int64(math.MaxInt64)
	if c.end != nil {
		end = c.end()
	}
	entries := c.all()
	for len(entries) > 0 && entries[len(entries)-1].StartOffset >= end {
		entries = entries[:len(entries)-1]
	}
	return c.write(entries, func(name string, b []byte) error { return vfs.WriteFileAtomic(c.fs, name, b) })
}

// replace writes all entries, for a clean stop. A crash before that is durable leaves the old file, which is as good: what
// it does not have yet are epochs of records above the recovery point, or of none.
func (c *epochCache) replace(replace replacer) error {
	c.fileMu.Lock()
	defer c.fileMu.Unlock()
	return c.write(c.all(), replace)
}

// write writes the file if it holds something else. With fileMu held.
func (c *epochCache) write(entries []EpochEntry, replace replacer) error {
	if c.savedKnown && slices.Equal(entries, c.saved) {
		return nil
	}
	c.savedKnown = false
	if err := replace(c.path, checkpoint.EncodeEpochs(entries)); err != nil {
		return err
	}
	c.saved, c.savedKnown = entries, true
	return nil
}

func (c *epochCache) setDir(dir string) {
	c.fileMu.Lock()
	defer c.fileMu.Unlock()
	c.path = filepath.Join(dir, checkpoint.LeaderEpochFile)
}
