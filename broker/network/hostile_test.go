package network

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gregor/protocol"
)

func TestBadFramesCloseOnlyTheirConnection(t *testing.T) {
	s := startServer(t, Options{Handler: echo, MaxRequestBytes: 1 << 20}, ListenerOptions{})
	good := s.dial(t)
	frame := func(key, version int16) []byte {
		return requestOf(&protocol.RequestHeader{Key: key, Version: version}, nil)
	}
	sized := func(n uint32, rest ...byte) []byte { return append(binary.BigEndian.AppendUint32(nil, n), rest...) }
	for name, bytes := range map[string][]byte{
		"unknown key":           frame(999, 0),
		"negative key":          frame(-1, 0),
		"removed key":           frame(7, 3),
		"removed version":       frame(protocol.KeyProduce, 2),
		"version to come":       frame(protocol.KeyMetadata, 14),
		"empty frame":           sized(0),
		"half a header":         sized(6, 0, 3, 0, 1, 0, 0),
		"client id too long":    sized(12, 0, 3, 0, 1, 0, 0, 0, 1, 0, 99, 'a', 'b'),
		"no tag section":        sized(10, 0, 3, 0, 12, 0, 0, 0, 1, 0xff, 0xff),
		"negative size":         sized(0x80000000),
		"size of minus one":     sized(0xffffffff, 0, 0, 0, 0),
		"two gigabytes":         sized(0x7fffffff, 0, 3, 0, 1),
		"one byte over the max": sized(1<<20+1, 0, 3, 0, 1),
		"an HTTP request":       []byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
		"a TLS hello":           {0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3},
	} {
		t.Run(name, func(t *testing.T) {
			c := s.dial(t)
			c.send(request(1, []byte("good")), bytes)
			c.expect(1, []byte("good")) // what came before is answered
			c.expectClosed()
			good.send(request(2, []byte("still here")))
			good.expect(2, []byte("still here"))
		})
	}
	eventually(t, "a line in the log for each", func() bool { return strings.Count(s.logged.String(), "level=WARN") == 15 })
	m := s.Metrics()
	if m.InvalidRequests.Load() != 9 || m.InvalidFrames.Load() != 6 {
		t.Errorf("%d invalid requests, %d invalid frames", m.InvalidRequests.Load(), m.InvalidFrames.Load())
	}
	if log := s.logged.String(); !strings.Contains(log, "unknown API key 999") {
		t.Errorf("log:\n%s", log)
	}
}

func TestTruncatedFramesReachNoHandler(t *testing.T) {
	h := HandlerFunc(func(_ context.Context, r *Request) {
		t.Errorf("served %v", r.Header)
		r.Reply(Response{None: true})
	})
	s := startServer(t, Options{Handler: h}, ListenerOptions{})
	whole := request(1, make([]byte, 100_000))
	for _, cut := range []int{1, 3, 4, 5, 20, 5000, 70_000, len(whole) - 1} {
		c := s.dial(t)
		c.send(whole[:cut])
		c.Close()
	}
	eventually(t, "all connections closed", func() bool {
		return s.Metrics().Accepted.Load() == 8 && s.Metrics().Connections.Load() == 0
	})
}

// TestClaimedSizesTakeNoMemory: 300 connections claim 100 MiB each and send a
// few bytes of it.
func TestClaimedSizesTakeNoMemory(t *testing.T) {
	s := startServer(t, Options{Handler: echo}, ListenerOptions{})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	claim := binary.BigEndian.AppendUint32(nil, 100<<20)
	for range 300 {
		s.dial(t).send(claim, make([]byte, 100))
	}
	eventually(t, "all bytes read", func() bool { return s.Metrics().Reads.Load() >= 300 })
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 30<<20 {
		t.Errorf("%d MiB allocated for 30 KB received", grown>>20)
	}
}

// TestMemoryFollowsTheBytesReceived looks at the buffer of one connection while
// a frame of 32 MiB trickles in.
func TestMemoryFollowsTheBytesReceived(t *testing.T) {
	server := NewServer(Options{Handler: echo})
	c := &Conn{server: server, maxFrameBytes: 100 << 20}
	c.in.init(c)
	in := &c.in
	in.newChunk()
	const size = 32 << 20
	binary.BigEndian.PutUint32(in.chunk.store, size)
	in.end, in.received = 4, 4
	largest := 0
	for in.end-in.begin < size+4 {
		in.makeRoom(size + 4)
		if room := in.limit - in.end; room <= 0 {
			t.Fatalf("no room after %d bytes", in.received)
		}
		if bound := max(2*int(in.received), 2*maxStreamChunkBytes); len(in.chunk.store) > 2*bound {
			t.Fatalf("%d bytes of memory for %d received", len(in.chunk.store), in.received)
		}
		n := min(in.limit-in.end, 10_000)
		in.end += n
		in.received += int64(n)
		largest = max(largest, len(in.chunk.store))
	}
	if got := len(in.cut(size + 4).bytes); got != size || largest < size {
		t.Errorf("frame of %d bytes in a buffer of %d", got, largest)
	}
}

