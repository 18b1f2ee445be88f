package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// answerTimeout bounds the wait for an answer.
const answerTimeout = 30 * time.Second

// ClientID is what the requests call themselves.
const ClientID = "compat"

// Conn is one connection.
type Conn struct {
	net.Conn

	tb          testing.TB
	correlation int32
}

// Dial connects; the connection ends with the test.
func Dial(tb testing.TB, addr string) *Conn {
	tb.Helper()
	c, err := net.DialTimeout("tcp", addr, answerTimeout)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	return &Conn{Conn: c, tb: tb}
}

// Frame is a request as it goes out, with the size before it.
func Frame(req kmsg.Request, correlation int32) []byte {
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID(ClientID)).AppendRequest(nil, req, correlation)
}

// Send writes a request and returns its correlation id.
func (c *Conn) Send(req kmsg.Request) int32 {
	c.tb.Helper()
	c.correlation++
	c.SendBytes(Frame(req, c.correlation))
	return c.correlation
}

// SendBytes writes bytes as they are.
func (c *Conn) SendBytes(b []byte) {
	c.tb.Helper()
	_ = c.SetWriteDeadline(time.Now().Add(answerTimeout))
	if _, err := c.Write(b); err != nil {
		c.tb.Fatalf("write: %v", err)
	}
}

// ReadFrame reads an answer: the bytes after its size.
func (c *Conn) ReadFrame() ([]byte, error) {
	_ = c.SetReadDeadline(time.Now().Add(answerTimeout))
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return nil, err
	}
	n := int32(binary.BigEndian.Uint32(size[:]))
	if n < 4 || n > 200<<20 {
		return nil, fmt.Errorf("an answer of %d bytes", n)
	}
	frame := make([]byte, n)
	_, err := io.ReadFull(c, frame)
	return frame, err
}

// Receive reads the answer to req, which had the correlation id.
func (c *Conn) Receive(req kmsg.Request, correlation int32) kmsg.Response {
	c.tb.Helper()
	frame, err := c.ReadFrame()
	if err != nil {
		c.tb.Fatalf("%s v%d: no answer: %v", kmsg.NameForKey(req.Key()), req.GetVersion(), err)
	}
	resp, err := Decode(req, correlation, frame)
	if err != nil {
		c.tb.Fatalf("%s v%d: %v", kmsg.NameForKey(req.Key()), req.GetVersion(), err)
	}
	return resp
}

// Request sends a request and reads its answer.
func (c *Conn) Request(req kmsg.Request) kmsg.Response {
	c.tb.Helper()
	correlation := c.Send(req)
	return c.Receive(req, correlation)
}

// Try sends a request and reads its answer; closed means that the connection was closed instead.
func (c *Conn) Try(req kmsg.Request) (resp kmsg.Response, closed bool) {
	c.tb.Helper()
	correlation := c.Send(req)
	frame, err := c.ReadFrame()
	if IsClosed(err) {
		return nil, true
	}
	if err == nil {
		resp, err = Decode(req, correlation, frame)
	}
	if err != nil {
		c.tb.Fatalf("%s v%d: %v", kmsg.NameForKey(req.Key()), req.GetVersion(), err)
	}
	return resp, false
}

// IsClosed tells whether the error means that the peer closed the connection.
func IsClosed(err error) bool {
	return err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
}

// ExpectClosed reads until the peer closes the connection, and fails when it sends something first.
func (c *Conn) ExpectClosed() {
	c.tb.Helper()
	_ = c.SetReadDeadline(time.Now().Add(answerTimeout))
	var b [64]byte
	n, err := c.Read(b[:])
	if n > 0 || !IsClosed(err) {
		c.tb.Fatalf("the connection should have been closed without an answer; got % x, %v", b[:n], err)
	}
}

// ExpectSilence fails when something arrives within the time.
func (c *Conn) ExpectSilence(d time.Duration) {
	c.tb.Helper()
	_ = c.SetReadDeadline(time.Now().Add(d))
	var b [64]byte
	if n, err := c.Read(b[:]); n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		c.tb.Fatalf("nothing should have come within %v; got % x, %v", d, b[:n], err)
	}
}

// Decode decodes an answer frame, and checks that it says nothing more than was decoded.
func Decode(req kmsg.Request, correlation int32, frame []byte) (kmsg.Response, error) {
	if got := int32(binary.BigEndian.Uint32(frame)); got != correlation {
		return nil, fmt.Errorf("correlation id %d, want %d", got, correlation)
	}
	body := frame[4:]
	resp := req.ResponseKind()
	if resp.IsFlexible() && req.Key() != kmsg.ApiVersions.Int16() {
		if len(body) == 0 || body[0] != 0 {
			return nil, fmt.Errorf("no tag section in the header: % x", body[:min(len(body), 16)])
		}
		body = body[1:]
	}
	if err := resp.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("%w in % x", err, body[:min(len(body), 256)])
	}
	if again := resp.AppendTo(nil); !bytes.Equal(again, body) {
		return nil, fmt.Errorf("the answer is not what it decodes to:\nit is    % x\nits like % x", head(body), head(again))
	}
	return resp, nil
}

func head(b []byte) []byte { return b[:min(len(b), 512)] }

// Do sends one request on a connection of its own and returns the answer.
func Do[R kmsg.Response](tb testing.TB, addr string, req kmsg.Request) R {
	tb.Helper()
	c := Dial(tb, addr)
	defer func() { _ = c.Close() }()
	resp, ok := c.Request(req).(R)
	if !ok {
		tb.Fatalf("%T answered with %T", req, resp)
	}
	return resp
}

// At sets a request's version.
func At[R kmsg.Request](req R, version int16) R {
	req.SetVersion(version)
	return req
}
