package network

import (
	"context"
	"fmt"
	"net"
)

// Principal is who is at the other end of a connection.
type Principal struct {
	// Type is "User" for all that Kafka itself knows.
	Type string
	// Name is "ANONYMOUS" for a connection that has not authenticated.
	Name string
	// TokenAuthenticated is set for a login with a delegation token.
	TokenAuthenticated bool
}

// String returns TYPE:NAME.
func (p Principal) String() string { return p.Type + ":" + p.Name }

// Anonymous is the principal of a connection that has not authenticated.
var Anonymous = Principal{Type: "User", Name: "ANONYMOUS"}

// MaxUnauthenticatedFrameBytes bounds a frame before authentication is done
// (Kafka's sasl.server.max.receive.size).
const MaxUnauthenticatedFrameBytes = 512 << 10

// Upgrade turns an accepted connection into the one that carries the frames
// (TLS). It runs on the connection's goroutine, before anything is read, and may
// set the connection's principal.
type Upgrade func(ctx context.Context, raw net.Conn, c *Conn) (net.Conn, error)

// Authenticator is the conversation that has to succeed before requests are
// served (SASL). There is one for each connection. Frames reach it one at a
// time; nothing else is read meanwhile.
type Authenticator interface {
	// Authenticate takes a frame, which may be a request with a header or a bare
	// token, and returns what to write, with size prefix; nil for nothing. After
	// done the connection serves requests. With an error the answer, if any, is
	// still written, and the connection closed.
	Authenticate(ctx context.Context, frame []byte) (answer []byte, done bool, err error)
}

// authenticate runs the conversation.
func (c *Conn) authenticate(auth Authenticator) error {
	c.maxFrameBytes = min(c.server.options.MaxRequestBytes, MaxUnauthenticatedFrameBytes)
	for {
		frame, err := c.nextFrame()
		if err != nil {
			return err
		}
		answer, done, err := auth.Authenticate(c.ctx, frame.bytes)
		frame.buffer.Release()
		c.server.budget.give(frame.admitted)
		r := &Request{Conn: c}
		if err != nil || len(answer) > 0 {
			c.push(r, false)
			r.Reply(Response{Parts: []Part{{Bytes: answer}}, None: len(answer) == 0, CloseAfter: err != nil})
		}
		if err != nil {
			c.server.metrics.FailedHandshakes.Add(1)
			return fmt.Errorf("%w: %w", errAuthentication, err)
		}
		if done {
			c.maxFrameBytes = c.server.options.MaxRequestBytes
			return nil
		}
	}
}
