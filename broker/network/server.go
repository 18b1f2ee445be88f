package network

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Options of a server. Zero values stand for the defaults that are named.
type Options struct {
	// Handler serves the requests of listeners without a handler of their own.
	Handler Handler
	// Logger gets why connections are closed; default slog.Default().
	Logger *slog.Logger
	// MaxRequestBytes is socket.request.max.bytes; default 100 MiB.
	MaxRequestBytes int32
	// MaxQueuedBytes is queued.max.request.bytes; 0 or less: no bound.
	MaxQueuedBytes int64
	// MaxOutstanding bounds the unanswered requests of a connection; default 64.
	MaxOutstanding int
	// IdleTimeout is connections.max.idle.ms; default 10 minutes. A connection
	// with an unanswered request is not idle.
	IdleTimeout time.Duration
	// PartialFrameTimeout is how long an incomplete frame may bring less than
	// 64 KiB; default 1 minute.
	PartialFrameTimeout time.Duration
	// LingerTimeout is how long a peer that has stopped sending may wait for the
	// answers to what it sent; default 10 s.
	LingerTimeout time.Duration
	// SendBufferBytes and ReceiveBufferBytes are socket.send.buffer.bytes and
	// socket.receive.buffer.bytes; 0 or less: what the system thinks best.
	SendBufferBytes    int
	ReceiveBufferBytes int
	// Limits on connections; they can be changed with SetLimits.
	Limits Limits
}

func (o *Options) setDefaults() {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.MaxRequestBytes <= 0 {
		o.MaxRequestBytes = 100 << 20
	}
	if o.MaxOutstanding <= 0 {
		o.MaxOutstanding = defaultMaxOutstanding
	}
	if o.IdleTimeout <= 0 {
		o.IdleTimeout = 10 * time.Minute
	}
	if o.PartialFrameTimeout <= 0 {
		o.PartialFrameTimeout = time.Minute
	}
	if o.LingerTimeout <= 0 {
		o.LingerTimeout = 10 * time.Second
	}
}

// ListenerOptions of one listener.
type ListenerOptions struct {
	// Name is the listener's name, such as PLAINTEXT.
	Name string
	// Address is HOST:PORT; an empty host is every address, port 0 a free one.
	Address string
	// Socket, if set, is used instead of listening on Address.
	Socket net.Listener
	// Handler, if set, serves this listener's requests.
	Handler Handler
	// Limits on connections; they can be changed with SetLimits.
	Limits ListenerLimits
	// Protected is set for the listener between brokers when there are others: it
	// is not held up by max.connections.
	Protected bool
	// Upgrade, if set, is done to a new connection first (TLS).
	Upgrade Upgrade
	// NewAuthenticator, if set, makes the conversation that comes before the
	// first request (SASL).
	NewAuthenticator func(*Conn) Authenticator
}

// Server owns the listeners and connections of a node.
type Server struct {
	options  Options
	log      *slog.Logger
	metrics  Metrics
	budget   byteBudget
	quotas   *quotas
	start    time.Time
	stopping chan struct{}
	stopOnce sync.Once
	working  sync.WaitGroup // every goroutine we started
	lastID   atomic.Int64

	pollerOnce sync.Once
	poller     *poller // made by the first connection; see pollerOrNil

	mu        sync.Mutex
	listeners []*Listener        // guarded by mu
	conns     map[*Conn]struct{} // guarded by mu
}

// NewServer returns a server without listeners.
func NewServer(options Options) *Server {
	options.setDefaults()
	s := &Server{
		options: options, log: options.Logger, quotas: newQuotas(options.Limits),
		start: time.Now(), stopping: make(chan struct{}), conns: map[*Conn]struct{}{},
	}
	s.budget.maxBytes, s.budget.gauge = options.MaxQueuedBytes, &s.metrics.QueuedBytes
	return s
}

// Metrics returns the counters, which go on counting.
func (s *Server) Metrics() *Metrics { return &s.metrics }

// SetLimits replaces the limits on connections. Open connections stay.
func (s *Server) SetLimits(limits Limits) {
	s.quotas.mu.Lock()
	s.quotas.limits = limits
	s.quotas.mu.Unlock()
	s.quotas.changed.Broadcast()
}

