package record

import (
	"fmt"
	"math"
	"sync"
)

// Codec is a compression codec, with the number that the batch attributes have for it.
type Codec int8

// The codecs. CodecProducer is no codec of a batch but the value of compression.type that keeps the producer's.
const (
	CodecProducer Codec = -1
	CodecNone     Codec = 0
	CodecGzip     Codec = 1
	CodecSnappy   Codec = 2
	CodecLZ4      Codec = 3
	CodecZstd     Codec = 4
)

// DefaultLevel asks for the default level of a codec, whichever that is.
const DefaultLevel = 0

// String returns Kafka's name of the codec.
func (c Codec) String() string {
	switch c {
	case CodecProducer:
		return "producer"
	case CodecNone:
		return "none"
	case CodecGzip:
		return "gzip"
	case CodecSnappy:
		return "snappy"
	case CodecLZ4:
		return "lz4"
	case CodecZstd:
		return "zstd"
	}
	return fmt.Sprintf("codec %d", int8(c))
}

// ParseCodec returns the codec for a value of the topic config compression.type: uncompressed (or none), gzip, snappy,
// lz4, zstd, producer.
func ParseCodec(name string) (Codec, bool) {
	if name == "uncompressed" {
		return CodecNone, true
	}
	for c := CodecProducer; c <= CodecZstd; c++ {
		if c.String() == name {
			return c, true
		}
	}
	return 0, false
}

func (c Codec) known() bool { return c >= CodecNone && c <= CodecZstd }

// Limits bounds what reading a batch may cost. The zero value means the defaults.
type Limits struct {
	// MaxDecompressedBytes is the largest payload that a batch may decompress to; 0 means DefaultMaxDecompressedBytes.
	MaxDecompressedBytes int64
	// MaxRecordBytes is the largest single record; 0 means no limit but that of the payload.
	MaxRecordBytes int32
}

// DefaultMaxDecompressedBytes leaves a batch of the default max.message.bytes a compression ratio of 128.
const DefaultMaxDecompressedBytes = 128 << 20

func (l Limits) maxDecompressedBytes() int {
	if l.MaxDecompressedBytes <= 0 {
		return DefaultMaxDecompressedBytes
	}
	return int(min(l.MaxDecompressedBytes, math.MaxInt32))
}

func (l Limits) maxRecordBytes() int {
	if l.MaxRecordBytes <= 0 {
		return math.MaxInt32
	}
	return int(l.MaxRecordBytes)
}

// Decompress returns what src holds when it was compressed with codec. It uses the capacity of dst, whose contents are
// overwritten, and grows it as data arrives, never beyond lim.MaxDecompressedBytes. A size that src merely claims
// is checked before memory is set aside for it. With CodecNone it returns src itself. The errors wrap ErrCorrupt or
// ErrLimit.
func Decompress(dst []byte, codec Codec, src []byte, lim Limits) ([]byte, error) {
	maxBytes := lim.maxDecompressedBytes()
	dst = dst[:0]
	switch codec {
	case CodecNone:
		return src, nil
	case CodecGzip:
		return gunzip(dst, src, maxBytes)
	case CodecSnappy:
		return unsnappy(dst, src, maxBytes)
	case CodecLZ4:
		return unlz4(dst, src, maxBytes, false)
	case CodecZstd:
		return unzstd(dst, src, maxBytes)
	case CodecProducer:
	}
	return nil, corruptf("unknown compression %s", codec)
}

// Compress appends src, compressed with codec, to dst. Levels are those of Kafka's compression.gzip.level (1-9, -1),
// compression.lz4.level (1-17) and compression.zstd.level (-131072-22), DefaultLevel is the default of each; other
// codecs have none. Snappy is written in the framing of xerial's snappy-java, as Kafka does. An unknown codec is a
// programmer error and panics.
func Compress(dst []byte, codec Codec, level int, src []byte) []byte {
	switch codec {
	case CodecNone:
		return append(dst, src...)
	case CodecGzip:
		return gzipAppend(dst, src, level)
	case CodecSnappy:
		return snappyAppend(dst, src)
	case CodecLZ4:
		return lz4Append(dst, src, level)
	case CodecZstd:
		return zstdAppend(dst, src, level)
	case CodecProducer:
	}
	panic(fmt.Sprintf("compress with %s", codec))
}

// maxPooledBytes is the largest buffer that is kept: a batch of the default max.message.bytes and a usual ratio.
const maxPooledBytes = 8 << 20

var bufferPool = sync.Pool{New: func() any { return new([]byte) }}

func getBuffer() *[]byte { return bufferPool.Get().(*[]byte) }

func putBuffer(b *[]byte) {
	if cap(*b) <= maxPooledBytes {
		*b = (*b)[:0]
		bufferPool.Put(b)
	}
}

// grow returns b with room for n more bytes.
func grow(b []byte, n int) []byte {
	if cap(b)-len(b) >= n {
		return b
	}
	grown := make([]byte, len(b), max(len(b)+n, min(2*cap(b), len(b)+n+maxPooledBytes)))
	copy(grown, b)
	return grown
}
