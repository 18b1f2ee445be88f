package vfs

import "sync"

// Batch replaces many files with two syncs of their volume, where each by itself would take two of its own: the new
// contents are written beside the old ones, made durable together, and then get their names. A crash leaves each file
// with its old or its new contents. Replace may be called from any goroutine, Commit once, after it.
type Batch struct {
	fs FS

	mu    sync.Mutex
	names []string
}

// NewBatch makes an empty batch.
func NewBatch(fsys FS) *Batch { return &Batch{fs: fsys} }

// Replace writes NAME.tmp. Nobody else may replace the file before Commit.
func (b *Batch) Replace(name string, contents []byte) error {
	if err := writeUnsynced(b.fs, name+".tmp", contents); err != nil {
		removeIfFull(b.fs, name+".tmp", err)
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.names = append(b.names, name)
	return nil
}

func writeUnsynced(fsys FS, name string, contents []byte) error {
	f, err := fsys.Create(name)
	if err != nil {
		return err
	}
	if len(contents) > 0 {
		if _, err := f.WriteAt(contents, 0); err != nil {
			_ = f.Close()
			return err
		}
	}
	return f.Close()
}

// Discard gives the batch up, instead of Commit or after it has failed: the files that do not have their names yet go.
func (b *Batch) Discard() {
	for _, name := range b.names {
		_ = b.fs.Remove(name + ".tmp")
	}
	b.names = nil
}

// Commit makes durable what was written to the volume, these files under their names included.
func (b *Batch) Commit(v Volume) error {
	if err := v.SyncAll(); err != nil {
		return err
	}
	if len(b.names) == 0 {
		return nil
	}
	for _, name := range b.names {
		if err := b.fs.Rename(name+".tmp", name); err != nil {
			return err
		}
	}
	return v.SyncAll()
}
