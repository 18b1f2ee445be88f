package network

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gregor/protocol"
)

func TestAnswersGoOutInRequestOrder(t *testing.T) {
	const requests = 40
	all := make(chan *Request, requests)
	hold := HandlerFunc(func(_ context.Context, r *Request) { all <- r })
	s := startServer(t, Options{Handler: hold}, ListenerOptions{})
	c := s.dial(t)
	for i := range int32(requests) {
		c.send(request(i, []byte{byte(i)}))
	}
	held := make([]*Request, requests)
	for i := range held {
		held[i] = <-all
		if got := held[i].Header.CorrelationID; got != int32(i) {
			t.Fatalf("request %d was served as number %d", got, i)
		}
	}
	var wg sync.WaitGroup
	for _, i := range rand.Perm(requests) {
		r := held[i]
		wg.Go(func() { r.Reply(BytesResponse(answer(r, bytes.Clone(r.Body)))) })
	}
	for i := range int32(requests) {
		c.expect(i, []byte{byte(i)})
	}
	wg.Wait()
}

func TestAWaitingRequestDoesNotStopTheNext(t *testing.T) {
	release, second := make(chan struct{}), make(chan struct{})
	h := HandlerFunc(func(_ context.Context, r *Request) {
		if r.Header.CorrelationID == 0 {
			r.Go(func(context.Context) {
				<-release
				r.Reply(BytesResponse(answer(r, r.Body)))
			})
			return
		}
		echo(context.Background(), r)
		close(second)
	})
	s := startServer(t, Options{Handler: h}, ListenerOptions{})
	c := s.dial(t)
	c.send(request(0, []byte("first")), request(1, []byte("second")))
	<-second // served although the first still waits
	close(release)
	c.expect(0, []byte("first"))
	c.expect(1, []byte("second"))
}

func TestRequestsInTheWorksAreBounded(t *testing.T) {
	const bound = 4
	var mu sync.Mutex
	var held []*Request
	h := HandlerFunc(func(_ context.Context, r *Request) {
		mu.Lock()
		held = append(held, r)
		mu.Unlock()
	})
	take := func() []*Request {
		mu.Lock()
		defer mu.Unlock()
		taken := held
		held = nil
		return taken
	}
	s := startServer(t, Options{Handler: h, MaxOutstanding: bound}, ListenerOptions{})
	c := s.dial(t)
	var frames [][]byte
	for i := range int32(3 * bound) {
		frames = append(frames, request(i, nil))
	}
	c.send(frames...)
	next := int32(0)
	for range 3 {
		var now []*Request
		eventually(t, "a full set of requests", func() bool { now = append(now, take()...); return len(now) >= bound })
		<-time.After(5 * time.Millisecond)
		if more := take(); len(now) != bound || len(more) != 0 {
			t.Fatalf("%d and %d requests in the works, at most %d may be", len(now), len(more), bound)
		}
		for _, r := range now {
			r.Reply(BytesResponse(answer(r, nil)))
			c.expect(next, nil)
			next++
		}
	}
}

func TestCorkedAnswersDoNotFillTheBound(t *testing.T) {
	s := startServer(t, Options{Handler: echo, MaxOutstanding: 2}, ListenerOptions{})
	c := s.dial(t)
	var frames [][]byte
	for i := range int32(50) {
		frames = append(frames, request(i, []byte("x")))
	}
	c.send(frames...)
	for i := range int32(50) {
		c.expect(i, []byte("x"))
	}
}

func TestRequestsThatCameTogetherShareAWrite(t *testing.T) {
	s := startServer(t, Options{Handler: echo}, ListenerOptions{})
	c := s.dial(t)
	var frames [][]byte
	for i := range int32(maxCorkedAnswers) {
		frames = append(frames, request(i, []byte("body")))
	}
	writes := func() int64 { return s.Metrics().Writes.Load() }
	for attempt := range 20 { // the segments may arrive apart, or the 200 us be over
		before := writes()
		c.send(frames...)
		for i := range int32(maxCorkedAnswers) {
			c.expect(i, []byte("body"))
		}
		if n := writes() - before; n == 1 {
			return
		} else if attempt == 19 {
			t.Fatalf("%d answers took %d writes", maxCorkedAnswers, n)
		}
	}
}

