package protocol

import (
	"encoding/binary"
	"fmt"
	"unsafe"
)

// Limits of decoding, per request.
const (
	// MaxArrayLength bounds the elements of one array.
	MaxArrayLength = 1_000_000
	// MaxTagsPerSection bounds the fields of one tag section.
	MaxTagsPerSection = 10_000
)

// reader walks over a message. The first failure sticks: it empties the buffer
// and is reported by err, so that a decoder need not check every field.
type reader struct {
	buf  []byte
	err  error
	flex bool // compact lengths and tag sections
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: "+format, append([]any{ErrMalformed}, args...)...)
	}
	r.buf = nil
}

// short fails for want of n bytes.
func (r *reader) short(n int) { r.fail("%d bytes wanted, %d left", n, len(r.buf)) }

// take returns the next n bytes, or nil after a failure.
func (r *reader) take(n int) []byte {
	if uint(n) > uint(len(r.buf)) {
		r.short(n)
		return nil
	}
	b := r.buf[:n:n]
	r.buf = r.buf[n:]
	return b
}

func (r *reader) int8() int8 {
	if len(r.buf) < 1 {
		r.short(1)
		return 0
	}
	v := int8(r.buf[0])
	r.buf = r.buf[1:]
	return v
}

func (r *reader) int16() int16 {
	if len(r.buf) < 2 {
		r.short(2)
		return 0
	}
	v := int16(binary.BigEndian.Uint16(r.buf))
	r.buf = r.buf[2:]
	return v
}

func (r *reader) int32() int32 {
	if len(r.buf) < 4 {
		r.short(4)
		return 0
	}
	v := int32(binary.BigEndian.Uint32(r.buf))
	r.buf = r.buf[4:]
	return v
}

func (r *reader) int64() int64 {
	if len(r.buf) < 8 {
		r.short(8)
		return 0
	}
	v := int64(binary.BigEndian.Uint64(r.buf))
	r.buf = r.buf[8:]
	return v
}

// fixed32 and fixed64 read from bytes whose number was checked before.
func fixed32(b *[]byte) int32 {
	v := int32(binary.BigEndian.Uint32(*b))
	*b = (*b)[4:]
	return v
}

func fixed64(b *[]byte) int64 {
	v := int64(binary.BigEndian.Uint64(*b))
	*b = (*b)[8:]
	return v
}

func (r *reader) uuid() (u UUID) {
	copy(u[:], r.take(16))
	return u
}

// uvarint reads an unsigned LEB128 number of at most 32 bits.
func (r *reader) uvarint() uint32 {
	if len(r.buf) > 0 && r.buf[0] < 0x80 {
		v := uint32(r.buf[0])
		r.buf = r.buf[1:]
		return v
	}
	return r.longUvarint()
}

func (r *reader) longUvarint() uint32 {
	v, n := binary.Uvarint(r.buf[:min(len(r.buf), binary.MaxVarintLen32)])
	if n <= 0 || v > 1<<32-1 {
		r.fail("bad unsigned varint")
		return 0
	}
	r.buf = r.buf[n:]
	return uint32(v)
}

// length reads the length of a string (wide false) or of bytes, records or an
// array (wide true): -1 means null. Kafka takes every negative one as null.
func (r *reader) length(wide bool) int {
	switch {
	case r.flex:
		return int(r.uvarint()) - 1
	case wide:
		return max(int(r.int32()), -1)
	default:
		return max(int(r.int16()), -1)
	}
}

// string returns text that aliases the buffer.
func (r *reader) string(field string) string {
	n := r.length(false)
	if n < 0 {
		r.failNull(field)
		return ""
	}
	return aliasString(r.take(n))
}

// nullableString returns text that aliases the buffer, or nil.
func (r *reader) nullableString() *string {
	n := r.length(false)
	if n < 0 {
		return nil
	}
	s := aliasString(r.take(n))
	return &s
}

// nullableBytes aliases the buffer; null is nil, empty is not.
func (r *reader) nullableBytes() []byte {
	n := r.length(true)
	if n < 0 {
		return nil
	}
	b := r.take(n)
	if b == nil && r.err == nil {
		b = []byte{}
	}
	return b
}

// arrayLength reads the length of an array that must not be null and whose
// elements take at least minElementBytes, and checks that they can be there.
func (r *reader) arrayLength(field string, minElementBytes int) int {
	n := r.length(true)
	if n < 0 {
		r.failNull(field)
		return 0
	}
	return r.checkArray(field, n, minElementBytes)
}

// nullableArrayLength is arrayLength with -1 for null.
func (r *reader) nullableArrayLength(field string, minElementBytes int) int {
	n := r.length(true)
	if n < 0 {
		return -1
	}
	return r.checkArray(field, n, minElementBytes)
}

func (r *reader) checkArray(field string, n, minElementBytes int) int {
	if n > MaxArrayLength {
		r.fail("%s has %d elements, at most %d are taken", field, n, MaxArrayLength)
		return 0
	}
	if n*minElementBytes > len(r.buf) {
		r.fail("%s has %d elements, only %d bytes left", field, n, len(r.buf))
		return 0
	}
	return n
}

func (r *reader) failNull(field string) {
	if r.err == nil {
		r.fail("%s is null", field)
	}
}

// tags reads a tag section and hands each payload to known, which returns
// whether it took it. Order and repetition are free, as in Kafka: the last one
// counts. A known payload must be used up; an unknown one is skipped.
func (r *reader) tags(known func(tag uint32, payload *reader) bool) {
	if !r.flex {
		return
	}
	if len(r.buf) > 0 && r.buf[0] == 0 { // nearly always
		r.buf = r.buf[1:]
		return
	}
	count := r.uvarint()
	if count > MaxTagsPerSection {
		r.fail("%d tagged fields, at most %d are taken", count, MaxTagsPerSection)
		return
	}
	for range count {
		tag, size := r.uvarint(), r.uvarint()
		payload := reader{buf: r.take(int(size)), flex: true}
		if r.err != nil {
			return
		}
		if known == nil || !known(tag, &payload) {
			continue
		}
		if payload.err != nil {
			r.fail("tagged field %d: %v", tag, payload.err)
		} else if len(payload.buf) > 0 {
			r.fail("tagged field %d has %d bytes too many", tag, len(payload.buf))
		}
	}
}

// skipTags returns what follows a tag section.
func skipTags(buf []byte) ([]byte, error) {
	r := reader{buf: buf, flex: true}
	r.tags(nil)
	return r.buf, r.err
}

// validFrom refuses a tag that is known, but only in later versions: Kafka does
// not skip it as it skips an unknown one ("Tag 0 is not valid for version 16").
func (r *reader) validFrom(first, version int16) bool {
	if version < first {
		r.fail("not valid for version %d, but from %d on", version, first)
	}
	return r.err == nil
}

// aliasString returns a string over b's memory.
func aliasString(b []byte) string {
	return unsafe.String(unsafe.SliceData(b), len(b)) //nolint:gosec // b is part of a frame that is not changed while it is in use
}
