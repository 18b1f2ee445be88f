package network

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gregor/protocol"
)

// testRange is a range of a real file, or of memory when there is no file.
type testRange struct {
	file      *os.File
	content   []byte
	position  int64
	released  *atomic.Int32
	sends     *atomic.Int32
	breaksAt  int // ReadAt fails beyond; 0: never
	sendLimit int // most that one SendTo takes; 0: any
}

func (r *testRange) Len() int { return len(r.content) }

func (r *testRange) ReadAt(p []byte, off int64) (int, error) {
	if r.breaksAt > 0 && int(off)+len(p) > r.breaksAt {
		return 0, errors.New("disk is gone")
	}
	return bytes.NewReader(r.content).ReadAt(p, off)
}

func (r *testRange) SendTo(socket uintptr, off int64, n int) (int, error) {
	if r.file == nil {
		return 0, errors.ErrUnsupported
	}
	r.sends.Add(1)
	if r.sendLimit > 0 {
		n = min(n, r.sendLimit)
	}
	at := r.position + off
	return unix.Sendfile(int(socket), int(r.file.Fd()), &at, n)
}

func (r *testRange) Release() { r.released.Add(1) }

// rangeServer answers request N with the head of N and the ranges that parts
// makes for it.
func rangeServer(t *testing.T, options Options, listener ListenerOptions, parts func(r *Request) []Part) *testServer {
	t.Helper()
	options.Handler = HandlerFunc(func(_ context.Context, r *Request) {
		all := parts(r)
		size := 0
		for i := range all {
			size += all[i].len()
		}
		head := protocol.AppendResponseHeader(make([]byte, 4), &r.Header)
		binary.BigEndian.PutUint32(head, uint32(len(head)-4+size))
		r.Reply(Response{Parts: append([]Part{{Bytes: head}}, all...)})
	})
	return startServer(t, options, listener)
}

// rangeFile returns a file of random bytes.
func rangeFile(t *testing.T, size int) (*os.File, []byte) {
	t.Helper()
	content := make([]byte, size)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(content)
	path := filepath.Join(t.TempDir(), "segment")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file, content
}

func TestFileRangesArriveWholeAndAreReleasedOnce(t *testing.T) {
	file, content := rangeFile(t, 6<<20)
	var released, sends, made atomic.Int32
	sizes := []int{1, 100, 4096, 60_000, maxCopyBytes, maxCopyBytes + 1, 300_000, 1 << 20}
	random := rand.New(rand.NewPCG(1, 2))
	want := make(chan []byte, 1)
	s := rangeServer(t, Options{}, ListenerOptions{}, func(*Request) (parts []Part) {
		var all []byte
		for range random.IntN(12) {
			at, size := random.IntN(4<<20), sizes[random.IntN(len(sizes))]
			piece := content[at : at+size]
			all = append(all, piece...)
			f := &testRange{content: piece, position: int64(at), released: &released, sends: &sends}
			switch random.IntN(4) {
			case 0: // in memory: has to be copied whatever its size is
			case 1:
				parts = append(parts, Part{Bytes: piece}, Part{Bytes: nil})
				continue
			case 2:
				f.file, f.sendLimit = file, 50_000
			default:
				f.file = file
			}
			made.Add(1)
			parts = append(parts, Part{Range: f})
		}
		want <- all
		return parts
	})
	c := s.dial(t)
	for i := range int32(80) {
		c.send(request(i, nil))
		c.expect(i, <-want)
	}
	eventually(t, "all ranges released", func() bool { return released.Load() == made.Load() })
	if sends.Load() == 0 {
		t.Error("nothing went by sendfile")
	}
}

func TestSmallRangesAreCopied(t *testing.T) {
	file, content := rangeFile(t, maxCopyBytes)
	var released, sends atomic.Int32
	s := rangeServer(t, Options{}, ListenerOptions{}, func(*Request) []Part {
		return []Part{{Range: &testRange{file: file, content: content, released: &released, sends: &sends}}}
	})
	c := s.dial(t)
	c.send(request(1, nil))
	c.expect(1, content)
	eventually(t, "the range released", func() bool { return released.Load() == 1 })
	if sends.Load() != 0 || s.Metrics().Writes.Load() != 1 {
		t.Errorf("%d sendfile calls, %d writes", sends.Load(), s.Metrics().Writes.Load())
	}
}

