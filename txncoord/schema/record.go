package schema

import "gregor/protocol/wire"

// Key is the key of a record in __transaction_state.
type Key interface{ wire.Typed }

// Value is the value of a record in __transaction_state.
type Value interface{ wire.Typed }

// AppendKey appends a key with its record type to dst.
func AppendKey(dst []byte, k Key) ([]byte, error) { return wire.AppendKey(dst, k) }

// AppendValue appends a value with its version to dst.
func AppendValue(dst []byte, v Value, version int16) ([]byte, error) {
	return wire.AppendValue(dst, v, version)
}

// DecodeKey reads the key of a record.
func DecodeKey(b []byte) (Key, error) { return wire.DecodeKey(b, newLogKey) }

// DecodeValue reads the value of a record whose key has the given type; nil for a tombstone, which is nil. Bytes after
// the message are ignored, as Kafka does.
func DecodeValue(recordType int16, b []byte) (Value, error) {
	return wire.DecodeValue(recordType, b, newLogValue)
}
