package wire

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Reader decodes primitives from a slice. It never reads past the end and never allocates more than the remaining
// bytes can hold. The zero Reader is empty.
type Reader struct {
	buf  []byte
	size int // of the whole input, to name positions in errors
	err  error
}

// NewReader returns a reader over b. Strings and byte fields are copied out of b.
func NewReader(b []byte) Reader { return Reader{buf: b, size: len(b)} }

// Err returns the first error, which wraps ErrMalformed or ErrVersion.
func (r *Reader) Err() error { return r.err }

// Remaining returns the number of bytes not read yet.
func (r *Reader) Remaining() int { return len(r.buf) }

// Rest returns the bytes not read yet, aliasing the input.
func (r *Reader) Rest() []byte { return r.buf }

// Fail records err unless there is an earlier one, and drops the remaining bytes.
func (r *Reader) Fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.buf = nil
}

func (r *Reader) malformed(format string, args ...any) {
	r.Fail(fmt.Errorf("%w at byte %d: %s", ErrMalformed, r.size-len(r.buf), fmt.Sprintf(format, args...)))
}

// take returns the next n bytes, or nil after recording an error.
func (r *Reader) take(n int) []byte {
	if n < 0 || n > len(r.buf) {
		if r.err == nil {
			r.malformed("%d bytes wanted, %d left", n, len(r.buf))
		}
		return nil
	}
	b := r.buf[:n:n]
	r.buf = r.buf[n:]
	return b
}

// Bool reads one byte; any but 0 is true.
func (r *Reader) Bool() bool { return r.Int8() != 0 }

// Int8 reads one byte.
func (r *Reader) Int8() int8 {
	if b := r.take(1); b != nil {
		return int8(b[0])
	}
	return 0
}

// Int16 reads 2 bytes.
func (r *Reader) Int16() int16 { return int16(r.Uint16()) }

