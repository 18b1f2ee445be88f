package network

import (
	"context"
	"errors"
	"net"
	"os"
	"runtime"
)

// Why a connection stops in its turn; it has not ended.
var (
	errNothing  = errors.New("nothing to read")
	errNoBudget = errors.New("no memory for the frame")
)

// Values of Conn.turn. Whoever has the turn is the reading side of a connection
// that the poller watches; when nothing is left to read it gives the turn back.
const (
	turnFree int32 = iota
	turnTaken
	turnAgain // taken, and something happened since
)

// takeTurn takes the turn if it is free; if not, whoever has it will look again.
func (c *Conn) takeTurn() bool {
	for {
		switch c.turn.Load() {
		case turnFree:
			if c.turn.CompareAndSwap(turnFree, turnTaken) {
				c.in.drained = false
				return true
			}
		case turnTaken:
			if c.turn.CompareAndSwap(turnTaken, turnAgain) {
				return false
			}
		default:
			return false
		}
	}
}

// giveTurn gives it back; false if something has happened meanwhile.
func (c *Conn) giveTurn() bool {
	if c.turn.CompareAndSwap(turnTaken, turnFree) {
		return true
	}
	c.turn.Store(turnTaken)
	c.in.drained = false
	return false
}

// kick makes a watched connection look at itself. It does not wait.
func (c *Conn) kick() {
	if c.watched.Load() && c.takeTurn() {
		c.server.spawn(func() { c.advance(nil) })
	}
}

// watch hands the connection to the poller; from then on it has no goroutine.
// False: it goes on as it is, because it is not a bare TCP connection, or there
// are no descriptors left.
func (c *Conn) watch() bool {
	tcp, ok := c.socket().(*net.TCPConn)
	if !ok {
		return false
	}
	p := c.server.pollerOrNil()
	if p == nil {
		return false
	}
	s, err := newSocket(p, c, tcp)
	if err != nil {
		return false
	}
	raw := rawSocket{s}
	c.in.polled, c.in.raw, c.out.raw = s, raw, raw
	c.in.armed = waitUnset
	c.server.working.Add(1)
	c.turn.Store(turnTaken)
	c.watched.Store(true)
	c.mu.Lock()
	c.state.socket = s
	pending := c.state.closed || c.state.closing
	c.mu.Unlock()
	if err := p.add(s); err != nil {
		c.close(err)
		pending = true
	}
	if !pending && c.in.begin == c.in.end {
		c.in.beforeWait()
		if c.giveTurn() {
			return true
		}
	}
	c.server.spawn(func() {
		if c.isClosed() {
			_ = s.Close()
		}
		c.stopIfClosing()
		c.advance(nil)
	})
	return true
}

// outcome is how far a connection got in its turn.
type outcome int8

const (
	// drained: the socket has nothing more.
	drained outcome = iota
	// more: it may have, but others should have their turn.
	more
	// blocked: something has to be waited for before more is read.
	blocked
	// left: a request waits for the end of the worker's round, which goes on with it.
	left
	// ended: the connection is over.
	ended
)

// advance serves what is there for the one who has the turn: a worker, or, if w is
// nil, a goroutine of its own, which may wait.
func (c *Conn) advance(w *worker) {
	c.worker = w
	for {
		result, err := c.step()
		switch result {
		case drained:
			if c.giveTurn() {
				return
			}
		case left:
			w.leave()
			return
		case more:
			if w != nil {
				w.requeue(c)
				return
			}
			runtime.Gosched()
		case blocked:
			if w != nil {
				c.server.spawn(func() {
					if c.unblock() {
						c.advance(nil)
					}
				})
				return
			}
			if !c.unblock() {
				return
			}
		case ended:
			c.endTurn(err)
			return
		}
	}
}

// endTurn ends the connection; the turn is not given back.
func (c *Conn) endTurn(err error) {
	c.server.spawn(func() { c.finish(err) })
	c.server.working.Done() // begun by watch
}