func TestAnAnswerIsNotHeldBackByAParkedRequest(t *testing.T) {
	parked := make(chan *Request, 1)
	h := HandlerFunc(func(ctx context.Context, r *Request) {
		if r.Header.CorrelationID == 1 {
			parked <- r
			return
		}
		echo(ctx, r)
	})
	s := startServer(t, Options{Handler: h}, ListenerOptions{})
	c := s.dial(t)
	c.send(request(0, []byte("a")), request(1, []byte("b")))
	c.expect(0, []byte("a")) // although its answer was corked for the second's
	r := <-parked
	r.Reply(BytesResponse(answer(r, []byte("b"))))
	c.expect(1, []byte("b"))
}

func TestNoAnswerIsWrittenForNone(t *testing.T) {
	h := HandlerFunc(func(ctx context.Context, r *Request) {
		if r.Header.CorrelationID%2 == 0 {
			r.Reply(Response{None: true})
			return
		}
		echo(ctx, r)
	})
	s := startServer(t, Options{Handler: h}, ListenerOptions{})
	c := s.dial(t)
	for i := range int32(10) {
		c.send(request(i, []byte("x")))
	}
	for i := int32(1); i < 10; i += 2 {
		c.expect(i, []byte("x"))
	}
}

func TestConnectionsDoNotMixUpTheirBytes(t *testing.T) {
	const conns, rounds = 40, 12
	h := HandlerFunc(func(ctx context.Context, r *Request) {
		switch r.Header.CorrelationID % 4 {
		case 0:
			echo(ctx, r)
		case 1: // from elsewhere, and the frame is given back before the answer
			body := bytes.Clone(r.Body)
			r.Release()
			r.Go(func(context.Context) { r.Reply(BytesResponse(answer(r, body))) })
		case 2: // as parts, one of which aliases the frame
			head := protocol.AppendResponseHeader(make([]byte, 4), &r.Header)
			binary.BigEndian.PutUint32(head, uint32(len(head)-4+len(r.Body)))
			r.Reply(Response{Parts: []Part{{Bytes: head}, {Bytes: r.Body}}})
		default: // from a pooled buffer
			b := NewBuffer(len(r.Body) + 64)
			b.B = protocol.AppendOpaqueResponse(b.B, &r.Header, r.Body)
			r.Reply(Response{Parts: []Part{{Bytes: b.B}}, Buffer: b})
		}
	})
	s := startServer(t, Options{Handler: h}, ListenerOptions{})
	var wg sync.WaitGroup
	for n := range conns {
		c := s.dial(t)
		wg.Go(func() { exchange(t, c, rand.New(rand.NewPCG(uint64(n), 7)), rounds) })
	}
	wg.Wait()
	if got := s.Metrics().Requests.Load(); got != conns*rounds*4 {
		t.Errorf("%d requests counted, want %d", got, conns*rounds*4)
	}
	if in, out := s.Metrics().RequestBytes.Load(), s.Metrics().ResponseBytes.Load(); in < out || out == 0 {
		t.Errorf("%d bytes in, %d out", in, out)
	}
}

// exchange sends frames of random sizes in random pieces, four in flight, and
// compares what comes back.
func exchange(t *testing.T, c *testClient, random *rand.Rand, rounds int) {
	next := int32(0)
	for range rounds {
		var stream []byte
		var bodies [][]byte
		for range 4 {
			size := random.IntN(300)
			switch random.IntN(12) {
			case 0:
				size = random.IntN(400 << 10)
			case 1:
				size = random.IntN(20 << 10)
			}
			body := bytes.Repeat([]byte{byte(random.Int())}, size)
			stream = append(stream, request(next+int32(len(bodies)), body)...)
			bodies = append(bodies, body)
		}
		done := make(chan error, 1)
		go func() {
			for len(stream) > 0 {
				n := min(len(stream), 1+random.IntN(1+len(stream)))
				if _, err := c.Write(stream[:n]); err != nil {
					done <- err
					return
				}
				stream = stream[n:]
			}
			done <- nil
		}()
		for _, want := range bodies {
			id, got, err := readAnswer(c)
			if err != nil || id != next || !bytes.Equal(got, want) {
				t.Errorf("answer %d (%d bytes, %v), want %d (%d bytes)", id, len(got), err, next, len(want))
				return
			}
			next++
		}
		if err := <-done; err != nil {
			t.Error(err)
			return
		}
	}
}

