package record

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/klauspost/compress/s2"
)

// Snappy comes in two shapes. Most clients send the framing of xerial's snappy-java: a header of 16 bytes (magic,
// version 1, lowest compatible version 1), then blocks of an int32 length and a raw snappy block each. Others send one
// raw block. Kafka reads both and so do all consumers.
var xerialHeader = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1}

const (
	xerialMagicBytes = 8
	// xerialBlockBytes is how much uncompressed data Kafka puts into a block.
	xerialBlockBytes = 32 << 10
)

func snappyAppend(dst, src []byte) []byte {
	dst = append(dst, xerialHeader...)
	for len(src) > 0 {
		block := src[:min(len(src), xerialBlockBytes)]
		src = src[len(block):]
		dst = grow(dst, 4+s2.MaxEncodedLen(len(block)))
		start := len(dst) + 4
		out := s2.EncodeSnappy(dst[start:cap(dst)], block)
		dst = dst[:start+len(out)]
		binary.BigEndian.PutUint32(dst[start-4:], uint32(len(out)))
	}
	return dst
}

func unsnappy(dst, src []byte, maxBytes int) ([]byte, error) {
	if len(src) < len(xerialHeader) || !bytes.Equal(src[:xerialMagicBytes], xerialHeader[:xerialMagicBytes]) {
		return unsnappyBlock(dst, src, maxBytes)
	}
	if version := int32(binary.BigEndian.Uint32(src[xerialMagicBytes:])); version < 1 {
		return nil, corruptf("snappy: version %d of the framing is not supported", version)
	}
	src = src[len(xerialHeader):]
	for len(src) > 0 {
		if len(src) < 4 {
			return nil, corruptf("snappy: truncated block length")
		}
		// Streams may be concatenated: then a header stands in place of a block.
		if len(src) >= len(xerialHeader) && bytes.Equal(src[:xerialMagicBytes], xerialHeader[:xerialMagicBytes]) {
			src = src[len(xerialHeader):]
			continue
		}
		n := int32(binary.BigEndian.Uint32(src))
		src = src[4:]
		if n < 0 || int(n) > len(src) {
			return nil, corruptf("snappy: block of %d bytes, %d remain", n, len(src))
		}
		var err error
		if dst, err = unsnappyBlock(dst, src[:n], maxBytes); err != nil {
			return nil, err
		}
		src = src[n:]
	}
	return dst, nil
}

// unsnappyBlock appends a decompressed raw block to dst. Nothing is allocated before the elements of the block are
// known to add up to the length that its header claims.
func unsnappyBlock(dst, src []byte, maxBytes int) ([]byte, error) {
	claimed, headerBytes := binary.Uvarint(src)
	if headerBytes <= 0 || claimed > 1<<32-1 {
		return nil, corruptf("snappy: invalid length")
	}
	if claimed > uint64(maxBytes-len(dst)) {
		return nil, limitf("snappy: block of %d bytes after %d, at most %d are allowed", claimed, len(dst), maxBytes)
	}
	if !snappyFills(src[headerBytes:], int(claimed)) {
		return nil, corruptf("snappy: invalid block of %d bytes", claimed)
	}
	if claimed == 0 {
		return dst, nil
	}
	dst = grow(dst, int(claimed))
	out, err := s2.Decode(dst[len(dst):cap(dst)], src)
	if err != nil {
		return nil, corruptf("snappy: %v", err)
	}
	return dst[:len(dst)+len(out)], nil
}

// snappyFills walks the elements of a raw block and reports whether they are valid Snappy and yield exactly want bytes.
// The decoder also takes S2's extensions, which other Kafka clients could not read: a copy with offset 0.
func snappyFills(src []byte, want int) bool {
	produced := 0
	for pos := 0; pos < len(src); {
		tag := src[pos]
		pos++
		n := int(tag >> 2)
		if tag&3 == 0 { // literal
			n, pos = snappyLiteral(src, pos, n)
			if n > len(src)-pos || n > want-produced {
				return false
			}
			pos += n
			produced += n
			continue
		}
		offset, width := 0, 0
		switch tag & 3 {
		case 1:
			if pos >= len(src) {
				return false
			}
			n, offset, width = 4+n&7, int(tag>>5)<<8|int(src[pos]), 1
		case 2:
			if len(src)-pos < 2 {
				return false
			}
			n, offset, width = n+1, int(binary.LittleEndian.Uint16(src[pos:])), 2
		case 3:
			if len(src)-pos < 4 {
				return false
			}
			n, offset, width = n+1, int(binary.LittleEndian.Uint32(src[pos:])), 4
		}
		if offset == 0 || offset > produced || n > want-produced {
			return false
		}
		pos += width
		produced += n
	}
	return produced == want
}

// snappyLiteral returns the length of a literal and where it starts: lengths above 60 follow the tag in 1 to 4 bytes.
// A length that is cut off is larger than what is left.
func snappyLiteral(src []byte, pos, n int) (int, int) {
	if n < 60 {
		return n + 1, pos
	}
	width := n - 59
	if width > len(src)-pos {
		return math.MaxInt32, pos
	}
	n = 0
	for i := range width {
		n |= int(src[pos+i]) << (8 * i)
	}
	return n + 1, pos + width
}
