//go:build unix && !linux

package vfs

import (
	"io"

	"golang.org/x/sys/unix"
)

// lockWhole takes two locks: flock keeps out another opener in this process, the process-wide one is what Java's
// FileChannel.tryLock takes.
func lockWhole(fd uintptr) error {
	if err := retryEINTR(func() error { return unix.Flock(int(fd), unix.LOCK_EX|unix.LOCK_NB) }); err != nil {
		return err
	}
	whole := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	return retryEINTR(func() error { return unix.FcntlFlock(fd, unix.F_SETLK, &whole) })
}

func fdatasync(fd int) error { return unix.Fsync(fd) }

func syncfs(int) error { return unix.ENOSYS }

func syncfsTells() bool { return false }

func fallocateKeepSize(int, int64, int64) error { return unix.EOPNOTSUPP }

func fadvise(int, int64, int64, Advice) error { return nil }
