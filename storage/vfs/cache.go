package vfs

import (
	"io/fs"
	"sync"
)

// Cache bounds the number of open descriptors: files are used through Handles, which open their file on
// first use and lose the descriptor to a more recently used one when maxOpen is reached. A file in use
// (pinned) is never closed, so the bound may be passed by as many files as are in use at one moment.
//
// Files without unsynced writes are closed first. Closing one with unsynced writes is safe on Linux (4.16 and
// later): Sync on the reopened file writes all dirty pages and reports an error that nobody has seen yet.
type Cache struct {
	fs      FS
	maxOpen int

	mu      sync.Mutex
	idle    Handle // head of the ring of those that are open and unpinned, most recently used first
	open    int    // descriptors held, pinned and idle
	evicted int64  // descriptors closed to make room, ever
}

// evictScanHandles is how far from the cold end a clean file is looked for before a dirty one is closed.
const evictScanHandles = 16

// NewCache makes a cache of at most maxOpen idle descriptors over fsys.
func NewCache(fsys FS, maxOpen int) *Cache {
	c := &Cache{fs: fsys, maxOpen: max(maxOpen, 1)}
	c.idle.newer, c.idle.older = &c.idle, &c.idle
	return c
}

// FS is the file system below.
func (c *Cache) FS() FS { return c.fs }

// CacheStats counts descriptors.
type CacheStats struct {
	Open    int   // held now
	Evicted int64 // closed to make room, ever
}

// Stats tells the current counts.
func (c *Cache) Stats() CacheStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return CacheStats{Open: c.open, Evicted: c.evicted}
}

// Handle names a file that exists, without opening it.
func (c *Cache) Handle(name string) *Handle { return &Handle{cache: c, name: name} }

// Adopt hands an open read-write file (usually one just created) to the cache.
func (c *Cache) Adopt(f File) *Handle {
	h := &Handle{cache: c, name: f.Name(), file: f}
	c.mu.Lock()
	c.open++
	c.addIdle(h)
	victims := c.evictLocked()
	c.mu.Unlock()
	closeAll(victims)
	return h
}

// addIdle makes h the most recently used of the idle ones. The caller holds mu.
func (c *Cache) addIdle(h *Handle) {
	h.newer, h.older = &c.idle, c.idle.older
	c.idle.older.newer = h
	c.idle.older = h
}

// removeIdle takes h out of the idle ones if it is there. The caller holds mu.
func (c *Cache) removeIdle(h *Handle) {
	if h.older == nil {
		return
	}
	h.newer.older, h.older.newer = h.older, h.newer
	h.newer, h.older = nil, nil
}

// Handle is a File whose descriptor comes and goes. Every method pins it for the length of the call;
// Acquire and Release pin it for longer (sendfile, many reads in a row).
type Handle struct {
	cache *Cache

	opening sync.Mutex // held while the file is being opened, so that it is opened once

	// All below is guarded by cache.mu.
	name   string
	file   File    // nil when not open
	newer  *Handle // neighbors among the idle ones,
	older  *Handle // set exactly when file != nil and pins == 0
	pins   int
	dirty  bool // written since the last successful Sync
	closed bool
}

var _ File = (*Handle)(nil)

// Acquire opens the file if need be and keeps it open until Release.
func (h *Handle) Acquire() (File, error) { return h.acquire(false) }

// acquire is Acquire, and marks the file as written to if that is what it is acquired for.
func (h *Handle) acquire(write bool) (File, error) {
	if f, err := h.tryPin(write); f != nil || err != nil {
		return f, err
	}
	h.opening.Lock()
	defer h.opening.Unlock()
	if f, err := h.tryPin(write); f != nil || err != nil {
		return f, err
	}
	c := h.cache
	f, err := c.fs.OpenReadWrite(h.Name())
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	if h.closed {
		c.mu.Unlock()
		_ = f.Close()
		return nil, h.errClosed()
	}
	h.file = f
	h.pins = 1
	h.dirty = h.dirty || write
	c.open++
	victims := c.evictLocked()
	c.mu.Unlock()
	closeAll(victims)
	return f, nil
}

func (h *Handle) tryPin(write bool) (File, error) {
	c := h.cache
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.closed {
		return nil, h.errClosedLocked()
	}
	if h.file == nil {
		return nil, nil
	}
	c.removeIdle(h)
	h.pins++
	h.dirty = h.dirty || write
	return h.file, nil
}