func TestHalfClosedConnectionStillGetsItsAnswers(t *testing.T) {
	release := make(chan struct{})
	h := HandlerFunc(func(_ context.Context, r *Request) {
		r.Go(func(ctx context.Context) {
			<-release
			echo(ctx, r)
		})
	})
	s := startServer(t, Options{Handler: h}, ListenerOptions{})
	c := s.dial(t)
	c.send(request(0, []byte("a")), request(1, []byte("b")))
	if err := c.Conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "both requests in", func() bool { return s.Metrics().Requests.Load() == 2 })
	close(release)
	c.expect(0, []byte("a"))
	c.expect(1, []byte("b"))
	c.expectClosed()
}

func TestCloseAfterDeliversTheAnswerEvenWithInputUnread(t *testing.T) {
	h := HandlerFunc(func(_ context.Context, r *Request) {
		r.Reply(Response{Parts: []Part{{Bytes: answer(r, []byte("last"))}}, CloseAfter: true})
	})
	s := startServer(t, Options{Handler: h}, ListenerOptions{})
	for range 20 {
		c := s.dial(t)
		frames := [][]byte{request(0, nil)}
		for i := range int32(200) {
			frames = append(frames, request(i+1, make([]byte, 1000)))
		}
		c.send(frames...)
		c.expect(0, []byte("last"))
		rest, err := io.ReadAll(c)
		if err != nil || len(rest) != 0 {
			t.Fatalf("after the last answer: %d bytes, %v", len(rest), err)
		}
		c.Close()
	}
}

func TestApiVersionsOfAnUnknownVersionReachesTheHandler(t *testing.T) {
	var unsupported atomic.Int32
	h := HandlerFunc(func(ctx context.Context, r *Request) {
		if r.Header.UnsupportedApiVersions() {
			unsupported.Add(1)
		}
		echo(ctx, r)
	})
	s := startServer(t, Options{Handler: h}, ListenerOptions{})
	c := s.dial(t)
	for i, version := range []int16{99, 3, -1} {
		hdr := protocol.RequestHeader{Key: protocol.KeyApiVersions, Version: version, CorrelationID: int32(i)}
		c.send(requestOf(&hdr, []byte("body")))
		c.expect(int32(i), []byte("body")) // response header 0, always
	}
	if n := unsupported.Load(); n != 2 {
		t.Errorf("%d requests of unknown version, want 2", n)
	}
}

func TestRequestTellsWhoAsks(t *testing.T) {
	seen := make(chan string, 1)
	h := HandlerFunc(func(ctx context.Context, r *Request) {
		c := r.Conn
		name, version := c.ClientSoftware()
		seen <- fmt.Sprint(c.ListenerName(), " ", c.RemoteAddr(), " ", c.LocalAddr(), " ", c.Principal(), " ", name, " ", version, " ", r.Header.ClientID)
		c.SetClientSoftware("lib", "1.2")
		c.SetPrincipal(Principal{Type: "User", Name: "alice"})
		if r.ReceivedAt.IsZero() || time.Since(r.ReceivedAt) > testTimeout || r.FrameBytes != 10+len("test")+len(r.Body) {
			t.Errorf("received at %v, %d bytes", r.ReceivedAt, r.FrameBytes)
		}
		echo(ctx, r)
	})
	s := startServer(t, Options{Handler: h}, ListenerOptions{Name: "EXTERNAL"})
	c := s.dial(t)
	for i, who := range []string{"User:ANONYMOUS unknown unknown", "User:alice lib 1.2"} {
		c.send(request(int32(i), nil))
		want := fmt.Sprintf("EXTERNAL %v %v %s test", c.Conn.LocalAddr(), c.Conn.RemoteAddr(), who)
		if got := <-seen; got != want {
			t.Errorf("request %d came from %q, want %q", i, got, want)
		}
		c.expect(int32(i), nil)
	}
}
