package record

import (
	"encoding/binary"
	"io"
	"iter"

	"gregor/internal/invariants"
)

// Next cuts the first batch off buf. It checks sizes and the magic, not the CRC. It returns io.EOF when buf is empty,
// ErrTruncated when buf ends inside the batch, and an error that wraps ErrCorrupt when the bytes cannot be a batch.
// On an error rest is buf.
func Next(buf []byte) (b Batch, rest []byte, err error) {
	if len(buf) == 0 {
		return nil, buf, io.EOF
	}
	size, err := EntrySize(buf)
	if err != nil {
		return nil, buf, err
	}
	if size > len(buf) {
		return nil, buf, ErrTruncated
	}
	return Batch(buf[:size:size]), buf[size:], nil
}

// EntrySizeBytes is how many bytes EntrySize needs to see: up to and with the magic.
const EntrySizeBytes = magicPos + 1

// EntrySize returns the size in bytes of the batch that starts with buf, of which only the first EntrySizeBytes need
// to be there: a reader of files finds out how much to read. Errors are as in Next.
func EntrySize(buf []byte) (int, error) {
	if len(buf) < LogOverheadBytes {
		return 0, ErrTruncated
	}
	length := int32(binary.BigEndian.Uint32(buf[8:]))
	if length < legacyMinLengthBytes {
		return 0, corruptf("length %d is below the minimum %d", length, legacyMinLengthBytes)
	}
	if len(buf) < EntrySizeBytes {
		return 0, ErrTruncated
	}
	minimum := int32(HeaderSizeBytes - LogOverheadBytes)
	switch buf[magicPos] {
	case 0:
		minimum = legacyMinLengthBytes
	case 1:
		minimum = legacyMinLengthBytes + 8
	case 2:
	default:
		return 0, corruptf("unknown magic %d", int8(buf[magicPos]))
	}
	if length < minimum {
		return 0, corruptf("length %d is below the minimum %d of magic %d", length, minimum, buf[magicPos])
	}
	return LogOverheadBytes + int(length), nil
}

// Batches iterates over the batches of buf until its end. A truncated or corrupt batch yields its error and ends the
// iteration.
func Batches(buf []byte) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		for len(buf) > 0 {
			b, rest, err := Next(buf)
			if !yield(b, err) || err != nil {
				return
			}
			buf = rest
		}
	}
}

// Validated iterates over the batches of buf, which Batches or Next went through before without an error.
func Validated(buf []byte) iter.Seq[Batch] {
	return func(yield func(Batch) bool) {
		for b, err := range Batches(buf) {
			if err != nil {
				invariants.Assertf(false, "batches that were validated: %v", err)
				return
			}
			if !yield(b) {
				return
			}
		}
	}
}