// Release undoes one Acquire.
func (h *Handle) Release() {
	c := h.cache
	c.mu.Lock()
	if h.pins <= 0 {
		c.mu.Unlock()
		panic("vfs: Release without Acquire: " + h.name)
	}
	h.pins--
	var victims []File
	if h.pins == 0 {
		if h.closed {
			victims = append(victims, h.file)
			h.file = nil
			c.open--
		} else {
			c.addIdle(h)
			victims = c.evictLocked()
		}
	}
	c.mu.Unlock()
	closeAll(victims)
}

// evictLocked takes idle files out of the cache until the bound holds or none is idle; the caller closes them
// after unlocking.
func (c *Cache) evictLocked() []File {
	var victims []File
	for c.open > c.maxOpen && c.idle.newer != &c.idle {
		h := c.idle.newer // the least recently used, since the ring closes at its head
		for i, probe := 0, h; i < evictScanHandles && probe != &c.idle; i, probe = i+1, probe.newer {
			if !probe.dirty {
				h = probe
				break
			}
		}
		c.removeIdle(h)
		victims = append(victims, h.file)
		h.file = nil
		c.open--
		c.evicted++
	}
	return victims
}

func closeAll(files []File) {
	for _, f := range files {
		// Closing writes nothing back; what matters is reported by Sync.
		_ = f.Close()
	}
}

// Close gives up the descriptor, at once or when the last user releases it. The handle cannot be used again.
func (h *Handle) Close() error {
	c := h.cache
	c.mu.Lock()
	if h.closed {
		c.mu.Unlock()
		return h.errClosed()
	}
	h.closed = true
	var f File
	if h.file != nil && h.pins == 0 {
		c.removeIdle(h)
		f, h.file = h.file, nil
		c.open--
	}
	c.mu.Unlock()
	if f == nil {
		return nil
	}
	return f.Close()
}

// Renamed tells the handle that the file (or a directory above it) has been renamed, so that it can be
// opened again. The caller renames and calls Renamed while nobody else acquires the handle.
func (h *Handle) Renamed(name string) {
	h.cache.mu.Lock()
	defer h.cache.mu.Unlock()
	h.name = name
}

// Name is the current path.
func (h *Handle) Name() string {
	h.cache.mu.Lock()
	defer h.cache.mu.Unlock()
	return h.name
}

// ReadAt reads from the file.
func (h *Handle) ReadAt(p []byte, off int64) (int, error) {
	f, err := h.Acquire()
	if err != nil {
		return 0, err
	}
	defer h.Release()
	return f.ReadAt(p, off)
}

// WriteAt writes to the file.
func (h *Handle) WriteAt(p []byte, off int64) (int, error) {
	f, err := h.acquire(true)
	if err != nil {
		return 0, err
	}
	defer h.Release()
	return f.WriteAt(p, off)
}

// Size tells the length of the file.
func (h *Handle) Size() (int64, error) {
	f, err := h.Acquire()
	if err != nil {
		return 0, err
	}
	defer h.Release()
	return f.Size()
}

// Truncate cuts or extends the file.
func (h *Handle) Truncate(sizeBytes int64) error {
	f, err := h.acquire(true)
	if err != nil {
		return err
	}
	defer h.Release()
	return f.Truncate(sizeBytes)
}

// Sync makes the contents durable.
func (h *Handle) Sync() error {
	f, err := h.Acquire()
	if err != nil {
		return err
	}
	defer h.Release()
	// Cleared first: a write that races with the sync must leave the mark set.
	h.setDirty(false)
	if err := f.Sync(); err != nil {
		h.setDirty(true)
		return err
	}
	return nil
}

// Allocate reserves blocks.
func (h *Handle) Allocate(offset, lengthBytes int64) error {
	f, err := h.Acquire()
	if err != nil {
		return err
	}
	defer h.Release()
	return f.Allocate(offset, lengthBytes)
}

// Advise passes on a hint; it lasts as long as the descriptor.
func (h *Handle) Advise(offset, lengthBytes int64, advice Advice) {
	f, err := h.Acquire()
	if err != nil {
		return
	}
	defer h.Release()
	f.Advise(offset, lengthBytes, advice)
}

// Fd answers false: a descriptor is only safe to use between Acquire and Release, on the file that
// Acquire gave.
func (h *Handle) Fd() (uintptr, bool) { return 0, false }

func (h *Handle) setDirty(dirty bool) {
	h.cache.mu.Lock()
	h.dirty = dirty
	h.cache.mu.Unlock()
}

func (h *Handle) errClosed() error {
	h.cache.mu.Lock()
	defer h.cache.mu.Unlock()
	return h.errClosedLocked()
}

func (h *Handle) errClosedLocked() error {
	return &fs.PathError{Op: "use", Path: h.name, Err: fs.ErrClosed}
}