// Listener accepts connections.
type Listener struct {
	server  *Server
	options ListenerOptions
	handler Handler
	socket  net.Listener
	quota   listenerQuota
}

// Listen opens a listener and accepts connections on it.
func (s *Server) Listen(options ListenerOptions) (*Listener, error) {
	l := &Listener{server: s, options: options, handler: options.Handler, socket: options.Socket}
	if l.handler == nil {
		l.handler = s.options.Handler
	}
	if l.handler == nil {
		return nil, fmt.Errorf("listener %s: no handler", options.Name)
	}
	l.quota.limits, l.quota.protected = options.Limits, options.Protected
	if l.socket == nil {
		socket, err := net.Listen("tcp", options.Address)
		if err != nil {
			return nil, fmt.Errorf("listener %s: %w", options.Name, err)
		}
		l.socket = socket
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isStopping() {
		_ = l.socket.Close()
		return nil, fmt.Errorf("listener %s: %w", options.Name, errStopped)
	}
	s.listeners = append(s.listeners, l)
	s.spawn(l.accept)
	return l, nil
}

// Addr is where the listener listens.
func (l *Listener) Addr() net.Addr { return l.socket.Addr() }

// Name is the listener's name.
func (l *Listener) Name() string { return l.options.Name }

// SetLimits replaces the listener's limits on connections.
func (l *Listener) SetLimits(limits ListenerLimits) {
	q := l.server.quotas
	q.mu.Lock()
	l.quota.limits = limits
	q.mu.Unlock()
	q.changed.Broadcast()
}

// Connections returns how many connections of the listener are open.
func (l *Listener) Connections() int {
	l.server.quotas.mu.Lock()
	defer l.server.quotas.mu.Unlock()
	return l.quota.open
}

// Stop closes the listeners, lets the requests that are in be answered, and
// closes the connections. When ctx ends first, the connections are closed as
// they are, and its error is returned.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	s.stopOnce.Do(func() { close(s.stopping) })
	for _, l := range s.listeners {
		_ = l.socket.Close()
	}
	open := s.connections()
	s.mu.Unlock()
	s.quotas.stop()
	for _, c := range open {
		c.stopReading()
	}
	done := make(chan struct{})
	go func() {
		s.working.Wait()
		s.stopPoller()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	open = s.connections()
	s.mu.Unlock()
	for _, c := range open {
		c.close(errStopped)
	}
	return fmt.Errorf("%d connections closed with requests unanswered: %w", len(open), ctx.Err())
}

// connections returns the open ones; s.mu is held.
func (s *Server) connections() []*Conn {
	open := make([]*Conn, 0, len(s.conns))
	for c := range s.conns {
		open = append(open, c)
	}
	return open
}

func (s *Server) isStopping() bool {
	select {
	case <-s.stopping:
		return true
	default:
		return false
	}
}

// spawn starts a goroutine that Stop waits for.
func (s *Server) spawn(f func()) { s.working.Go(f) }

// now is the time since the server was made, in nanoseconds: it never goes back.
func (s *Server) now() int64 { return int64(time.Since(s.start)) }

// acceptRetryDelay is how long to wait when the system has no descriptor or
// memory left for a connection.
const acceptRetryDelay = 100 * time.Millisecond

// accept is the listener's goroutine.
func (l *Listener) accept() {
	s := l.server
	for {
		socket, err := l.socket.Accept()
		switch {
		case s.isStopping():
			if err == nil {
				_ = socket.Close()
			}
			return
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			s.log.Error("cannot accept connections", slog.String("listener", l.options.Name), slog.Any("error", err))
			if !s.pause(acceptRetryDelay) {
				return
			}
			continue
		}
		if !l.admit(socket) {
			_ = socket.Close()
		}
	}
}

// pause waits; false says that the server stops.
func (s *Server) pause(d time.Duration) bool { return s.pauseOr(d, nil) }

// pauseOr is pause with another reason to give up.
func (s *Server) pauseOr(d time.Duration, giveUp <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-giveUp:
		return false
	case <-s.stopping:
		return false
	}
}