// unblock waits for what stops the connection; false: it has ended meanwhile.
func (c *Conn) unblock() bool {
	err := c.wait()
	if err != nil {
		c.endTurn(err)
	}
	return err == nil
}

func (c *Conn) wait() error {
	if err := c.runBlocking(); err != nil {
		return err
	}
	if n := c.in.starvedBytes; n > 0 {
		c.in.starvedBytes = 0
		if err := c.in.admit(n); err != nil {
			return err
		}
	}
	return c.awaitTurn()
}

// runBlocking runs what the request in Serve left for when it may wait.
func (c *Conn) runBlocking() (err error) {
	r, f := c.blocking.request, c.blocking.run
	if f == nil {
		return nil
	}
	c.blocking.request, c.blocking.run = nil, nil
	c.served(false) // what is held back must not wait for it
	defer func() {
		if p := recover(); p != nil {
			err = c.panicked(r, p)
		}
	}()
	f(c.ctx)
	return nil
}

// blockingCall is what has to run before the next request is read.
type blockingCall struct {
	request *Request
	run     func(ctx context.Context)
}

// Block runs f when Serve has returned, where it may wait; until f returns nothing
// else of the connection is served. It is for a request that may have to wait but
// must not be overtaken by the next one. It is called in Serve, at most once.
func (r *Request) Block(f func(ctx context.Context)) {
	r.Conn.blocking = blockingCall{request: r, run: f}
}

// step reads and serves until the answers are written, the input is used up or
// something has to be waited for.
func (c *Conn) step() (result outcome, err error) {
	defer func() {
		if p := recover(); p != nil {
			result, err = ended, c.panicked(&Request{Conn: c}, p)
		}
	}()
	var run corkedRun
	for {
		if !c.mayRead() {
			c.served(false) // what is held back must not wait for itself
			return blocked, nil
		}
		frame, err := c.tryFrame()
		switch {
		case errors.Is(err, errNothing):
			return drained, nil
		case errors.Is(err, errNoBudget):
			c.served(false)
			return blocked, nil
		case err != nil:
			return ended, err
		}
		r, err := c.open(&frame)
		if err != nil {
			return ended, err
		}
		cork := run.next(r.ReceivedAt, c.in.hasFrame())
		if err := c.serveOne(r, cork); err != nil {
			return ended, err
		}
		switch {
		case c.gathered:
			c.gathered = false
			return left, nil
		case c.blocking.run != nil:
			return blocked, nil
		case !cork && (!c.in.drained || c.in.hasFrame()):
			return more, nil
		}
	}
}

// mayRead is awaitTurn without the waiting.
func (c *Conn) mayRead() bool {
	if !c.hasRoom() {
		return false
	}
	until := c.mutedUntil.Load()
	return until == 0 || until <= c.server.now()
}

// tryFrame is nextFrame without the waiting.
func (c *Conn) tryFrame() (frame, error) {
	in := &c.in
	for {
		f, needBytes, err := in.parse(in.tryAdmit)
		if err != nil || needBytes == 0 {
			return f, err
		}
		in.makeRoom(needBytes)
		if err := in.tryFill(); err != nil {
			return frame{}, err
		}
	}
}

// tryFill reads what is there; errNothing if that is nothing.
func (in *input) tryFill() error {
	s := in.polled
	for {
		in.n, in.err = 0, nil
		switch {
		case s.readDeadline.passed():
			in.err = os.ErrDeadlineExceeded
		case in.drained:
			in.beforeWait()
			return errNothing
		default:
			if err := s.acquire(); err != nil {
				in.err = err
				break
			}
			something := in.readSome(uintptr(s.fd))
			s.release()
			// Less than there was room for: that was all, unless the end is near,
			// which only reading shows.
			in.drained = !something || in.n > 0 && in.n < in.limit-in.end && !s.hungUp.Load()
			if !something {
				return errNothing
			}
		}
		if again, err := in.took(); !again {
			return err
		}
	}
}
