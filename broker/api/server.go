package api

import (
	"context"
	"log/slog"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/broker/network"
	"gregor/protocol"
)

// Server dispatches the requests of one listener.
type Server struct {
	table      *Table
	controller bool
	log        *slog.Logger
	queues     queues
}

// NewServer returns the handler for listeners of one kind.
func NewServer(t *Table, controller bool, log *slog.Logger) *Server {
	return &Server{table: t, controller: controller, log: log, queues: queues{conns: map[*network.Conn]*queue{}}}
}

// Serve implements network.Handler. The connection is closed, without an answer, for an API or version that is
// not served and for a request that cannot be decoded, as Kafka does.
func (s *Server) Serve(ctx context.Context, r *network.Request) {
	e := s.table.Lookup(r.Header.Key, s.controller)
	if e == nil {
		r.Fail(protocol.ErrUnknownKey)
		return
	}
	raw := e.Raw
	if s.controller {
		raw = e.RawController
	}
	if raw != nil {
		if !e.Supports(r.Header.Version) {
			r.Fail(protocol.ErrUnsupportedVersion)
			return
		}
		raw(ctx, r)
		return
	}
	req, err := decode(e, r)
	if err != nil {
		r.Fail(err)
		return
	}
	handle := e.Handle
	if s.controller {
		handle = e.Controller
	}
	c := &Call{Header: &r.Header, Request: req, Conn: r.Conn, Inbound: r}
	if !e.Blocks && s.queues.idle(r.Conn) {
		s.answer(ctx, c, handle)
		return
	}
	s.queues.push(r, func() { s.answer(ctx, c, handle) })
}

// decode reads the body. An ApiVersions request of an unknown version has none that can be read.
func decode(e *Entry, r *network.Request) (kmsg.Request, error) {
	if r.Header.UnsupportedApiVersions() {
		return nil, nil
	}
	if !e.Supports(r.Header.Version) {
		return nil, protocol.ErrUnsupportedVersion
	}
	return protocol.DecodeRequest(r.Header, r.Body)
}

func (s *Server) answer(ctx context.Context, c *Call, handle Handler) {
	resp := handle(ctx, c)
	if resp == nil {
		c.Inbound.Fail(errNoAnswer)
		return
	}
	c.Inbound.Reply(network.BytesResponse(protocol.AppendResponse(nil, *c.Header, resp)))
}

// queues run the waiting requests of a connection one after the other, so that two commits sent back to back are
// applied in that order, while the connection's goroutine goes on reading and notices when the client leaves.
type queues struct {
	mu    sync.Mutex
	conns map[*network.Conn]*queue
}

// queue holds what one connection still has to run. It exists while something runs.
type queue struct{ tasks []task }

type task struct {
	run  func()
	fail func(error)
}

// idle tells whether nothing of the connection is under way: a request that does not wait can then be answered
// at once without overtaking another.
func (q *queues) idle(c *network.Conn) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.conns[c] == nil
}

// push runs the request's task when those before it are done. The goroutine that does is one of the connection's, so
// that a stopping server waits for it.
func (q *queues) push(r *network.Request, run func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := task{run: run, fail: r.Fail}
	if x := q.conns[r.Conn]; x != nil {
		x.tasks = append(x.tasks, t)
		return
	}
	x := &queue{tasks: []task{t}}
	q.conns[r.Conn] = x
	r.Go(func(context.Context) { q.drain(r.Conn, x) })
}

// drain runs the tasks of a queue until there are none.
func (q *queues) drain(c *network.Conn, x *queue) {
	for {
		q.mu.Lock()
		if len(x.tasks) == 0 {
			delete(q.conns, c)
			q.mu.Unlock()
			return
		}
		t := x.tasks[0]
		x.tasks = x.tasks[1:]
		q.mu.Unlock()
		runTask(t)
	}
}

// runTask keeps a panic of one request from ending the process: a peer's bytes must never do that.
func runTask(t task) {
	defer func() {
		if p := recover(); p != nil {
			t.fail(panicError{p})
		}
	}()
	t.run()
}
