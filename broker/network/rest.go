package network

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// rest is where workers are while nothing happens, and those that are more than
// what happens needs. A goroutine that waits in a system call keeps a processor of
// Go's scheduler until that takes it away, which costs more than a request; so they
// wait as other goroutines do.
//
// The last worker that waits does so at Go's network poller, through a second
// epoll descriptor: it watches the first one while it is armed. Were the first one
// watched itself, each event would wake that poller's thread as well, and twice as
// many system calls would be made for a request. The other workers wait for a
// worker that finds much to do.
type rest struct {
	epfd  int      // of the poller
	outer int      // watches epfd
	file  *os.File // outer, for Go's poller
	raw   syscall.RawConn
	// asleep is the number of workers that receive from more.
	asleep atomic.Int32
	more   chan struct{}
	over   chan struct{} // closed in the end
}

func (r *rest) open(epfd int) error {
	r.epfd, r.outer = epfd, -1
	r.more, r.over = make(chan struct{}), make(chan struct{})
	outer, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return err
	}
	r.outer = outer
	if err := unix.EpollCtl(outer, unix.EPOLL_CTL_ADD, epfd, &unix.EpollEvent{Fd: int32(epfd)}); err != nil {
		return err
	}
	if err := unix.SetNonblock(outer, true); err != nil { // what Go's poller takes it by
		return err
	}
	r.file = os.NewFile(uintptr(outer), "epoll") //nolint:forbidigo // it is no file of anybody's
	if err := r.file.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("no epoll descriptor in the poller of Go: %w", err)
	}
	r.raw, err = r.file.SyscallConn()
	return err
}

func (r *rest) close() {
	switch {
	case r.file != nil:
		_ = r.file.Close()
	case r.outer > 0:
		_ = unix.Close(r.outer)
	}
}

// takeRest waits until there is something to do and returns the number of events.
// Somebody always waits for events or, if all are at work, the guard looks after
// them.
func (w *worker) takeRest() (n int, err error) {
	p := w.poller
	switch last := p.waiting.Add(-1) == 0; {
	case last && p.serving.Load() > 0:
		// We look after those.
	case last && w.rescuer && p.rest.wake():
		// The other one takes our place.
	case last:
		p.waiting.Add(1)
		return w.watchOut()
	case !w.rescuer: // which ends instead
		p.rest.asleep.Add(1)
		select {
		case <-p.rest.more:
		case <-p.rest.over:
		}
		p.rest.asleep.Add(-1)
	}
	p.waiting.Add(1)
	return 0, nil
}

// watchOut waits for events at Go's poller.
func (w *worker) watchOut() (n int, err error) {
	p := w.poller
	r := &p.rest
	// Only the outer descriptor is ever polled, never asked for its events: that does
	// not count as the one event of EPOLLONESHOT, so we disarm it ourselves.
	if err := r.arm(unix.EPOLLIN); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, r.arm(0)) }()
	rawErr := r.raw.Read(func(uintptr) bool {
		n, err = w.wait(0, 1)
		return n != 0 || err != nil || p.tasks.queued.Load() > 0
	})
	if err == nil {
		err = rawErr
	}
	return n, err
}

// arm sets which events of the poller's descriptor reach Go's poller.
func (r *rest) arm(events uint32) error {
	return unix.EpollCtl(r.outer, unix.EPOLL_CTL_MOD, r.epfd, &unix.EpollEvent{Events: events, Fd: int32(r.epfd)})
}

// wake has one of those that are asleep go on.
func (r *rest) wake() bool {
	if r.asleep.Load() == 0 {
		return false
	}
	select {
	case r.more <- struct{}{}:
		return true
	default:
		return false
	}
}
