package network

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"gregor/protocol"
)

// Why a connection ends. errPeerClosed and errStopped are no failures.
var (
	errPeerClosed     = errors.New("closed by the peer")
	errStopped        = errors.New("server stops")
	errIdle           = errors.New("idle for longer than connections.max.idle.ms")
	errSlowFrame      = errors.New("frame does not come in")
	errSlowReader     = errors.New("answers are not taken")
	errFrameSize      = errors.New("frame size out of range")
	errAuthentication = errors.New("authentication failed")
	errPanic          = errors.New("handler panicked")
	errEvicted        = errors.New("closed to make room for another listener")
	errAnswered       = errors.New("closed after the answer")
	errWatched        = errors.New("handed to the poller") // it has not ended
)

// Conn is a connection of a client or of another node.
type Conn struct {
	server   *Server
	listener *Listener
	id       string
	remote   netip.AddrPort
	ctx      context.Context //nolint:containedctx // the connection's lifetime, handed to each Serve
	cancel   context.CancelFunc
	info     atomic.Pointer[connInfo]

	// lastActive is when a frame came in or an answer went out (Server.now).
	lastActive atomic.Int64
	// heldBytes are the frames that handlers still hold.
	heldBytes atomic.Int64
	// mutedUntil is when reading may go on (Server.now).
	mutedUntil atomic.Int64
	// room gets a token when a request was answered or its frame released.
	room chan struct{}

	in  input  // of the reading side
	out output // of whoever has out.writing

	// watched is set when the poller watches the connection; turn then says
	// whether somebody is its reading side.
	watched atomic.Bool
	turn    atomic.Int32
	// blocking is what a request left to be run; of the reading side.
	blocking blockingCall
	// worker is the one that has the turn, nil if it is a goroutine of its own;
	// gathered is set when the request in Serve was left to the end of its round.
	// Both of the reading side.
	worker   *worker
	gathered bool
	// header is that of the request before, whose client id is used again; of the
	// reading side.
	header protocol.RequestHeader

	mu    sync.Mutex
	state connState // guarded by mu

	maxFrameBytes int32 // of the reading side
}

// connInfo is what is known about the peer; replaced as a whole.
type connInfo struct {
	principal       Principal
	softwareName    string
	softwareVersion string
}

// connState is guarded by Conn.mu.
type connState struct {
	socket net.Conn
	// pending are the requests whose answers are not written yet, in order.
	// Invariant: whoever writes removes them from the front, answered ones only.
	pending []*Request
	// writing is set while a goroutine has Conn.out.
	writing bool
	// corked holds back the answer of the request in Serve, because the next one
	// is already here and its answer can share the write.
	corked  bool
	serving *Request
	// throttled counts the answers that will mute the connection once they are
	// out.
	throttled int
	// closing is set when nothing more is read; answers still go out.
	closing bool
	// last is set when the answer after which to close is out; no other follows.
	last    bool
	closed  bool
	failure error // of a request, which ends the connection
	cause   error
}

// ID identifies the connection in logs, as Kafka's do:
// LOCAL:PORT-REMOTE:PORT-NUMBER.
func (c *Conn) ID() string { return c.id }

// ListenerName is the name of the listener that took the connection.
func (c *Conn) ListenerName() string { return c.listener.options.Name }

// RemoteAddr is the address of the peer; the zero value if it is not an IP
// connection.
func (c *Conn) RemoteAddr() netip.AddrPort { return c.remote }

// LocalAddr is our end.
func (c *Conn) LocalAddr() net.Addr { return c.socket().LocalAddr() }

// Socket returns the connection that carries the frames, such as a *tls.Conn,
// for its state. Nobody else reads or writes it.
func (c *Conn) Socket() net.Conn { return c.socket() }

func (c *Conn) socket() net.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.socket
}

// Context ends when the connection is closed.
func (c *Conn) Context() context.Context { return c.ctx }

// Principal is who is at the other end.
func (c *Conn) Principal() Principal { return c.info.Load().principal }

// SetPrincipal says who is at the other end.
func (c *Conn) SetPrincipal(p Principal) {
	c.updateInfo(func(i *connInfo) { i.principal = p })
}

