package record

import "math"

// Varints are zigzag LEB128, at most 5 bytes for 32 bits and 10 for 64. Readers return the position after the varint,
// or a negative position when it does not end within the bytes or is too long.

func readVarint(b []byte, pos int) (int32, int) {
	v, pos := readUvarint(b, pos)
	return unzigzag(v), pos
}

func unzigzag(v uint32) int32 { return int32(v>>1) ^ -int32(v&1) }

func readVarlong(b []byte, pos int) (int64, int) {
	var v uint64
	for shift := 0; pos < len(b) && shift <= 63; pos, shift = pos+1, shift+7 {
		c := b[pos]
		v |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return int64(v>>1) ^ -int64(v&1), pos + 1
		}
	}
	return 0, -1
}

func appendVarint(dst []byte, v int32) []byte { return appendVarlong(dst, int64(v)) }

func appendVarlong(dst []byte, v int64) []byte {
	u := uint64(v)<<1 ^ uint64(v>>63)
	for u >= 0x80 {
		dst = append(dst, byte(u)|0x80)
		u >>= 7
	}
	return append(dst, byte(u))
}

func sizeOfVarlong(v int64) int {
	u := uint64(v)<<1 ^ uint64(v>>63)
	n := 1
	for u >= 0x80 {
		u >>= 7
		n++
	}
	return n
}

// shortUvarint reads a varint of one or two bytes, for callers that know that two bytes are there. It is small enough
// to be inlined. For longer ones the position is beyond any buffer.
func shortUvarint(b []byte, pos int) (uint32, int) {
	if b[pos] < 0x80 {
		return uint32(b[pos]), pos + 1
	}
	if b[pos+1] < 0x80 {
		return uint32(b[pos]&0x7f) | uint32(b[pos+1])<<7, pos + 2
	}
	return 0, math.MaxInt32
}

func readUvarint(b []byte, pos int) (uint32, int) {
	var v uint32
	for shift := 0; pos < len(b) && shift <= 28; pos, shift = pos+1, shift+7 {
		c := b[pos]
		v |= uint32(c&0x7f) << shift
		if c < 0x80 {
			return v, pos + 1
		}
	}
	return 0, -1
}
