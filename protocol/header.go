package protocol

import (
	"encoding/binary"
	"fmt"
)

// RequestHeader is the header of a request in version 1 or 2.
type RequestHeader struct {
	// Key and Version say which API and layout the body has.
	Key, Version int16
	// CorrelationID returns in the answer.
	CorrelationID int32
	// ClientID is what the client calls itself; empty when null, which is how
	// Kafka treats a null one.
	ClientID string
	// ClientIDNull tells null from empty.
	ClientIDNull bool
}

// UnsupportedApiVersions reports an ApiVersions request of a version that is not
// known. Its body cannot be read; it is answered in version 0 with error 35, and
// the connection stays open.
func (h *RequestHeader) UnsupportedApiVersions() bool {
	return h.Key == KeyApiVersions && !apiTable[KeyApiVersions].Supports(h.Version)
}

// String names the request for a log line.
func (h *RequestHeader) String() string {
	return fmt.Sprintf("%s v%d correlation %d client %q", APIName(h.Key), h.Version, h.CorrelationID, h.ClientID)
}

// ParseRequest splits a frame (without its size prefix) into header and body.
// The body aliases the frame. The error wraps ErrUnknownKey, ErrMalformed or
// ErrUnsupportedVersion; ApiVersions gives no error whatever its version is, see
// RequestHeader.UnsupportedApiVersions. The returned header holds what could be
// read, for the log.
func ParseRequest(frame []byte) (hdr RequestHeader, body []byte, err error) {
	body, err = hdr.Parse(frame)
	return hdr, body, err
}

// Parse is ParseRequest into a header that is used again: when the client id is
// the one h already holds, as it is for all requests of a connection, nothing is
// allocated.
func (h *RequestHeader) Parse(frame []byte) (body []byte, err error) {
	if len(frame) < 4 {
		return nil, fmt.Errorf("%w: request of %d bytes has no header", ErrMalformed, len(frame))
	}
	h.Key = int16(binary.BigEndian.Uint16(frame))
	h.Version = int16(binary.BigEndian.Uint16(frame[2:]))
	api := apiByKey(h.Key)
	if api == nil {
		return nil, fmt.Errorf("%w %d (version %d)", ErrUnknownKey, h.Key, h.Version)
	}
	if len(frame) < 10 {
		return nil, fmt.Errorf("%w: %s v%d request of %d bytes has no full header", ErrMalformed, api.Name, h.Version, len(frame))
	}
	h.CorrelationID = int32(binary.BigEndian.Uint32(frame[4:]))
	// The client id has a 2-byte length in header version 2 too, so that the
	// header of an unknown version can be read.
	idLen, rest := int(int16(binary.BigEndian.Uint16(frame[8:]))), frame[10:]
	h.ClientIDNull = idLen < 0
	idLen = max(idLen, 0)
	if idLen > len(rest) {
		return nil, fmt.Errorf("%w: %s v%d client id of %d bytes, %d left", ErrMalformed, api.Name, h.Version, idLen, len(rest))
	}
	if string(rest[:idLen]) != h.ClientID {
		h.ClientID = string(rest[:idLen])
	}
	rest = rest[idLen:]
	if api.Flexible(h.Version) {
		if rest, err = skipTags(rest); err != nil {
			return nil, fmt.Errorf("%s v%d request header: %w", api.Name, h.Version, err)
		}
	}
	if !api.Supports(h.Version) && h.Key != KeyApiVersions {
		return nil, fmt.Errorf("%w %d of %s (%d to %d are served)", ErrUnsupportedVersion, h.Version, api.Name, api.MinVersion, api.MaxVersion)
	}
	return rest, nil
}

// AppendRequestHeader appends the header of a request, without a size prefix.
func AppendRequestHeader(dst []byte, hdr *RequestHeader) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(hdr.Key))
	dst = binary.BigEndian.AppendUint16(dst, uint16(hdr.Version))
	dst = binary.BigEndian.AppendUint32(dst, uint32(hdr.CorrelationID))
	if hdr.ClientIDNull {
		dst = append(dst, 0xff, 0xff)
	} else {
		dst = binary.BigEndian.AppendUint16(dst, uint16(len(hdr.ClientID)))
		dst = append(dst, hdr.ClientID...)
	}
	if RequestHeaderVersion(hdr.Key, hdr.Version) >= 2 {
		dst = append(dst, 0)
	}
	return dst
}

// AppendResponseHeader appends the header of the answer to hdr, without a size
// prefix.
func AppendResponseHeader(dst []byte, hdr *RequestHeader) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(hdr.CorrelationID))
	if ResponseHeaderVersion(hdr.Key, hdr.Version) >= 1 {
		dst = append(dst, 0)
	}
	return dst
}

// ParseResponse splits the frame of an answer to a request of that key and
// version into correlation id and body, which aliases the frame.
func ParseResponse(key, version int16, frame []byte) (correlationID int32, body []byte, err error) {
	if len(frame) < 4 {
		return 0, nil, fmt.Errorf("%w: response of %d bytes has no header", ErrMalformed, len(frame))
	}
	correlationID, body = int32(binary.BigEndian.Uint32(frame)), frame[4:]
	if ResponseHeaderVersion(key, version) >= 1 {
		if body, err = skipTags(body); err != nil {
			return correlationID, nil, fmt.Errorf("%s v%d response header: %w", APIName(key), version, err)
		}
	}
	return correlationID, body, nil
}
