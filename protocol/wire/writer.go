package wire

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Writer appends primitives to a slice. Make one with NewWriter.
type Writer struct {
	buf []byte
	err error
}

// NewWriter returns a writer that appends to dst.
func NewWriter(dst []byte) Writer { return Writer{buf: dst} }

// Result returns what was written, after the dst given to NewWriter, and the first error.
func (w *Writer) Result() ([]byte, error) { return w.buf, w.err }

// Fail records err unless there is an earlier one.
func (w *Writer) Fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

// Unset records that a field holds a value although the version has no such field.
func (w *Writer) Unset(message, field string, version int16) {
	w.Fail(fmt.Errorf("%w: %s version %d has no %s", ErrField, message, version, field))
}

// Bool writes one byte, 0 or 1.
func (w *Writer) Bool(v bool) {
	if v {
		w.buf = append(w.buf, 1)
	} else {
		w.buf = append(w.buf, 0)
	}
}

// Int8 writes one byte.
func (w *Writer) Int8(v int8) { w.buf = append(w.buf, byte(v)) }

// Int16 writes 2 bytes.
func (w *Writer) Int16(v int16) { w.buf = binary.BigEndian.AppendUint16(w.buf, uint16(v)) }

// Uint16 writes 2 bytes.
func (w *Writer) Uint16(v uint16) { w.buf = binary.BigEndian.AppendUint16(w.buf, v) }

// Int32 writes 4 bytes.
func (w *Writer) Int32(v int32) { w.buf = binary.BigEndian.AppendUint32(w.buf, uint32(v)) }

// Uint32 writes 4 bytes.
func (w *Writer) Uint32(v uint32) { w.buf = binary.BigEndian.AppendUint32(w.buf, v) }

// Int64 writes 8 bytes.
func (w *Writer) Int64(v int64) { w.buf = binary.BigEndian.AppendUint64(w.buf, uint64(v)) }

// Float64 writes 8 bytes, IEEE 754.
func (w *Writer) Float64(v float64) { w.Int64(int64(math.Float64bits(v))) }

// UUID writes 16 bytes.
func (w *Writer) UUID(v [16]byte) { w.buf = append(w.buf, v[:]...) }

// Uvarint writes an unsigned LEB128 number.
func (w *Writer) Uvarint(v uint32) { w.buf = binary.AppendUvarint(w.buf, uint64(v)) }

// length writes a length; -1 is null.
func (w *Writer) length(n int, flexible, short bool) {
	switch {
	case flexible && n < math.MaxInt32:
		w.Uvarint(uint32(n + 1))
	case !flexible && short && n <= math.MaxInt16:
		w.Int16(int16(n))
	case !flexible && !short && n <= math.MaxInt32:
		w.Int32(int32(n))
	default:
		w.Fail(fmt.Errorf("%w: length %d", ErrField, n))
	}
}

// String writes a string.
func (w *Writer) String(s string, flexible bool) {
	w.length(len(s), flexible, true)
	w.buf = append(w.buf, s...)
}

// NullableString writes a string, or null for nil.
func (w *Writer) NullableString(s *string, flexible bool) {
	if s == nil {
		w.length(-1, flexible, true)
		return
	}
	w.String(*s, flexible)
}

// Blob writes a byte field; nil is empty.
func (w *Writer) Blob(b []byte, flexible bool) {
	w.length(len(b), flexible, false)
	w.buf = append(w.buf, b...)
}

// NullableBlob writes a byte field, or null for nil.
func (w *Writer) NullableBlob(b []byte, flexible bool) {
	if b == nil {
		w.length(-1, flexible, false)
		return
	}
	w.Blob(b, flexible)
}

// ArrayLen writes the count of an array; -1 is null.
func (w *Writer) ArrayLen(n int, flexible bool) { w.length(n, flexible, false) }

// Present writes the presence marker of a nullable struct: -1 null, 1 present.
func (w *Writer) Present(present bool) {
	if present {
		w.Int8(1)
	} else {
		w.Int8(-1)
	}
}

// PresentTagged writes the presence marker of a nullable struct in a tagged field: uvarint 0 null, 1 present.
func (w *Writer) PresentTagged(present bool) { w.Bool(present) }

// TagSection writes tagged fields. Begin one with BeginTags, write each known field between Tag and EndTag in
// ascending order, and finish with EndTags, which writes the unknown ones in between where their numbers belong.
type TagSection struct {
	w       *Writer
	unknown Tags
	start   int // where the count belongs
	count   uint32
	payload int // where the payload of the open field begins
	last    int64
}

// BeginTags begins a tag section that also carries the given unknown fields.
func (w *Writer) BeginTags(unknown Tags) TagSection {
	return TagSection{w: w, unknown: unknown, start: len(w.buf), last: -1}
}

// Tag begins a known field.
func (t *TagSection) Tag(number uint32) {
	t.flushUnknown(int64(number))
	t.header(number)
}

func (t *TagSection) header(number uint32) {
	if int64(number) <= t.last {
		t.w.Fail(fmt.Errorf("%w: tagged field %d is out of order or twice", ErrField, number))
	}
	t.last = int64(number)
	t.count++
	t.w.Uvarint(number)
	t.payload = len(t.w.buf)
}

// EndTag ends the field begun by Tag by putting its size before it.
func (t *TagSection) EndTag() { t.w.insertUvarint(t.payload, uint32(len(t.w.buf)-t.payload)) }

// flushUnknown writes the unknown fields with numbers below limit.
func (t *TagSection) flushUnknown(limit int64) {
	for len(t.unknown) > 0 && int64(t.unknown[0].Number) < limit {
		t.header(t.unknown[0].Number)
		t.w.Uvarint(uint32(len(t.unknown[0].Data)))
		t.w.buf = append(t.w.buf, t.unknown[0].Data...)
		t.unknown = t.unknown[1:]
	}
}

// EndTags ends the section.
func (t *TagSection) EndTags() {
	t.flushUnknown(math.MaxInt64)
	t.w.insertUvarint(t.start, t.count)
}

// insertUvarint puts v at position at, moving what follows.
func (w *Writer) insertUvarint(at int, v uint32) {
	var tmp [binary.MaxVarintLen32]byte
	n := binary.PutUvarint(tmp[:], uint64(v))
	end := len(w.buf)
	w.buf = append(w.buf, tmp[:n]...)
	copy(w.buf[at+n:], w.buf[at:end])
	copy(w.buf[at:], tmp[:n])
}