// ClientSoftware is what the client said of itself in ApiVersions (KIP-511);
// "unknown" before.
func (c *Conn) ClientSoftware() (name, version string) {
	i := c.info.Load()
	return i.softwareName, i.softwareVersion
}

// SetClientSoftware stores what the client said of itself.
func (c *Conn) SetClientSoftware(name, version string) {
	c.updateInfo(func(i *connInfo) { i.softwareName, i.softwareVersion = name, version })
}

func (c *Conn) updateInfo(change func(*connInfo)) {
	for {
		old := c.info.Load()
		changed := *old
		change(&changed)
		if c.info.CompareAndSwap(old, &changed) {
			return
		}
	}
}

// start begins the conversation, without waiting for the peer.
func (c *Conn) start() {
	options := &c.listener.options
	if options.Upgrade == nil && options.NewAuthenticator == nil && c.upgrade() == nil && c.watch() {
		return
	}
	c.server.spawn(c.run)
}

// run is the goroutine of a connection that is upgraded or authenticated first,
// or that the poller cannot watch.
func (c *Conn) run() {
	if err := c.converse(); !errors.Is(err, errWatched) {
		c.finish(err)
	}
}

// converse is everything up to the reason why the connection ends. A panic of
// ours, or of an authenticator, is no more than such a reason.
func (c *Conn) converse() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = c.panicked(&Request{Conn: c}, p)
		}
	}()
	if err := c.upgrade(); err != nil {
		return err
	}
	if c.watch() {
		return errWatched
	}
	return c.serve()
}

func (c *Conn) upgrade() error {
	options := &c.listener.options
	if options.Upgrade != nil {
		raw := c.socket()
		if err := raw.SetDeadline(time.Now().Add(c.server.options.PartialFrameTimeout)); err != nil {
			return err
		}
		upgraded, err := options.Upgrade(c.ctx, raw, c)
		if err != nil {
			c.server.metrics.FailedHandshakes.Add(1)
			return fmt.Errorf("%w: %w", errAuthentication, err)
		}
		if err := upgraded.SetDeadline(time.Time{}); err != nil {
			return err
		}
		c.mu.Lock()
		c.state.socket = upgraded
		c.mu.Unlock()
	}
	c.attach(c.socket())
	c.maxFrameBytes = c.server.options.MaxRequestBytes
	if options.NewAuthenticator != nil {
		return c.authenticate(options.NewAuthenticator(c))
	}
	return nil
}

// attach finds out whether the system calls can be made by ourselves: then an
// idle connection holds no buffer, and whoever answers writes without waiting.
func (c *Conn) attach(socket net.Conn) {
	c.in.init(c)
	c.out.init(c)
	if s, ok := socket.(*net.TCPConn); ok {
		if raw, err := s.SyscallConn(); err == nil {
			c.in.raw, c.out.raw = raw, raw
		}
	}
}

// Bounds on what one connection may have in the works. Clients keep 5 requests
// in flight by default, librdkafka as many as it likes; 64 are enough to fill a
// 10 Gbit/s line with 64 KiB batches over a round trip of 3 ms, and few enough
// that a connection cannot pile up work. While a connection is over a bound
// nothing is read from it, so that TCP slows the peer down.
const (
	defaultMaxOutstanding = 64
	maxHeldBytes          = 16 << 20
)

// A run of requests that came in together shares a write, but the first answer
// waits for no more than so many others and so long.
const (
	maxCorkedAnswers = 8
	maxCorkedNanos   = 200_000
)

// serve reads and serves requests until something ends the connection.
func (c *Conn) serve() error {
	var run corkedRun
	for {
		r, err := c.receive()
		if err != nil {
			return err
		}
		cork := run.next(r.ReceivedAt, c.in.hasFrame())
		if err := c.serveOne(r, cork); err != nil {
			return err
		}
		if err := c.runBlocking(); err != nil {
			return err
		}
		if !cork {
			c.in.yield()
		}
		if err := c.awaitTurn(); err != nil {
			return err
		}
	}
}

