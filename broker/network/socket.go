package network

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// socket is a TCP connection of which our own poller tells when it can be read
// and written, instead of Go's. No goroutine waits at it, and a byte that comes in
// wakes one thread, which is the one that then serves the request.
//
// It is a net.Conn as well, for what waits: the end of a connection, and answers
// that a peer is slow to take. One goroutine at a time reads, one writes.
type socket struct {
	fd            int
	poller        *poller
	conn          *Conn
	local, remote net.Addr

	// uses is twice the number of goroutines that use fd, plus socketClosed. The
	// descriptor is given back when nobody uses it any more, so that nobody ever
	// reads from the next connection that gets its number.
	uses atomic.Int64

	// readable and writable have room for one token: it may be worth a try.
	readable, writable chan struct{}
	// hungUp is set when the peer has sent all it will: only the end of the input
	// then tells that nothing is left to read.
	hungUp atomic.Bool

	readDeadline, writeDeadline deadline
}

const (
	socketClosed int64 = 1
	socketUse    int64 = 2
)

// newSocket takes over an accepted connection, which is closed; its socket lives
// on under another descriptor. On an error nothing has changed.
func newSocket(p *poller, c *Conn, tcp *net.TCPConn) (*socket, error) {
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	if controlErr := raw.Control(func(from uintptr) { fd, err = unix.FcntlInt(from, unix.F_DUPFD_CLOEXEC, 0) }); controlErr != nil {
		return nil, controlErr
	}
	if err != nil {
		return nil, fmt.Errorf("duplicate the descriptor of a connection: %w", err)
	}
	s := &socket{
		fd: fd, poller: p, conn: c, local: tcp.LocalAddr(), remote: tcp.RemoteAddr(),
		readable: make(chan struct{}, 1), writable: make(chan struct{}, 1),
	}
	s.readDeadline.fire = func() {
		signal(s.readable)
		c.kick()
	}
	s.writeDeadline.fire = func() { signal(s.writable) }
	_ = tcp.Close() // the other descriptor; the connection stays
	return s, nil
}

