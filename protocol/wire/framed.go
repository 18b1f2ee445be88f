package wire

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Framed is the value of a record in the metadata log or in __remote_log_metadata. In front of the message stand three
// unsigned varints: the version of the frame, the API key and the version of the message.
type Framed interface {
	Message
	// APIKey returns the number that names the type in the log.
	APIKey() int16
}

// frameVersion is the only version of the frame.
const frameVersion = 1

// AppendFramed appends a framed record to dst. It fails if the version cannot hold a field that is set.
func AppendFramed(dst []byte, rec Framed, version int16) ([]byte, error) {
	start := len(dst)
	dst = append(dst, frameVersion)
	dst = binary.AppendUvarint(dst, uint64(uint16(rec.APIKey())))
	dst = binary.AppendUvarint(dst, uint64(uint16(version)))
	out, err := rec.Append(dst, version)
	if err != nil {
		return dst[:start], err
	}
	return out, nil
}

// DecodeFramed reads a framed record that fills frame, and the version in which it was written; newRecord makes an empty
// one of an API key, nil for one that it does not know. Errors wrap ErrMalformed, ErrVersion or ErrUnknownType.
func DecodeFramed[R Framed](frame []byte, newRecord func(apiKey int16) R) (rec R, version int16, err error) {
	var none R
	r := NewReader(frame)
	fv, key, v := r.Uvarint(), r.Uvarint(), r.Uvarint()
	if err := r.Err(); err != nil {
		return none, 0, fmt.Errorf("frame of a record: %w", err)
	}
	if fv != frameVersion {
		return none, 0, fmt.Errorf("%w: frame version %d", ErrVersion, fv)
	}
	if key <= math.MaxInt16 {
		rec = newRecord(int16(key))
	}
	if any(rec) == nil {
		return none, 0, fmt.Errorf("%w: API key %d", ErrUnknownType, key)
	}
	if v > math.MaxInt16 {
		return none, 0, fmt.Errorf("%w: %s %d", ErrVersion, rec.MessageName(), v)
	}
	if err := rec.Decode(r.Rest(), int16(v)); err != nil {
		return none, 0, fmt.Errorf("%s version %d: %w", rec.MessageName(), v, err)
	}
	return rec, int16(v), nil
}
