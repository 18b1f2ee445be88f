package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/broker/network"
	"gregor/protocol"
)

// Handler answers one decoded request. A nil response closes the connection without an answer.
type Handler func(ctx context.Context, c *Call) kmsg.Response

// Reply takes the answer to a request: once, from any goroutine, which it does not keep. A nil response closes the
// connection without an answer.
type Reply func(resp kmsg.Response)

// Starter begins to answer a decoded request, and does not wait: who has the answer calls reply.
type Starter func(c *Call, reply Reply)

// RawHandler answers a request from its bytes: the hot ones, Produce and Fetch, decode and encode by themselves.
type RawHandler func(ctx context.Context, r *network.Request)

// Entry is one API that this node serves on some of its listeners.
type Entry struct {
	protocol.API
	// Handle answers on the listeners for clients and brokers, Controller on controller listeners. Either may be
	// nil: not served there.
	Handle, Controller Handler
	// Start is set instead of Handle for APIs whose answer comes from elsewhere, and often at once. With Blocks it may
	// be long in coming, as it depends on other clients: the request is given up when the connection ends.
	Start Starter
	// Raw is set instead of Handle for the hot APIs, RawController instead of Controller for raft messages, whose body
	// is opaque.
	Raw, RawController RawHandler
	// Blocks is set when the handler may wait (for the controller, a coordinator, a disk): it then runs on a
	// goroutine of its own. It begins when the answers of the same connection before it are given, as does what Start
	// begins.
	Blocks bool
}

// Call is one request under way.
type Call struct {
	Header  *protocol.RequestHeader
	Request kmsg.Request
	Conn    *network.Conn
	// Inbound is the request as it came, for forwarding.
	Inbound *network.Request
}

// Table is the list of APIs, indexed by key.
type Table struct {
	entries []*Entry // by key; nil where there is none
	private *Entry   // Gregor's own API
}

// newTable builds the table from what is served.
func newTable(entries []Entry) *Table {
	t := &Table{}
	for i := range entries {
		e := &entries[i]
		if e.Private {
			t.private = e
			continue
		}
		for int(e.Key) >= len(t.entries) {
			t.entries = append(t.entries, nil)
		}
		t.entries[e.Key] = e
	}
	return t
}

// Lookup returns the entry of an API on a kind of listener, or nil when it is not served there.
func (t *Table) Lookup(key int16, controller bool) *Entry {
	e := t.private
	if key != protocol.RaftMessageKey {
		if key < 0 || int(key) >= len(t.entries) {
			return nil
		}
		e = t.entries[key]
	}
	switch {
	case e == nil, controller && e.Controller == nil && e.RawController == nil, !controller && e.Handle == nil && e.Start == nil && e.Raw == nil:
		return nil
	}
	return e
}

// Entries returns what is served, ascending by key.
func (t *Table) Entries() []*Entry {
	var out []*Entry
	for _, e := range t.entries {
		if e != nil {
			out = append(out, e)
		}
	}
	return out
}

// entry makes an Entry from the facts of a key.
func entry(key int16) Entry {
	a, ok := protocol.APIByKey(key)
	if !ok {
		panic("api: no such key")
	}
	return Entry{API: a}
}

// on is an entry for clients and brokers whose handler never waits.
func on(key int16, h Handler) Entry {
	e := entry(key)
	e.Handle = h
	return e
}

// waiting is an entry for clients and brokers whose handler may wait.
func waiting(key int16, h Handler) Entry {
	e := on(key, h)
	e.Blocks = true
	return e
}

// starting is an entry for clients and brokers whose answer comes from elsewhere, and often at once.
func starting(key int16, start Starter) Entry {
	e := entry(key)
	e.Start = start
	return e
}

// parking is a starting entry whose answer depends on other clients.
func parking(key int16, start Starter) Entry {
	e := starting(key, start)
	e.Blocks = true
	return e
}

// raw is an entry for a hot API.
func raw(key int16, h RawHandler) Entry {
	e := entry(key)
	e.Raw = h
	return e
}