// receive waits for the next request.
func (c *Conn) receive() (*Request, error) {
	frame, err := c.nextFrame()
	if err != nil {
		return nil, err
	}
	r, err := c.open(&frame)
	if err != nil {
		return nil, err
	}
	if err := c.awaitTurn(); err != nil { // an answer may have muted us meanwhile
		r.release()
		return nil, err
	}
	return r, nil
}

// open makes a request of a frame.
func (c *Conn) open(frame *frame) (*Request, error) {
	now := time.Now()
	c.lastActive.Store(int64(now.Sub(c.server.start)))
	r := &Request{Conn: c, ReceivedAt: now, FrameBytes: len(frame.bytes), buffer: frame.buffer, admitted: frame.admitted}
	c.heldBytes.Add(int64(r.FrameBytes))
	c.server.metrics.Requests.Add(1)
	c.server.metrics.RequestBytes.Add(int64(len(frame.bytes)) + 4)
	body, err := c.header.Parse(frame.bytes)
	if err != nil {
		c.server.metrics.InvalidRequests.Add(1)
		r.release()
		return nil, err
	}
	r.Header, r.Body = c.header, body
	return r, nil
}

// corkedRun decides whether the answer to a request waits for the next one's.
type corkedRun struct {
	answers int
	since   time.Time
}

func (r *corkedRun) next(now time.Time, more bool) (cork bool) {
	if r.answers == 0 {
		r.since = now
	}
	r.answers++
	cork = more && r.answers < maxCorkedAnswers && now.Sub(r.since) < maxCorkedNanos
	if !cork {
		r.answers = 0
	}
	return cork
}

// serveOne runs the handler on a request.
func (c *Conn) serveOne(r *Request, cork bool) (err error) {
	if !c.push(r, cork) {
		r.release()
		return c.endCause()
	}
	defer func() {
		if p := recover(); p != nil {
			err = c.panicked(r, p)
		}
	}()
	c.listener.handler.Serve(c.ctx, r)
	c.served(cork)
	return nil
}

func (c *Conn) panicked(r *Request, p any) error {
	c.server.metrics.Panics.Add(1)
	c.server.log.Error("handler panicked, closing the connection", slog.String("connection", c.id),
		slog.String("request", r.Header.String()), slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
	c.close(errPanic)
	c.mu.Lock()
	answered := r.answered
	r.answered = true
	if !answered {
		// A goroutine of the handler may still use the frame: it does not return
		// to the pool, only its share of the budget does.
		r.buffer = nil
	}
	admitted := r.admitted
	r.admitted = 0
	c.mu.Unlock()
	c.server.budget.give(admitted)
	return errPanic
}

// Go runs f on a goroutine of its own, for a request that has to wait. A panic
// in it is handled as one in Serve. The server's Stop waits for it; ctx ends with
// the connection.
func (r *Request) Go(f func(ctx context.Context)) {
	c := r.Conn
	c.server.spawn(func() {
		defer func() {
			if p := recover(); p != nil {
				_ = c.panicked(r, p) // it is the cause of the connection's end
			}
		}()
		f(c.ctx)
	})
}

// endCause is why a connection that is closing takes no more requests.
func (c *Conn) endCause() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.state.cause != nil:
		return c.state.cause
	case c.state.failure != nil:
		return c.state.failure
	case c.server.isStopping():
		return errStopped
	default:
		return errAnswered
	}
}

func (c *Conn) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.closed
}

// awaitTurn waits until another request may be read: while the connection has
// too much in the works, or is muted by a quota.
func (c *Conn) awaitTurn() error {
	for !c.hasRoom() {
		c.served(false) // what is held back must not wait for itself
		select {
		case <-c.room:
		case <-c.ctx.Done():
			return c.endCause()
		case <-c.server.stopping:
			return errStopped
		}
	}
	for {
		until := c.mutedUntil.Load()
		if until == 0 {
			return nil
		}
		wait := time.Duration(until - c.server.now())
		if wait <= 0 {
			return nil
		}
		if !c.server.pauseOr(wait, c.ctx.Done()) {
			return c.endCause()
		}
	}
}

