package network

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"testing"
	"time"

	"gregor/protocol"
)

// testKey and testVersion have request header 1 and response header 0.
const (
	testKey     = protocol.KeyMetadata
	testVersion = 1
)

// withoutPoller has the connections of test servers get a goroutine each, as when the system gives no poller.
var withoutPoller bool

// TestMain runs the tests twice.
func TestMain(m *testing.M) {
	code := m.Run()
	withoutPoller = true
	os.Exit(max(code, m.Run()))
}

// testTimeout bounds what a test waits for on real sockets.
const testTimeout = 20 * time.Second

// request returns a frame with size prefix.
func request(correlationID int32, body []byte) []byte {
	hdr := protocol.RequestHeader{Key: testKey, Version: testVersion, CorrelationID: correlationID, ClientID: "test"}
	return requestOf(&hdr, body)
}

func requestOf(hdr *protocol.RequestHeader, body []byte) []byte {
	frame := protocol.AppendRequestHeader(make([]byte, 4), hdr)
	frame = append(frame, body...)
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	return frame
}

// answer is what an echo of r looks like.
func answer(r *Request, body []byte) []byte {
	return protocol.AppendOpaqueResponse(nil, &r.Header, body)
}

// echo answers with the body of the request.
var echo = HandlerFunc(func(_ context.Context, r *Request) {
	r.Reply(BytesResponse(answer(r, r.Body)))
})

type testServer struct {
	*Server

	listener *Listener
	logged   *syncBuffer
}

func startServer(t testing.TB, options Options, listener ListenerOptions) *testServer {
	t.Helper()
	return startServerAs(t, options, listener, !withoutPoller)
}

// startServerAs starts a server with or without a poller.
func startServerAs(t testing.TB, options Options, listener ListenerOptions, poller bool) *testServer {
	t.Helper()
	logged := &syncBuffer{}
	options.Logger = slog.New(slog.NewTextHandler(logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s := NewServer(options)
	if !poller {
		s.pollerOnce.Do(func() {})
	}
	if listener.Address == "" {
		listener.Address = "127.0.0.1:0"
	}
	if listener.Name == "" {
		listener.Name = "PLAINTEXT"
	}
	l, err := s.Listen(listener)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Errorf("stop: %v", err)
		}
		if n := s.Metrics().Connections.Load(); n != 0 {
			t.Errorf("%d connections are left after the stop", n)
		}
	})
	return &testServer{Server: s, listener: l, logged: logged}
}

func (s *testServer) dial(t testing.TB) *testClient {
	t.Helper()
	return dialAddr(t, s.listener.Addr().String())
}

func dialAddr(t testing.TB, addr string) *testClient {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(testTimeout)); err != nil {
		t.Fatal(err)
	}
	return &testClient{Conn: conn, t: t}
}

type testClient struct {
	net.Conn

	t testing.TB
}

func (c *testClient) send(frames ...[]byte) {
	c.t.Helper()
	if _, err := c.Write(bytes.Join(frames, nil)); err != nil {
		c.t.Fatalf("send: %v", err)
	}
}

// receive returns correlation id and body of the next answer.
func (c *testClient) receive() (int32, []byte) {
	c.t.Helper()
	id, body, err := readAnswer(c)
	if err != nil {
		c.t.Fatalf("receive: %v", err)
	}
	return id, body
}

func readAnswer(r io.Reader) (int32, []byte, error) {
	var prefix [4]byte
	if _, err := io.ReadFull(r, prefix[:]); err != nil {
		return 0, nil, err
	}
	frame := make([]byte, binary.BigEndian.Uint32(prefix[:]))
	if _, err := io.ReadFull(r, frame); err != nil {
		return 0, nil, err
	}
	return int32(binary.BigEndian.Uint32(frame)), frame[4:], nil
}

// expect receives the answer to a request and compares it.
func (c *testClient) expect(correlationID int32, body []byte) {
	c.t.Helper()
	id, got := c.receive()
	if id != correlationID || !bytes.Equal(got, body) {
		c.t.Fatalf("answer %d of %d bytes, want %d of %d bytes", id, len(got), correlationID, len(body))
	}
}

// expectClosed wants the end of the stream without another byte.
func (c *testClient) expectClosed() {
	c.t.Helper()
	n, err := c.Read(make([]byte, 64))
	if n != 0 || err == nil || errors.Is(err, context.DeadlineExceeded) || isTimeout(err) {
		c.t.Fatalf("read %d bytes, %v; want the end", n, err)
	}
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// eventually waits for a condition that other goroutines bring about.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(testTimeout); !holds(); {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		<-time.After(time.Millisecond)
	}
}

// pipeListener hands out the ends of net.Pipe, for tests with fake time.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	close(l.closed)
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

func (l *pipeListener) dial(t testing.TB) *testClient {
	t.Helper()
	client, server := net.Pipe()
	l.conns <- server
	t.Cleanup(func() { client.Close() })
	return &testClient{Conn: client, t: t}
}
