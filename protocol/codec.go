package protocol

import (
	"encoding/binary"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// DecodeRequest reads the body of a request. What it returns does not alias the
// body. The body is walked over with its schema first, so that no length and no
// count in it can make the decoder allocate more than DecodeBudgetBytes; null
// where the schema forbids it is refused, as in Kafka. Bytes after the message
// are ignored, as in Kafka. The error wraps ErrMalformed, ErrBudget,
// ErrUnsupportedVersion or ErrUnknownKey.
//
// Produce and Fetch have decoders of their own, which are faster. An ApiVersions
// request of an unknown version has no body that could be read; it is
// ErrUnsupportedVersion here.
func DecodeRequest(hdr RequestHeader, body []byte) (kmsg.Request, error) {
	api := apiByKey(hdr.Key)
	if api == nil || api.Private {
		return nil, fmt.Errorf("%w %d", ErrUnknownKey, hdr.Key)
	}
	if !api.Supports(hdr.Version) {
		return nil, fmt.Errorf("%w %d of %s", ErrUnsupportedVersion, hdr.Version, api.Name)
	}
	schema := requestSchema(hdr.Key, hdr.Version)
	rest, err := schema.walk(body)
	if err != nil {
		return nil, fmt.Errorf("%s v%d: %w", api.Name, hdr.Version, err)
	}
	body = body[:len(body)-len(rest)]
	if schema.hasBytes {
		// kmsg copies text but aliases bytes, and the frame is reused.
		body = append(make([]byte, 0, len(body)), body...)
	}
	req := kmsg.RequestForKey(hdr.Key)
	req.SetVersion(hdr.Version)
	if err := req.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("%w: %s v%d: %w", ErrMalformed, api.Name, hdr.Version, err)
	}
	return req, nil
}

// AppendResponse appends an answer to the request of hdr: size prefix, response
// header and body. The body is encoded in resp's version, which the caller has
// set; for an unsupported ApiVersions request that is 0.
func AppendResponse(dst []byte, hdr RequestHeader, resp kmsg.Response) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = AppendResponseHeader(dst, &hdr)
	dst = resp.AppendTo(dst)
	binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start-4))
	return dst
}

// AppendProduceResponse is AppendResponse for Produce.
func AppendProduceResponse(dst []byte, hdr *RequestHeader, resp *ProduceResponse) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = AppendResponseHeader(dst, hdr)
	dst = resp.AppendTo(dst, hdr.Version)
	binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start-4))
	return dst
}

// AppendOpaqueResponse is AppendResponse with a body that is already encoded.
func AppendOpaqueResponse(dst []byte, hdr *RequestHeader, body []byte) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = AppendResponseHeader(dst, hdr)
	dst = append(dst, body...)
	binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start-4))
	return dst
}

// RequestBody is a request that can be sent: a kmsg.Request, *ProduceRequest or
// *FetchRequest.
type RequestBody interface{ AppendTo(dst []byte) []byte }

// AppendRequest appends a whole request: size prefix, header and body, which
// must be in the header's version.
func AppendRequest(dst []byte, hdr *RequestHeader, req RequestBody) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = AppendRequestHeader(dst, hdr)
	dst = req.AppendTo(dst)
	binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start-4))
	return dst
}
