package metadata

import "gregor/protocol/wire"

// Record is a data record of the metadata log; the types named in messages/*.txt as record implement it.
type Record interface{ wire.Framed }

// ErrUnknownRecord says that the API key of a frame is no metadata record of Kafka 4.4.
var ErrUnknownRecord = wire.ErrUnknownType

// Append appends a framed record to dst. It fails if the version cannot hold a field that is set; see [RecordVersion].
func Append(dst []byte, rec Record, version int16) ([]byte, error) {
	return wire.AppendFramed(dst, rec, version)
}

// Decode reads a framed record that fills frame; frame is not retained. Errors wrap wire.ErrMalformed,
// wire.ErrVersion or [ErrUnknownRecord].
func Decode(frame []byte) (Record, error) {
	rec, _, err := DecodeVersion(frame)
	return rec, err
}

// DecodeVersion is [Decode] that also returns the version in which the record was written.
func DecodeVersion(frame []byte) (rec Record, version int16, err error) {
	return wire.DecodeFramed(frame, newRecord)
}

// Values of PartitionChangeRecord that mean "no change"; NewPartitionChangeRecord sets them.
const (
	NoLeaderChange              int32 = -2
	NoLeaderRecoveryStateChange int8  = -1
)
