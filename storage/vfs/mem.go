package vfs

import (
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Mem is a file system in memory that knows which part of itself is durable. Crash tells what a power cut
// would leave; Clone copies it cheaply (contents are shared until written), so that a test can crash a
// workload at every single step: OnOp sees each mutating operation before it happens.
type Mem struct {
	onOp atomic.Pointer[func(n int64, op Op)]
	ops  atomic.Int64

	mu   sync.Mutex
	root *memNode
	// pending are the changes of names that no SyncDir has made durable yet, in order.
	pending []nameChange
	locks   map[*memNode]bool
}

// memNode is a file or a directory.
type memNode struct {
	dir  bool
	mode fs.FileMode
	mod  time.Time

	// Directories: the names now, and those on disk.
	names   map[string]*memNode
	durable map[string]*memNode

	// Files: the contents now, and those on disk. Pages are shared between the two and between clones.
	now    content
	synced content
	// generation marks the pages that belong to now alone and may be written in place.
	generation int64
}

// nameChange is one unsynced change in a directory: a rename counts for both directories it touches and is
// never half done.
type nameChange struct {
	dirs    [2]*memNode
	removed string // name that vanishes from dirs[0], or ""
	added   string // name that appears in dirs[1], or ""
	node    *memNode
}

func (c nameChange) touches(dir *memNode) bool { return c.dirs[0] == dir || c.dirs[1] == dir }

func (c nameChange) applyDurable() {
	if c.removed != "" {
		// The name may already hold something newer whose change became durable earlier.
		if c.added == "" || c.dirs[0].durable[c.removed] == c.node {
			delete(c.dirs[0].durable, c.removed)
		}
	}
	if c.added != "" {
		c.dirs[1].durable[c.added] = c.node
	}
}

// NewMem makes an empty file system. Relative and absolute names both start at its root.
func NewMem() *Mem {
	return &Mem{root: newMemDir(), locks: map[*memNode]bool{}}
}

func newMemDir() *memNode {
	return &memNode{
		dir: true, mode: dirPerm, mod: time.Now(),
		names: map[string]*memNode{}, durable: map[string]*memNode{},
	}
}

// OnOp sets a hook that runs before every mutating operation with its number (from 1). It runs on the
// goroutine of the operation without a lock held, so it may Clone and Crash. nil removes it.
func (m *Mem) OnOp(hook func(n int64, op Op)) {
	if hook == nil {
		m.onOp.Store(nil)
		return
	}
	m.onOp.Store(&hook)
}

// Ops is the number of mutating operations so far.
func (m *Mem) Ops() int64 { return m.ops.Load() }

func (m *Mem) announce(op Op) {
	n := m.ops.Add(1)
	if hook := m.onOp.Load(); hook != nil {
		(*hook)(n, op)
	}
}

func split(name string) []string {
	clean := path.Clean("/" + name)
	if clean == "/" {
		return nil
	}
	return strings.Split(clean[1:], "/")
}

func (m *Mem) lookup(name string) (*memNode, error) {
	node := m.root
	for _, part := range split(name) {
		if !node.dir {
			return nil, syscall.ENOTDIR
		}
		next, ok := node.names[part]
		if !ok {
			return nil, fs.ErrNotExist
		}
		node = next
	}
	return node, nil
}

func (m *Mem) parentOf(name string) (dir *memNode, base string, err error) {
	parts := split(name)
	if len(parts) == 0 {
		return nil, "", fs.ErrInvalid
	}
	base = parts[len(parts)-1]
	dir, err = m.lookup(path.Join(parts[:len(parts)-1]...))
	if err != nil {
		return nil, "", err
	}
	if !dir.dir {
		return nil, "", syscall.ENOTDIR
	}
	return dir, base, nil
}

func pathError(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// Open opens an existing file for reading.
func (m *Mem) Open(name string) (File, error) { return m.open(name, false) }

// OpenReadWrite opens an existing file for reading and writing.
func (m *Mem) OpenReadWrite(name string) (File, error) { return m.open(name, true) }

func (m *Mem) open(name string, writable bool) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	node, err := m.lookup(name)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	if node.dir {
		return nil, pathError("open", name, syscall.EISDIR)
	}
	if writable && node.mode&0o200 == 0 {
		return nil, pathError("open", name, fs.ErrPermission)
	}
	return &memFile{mem: m, node: node, name: name, writable: writable}, nil
}

// Create opens a file for reading and writing, creating it or cutting it to 0 bytes.
func (m *Mem) Create(name string) (File, error) {
	m.announce(Op{Kind: OpCreate, Name: name})
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.parentOf(name)
	if err != nil {
		return nil, pathError("create", name, err)
	}
	node := dir.names[base]
	switch {
	case node == nil:
		node = &memNode{mode: filePerm, mod: time.Now(), generation: nextGeneration()}
		m.change(nameChange{dirs: [2]*memNode{dir, dir}, added: base, node: node})
	case node.dir:
		return nil, pathError("create", name, syscall.EISDIR)
	case node.mode&0o200 == 0:
		return nil, pathError("create", name, fs.ErrPermission)
	default:
		node.now = content{}
		node.mod = time.Now()
	}
	return &memFile{mem: m, node: node, name: name, writable: true}, nil
}

// change applies a change of names to the current state and remembers it as not durable.
func (m *Mem) change(c nameChange) {
	if c.removed != "" {
		delete(c.dirs[0].names, c.removed)
	}
	if c.added != "" {
		c.dirs[1].names[c.added] = c.node
	}
	m.pending = append(m.pending, c)
}

// Rename replaces newName.
func (m *Mem) Rename(oldName, newName string) error {
	m.announce(Op{Kind: OpRename, Name: oldName, NewName: newName})
	m.mu.Lock()
	defer m.mu.Unlock()
	oldDir, oldBase, err := m.parentOf(oldName)
	if err != nil {
		return pathError("rename", oldName, err)
	}
	node, ok := oldDir.names[oldBase]
	if !ok {
		return pathError("rename", oldName, fs.ErrNotExist)
	}
	newDir, newBase, err := m.parentOf(newName)
	if err != nil {
		return pathError("rename", newName, err)
	}
	if replaced := newDir.names[newBase]; replaced != nil && replaced != node {
		switch {
		case replaced.dir && !node.dir:
			return pathError("rename", newName, syscall.EISDIR)
		case replaced.dir && len(replaced.names) > 0:
			return pathError("rename", newName, syscall.ENOTEMPTY)
		case !replaced.dir && node.dir:
			return pathError("rename", newName, syscall.ENOTDIR)
		}
	}
	if oldDir == newDir && oldBase == newBase {
		return nil
	}
	m.change(nameChange{dirs: [2]*memNode{oldDir, newDir}, removed: oldBase, added: newBase, node: node})
	return nil
}

// Remove removes a file or an empty directory.
func (m *Mem) Remove(name string) error {
	m.announce(Op{Kind: OpRemove, Name: name})
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.parentOf(name)
	if err != nil {
		return pathError("remove", name, err)
	}
	node, ok := dir.names[base]
	if !ok {
		return pathError("remove", name, fs.ErrNotExist)
	}
	if node.dir && len(node.names) > 0 {
		return pathError("remove", name, syscall.ENOTEMPTY)
	}
	m.change(nameChange{dirs: [2]*memNode{dir, dir}, removed: base, node: node})
	return nil
}

// RemoveAll removes a tree, leaf by leaf: a crash may leave any part of it.
func (m *Mem) RemoveAll(name string) error {
	st, err := m.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if st.IsDir() {
		entries, err := m.ReadDir(name)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := m.RemoveAll(path.Join(name, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := m.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// MkdirAll creates a directory and its missing parents.
func (m *Mem) MkdirAll(dir string) error {
	if st, err := m.Stat(dir); err == nil && st.IsDir() {
		return nil
	}
	m.announce(Op{Kind: OpMkdir, Name: dir})
	m.mu.Lock()
	defer m.mu.Unlock()
	node := m.root
	for _, part := range split(dir) {
		next, ok := node.names[part]
		if !ok {
			next = newMemDir()
			m.change(nameChange{dirs: [2]*memNode{node, node}, added: part, node: next})
		}
		if !next.dir {
			return pathError("mkdir", dir, syscall.ENOTDIR)
		}
		node = next
	}
	return nil
}

// ReadDir lists a directory sorted by name.
func (m *Mem) ReadDir(dir string) ([]fs.DirEntry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	node, err := m.lookup(dir)
	if err != nil {
		return nil, pathError("readdir", dir, err)
	}
	if !node.dir {
		return nil, pathError("readdir", dir, syscall.ENOTDIR)
	}
	entries := make([]fs.DirEntry, 0, len(node.names))
	for name, child := range node.names {
		entries = append(entries, fs.FileInfoToDirEntry(child.info(name)))
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, nil
}

// Stat describes a file or directory.
func (m *Mem) Stat(name string) (fs.FileInfo, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	node, err := m.lookup(name)
	if err != nil {
		return nil, pathError("stat", name, err)
	}
	return node.info(path.Base(name)), nil
}

// Chmod sets the permission bits; they are taken for durable at once.
func (m *Mem) Chmod(name string, mode fs.FileMode) error {
	m.announce(Op{Kind: OpChmod, Name: name})
	m.mu.Lock()
	defer m.mu.Unlock()
	node, err := m.lookup(name)
	if err != nil {
		return pathError("chmod", name, err)
	}
	node.mode = mode.Perm()
	return nil
}

// SetModTime sets the modification time of a file; a crash keeps it.
func (m *Mem) SetModTime(name string, t time.Time) error {
	m.announce(Op{Kind: OpSetModTime, Name: name})
	m.mu.Lock()
	defer m.mu.Unlock()
	node, err := m.lookup(name)
	if err != nil {
		return pathError("chtimes", name, err)
	}
	node.mod = t
	return nil
}

// SyncDir makes the names in dir durable.
func (m *Mem) SyncDir(dir string) error {
	m.announce(Op{Kind: OpSyncDir, Name: dir})
	m.mu.Lock()
	defer m.mu.Unlock()
	node, err := m.lookup(dir)
	if err != nil {
		return pathError("syncdir", dir, err)
	}
	if !node.dir {
		return pathError("syncdir", dir, syscall.ENOTDIR)
	}
	m.pending = slices.DeleteFunc(m.pending, func(c nameChange) bool {
		if !c.touches(node) {
			return false
		}
		c.applyDurable()
		return true
	})
	return nil
}

// OpenVolume opens the whole of it.
func (m *Mem) OpenVolume(dir string) (Volume, error) {
	if _, err := m.Stat(dir); err != nil {
		return nil, err
	}
	return memVolume{m, dir}, nil
}

type memVolume struct {
	mem *Mem
	dir string
}

func (v memVolume) SyncAll() error {
	m := v.mem
	m.announce(Op{Kind: OpSyncAll, Name: v.dir})
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.pending {
		c.applyDurable()
	}
	m.pending = nil
	m.root.syncAll()
	return nil
}

func (memVolume) Close() error { return nil }

// syncAll makes the contents of all files below durable.
func (n *memNode) syncAll() {
	if !n.dir {
		n.synced, n.generation = n.now.share(), nextGeneration()
		return
	}
	for _, child := range n.names {
		child.syncAll()
	}
}

// Lock takes a lock that is held until Close.
func (m *Mem) Lock(name string) (io.Closer, error) {
	if ok, err := Exists(m, name); err != nil {
		return nil, err
	} else if !ok {
		if _, err := m.Create(name); err != nil {
			return nil, err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	node, err := m.lookup(name)
	if err != nil {
		return nil, pathError("lock", name, err)
	}
	if m.locks[node] {
		return nil, pathError("lock", name, ErrLocked)
	}
	m.locks[node] = true
	return &memLock{mem: m, node: node}, nil
}

type memLock struct {
	mem  *Mem
	node *memNode
}

func (l *memLock) Close() error {
	l.mem.mu.Lock()
	defer l.mem.mu.Unlock()
	delete(l.mem.locks, l.node)
	return nil
}

// memTotalBytes is the size that a Mem claims to have.
const memTotalBytes = 1 << 40

// DiskUsage answers 1 TiB, less what the files take.
func (m *Mem) DiskUsage(dir string) (totalBytes, usableBytes int64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.lookup(dir); err != nil {
		return 0, 0, pathError("statfs", dir, err)
	}
	used := int64(0)
	var walk func(node *memNode)
	walk = func(node *memNode) {
		used += node.now.size
		for _, child := range node.names {
			walk(child)
		}
	}
	walk(m.root)
	return memTotalBytes, memTotalBytes - used, nil
}

func (n *memNode) info(name string) fs.FileInfo {
	mode := n.mode
	if n.dir {
		mode |= fs.ModeDir
	}
	return memInfo{name: name, size: n.now.size, mode: mode, mod: n.mod}
}

type memInfo struct {
	name string
	size int64
	mode fs.FileMode
	mod  time.Time
}

func (i memInfo) Name() string       { return i.name }
func (i memInfo) Size() int64        { return i.size }
func (i memInfo) Mode() fs.FileMode  { return i.mode }
func (i memInfo) ModTime() time.Time { return i.mod }
func (i memInfo) IsDir() bool        { return i.mode.IsDir() }
func (i memInfo) Sys() any           { return nil }

// memFile is one opening of a file in memory.
type memFile struct {
	mem      *Mem
	node     *memNode
	name     string
	writable bool
	closed   atomic.Bool
}

func (f *memFile) check(op string, write bool) error {
	if f.closed.Load() {
		return pathError(op, f.name, fs.ErrClosed)
	}
	if write && !f.writable {
		return pathError(op, f.name, syscall.EBADF)
	}
	return nil
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.check("read", false); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, pathError("read", f.name, fs.ErrInvalid)
	}
	f.mem.mu.Lock()
	defer f.mem.mu.Unlock()
	n := f.node.now.readAt(p, off)
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	f.mem.announce(Op{Kind: OpWrite, Name: f.name, Offset: off, Bytes: int64(len(p))})
	if err := f.check("write", true); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, pathError("write", f.name, fs.ErrInvalid)
	}
	f.mem.mu.Lock()
	defer f.mem.mu.Unlock()
	f.node.now.writeAt(p, off, f.node.generation)
	f.node.mod = time.Now()
	return len(p), nil
}

func (f *memFile) Truncate(sizeBytes int64) error {
	f.mem.announce(Op{Kind: OpTruncate, Name: f.name, Offset: sizeBytes})
	if err := f.check("truncate", true); err != nil {
		return err
	}
	if sizeBytes < 0 {
		return pathError("truncate", f.name, fs.ErrInvalid)
	}
	f.mem.mu.Lock()
	defer f.mem.mu.Unlock()
	f.node.now.truncate(sizeBytes, f.node.generation)
	f.node.mod = time.Now()
	return nil
}

func (f *memFile) Sync() error {
	f.mem.announce(Op{Kind: OpSync, Name: f.name})
	if err := f.check("sync", false); err != nil {
		return err
	}
	f.mem.mu.Lock()
	defer f.mem.mu.Unlock()
	f.node.synced = f.node.now.share()
	f.node.generation = nextGeneration()
	return nil
}

func (f *memFile) Allocate(offset, lengthBytes int64) error {
	f.mem.announce(Op{Kind: OpAllocate, Name: f.name, Offset: offset, Bytes: lengthBytes})
	return f.check("allocate", true)
}

func (f *memFile) Advise(int64, int64, Advice) {}

func (f *memFile) Size() (int64, error) {
	if err := f.check("size", false); err != nil {
		return 0, err
	}
	f.mem.mu.Lock()
	defer f.mem.mu.Unlock()
	return f.node.now.size, nil
}

func (f *memFile) Name() string { return f.name }

func (f *memFile) Fd() (uintptr, bool) { return 0, false }

func (f *memFile) Close() error {
	if f.closed.Swap(true) {
		return pathError("close", f.name, fs.ErrClosed)
	}
	return nil
}
