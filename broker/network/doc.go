// Package network is the edge to the sockets: listeners, connections, frames in
// and answers out.
//
// A connection has one goroutine that reads frames and runs the handler on each
// in turn. A handler answers from any goroutine, at once or later; answers are
// written in the order of the requests, whoever finishes first. What a peer
// sends can close its own connection and nothing else.
//
// The package knows headers, not bodies: it asks protocol for a request's header
// and leaves the rest to the Handler.
package network
