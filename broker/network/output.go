package network

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"gregor/internal/invariants"
)

// Sizes of the writing side.
const (
	// maxCopyBytes is the largest file range that is copied; above, sendfile is
	// cheaper. Larger bytes are written from where they are.
	maxCopyBytes = 64 << 10
	// maxStagingBytes is the largest buffer that small parts are gathered in.
	maxStagingBytes = 128 << 10
)

// push enters a request into the line of those to be answered.
func (c *Conn) push(r *Request, cork bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.closed || c.state.closing {
		return false
	}
	c.state.pending = append(c.state.pending, r)
	c.state.corked, c.state.serving = cork, r
	return true
}

// served ends the time in which an answer may be held back for the next one's;
// unless cork is set, whatever is ready is written.
func (c *Conn) served(cork bool) {
	c.mu.Lock()
	c.state.serving = nil
	if cork {
		c.mu.Unlock()
		return
	}
	c.state.corked = false
	c.writeIfReady()
}

// writeIfReady writes what is ready unless another goroutine is at it. It is
// called with mu held and unlocks it.
func (c *Conn) writeIfReady() {
	s := &c.state
	if s.closed || s.last || s.writing || len(s.pending) == 0 || !s.pending[0].answered {
		c.mu.Unlock()
		return
	}
	s.writing = true
	c.mu.Unlock()
	c.out.writeReady()
}

// Reply answers the request. It takes over the response's ranges and buffer,
// also when the connection is closed by now. It does not wait for the peer: what
// the socket does not take at once is written by a goroutine of its own.
func (r *Request) Reply(resp Response) {
	c := r.Conn
	c.mu.Lock()
	if r.answered {
		c.mu.Unlock()
		closed := c.isClosed()
		resp.drop()
		invariants.Assert(closed, "request answered twice")
		return
	}
	r.answered, r.response = true, resp
	if resp.ThrottleMillis > 0 {
		c.state.throttled++
	}
	if c.state.closed {
		c.mu.Unlock()
		r.dropIfAnswered()
		return
	}
	if c.state.corked && c.state.serving == r && !resp.CloseAfter && resp.ThrottleMillis == 0 {
		c.mu.Unlock()
		return
	}
	c.writeIfReady()
}

// Fail ends the connection without an answer to this request, as Kafka does for a
// request that it cannot read or does not serve on that listener. Earlier
// requests are still answered; later ones are not served.
func (r *Request) Fail(err error) {
	c := r.Conn
	c.server.metrics.InvalidRequests.Add(1)
	c.mu.Lock()
	if c.state.failure == nil {
		c.state.failure = fmt.Errorf("%s: %w", r.Header.String(), err)
	}
	c.mu.Unlock()
	c.stopReading()
	r.Reply(Response{None: true, CloseAfter: true})
}

// Release gives the frame back before the request is answered. Body must not be
// used any more. A request that waits for long should do so.
func (r *Request) Release() {
	c := r.Conn
	c.mu.Lock()
	buffer, admitted := r.buffer, r.admitted
	r.buffer, r.admitted = nil, 0
	c.mu.Unlock()
	r.giveBack(buffer, admitted)
}

// release is Release without the lock, for a request that nobody else has.
func (r *Request) release() {
	buffer, admitted := r.buffer, r.admitted
	r.buffer, r.admitted = nil, 0
	r.giveBack(buffer, admitted)
}

func (r *Request) giveBack(buffer *Buffer, admitted int) {
	if buffer == nil {
		return
	}
	buffer.Release()
	r.Conn.server.budget.give(admitted)
	if r.Conn.heldBytes.Add(-int64(r.FrameBytes)) <= maxHeldBytes && r.FrameBytes > 0 {
		r.Conn.signalRoom()
	}
}

// dropIfAnswered gives back what an answered request of a closed connection
// holds. Close and Reply may both see to it; it happens once.
func (r *Request) dropIfAnswered() {
	c := r.Conn
	c.mu.Lock()
	answered, resp := r.answered, r.response
	if answered {
		r.response = Response{}
	}
	c.mu.Unlock()
	if answered {
		resp.drop()
		r.Release()
	}
}

// drop releases what a response holds.
func (r *Response) drop() {
	for i := range r.Parts {
		if f := r.Parts[i].Range; f != nil {
			f.Release()
		}
	}
	if r.Buffer != nil {
		r.Buffer.Release()
	}
	*r = Response{}
}

// output is the writing side of a connection. It belongs to the goroutine that
// set connState.writing.
type output struct {
	conn  *Conn
	raw   syscall.RawConn // nil: use the socket
	write func(fd uintptr) bool

	batch   []*Request // what is being written
	request int        // position: index into batch,
	part    int        // into its parts,
	offset  int        // and into that part
	staging *Buffer    // gathered bytes
	sent    int        // of staging

	mayWait bool // wait for the socket to take more
	blocked bool // it did not, and we must not wait
	err     error
	total   int64 // bytes since the start
}

