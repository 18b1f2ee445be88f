package network

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"math/big"
	"net"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var loopback = netip.MustParseAddr("127.0.0.1")

func TestConnectionsPerAddressAreBounded(t *testing.T) {
	for name, limits := range map[string]Limits{
		"for all":     {MaxConnectionsPerIP: 2},
		"by override": {MaxConnectionsPerIP: 5, MaxConnectionsPerIPOverrides: map[netip.Addr]int{loopback: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t, Options{Handler: echo, Limits: limits}, ListenerOptions{})
			first, second := s.dial(t), s.dial(t)
			second.send(request(1, nil))
			second.expect(1, nil)
			s.dial(t).expectClosed()
			if n := s.Metrics().RejectedPerIP.Load(); n != 1 {
				t.Errorf("%d rejected", n)
			}
			first.Close()
			eventually(t, "room for another", func() bool { return s.listener.Connections() == 1 })
			third := s.dial(t)
			third.send(request(1, nil))
			third.expect(1, nil)
		})
	}
}

func TestOverrideOfZeroShutsAnAddressOut(t *testing.T) {
	limits := Limits{MaxConnectionsPerIPOverrides: map[netip.Addr]int{loopback: 0, netip.MustParseAddr("10.0.0.1"): 3}}
	if n := limits.perIP(netip.MustParseAddr("10.0.0.2")); n != 0 {
		t.Errorf("an address without override may have %d", n)
	}
	s := startServer(t, Options{Handler: echo, Limits: limits}, ListenerOptions{})
	s.dial(t).expectClosed()
}

func TestConnectionsOverTheMaximumWait(t *testing.T) {
	for name, options := range map[string]struct {
		server   Limits
		listener ListenerLimits
	}{
		"of the server":   {server: Limits{MaxConnections: 2}},
		"of the listener": {listener: ListenerLimits{MaxConnections: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t, Options{Handler: echo, Limits: options.server}, ListenerOptions{Limits: options.listener})
			clients := []*testClient{s.dial(t), s.dial(t), s.dial(t)}
			for _, c := range clients {
				c.send(request(1, nil))
			}
			clients[0].expect(1, nil)
			clients[1].expect(1, nil)
			eventually(t, "the third waits", func() bool { return s.Metrics().AcceptThrottled.Load() == 1 })
			if n := s.Metrics().Accepted.Load(); n != 2 {
				t.Fatalf("%d accepted", n)
			}
			clients[0].Close()
			clients[2].expect(1, nil)
			fourth := s.dial(t)
			fourth.send(request(1, nil))
			eventually(t, "the fourth waits", func() bool { return s.Metrics().AcceptThrottled.Load() == 2 })
			s.SetLimits(Limits{})
			s.listener.SetLimits(ListenerLimits{})
			fourth.expect(1, nil)
		})
	}
}

func TestProtectedListenerEvictsTheLongestIdleOfTheOthers(t *testing.T) {
	s := startServer(t, Options{Handler: echo, Limits: Limits{MaxConnections: 2}}, ListenerOptions{})
	inter, err := s.Listen(ListenerOptions{Name: "REPLICATION", Address: "127.0.0.1:0", Protected: true})
	if err != nil {
		t.Fatal(err)
	}
	old, young := s.dial(t), s.dial(t)
	for _, c := range []*testClient{old, young} {
		c.send(request(1, nil))
		c.expect(1, nil)
	}
	young.send(request(2, nil))
	young.expect(2, nil)
	broker := dialAddr(t, inter.Addr().String())
	broker.send(request(1, nil))
	broker.expect(1, nil)
	old.expectClosed()
	young.send(request(3, nil))
	young.expect(3, nil)
	eventually(t, "the eviction counted", func() bool { return s.Metrics().Evicted.Load() == 1 })
}

func TestConnectionRateIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, pipes := pipeServer(t, Options{Handler: echo, Limits: Limits{MaxConnectionsPerSecond: 4}})
		start := time.Now()
		for range 4 {
			pipes.dial(t) // a second's worth at once
		}
		synctest.Wait()
		if n, took := s.Metrics().Accepted.Load(), time.Since(start); n != 4 || took != 0 {
			t.Errorf("%d accepted in %v", n, took)
		}
		for range 9 {
			pipes.dial(t)
		}
		synctest.Wait()
		if took := time.Since(start); took < 2*time.Second-time.Millisecond || took > 2*time.Second+time.Millisecond {
			t.Errorf("twelve connections began within %v", took)
		}
	})
}

