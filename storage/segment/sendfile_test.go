//go:build linux

package segment

import (
	"bytes"
	"io"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"gregor/storage/vfs"
)

func TestRangeIsSentToASocketByTheKernel(t *testing.T) {
	o := testOptions(vfs.Real())
	dir := t.TempDir()
	s, err := Create(dir, 0, 1, "", o)
	must(t, err)
	var want []byte
	for i := range int64(2000) {
		b := batch(i, 1, i)
		must(t, s.Append(b))
		if i > 0 {
			want = append(want, b...)
		}
	}
	r, err := s.Range(s.SizeBytes()-int64(len(want)), len(want), 0)
	must(t, err)
	defer r.Release()
	r.AdviseSequential()

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer listener.Close()
	received := make(chan []byte, 1)
	go func() {
		c, err := listener.Accept()
		if err != nil {
			received <- nil
			return
		}
		b, _ := io.ReadAll(c)
		received <- b
	}()
	c, err := net.Dial("tcp", listener.Addr().String())
	must(t, err)
	raw, err := c.(*net.TCPConn).SyscallConn()
	must(t, err)
	sent := 0
	must(t, raw.Write(func(fd uintptr) bool {
		for sent < len(want) {
			n, sendErr := r.SendTo(fd, int64(sent), len(want)-sent)
			sent += n
			if sendErr == unix.EAGAIN { //nolint:errorlint // a system call's own error
				return false
			}
			if sendErr != nil {
				err = sendErr
				return true
			}
		}
		return true
	}))
	must(t, err)
	must(t, c.Close())
	if got := <-received; !bytes.Equal(got, want) {
		t.Errorf("received %d bytes, want %d", len(got), len(want))
	}
	if n, err := r.SendTo(0, int64(len(want)), 1); n != 0 || err != io.EOF { //nolint:errorlint // exactly it
		t.Errorf("beyond the end: %d, %v", n, err)
	}
}