func (o *output) init(c *Conn) {
	o.conn = c
	o.write = o.writeSome
}

// writeReady writes until nothing is ready any more.
func (o *output) writeReady() {
	if o.raw == nil {
		// A write to this socket may wait, and whoever answered must not.
		o.conn.server.spawn(o.writeWaiting)
		return
	}
	for o.collect() {
		o.mayWait, o.blocked, o.err = false, false, nil
		if err := o.raw.Write(o.write); err != nil {
			o.err = err
		}
		if o.blocked {
			o.conn.server.spawn(o.writeWaiting)
			return
		}
		if !o.written() {
			return
		}
	}
}

// writeWaiting does the same and waits for the peer to take it.
func (o *output) writeWaiting() {
	for len(o.batch) > 0 || o.collect() {
		o.writeBatchWaiting()
		if !o.written() {
			return
		}
	}
}

func (o *output) writeBatchWaiting() {
	timeout := o.conn.server.options.IdleTimeout
	socket := o.conn.socket()
	for {
		before := o.total
		o.mayWait, o.blocked, o.err = true, false, nil
		if o.err = socket.SetWriteDeadline(time.Now().Add(timeout)); o.err != nil {
			return
		}
		if o.raw == nil {
			o.writeSocket(socket)
		} else if err := o.raw.Write(o.write); err != nil {
			o.err = err
		}
		if !errors.Is(o.err, os.ErrDeadlineExceeded) {
			break
		}
		if o.total == before {
			o.err = errSlowReader
			return
		}
	}
	if o.err == nil {
		o.err = socket.SetWriteDeadline(time.Time{})
	}
}

// collect takes the answered requests at the front of the line; false ends the
// writer's turn.
func (o *output) collect() bool {
	c := o.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &c.state
	n := 0
	for n < len(s.pending) && s.pending[n].answered {
		n++
		if s.pending[n-1].response.CloseAfter {
			break
		}
	}
	if n == 0 || s.closed {
		s.writing = false
		c.signalRoom() // awaitAnswers may wait for this
		return false
	}
	o.batch = append(o.batch[:0], s.pending[:n]...)
	rest := copy(s.pending, s.pending[n:])
	clear(s.pending[rest:])
	s.pending = s.pending[:rest]
	o.request, o.part, o.offset = 0, 0, 0
	return true
}

// written ends a batch: everything is given back, and what the answers ask for
// is done. It returns false when the connection is over.
func (o *output) written() bool {
	c := o.conn
	if o.staging != nil {
		o.staging.Release()
		o.staging = nil
	}
	closeAfter, throttled, throttleMillis := false, 0, int32(0)
	for _, r := range o.batch {
		closeAfter = closeAfter || r.response.CloseAfter
		if r.response.ThrottleMillis > 0 {
			throttled++
			throttleMillis = max(throttleMillis, r.response.ThrottleMillis)
		}
		r.response.drop()
		r.Release()
	}
	c.server.metrics.Responses.Add(int64(len(o.batch)))
	clear(o.batch)
	o.batch = o.batch[:0]
	now := c.server.now()
	c.lastActive.Store(now)
	if throttled > 0 {
		// Only the writer stores it, and there is one writer at a time.
		c.mutedUntil.Store(max(c.mutedUntil.Load(), now+int64(throttleMillis)*int64(time.Millisecond)))
		c.mu.Lock()
		c.state.throttled -= throttled
		c.mu.Unlock()
	}
	c.signalRoom()
	if o.err == nil && !closeAfter {
		return true
	}
	if o.err != nil {
		c.close(o.err)
	}
	c.mu.Lock()
	c.state.writing, c.state.last = false, true
	c.mu.Unlock()
	c.stopReading()
	c.signalRoom()
	return false
}

// writeSome writes as much as the socket takes; false waits for it to take more.
func (o *output) writeSome(fd uintptr) bool {
	for {
		direct, more := o.gather()
		if o.staging != nil && o.sent < len(o.staging.B) {
			n, err := send(int(fd), o.staging.B[o.sent:], more)
			if !o.progress(n, err) {
				return o.stopWriting(err)
			}
			o.sent += n
			continue
		}
		if direct == nil {
			return true
		}
		n, err := o.sendPart(fd, direct)
		if !o.progress(n, err) {
			return o.stopWriting(err)
		}
		o.offset += n
	}
}

// progress counts what a system call wrote. It returns false on an error other
// than an interruption.
func (o *output) progress(n int, err error) bool {
	if n > 0 {
		o.total += int64(n)
		o.conn.server.metrics.Writes.Add(1)
		o.conn.server.metrics.ResponseBytes.Add(int64(n))
	}
	return err == nil || errors.Is(err, unix.EINTR)
}

// stopWriting is what writeSome returns after an error.
func (o *output) stopWriting(err error) bool {
	if errors.Is(err, unix.EAGAIN) {
		o.blocked = !o.mayWait
		return o.blocked
	}
	o.err = err
	return true
}

