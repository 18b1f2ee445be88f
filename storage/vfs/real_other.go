//go:build unix && !linux

package vfs

import "golang.org/x/sys/unix"

func fdatasync(fd int) error { return unix.Fsync(fd) }

func fallocateKeepSize(int, int64, int64) error { return unix.EOPNOTSUPP }

func fadvise(int, int64, int64, Advice) error { return nil }
