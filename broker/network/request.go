package network

import (
	"context"
	"time"

	"gregor/protocol"
)

// Handler serves requests. Serve runs in the connection's turn, in the order of
// the requests; while it runs, nothing else of that connection is read. It should
// return soon, since other connections wait for the goroutine that it is on: for
// some milliseconds, then they get another one. It must see to it that r.Reply or
// r.Fail is called exactly once, from any goroutine. A request that has to wait
// parks a task (r.NewTask) or a goroutine (r.Go) and Serve returns; so it does with
// r.Block, which has the connection's next request wait too. One that costs less
// together with others is left to the end of the round with r.Gather.
//
// A panic in Serve closes the connection, is counted and logged. An ApiVersions
// request of an unknown version is served too (r.Header.UnsupportedApiVersions):
// the answer is in version 0, with error 35.
//
// ctx is the connection's: it ends when the connection is closed.
type Handler interface {
	Serve(ctx context.Context, r *Request)
}

// HandlerFunc is a function that is a Handler.
type HandlerFunc func(ctx context.Context, r *Request)

// Serve calls f.
func (f HandlerFunc) Serve(ctx context.Context, r *Request) { f(ctx, r) }

// Request is one request of a connection.
type Request struct {
	// Header is the parsed header.
	Header protocol.RequestHeader
	// Body is what follows it. It aliases a pooled buffer and is valid until the
	// request is answered, or until Release if that is called earlier.
	Body []byte
	// Conn is where it came from.
	Conn *Conn
	// ReceivedAt is when the frame was complete.
	ReceivedAt time.Time
	// FrameBytes is the size of the frame without its size prefix.
	FrameBytes int

	buffer   *Buffer // holds Body; nil once released
	admitted int     // bytes taken from the queued.max.request.bytes budget
	parts    [3]Part // memory for the parts of a usual answer
	// The rest is guarded by Conn.mu.
	answered bool
	response Response
}

// Parts returns an empty list with memory for the few parts that an answer usually has: what comes before a run of
// records, the run, and what comes after it. It may be called once.
func (r *Request) Parts() []Part { return r.parts[:0] }

// Response is the answer to a request.
type Response struct {
	// Parts are written one after the other; together they are a whole answer
	// with size prefix and header (protocol.AppendResponse).
	Parts []Part
	// Buffer, if set, is released when the parts are written or dropped.
	Buffer *Buffer
	// None means that nothing is written: Produce with acks 0.
	None bool
	// CloseAfter closes the connection when the answer is out.
	CloseAfter bool
	// ThrottleMillis stops reading from the connection for so long once the
	// answer is out.
	ThrottleMillis int32
}

// Part is a piece of an answer: either bytes or a range of a file.
type Part struct {
	Bytes []byte
	Range FileRange
}

// FileRange is bytes of a file that stay as they are until Release.
type FileRange interface {
	// Len is the number of bytes.
	Len() int
	// ReadAt fills p from offset off of the range, like io.ReaderAt.
	ReadAt(p []byte, off int64) (int, error)
	// SendTo sends up to n bytes from offset off of the range to a non-blocking
	// socket (sendfile) and returns how many it took; unix.EAGAIN when the
	// socket is full, errors.ErrUnsupported when there is no file descriptor, so
	// that the bytes have to be copied.
	SendTo(socket uintptr, off int64, n int) (int, error)
	// Release ends the use of the range. It is called exactly once.
	Release()
}

// BytesResponse is the answer made of one piece of bytes.
func BytesResponse(b []byte) Response { return Response{Parts: []Part{{Bytes: b}}} }
