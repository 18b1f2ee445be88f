package network

import "sync/atomic"

// Metrics counts what happens at the sockets of a server. All are totals since
// the start but for the two gauges.
type Metrics struct {
	// Connections is a gauge of open connections.
	Connections atomic.Int64
	// QueuedBytes is a gauge of the frames of unanswered requests; it is kept
	// only when there is a bound (queued.max.request.bytes).
	QueuedBytes atomic.Int64

	Accepted         atomic.Int64 // connections taken
	RejectedPerIP    atomic.Int64 // closed at once: max.connections.per.ip
	Evicted          atomic.Int64 // closed to make room for a protected listener
	AcceptThrottled  atomic.Int64 // accepts that waited for a slot or the rate
	ClosedIdle       atomic.Int64 // connections.max.idle.ms
	ClosedSlow       atomic.Int64 // a frame that did not come in, or answers not taken
	InvalidFrames    atomic.Int64 // sizes that cannot be
	InvalidRequests  atomic.Int64 // bad headers, unknown keys and versions, refused bodies
	FailedHandshakes atomic.Int64 // TLS or authentication
	Panics           atomic.Int64 // of handlers

	Requests      atomic.Int64
	RequestBytes  atomic.Int64 // with size prefixes
	Responses     atomic.Int64
	ResponseBytes atomic.Int64
	Reads         atomic.Int64 // system calls that read something
	Writes        atomic.Int64 // system calls that wrote something
}
