package quorum

import (
	"errors"
	"fmt"
	"io"
	"iter"

	"gregor/protocol/record"
	"gregor/storage/vfs"
)

// SnapshotReader reads a checkpoint: a header, metadata records, a footer. It is used by one goroutine.
type SnapshotReader struct {
	id     SnapshotID
	file   vfs.File
	size   int64
	header control
	first  int64 // position of the first batch after the header
}

// openSnapshot opens a snapshot and reads its header.
func (s *snapshotStore) openSnapshot(id SnapshotID) (*SnapshotReader, error) {
	f, size, err := s.open(id)
	if err != nil {
		return nil, fmt.Errorf("snapshot %v: %w", id, err)
	}
	return newSnapshotReader(f, size, id)
}

// newSnapshotReader takes over the file.
func newSnapshotReader(f vfs.File, size int64, id SnapshotID) (*SnapshotReader, error) {
	r := &SnapshotReader{id: id, file: f, size: size}
	b, err := r.batchAt(0, nil)
	if err == nil && !b.IsControl() {
		err = fmt.Errorf("%w: no header", ErrCorrupt)
	}
	if err == nil {
		r.header, err = readControl(b)
	}
	if err == nil && r.header.header == nil {
		err = fmt.Errorf("%w: no header", ErrCorrupt)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("snapshot %s: %w", f.Name(), err)
	}
	r.first = int64(len(b))
	return r, nil
}

// ID names the snapshot.
func (r *SnapshotReader) ID() SnapshotID { return r.id }

// SizeBytes is the size of the file.
func (r *SnapshotReader) SizeBytes() int64 { return r.size }

// LastContainedLogTimestampMillis is the timestamp of the last record of the log that the snapshot covers.
func (r *SnapshotReader) LastContainedLogTimestampMillis() int64 {
	return r.header.header.LastContainedLogTimestamp
}

// config is the voter set that the header carries; base when it is of kraft.version 0. A node that was formatted
// without knowing the voters has a later version and none of them.
func (r *SnapshotReader) config(base config) config {
	c := r.header.apply(base)
	if c.level >= 1 && r.header.voters == nil {
		c.voters = VoterSet{}
	}
	return c
}

// Batches iterates over the batches of metadata records. It ends with an error if the file is corrupt or lacks its
// footer.
func (r *SnapshotReader) Batches() iter.Seq2[CommittedBatch, error] {
	return func(yield func(CommittedBatch, error) bool) {
		complete := false
		for position := r.first; position < r.size; {
			b, err := r.batchAt(position, nil)
			var out CommittedBatch
			if err == nil {
				position += int64(len(b))
				if b.IsControl() {
					var c control
					c, err = readControl(b)
					complete = complete || c.footer
					if err == nil {
						continue
					}
				} else {
					out, err = committedBatch(b)
				}
			}
			if err != nil {
				yield(CommittedBatch{}, fmt.Errorf("snapshot %s: %w", r.file.Name(), err))
				return
			}
			if !yield(out, nil) {
				return
			}
		}
		if !complete {
			yield(CommittedBatch{}, fmt.Errorf("snapshot %s: %w: no footer", r.file.Name(), ErrCorrupt))
		}
	}
}

// verify reads the whole file without decoding the records.
func (r *SnapshotReader) verify() error {
	complete := false
	var buf []byte
	for position := r.first; position < r.size; {
		b, err := r.batchAt(position, buf)
		if err != nil {
			return fmt.Errorf("snapshot %s: %w", r.file.Name(), err)
		}
		position += int64(len(b))
		if b.IsControl() {
			c, err := readControl(b)
			if err != nil {
				return fmt.Errorf("snapshot %s: %w", r.file.Name(), err)
			}
			complete = complete || c.footer
		}
		buf = b
	}
	if !complete {
		return fmt.Errorf("snapshot %s: %w: no footer", r.file.Name(), ErrCorrupt)
	}
	return nil
}

// batchAt reads and checks one batch, into buf when it is large enough.
func (r *SnapshotReader) batchAt(position int64, buf []byte) (record.Batch, error) {
	var head [record.EntrySizeBytes]byte
	if err := readFull(r.file, head[:], position); err != nil {
		return nil, err
	}
	size, err := record.EntrySize(head[:])
	if err == nil && int64(size) > r.size-position {
		err = fmt.Errorf("batch of %d bytes, %d left", size, r.size-position)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: at byte %d: %w", ErrCorrupt, position, err)
	}
	if cap(buf) < size {
		buf = make([]byte, size)
	}
	buf = buf[:size]
	if err := readFull(r.file, buf, position); err != nil {
		return nil, err
	}
	b := record.Batch(buf)
	if b.Magic() != 2 || !b.CRCValid() {
		return nil, fmt.Errorf("%w: batch at byte %d is of format %d or fails its CRC", ErrCorrupt, position, b.Magic())
	}
	return b, nil
}

// readFull reads all of p; a file that ends too early is corrupt.
func readFull(f io.ReaderAt, p []byte, position int64) error {
	n, err := f.ReadAt(p, position)
	switch {
	case n == len(p):
		return nil
	case err == nil || errors.Is(err, io.EOF):
		return fmt.Errorf("%w: file ends in the %d bytes at %d", ErrCorrupt, len(p), position)
	default:
		return err
	}
}

// Close gives the file back.
func (r *SnapshotReader) Close() error { return r.file.Close() }
