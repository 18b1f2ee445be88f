package network

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"testing"
	"time"
)

// gate is a handler that keeps requests whose body says so in Serve until it is opened.
type gate struct {
	entered chan struct{}
	opened  chan struct{}
}

func newGate() *gate { return &gate{entered: make(chan struct{}, 100), opened: make(chan struct{})} }

func (g *gate) Serve(_ context.Context, r *Request) {
	if string(r.Body) == "stay" {
		g.entered <- struct{}{}
		<-g.opened
	}
	r.Reply(BytesResponse(answer(r, r.Body)))
}

func TestHandlersThatDoNotReturnHoldUpOnlyTheirConnections(t *testing.T) {
	g := newGate()
	s := startServer(t, Options{Handler: g}, ListenerOptions{})
	stuck := make([]*testClient, runtime.GOMAXPROCS(0)+3)
	for i := range stuck {
		stuck[i] = s.dial(t)
		stuck[i].send(request(1, []byte("stay")))
		<-g.entered
	}
	others := make([]*testClient, 50)
	for i := range others {
		others[i] = s.dial(t)
		others[i].send(request(1, []byte("go")))
	}
	for _, c := range others {
		c.expect(1, []byte("go"))
	}
	close(g.opened)
	for _, c := range stuck {
		c.expect(1, []byte("stay"))
	}
}

func TestWorkersThatWereNeededMeanwhileLeave(t *testing.T) {
	g := newGate()
	s := startServerAs(t, Options{Handler: g}, ListenerOptions{}, true)
	p := s.pollerOrNil()
	want := max(runtime.GOMAXPROCS(0)-1, 1)
	stuck := make([]*testClient, runtime.GOMAXPROCS(0)+3)
	for i := range stuck {
		stuck[i] = s.dial(t)
		stuck[i].send(request(0, []byte("go")))
		stuck[i].expect(0, []byte("go"))
		s.awaitIdleConn(t) // what comes before a connection is watched is served by a goroutine of its own
		stuck[i].send(request(1, []byte("stay")))
		<-g.entered
	}
	if n := p.workerCount(); n < len(stuck) {
		t.Errorf("%d workers for %d handlers that do not return", n, len(stuck))
	}
	close(g.opened)
	for _, c := range stuck {
		c.expect(1, []byte("stay"))
	}
	for deadline := time.Now().Add(testTimeout); p.workerCount() > want; {
		if time.Now().After(deadline) {
			t.Fatalf("%d workers are left, want %d", p.workerCount(), want)
		}
		for i, c := range stuck {
			c.send(request(int32(i+2), []byte("go")))
			c.expect(int32(i+2), []byte("go"))
		}
	}
}

// awaitIdleConn waits until the poller watches a connection that nobody serves.
func (s *testServer) awaitIdleConn(t *testing.T) {
	t.Helper()
	eventually(t, "an idle connection", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for c := range s.conns {
			if c.watched.Load() && c.turn.Load() == turnFree {
				return true
			}
		}
		return false
	})
}

func (p *poller) workerCount() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.workers)
}

func TestWhoWaitsForAStuckWorkerGetsAnother(t *testing.T) {
	g := newGate()
	s := startServer(t, Options{Handler: g}, ListenerOptions{})
	clients := make([]*testClient, 4*minEvents)
	for i := range clients {
		clients[i] = s.dial(t)
	}
	// All at once, so that some are taken together with one that stays.
	for i, c := range clients {
		if i%minEvents == 0 {
			c.send(request(1, []byte("stay")))
		} else {
			c.send(request(1, []byte("go")))
		}
	}
	for i, c := range clients {
		if i%minEvents != 0 {
			c.expect(1, []byte("go"))
		}
	}
	close(g.opened)
	for i := 0; i < len(clients); i += minEvents {
		clients[i].expect(1, []byte("stay"))
	}
}

