package segment

import (
	"io"

	"golang.org/x/sys/unix"
)

// sendfile copies from a file to a socket in the kernel, leaving the file's own position alone.
func sendfile(dstFd, srcFd uintptr, position int64, n int) (int, error) {
	for {
		sent, err := unix.Sendfile(int(dstFd), int(srcFd), &position, n)
		switch {
		case err == unix.EINTR:
			continue
		case err == nil && sent == 0:
			return 0, io.ErrUnexpectedEOF // the file is shorter than promised
		}
		return max(sent, 0), err
	}
}