func (c *Conn) hasRoom() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.closed || c.state.closing || c.state.throttled == 0 &&
		len(c.state.pending) < c.server.options.MaxOutstanding && c.heldBytes.Load() <= maxHeldBytes
}

// signalRoom wakes awaitTurn.
func (c *Conn) signalRoom() {
	select {
	case c.room <- struct{}{}:
	default:
	}
}

// finish ends the connection for a reason that the reading goroutine met: the
// answers that are still due are written first when the peer may still want
// them.
func (c *Conn) finish(err error) {
	c.in.drop()
	c.served(false)
	c.awaitAnswers(c.server.options.LingerTimeout)
	if !errors.Is(err, errPeerClosed) && !errors.Is(err, errStopped) && !errors.Is(err, errIdle) && !c.isClosed() {
		c.discardInput()
	}
	c.close(err)
	c.server.forget(c)
	c.logEnd()
}

// awaitAnswers waits until every request taken is answered, for at most timeout
// or, when the server stops, until that is given up.
func (c *Conn) awaitAnswers(timeout time.Duration) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		c.mu.Lock()
		idle := c.state.closed || c.state.last || len(c.state.pending) == 0 && !c.state.writing
		c.mu.Unlock()
		if idle {
			return
		}
		select {
		case <-c.room:
		case <-timer.C:
			return
		case <-c.ctx.Done():
			return
		}
	}
}

// lastAnswerTimeout is how long the peer has to take the answer after which its
// connection is closed.
const lastAnswerTimeout = time.Second

// discardInput tells the peer that no more comes and reads what it still sends:
// closing with unread input would reset the connection, and the peer's system
// would throw away the answer.
func (c *Conn) discardInput() {
	socket := c.socket()
	if half, ok := socket.(interface{ CloseWrite() error }); !ok || half.CloseWrite() != nil {
		return
	}
	if socket.SetReadDeadline(time.Now().Add(lastAnswerTimeout)) != nil {
		return
	}
	scratch := NewBuffer(minDiscardBytes)
	defer scratch.Release()
	for {
		if _, err := socket.Read(scratch.store); err != nil {
			return
		}
	}
}

const minDiscardBytes = 4 << 10

// close closes the socket at once, for the first cause given.
func (c *Conn) close(cause error) {
	c.mu.Lock()
	if c.state.closed {
		c.mu.Unlock()
		return
	}
	c.state.closed, c.state.cause = true, cause
	dropped := c.state.pending
	c.state.pending = nil
	socket := c.state.socket
	c.mu.Unlock()
	c.cancel()
	_ = socket.Close() // nothing is left to do about it
	c.kick()
	for _, r := range dropped {
		r.dropIfAnswered()
	}
	c.signalRoom()
}

// cause is why the connection was closed.
func (c *Conn) cause() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.cause == nil {
		return errPeerClosed
	}
	return c.state.cause
}

// logEnd writes why a connection ended, and counts it. What the peer did to end
// it is for the debug log, what we had to do is a warning.
func (c *Conn) logEnd() {
	cause := c.cause()
	attributes := []any{slog.String("connection", c.id), slog.String("listener", c.ListenerName()), slog.Any("cause", cause)}
	switch {
	case errors.Is(cause, errIdle):
		c.server.metrics.ClosedIdle.Add(1)
	case errors.Is(cause, errSlowFrame), errors.Is(cause, errSlowReader):
		c.server.metrics.ClosedSlow.Add(1)
		c.server.log.Warn("connection closed", attributes...)
		return
	case errors.Is(cause, errFrameSize):
		c.server.metrics.InvalidFrames.Add(1)
		c.server.log.Warn("connection closed", attributes...)
		return
	case errors.Is(cause, errEvicted):
		c.server.metrics.Evicted.Add(1)
	case errors.Is(cause, errPeerClosed), errors.Is(cause, errStopped), errors.Is(cause, errAnswered), isNetworkError(cause):
	default:
		c.server.log.Warn("connection closed", attributes...)
		return
	}
	c.server.log.Debug("connection closed", attributes...)
}

// isNetworkError reports errors that only say that the peer is gone.
func isNetworkError(err error) bool {
	return errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) ||
		errors.Is(err, syscall.ETIMEDOUT)
}
