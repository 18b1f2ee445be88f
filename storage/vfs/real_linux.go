package vfs

import "golang.org/x/sys/unix"

func fdatasync(fd int) error { return unix.Fdatasync(fd) }

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
