package segment

import (
	"errors"
	"io"
	"sync"

	"gregor/protocol/record"
)

const scanChunkBytes = 8192

var scanChunks = sync.Pool{New: func() any { return new([scanChunkBytes]byte) }}

// scanner walks over the headers of a segment's batches without reading the records.
//
//	for sc.next() { use sc.batch, sc.position, sc.sizeBytes }
//	if sc.err != nil { ... }
type scanner struct {
	s             *Segment
	position      int64        // of batch
	sizeBytes     int64        // of the whole batch
	batch         record.Batch // only its header
	err           error
	at, end       int64
	chunk         *[scanChunkBytes]byte
	chunkAt       int64
	chunkLen      int
	lastSizeBytes int64
}

func (s *Segment) scan(from, end int64) *scanner {
	return &scanner{s: s, at: from, end: end, chunk: scanChunks.Get().(*[scanChunkBytes]byte)}
}

func (sc *scanner) close() {
	if sc.chunk != nil {
		scanChunks.Put(sc.chunk)
		sc.chunk = nil
	}
}

func (sc *scanner) next() bool {
	if sc.err != nil || sc.at >= sc.end {
		return false
	}
	need := int(min(int64(record.HeaderSizeBytes), sc.end-sc.at))
	header, err := sc.bytes(need)
	if err != nil {
		sc.err = err
		return false
	}
	size, err := record.EntrySize(header)
	if err == nil && sc.at+int64(size) > sc.end {
		err = record.ErrTruncated
	}
	if err != nil {
		sc.err = &CorruptError{File: sc.s.log.Name(), Position: sc.at, Cause: err}
		return false
	}
	sc.position, sc.sizeBytes = sc.at, int64(size)
	sc.batch = record.Batch(header[:min(size, len(header))])
	sc.lastSizeBytes = int64(size)
	sc.at += int64(size)
	return true
}

// bytes returns n bytes at the scan's position, which stay valid until the next call.
func (sc *scanner) bytes(n int) ([]byte, error) {
	if off := sc.at - sc.chunkAt; off >= 0 && off+int64(n) <= int64(sc.chunkLen) {
		return sc.chunk[off : off+int64(n)], nil
	}
	// After a batch that is larger than a chunk only the next header is of use.
	want := min(int64(scanChunkBytes), sc.end-sc.at)
	if sc.lastSizeBytes > scanChunkBytes/2 {
		want = int64(n)
	}
	got, err := sc.s.log.ReadAt(sc.chunk[:want], sc.at)
	sc.chunkAt, sc.chunkLen = sc.at, got
	if got >= n {
		return sc.chunk[:n], nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return nil, &CorruptError{File: sc.s.log.Name(), Position: sc.at, Cause: record.ErrTruncated}
	}
	return nil, err
}

// readBatch reads the whole batch that the scanner stands on.
func (sc *scanner) readBatch() (record.Batch, error) {
	buf := make([]byte, sc.sizeBytes)
	n, err := sc.s.log.ReadAt(buf, sc.position)
	if n == len(buf) {
		b, _, err := record.Next(buf)
		if err == nil && !b.CRCValid() {
			err = errors.New("CRC mismatch")
		}
		if err != nil {
			return nil, &CorruptError{File: sc.s.log.Name(), Position: sc.position, Cause: err}
		}
		return b, nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return nil, &CorruptError{File: sc.s.log.Name(), Position: sc.position, Cause: record.ErrTruncated}
	}
	return nil, err
}

// Replay visits the batches from the one that holds offset on: data batches as bare headers, control batches
// whole.
func (s *Segment) Replay(offset int64, visit func(b record.Batch) error) error {
	e, ok, err := s.Find(offset, s.size.Load())
	if err != nil || !ok {
		return err
	}
	sc := s.scan(e.Position, s.size.Load())
	defer sc.close()
	for sc.next() {
		b := sc.batch
		if b.IsControl() {
			if b, err = sc.readBatch(); err != nil {
				return err
			}
		}
		if err := visit(b); err != nil {
			return err
		}
	}
	return sc.err
}
