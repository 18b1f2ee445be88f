package groupcoord

import (
	"errors"
	"fmt"
	"unicode/utf16"

	"gregor/groupcoord/schema"
	"gregor/internal/coordinator"
)

// PartitionFor returns the partition of __consumer_offsets that holds a group:
// Kafka takes Java's hash of the id.
func PartitionFor(groupID string, numPartitions int32) int32 {
	h := int32(0)
	for _, unit := range utf16.Encode([]rune(groupID)) {
		h = 31*h + int32(unit)
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
func (codec) Encode(rec schema.Record) (key, value []byte, err error) {
	if key, err = schema.AppendKey(nil, rec.Key); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", rec.Key.MessageName(), err)
	}
	if rec.Value == nil {
		return key, nil, nil
	}
	if value, err = schema.AppendValue(nil, rec.Value, rec.Version); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", rec.Value.MessageName(), err)
	}
	return key, value, nil
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
