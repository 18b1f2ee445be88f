package peer

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/protocol"
)

// server answers every request on a listener with what handle returns; a nil answer closes the connection.
func server(t *testing.T, handle func(hdr protocol.RequestHeader, body []byte) []byte) Endpoint {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			go serve(nc, handle)
		}
	}()
	host, port, _ := net.SplitHostPort(l.Addr().String())
	n, _ := strconv.Atoi(port)
	return Endpoint{NodeID: 7, Host: host, Port: uint16(n)}
}

func serve(nc net.Conn, handle func(hdr protocol.RequestHeader, body []byte) []byte) {
	defer func() { _ = nc.Close() }()
	var mu sync.Mutex
	for {
		frame, err := readFrame(nc, 1<<20)
		if err != nil {
			return
		}
		hdr, body, err := protocol.ParseRequest(frame)
		if err != nil {
			return
		}
		go func() {
			answer := handle(hdr, body)
			if answer == nil {
				_ = nc.Close()
				return
			}
			mu.Lock()
			defer mu.Unlock()
			_, _ = nc.Write(answer)
		}()
	}
}

func metadata(hdr protocol.RequestHeader, cluster string) []byte {
	resp := kmsg.NewPtrMetadataResponse()
	resp.SetVersion(hdr.Version)
	resp.ClusterID = &cluster
	out := protocol.AppendResponseHeader(make([]byte, 4), &hdr)
	out = resp.AppendTo(out)
	binary.BigEndian.PutUint32(out, uint32(len(out)-4))
	return out
}

func request() *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	req.SetVersion(12)
	return req
}

func TestPipelinedRequestsGetTheirOwnAnswersInAnyOrder(t *testing.T) {
	first := make(chan struct{})
	var once sync.Once
	to := server(t, func(hdr protocol.RequestHeader, _ []byte) []byte {
		if hdr.CorrelationID == 0 {
			<-first // answered after the others
		} else {
			once.Do(func() { close(first) })
		}
		return metadata(hdr, strconv.Itoa(int(hdr.CorrelationID)))
	})
	p := NewPool(Options{ClientID: "t"})
	defer p.Close()
	var wg sync.WaitGroup
	seen := sync.Map{}
	for range 20 {
		wg.Go(func() {
			resp, err := p.Do(context.Background(), to, request())
			if err != nil {
				t.Error(err)
				return
			}
			if _, dup := seen.LoadOrStore(*resp.(*kmsg.MetadataResponse).ClusterID, true); dup {
				t.Error("two requests got one answer")
			}
		})
	}
	wg.Wait()
}

func TestBrokenConnectionFailsItsRequestsAndIsReplaced(t *testing.T) {
	var mu sync.Mutex
	calls := 0
	to := server(t, func(hdr protocol.RequestHeader, _ []byte) []byte {
		mu.Lock()
		defer mu.Unlock()
		calls++
		if calls == 1 {
			return nil
		}
		return metadata(hdr, "c")
	})
	p := NewPool(Options{})
	defer p.Close()
	if _, err := p.Do(context.Background(), to, request()); err == nil {
		t.Fatal("the request on the closed connection succeeded")
	}
	if _, err := p.Do(context.Background(), to, request()); err != nil {
		t.Fatalf("the next request failed: %v", err)
	}
}

func TestRequestEndsAtItsDeadline(t *testing.T) {
	stop := make(chan struct{})
	to := server(t, func(hdr protocol.RequestHeader, _ []byte) []byte {
		<-stop
		return metadata(hdr, "late")
	})
	defer close(stop)
	p := NewPool(Options{RequestTimeout: 20 * time.Millisecond})
	defer p.Close()
	if _, err := p.Do(context.Background(), to, request()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want deadline exceeded", err)
	}
}

func TestOversizedAnswerIsRefused(t *testing.T) {
	to := server(t, func(protocol.RequestHeader, []byte) []byte { return []byte{0x7f, 0xff, 0xff, 0xff} })
	p := NewPool(Options{MaxResponseBytes: 1000})
	defer p.Close()
	if _, err := p.Do(context.Background(), to, request()); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("error %v, want the size refused", err)
	}
}

func TestUnreachableNodeIsNamed(t *testing.T) {
	p := NewPool(Options{DialTimeout: time.Second})
	defer p.Close()
	_, err := p.Do(context.Background(), Endpoint{NodeID: 9, Host: "127.0.0.1", Port: 1}, request())
	if err == nil || !strings.Contains(err.Error(), "node 9 at 127.0.0.1:1") {
		t.Errorf("error %v", err)
	}
}

func TestClosedPoolRefusesRequests(t *testing.T) {
	p := NewPool(Options{})
	p.Close()
	if _, err := p.Do(context.Background(), Endpoint{}, request()); !errors.Is(err, ErrClosed) {
		t.Errorf("error %v", err)
	}
}