func TestBlockHoldsUpItsConnectionAndNoOther(t *testing.T) {
	opened := make(chan struct{})
	s := startServer(t, Options{Handler: HandlerFunc(func(_ context.Context, r *Request) {
		switch string(r.Body) {
		case "block":
			r.Block(func(ctx context.Context) {
				if ctx != r.Conn.Context() {
					t.Error("not the connection's context")
				}
				<-opened
				r.Reply(BytesResponse(answer(r, r.Body)))
			})
		case "late":
			select {
			case <-opened:
			default:
				t.Error("a request was served before one that blocks was done")
			}
			fallthrough
		default:
			r.Reply(BytesResponse(answer(r, r.Body)))
		}
	})}, ListenerOptions{})
	c, other := s.dial(t), s.dial(t)
	c.send(request(1, []byte("before")), request(2, []byte("block")), request(3, []byte("late")), request(4, []byte("late")))
	c.expect(1, []byte("before")) // not held back for the next one's answer
	other.send(request(1, []byte("other")))
	other.expect(1, []byte("other"))
	close(opened)
	c.expect(2, []byte("block"))
	c.expect(3, []byte("late"))
	c.expect(4, []byte("late"))
}

// watchedPair returns our socket and the peer's end of a connection.
func watchedPair(t *testing.T) (*socket, *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	peer, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { peer.Close() })
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	server := NewServer(Options{Handler: echo})
	p := server.pollerOrNil()
	t.Cleanup(server.stopPoller)
	c := &Conn{server: server}
	c.turn.Store(turnTaken) // the test reads
	s, err := newSocket(p, c, accepted.(*net.TCPConn))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if err := p.add(s); err != nil {
		t.Fatal(err)
	}
	return s, peer.(*net.TCPConn)
}

func TestASocketReadsWritesAndEnds(t *testing.T) {
	s, peer := watchedPair(t)
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<20) // more than the buffers of both ends take
	got := make(chan []byte)
	go func() {
		time.Sleep(10 * time.Millisecond)
		b, _ := io.ReadAll(peer)
		got <- b
	}()
	if n, err := s.Write(sent); n != len(sent) || err != nil {
		t.Fatalf("wrote %d of %d bytes: %v", n, len(sent), err)
	}
	if err := s.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if b := <-got; !bytes.Equal(b, sent) {
		t.Fatalf("the peer got %d bytes, want %d", len(b), len(sent))
	}
	go func() {
		time.Sleep(10 * time.Millisecond)
		_, _ = peer.Write([]byte("late"))
		_ = peer.CloseWrite()
	}()
	if b, err := io.ReadAll(s); string(b) != "late" || err != nil {
		t.Fatalf("read %q: %v", b, err)
	}
	if s.RemoteAddr().String() != peer.LocalAddr().String() || s.LocalAddr().String() != peer.RemoteAddr().String() {
		t.Error("the addresses are not those of the connection")
	}
}

func TestDeadlinesEndTheWaitOfASocket(t *testing.T) {
	s, peer := watchedPair(t)
	b := make([]byte, 1<<20)
	for _, at := range []time.Time{time.Now().Add(20 * time.Millisecond), time.Unix(1, 0)} {
		if err := s.SetDeadline(at); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("read: %v, want a passed deadline", err)
		}
	}
	if err := s.SetWriteDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := s.Write(b); err != nil {
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("write: %v, want a passed deadline", err)
			}
			break
		}
	}
	// One that is moved or taken away does not fire.
	if err := errors.Join(s.SetReadDeadline(time.Now().Add(5*time.Millisecond)), s.SetReadDeadline(time.Time{})); err != nil {
		t.Fatal(err)
	}
	go func() {
		time.Sleep(30 * time.Millisecond)
		_, _ = peer.Write([]byte("x"))
	}()
	if n, err := s.Read(b); n != 1 || err != nil {
		t.Errorf("read %d bytes: %v", n, err)
	}
}

func TestClosingEndsTheWaitOfASocket(t *testing.T) {
	s, _ := watchedPair(t)
	ended := make(chan error)
	go func() {
		_, err := s.Read(make([]byte, 1))
		ended <- err
	}()
	time.Sleep(10 * time.Millisecond)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("a read of a closed socket succeeded")
	}
	for what, err := range map[string]error{
		"close": s.Close(), "deadline": s.SetDeadline(time.Now()), "half close": s.CloseWrite(),
		"raw": rawSocket{s}.Control(func(uintptr) { t.Error("a closed descriptor is used") }),
	} {
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s after the close: %v", what, err)
		}
	}
}
