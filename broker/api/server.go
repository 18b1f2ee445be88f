package api

import (
	"context"
	"log/slog"

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
	return &Server{table: t, controller: controller, log: log}
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
	handle, start := e.Handle, e.Start
	if s.controller {
		handle, start = e.Controller, nil
	}
	c := Call{Header: &r.Header, Request: req, Conn: r.Conn, Inbound: r}
	idle := s.queues.idle(r.Conn)
	if start != nil {
		f := &flight{call: c, long: e.Blocks}
		if idle {
			start(&f.call, f.reply)
			s.queues.enter(ctx, f)
			return
		}
		s.queues.push(r, func() {
			start(&f.call, f.reply)
			f.await(ctx)
		})
		return
	}
	if !e.Blocks && idle {
		c.answer(handle(ctx, &c))
		return
	}
	s.queues.push(r, func() { c.answer(handle(ctx, &c)) })
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

// answer sends the response.
func (c *Call) answer(resp kmsg.Response) {
	if resp == nil {
		c.Inbound.Fail(errNoAnswer)
		return
	}
	b := network.NewBuffer(0) // most answers are small
	b.B = protocol.AppendResponse(b.B, *c.Header, resp)
	c.Inbound.Reply(network.Response{Parts: append(c.Inbound.Parts(), network.Part{Bytes: b.B}), Buffer: b})
}
