package network

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Sizes of the reading side.
const (
	minChunkBytes = 4 << 10
	// maxStreamChunkBytes is what a chunk of small frames grows to.
	maxStreamChunkBytes = 64 << 10
	// maxChunkBytes is the largest buffer that a connection gets ahead of the
	// bytes, because its frames were that large before. Beyond it a buffer is at
	// most double of what has come in.
	maxChunkBytes = 2 << 20
	// minProgressBytes must come in within a PartialFrameTimeout, unless the
	// frame is complete by then.
	minProgressBytes = 64 << 10
)

// waitKind is what the read deadline of the socket stands for.
type waitKind int8

const (
	waitUnset waitKind = iota
	waitIdle
	waitPartial
)

// input is the reading side of a connection. It reads into chunks of pooled
// memory; frames are parts of them. While nothing has come in there is no chunk,
// if the system calls are our own.
type input struct {
	conn   *Conn
	raw    syscall.RawConn // nil: use the socket
	polled *socket         // set when the poller watches the connection
	read   func(fd uintptr) bool

	// drained is set when the socket had nothing more, and cleared by whoever
	// hears from the poller.
	drained bool
	// starvedBytes is the size of a frame for which the budget had no room.
	starvedBytes int

	chunk *Buffer
	begin int // of what is not parsed yet
	end   int // of what is read
	limit int // where the next read must stop

	chunkBytes int // size of the next chunk
	admitted   int // taken from the budget for the frame that is coming in

	armed     waitKind
	received  int64 // bytes since the start
	markBytes int64 // received when the partial deadline was armed

	waited bool // the socket had nothing since the last yield

	n   int // result of read
	err error
}

// frame is a complete frame; the receiver has one use of the buffer.
type frame struct {
	bytes    []byte
	buffer   *Buffer
	admitted int
}

func (in *input) init(c *Conn) {
	in.conn, in.chunkBytes = c, minChunkBytes
	in.read = in.readSome
}

// drop gives back what was read and not parsed.
func (in *input) drop() {
	if in.chunk != nil {
		in.chunk.Release()
		in.chunk = nil
	}
	in.begin, in.end = 0, 0
	if in.conn != nil {
		in.conn.server.budget.give(in.admitted)
	}
	in.admitted = 0
}

// hasFrame reports whether a whole frame is here already.
func (in *input) hasFrame() bool {
	if in.end-in.begin < 4 {
		return false
	}
	size := int(int32(binary.BigEndian.Uint32(in.chunk.store[in.begin:])))
	return size >= 0 && in.end-in.begin >= 4+size
}

// nextFrame waits for a frame.
func (c *Conn) nextFrame() (frame, error) {
	in := &c.in
	for {
		f, needBytes, err := in.parse(in.admit)
		if err != nil || needBytes == 0 {
			return f, err
		}
		in.makeRoom(needBytes)
		if err := in.fill(); err != nil {
			return frame{}, err
		}
	}
}

// parse cuts a frame out of what was read. If it is not there yet, needBytes is
// its size as far as it is known. admit takes it from the budget.
func (in *input) parse(admit func(bytes int) error) (f frame, needBytes int, err error) {
	needBytes = 4
	if in.end-in.begin < needBytes {
		return frame{}, needBytes, nil
	}
	size := int32(binary.BigEndian.Uint32(in.chunk.store[in.begin:]))
	if size < 0 || size > in.conn.maxFrameBytes {
		return frame{}, 0, fmt.Errorf("%w: %d bytes, at most %d are taken", errFrameSize, size, in.conn.maxFrameBytes)
	}
	needBytes += int(size)
	complete := in.end-in.begin >= needBytes
	if in.mustAdmit(needBytes, complete) {
		if err := admit(needBytes); err != nil {
			return frame{}, 0, err
		}
	}
	if !complete {
		return frame{}, needBytes, nil
	}
	return in.cut(needBytes), 0, nil
}

// mustAdmit tells whether a frame has to be taken from the budget now: a small
// one when it is complete, one that needs memory of its own before that is given.
func (in *input) mustAdmit(needBytes int, complete bool) bool {
	return in.admitted == 0 && in.conn.server.budget.maxBytes > 0 && (complete || needBytes > maxStreamChunkBytes)
}

// admit takes a frame from the budget, and waits for it.
func (in *input) admit(needBytes int) error {
	if err := in.conn.server.budget.take(in.conn.ctx, needBytes); err != nil {
		return in.conn.endCause()
	}
	in.admitted = needBytes
	return nil
}

