package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Message is what all generated types have in common.
type Message interface {
	// MessageName returns Kafka's name of the message, like "TopicRecord".
	MessageName() string
	// Versions returns the lowest and the highest version.
	Versions() (lowest, highest int16)
	// Append appends the bare message, without a frame, type or version, to dst.
	Append(dst []byte, version int16) ([]byte, error)
	// Decode sets the message from all of b, which is not retained.
	Decode(b []byte, version int16) error
	// DecodePrefix sets the message from the beginning of b and returns the rest.
	DecodePrefix(b []byte, version int16) ([]byte, error)
	// AppendJSON appends the message as Kafka's tools print it.
	AppendJSON(dst []byte, version int16) []byte
}

// Typed is a key or a value of a record in a coordinator's topic (__consumer_offsets, __transaction_state,
// __share_group_state). Such a key begins with its record type, such a value with its version, both of two bytes.
type Typed interface {
	Message
	// RecordType returns the number at the beginning of the key.
	RecordType() int16
}

// ErrUnknownType says that a key has a record type which Kafka 4.4 does not know. A reader skips such a record.
var ErrUnknownType = errors.New("unknown record type")

// AppendKey appends a key with its record type to dst.
func AppendKey(dst []byte, k Typed) ([]byte, error) {
	return k.Append(binary.BigEndian.AppendUint16(dst, uint16(k.RecordType())), 0)
}

// AppendValue appends a value with its version to dst.
func AppendValue(dst []byte, v Typed, version int16) ([]byte, error) {
	return v.Append(binary.BigEndian.AppendUint16(dst, uint16(version)), version)
}

// DecodeKey reads the key of a record; newKey makes an empty key of a record type, nil for one that it does not know.
// Errors wrap ErrMalformed or ErrUnknownType.
func DecodeKey[K Typed](b []byte, newKey func(recordType int16) K) (K, error) {
	var none K
	r := NewReader(b)
	recordType := r.Int16()
	if err := r.Err(); err != nil {
		return none, fmt.Errorf("type of a record: %w", err)
	}
	k := newKey(recordType)
	if any(k) == nil {
		return none, fmt.Errorf("%w: %d", ErrUnknownType, recordType)
	}
	if _, err := k.DecodePrefix(r.Rest(), 0); err != nil {
		return none, fmt.Errorf("%s: %w", k.MessageName(), err)
	}
	return k, nil
}

// DecodeValue reads the value of a record whose key has the given type; nil for a tombstone, which is nil. Bytes after
// the message are ignored, as Kafka does. Errors wrap ErrMalformed, ErrVersion or ErrUnknownType.
func DecodeValue[V Typed](recordType int16, b []byte, newValue func(recordType int16) V) (V, error) {
	var none V
	if b == nil {
		return none, nil
	}
	v := newValue(recordType)
	if any(v) == nil {
		return none, fmt.Errorf("%w: %d", ErrUnknownType, recordType)
	}
	r := NewReader(b)
	version := r.Int16()
	if err := r.Err(); err != nil {
		return none, fmt.Errorf("version of a %s: %w", v.MessageName(), err)
	}
	if _, err := v.DecodePrefix(r.Rest(), version); err != nil {
		return none, fmt.Errorf("%s version %d: %w", v.MessageName(), version, err)
	}
	return v, nil
}
