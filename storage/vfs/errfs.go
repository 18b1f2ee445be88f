package vfs

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// OpKind names an operation of FS or File.
type OpKind int

// The operations that hooks and injectors see.
const (
	OpOpen OpKind = iota
	OpCreate
	OpRename
	OpRemove
	OpRemoveAll
	OpMkdir
	OpReadDir
	OpStat
	OpChmod
	OpSetModTime
	OpSyncDir
	OpLock
	OpDiskUsage
	OpRead
	OpWrite
	OpTruncate
	OpSync
	OpAllocate
	OpSyncAll
)

var opNames = [...]string{
	OpOpen: "open", OpCreate: "create", OpRename: "rename", OpRemove: "remove", OpRemoveAll: "removeall",
	OpMkdir: "mkdir", OpReadDir: "readdir", OpStat: "stat", OpChmod: "chmod", OpSetModTime: "setmodtime", OpSyncDir: "syncdir",
	OpLock: "lock", OpDiskUsage: "statfs", OpRead: "read", OpWrite: "write", OpTruncate: "truncate",
	OpSync: "sync", OpAllocate: "allocate", OpSyncAll: "syncall",
}

// String is the name in lower case.
func (k OpKind) String() string {
	if k < 0 || int(k) >= len(opNames) {
		return "unknown"
	}
	return opNames[k]
}

// Op is one operation about to happen.
type Op struct {
	Kind    OpKind
	Name    string // path
	NewName string // of OpRename
	Offset  int64  // of OpRead, OpWrite, OpAllocate; the new size of OpTruncate
	Bytes   int64  // of OpRead, OpWrite, OpAllocate
}

// Injector decides whether an operation fails: a non-nil error is returned instead of doing it. A
// *ShortWrite lets a write happen in part. Injectors are called from many goroutines.
type Injector interface{ Inject(op Op) error }

// InjectorFunc is an Injector made of a function.
type InjectorFunc func(op Op) error

// Inject calls f.
func (f InjectorFunc) Inject(op Op) error { return f(op) }

// ShortWrite is the error of a write of which the first Bytes bytes are done.
type ShortWrite struct {
	Bytes int64
	Err   error
}

func (e *ShortWrite) Error() string { return "short write: " + e.Err.Error() }

// Unwrap is the cause.
func (e *ShortWrite) Unwrap() error { return e.Err }

// Match selects operations.
type Match func(op Op) bool

// MatchKind selects by kind.
func MatchKind(kinds ...OpKind) Match {
	return func(op Op) bool { return slices.Contains(kinds, op.Kind) }
}

// MatchPath selects by a part of the path (or of the new path of a rename).
func MatchPath(part string) Match {
	return func(op Op) bool { return strings.Contains(op.Name, part) || strings.Contains(op.NewName, part) }
}

// And selects what all select.
func (m Match) And(other Match) Match { return func(op Op) bool { return m(op) && other(op) } }

// FailNth fails the nth (from 1) matching operation with err, once.
func FailNth(n int64, err error, match Match) Injector {
	var seen atomic.Int64
	return InjectorFunc(func(op Op) error {
		if match(op) && seen.Add(1) == n {
			return err
		}
		return nil
	})
}

// FailFrom fails the nth (from 1) matching operation and all matching ones after it: a disk that died.
func FailFrom(n int64, err error, match Match) Injector {
	var seen atomic.Int64
	return InjectorFunc(func(op Op) error {
		if match(op) && seen.Add(1) >= n {
			return err
		}
		return nil
	})
}

// DiskFull lets matching writes through until they add up to limitBytes, then answers ENOSPC, with the
// write that crosses the limit done in part. Overwritten bytes count again.
func DiskFull(limitBytes int64, match Match) Injector {
	var mu sync.Mutex
	left := limitBytes
	return InjectorFunc(func(op Op) error {
		if op.Kind != OpWrite && op.Kind != OpAllocate || !match(op) {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		if op.Bytes <= left {
			if op.Kind == OpWrite {
				left -= op.Bytes
			}
			return nil
		}
		if op.Kind == OpAllocate {
			return syscall.ENOSPC
		}
		done := left
		left = 0
		return &ShortWrite{Bytes: done, Err: syscall.ENOSPC}
	})
}

// Switch is an injector that can be exchanged while the file system is in use; its zero value lets all
// through.
type Switch struct{ current atomic.Pointer[Injector] }

// Set replaces the injector; nil lets all through.
func (s *Switch) Set(i Injector) {
	if i == nil {
		s.current.Store(nil)
		return
	}
	s.current.Store(&i)
}

// Inject asks the current injector.
func (s *Switch) Inject(op Op) error {
	if i := s.current.Load(); i != nil {
		return (*i).Inject(op)
	}
	return nil
}

// NewErr wraps a file system with an injector.
func NewErr(inner FS, injector Injector) FS { return &errFS{inner: inner, injector: injector} }

type errFS struct {
	inner    FS
	injector Injector
}

func (e *errFS) inject(op Op) error {
	err := e.injector.Inject(op)
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op.Kind.String(), Path: op.Name, Err: err}
}

func (e *errFS) wrap(f File, err error) (File, error) {
	if err != nil {
		return nil, err
	}
	return &errFile{File: f, fs: e}, nil
}

func (e *errFS) Open(name string) (File, error) {
	if err := e.inject(Op{Kind: OpOpen, Name: name}); err != nil {
		return nil, err
	}
	return e.wrap(e.inner.Open(name))
}

