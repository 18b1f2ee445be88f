package segment

import (
	"errors"
	"io"
	"sync/atomic"
	"syscall"

	"gregor/storage/vfs"
)

// Range is a run of bytes of a segment that was promised to a reader. The file stays open until Release, so
// that deleting the segment does not matter. After a truncation below the range's end, reads answer
// ErrRangeGone: the bytes never change.
type Range struct {
	s          *Segment
	f          vfs.File
	position   int64
	len        int
	generation int64
	released   atomic.Bool
}

// Range promises [position, position+length). generation is the owner's count of truncations when it published
// the size that the range lies within; the range is refused with ErrRangeGone when one has happened since.
func (s *Segment) Range(position int64, length int, generation int64) (*Range, error) {
	s.gate.RLock()
	defer s.gate.RUnlock()
	if s.truncatedSince(generation, position+int64(length)) {
		return nil, ErrRangeGone
	}
	f, err := s.log.Acquire()
	if err != nil {
		return nil, err
	}
	return &Range{s: s, f: f, position: position, len: length, generation: generation}, nil
}

// Source tells which file the range is of and where it begins there, for messages.
func (r *Range) Source() (file string, position int64) { return r.s.log.Name(), r.position }

// truncatedSince tells whether bytes below end have been cut in a generation after the given one.
func (s *Segment) truncatedSince(generation, end int64) bool {
	cuts := s.cuts.Load()
	if cuts == nil {
		return false
	}
	for i := len(*cuts) - 1; i >= 0 && (*cuts)[i].generation > generation; i-- {
		if (*cuts)[i].position < end {
			return true
		}
	}
	return false
}

// Unchanged tells whether what was found below end, in a view of the given generation, still holds.
func (s *Segment) Unchanged(generation, end int64) bool { return !s.truncatedSince(generation, end) }

// Len is the number of bytes.
func (r *Range) Len() int { return r.len }

// ReadAt implements io.ReaderAt; off counts from the start of the range.
func (r *Range) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off > int64(r.len) {
		return 0, io.EOF
	}
	want := min(int64(len(p)), int64(r.len)-off)
	r.s.gate.RLock()
	defer r.s.gate.RUnlock()
	if r.s.truncatedSince(r.generation, r.position+int64(r.len)) {
		return 0, ErrRangeGone
	}
	n, err := r.f.ReadAt(p[:want], r.position+off)
	switch {
	case int64(n) < want:
		if err == nil || errors.Is(err, io.EOF) {
			err = r.cutShort(off + int64(n))
		}
		r.s.failed(err)
		return n, err
	case n < len(p):
		return n, io.EOF
	}
	return n, nil
}

// SendTo sends up to n bytes from off to a socket in non-blocking mode and returns how many it took. The error
// is EAGAIN when the socket is full, ErrNoSendfile when the file has no descriptor.
func (r *Range) SendTo(dstFd uintptr, off int64, n int) (int, error) {
	n = int(min(int64(n), int64(r.len)-off))
	if n <= 0 || off < 0 {
		return 0, io.EOF
	}
	srcFd, ok := r.f.Fd()
	if !ok {
		return 0, ErrNoSendfile
	}
	r.s.gate.RLock()
	defer r.s.gate.RUnlock()
	if r.s.truncatedSince(r.generation, r.position+int64(r.len)) {
		return 0, ErrRangeGone
	}
	sent, err := sendfile(dstFd, srcFd, r.position+off, n)
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		err = r.cutShort(off)
		r.s.failed(err)
	case errors.Is(err, syscall.EIO): // of the file: sockets have other errors
		r.s.failed(err)
	}
	return sent, err
}

// cutShort says that the file ends before the range does: somebody has cut it.
func (r *Range) cutShort(off int64) error {
	return &CorruptError{File: r.s.log.Name(), Position: r.position + off, Cause: io.ErrUnexpectedEOF}
}

// AdviseSequential tells the kernel to read ahead, once per descriptor; for readers far behind the end.
func (r *Range) AdviseSequential() {
	if fd, ok := r.f.Fd(); ok && r.s.advised.Swap(fd+1) != fd+1 {
		r.f.Advise(0, 0, vfs.AdviseSequential)
	}
}

// Release gives the range up. A second call does nothing.
func (r *Range) Release() {
	if !r.released.Swap(true) {
		r.s.log.Release()
	}
}

func (s *Segment) failed(err error) {
	if s.opts.Load().Failed != nil {
		s.opts.Load().Failed(err)
	}
}
