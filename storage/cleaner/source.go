package cleaner

import (
	"errors"
	"fmt"
	"io"

	"gregor/protocol/record"
	"gregor/storage/segment"
)

// minBufferBytes is the least that is read or written at once, whatever the config says.
const minBufferBytes = 4096

// source walks over the batches of a segment, reading it in chunks and checking each batch (length, CRC, offsets),
// because a damaged one must not get a new checksum.
type source struct {
	segment *segment.Segment
	file    *segment.Range // nil for an empty segment
	end     int64
	// begin is called before a chunk is read, with its size.
	begin func(bytes int) error

	at   int64  // of the next batch
	buf  []byte // as configured; a larger batch gets its own
	held []byte // bytes of the file from heldAt on
	from int64  // heldAt
	last int64  // last offset so far
}

// openSource starts at the first batch that holds an offset at or above from. Close it.
func openSource(s *segment.Segment, v *View, from int64, buf []byte, begin func(bytes int) error) (*source, error) {
	src := &source{segment: s, end: s.SizeBytes(), begin: begin, buf: buf, last: s.Base() - 1}
	if from > s.Base() {
		e, ok, err := s.Find(from, src.end)
		if err != nil {
			return nil, err
		}
		if !ok {
			src.at = src.end
		} else {
			src.at, src.last = e.Position, e.BaseOffset-1
		}
	}
	if src.at >= src.end {
		return src, nil
	}
	var err error
	src.file, err = s.Range(0, int(src.end), v.Generation)
	return src, err
}

func (s *source) close() {
	if s.file != nil {
		s.file.Release()
	}
}

// next returns the next batch, which is valid until the call after it, and its position; nil at the end.
func (s *source) next() (record.Batch, int64, error) {
	if s.at >= s.end {
		return nil, 0, nil
	}
	head, err := s.bytes(int(min(s.end-s.at, record.HeaderSizeBytes)))
	if err != nil {
		return nil, 0, err
	}
	size, err := record.EntrySize(head)
	if err == nil && int64(size) > s.end-s.at {
		err = record.ErrTruncated
	}
	if err != nil {
		return nil, 0, s.corrupt(err)
	}
	raw, err := s.bytes(size)
	if err != nil {
		return nil, 0, err
	}
	b := record.Batch(raw)
	if !b.CRCValid() {
		return nil, 0, s.corrupt(errors.New("CRC mismatch"))
	}
	if b.LastOffset() <= s.last || b.LastOffset() < b.BaseOffset() || b.Magic() >= 2 && b.BaseOffset() <= s.last {
		return nil, 0, s.corrupt(fmt.Errorf("offsets %d-%d after %d", b.BaseOffset(), b.LastOffset(), s.last))
	}
	position := s.at
	s.last = b.LastOffset()
	s.at += int64(size)
	return b, position, nil
}

// corrupt is damage at the batch that would come next.
func (s *source) corrupt(cause error) error { return corruptAt(s.segment, s.at, cause) }

func corruptAt(s *segment.Segment, position int64, cause error) error {
	return &segment.CorruptError{File: s.LogPath(), Position: position, Cause: cause}
}

// bytes returns n bytes at the position, reading on when they are not held.
func (s *source) bytes(n int) ([]byte, error) {
	if off := s.at - s.from; s.held != nil && off >= 0 && off+int64(n) <= int64(len(s.held)) {
		return s.held[off : off+int64(n)], nil
	}
	buf := s.buf
	if n > len(buf) {
		buf = make([]byte, n)
	}
	buf = buf[:min(int64(len(buf)), s.end-s.at)]
	if err := s.begin(len(buf)); err != nil {
		return nil, err
	}
	got, err := s.file.ReadAt(buf, s.at)
	if got < len(buf) {
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	s.held, s.from = buf, s.at
	return buf[:n], nil
}
