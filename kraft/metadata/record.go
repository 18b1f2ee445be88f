package metadata

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"gregor/protocol/wire"
)

// Record is a data record of the metadata log; the types named in messages/*.txt as record implement it.
type Record interface {
	wire.Message
	// APIKey returns the number that names the type in the log.
	APIKey() int16
}

// ErrUnknownRecord says that the API key of a frame is no metadata record of Kafka 4.4.
var ErrUnknownRecord = errors.New("unknown metadata record type")

// frameVersion is the only version of the frame around metadata records.
const frameVersion = 1

// Append appends a framed record to dst. It fails if the version cannot hold a field that is set; see [RecordVersion].
func Append(dst []byte, rec Record, version int16) ([]byte, error) {
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

// Decode reads a framed record that fills frame; frame is not retained. Errors wrap wire.ErrMalformed,
// wire.ErrVersion or [ErrUnknownRecord].
func Decode(frame []byte) (Record, error) {
	rec, _, err := DecodeVersion(frame)
	return rec, err
}

// DecodeVersion is [Decode] that also returns the version in which the record was written.
func DecodeVersion(frame []byte) (rec Record, version int16, err error) {
	r := wire.NewReader(frame)
	fv, key, v := r.Uvarint(), r.Uvarint(), r.Uvarint()
	if err := r.Err(); err != nil {
		return nil, 0, fmt.Errorf("frame of a metadata record: %w", err)
	}
	if fv != frameVersion {
		return nil, 0, fmt.Errorf("%w: metadata frame version %d", wire.ErrVersion, fv)
	}
	if key <= math.MaxInt16 {
		rec = newRecord(int16(key))
	}
	if rec == nil {
		return nil, 0, fmt.Errorf("%w: API key %d", ErrUnknownRecord, key)
	}
	if v > math.MaxInt16 {
		return nil, 0, fmt.Errorf("%w: %s %d", wire.ErrVersion, rec.MessageName(), v)
	}
	if err := rec.Decode(r.Rest(), int16(v)); err != nil {
		return nil, 0, fmt.Errorf("%s version %d: %w", rec.MessageName(), v, err)
	}
	return rec, int16(v), nil
}

// Values of PartitionChangeRecord that mean "no change"; NewPartitionChangeRecord sets them.
const (
	NoLeaderChange              int32 = -2
	NoLeaderRecoveryStateChange int8  = -1
)
