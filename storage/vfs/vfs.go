// Package vfs is the only way to files: an interface with a real implementation, one in memory that
// models what a power cut leaves behind, and one that injects errors.
//
// Durability follows POSIX: File.Sync makes the bytes of a file durable, FS.SyncDir makes the names in a
// directory durable (creations, renames and removals). Neither implies the other. Errors are those of
// io/fs (test with errors.Is against fs.ErrNotExist, fs.ErrExist, syscall.ENOSPC, ...).
package vfs

import (
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"time"
)

// ErrLocked says that another process (or another opener in this one) holds the lock file.
var ErrLocked = errors.New("file is locked by another opener")

// FS is a file system. Names are slash-separated paths as the operating system takes them. All methods may
// be called from several goroutines.
type FS interface {
	// Open opens an existing file for reading.
	Open(name string) (File, error)
	// OpenReadWrite opens an existing file for reading and writing, keeping its contents.
	OpenReadWrite(name string) (File, error)
	// Create opens a file for reading and writing, creating it (mode 0644) or cutting it to 0 bytes.
	Create(name string) (File, error)
	// Rename replaces newName atomically; directories may be renamed too. Durable after SyncDir of the parent.
	Rename(oldName, newName string) error
	// Remove removes a file or an empty directory.
	Remove(name string) error
	// RemoveAll removes a tree; a missing name is no error.
	RemoveAll(name string) error
	// MkdirAll creates a directory (mode 0755) and its missing parents.
	MkdirAll(dir string) error
	// ReadDir lists a directory sorted by name.
	ReadDir(dir string) ([]fs.DirEntry, error)
	// Stat describes a file or directory.
	Stat(name string) (fs.FileInfo, error)
	// Chmod sets the permission bits.
	Chmod(name string, mode fs.FileMode) error
	// SetModTime sets the modification time of a file. It need not survive a power cut.
	SetModTime(name string, t time.Time) error
	// SyncDir makes creations, renames and removals in dir durable.
	SyncDir(dir string) error
	// OpenVolume opens the file system that holds dir, to sync it as a whole. The error wraps errors.ErrUnsupported where
	// that cannot be done, or would not tell of failures.
	OpenVolume(dir string) (Volume, error)
	// Lock creates name when missing and takes an exclusive advisory lock on it, released by Close (which
	// keeps the file). It answers ErrLocked when somebody else holds it.
	Lock(name string) (io.Closer, error)
	// DiskUsage tells the size of the file system that holds dir, and how much of it is free to us, in bytes.
	DiskUsage(dir string) (totalBytes, usableBytes int64, err error)
}

// Volume is a file system as a whole.
type Volume interface {
	// SyncAll makes everything durable that has been written into the file system, by anybody: contents and names. It
	// answers an error when any write has failed since OpenVolume.
	SyncAll() error
	io.Closer
}

// File is an open file. Reads and writes name their position, so that one descriptor serves many
// goroutines; a write of one goroutine is not ordered against that of another.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Name is the path the file was opened under; a later rename does not change it.
	Name() string
	// Size is the current length in bytes.
	Size() (int64, error)
	// Truncate cuts or extends (with zeros) the file.
	Truncate(sizeBytes int64) error
	// Sync makes the contents and the length durable (fdatasync). After an error, a *SyncError, the data must be
	// taken for lost: a second Sync may answer nil without having written anything.
	Sync() error
	// Allocate reserves blocks for [offset, offset+length) without changing the length
	// (fallocate KEEP_SIZE). A file system that cannot do so answers nil; a full one answers ENOSPC.
	Allocate(offset, lengthBytes int64) error
	// Advise tells the kernel how [offset, offset+length) will be read; length 0 means to the end. A hint
	// that cannot be given is no error.
	Advise(offset, lengthBytes int64, advice Advice)
	// Fd is the descriptor for sendfile, valid until Close; ok is false when there is none.
	Fd() (fd uintptr, ok bool)
}

// Advice is a hint about the coming accesses.
type Advice int

// The hints of posix_fadvise that are of use to a log.
const (
	AdviseNormal     Advice = iota // undo the others
	AdviseSequential               // read ahead more
	AdviseWillNeed                 // start reading now
	AdviseDontNeed                 // drop from the page cache
)

// ReadFile reads a whole file.
func ReadFile(fsys FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	b := make([]byte, size)
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return b[:n], nil
}

// WriteFile creates or replaces a file and syncs its contents; neither atomic nor durable by name.
func WriteFile(fsys FS, name string, b []byte) error {
	f, err := fsys.Create(name)
	if err != nil {
		return err
	}
	if len(b) > 0 {
		if _, err := f.WriteAt(b, 0); err != nil {
			_ = f.Close()
			return err
		}
	}
	if err := f.Sync(); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}

// WriteFileAtomic replaces a file so that a crash leaves either the old or the new contents: NAME.tmp is
// written and synced, renamed over name, and the directory is synced. Without space (IsNoSpace) the old file stays and
// NAME.tmp goes.
func WriteFileAtomic(fsys FS, name string, b []byte) error {
	if err := ReplaceFile(fsys, name, b); err != nil {
		return err
	}
	return fsys.SyncDir(filepath.Dir(name))
}

// ReplaceFile is WriteFileAtomic without the sync of the directory, which the caller does for several files at once.
func ReplaceFile(fsys FS, name string, b []byte) error {
	tmp := name + ".tmp"
	err := WriteFile(fsys, tmp, b)
	if err == nil {
		err = fsys.Rename(tmp, name)
	}
	removeIfFull(fsys, tmp, err)
	return err
}

// Exists tells whether name exists.
func Exists(fsys FS, name string) (bool, error) {
	_, err := fsys.Stat(name)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	default:
		return false, err
	}
}
