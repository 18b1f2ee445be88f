package segment

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"

	"gregor/protocol/record"
	"gregor/storage/vfs"
)

// recoverBufferBytes is how much of the .log is read at once.
const recoverBufferBytes = 1 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Recovered is the result of Recover.
type Recovered struct {
	NextOffset     int64 // after the last valid batch
	TruncatedBytes int64 // cut off at the end
	Damage         error // why, nil when nothing was
}

// Recover reads the whole segment, cuts it at the first byte that is not part of a valid batch (length, magic,
// CRC, ascending offsets), and builds the indexes anew. What lies below the offset durable is known to have been on disk
// whole: damage there is no crash's, and nothing is cut; it is a *CorruptError. Zeros are cut all the same: they are
// reserved blocks. visit sees every valid batch; of one larger than recoverBufferBytes only the header, which is never a
// control batch. An error of visit stops the recovery and is returned. An *OverflowError says that the segment has to be
// split, which has not been cut then either: offsets too far from its base, but below that of the next segment, nextBase.
// Without a next segment (0) they are damage. By the writer.
func (s *Segment) Recover(durable, nextBase int64, visit func(b record.Batch) error) (Recovered, error) {
	fileBytes, err := s.log.Size()
	if err != nil {
		return Recovered{}, err
	}
	if err := errors.Join(s.offsets.reset(), s.times.reset(), s.txns.reset()); err != nil {
		return Recovered{}, err
	}
	s.first.Store(unknownTimestamp)
	s.tail.Store(nil)
	s.size.Store(fileBytes)
	r := rebuild{s: s, largest: TimestampOffset{Timestamp: record.NoTimestamp, Offset: s.base}}
	v := validator{s: s, end: min(fileBytes, math.MaxInt32), last: s.base - 1, nextBase: nextBase}
	for {
		b, at, err := v.next()
		if err != nil {
			return Recovered{}, err
		}
		if b == nil {
			break
		}
		if err := r.add(b, at); err != nil {
			return Recovered{}, err
		}
		if err := visit(b); err != nil {
			return Recovered{}, err
		}
	}
	if overflow := new(OverflowError); errors.As(v.damage, &overflow) {
		return Recovered{}, overflow
	}
	if v.at < fileBytes {
		if v.last+1 < durable {
			if zeros, err := vfs.OnlyZeros(s.log, v.at, fileBytes); err != nil || !zeros {
				return Recovered{}, errors.Join(err, &CorruptError{File: s.log.Name(), Position: v.at, Cause: v.cause()})
			}
		}
		if err := s.log.Truncate(v.at); err != nil {
			return Recovered{}, err
		}
	}
	s.size.Store(v.at)
	if err := r.finish(); err != nil {
		return Recovered{}, err
	}
	s.bytesSinceLast = 0
	return Recovered{NextOffset: v.last + 1, TruncatedBytes: fileBytes - v.at, Damage: v.damage}, nil
}

// Verify reads all batches and checks them as Recover does, changing nothing.
func (s *Segment) Verify(visit func(b record.Batch, position int64) error) error {
	return s.verify(0, visit)
}

// VerifyBelow is Verify for a segment that is to be split: offsets may be too far from its base, if they are below that of
// the next segment.
func (s *Segment) VerifyBelow(nextBase int64, visit func(b record.Batch, position int64) error) error {
	return s.verify(nextBase, visit)
}

func (s *Segment) verify(below int64, visit func(b record.Batch, position int64) error) error {
	v := validator{s: s, end: s.size.Load(), last: s.base - 1, nextBase: below, anyOffset: below > 0}
	for {
		b, at, err := v.next()
		if err != nil {
			return err
		}
		if b == nil {
			break
		}
		if err := visit(b, at); err != nil {
			return err
		}
	}
	if v.damage != nil {
		return &CorruptError{File: s.log.Name(), Position: v.at, Cause: v.damage}
	}
	return nil
}

