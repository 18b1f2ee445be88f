package record

import (
	"encoding/binary"
	"math"
)

// BuilderOptions are the header fields of the batch that a Builder makes. The zero value is a plain uncompressed batch
// of CreateTime at offset 0 without a producer; so a producer id of 0 needs HasProducer.
type BuilderOptions struct {
	BaseOffset  int64
	LeaderEpoch int32
	Codec       Codec
	Level       int // as for Compress

	TimestampType       TimestampType
	LogAppendTimeMillis int64 // the largest timestamp, with LogAppendTime

	// HasProducer says that the three producer fields are set; else they are -1.
	HasProducer   bool
	ProducerID    int64
	ProducerEpoch int16
	BaseSequence  int32

	Transactional bool
	Control       bool

	// HasDeleteHorizon says that DeleteHorizonMillis becomes the base timestamp (KIP-534).
	HasDeleteHorizon    bool
	DeleteHorizonMillis int64
}

// Builder makes one v2 batch. It may be used again after Reset, and keeps its memory. The bytes of an uncompressed
// batch are those that Kafka would write.
type Builder struct {
	opts  BuilderOptions
	buf   []byte // header and plain records
	out   []byte // the compressed batch
	count int32

	lastOffset    int64
	baseTimestamp int64
	maxTimestamp  int64
}

// NewBuilder returns a builder for one batch.
func NewBuilder(opts BuilderOptions) *Builder {
	b := new(Builder)
	b.Reset(opts)
	return b
}

// Reset starts a new batch. Bytes returned before become invalid.
func (b *Builder) Reset(opts BuilderOptions) {
	if !opts.HasProducer {
		opts.ProducerID, opts.ProducerEpoch, opts.BaseSequence = NoProducerID, NoProducerEpoch, NoSequence
	}
	*b = Builder{opts: opts, buf: b.buf[:0], out: b.out[:0]}
	b.buf = append(b.buf, make([]byte, HeaderSizeBytes)...)
	b.lastOffset = opts.BaseOffset - 1
	b.baseTimestamp, b.maxTimestamp = NoTimestamp, NoTimestamp
	if opts.HasDeleteHorizon {
		b.baseTimestamp = opts.DeleteHorizonMillis
	}
}

// Add appends a record with the next offset. A nil key or value is null.
func (b *Builder) Add(timestampMillis int64, key, value []byte, headers []Header) {
	b.AddAt(b.lastOffset+1, timestampMillis, key, value, headers)
}

// AddAt appends a record with an offset above those before it: compaction leaves gaps. An offset that is not, or that
// is too far from the base offset, is a programmer error and panics.
func (b *Builder) AddAt(offset, timestampMillis int64, key, value []byte, headers []Header) {
	delta := b.startRecord(offset, timestampMillis)
	timestampDelta := timestampMillis - b.baseTimestamp
	size := 1 + sizeOfVarlong(timestampDelta) + sizeOfVarlong(int64(delta)) + sizeOfBytes(key) + sizeOfBytes(value) +
		sizeOfVarlong(int64(len(headers)))
	for i := range headers {
		size += sizeOfVarlong(int64(len(headers[i].Key))) + len(headers[i].Key) + sizeOfBytes(headers[i].Value)
	}
	dst := grow(b.buf, size+sizeOfVarlong(int64(size)))
	dst = appendVarlong(dst, int64(size))
	dst = append(dst, 0)
	dst = appendVarlong(dst, timestampDelta)
	dst = appendVarint(dst, delta)
	dst = appendBytes(dst, key)
	dst = appendBytes(dst, value)
	dst = appendVarlong(dst, int64(len(headers)))
	for i := range headers {
		dst = appendVarlong(dst, int64(len(headers[i].Key)))
		dst = append(dst, headers[i].Key...)
		dst = appendBytes(dst, headers[i].Value)
	}
	b.buf = dst
}

// startRecord accounts for a record and returns its offset delta.
func (b *Builder) startRecord(offset, timestampMillis int64) int32 {
	if offset <= b.lastOffset || offset-b.opts.BaseOffset > math.MaxInt32 {
		panic("record: offset does not follow the one before it")
	}
	if b.count == 0 && !b.opts.HasDeleteHorizon {
		b.baseTimestamp = timestampMillis
	}
	b.maxTimestamp = max(b.maxTimestamp, timestampMillis)
	b.lastOffset = offset
	b.count++
	return int32(offset - b.opts.BaseOffset)
}

// addRaw appends a record whose key, value and headers are already encoded as in raw.
func (b *Builder) addRaw(offset, timestampMillis int64, raw *rawRecord) {
	delta := b.startRecord(offset, timestampMillis)
	timestampDelta := timestampMillis - b.baseTimestamp
	size := 1 + sizeOfVarlong(timestampDelta) + sizeOfVarlong(int64(delta)) + sizeOfBytes(raw.key) +
		sizeOfBytes(raw.value) + sizeOfVarlong(int64(raw.headerCount)) + len(raw.headers)
	dst := grow(b.buf, size+sizeOfVarlong(int64(size)))
	dst = appendVarlong(dst, int64(size))
	dst = append(dst, 0)
	dst = appendVarlong(dst, timestampDelta)
	dst = appendVarint(dst, delta)
	dst = appendBytes(dst, raw.key)
	dst = appendBytes(dst, raw.value)
	dst = appendVarint(dst, raw.headerCount)
	dst = append(dst, raw.headers...)
	b.buf = dst
}

