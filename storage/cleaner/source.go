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

// headBytes is the size of a batch from which on its header is read alone when the batch before it was passed over.
const headBytes = 32 << 10

// source walks over the batches of a segment, reading it in chunks and checking each batch (length, CRC, offsets),
// because a damaged one must not get a new checksum.
type source struct {
	segment *segment.Segment
	file    *segment.Range // nil for an empty segment
	end     int64
	// begin is called before a chunk is read, with its size.
	begin func(bytes int) error

	at   int64 // of the next batch
	size int   // of the batch that head has found, 0 after body or skip
	lone bool  // the next header is read without what follows it
	bufs *buffers
	held []byte // bytes of the file from heldAt on
	from int64  // heldAt
	last int64  // last offset so far
}

// openSource starts at the first batch that holds an offset at or above from. Close it.
func openSource(s *segment.Segment, v *View, from int64, bufs *buffers, begin func(bytes int) error) (*source, error) {
	src := &source{segment: s, end: s.SizeBytes(), begin: begin, bufs: bufs, last: s.Base() - 1}
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
	position := s.at
	if head, err := s.head(); err != nil || head == nil {
		return nil, 0, err
	}
	b, err := s.body()
	return b, position, err
}

// head returns the header of the next batch, of which the CRC has not been checked; nil at the end. Then comes body or
// skip.
func (s *source) head() (record.Batch, error) {
	if s.at >= s.end {
		return nil, nil
	}
	head, err := s.bytes(int(min(s.end-s.at, record.HeaderSizeBytes)), s.lone)
	if err != nil {
		return nil, err
	}
	size, err := record.EntrySize(head)
	if err == nil && int64(size) > s.end-s.at {
		err = record.ErrTruncated
	}
	if err != nil {
		return nil, s.corrupt(err)
	}
	s.size = size
	return record.Batch(head[:min(size, len(head))]), nil
}

// body returns the batch that head has found, whole and checked. It is valid until the next call of any method.
func (s *source) body() (record.Batch, error) {
	raw, err := s.bytes(s.size, false)
	if err != nil {
		return nil, err
	}
	b := record.Batch(raw)
	if !b.CRCValid() {
		return nil, s.corrupt(errors.New("CRC mismatch"))
	}
	s.lone = s.size > len(s.bufs.read)
	return b, s.pass(b)
}

// skip passes over the batch that head has found.
func (s *source) skip(head record.Batch) error {
	s.lone = s.size >= headBytes
	return s.pass(head)
}

// pass goes on behind a batch, when its offsets follow those before.
func (s *source) pass(b record.Batch) error {
	if b.LastOffset() <= s.last || b.LastOffset() < b.BaseOffset() || b.Magic() >= 2 && b.BaseOffset() <= s.last {
		return s.corrupt(fmt.Errorf("offsets %d-%d after %d", b.BaseOffset(), b.LastOffset(), s.last))
	}
	s.last = b.LastOffset()
	s.at += int64(s.size)
	return nil
}

// corrupt is damage at the batch that would come next.
func (s *source) corrupt(cause error) error { return corruptAt(s.segment, s.at, cause) }

func corruptAt(s *segment.Segment, position int64, cause error) error {
	return &segment.CorruptError{File: s.LogPath(), Position: position, Cause: cause}
}

// bytes returns n bytes at the position, reading on when they are not held; alone says to read no more than them.
func (s *source) bytes(n int, alone bool) ([]byte, error) {
	var part []byte // what is held of them
	if off := s.at - s.from; off >= 0 && off < int64(len(s.held)) {
		if part = s.held[off:]; n <= len(part) {
			return part[:n], nil
		}
	}
	buf := s.bufs.read
	switch {
	case n > len(buf):
		buf = s.bufs.forLarge(n)
	case alone:
		buf = buf[:n]
	}
	buf = buf[:min(int64(len(buf)), s.end-s.at)]
	s.held = nil
	rest := buf[copy(buf, part):]
	if err := s.begin(len(rest)); err != nil {
		return nil, err
	}
	got, err := s.file.ReadAt(rest, s.at+int64(len(part)))
	if got < len(rest) {
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	s.held, s.from = buf, s.at
	return buf[:n], nil
}