// signal leaves a token.
func signal(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// acquire keeps the descriptor open until release.
func (s *socket) acquire() error {
	for {
		n := s.uses.Load()
		if n&socketClosed != 0 {
			return net.ErrClosed
		}
		if s.uses.CompareAndSwap(n, n+socketUse) {
			return nil
		}
	}
}

func (s *socket) release() {
	if s.uses.Add(-socketUse) == socketClosed {
		s.poller.remove(s)
		_ = unix.Close(s.fd) // nothing is left to do about it
	}
}

// Close ends the connection at once: whoever waits at it goes on.
func (s *socket) Close() error {
	for {
		n := s.uses.Load()
		if n&socketClosed != 0 {
			return net.ErrClosed
		}
		if s.uses.CompareAndSwap(n, n+socketUse|socketClosed) {
			break
		}
	}
	if s.uses.Load() > socketUse|socketClosed {
		_ = unix.Shutdown(s.fd, unix.SHUT_RDWR) // what others are at fails
	}
	s.readDeadline.stop()
	s.writeDeadline.stop()
	signal(s.readable)
	signal(s.writable)
	s.release()
	return nil
}

func (s *socket) closed() bool { return s.uses.Load()&socketClosed != 0 }

// wait calls try until it returns true; before each further call it waits for a
// token.
func (s *socket) wait(token chan struct{}, d *deadline, try func(fd uintptr) bool) error {
	if err := s.acquire(); err != nil {
		return err
	}
	defer s.release()
	for {
		switch {
		case s.closed():
			return net.ErrClosed
		case d.passed():
			return os.ErrDeadlineExceeded
		case try(uintptr(s.fd)):
			return nil
		}
		<-token
	}
}

// Read implements net.Conn.
func (s *socket) Read(p []byte) (n int, err error) {
	waitErr := s.wait(s.readable, &s.readDeadline, func(fd uintptr) bool {
		n, err = ignoringEINTR(func() (int, error) { return unix.Read(int(fd), p) })
		return !errors.Is(err, unix.EAGAIN)
	})
	switch {
	case waitErr != nil:
		return 0, waitErr
	case err != nil:
		return 0, os.NewSyscallError("read", err)
	case n == 0 && len(p) > 0:
		return 0, io.EOF
	}
	return n, nil
}

// Write implements net.Conn.
func (s *socket) Write(p []byte) (written int, err error) {
	waitErr := s.wait(s.writable, &s.writeDeadline, func(fd uintptr) bool {
		for written < len(p) {
			var n int
			n, err = ignoringEINTR(func() (int, error) { return unix.Write(int(fd), p[written:]) })
			if err != nil {
				return !errors.Is(err, unix.EAGAIN)
			}
			written += n
		}
		return true
	})
	if waitErr != nil {
		return written, waitErr
	}
	return written, os.NewSyscallError("write", err)
}

func ignoringEINTR(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// CloseWrite tells the peer that no more comes.
func (s *socket) CloseWrite() error {
	if err := s.acquire(); err != nil {
		return err
	}
	defer s.release()
	return os.NewSyscallError("shutdown", unix.Shutdown(s.fd, unix.SHUT_WR))
}

// LocalAddr implements net.Conn.
func (s *socket) LocalAddr() net.Addr { return s.local }

// RemoteAddr implements net.Conn.
func (s *socket) RemoteAddr() net.Addr { return s.remote }

// SetDeadline implements net.Conn.
func (s *socket) SetDeadline(at time.Time) error {
	return errors.Join(s.SetReadDeadline(at), s.SetWriteDeadline(at))
}

// SetReadDeadline implements net.Conn. When it passes, the connection looks at
// itself.
func (s *socket) SetReadDeadline(at time.Time) error { return s.setDeadline(&s.readDeadline, at) }

// SetWriteDeadline implements net.Conn.
func (s *socket) SetWriteDeadline(at time.Time) error { return s.setDeadline(&s.writeDeadline, at) }

func (s *socket) setDeadline(d *deadline, at time.Time) error {
	if s.closed() {
		return net.ErrClosed
	}
	d.set(at)
	if s.closed() {
		d.stop()
	}
	return nil
}

// rawSocket is a socket as a syscall.RawConn.
type rawSocket struct{ s *socket }

// Control implements syscall.RawConn.
func (r rawSocket) Control(f func(fd uintptr)) error {
	if err := r.s.acquire(); err != nil {
		return err
	}
	defer r.s.release()
	f(uintptr(r.s.fd))
	return nil
}

// Read implements syscall.RawConn.
func (r rawSocket) Read(try func(fd uintptr) bool) error {
	return r.s.wait(r.s.readable, &r.s.readDeadline, try)
}

// Write implements syscall.RawConn.
func (r rawSocket) Write(try func(fd uintptr) bool) error {
	return r.s.wait(r.s.writable, &r.s.writeDeadline, try)
}

// deadline is one direction's. Its timer is made when it is first wanted and then
// used again.
type deadline struct {
	fire func() // on a goroutine of its own

	late atomic.Bool

	mu    sync.Mutex
	at    time.Time // zero: none
	timer *time.Timer
}

func (d *deadline) passed() bool { return d.late.Load() }

// set moves the deadline; the zero time takes it away.
func (d *deadline) set(at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at = at
	if at.IsZero() {
		d.late.Store(false)
		if d.timer != nil {
			d.timer.Stop()
		}
		return
	}
	wait := max(time.Until(at), 0)
	d.late.Store(wait == 0)
	if d.timer == nil {
		d.timer = time.AfterFunc(wait, d.expire)
		return
	}
	d.timer.Reset(wait)
}

// expire may come late, when the deadline has been moved already.
func (d *deadline) expire() {
	d.mu.Lock()
	due := !d.at.IsZero() && time.Until(d.at) <= 0
	if due {
		d.late.Store(true)
	}
	d.mu.Unlock()
	if due {
		d.fire()
	}
}

func (d *deadline) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at = time.Time{}
	if d.timer != nil {
		d.timer.Stop()
	}
}