// SetLastOffset makes the batch end at offset although its last record is before it, as in a batch whose last records
// were compacted away. It must not be below the last record.
func (b *Builder) SetLastOffset(offset int64) {
	if offset < b.lastOffset || offset-b.opts.BaseOffset > math.MaxInt32 {
		panic("record: last offset is below the last record")
	}
	b.lastOffset = offset
}

// Count returns the number of records added so far.
func (b *Builder) Count() int { return int(b.count) }

// SizeBytes returns the size of the batch so far, before compression.
func (b *Builder) SizeBytes() int { return len(b.buf) }

// SizeWith returns the size before compression if a record with a key and value of these lengths (-1 for null) and no
// headers were added; at most a few bytes more than it will be.
func (b *Builder) SizeWith(keyBytes, valueBytes int) int {
	return len(b.buf) + maxRecordOverheadBytes + max(keyBytes, 0) + max(valueBytes, 0)
}

// maxRecordOverheadBytes is the most that a record without headers takes besides its key and value: length, attributes,
// timestamp and offset deltas, key and value length, header count.
const maxRecordOverheadBytes = 5 + 1 + 10 + 5 + 5 + 5 + 1

// Bytes finishes the batch and returns it. The bytes belong to the builder until Reset. A batch without records is
// valid: it is what compaction keeps of an idempotent producer; SetLastOffset must then have been called.
func (b *Builder) Bytes() Batch {
	batch := Batch(b.buf)
	if b.opts.Codec != CodecNone && b.count > 0 {
		b.out = append(b.out[:0], b.buf[:HeaderSizeBytes]...)
		b.out = Compress(b.out, b.opts.Codec, b.opts.Level, b.buf[HeaderSizeBytes:])
		batch = Batch(b.out)
	}
	maxTimestamp := b.maxTimestamp
	if b.opts.TimestampType == LogAppendTime {
		maxTimestamp = b.opts.LogAppendTimeMillis
	}
	b.putHeader(batch, maxTimestamp)
	return batch
}

func (b *Builder) attributes() uint16 {
	attributes := uint16(b.opts.Codec)
	if b.opts.TimestampType == LogAppendTime {
		attributes |= timestampTypeFlag
	}
	if b.opts.Transactional {
		attributes |= transactionalFlag
	}
	if b.opts.Control {
		attributes |= controlFlag
	}
	if b.opts.HasDeleteHorizon {
		attributes |= deleteHorizonFlag
	}
	return attributes
}

func (b *Builder) putHeader(batch Batch, maxTimestamp int64) {
	be := binary.BigEndian
	be.PutUint64(batch, uint64(b.opts.BaseOffset))
	be.PutUint32(batch[8:], uint32(len(batch)-LogOverheadBytes))
	be.PutUint32(batch[leaderEpochPos:], uint32(b.opts.LeaderEpoch))
	batch[magicPos] = 2
	be.PutUint16(batch[attributesPos:], b.attributes())
	be.PutUint32(batch[lastOffsetDeltaPos:], uint32(b.lastOffset-b.opts.BaseOffset))
	be.PutUint64(batch[baseTimestampPos:], uint64(b.baseTimestamp))
	be.PutUint64(batch[maxTimestampPos:], uint64(maxTimestamp))
	be.PutUint64(batch[producerIDPos:], uint64(b.opts.ProducerID))
	be.PutUint16(batch[producerEpochPos:], uint16(b.opts.ProducerEpoch))
	be.PutUint32(batch[baseSequencePos:], uint32(b.opts.BaseSequence))
	be.PutUint32(batch[countPos:], uint32(b.count))
	batch.renewCRC()
}

// AppendEmptyBatch appends what compaction keeps of a batch that lost all its records: its header, with the count 0,
// no base timestamp and no codec.
func AppendEmptyBatch(dst []byte, b Batch) []byte {
	dst = append(dst, b[:HeaderSizeBytes]...)
	empty := Batch(dst[len(dst)-HeaderSizeBytes:])
	be := binary.BigEndian
	be.PutUint32(empty[8:], HeaderSizeBytes-LogOverheadBytes)
	be.PutUint16(empty[attributesPos:], uint16(b.Attributes()&^(codecMask|deleteHorizonFlag)))
	be.PutUint64(empty[baseTimestampPos:], math.MaxUint64)
	be.PutUint32(empty[countPos:], 0)
	empty.renewCRC()
	return dst
}

func sizeOfBytes(b []byte) int {
	if b == nil {
		return 1
	}
	return sizeOfVarlong(int64(len(b))) + len(b)
}

func appendBytes(dst, b []byte) []byte {
	if b == nil {
		return append(dst, 1) // -1
	}
	dst = appendVarlong(dst, int64(len(b)))
	return append(dst, b...)
}
