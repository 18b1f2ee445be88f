package vfs

import (
	"fmt"
	"io"
	"sync"

	"golang.org/x/sys/unix"
)

// lockWhole takes a lock that belongs to the open file: it keeps out another opener in this process as well as
// the process-wide lock that Java's FileChannel.tryLock takes, so that a Kafka on the same directory is refused
// and refuses us.
func lockWhole(fd uintptr) error {
	whole := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	return retryEINTR(func() error { return unix.FcntlFlock(fd, unix.F_OFD_SETLK, &whole) })
}

func fdatasync(fd int) error { return unix.Fdatasync(fd) }

func syncfs(fd int) error { return unix.Syncfs(fd) }

// syncfsTells says whether syncfs reports that writing a file back has failed: Linux does so since 5.8.
var syncfsTells = sync.OnceValue(func() bool {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return false
	}
	var major, minor int
	if _, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor); err != nil {
		return false
	}
	const sinceMajor, sinceMinor = 5, 8
	return major > sinceMajor || major == sinceMajor && minor >= sinceMinor
})

func fallocateKeepSize(fd int, offset, lengthBytes int64) error {
	return unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, offset, lengthBytes)
}

func fadvise(fd int, offset, lengthBytes int64, advice Advice) error {
	hint := unix.FADV_NORMAL
	switch advice {
	case AdviseNormal:
	case AdviseSequential:
		hint = unix.FADV_SEQUENTIAL
	case AdviseWillNeed:
		hint = unix.FADV_WILLNEED
	case AdviseDontNeed:
		hint = unix.FADV_DONTNEED
	}
	return unix.Fadvise(fd, offset, lengthBytes, hint)
}
