package record

// Varints are zigzag LEB128, at most 5 bytes for 32 bits and 10 for 64. Readers return the position after the varint,
// or a negative position when it does not end within the bytes or is too long.

func readVarint(b []byte, pos int) (int32, int) {
	if pos >= len(b) {
		return 0, -1
	}
	c := b[pos]
	if c < 0x80 {
		return int32(c>>1) ^ -int32(c&1), pos + 1
	}
	v := uint32(c & 0x7f)
	for i, shift := pos+1, 7; i < len(b) && shift <= 28; i, shift = i+1, shift+7 {
		c = b[i]
		v |= uint32(c&0x7f) << shift
		if c < 0x80 {
			return int32(v>>1) ^ -int32(v&1), i + 1
		}
	}
	return 0, -1
}

func readVarlong(b []byte, pos int) (int64, int) {
	if pos >= len(b) {
		return 0, -1
	}
	c := b[pos]
	if c < 0x80 {
		return int64(c>>1) ^ -int64(c&1), pos + 1
	}
	v := uint64(c & 0x7f)
	for i, shift := pos+1, 7; i < len(b) && shift <= 63; i, shift = i+1, shift+7 {
		c = b[i]
		v |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return int64(v>>1) ^ -int64(v&1), i + 1
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

func appendUvarint(dst []byte, u uint32) []byte {
	for u >= 0x80 {
		dst = append(dst, byte(u)|0x80)
		u >>= 7
	}
	return append(dst, byte(u))
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
