// Package protocol is the wire layer of Kafka 4.4 above the socket and below
// the handlers: request and response headers, API versions, error codes, the
// budget under which a request is decoded, and an own codec for Produce and
// Fetch, which alias the frame they came in.
//
// Everything else is encoded by franz-go's kmsg. A frame, in this package, is
// what follows the 4-byte size prefix.
package protocol
