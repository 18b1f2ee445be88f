package schema

import (
	"encoding/binary"
	"errors"
	"fmt"

	"gregor/protocol/wire"
)

// message is what all generated types have in common.
type message interface {
	// MessageName returns Kafka's name of the message, like "OffsetCommitKey".
	MessageName() string
	// Versions returns the lowest and the highest version.
	Versions() (lowest, highest int16)
	// Append appends the bare message, without type or version, to dst.
	Append(dst []byte, version int16) ([]byte, error)
	// Decode sets the message from all of b, which is not retained.
	Decode(b []byte, version int16) error
	// AppendJSON appends the message as Kafka's tools print it.
	AppendJSON(dst []byte, version int16) []byte
	// DecodePrefix sets the message from the beginning of b and returns the rest.
	DecodePrefix(b []byte, version int16) ([]byte, error)
}

// Key is the key of a coordinator record.
type Key interface {
	message
	// RecordType returns the number at the beginning of the key.
	RecordType() int16
}

// Value is the value of a coordinator record.
type Value interface {
	message
	// RecordType returns the record type of the key.
	RecordType() int16
}

// ErrUnknownRecord says that a key has a record type which Kafka 4.4 does not know. A reader skips such a record.
var ErrUnknownRecord = errors.New("unknown coordinator record type")

// AppendKey appends a key with its record type to dst.
func AppendKey(dst []byte, k Key) ([]byte, error) {
	return k.Append(binary.BigEndian.AppendUint16(dst, uint16(k.RecordType())), 0)
}

// AppendValue appends a value with its version to dst.
func AppendValue(dst []byte, v Value, version int16) ([]byte, error) {
	return v.Append(binary.BigEndian.AppendUint16(dst, uint16(version)), version)
}

// DecodeOffsetsKey reads the key of a record in __consumer_offsets.
func DecodeOffsetsKey(b []byte) (Key, error) { return decodeKey(b, newOffsetsKey) }

// DecodeOffsetsValue reads the value of a record in __consumer_offsets whose key has the given type; nil for a
// tombstone, which is nil.
func DecodeOffsetsValue(recordType int16, b []byte) (Value, error) {
	return decodeValue(recordType, b, newOffsetsValue)
}

// DecodeShareStateKey reads the key of a record in __share_group_state.
func DecodeShareStateKey(b []byte) (Key, error) { return decodeKey(b, newShareStateKey) }

// DecodeShareStateValue reads the value of a record in __share_group_state whose key has the given type; nil for a
// tombstone, which is nil.
func DecodeShareStateValue(recordType int16, b []byte) (Value, error) {
	return decodeValue(recordType, b, newShareStateValue)
}

func decodeKey(b []byte, newKey func(int16) Key) (Key, error) {
	r := wire.NewReader(b)
	recordType := r.Int16()
	if err := r.Err(); err != nil {
		return nil, fmt.Errorf("type of a coordinator record: %w", err)
	}
	k := newKey(recordType)
	if k == nil {
		return nil, fmt.Errorf("%w: %d", ErrUnknownRecord, recordType)
	}
	if _, err := k.DecodePrefix(r.Rest(), 0); err != nil {
		return nil, fmt.Errorf("%s: %w", k.MessageName(), err)
	}
	return k, nil
}

// decodeValue ignores bytes after the message, as Kafka does.
func decodeValue(recordType int16, b []byte, newValue func(int16) Value) (Value, error) {
	if b == nil {
		return nil, nil
	}
	v := newValue(recordType)
	if v == nil {
		return nil, fmt.Errorf("%w: %d", ErrUnknownRecord, recordType)
	}
	r := wire.NewReader(b)
	version := r.Int16()
	if err := r.Err(); err != nil {
		return nil, fmt.Errorf("version of a %s: %w", v.MessageName(), err)
	}
	if _, err := v.DecodePrefix(r.Rest(), version); err != nil {
		return nil, fmt.Errorf("%s version %d: %w", v.MessageName(), version, err)
	}
	return v, nil
}
