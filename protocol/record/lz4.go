package record

import (
	"encoding/binary"
	"math/bits"
	"sync"

	"github.com/pierrec/lz4/v4"
)

// LZ4 payloads are one frame of the LZ4 frame format, version 1, with independent blocks. Frames are read and written
// here, around the library's block codec: Kafka's reader is stricter than the format (no linked blocks) and at once laxer
// (nothing after the end mark is looked at; format 0 has frames with a wrong header checksum), and the frame
// says in advance how much memory it needs.
const (
	lz4Magic = 0x184D2204

	lz4FlagDictID          = 0x01
	lz4FlagReserved        = 0x02
	lz4FlagContentChecksum = 0x04
	lz4FlagContentSize     = 0x08
	lz4FlagBlockChecksum   = 0x10
	lz4FlagIndependent     = 0x20
	lz4VersionMask         = 0xc0
	lz4Version1            = 0x40

	lz4Block64KiB      = 4 // of the block descriptor: 64 KiB << 2*(n-4)
	lz4BlockBytes      = 64 << 10
	lz4UncompressedBit = 1 << 31

	lz4DefaultLevel = 9
)

type lz4Compressors struct {
	fast lz4.Compressor
	high lz4.CompressorHC
}

var lz4Pool = sync.Pool{New: func() any { return new(lz4Compressors) }}

func lz4Append(dst, src []byte, level int) []byte {
	c := lz4Pool.Get().(*lz4Compressors)
	defer lz4Pool.Put(c)
	dst = binary.LittleEndian.AppendUint32(dst, lz4Magic)
	descriptor := [2]byte{lz4Version1 | lz4FlagIndependent, lz4Block64KiB << 4}
	dst = append(dst, descriptor[0], descriptor[1], byte(xxh32(descriptor[:])>>8))
	for len(src) > 0 {
		block := src[:min(len(src), lz4BlockBytes)]
		src = src[len(block):]
		dst = grow(dst, 4+len(block))
		start := len(dst) + 4
		// A block that does not shrink is stored; the compressors say so with 0 or an error.
		n, err := c.compress(block, dst[start:start+len(block)], level)
		if err != nil || n == 0 || n >= len(block) {
			n = copy(dst[start:start+len(block)], block)
			dst = binary.LittleEndian.AppendUint32(dst, uint32(n)|lz4UncompressedBit)
		} else {
			dst = binary.LittleEndian.AppendUint32(dst, uint32(n))
		}
		dst = dst[:start+n]
	}
	return append(dst, 0, 0, 0, 0)
}

// compress compresses one block. Kafka's default level 9 means the fast compressor.
func (c *lz4Compressors) compress(src, dst []byte, level int) (int, error) {
	if level == DefaultLevel || level == lz4DefaultLevel {
		return c.fast.CompressBlock(src, dst)
	}
	levels := [...]lz4.CompressionLevel{
		lz4.Level1, lz4.Level2, lz4.Level3, lz4.Level4, lz4.Level5, lz4.Level6, lz4.Level7, lz4.Level8, lz4.Level9,
	}
	c.high.Level = levels[min(max(level, 1), len(levels))-1]
	return c.high.CompressBlock(src, dst)
}

// lz4Frame is the header of a frame.
type lz4Frame struct {
	flags         byte
	maxBlockBytes int
	contentSize   uint64
	sizeBytes     int
}

func parseLZ4Frame(src []byte, ignoreHeaderChecksum bool) (f lz4Frame, err error) {
	if len(src) < 7 {
		return f, corruptf("lz4: truncated frame header")
	}
	if binary.LittleEndian.Uint32(src) != lz4Magic {
		return f, corruptf("lz4: unknown magic %#x", binary.LittleEndian.Uint32(src))
	}
	f.flags = src[4]
	f.sizeBytes = 7
	switch {
	case f.flags&lz4VersionMask != lz4Version1:
		return f, corruptf("lz4: unsupported version of the frame, flags %#x", f.flags)
	case f.flags&(lz4FlagReserved|lz4FlagDictID) != 0:
		return f, corruptf("lz4: reserved flags or a dictionary, flags %#x", f.flags)
	case f.flags&lz4FlagIndependent == 0:
		return f, corruptf("lz4: linked blocks are not supported")
	case src[5]&0x8f != 0 || src[5]>>4 < lz4Block64KiB:
		return f, corruptf("lz4: invalid block descriptor %#x", src[5])
	}
	f.maxBlockBytes = lz4BlockBytes << (2 * (src[5]>>4 - lz4Block64KiB))
	if f.flags&lz4FlagContentSize != 0 {
		if len(src) < 15 {
			return f, corruptf("lz4: truncated frame header")
		}
		f.contentSize = binary.LittleEndian.Uint64(src[6:])
		f.sizeBytes = 15
	}
	if !ignoreHeaderChecksum && src[f.sizeBytes-1] != byte(xxh32(src[4:f.sizeBytes-1])>>8) {
		return f, corruptf("lz4: frame header checksum mismatch")
	}
	return f, nil
}

