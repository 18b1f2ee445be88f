package record

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
)

// ProduceOptions is what the leader of a partition knows when it judges the records of a produce request.
type ProduceOptions struct {
	// TopicPartition names the partition in messages, as topic-partition.
	TopicPartition string
	// NowMillis is the broker's clock; it becomes the timestamp with LogAppendTime.
	NowMillis int64
	// TimestampType is the topic's message.timestamp.type.
	TimestampType TimestampType
	// TimestampBeforeMaxMillis and TimestampAfterMaxMillis are message.timestamp.before.max.ms and .after.max.ms.
	TimestampBeforeMaxMillis int64
	TimestampAfterMaxMillis  int64
	// TargetCodec is the topic's compression.type, CodecProducer to keep what the producer chose.
	TargetCodec Codec
	// Level is the level for TargetCodec, see Compress.
	Level int
	// Compacted is whether the topic's cleanup.policy has compact: then records need keys.
	Compacted bool
	// RequestVersion is the version of the Produce request.
	RequestVersion int16
	// MaxBatchBytes is the topic's max.message.bytes, compared with the batch as sent and again after recompression.
	MaxBatchBytes int32
	// Limits bounds the decompression.
	Limits Limits
}

// ProduceResult is a batch that may be appended once its offsets and leader epoch are stamped.
type ProduceResult struct {
	// Batch aliases the input, which may have been changed in place, unless Rebuilt is set.
	Batch Batch
	// LogAppendTimeMillis is what the response says: the time of the append, -1 with CreateTime.
	LogAppendTimeMillis int64
	// MaxTimestamp is that of the batch; Kafka's shallow offset for it is the last of the batch.
	MaxTimestamp int64
	// Rebuilt says that the batch was written anew: other codec, or offset deltas that were not consecutive.
	Rebuilt bool
}

// RecordError says what is wrong with one record of a refused batch.
type RecordError struct {
	Index   int32 // in the batch
	Message string
}

// ProduceError is why a batch was refused. It unwraps to the protocol error.
type ProduceError struct {
	Err *kerr.Error
	// Message is the error message for the response and the log.
	Message string
	// RecordErrors lists the records at fault, if the fault is one of records.
	RecordErrors []RecordError
	// BeforeLog is set when the records field as a whole is at fault: Kafka refuses it before it looks for the log.
	BeforeLog bool
	// Unreadable is set when the field cannot be cut into batches.
	Unreadable bool
}

// Error returns the message with the name of the protocol error.
func (e *ProduceError) Error() string { return e.Err.Message + ": " + e.Message }

// Unwrap returns the protocol error.
func (e *ProduceError) Unwrap() error { return e.Err }

func refuse(err *kerr.Error, format string, args ...any) *ProduceError {
	return &ProduceError{Err: err, Message: fmt.Sprintf(format, args...)}
}

// refuseWhole refuses the records field as a whole.
func refuseWhole(err *kerr.Error, format string, args ...any) *ProduceError {
	e := refuse(err, format, args...)
	e.BeforeLog = true
	return e
}

// unreadableField refuses what cannot be cut into batches, in Kafka's words.
func unreadableField(in []byte, err error, o *ProduceOptions) *ProduceError {
	e := refuseWhole(kerr.CorruptMessage, "%v in topic partition %s", err, o.TopicPartition)
	if len(in) > magicPos && in[magicPos] > 2 {
		e.Message = fmt.Sprintf("Invalid magic found in record: %d", int8(in[magicPos]))
	}
	e.Unreadable = true
	return e
}

// zstdRequestVersion is the first Produce version that may carry zstd (KIP-110).
const zstdRequestVersion = 7

