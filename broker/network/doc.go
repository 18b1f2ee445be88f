// Package network is the edge to the sockets: listeners, connections, frames in
// and answers out.
//
// A connection takes turns: who has its turn reads what is there and runs the
// handler on each frame. The turns of plain connections are taken by a few workers
// (see poller), so that an idle connection holds no goroutine and a request that
// comes in wakes one thread and no other; a connection that is upgraded (TLS) has a
// goroutine of its own. A handler answers from any goroutine, at once or later;
// answers are written in the order of the requests, whoever finishes first. What a
// peer sends can close its own connection and nothing else.
//
// The package knows headers, not bodies: it asks protocol for a request's header
// and leaves the rest to the Handler.
package network