// TestASlowPeerHoldsUpOnlyItself: answers of 18 MB that nobody reads yet. Reply
// returns, other connections are served, and all arrives in the end.
func TestASlowPeerHoldsUpOnlyItself(t *testing.T) {
	file, content := rangeFile(t, 9<<20)
	var released, sends atomic.Int32
	s := rangeServer(t, Options{}, ListenerOptions{}, func(r *Request) []Part {
		if len(r.Body) == 0 {
			return nil
		}
		return []Part{
			{Range: &testRange{file: file, content: content, released: &released, sends: &sends}},
			{Bytes: content},
		}
	})
	slow := s.dial(t)
	slow.send(request(0, []byte("x")), request(1, []byte("x")), request(2, nil))
	eventually(t, "all three served", func() bool { return s.Metrics().Requests.Load() == 3 })
	other := s.dial(t)
	other.send(request(3, nil))
	other.expect(3, nil)
	whole := append(bytes.Clone(content), content...)
	slow.expect(0, whole)
	slow.expect(1, whole)
	slow.expect(2, nil)
	if n := released.Load(); n != 2 {
		t.Errorf("%d ranges released", n)
	}
	slow.send(request(4, nil)) // the write deadline of the slow time is gone
	slow.expect(4, nil)
}

// TestASlowPeerGetsWhatWasGathered: the socket is full while the last bytes of
// an answer are in the staging buffer.
func TestASlowPeerGetsWhatWasGathered(t *testing.T) {
	piece := make([]byte, 60_000)
	for i := range piece {
		piece[i] = byte(i * 11)
	}
	s := rangeServer(t, Options{SendBufferBytes: 32 << 10}, ListenerOptions{}, func(r *Request) (parts []Part) {
		for range r.Body[0] {
			parts = append(parts, Part{Bytes: piece})
		}
		return append(parts, Part{Bytes: piece[:1]})
	})
	served := int64(0)
	for n := range byte(24) { // from what the socket takes to several times that
		c := s.dial(t)
		served += 2
		c.send(request(0, []byte{n}), request(1, []byte{0}))
		eventually(t, "both served", func() bool { return s.Metrics().Requests.Load() == served })
		c.expect(0, append(bytes.Repeat(piece, int(n)), piece[0]))
		c.expect(1, piece[:1])
		c.Close()
	}
}

func TestRangesAreReleasedWhenThePeerLeaves(t *testing.T) {
	file, content := rangeFile(t, 9<<20)
	var released, sends atomic.Int32
	late := make(chan *Request, 8)
	h := HandlerFunc(func(_ context.Context, r *Request) { late <- r })
	s := startServer(t, Options{Handler: h, LingerTimeout: time.Millisecond}, ListenerOptions{})
	c := s.dial(t)
	c.send(request(0, nil), request(1, nil), request(2, nil), request(3, nil))
	reply := func(r *Request) {
		r.Reply(Response{Parts: []Part{{Range: &testRange{file: file, content: content, released: &released, sends: &sends}}}})
	}
	first, second, third, fourth := <-late, <-late, <-late, <-late
	reply(third) // ready, but not its turn
	reply(first) // is being written when the peer leaves
	c.Close()
	eventually(t, "the connection forgotten", func() bool { return s.Metrics().Connections.Load() == 0 })
	reply(second) // long after
	reply(fourth)
	eventually(t, "all ranges released", func() bool { return released.Load() == 4 })
}

func TestAFailingDiskClosesTheConnection(t *testing.T) {
	content := make([]byte, 50_000)
	var released, sends atomic.Int32
	s := rangeServer(t, Options{}, ListenerOptions{}, func(*Request) []Part {
		return []Part{{Range: &testRange{content: content, breaksAt: 1, released: &released, sends: &sends}}}
	})
	c := s.dial(t)
	c.send(request(1, nil))
	if _, _, err := readAnswer(c); err == nil {
		t.Error("an answer came although its records could not be read")
	}
	eventually(t, "the range released", func() bool { return released.Load() == 1 })
}

func TestStagingCopiesInPiecesOverASocketOfOthers(t *testing.T) {
	content := make([]byte, 1<<20)
	for i := range content {
		content[i] = byte(i * 7)
	}
	var released, sends atomic.Int32
	pipes := newPipeListener()
	s := rangeServer(t, Options{}, ListenerOptions{Socket: pipes}, func(*Request) []Part {
		return []Part{
			{Range: &testRange{content: content, released: &released, sends: &sends}},
			{Bytes: content[:10]},
			{Range: &testRange{content: content[:100], released: &released, sends: &sends}},
			{Bytes: content},
			{Range: &testRange{content: content[:70_000], released: &released, sends: &sends}},
		}
	})
	c := pipes.dial(t)
	want := bytes.Join([][]byte{content, content[:10], content[:100], content, content[:70_000]}, nil)
	for i := range int32(3) {
		c.send(request(i, nil))
		c.expect(i, want)
	}
	eventually(t, "all ranges released", func() bool { return released.Load() == 9 })
	if got := s.Metrics().ResponseBytes.Load(); got != int64(3*(8+len(want))) {
		t.Errorf("%d bytes counted, want %d", got, 3*(8+len(want)))
	}
}

var _ io.ReaderAt = (*testRange)(nil)