// ValidateProduce checks the records field of one partition in a Produce request and brings it into the form that is
// appended, without looking at the log: everything here runs before the log's lock is taken. It does what Kafka's
// ProduceRequest, UnifiedLog and LogValidator do together, in their order, so that the first fault decides
// the answer. A batch that is kept as it came costs no allocation but the pooled buffer for its decompression.
//
// It differs from Kafka 4.4.0 only where that answers UNKNOWN_SERVER_ERROR or not at all (null records, broken
// compression, unknown codecs, odd offset deltas inside a compressed batch: refused here with the error that
// fits), and where it stores what its own clients cannot read (records inside a compressed batch whose length lies, a
// wrong LZ4 content checksum: refused; odd offset deltas of uncompressed records: written anew).
//
// The batch must be appended with its offsets and epoch stamped; ValidateProduce leaves its base offset 0. An error is
// always a *ProduceError.
func ValidateProduce(in []byte, o ProduceOptions) (ProduceResult, error) {
	b, perr := soleBatch(in, &o)
	if perr == nil {
		perr = checkHeader(b, &o)
	}
	if perr != nil {
		return ProduceResult{}, perr
	}
	v := produceValidator{batch: b, opts: o}
	res, perr := v.run()
	if perr != nil {
		return ProduceResult{}, perr
	}
	return res, nil
}

// soleBatch returns the one batch of the request. Incomplete bytes after it are ignored, as in Kafka.
func soleBatch(in []byte, o *ProduceOptions) (Batch, *ProduceError) {
	b, rest, err := Next(in)
	switch {
	case errors.Is(err, ErrCorrupt):
		return nil, unreadableField(in, err, o)
	case err != nil:
		return nil, refuseWhole(kerr.InvalidRecord,
			"Produce requests with version %d must have at least one record batch per partition", o.RequestVersion)
	case b.Magic() != 2:
		return nil, refuseWhole(kerr.InvalidRecord,
			"Produce requests with version %d are only allowed to contain record batches with magic version 2",
			o.RequestVersion)
	case b.Codec() == CodecZstd && o.RequestVersion < zstdRequestVersion:
		return nil, refuseWhole(kerr.UnsupportedCompressionType,
			"Produce requests with version %d are not allowed to use ZStandard compression", o.RequestVersion)
	}
	if _, _, err = Next(rest); err == nil {
		return nil, refuseWhole(kerr.InvalidRecord,
			"Produce requests with version %d are only allowed to contain exactly one record batch per partition",
			o.RequestVersion)
	} else if errors.Is(err, ErrCorrupt) {
		return nil, unreadableField(rest, err, o)
	}
	return b, nil
}

// checkHeader checks the header of the batch, by itself and against the topic.
func checkHeader(b Batch, o *ProduceOptions) *ProduceError {
	if b.BaseOffset() != 0 {
		return refuse(kerr.InvalidRecord, "The baseOffset of the record batch in the append to %s should be 0, but it is %d",
			o.TopicPartition, b.BaseOffset())
	}
	if perr := checkSize(b, o); perr != nil {
		return perr
	}
	if crc := b.computeCRC(); crc != b.CRC() {
		return refuse(kerr.CorruptMessage, "Record is corrupt (stored crc = %d, computed crc = %d) in topic partition %s",
			b.CRC(), crc, o.TopicPartition)
	}
	if !b.Codec().known() {
		return refuse(kerr.UnsupportedCompressionType, "Unknown compression type id %d in topic partition %s", b.Codec(), o.TopicPartition)
	}
	last, count := b.LastOffset(), b.Count()
	switch {
	case last < 0:
		return refuse(kerr.InvalidRecord, "Batch has an invalid offset range: [0, %d] in topic partition %s",
			last, o.TopicPartition)
	case count <= 0:
		return refuse(kerr.InvalidRecord, "Invalid reported count for record batch: %d in topic partition %s",
			count, o.TopicPartition)
	case last+1 != int64(count):
		return refuse(kerr.InvalidRecord,
			"Inconsistent batch offset range [0, %d] and count of records %d in topic partition %s",
			last, count, o.TopicPartition)
	case b.IsControl():
		return refuse(kerr.InvalidRecord, "Clients are not allowed to write control records in topic partition %s",
			o.TopicPartition)
	case b.HasProducerID() && b.BaseSequence() < 0:
		return refuse(kerr.InvalidRecord,
			"Invalid sequence number %d in record batch with producerId %d in topic partition %s",
			b.BaseSequence(), b.ProducerID(), o.TopicPartition)
	}
	return nil
}

func checkSize(b Batch, o *ProduceOptions) *ProduceError {
	if len(b) > int(o.MaxBatchBytes) {
		return refuse(kerr.MessageTooLarge,
			"The record batch size in the append to %s is %d bytes which exceeds the maximum configured value of %d",
			o.TopicPartition, len(b), o.MaxBatchBytes)
	}
	return nil
}