func (e *errFS) OpenReadWrite(name string) (File, error) {
	if err := e.inject(Op{Kind: OpOpen, Name: name}); err != nil {
		return nil, err
	}
	return e.wrap(e.inner.OpenReadWrite(name))
}

func (e *errFS) Create(name string) (File, error) {
	if err := e.inject(Op{Kind: OpCreate, Name: name}); err != nil {
		return nil, err
	}
	return e.wrap(e.inner.Create(name))
}

func (e *errFS) Rename(oldName, newName string) error {
	if err := e.inject(Op{Kind: OpRename, Name: oldName, NewName: newName}); err != nil {
		return err
	}
	return e.inner.Rename(oldName, newName)
}

func (e *errFS) Remove(name string) error {
	if err := e.inject(Op{Kind: OpRemove, Name: name}); err != nil {
		return err
	}
	return e.inner.Remove(name)
}

func (e *errFS) RemoveAll(name string) error {
	if err := e.inject(Op{Kind: OpRemoveAll, Name: name}); err != nil {
		return err
	}
	return e.inner.RemoveAll(name)
}

func (e *errFS) MkdirAll(dir string) error {
	if err := e.inject(Op{Kind: OpMkdir, Name: dir}); err != nil {
		return err
	}
	return e.inner.MkdirAll(dir)
}

func (e *errFS) ReadDir(dir string) ([]fs.DirEntry, error) {
	if err := e.inject(Op{Kind: OpReadDir, Name: dir}); err != nil {
		return nil, err
	}
	return e.inner.ReadDir(dir)
}

func (e *errFS) Stat(name string) (fs.FileInfo, error) {
	if err := e.inject(Op{Kind: OpStat, Name: name}); err != nil {
		return nil, err
	}
	return e.inner.Stat(name)
}

func (e *errFS) Chmod(name string, mode fs.FileMode) error {
	if err := e.inject(Op{Kind: OpChmod, Name: name}); err != nil {
		return err
	}
	return e.inner.Chmod(name, mode)
}

func (e *errFS) SetModTime(name string, t time.Time) error {
	if err := e.inject(Op{Kind: OpSetModTime, Name: name}); err != nil {
		return err
	}
	return e.inner.SetModTime(name, t)
}

func (e *errFS) SyncDir(dir string) error {
	if err := e.inject(Op{Kind: OpSyncDir, Name: dir}); err != nil {
		return syncFailed(err)
	}
	return e.inner.SyncDir(dir)
}

func (e *errFS) OpenVolume(dir string) (Volume, error) {
	v, err := e.inner.OpenVolume(dir)
	if err != nil {
		return nil, err
	}
	return errVolume{Volume: v, fs: e, dir: dir}, nil
}

type errVolume struct {
	Volume
	fs  *errFS
	dir string
}

func (v errVolume) SyncAll() error {
	if err := v.fs.inject(Op{Kind: OpSyncAll, Name: v.dir}); err != nil {
		return syncFailed(err)
	}
	return v.Volume.SyncAll()
}

func (e *errFS) Lock(name string) (io.Closer, error) {
	if err := e.inject(Op{Kind: OpLock, Name: name}); err != nil {
		return nil, err
	}
	return e.inner.Lock(name)
}

func (e *errFS) DiskUsage(dir string) (totalBytes, usableBytes int64, err error) {
	if err := e.inject(Op{Kind: OpDiskUsage, Name: dir}); err != nil {
		return 0, 0, err
	}
	return e.inner.DiskUsage(dir)
}

// errFile hides the descriptor, so that sendfile cannot go around the injector.
type errFile struct {
	File
	fs *errFS
}

func (f *errFile) Fd() (uintptr, bool) { return 0, false }

func (f *errFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.fs.inject(Op{Kind: OpRead, Name: f.Name(), Offset: off, Bytes: int64(len(p))}); err != nil {
		return 0, err
	}
	return f.File.ReadAt(p, off)
}

func (f *errFile) WriteAt(p []byte, off int64) (int, error) {
	err := f.fs.inject(Op{Kind: OpWrite, Name: f.Name(), Offset: off, Bytes: int64(len(p))})
	if err == nil {
		return f.File.WriteAt(p, off)
	}
	var short *ShortWrite
	if !errors.As(err, &short) {
		return 0, err
	}
	n, writeErr := f.File.WriteAt(p[:min(int64(len(p)), short.Bytes)], off)
	if writeErr != nil {
		return n, writeErr
	}
	return n, err
}

func (f *errFile) Truncate(sizeBytes int64) error {
	if err := f.fs.inject(Op{Kind: OpTruncate, Name: f.Name(), Offset: sizeBytes}); err != nil {
		return err
	}
	return f.File.Truncate(sizeBytes)
}

func (f *errFile) Sync() error {
	if err := f.fs.inject(Op{Kind: OpSync, Name: f.Name()}); err != nil {
		return syncFailed(err)
	}
	return f.File.Sync()
}

func (f *errFile) Allocate(offset, lengthBytes int64) error {
	op := Op{Kind: OpAllocate, Name: f.Name(), Offset: offset, Bytes: lengthBytes}
	if err := f.fs.inject(op); err != nil {
		return err
	}
	return f.File.Allocate(offset, lengthBytes)
}

func sortedNames[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
