package record

import (
	"encoding/binary"
	"hash/crc32"
	"math"
)

// Sizes and sentinels of the batch format.
const (
	// HeaderSizeBytes is the size of a v2 batch header, from the base offset up to the first record.
	HeaderSizeBytes = 61
	// LogOverheadBytes is the size of the base offset and the length that every entry of a log starts with.
	LogOverheadBytes = 12

	// NoTimestamp is the timestamp of records and batches that have none.
	NoTimestamp int64 = -1
	// NoProducerID is the producer id of batches that are not idempotent.
	NoProducerID int64 = -1
	// NoProducerEpoch is the producer epoch that goes with NoProducerID.
	NoProducerEpoch int16 = -1
	// NoSequence is the base sequence of batches without one.
	NoSequence int32 = -1
	// NoLeaderEpoch is the partition leader epoch of batches that no leader has stamped yet.
	NoLeaderEpoch int32 = -1
)

const (
	magicPos           = 16
	leaderEpochPos     = 12
	crcPos             = 17
	attributesPos      = 21
	lastOffsetDeltaPos = 23
	baseTimestampPos   = 27
	maxTimestampPos    = 35
	producerIDPos      = 43
	producerEpochPos   = 51
	baseSequencePos    = 53
	countPos           = 57

	codecMask           = 0x07
	timestampTypeFlag   = 0x08
	transactionalFlag   = 0x10
	controlFlag         = 0x20
	deleteHorizonFlag   = 0x40
	knownAttributesMask = 0x7f
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// TimestampType says what the timestamps of a batch mean (message.timestamp.type).
type TimestampType int8

// The timestamp types. NoTimestampType is that of message format 0, which has no timestamps.
const (
	NoTimestampType TimestampType = -1
	CreateTime      TimestampType = 0
	LogAppendTime   TimestampType = 1
)

// String returns Kafka's name of the type as used in message.timestamp.type.
func (t TimestampType) String() string {
	switch t {
	case CreateTime:
		return "CreateTime"
	case LogAppendTime:
		return "LogAppendTime"
	case NoTimestampType:
	}
	return "NoTimestampType"
}

// Batch is a view of the bytes of exactly one batch as returned by Next: 12 bytes of offset and length and the rest.
// It aliases the caller's memory. Accessors read the header on each call and neither allocate nor check anything; they
// may be called on any Batch that came from Next, a Builder or ValidateProduce.
//
// A Batch may also be one entry of an old message set (Magic 0 or 1): a record, or a compressed wrapper of records. It
// then answers with what the old format holds and with the "none" values for the rest; its offset is that of its last
// record, because that is what a wrapper stores.
type Batch []byte

func (b Batch) int64At(pos int) int64 { return int64(binary.BigEndian.Uint64(b[pos:])) }
func (b Batch) int32At(pos int) int32 { return int32(binary.BigEndian.Uint32(b[pos:])) }

func (b Batch) legacy() bool { return b[magicPos] < 2 }

// BaseOffset returns the offset of the first record, also when compaction removed that record. Of an old compressed
// wrapper only the last offset is known without decompressing it; see FirstOffset.
func (b Batch) BaseOffset() int64 { return b.int64At(0) }

// LastOffset returns the offset of the last record, also when compaction removed that record.
func (b Batch) LastOffset() int64 { return b.BaseOffset() + int64(b.LastOffsetDelta()) }

// NextOffset returns LastOffset + 1, the offset of the batch that follows.
func (b Batch) NextOffset() int64 { return b.LastOffset() + 1 }

// LastOffsetDelta returns LastOffset - BaseOffset; 0 for old formats.
func (b Batch) LastOffsetDelta() int32 {
	if b.legacy() {
		return 0
	}
	return b.int32At(lastOffsetDeltaPos)
}

// LeaderEpoch returns the epoch of the leader that appended the batch, NoLeaderEpoch for old formats.
func (b Batch) LeaderEpoch() int32 {
	if b.legacy() {
		return NoLeaderEpoch
	}
	return b.int32At(leaderEpochPos)
}

// Magic returns the format version: 2, or 0 and 1 for old message sets.
func (b Batch) Magic() int8 { return int8(b[magicPos]) }

// CRC returns the stored checksum: CRC-32C from the attributes on, in old formats CRC-32 from the magic on.
func (b Batch) CRC() uint32 {
	if b.legacy() {
		return binary.BigEndian.Uint32(b[legacyCRCPos:])
	}
	return binary.BigEndian.Uint32(b[crcPos:])
}

// Attributes returns the raw attribute bits.
func (b Batch) Attributes() int16 {
	if b.legacy() {
		return int16(b[legacyAttributesPos])
	}
	return int16(binary.BigEndian.Uint16(b[attributesPos:]))
}

// Codec returns the compression codec of the records. It may be an unknown one (5-7).
func (b Batch) Codec() Codec { return Codec(b.Attributes() & codecMask) }

// TimestampType returns whether the timestamps are those of the producer or of the append.
func (b Batch) TimestampType() TimestampType {
	if b.Magic() == 0 {
		return NoTimestampType
	}
	if b.Attributes()&timestampTypeFlag != 0 {
		return LogAppendTime
	}
	return CreateTime
}

// IsTransactional returns whether the batch is part of a transaction.
func (b Batch) IsTransactional() bool { return !b.legacy() && b.Attributes()&transactionalFlag != 0 }

// IsControl returns whether the records are control records, which consumers never see.
func (b Batch) IsControl() bool { return !b.legacy() && b.Attributes()&controlFlag != 0 }

// HasDeleteHorizon returns whether the base timestamp holds a delete horizon (KIP-534).
func (b Batch) HasDeleteHorizon() bool { return !b.legacy() && b.Attributes()&deleteHorizonFlag != 0 }

// DeleteHorizonMillis returns the time from which on tombstones and markers of the batch may be removed, NoTimestamp
// if the cleaner has not set one.
func (b Batch) DeleteHorizonMillis() int64 {
	if !b.HasDeleteHorizon() {
		return NoTimestamp
	}
	return b.int64At(baseTimestampPos)
}

// BaseTimestamp returns the timestamp in milliseconds that the records' deltas are relative to: that of the first
// record, or the delete horizon.
func (b Batch) BaseTimestamp() int64 {
	switch b.Magic() {
	case 0:
		return NoTimestamp
	case 1:
		return b.int64At(legacyTimestampPos)
	}
	return b.int64At(baseTimestampPos)
}

// MaxTimestamp returns the largest timestamp of the records in milliseconds, or the time of the append if that is the
// timestamp type. NoTimestamp if there is none.
func (b Batch) MaxTimestamp() int64 {
	switch b.Magic() {
	case 0:
		return NoTimestamp
	case 1:
		return b.int64At(legacyTimestampPos)
	}
	return b.int64At(maxTimestampPos)
}

// ProducerID returns the id of the idempotent producer, NoProducerID if there is none.
func (b Batch) ProducerID() int64 {
	if b.legacy() {
		return NoProducerID
	}
	return b.int64At(producerIDPos)
}

// HasProducerID returns whether an idempotent producer wrote the batch.
func (b Batch) HasProducerID() bool { return b.ProducerID() > NoProducerID }

// ProducerEpoch returns the epoch of the producer id.
func (b Batch) ProducerEpoch() int16 {
	if b.legacy() {
		return NoProducerEpoch
	}
	return int16(binary.BigEndian.Uint16(b[producerEpochPos:]))
}

// BaseSequence returns the sequence number of the first record, NoSequence if there is none.
func (b Batch) BaseSequence() int32 {
	if b.legacy() {
		return NoSequence
	}
	return b.int32At(baseSequencePos)
}

// LastSequence returns the sequence number of the last record; sequences wrap from MaxInt32 to 0.
func (b Batch) LastSequence() int32 {
	base := b.BaseSequence()
	if base == NoSequence {
		return NoSequence
	}
	return AddSequence(base, b.LastOffsetDelta())
}

// Count returns the number of records that the header claims; less than LastOffsetDelta + 1 after compaction, and 0
// for the empty batches that compaction keeps. It is -1 for old compressed wrappers, which do not store it.
func (b Batch) Count() int32 {
	if b.legacy() {
		if b.Codec() != CodecNone {
			return -1
		}
		return 1
	}
	return b.int32At(countPos)
}

// SizeBytes returns the size of the whole batch, headers included.
func (b Batch) SizeBytes() int { return len(b) }

// CRCValid computes the checksum and compares it with the stored one.
func (b Batch) CRCValid() bool { return b.CRC() == b.computeCRC() }

func (b Batch) computeCRC() uint32 {
	if b.legacy() {
		return crc32.ChecksumIEEE(b[magicPos:])
	}
	return crc32.Checksum(b[attributesPos:], castagnoli)
}

// Payload returns the bytes of the records as stored, compressed or not.
func (b Batch) Payload() []byte {
	if b.legacy() {
		return nil
	}
	return b[HeaderSizeBytes:]
}

// SetBaseOffset stamps the base offset. It lies outside the CRC.
func (b Batch) SetBaseOffset(offset int64) { binary.BigEndian.PutUint64(b, uint64(offset)) }

// SetLeaderEpoch stamps the partition leader epoch of a v2 batch. It lies outside the CRC.
func (b Batch) SetLeaderEpoch(epoch int32) {
	if !b.legacy() {
		binary.BigEndian.PutUint32(b[leaderEpochPos:], uint32(epoch))
	}
}

// SetMaxTimestamp sets the timestamp type and the largest timestamp of a v2 batch and renews the CRC if either
// changed. With LogAppendTime all records of the batch have that timestamp from then on; their stored deltas stay.
func (b Batch) SetMaxTimestamp(t TimestampType, maxTimestamp int64) {
	if b.legacy() || (b.TimestampType() == t && b.MaxTimestamp() == maxTimestamp) {
		return
	}
	attributes := b.Attributes() & knownAttributesMask &^ timestampTypeFlag
	if t == LogAppendTime {
		attributes |= timestampTypeFlag
	}
	binary.BigEndian.PutUint16(b[attributesPos:], uint16(attributes))
	binary.BigEndian.PutUint64(b[maxTimestampPos:], uint64(maxTimestamp))
	b.renewCRC()
}

func (b Batch) renewCRC() { binary.BigEndian.PutUint32(b[crcPos:], b.computeCRC()) }

// AddSequence returns the sequence number that is increment after sequence, wrapping from MaxInt32 to 0.
func AddSequence(sequence, increment int32) int32 {
	if sequence > math.MaxInt32-increment {
		return increment - (math.MaxInt32 - sequence) - 1
	}
	return sequence + increment
}

// SubtractSequence returns the sequence number that is decrement before sequence, wrapping from 0 to MaxInt32.
func SubtractSequence(sequence, decrement int32) int32 {
	if sequence < decrement {
		return math.MaxInt32 - (decrement - sequence) + 1
	}
	return sequence - decrement
}
