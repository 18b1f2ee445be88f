package record

import (
	"encoding/binary"
	"errors"
	"math"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// zstdMaxWindowBytes is the largest window that other decoders accept without being told to: 2^27.
const zstdMaxWindowBytes = 128 << 20

// zstdDecoder decodes whole buffers, on as many goroutines at once as there are processors. It is bounded by the
// capacity of the buffer that it is given.
var zstdDecoder = sync.OnceValue(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecodeAllCapLimit(true),
		zstd.WithDecoderMaxMemory(math.MaxInt32), zstd.WithDecoderMaxWindow(zstdMaxWindowBytes))
	if err != nil {
		panic(err)
	}
	return d
})

var zstdEncoders [zstd.SpeedBestCompression + 1]func() *zstd.Encoder

func init() {
	for level := range zstdEncoders {
		zstdEncoders[level] = sync.OnceValue(func() *zstd.Encoder {
			e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.EncoderLevel(level)),
				zstd.WithEncoderCRC(false), zstd.WithZeroFrames(true), zstd.WithLowerEncoderMem(true))
			if err != nil {
				panic(err)
			}
			return e
		})
	}
}

func zstdAppend(dst, src []byte, level int) []byte {
	speed := zstd.SpeedDefault
	if level != DefaultLevel {
		speed = zstd.EncoderLevelFromZstd(level)
	}
	return zstdEncoders[speed]().EncodeAll(src, dst)
}

// zstdGuessBytes bounds the first attempt at a frame that does not say its size.
const zstdGuessBytes = 1 << 20

func unzstd(dst, src []byte, maxBytes int) ([]byte, error) {
	bound, err := zstdBound(src, maxBytes)
	if err != nil {
		return nil, err
	}
	// DecodeAll stops at the capacity of dst. One byte above the limit tells a payload at the limit from a longer one.
	most := min(bound, maxBytes+1)
	dst = grow(dst, min(most, max(zstdGuessBytes, 4*len(src))))
	for {
		room := min(cap(dst), maxBytes+1)
		out, err := zstdDecoder().DecodeAll(src, dst[:0:room])
		// When the capacity ends inside a block the decoder may call that corruption.
		full := errors.Is(err, zstd.ErrDecoderSizeExceeded) || len(out)+zstdMaxBlockBytes > room
		switch {
		case err == nil && len(out) <= maxBytes:
			return out, nil
		case err != nil && !full:
			return nil, corruptf("zstd: %v", err)
		case err != nil && room < most:
			dst = make([]byte, 0, min(most, 4*room))
		case err != nil && most <= maxBytes:
			return nil, corruptf("zstd: %v", err)
		default:
			return nil, limitf("zstd: more than %d bytes", maxBytes)
		}
	}
}

const (
	zstdMagic          = 0xFD2FB528
	zstdSkippableMagic = 0x184D2A50 // to 0x184D2A5F
	zstdMaxBlockBytes  = 128 << 10
)

// zstdBound walks the frame and block headers and returns an upper bound of the decompressed size. It fails when a
// frame claims more than maxBytes, so that nothing is allocated for a claim.
func zstdBound(src []byte, maxBytes int) (int, error) {
	bound := 0
	for len(src) > 0 {
		if len(src) < 4 {
			return 0, corruptf("zstd: truncated frame magic")
		}
		magic := binary.LittleEndian.Uint32(src)
		if magic&^0xf == zstdSkippableMagic {
			if len(src) < 8 || uint64(binary.LittleEndian.Uint32(src[4:])) > uint64(len(src)-8) {
				return 0, corruptf("zstd: truncated skippable frame")
			}
			src = src[8+binary.LittleEndian.Uint32(src[4:]):]
			continue
		}
		if magic != zstdMagic {
			return 0, corruptf("zstd: unknown magic %#x", magic)
		}
		frameBound, n, err := zstdFrameBound(src, maxBytes)
		if err != nil {
			return 0, err
		}
		bound = min(bound+frameBound, math.MaxInt32)
		src = src[n:]
	}
	return bound, nil
}

// zstdFrameBound returns the bound and the size of the frame at the start of src.
func zstdFrameBound(src []byte, maxBytes int) (bound, n int, err error) {
	var h zstd.Header
	if err := h.Decode(src); err != nil {
		return 0, 0, corruptf("zstd: %v", err)
	}
	if h.HasFCS && h.FrameContentSize > uint64(maxBytes) {
		return 0, 0, limitf("zstd: frame of %d bytes, at most %d are allowed", h.FrameContentSize, maxBytes)
	}
	pos := h.HeaderSize
	for last := false; !last; {
		if len(src)-pos < 3 {
			return 0, 0, corruptf("zstd: truncated block header")
		}
		header := int(src[pos]) | int(src[pos+1])<<8 | int(src[pos+2])<<16
		pos += 3
		last = header&1 != 0
		size := header >> 3
		switch header >> 1 & 3 {
		case 0: // raw
			bound += size
		case 1: // one byte repeated
			bound += size
			size = 1
		case 2:
			bound += zstdMaxBlockBytes
		default:
			return 0, 0, corruptf("zstd: reserved block type")
		}
		if size > len(src)-pos {
			return 0, 0, corruptf("zstd: truncated block")
		}
		pos += size
		bound = min(bound, math.MaxInt32)
	}
	if h.HasCheckSum {
		pos += 4
	}
	if pos > len(src) {
		return 0, 0, corruptf("zstd: truncated checksum")
	}
	if h.HasFCS {
		bound = min(bound, int(h.FrameContentSize))
	}
	return bound, pos, nil
}