// admit starts a connection unless a limit is against it.
func (l *Listener) admit(socket net.Conn) bool {
	s := l.server
	remote, _ := netip.ParseAddrPort(socket.RemoteAddr().String())
	remote = netip.AddrPortFrom(remote.Addr().Unmap(), remote.Port())
	if delay := s.quotas.delay(&l.quota, time.Now()); delay > 0 {
		s.metrics.AcceptThrottled.Add(1)
		if !s.pause(delay) {
			return false
		}
	}
	verdict := s.quotas.enter(&l.quota, remote.Addr(), func() { s.metrics.AcceptThrottled.Add(1) })
	switch verdict {
	case refusedPerIP:
		s.metrics.RejectedPerIP.Add(1)
		s.log.Info("connection refused: the address has as many as are allowed",
			slog.String("listener", l.options.Name), slog.String("address", remote.Addr().String()))
		return false
	case refusedStopped:
		return false
	case admittedOverLimit:
		s.evict(l)
	case admitted:
	}
	l.setSocketOptions(socket)
	return s.begin(l, socket, remote)
}

func (l *Listener) setSocketOptions(socket net.Conn) {
	tcp, ok := socket.(*net.TCPConn)
	if !ok {
		return
	}
	options := &l.server.options
	var err error
	if options.SendBufferBytes > 0 {
		err = errors.Join(err, tcp.SetWriteBuffer(options.SendBufferBytes))
	}
	if options.ReceiveBufferBytes > 0 {
		err = errors.Join(err, tcp.SetReadBuffer(options.ReceiveBufferBytes))
	}
	if err != nil {
		l.server.log.Warn("cannot set socket buffers", slog.String("listener", l.options.Name), slog.Any("error", err))
	}
}

// begin registers a connection and starts its goroutine.
func (s *Server) begin(l *Listener, socket net.Conn, remote netip.AddrPort) bool {
	ctx, cancel := context.WithCancel(context.Background())
	c := &Conn{
		server: s, listener: l, remote: remote, ctx: ctx, cancel: cancel,
		id:   socket.LocalAddr().String() + "-" + socket.RemoteAddr().String() + "-" + strconv.FormatInt(s.lastID.Add(1), 10),
		room: make(chan struct{}, 1),
	}
	c.state.socket = socket
	c.info.Store(&connInfo{principal: Anonymous, softwareName: "unknown", softwareVersion: "unknown"})
	c.lastActive.Store(s.now())
	s.mu.Lock()
	if s.isStopping() {
		s.mu.Unlock()
		cancel()
		s.quotas.leave(&l.quota, remote.Addr())
		return false
	}
	s.conns[c] = struct{}{}
	s.metrics.Accepted.Add(1)
	s.metrics.Connections.Add(1)
	s.working.Add(1)
	s.mu.Unlock()
	defer s.working.Done()
	c.start()
	return true
}

// pollerOrNil is the server's poller; nil if the system does not give it one.
func (s *Server) pollerOrNil() *poller {
	s.pollerOnce.Do(func() {
		p, err := newPoller(s.log)
		if err != nil {
			s.log.Warn("no poller for the network: each connection gets a goroutine of its own", slog.Any("error", err))
			return
		}
		s.poller = p
	})
	return s.poller
}

// stopPoller is called when the last connection has ended.
func (s *Server) stopPoller() {
	s.pollerOnce.Do(func() {})
	if s.poller != nil {
		s.poller.stop()
	}
}

// forget is the end of a connection.
func (s *Server) forget(c *Conn) {
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	s.metrics.Connections.Add(-1)
	s.quotas.leave(&c.listener.quota, c.remote.Addr())
}

// evict closes the connection of another listener that was idle the longest.
func (s *Server) evict(protected *Listener) {
	var oldest *Conn
	s.mu.Lock()
	for c := range s.conns {
		if c.listener != protected && !c.isClosed() && (oldest == nil || c.lastActive.Load() < oldest.lastActive.Load()) {
			oldest = c
		}
	}
	s.mu.Unlock()
	if oldest != nil {
		oldest.close(errEvicted)
	}
}