// tryAdmit is admit without the waiting.
func (in *input) tryAdmit(needBytes int) error {
	if !in.conn.server.budget.tryTake(needBytes) {
		in.starvedBytes = needBytes
		return errNoBudget
	}
	in.admitted = needBytes
	return nil
}

// cut takes a complete frame out of the chunk.
func (in *input) cut(needBytes int) frame {
	f := frame{bytes: in.chunk.store[in.begin+4 : in.begin+needBytes : in.begin+needBytes], buffer: in.chunk, admitted: in.admitted}
	in.admitted = 0
	in.begin += needBytes
	if in.begin < in.end {
		in.chunk.Retain()
		return f
	}
	// The chunk is used up: it is the frame's now. What is left of it is used
	// only if the frame is done with by then, see makeRoom.
	if in.end*8 < len(in.chunk.store) && in.chunkBytes > minChunkBytes {
		in.chunkBytes /= 2
	}
	in.chunk, in.begin, in.end = nil, 0, 0
	return f
}

// makeRoom sees to it that a frame of so many bytes, size prefix included, can
// be read on in the chunk, or that the chunk can take at least as much again as
// it has.
func (in *input) makeRoom(needBytes int) {
	have := in.end - in.begin
	if needBytes > in.chunkBytes {
		in.chunkBytes = min(1<<(classOf(needBytes)+minClassShift), maxChunkBytes)
	}
	if in.chunk == nil {
		in.limit = 0 // the chunk comes with the bytes
		return
	}
	if in.end < len(in.chunk.store) && (needBytes > maxStreamChunkBytes || in.begin+needBytes <= len(in.chunk.store)) {
		in.setLimit(needBytes)
		return
	}
	want := max(needBytes, min(in.chunkBytes, maxStreamChunkBytes))
	if want > maxStreamChunkBytes {
		// What the connection claims is believed as far as it has shown it.
		want = min(want, max(in.provenBytes(), 2*have))
	}
	want = max(want, have+1, minChunkBytes)
	if want <= len(in.chunk.store) && in.chunk.sole() {
		if in.begin > 0 {
			copy(in.chunk.store, in.chunk.store[in.begin:in.end])
			in.begin, in.end = 0, have
		}
		if in.end < len(in.chunk.store) {
			in.setLimit(needBytes)
			return
		}
	}
	larger := NewBuffer(want)
	copy(larger.store, in.chunk.store[in.begin:in.end])
	in.chunk.Release()
	in.chunk, in.begin, in.end = larger, 0, have
	in.setLimit(needBytes)
}

// provenBytes is how large a buffer the connection gets on its word.
func (in *input) provenBytes() int {
	return max(maxStreamChunkBytes, int(min(in.received, maxChunkBytes)))
}

// setLimit lets the next read take what there is room for, but of a large frame
// nothing beyond its end: the next one is then read into its place at once.
func (in *input) setLimit(needBytes int) {
	in.limit = len(in.chunk.store)
	if needBytes > maxStreamChunkBytes {
		in.limit = min(in.limit, in.begin+needBytes)
	}
}

// fill reads at least one byte.
func (in *input) fill() error {
	for {
		in.n, in.err = 0, nil
		if in.raw != nil {
			if err := in.raw.Read(in.read); err != nil {
				in.err = err
			}
		} else {
			in.readSocket()
		}
		if again, err := in.took(); !again {
			return err
		}
	}
}

// took enters the result of a read. again tells that nothing came in time but
// more time is given.
func (in *input) took() (again bool, err error) {
	if in.n > 0 {
		if in.limit == len(in.chunk.store) && in.end+in.n == in.limit && in.chunkBytes < maxStreamChunkBytes {
			in.chunkBytes *= 2 // it was full: there is more where this came from
		}
		in.end += in.n
		in.received += int64(in.n)
		in.conn.server.metrics.Reads.Add(1)
		return false, nil
	}
	switch {
	case errors.Is(in.err, os.ErrDeadlineExceeded):
		err := in.conn.overdue()
		return err == nil, err
	case in.err == nil, errors.Is(in.err, io.EOF):
		return false, in.conn.readEnded(errPeerClosed)
	case errors.Is(in.err, net.ErrClosed), errors.Is(in.err, io.ErrClosedPipe):
		return false, in.conn.readEnded(errPeerClosed)
	default:
		return false, in.conn.readEnded(in.err)
	}
}