// validator walks over batches until the end or the first invalid one.
type validator struct {
	s       *Segment
	at, end int64 // where the next batch starts; where the file ends
	last    int64 // last offset so far
	damage  error
	// Offsets too far from the base, but below nextBase, are an OverflowError; with anyOffset they pass.
	nextBase  int64
	anyOffset bool

	buf   []byte
	bufAt int64
}

// next returns the next batch and its position, nil at the end or at damage, which it notes. An error is one of
// the file system.
func (v *validator) next() (record.Batch, int64, error) {
	if v.at >= v.end {
		return nil, 0, nil
	}
	head, err := v.bytes(int(min(v.end-v.at, record.HeaderSizeBytes)))
	if err != nil {
		return nil, 0, err
	}
	size, err := record.EntrySize(head)
	if err == nil && v.at+int64(size) > v.end {
		err = record.ErrTruncated
	}
	if err != nil {
		v.damage = err
		return nil, 0, nil //nolint:nilerr // damage ends the scan; it is no failure of it
	}
	var b record.Batch
	if size <= recoverBufferBytes {
		raw, err := v.bytes(size)
		if err != nil {
			return nil, 0, err
		}
		b = record.Batch(raw)
		if !b.CRCValid() {
			v.damage = errors.New("CRC mismatch")
		}
	} else {
		b = record.Batch(append([]byte(nil), head...))
		if err := v.checkLarge(b, int64(size)); err != nil {
			return nil, 0, err
		}
	}
	if v.damage == nil {
		v.damage = v.checkOffsets(b)
	}
	if v.damage != nil {
		return nil, 0, nil //nolint:nilerr // damage ends the scan; it is no failure of it
	}
	position := v.at
	v.last = b.LastOffset()
	v.at += int64(size)
	return b, position, nil
}

// cause is why the scan ended before the end of the file.
func (v *validator) cause() error {
	if v.damage != nil {
		return v.damage
	}
	return record.ErrTruncated
}

func (v *validator) checkOffsets(b record.Batch) error {
	if b.BaseOffset() <= v.last || b.LastOffset() < b.BaseOffset() {
		return fmt.Errorf("offsets %d-%d after %d", b.BaseOffset(), b.LastOffset(), v.last)
	}
	switch {
	case v.s.Fits(b.LastOffset()):
		return nil
	case b.LastOffset() >= v.nextBase:
		return fmt.Errorf("%w: %d", ErrOffsetOverflow, b.LastOffset())
	case v.anyOffset:
		return nil
	}
	return &OverflowError{Segment: v.s, Position: v.at, Offset: b.LastOffset()}
}

// bytes returns n bytes (at most recoverBufferBytes) at the validator's position, reading ahead.
func (v *validator) bytes(n int) ([]byte, error) {
	if off := v.at - v.bufAt; off >= 0 && off+int64(n) <= int64(len(v.buf)) {
		return v.buf[off : off+int64(n)], nil
	}
	if v.buf == nil {
		v.buf = make([]byte, min(v.end-v.at, recoverBufferBytes))
	}
	v.buf = v.buf[:min(int64(cap(v.buf)), v.end-v.at)]
	got, err := v.s.log.ReadAt(v.buf, v.at)
	v.bufAt = v.at
	v.buf = v.buf[:got]
	if got >= n {
		return v.buf[:n], nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF // shorter than its length was a moment ago
	}
	return nil, err
}

// checkLarge computes the CRC of a batch that is read in pieces, so that a wrong length does not make us
// allocate it.
func (v *validator) checkLarge(b record.Batch, size int64) error {
	table, from := castagnoli, int64(21)
	if b.Magic() < 2 {
		table, from = crc32.IEEETable, 16
	}
	sum := uint32(0)
	piece := make([]byte, recoverBufferBytes)
	for from < size {
		n := min(size-from, recoverBufferBytes)
		got, err := v.s.log.ReadAt(piece[:n], v.at+from)
		if int64(got) < n {
			if err == nil || errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		sum = crc32.Update(sum, table, piece[:n])
		from += n
	}
	if sum != b.CRC() {
		v.damage = errors.New("CRC mismatch")
	}
	return nil
}
