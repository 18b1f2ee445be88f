package schema

import "gregor/protocol/wire"

// Key is the key of a coordinator record.
type Key interface{ wire.Typed }

// Value is the value of a coordinator record.
type Value interface{ wire.Typed }

// ErrUnknownRecord says that a key has a record type which Kafka 4.4 does not know. A reader skips such a record.
var ErrUnknownRecord = wire.ErrUnknownType

// AppendKey appends a key with its record type to dst.
func AppendKey(dst []byte, k Key) ([]byte, error) { return wire.AppendKey(dst, k) }

// AppendValue appends a value with its version to dst.
func AppendValue(dst []byte, v Value, version int16) ([]byte, error) {
	return wire.AppendValue(dst, v, version)
}

// DecodeOffsetsKey reads the key of a record in __consumer_offsets.
func DecodeOffsetsKey(b []byte) (Key, error) { return wire.DecodeKey(b, newOffsetsKey) }

// DecodeOffsetsValue reads the value of a record in __consumer_offsets whose key has the given type; nil for a
// tombstone, which is nil.
func DecodeOffsetsValue(recordType int16, b []byte) (Value, error) {
	return wire.DecodeValue(recordType, b, newOffsetsValue)
}

// DecodeShareStateKey reads the key of a record in __share_group_state.
func DecodeShareStateKey(b []byte) (Key, error) { return wire.DecodeKey(b, newShareStateKey) }

// DecodeShareStateValue reads the value of a record in __share_group_state whose key has the given type; nil for a
// tombstone, which is nil.
func DecodeShareStateValue(recordType int16, b []byte) (Value, error) {
	return wire.DecodeValue(recordType, b, newShareStateValue)
}