// yield lets other goroutines run, unless we waited since the last time. A
// connection whose socket always has data would otherwise keep its processor
// until it is preempted, 10 ms later.
func (in *input) yield() {
	if !in.waited {
		runtime.Gosched()
	}
	in.waited = false
}

// readEnded prefers our own reason for closing the socket.
func (c *Conn) readEnded(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.state.cause != nil:
		return c.state.cause
	case c.state.failure != nil:
		return c.state.failure
	case c.state.closing:
		return errAnswered
	}
	return err
}

// readSome is one read system call; it runs when the socket may have something
// and returns false to wait for it.
func (in *input) readSome(fd uintptr) bool {
	if in.chunk == nil {
		in.newChunk()
	}
	for {
		in.n, in.err = readFD(int(fd), in.chunk.store[in.end:in.limit])
		switch {
		case in.err == nil:
			return true
		case errors.Is(in.err, unix.EINTR):
			in.n = 0
		case errors.Is(in.err, unix.EAGAIN):
			in.n, in.err = 0, nil
			in.beforeWait()
			return false
		default:
			in.n = 0
			return true
		}
	}
}

func (in *input) newChunk() {
	in.chunk = NewBuffer(in.chunkBytes)
	in.begin, in.end = 0, 0
	// Of a stream of large frames the beginning tells where the first one ends.
	in.limit = min(len(in.chunk.store), maxStreamChunkBytes)
}

// readSocket is the same for connections whose system calls are not ours.
func (in *input) readSocket() {
	in.beforeWait()
	if in.chunk == nil {
		in.newChunk()
	}
	in.n, in.err = in.conn.socket().Read(in.chunk.store[in.end:in.limit])
	if in.n > 0 {
		in.err = nil
	}
}

// beforeWait gives back an empty chunk and sets the deadline for what is waited
// for, if it is another one than last time.
func (in *input) beforeWait() {
	in.waited = true
	if in.begin == in.end && in.chunk != nil {
		in.chunk.Release()
		in.chunk, in.begin, in.end, in.limit = nil, 0, 0, 0
	}
	kind := waitIdle
	if in.end > in.begin {
		kind = waitPartial
	}
	if in.armed == kind {
		return
	}
	in.arm(kind, time.Now())
}

// arm sets the read deadline.
func (in *input) arm(kind waitKind, now time.Time) {
	in.armed = kind
	timeout := in.conn.server.options.IdleTimeout
	if kind == waitPartial {
		timeout = in.conn.server.options.PartialFrameTimeout
		in.markBytes = in.received
	}
	in.conn.setReadDeadline(now.Add(timeout))
}

// setReadDeadline leaves the deadline alone that was set to stop reading.
func (c *Conn) setReadDeadline(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.closed || c.state.closing {
		return
	}
	_ = c.state.socket.SetReadDeadline(at) // fails on a closed socket only, as the read then does
}

// stopReading makes a waiting read return, and every later one.
func (c *Conn) stopReading() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.closed {
		return
	}
	c.state.closing = true
	c.expireRead()
}

// stopIfClosing is for a socket that has just replaced the one that stopReading
// knew.
func (c *Conn) stopIfClosing() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.closing && !c.state.closed {
		c.expireRead()
	}
}

// expireRead is called with mu held.
func (c *Conn) expireRead() {
	_ = c.state.socket.SetReadDeadline(time.Unix(1, 0)) // long past
}

// overdue is called when the read deadline has passed: nil means to go on.
func (c *Conn) overdue() error {
	in := &c.in
	now := time.Now()
	c.mu.Lock()
	closing, outstanding := c.state.closing, len(c.state.pending)
	c.mu.Unlock()
	switch {
	case closing:
		return c.endCause()
	case in.armed == waitPartial:
		if in.received-in.markBytes < minProgressBytes {
			return fmt.Errorf("%w: %d bytes of it in %v", errSlowFrame, in.end-in.begin, c.server.options.PartialFrameTimeout)
		}
		in.arm(waitPartial, now)
	case outstanding > 0:
		in.arm(waitIdle, now)
	default:
		active := c.server.start.Add(time.Duration(c.lastActive.Load()))
		if now.Sub(active) >= c.server.options.IdleTimeout {
			return errIdle
		}
		in.arm(waitIdle, active)
	}
	return nil
}
