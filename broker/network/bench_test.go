package network

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"gregor/protocol"
)

// BenchmarkLoopback measures requests through a handler that does nothing but
// answer, with the client on the same machine. cpu-us/req is the processor time
// of both ends together.
func BenchmarkLoopback(b *testing.B) {
	reply := HandlerFunc(func(_ context.Context, r *Request) {
		out := protocol.AppendResponseHeader(make([]byte, 4, 64), &r.Header)
		out = append(out, make([]byte, 40)...)
		out[3] = byte(len(out) - 4)
		r.Reply(BytesResponse(out))
	})
	for _, c := range []struct{ conns, inFlight, size int }{
		{1, 1, 1 << 10}, {16, 1, 1 << 10}, {16, 5, 1 << 10}, {16, 5, 16 << 10}, {2, 5, 1 << 20},
	} {
		b.Run(fmt.Sprintf("conns=%d/inflight=%d/size=%d", c.conns, c.inFlight, c.size), func(b *testing.B) {
			s := startServer(b, Options{Handler: reply}, ListenerOptions{})
			benchmarkClients(b, s, c.conns, c.inFlight, c.size)
		})
	}
}

func benchmarkClients(b *testing.B, s *testServer, conns, inFlight, size int) {
	b.Helper()
	frame := request(1, make([]byte, size))
	var left atomic.Int64
	left.Store(int64(b.N))
	sockets := make([]*testClient, conns)
	for i := range sockets {
		sockets[i] = s.dial(b)
	}
	b.SetBytes(int64(size))
	var before, after syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before)
	b.ResetTimer()
	var wg sync.WaitGroup
	for _, c := range sockets {
		wg.Go(func() {
			_ = c.SetDeadline(time.Time{})
			in := bufio.NewReaderSize(c, 64<<10)
			open := 0
			for {
				for open < inFlight && left.Add(-1) >= 0 {
					if _, err := c.Write(frame); err != nil {
						b.Error(err)
						return
					}
					open++
				}
				if open == 0 {
					return
				}
				if _, err := in.Discard(48); err != nil && err != io.EOF {
					b.Error(err)
					return
				}
				open--
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
	cpu := time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
	b.ReportMetric(float64(cpu.Microseconds())/float64(b.N), "cpu-us/req")
	m := s.Metrics()
	b.ReportMetric(float64(m.Reads.Load())/float64(m.Requests.Load()), "reads/req")
	b.ReportMetric(float64(m.Writes.Load())/float64(m.Requests.Load()), "writes/req")
}

var _ net.Conn = (*testClient)(nil)
