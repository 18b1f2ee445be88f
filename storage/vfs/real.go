package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	filePerm fs.FileMode = 0o644
	dirPerm  fs.FileMode = 0o755
)

// Real is the operating system's file system.
func Real() FS { return realFS{} }

type realFS struct{}

func (realFS) Open(name string) (File, error) { return openReal(name, os.O_RDONLY) }

func (realFS) OpenReadWrite(name string) (File, error) { return openReal(name, os.O_RDWR) }

func (realFS) Create(name string) (File, error) {
	return openReal(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
}

func openReal(name string, flags int) (File, error) {
	f, err := os.OpenFile(name, flags, filePerm)
	if err != nil {
		return nil, err
	}
	return &realFile{f: f}, nil
}

func (realFS) Rename(oldName, newName string) error { return os.Rename(oldName, newName) }

func (realFS) Remove(name string) error { return os.Remove(name) }

func (realFS) RemoveAll(name string) error { return os.RemoveAll(name) }

func (realFS) MkdirAll(dir string) error { return os.MkdirAll(dir, dirPerm) }

func (realFS) ReadDir(dir string) ([]fs.DirEntry, error) { return os.ReadDir(dir) }

func (realFS) Stat(name string) (fs.FileInfo, error) { return os.Stat(name) }

func (realFS) Chmod(name string, mode fs.FileMode) error { return os.Chmod(name, mode) }

func (realFS) SetModTime(name string, t time.Time) error { return os.Chtimes(name, time.Time{}, t) }

func (realFS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	if err := d.Sync(); err != nil {
		_ = d.Close()
		return syncFailed(err)
	}
	return d.Close()
}

func (realFS) OpenVolume(dir string) (Volume, error) {
	if !syncfsTells() {
		return nil, &fs.PathError{Op: "syncfs", Path: dir, Err: errors.ErrUnsupported}
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	return realVolume{&realFile{f: f}}, nil
}

// realVolume is a descriptor of a directory: failures of writes since it was opened are its own to report.
type realVolume struct{ f *realFile }

func (v realVolume) SyncAll() error { return syncFailed(v.f.control("syncfs", syncfs)) }

func (v realVolume) Close() error { return v.f.Close() }

func (realFS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, filePerm)
	if err != nil {
		return nil, err
	}
	if err := lockWhole(f.Fd()); err != nil {
		_ = f.Close()
		return nil, lockError(name, err)
	}
	return f, nil
}

func lockError(name string, err error) error {
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EACCES) {
		err = ErrLocked
	}
	return &fs.PathError{Op: "lock", Path: name, Err: err}
}

func (realFS) DiskUsage(dir string) (totalBytes, usableBytes int64, err error) {
	var st unix.Statfs_t
	if err := retryEINTR(func() error { return unix.Statfs(dir, &st) }); err != nil {
		return 0, 0, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	blockBytes := st.Bsize
	return int64(st.Blocks) * blockBytes, int64(st.Bavail) * blockBytes, nil
}

type realFile struct{ f *os.File }

func (r *realFile) ReadAt(p []byte, off int64) (int, error) { return r.f.ReadAt(p, off) }

func (r *realFile) WriteAt(p []byte, off int64) (int, error) { return r.f.WriteAt(p, off) }

func (r *realFile) Close() error { return r.f.Close() }

func (r *realFile) Name() string { return r.f.Name() }

func (r *realFile) Size() (int64, error) {
	st, err := r.f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

func (r *realFile) Truncate(sizeBytes int64) error { return r.f.Truncate(sizeBytes) }

func (r *realFile) Sync() error {
	return syncFailed(r.control("fdatasync", fdatasync))
}

func (r *realFile) Allocate(offset, lengthBytes int64) error {
	err := r.control("fallocate", func(fd int) error { return fallocateKeepSize(fd, offset, lengthBytes) })
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return nil
	}
	return err
}

func (r *realFile) Advise(offset, lengthBytes int64, advice Advice) {
	// A hint: the only errors are a wrong argument and a file that cannot be advised.
	_ = r.control("fadvise", func(fd int) error { return fadvise(fd, offset, lengthBytes, advice) })
}

func (r *realFile) Fd() (uintptr, bool) {
	// Not os.File.Fd, which would set the descriptor to blocking mode; SyscallConn leaves it alone.
	var fd uintptr
	conn, err := r.f.SyscallConn()
	if err != nil {
		return 0, false
	}
	if err := conn.Control(func(d uintptr) { fd = d }); err != nil {
		return 0, false
	}
	return fd, true
}

// control runs a system call on the descriptor while it is kept from being closed.
func (r *realFile) control(op string, call func(fd int) error) error {
	conn, err := r.f.SyscallConn()
	if err != nil {
		return &fs.PathError{Op: op, Path: r.f.Name(), Err: err}
	}
	var callErr error
	if err := conn.Control(func(fd uintptr) {
		callErr = retryEINTR(func() error { return call(int(fd)) })
	}); err != nil {
		return &fs.PathError{Op: op, Path: r.f.Name(), Err: err}
	}
	if callErr != nil {
		return &fs.PathError{Op: op, Path: r.f.Name(), Err: callErr}
	}
	return nil
}

func retryEINTR(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