// Uint16 reads 2 bytes.
func (r *Reader) Uint16() uint16 {
	if b := r.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

// Int32 reads 4 bytes.
func (r *Reader) Int32() int32 { return int32(r.Uint32()) }

// Uint32 reads 4 bytes.
func (r *Reader) Uint32() uint32 {
	if b := r.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

// Int64 reads 8 bytes.
func (r *Reader) Int64() int64 {
	if b := r.take(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

// Float64 reads 8 bytes, IEEE 754.
func (r *Reader) Float64() float64 { return math.Float64frombits(uint64(r.Int64())) }

// UUID reads 16 bytes.
func (r *Reader) UUID() (id [16]byte) {
	copy(id[:], r.take(16))
	return id
}

// Uvarint reads an unsigned LEB128 number of at most 32 bits.
func (r *Reader) Uvarint() uint32 {
	v, n := binary.Uvarint(r.buf[:min(len(r.buf), binary.MaxVarintLen32)])
	if n <= 0 || v > math.MaxUint32 {
		if r.err == nil {
			r.malformed("bad unsigned varint")
		}
		return 0
	}
	r.buf = r.buf[n:]
	return uint32(v)
}

// length reads the length of a string, byte field or array; -1 is null.
func (r *Reader) length(flexible bool, short bool) int {
	switch {
	case flexible:
		return int(r.Uvarint()) - 1
	case short:
		return int(r.Int16())
	default:
		return int(r.Int32())
	}
}

// String reads a string that cannot be null.
func (r *Reader) String(flexible bool) string {
	n := r.length(flexible, true)
	if n < 0 && r.err == nil {
		r.malformed("null where a string is required")
	}
	if n < 0 {
		return ""
	}
	return string(r.take(n))
}

// NullableString reads a string or null, which is nil.
func (r *Reader) NullableString(flexible bool) *string {
	n := r.length(flexible, true)
	if n < -1 {
		r.malformed("string length %d", n)
	}
	if n < 0 || r.err != nil {
		return nil
	}
	s := string(r.take(n))
	return &s
}

// Bytes reads a byte field that cannot be null. Empty is nil.
func (r *Reader) Bytes(flexible bool) []byte {
	n := r.length(flexible, false)
	if n < 0 && r.err == nil {
		r.malformed("null where bytes are required")
	}
	if n <= 0 {
		return nil
	}
	return append([]byte(nil), r.take(n)...)
}

// NullableBytes reads a byte field or null, which is nil; empty is not nil.
func (r *Reader) NullableBytes(flexible bool) []byte {
	n := r.length(flexible, false)
	if n < -1 {
		r.malformed("bytes length %d", n)
	}
	if n < 0 || r.err != nil {
		return nil
	}
	return append([]byte{}, r.take(n)...)
}

// ArrayLen reads the count of an array that cannot be null. A count that the remaining bytes cannot hold, each
// element taking at least minElemBytes, is an error.
func (r *Reader) ArrayLen(flexible bool, minElemBytes int) int {
	n := r.NullableArrayLen(flexible, minElemBytes)
	if n < 0 {
		if r.err == nil {
			r.malformed("null where an array is required")
		}
		return 0
	}
	return n
}

// NullableArrayLen is ArrayLen for a nullable array; null, and any error, is -1.
func (r *Reader) NullableArrayLen(flexible bool, minElemBytes int) int {
	n := r.length(flexible, false)
	switch {
	case r.err != nil:
		return -1
	case n < -1:
		r.malformed("array count %d", n)
		return -1
	case n > 0 && n > len(r.buf)/max(minElemBytes, 1):
		r.malformed("array count %d with %d bytes left", n, len(r.buf))
		return -1
	}
	return n
}

// Present reads the presence marker of a nullable struct: -1 null, 1 present.
func (r *Reader) Present() bool {
	v := r.Int8()
	if v != 1 && v != -1 && r.err == nil {
		r.malformed("presence marker %d", v)
	}
	return v == 1 && r.err == nil
}

// PresentTagged reads the presence marker of a nullable struct in a tagged field: uvarint 0 null, 1 present.
func (r *Reader) PresentTagged() bool {
	v := r.Uvarint()
	if v > 1 {
		r.malformed("presence marker %d", v)
	}
	return v == 1 && r.err == nil
}

// TagCount reads the number of tagged fields of a section.
func (r *Reader) TagCount() int {
	n := int(r.Uvarint())
	if n > MaxTags || n > len(r.buf)/2 {
		r.malformed("%d tagged fields with %d bytes left", n, len(r.buf))
		return 0
	}
	return n
}

// Tag reads the number and size of a tagged field and returns a reader over its payload. Finish it with EndTag.
func (r *Reader) Tag() (number uint32, payload Reader) {
	number = r.Uvarint()
	size := r.Uvarint()
	if uint64(size) > uint64(len(r.buf)) {
		r.malformed("tagged field %d of %d bytes with %d left", number, size, len(r.buf))
		return number, Reader{err: r.err}
	}
	at := r.size - len(r.buf)
	b := r.take(int(size))
	return number, Reader{buf: b, size: at + len(b), err: r.err}
}

// EndTag checks that payload was read to its end without error.
func (r *Reader) EndTag(number uint32, payload *Reader) {
	switch {
	case payload.err != nil:
		r.Fail(payload.err)
	case len(payload.buf) > 0:
		r.malformed("tagged field %d has %d bytes too many", number, len(payload.buf))
	}
}

// Unknown takes the payload of a tagged field as it is and adds it to tags, keeping their order.
func (r *Reader) Unknown(tags Tags, number uint32) Tags {
	data := append([]byte{}, r.take(len(r.buf))...)
	if n := len(tags); n == 0 || tags[n-1].Number < number {
		return append(tags, Tag{Number: number, Data: data})
	}
	if _, dup := tags.Get(number); dup {
		r.malformed("tagged field %d twice", number)
		return tags
	}
	return tags.With(number, data)
}

// Skip drops the payload of a tagged field.
func (r *Reader) Skip() { r.take(len(r.buf)) }

// End records an error if bytes are left, for messages that fill their container.
func (r *Reader) End() {
	if r.err == nil && len(r.buf) > 0 {
		r.malformed("%d bytes too many", len(r.buf))
	}
}

// SkipTags reads a tag section and drops all of it.
func (r *Reader) SkipTags() {
	for range r.TagCount() {
		number, payload := r.Tag()
		payload.Skip()
		r.EndTag(number, &payload)
	}
}