func TestPanicInAHandlerClosesOnlyItsConnection(t *testing.T) {
	h := HandlerFunc(func(ctx context.Context, r *Request) {
		switch string(r.Body) {
		case "panic":
			panic("the handler's fault")
		case "park and panic":
			r.Go(func(context.Context) { panic("the goroutine's fault") })
		case "block and panic":
			r.Block(func(context.Context) { panic("the fault of who blocks") })
		case "task and panic":
			task := r.NewTask(func() { panic("the task's fault") })
			task.Start()
			task.Wake()
		case "answer and panic":
			echo(ctx, r)
			panic("after the answer")
		default:
			echo(ctx, r)
		}
	})
	s := startServer(t, Options{Handler: h, MaxQueuedBytes: 1 << 20}, ListenerOptions{})
	good := s.dial(t)
	for _, body := range []string{"panic", "park and panic", "block and panic", "task and panic", "answer and panic"} {
		c := s.dial(t)
		c.send(request(1, []byte(body)))
		if body == "answer and panic" {
			c.expect(1, []byte(body))
		}
		c.expectClosed()
		good.send(request(2, []byte("good")))
		good.expect(2, []byte("good"))
	}
	if n := s.Metrics().Panics.Load(); n != 5 {
		t.Errorf("%d panics counted", n)
	}
	for _, part := range []string{"the goroutine's fault", "the fault of who blocks", "the task's fault", "stack="} {
		if log := s.logged.String(); !strings.Contains(log, part) {
			t.Errorf("no %q in the log:\n%s", part, log)
		}
	}
	eventually(t, "the budget given back", func() bool { return s.Metrics().QueuedBytes.Load() == 0 })
}

func TestFailClosesWithoutAnAnswer(t *testing.T) {
	h := HandlerFunc(func(ctx context.Context, r *Request) {
		switch string(r.Body) {
		case "bad":
			r.Fail(errors.New("body is no good"))
		case "late":
			r.Go(func(ctx context.Context) {
				<-time.After(5 * time.Millisecond)
				echo(ctx, r)
			})
		case "never":
			t.Error("served after the failure")
			r.Reply(Response{None: true})
		default:
			echo(ctx, r)
		}
	})
	s := startServer(t, Options{Handler: h}, ListenerOptions{})
	c := s.dial(t)
	c.send(request(1, []byte("good")), request(2, []byte("late")), request(3, []byte("bad")), request(4, []byte("never")))
	c.expect(1, []byte("good"))
	c.expect(2, []byte("late"))
	c.expectClosed()
	eventually(t, "a line in the log", func() bool { return strings.Contains(s.logged.String(), "body is no good") })
	if n := s.Metrics().InvalidRequests.Load(); n != 1 {
		t.Errorf("%d invalid requests counted", n)
	}
}

// pipeServer runs a server over net.Pipe in a bubble with fake time.
func pipeServer(t *testing.T, options Options) (*testServer, *pipeListener) {
	t.Helper()
	pipes := newPipeListener()
	return startServer(t, options, ListenerOptions{Socket: pipes}), pipes
}

func TestIdleConnectionsAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, pipes := pipeServer(t, Options{Handler: echo, IdleTimeout: 10 * time.Minute})
		c := pipes.dial(t)
		start := time.Now()
		<-time.After(7 * time.Minute)
		c.send(request(1, nil))
		c.expect(1, nil)
		c.expectClosed()
		if idle := time.Since(start) - 7*time.Minute; idle != 10*time.Minute {
			t.Errorf("closed after %v of idleness", idle)
		}
		synctest.Wait()
		if n := s.Metrics().ClosedIdle.Load(); n != 1 {
			t.Errorf("%d closed as idle", n)
		}
	})
}

func TestAConnectionThatWaitsForAnAnswerIsNotIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := HandlerFunc(func(_ context.Context, r *Request) {
			r.Go(func(ctx context.Context) {
				<-time.After(25 * time.Minute)
				echo(ctx, r)
			})
		})
		_, pipes := pipeServer(t, Options{Handler: h, IdleTimeout: 10 * time.Minute})
		c := pipes.dial(t)
		c.send(request(1, []byte("late")))
		c.expect(1, []byte("late"))
		answered := time.Now()
		c.expectClosed()
		if idle := time.Since(answered); idle < 10*time.Minute || idle > 20*time.Minute {
			t.Errorf("closed %v after the answer", idle)
		}
	})
}

func TestAFrameThatDoesNotComeInClosesTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, pipes := pipeServer(t, Options{Handler: echo, PartialFrameTimeout: time.Minute})
		c := pipes.dial(t)
		start := time.Now()
		sent := make(chan struct{})
		go func() { // a byte every ten seconds
			defer close(sent)
			for _, b := range request(1, make([]byte, 100)) {
				if _, err := c.Write([]byte{b}); err != nil {
					return
				}
				<-time.After(10 * time.Second)
			}
		}()
		c.expectClosed()
		if took := time.Since(start); took != time.Minute {
			t.Errorf("closed after %v", took)
		}
		<-sent
		synctest.Wait() // it is counted after the close
		if n := s.Metrics().ClosedSlow.Load(); n != 1 {
			t.Errorf("%d closed as slow", n)
		}
	})
}

func TestALargeFrameMayTakeLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, pipes := pipeServer(t, Options{Handler: echo, PartialFrameTimeout: time.Minute})
		c := pipes.dial(t)
		body := make([]byte, 2<<20)
		frame := request(1, body)
		sent := make(chan struct{})
		go func() { // 100 KiB every fifty seconds: a quarter of an hour
			defer close(sent)
			for len(frame) > 0 {
				n := min(len(frame), 100<<10)
				if _, err := c.Write(frame[:n]); err != nil {
					t.Error(err)
					return
				}
				frame = frame[n:]
				<-time.After(50 * time.Second)
			}
		}()
		c.expect(1, body)
		<-sent
		c.send(request(2, nil)) // and the idle time counts from here again
		c.expect(2, nil)
		<-time.After(9 * time.Minute)
		c.send(request(3, nil))
		c.expect(3, nil)
	})
}

func TestAPeerThatTakesNoAnswersIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replied := make(chan time.Duration, 1)
		h := HandlerFunc(func(_ context.Context, r *Request) {
			start := time.Now()
			r.Reply(BytesResponse(answer(r, make([]byte, 1<<20))))
			replied <- time.Since(start)
		})
		s, pipes := pipeServer(t, Options{Handler: h, IdleTimeout: 10 * time.Minute})
		c := pipes.dial(t)
		c.send(request(1, nil))
		if took := <-replied; took != 0 {
			t.Errorf("Reply waited %v for the peer", took)
		}
		<-time.After(11 * time.Minute)
		synctest.Wait()
		if n := s.Metrics().ClosedSlow.Load(); n != 1 || s.Metrics().Connections.Load() != 0 {
			t.Errorf("%d closed as slow, %d open", n, s.Metrics().Connections.Load())
		}
	})
}

func TestThrottledAnswerGoesOutAndThenNothingIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := HandlerFunc(func(_ context.Context, r *Request) {
			resp := BytesResponse(answer(r, nil))
			if r.Header.CorrelationID == 1 {
				resp.ThrottleMillis = 3000
			}
			if r.Header.CorrelationID == 3 {
				resp = Response{None: true, ThrottleMillis: 500} // acks=0 is muted too
			}
			r.Reply(resp)
		})
		_, pipes := pipeServer(t, Options{Handler: h})
		c := pipes.dial(t)
		start := time.Now()
		go c.send(request(1, nil), request(2, nil), request(3, nil), request(4, nil))
		for id, want := range map[int32]time.Duration{1: 0} {
			c.expect(id, nil)
			if got := time.Since(start); got != want {
				t.Errorf("answer %d after %v, want %v", id, got, want)
			}
		}
		c.expect(2, nil)
		if got := time.Since(start); got != 3*time.Second {
			t.Errorf("next answer after %v, want 3s", got)
		}
		c.expect(4, nil)
		if got := time.Since(start); got != 3500*time.Millisecond {
			t.Errorf("answer after acks=0 after %v, want 3.5s", got)
		}
	})
}

// FuzzConnection throws bytes at a connection: whatever they are, the server
// takes the next connection, and every frame it served was well formed.
func FuzzConnection(f *testing.F) {
	f.Add(request(1, []byte("body")))
	f.Add(bytes.Join([][]byte{request(1, nil), request(2, make([]byte, 70_000)), {0, 0}}, nil))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 10})
	pipes := newPipeListener()
	h := HandlerFunc(func(ctx context.Context, r *Request) {
		if r.FrameBytes < 10+len(r.Body) || protocol.APIName(r.Header.Key) == "Unknown" {
			panic("served a frame that is none")
		}
		echo(ctx, r)
	})
	s := startServer(f, Options{Handler: h, MaxRequestBytes: 1 << 20}, ListenerOptions{Socket: pipes})
	f.Fuzz(func(t *testing.T, data []byte) {
		c := pipes.dial(t)
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			random := rand.New(rand.NewPCG(uint64(len(data)), 1))
			for rest := data; len(rest) > 0; {
				n := 1 + random.IntN(len(rest))
				if _, err := c.Write(rest[:n]); err != nil {
					return
				}
				rest = rest[n:]
			}
			c.Close()
		}()
		for {
			if _, _, err := readAnswer(c); err != nil {
				break
			}
		}
		<-sent
		if s.Metrics().Panics.Load() != 0 {
			t.Fatal(s.logged.String())
		}
		next := pipes.dial(t)
		next.send(request(7, []byte("next")))
		next.expect(7, []byte("next"))
		next.Close()
	})
}