// send writes bytes to a socket; more says that others follow at once, so that
// the kernel may fill its packets.
func send(fd int, b []byte, more bool) (n int, err error) {
	if more {
		n, err = unix.SendmsgN(fd, b, nil, nil, unix.MSG_MORE|unix.MSG_NOSIGNAL)
	} else {
		n, err = writeFD(fd, b)
	}
	return max(n, 0), err
}

// sendPart writes from a part that is not gathered.
func (o *output) sendPart(fd uintptr, p *Part) (int, error) {
	if p.Range == nil {
		return send(int(fd), p.Bytes[o.offset:], false)
	}
	n, err := p.Range.SendTo(fd, int64(o.offset), p.Range.Len()-o.offset)
	switch {
	case errors.Is(err, errors.ErrUnsupported) && n <= 0:
		return 0, o.stage(p)
	case n <= 0 && err == nil:
		return 0, fmt.Errorf("file range of %d bytes ends after %d: %w", p.Range.Len(), o.offset, io.ErrUnexpectedEOF)
	case n > 0 && errors.Is(err, unix.EAGAIN):
		return n, nil // the next call says so again
	}
	return max(n, 0), err
}

// gather moves small parts into the staging buffer until it is full or the next
// part is to be written from where it is, which is returned. more says that
// something is left to write after what is staged.
func (o *output) gather() (direct *Part, more bool) {
	if o.staging != nil && o.sent == len(o.staging.B) {
		o.staging.B, o.sent = o.staging.B[:0], 0
	}
	for ; o.request < len(o.batch); o.request, o.part, o.offset = o.request+1, 0, 0 {
		parts := o.batch[o.request].response.Parts
		if o.batch[o.request].response.None {
			continue
		}
		for ; o.part < len(parts); o.part, o.offset = o.part+1, 0 {
			p := &parts[o.part]
			left := p.len() - o.offset
			if left == 0 {
				continue
			}
			if left > maxCopyBytes || o.alone(p) {
				return p, true
			}
			if o.staging == nil {
				o.staging, o.sent = NewBuffer(o.stagingBytes()), 0
			}
			if left > cap(o.staging.B)-len(o.staging.B) && len(o.staging.B) > 0 {
				return nil, true
			}
			if err := o.stage(p); err != nil {
				o.err = err
				return nil, false
			}
			if o.offset < p.len() {
				return nil, true
			}
		}
	}
	return nil, false
}

// alone reports whether a part of bytes is all there is to write, so that
// gathering it would only copy it.
func (o *output) alone(p *Part) bool {
	return p.Range == nil && (o.staging == nil || len(o.staging.B) == 0) &&
		o.request == len(o.batch)-1 && o.part == len(o.batch[o.request].response.Parts)-1
}

// stagingBytes is how much there is to gather, up to the largest buffer.
func (o *output) stagingBytes() (n int) {
	for _, r := range o.batch[o.request:] {
		for i := range r.response.Parts {
			if size := r.response.Parts[i].len(); size <= maxCopyBytes {
				n += size
			}
		}
		if n >= maxStagingBytes {
			return maxStagingBytes
		}
	}
	return n
}

// stage copies from a part into the staging buffer as much as fits.
func (o *output) stage(p *Part) error {
	if o.staging == nil {
		o.staging, o.sent = NewBuffer(maxStagingBytes), 0
	}
	have := len(o.staging.B)
	if left := min(p.len()-o.offset, maxStagingBytes); have == 0 && cap(o.staging.B) < left {
		o.staging.Release()
		o.staging, o.sent = NewBuffer(left), 0
	}
	n := min(p.len()-o.offset, cap(o.staging.B)-have)
	to := o.staging.B[have : have+n]
	if p.Range == nil {
		copy(to, p.Bytes[o.offset:])
	} else if got, err := p.Range.ReadAt(to, int64(o.offset)); got < n {
		if err == nil {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("read %d bytes of a file range: %w", n, err)
	}
	o.staging.B = o.staging.B[:have+n]
	o.offset += n
	return nil
}

func (p *Part) len() int {
	if p.Range != nil {
		return p.Range.Len()
	}
	return len(p.Bytes)
}

// writeSocket writes the batch to a socket whose system calls are not ours.
func (o *output) writeSocket(socket io.Writer) {
	for o.err == nil {
		direct, _ := o.gather()
		if o.err != nil {
			return
		}
		var from []byte
		switch {
		case o.staging != nil && o.sent < len(o.staging.B):
			from = o.staging.B[o.sent:]
		case direct == nil:
			return
		case direct.Range == nil:
			from = direct.Bytes[o.offset:]
		default:
			o.err = o.stage(direct)
			continue
		}
		n, err := socket.Write(from)
		o.progress(n, err)
		if direct == nil || direct.Range != nil || o.staging != nil && o.sent < len(o.staging.B) {
			o.sent += n
		} else {
			o.offset += n
		}
		o.err = err
	}
}
