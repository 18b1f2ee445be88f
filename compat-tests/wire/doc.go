// Package wire speaks Kafka's protocol by hand, for what a client library would hide or refuse to send: one request
// frame, one answer frame, versions and headers as the test wants them, record batches with faults in them.
//
// Requests and responses are franz-go's kmsg types. An answer is decoded, encoded again and compared with the bytes
// that came, so that a length or a null that a lenient decoder forgives is found.
package wire
