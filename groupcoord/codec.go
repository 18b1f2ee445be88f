package groupcoord

import (
	"errors"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"

	"gregor/groupcoord/schema"
	"gregor/internal/coordinator"
)

// PartitionFor returns the partition of __consumer_offsets that holds a group:
// Kafka takes Java's hash of the id.
func PartitionFor(groupID string, numPartitions int32) int32 {
	h := int32(0)
	for _, r := range groupID {
		if high, low := utf16.EncodeRune(r); high != utf8.RuneError {
			h = 31*h + high
			r = low
		}
		h = 31*h + r
	}
	// As Kafka's Utils.abs: the one number without a positive counterpart is 0.
	switch {
	case h == -1<<31:
		h = 0
	case h < 0:
		h = -h
	}
	return h % numPartitions
}

// codec of the records of __consumer_offsets.
type codec struct{}

// Encode implements coordinator.Codec.
func (codec) Encode(dst []byte, rec schema.Record) (buf []byte, keyBytes int, err error) {
	if buf, err = schema.AppendKey(dst, rec.Key); err != nil {
		return nil, 0, fmt.Errorf("%s: %w", rec.Key.MessageName(), err)
	}
	keyBytes = len(buf) - len(dst)
	if rec.Value == nil {
		return buf, keyBytes, nil
	}
	if buf, err = schema.AppendValue(buf, rec.Value, rec.Version); err != nil {
		return nil, 0, fmt.Errorf("%s: %w", rec.Value.MessageName(), err)
	}
	return buf, keyBytes, nil
}

// Decode implements coordinator.Codec. The version of a value read from the log
// is not kept.
func (codec) Decode(key, value []byte) (schema.Record, error) {
	k, err := schema.DecodeOffsetsKey(key)
	if errors.Is(err, schema.ErrUnknownRecord) {
		return schema.Record{}, fmt.Errorf("%w: %w", coordinator.ErrUnknownRecord, err)
	}
	if err != nil {
		return schema.Record{}, err
	}
	v, err := schema.DecodeOffsetsValue(k.RecordType(), value)
	if err != nil {
		return schema.Record{}, err
	}
	return schema.Record{Key: k, Value: v}, nil
}
