package consumer

import (
	"encoding/binary"
	"math/bits"
)

// The 64-bit variant of XXH3 with seed 0, which Kafka uses for the hash of a
// group's metadata. The hash is persisted and compared with that of other
// brokers, so it has to be the same function.

const (
	prime32x1 = 0x9E3779B1
	prime32x2 = 0x85EBCA77
	prime32x3 = 0xC2B2AE3D
	prime64x1 = 0x9E3779B185EBCA87
	prime64x2 = 0xC2B2AE3D27D4EB4F
	prime64x3 = 0x165667B19E3779F9
	prime64x4 = 0x85EBCA77C2B2AE63
	prime64x5 = 0x27D4EB2F165667C5

	stripeBytes      = 64
	stripesPerBlock  = (192 - stripeBytes) / 8
	xxh3BlockBytes   = stripeBytes * stripesPerBlock
	midSizeMaxBytes  = 240
	midSizeStart     = 3
	midSizeLast      = 136 - 17
	mergeSecretStart = 11
)

// xxh3Secret is the default secret of XXH3.
var xxh3Secret = [192]byte{
	0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c, 0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb,
	0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f, 0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
	0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c, 0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb,
	0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3, 0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
	0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d, 0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31,
	0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64, 0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
	0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e, 0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc,
	0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce, 0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
}

func u64(b []byte, pos int) uint64 { return binary.LittleEndian.Uint64(b[pos:]) }
func u32(b []byte, pos int) uint64 { return uint64(binary.LittleEndian.Uint32(b[pos:])) }
func secret64(pos int) uint64      { return u64(xxh3Secret[:], pos) }
func secret32(pos int) uint64      { return u32(xxh3Secret[:], pos) }

func fold128(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

func avalanche(h uint64) uint64 {
	h ^= h >> 37
	h *= 0x165667919E3779F9
	return h ^ h>>32
}

func avalanche64(h uint64) uint64 {
	h ^= h >> 33
	h *= prime64x2
	h ^= h >> 29
	h *= prime64x3
	return h ^ h>>32
}

// xxh3 returns the hash of b.
func xxh3(b []byte) uint64 {
	n := len(b)
	switch {
	case n == 0:
		return avalanche64(secret64(56) ^ secret64(64))
	case n <= 3:
		combined := uint64(b[0])<<16 | uint64(b[n>>1])<<24 | uint64(b[n-1]) | uint64(n)<<8
		return avalanche64(combined ^ (secret32(0) ^ secret32(4)))
	case n <= 8:
		h := (u32(b, n-4) + u32(b, 0)<<32) ^ (secret64(8) ^ secret64(16))
		h ^= bits.RotateLeft64(h, 49) ^ bits.RotateLeft64(h, 24)
		h *= 0x9FB21C651E98DF25
		h ^= h>>35 + uint64(n)
		h *= 0x9FB21C651E98DF25
		return h ^ h>>28
	case n <= 16:
		lo := u64(b, 0) ^ (secret64(24) ^ secret64(32))
		hi := u64(b, n-8) ^ (secret64(40) ^ secret64(48))
		return avalanche(uint64(n) + bits.ReverseBytes64(lo) + hi + fold128(lo, hi))
	case n <= 128:
		return xxh3To128(b)
	case n <= midSizeMaxBytes:
		return xxh3To240(b)
	default:
		return xxh3Long(b)
	}
}

func mix16(b []byte, pos, secret int) uint64 {
	return fold128(u64(b, pos)^secret64(secret), u64(b, pos+8)^secret64(secret+8))
}

func xxh3To128(b []byte) uint64 {
	n := len(b)
	acc := uint64(n) * prime64x1
	for i := (n - 1) / 32; i >= 0; i-- {
		acc += mix16(b, 16*i, 32*i)
		acc += mix16(b, n-16*(i+1), 32*i+16)
	}
	return avalanche(acc)
}

func xxh3To240(b []byte) uint64 {
	n := len(b)
	acc := uint64(n) * prime64x1
	for i := range 8 {
		acc += mix16(b, 16*i, 16*i)
	}
	acc = avalanche(acc)
	for i := 8; i < n/16; i++ {
		acc += mix16(b, 16*i, 16*(i-8)+midSizeStart)
	}
	acc += mix16(b, n-16, midSizeLast)
	return avalanche(acc)
}

// accumulator of inputs above 240 bytes.
type accumulator [8]uint64

func (a *accumulator) stripe(b []byte, secret int) {
	for i := range a {
		value := u64(b, 8*i)
		key := value ^ secret64(secret+8*i)
		a[i^1] += value
		a[i] += (key & 0xffffffff) * (key >> 32)
	}
}

func (a *accumulator) scramble() {
	for i := range a {
		a[i] ^= a[i] >> 47
		a[i] ^= secret64(192 - stripeBytes + 8*i)
		a[i] *= prime32x1
	}
}

func xxh3Long(b []byte) uint64 {
	a := accumulator{prime32x3, prime64x1, prime64x2, prime64x3, prime64x4, prime32x2, prime64x5, prime32x1}
	n := len(b)
	rest := b
	for len(rest) > xxh3BlockBytes {
		for s := range stripesPerBlock {
			a.stripe(rest[s*stripeBytes:], 8*s)
		}
		a.scramble()
		rest = rest[xxh3BlockBytes:]
	}
	for s := range (len(rest) - 1) / stripeBytes {
		a.stripe(rest[s*stripeBytes:], 8*s)
	}
	a.stripe(b[n-stripeBytes:], 192-stripeBytes-7)
	h := uint64(n) * prime64x1
	for i := range 4 {
		h += fold128(a[2*i]^secret64(mergeSecretStart+16*i), a[2*i+1]^secret64(mergeSecretStart+16*i+8))
	}
	return avalanche(h)
}
