//go:build race

package network

import "golang.org/x/sys/unix"

// The race detector has to see these calls read and write memory.

func readFD(fd int, b []byte) (int, error)  { return unix.Read(fd, b) }
func writeFD(fd int, b []byte) (int, error) { return unix.Write(fd, b) }
