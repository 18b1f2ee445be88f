package schema

import "gregor/protocol/wire"

// Record is the value of a record in __remote_log_metadata.
type Record interface{ wire.Framed }

// Decode reads a framed record that fills frame; frame is not retained. Errors wrap wire.ErrMalformed, wire.ErrVersion or
// wire.ErrUnknownType.
func Decode(frame []byte) (Record, error) {
	rec, _, err := wire.DecodeFramed(frame, newRecord)
	return rec, err
}