func TestRequestBytesInMemoryAreBounded(t *testing.T) {
	var mu sync.Mutex
	var held []*Request
	h := HandlerFunc(func(_ context.Context, r *Request) {
		mu.Lock()
		held = append(held, r)
		mu.Unlock()
	})
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(held)
	}
	s := startServer(t, Options{Handler: h, MaxQueuedBytes: 150_000}, ListenerOptions{})
	var clients []*testClient
	for range 4 {
		c := s.dial(t)
		c.send(request(1, make([]byte, 100_000)))
		clients = append(clients, c)
	}
	eventually(t, "two requests in", func() bool { return count() == 2 })
	<-time.After(10 * time.Millisecond)
	if n, bytes := count(), s.Metrics().QueuedBytes.Load(); n != 2 || bytes < 200_000 || bytes > 201_000 {
		t.Fatalf("%d requests of %d bytes are in", n, bytes)
	}
	for i := range 4 {
		eventually(t, "the next request in", func() bool { return count() > i })
		mu.Lock()
		r := held[i]
		mu.Unlock()
		r.Reply(BytesResponse(answer(r, nil)))
	}
	for _, c := range clients {
		c.expect(1, nil)
	}
	eventually(t, "the budget given back", func() bool { return s.Metrics().QueuedBytes.Load() == 0 })
}

func TestARequestThatWaitsForMemoryLeavesWithItsConnection(t *testing.T) {
	b := &byteBudget{maxBytes: 10, gauge: &(&Metrics{}).QueuedBytes}
	if err := b.take(context.Background(), 10); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		results := make(chan error, 2)
		go func() { results <- b.take(ctx, 5) }()
		synctest.Wait()
		go func() { results <- b.take(context.Background(), 6) }()
		synctest.Wait()
		cancel()
		if err := <-results; !errors.Is(err, context.Canceled) {
			t.Errorf("the first waiter got %v", err)
		}
		b.give(10)
		if err := <-results; err != nil {
			t.Errorf("the second waiter got %v", err)
		}
	})
	if b.used != 6 || len(b.waiting) != 0 {
		t.Errorf("%d used, %d waiting", b.used, len(b.waiting))
	}
}

func TestStopAnswersWhatIsIn(t *testing.T) {
	release := make(chan struct{})
	h := HandlerFunc(func(_ context.Context, r *Request) {
		r.Go(func(ctx context.Context) {
			<-release
			echo(ctx, r)
		})
	})
	s := startServer(t, Options{Handler: h}, ListenerOptions{})
	idle, busy := s.dial(t), s.dial(t)
	busy.send(request(1, []byte("in")), request(2, []byte("in too")))
	eventually(t, "both requests in", func() bool { return s.Metrics().Requests.Load() == 2 })
	stopped := make(chan error, 1)
	go func() { stopped <- s.Stop(context.Background()) }()
	idle.expectClosed()
	if _, err := net.Dial("tcp", s.listener.Addr().String()); err == nil {
		t.Error("a new connection was taken during the stop")
	}
	close(release)
	busy.expect(1, []byte("in"))
	busy.expect(2, []byte("in too"))
	busy.expectClosed()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if _, err := s.Listen(ListenerOptions{Name: "LATE", Address: "127.0.0.1:0"}); err == nil {
		t.Error("a listener was opened after the stop")
	}
}

func TestStopGivesUpWithItsContext(t *testing.T) {
	ended := make(chan struct{})
	h := HandlerFunc(func(_ context.Context, r *Request) {
		r.Go(func(ctx context.Context) {
			<-ctx.Done()
			close(ended)
			r.Reply(Response{None: true})
		})
	})
	s := startServer(t, Options{Handler: h}, ListenerOptions{})
	c := s.dial(t)
	c.send(request(1, nil))
	eventually(t, "the request in", func() bool { return s.Metrics().Requests.Load() == 1 })
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := s.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("stop: %v", err)
	}
	<-ended
	c.expectClosed()
}

func TestListenSaysWhatIsWrong(t *testing.T) {
	s := startServer(t, Options{Handler: echo}, ListenerOptions{})
	if _, err := s.Listen(ListenerOptions{Name: "TWICE", Address: s.listener.Addr().String()}); err == nil {
		t.Error("the same port twice")
	}
	if _, err := NewServer(Options{}).Listen(ListenerOptions{Name: "X", Address: "127.0.0.1:0"}); err == nil {
		t.Error("a listener without handler")
	}
}

