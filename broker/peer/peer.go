// Package peer sends requests to other nodes of the cluster: to controllers (registration, heartbeats, forwarded
// requests, the metadata quorum) and to brokers. Connections are pooled per node, and requests of one connection
// are pipelined.
package peer

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/protocol"
)

// Endpoint is where a node listens.
type Endpoint struct {
	NodeID int32
	Host   string
	Port   uint16
}

// Address is host:port for net.Dial.
func (e Endpoint) Address() string { return net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port))) }

func (e Endpoint) String() string { return fmt.Sprintf("node %d at %s", e.NodeID, e.Address()) }

// Options configure a Pool.
type Options struct {
	ClientID string
	// DialTimeout bounds the set-up of a connection, RequestTimeout the wait for an answer when the caller's
	// context has no deadline.
	DialTimeout, RequestTimeout time.Duration
	// MaxResponseBytes bounds the size of an answer; a larger one closes the connection.
	MaxResponseBytes int32
	// Dial opens a connection; nil for TCP. The security layer of a listener comes in here.
	Dial func(ctx context.Context, address string) (net.Conn, error)
}

// ErrClosed is returned for requests on a pool that has been closed.
var ErrClosed = errors.New("peer pool is closed")

// Pool keeps a connection for each node that was talked to.
type Pool struct {
	o      Options
	mu     sync.Mutex
	conns  map[Endpoint]*conn
	closed bool
}

// NewPool returns a pool without connections.
func NewPool(o Options) *Pool {
	if o.DialTimeout <= 0 {
		o.DialTimeout = 10 * time.Second
	}
	if o.RequestTimeout <= 0 {
		o.RequestTimeout = 30 * time.Second
	}
	if o.MaxResponseBytes <= 0 {
		o.MaxResponseBytes = 100 << 20
	}
	if o.Dial == nil {
		o.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		}
	}
	return &Pool{o: o, conns: map[Endpoint]*conn{}}
}

// Do sends a request in its version and waits for the answer. A connection that fails gives its error to every
// request under way and is replaced at the next request.
func (p *Pool) Do(ctx context.Context, to Endpoint, req kmsg.Request) (kmsg.Response, error) {
	body, err := p.roundTrip(ctx, to, req.Key(), req.GetVersion(), req.AppendTo(nil))
	if err != nil {
		return nil, err
	}
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	if err := resp.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("%s: answer to %s v%d: %w", to, protocol.APIName(req.Key()), req.GetVersion(), err)
	}
	return resp, nil
}

// SendPeer exchanges an opaque message under Gregor's own API between controllers.
func (p *Pool) SendPeer(ctx context.Context, to Endpoint, msg []byte) ([]byte, error) {
	return p.roundTrip(ctx, to, protocol.RaftMessageKey, 0, msg)
}

func (p *Pool) roundTrip(ctx context.Context, to Endpoint, key, version int16, body []byte) ([]byte, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.o.RequestTimeout)
		defer cancel()
	}
	c, err := p.conn(ctx, to)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", to, err)
	}
	answer, err := c.roundTrip(ctx, key, version, body)
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", to, protocol.APIName(key), err)
	}
	return answer, nil
}

// conn returns the live connection to a node, dialing it when there is none.
func (p *Pool) conn(ctx context.Context, to Endpoint) (*conn, error) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, ErrClosed
	}
	if c := p.conns[to]; c != nil && !c.dead() {
		p.mu.Unlock()
		return c, nil
	}
	p.mu.Unlock()

	dialCtx, cancel := context.WithTimeout(ctx, p.o.DialTimeout)
	defer cancel()
	nc, err := p.o.Dial(dialCtx, to.Address())
	if err != nil {
		return nil, err
	}
	c := newConn(nc, p.o)

	p.mu.Lock()
	defer p.mu.Unlock()
	switch other := p.conns[to]; {
	case p.closed:
		c.fail(ErrClosed)
		return nil, ErrClosed
	case other != nil && !other.dead(): // another request dialed meanwhile
		c.fail(errReplaced)
		return other, nil
	}
	p.conns[to] = c
	go c.read()
	return c, nil
}

// Close closes every connection; requests under way fail with ErrClosed.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, c := range p.conns {
		c.fail(ErrClosed)
	}
}

var errReplaced = errors.New("connection not needed")

// conn is one connection with its requests under way.
type conn struct {
	nc       net.Conn
	clientID string
	maxBytes int32

	writeMu sync.Mutex // one frame at a time

	mu      sync.Mutex
	next    int32
	pending map[int32]call
	err     error // set once the connection is dead
}

type call struct {
	key, version int16
	done         chan result
}

type result struct {
	body []byte
	err  error
}

func newConn(nc net.Conn, o Options) *conn {
	return &conn{nc: nc, clientID: o.ClientID, maxBytes: o.MaxResponseBytes, pending: map[int32]call{}}
}

func (c *conn) dead() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err != nil
}

// fail closes the connection and gives err to all that wait.
func (c *conn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = err
	_ = c.nc.Close() // the connection is given up; nothing depends on how it closes
	for id, x := range c.pending {
		x.done <- result{err: err}
		delete(c.pending, id)
	}
}

func (c *conn) roundTrip(ctx context.Context, key, version int16, body []byte) ([]byte, error) {
	x := call{key: key, version: version, done: make(chan result, 1)}
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return nil, c.err
	}
	id := c.next
	c.next++
	c.pending[id] = x
	c.mu.Unlock()

	hdr := protocol.RequestHeader{Key: key, Version: version, CorrelationID: id, ClientID: c.clientID}
	frame := protocol.AppendRequestHeader(make([]byte, 4, 64+len(body)), &hdr)
	frame = append(frame, body...)
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	c.writeMu.Lock()
	if deadline, ok := ctx.Deadline(); ok {
		_ = c.nc.SetWriteDeadline(deadline) // a failure shows at the write
	}
	_, err := c.nc.Write(frame)
	c.writeMu.Unlock()
	if err != nil {
		c.fail(err)
	}
	select {
	case r := <-x.done:
		return r.body, r.err
	case <-ctx.Done():
		c.mu.Lock()
		delete(c.pending, id)
		c.mu.Unlock()
		return nil, ctx.Err()
	}
}

// read takes answers off the connection until it fails.
func (c *conn) read() {
	r := bufio.NewReaderSize(c.nc, 16<<10)
	for {
		frame, err := readFrame(r, c.maxBytes)
		if err != nil {
			c.fail(err)
			return
		}
		if len(frame) < 4 {
			c.fail(protocol.ErrMalformed)
			return
		}
		id := int32(binary.BigEndian.Uint32(frame))
		c.mu.Lock()
		x, ok := c.pending[id]
		delete(c.pending, id)
		c.mu.Unlock()
		if !ok {
			continue // the caller gave up waiting
		}
		_, body, err := protocol.ParseResponse(x.key, x.version, frame)
		x.done <- result{body: body, err: err}
	}
}

// readFrame reads one size-prefixed frame.
func readFrame(r io.Reader, maxBytes int32) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	n := int32(binary.BigEndian.Uint32(size[:]))
	if n < 0 || n > maxBytes {
		return nil, fmt.Errorf("answer of %d bytes, at most %d are accepted", n, maxBytes)
	}
	frame := make([]byte, n)
	if _, err := io.ReadFull(r, frame); err != nil {
		return nil, err
	}
	return frame, nil
}