func unlz4(dst, src []byte, maxBytes int, ignoreHeaderChecksum bool) ([]byte, error) {
	f, err := parseLZ4Frame(src, ignoreHeaderChecksum)
	if err != nil {
		return nil, err
	}
	if f.contentSize > uint64(maxBytes) {
		return nil, limitf("lz4: frame of %d bytes, at most %d are allowed", f.contentSize, maxBytes)
	}
	src = src[f.sizeBytes:]
	for {
		if len(src) < 4 {
			return nil, corruptf("lz4: truncated block size")
		}
		header := binary.LittleEndian.Uint32(src)
		src = src[4:]
		if header == 0 {
			break
		}
		n := int(header &^ lz4UncompressedBit)
		if n > f.maxBlockBytes || n > len(src) {
			return nil, corruptf("lz4: block of %d bytes, at most %d are allowed and %d remain", n, f.maxBlockBytes, len(src))
		}
		block := src[:n]
		src = src[n:]
		if f.flags&lz4FlagBlockChecksum != 0 {
			if len(src) < 4 || binary.LittleEndian.Uint32(src) != xxh32(block) {
				return nil, corruptf("lz4: block checksum mismatch")
			}
			src = src[4:]
		}
		if dst, err = f.appendBlock(dst, block, header&lz4UncompressedBit != 0, maxBytes); err != nil {
			return nil, err
		}
	}
	if f.flags&lz4FlagContentChecksum != 0 {
		if len(src) < 4 || binary.LittleEndian.Uint32(src) != xxh32(dst) {
			return nil, corruptf("lz4: content checksum mismatch")
		}
	}
	return dst, nil
}

// lz4MaxRatio is the most that a byte of a block can yield: a run length byte of a match.
const lz4MaxRatio = 255

func (f lz4Frame) appendBlock(dst, block []byte, stored bool, maxBytes int) ([]byte, error) {
	if stored {
		if len(block) > maxBytes-len(dst) {
			return nil, limitf("lz4: more than %d bytes", maxBytes)
		}
		return append(grow(dst, len(block)), block...), nil
	}
	room := min(f.maxBlockBytes, lz4MaxRatio*len(block), maxBytes-len(dst))
	dst = grow(dst, room)
	n, err := lz4.UncompressBlock(block, dst[len(dst):len(dst)+room])
	if err != nil {
		if room == maxBytes-len(dst) {
			return nil, limitf("lz4: more than %d bytes, or %v", maxBytes, err)
		}
		return nil, corruptf("lz4: %v", err)
	}
	return dst[:len(dst)+n], nil
}

const (
	xxPrime1 uint32 = 2654435761
	xxPrime2 uint32 = 2246822519
	xxPrime3 uint32 = 3266489917
	xxPrime4 uint32 = 668265263
	xxPrime5 uint32 = 374761393
)

// xxh32 is the XXH32 hash with seed 0, the checksum of LZ4 frames. The library's own is internal to it.
func xxh32(b []byte) uint32 {
	total := uint32(len(b))
	var h uint32
	if len(b) >= 16 {
		v := [4]uint32{0, xxPrime2, 0, 0}
		v[0] = xxPrime2
		v[0] += xxPrime1
		v[3] -= xxPrime1
		for ; len(b) >= 16; b = b[16:] {
			for i := range v {
				v[i] = bits.RotateLeft32(v[i]+binary.LittleEndian.Uint32(b[4*i:])*xxPrime2, 13) * xxPrime1
			}
		}
		h = bits.RotateLeft32(v[0], 1) + bits.RotateLeft32(v[1], 7) + bits.RotateLeft32(v[2], 12) + bits.RotateLeft32(v[3], 18)
	} else {
		h = xxPrime5
	}
	h += total
	for ; len(b) >= 4; b = b[4:] {
		h = bits.RotateLeft32(h+binary.LittleEndian.Uint32(b)*xxPrime3, 17) * xxPrime4
	}
	for _, c := range b {
		h = bits.RotateLeft32(h+uint32(c)*xxPrime5, 11) * xxPrime1
	}
	h ^= h >> 15
	h *= xxPrime2
	h ^= h >> 13
	h *= xxPrime3
	return h ^ h>>16
}