func TestListenersHaveTheirOwnHandlers(t *testing.T) {
	s := startServer(t, Options{Handler: echo}, ListenerOptions{})
	other := HandlerFunc(func(_ context.Context, r *Request) { r.Reply(BytesResponse(answer(r, []byte("controller")))) })
	l, err := s.Listen(ListenerOptions{Name: "CONTROLLER", Address: "127.0.0.1:0", Handler: other})
	if err != nil {
		t.Fatal(err)
	}
	c, d := s.dial(t), dialAddr(t, l.Addr().String())
	c.send(request(1, []byte("broker")))
	d.send(request(1, []byte("broker")))
	c.expect(1, []byte("broker"))
	d.expect(1, []byte("controller"))
}

// greeter lets a connection in that says the word, after a bare token.
type greeter struct {
	conn  *Conn
	calls int
}

func (g *greeter) Authenticate(_ context.Context, frame []byte) ([]byte, bool, error) {
	g.calls++
	answer := append([]byte{0, 0, 0, 2}, "ok"...)
	switch {
	case g.calls == 1:
		return answer, false, nil
	case string(frame) == "password":
		g.conn.SetPrincipal(Principal{Type: "User", Name: "greeted"})
		return answer, true, nil
	case string(frame) == "panic":
		panic("authenticator's fault")
	case string(frame) == "hang up":
		return nil, false, errors.New("no answer for that")
	default:
		return append([]byte{0, 0, 0, 2}, "no"...), false, errors.New("wrong password")
	}
}

func TestAuthenticationComesBeforeRequests(t *testing.T) {
	h := HandlerFunc(func(_ context.Context, r *Request) {
		r.Reply(BytesResponse(answer(r, []byte(r.Conn.Principal().String()))))
	})
	s := startServer(t, Options{Handler: h, MaxQueuedBytes: 1 << 20}, ListenerOptions{
		NewAuthenticator: func(c *Conn) Authenticator { return &greeter{conn: c} },
	})
	frame := func(b string) []byte { return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...) }
	reply := func(c *testClient) string {
		t.Helper()
		got := make([]byte, 6)
		if _, err := c.Read(got); err != nil {
			t.Fatal(err)
		}
		return string(got[4:])
	}
	c := s.dial(t)
	c.send(frame("hello"))
	reply(c)
	c.send(frame("password"), request(1, make([]byte, MaxUnauthenticatedFrameBytes)))
	reply(c)
	c.expect(1, []byte("User:greeted"))

	for _, last := range []string{"guess", "hang up", "panic"} {
		c := s.dial(t)
		c.send(frame("hello"))
		reply(c)
		c.send(frame(last), request(1, nil))
		if last == "guess" && reply(c) != "no" {
			t.Error("no answer to a wrong password")
		}
		c.expectClosed()
	}
	c = s.dial(t)
	c.send(binary.BigEndian.AppendUint32(nil, MaxUnauthenticatedFrameBytes+1))
	c.expectClosed()
	m := s.Metrics()
	eventually(t, "everything counted", func() bool {
		return m.FailedHandshakes.Load() == 2 && m.Panics.Load() == 1 && m.InvalidFrames.Load() == 1 && m.Requests.Load() == 1
	})
}

func testCertificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// TestUpgradedConnectionCarriesFrames puts TLS between, so that the system calls
// are not our own.
func TestUpgradedConnectionCarriesFrames(t *testing.T) {
	config := &tls.Config{Certificates: []tls.Certificate{testCertificate(t)}}
	s := startServer(t, Options{Handler: echo}, ListenerOptions{
		Upgrade: func(ctx context.Context, raw net.Conn, c *Conn) (net.Conn, error) {
			secure := tls.Server(raw, config)
			c.SetPrincipal(Principal{Type: "User", Name: "CN=test"})
			return secure, secure.HandshakeContext(ctx)
		},
	})
	raw := s.dial(t)
	c := &testClient{Conn: tls.Client(raw, &tls.Config{InsecureSkipVerify: true}), t: t}
	for i := range int32(20) {
		body := make([]byte, int(i)*20_000)
		c.send(request(2*i, body), request(2*i+1, []byte("small")))
		c.expect(2*i, body)
		c.expect(2*i+1, []byte("small"))
	}
	plain := s.dial(t)
	plain.send(request(1, nil))
	_, _, _ = readAnswer(plain) // a TLS alert, or nothing
	eventually(t, "the failure counted", func() bool { return s.Metrics().FailedHandshakes.Load() == 1 })
}
