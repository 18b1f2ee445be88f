package storage

import (
	"errors"
	"io"
	"slices"

	"gregor/protocol/record"
	"gregor/storage/segment"
)

// readAttempts bounds how often a read starts again because truncations and deletions overtake it.
const readAttempts = 100

// Read finds up to maxBytes of batches from the one that holds offset on, below the bound. With minOneBatch the
// first batch is given whole even if it is larger; otherwise, and at the end, a batch may be cut. The caller
// releases the range. Offsets below the log start or above the log end are ErrOffsetOutOfRange; above the bound
// there is nothing to read.
func (l *Log) Read(offset int64, maxBytes int, upTo Bound, minOneBatch bool) (Fetched, error) {
	var f Fetched
	err := l.onState(func(s *State) (err error) {
		f, err = l.read(s, readWish{offset: offset, maxBytes: max(maxBytes, 0), upTo: upTo, minOneBatch: minOneBatch})
		return err
	})
	return f, err
}

// onState runs a read on the newest view, and again on a newer one when the files changed under it.
func (l *Log) onState(read func(s *State) error) error {
	for attempt := 1; ; attempt++ {
		if err := l.Err(); err != nil {
			return err
		}
		s := l.state.Load()
		err := read(s)
		if err == nil || errors.Is(err, ErrOffsetOutOfRange) || errors.Is(err, ErrOffsetMovedToTiered) {
			return err
		}
		// A change of the files that is under way holds the lock until it has been published.
		l.mu.Lock()
		closed, now := l.w.closed, l.state.Load()
		l.unlock()
		switch {
		case attempt < readAttempts && !s.sameFiles(now):
		case closed:
			return ErrClosed
		default:
			return l.readError(err)
		}
	}
}

// readError sorts the errors of reads: damaged bytes take the replica offline, what the file system answers the
// directory.
func (l *Log) readError(err error) error {
	switch {
	case errors.Is(err, segment.ErrRangeGone), errors.Is(err, record.ErrLimit), errors.Is(err, ErrStorage):
		return err
	}
	err = l.refuse("read", err)
	l.report()
	return err
}

type readWish struct {
	offset      int64
	maxBytes    int
	upTo        Bound
	minOneBatch bool
}

func (l *Log) read(s *State, wish readWish) (Fetched, error) {
	if wish.offset < s.LogStartOffset || wish.offset > s.LogEndOffset {
		return Fetched{}, &offsetError{op: "read", offset: wish.offset, low: s.LogStartOffset, high: s.LogEndOffset}
	}
	if wish.offset < s.LocalLogStartOffset {
		return Fetched{}, ErrOffsetMovedToTiered
	}
	end := s.End(wish.upTo)
	// Compaction may leave nothing of a segment at or above the offset; the next one goes on.
	for i := max(s.floor(wish.offset), 0); i < len(s.segments) && wish.offset < end && s.segments[i].Base() < end; i++ {
		seg, bytes := s.segments[i], s.bytesOf(i)
		from, ok, err := seg.Position(wish.offset, bytes)
		if err != nil {
			return Fetched{}, err
		}
		if !ok {
			continue
		}
		to := bytes
		if end < s.endOf(i) {
			if p, ok, err := seg.Position(end, bytes); err != nil {
				return Fetched{}, err
			} else if ok {
				to = p
			}
		}
		if to <= from {
			break
		}
		return l.readRange(s, i, wish, from, to)
	}
	return Fetched{State: s}, nil
}

func (l *Log) readRange(s *State, i int, wish readWish, from, to int64) (Fetched, error) {
	f := Fetched{State: s}
	seg, n := s.segments[i], min(to-from, int64(wish.maxBytes))
	if n < to-from {
		first, err := seg.BatchBytes(from, to)
		if err != nil {
			return Fetched{}, err
		}
		if wish.minOneBatch {
			n = max(n, first)
		}
		f.FirstPartial = n < first
	}
	if n == 0 {
		return f, nil
	}
	r, err := seg.Range(from, int(n), s.generation)
	if err != nil {
		return Fetched{}, err
	}
	if i < len(s.segments)-1 {
		r.AdviseSequential()
	}
	f.Range = r
	if wish.upTo != UpToLastStable {
		return f, nil
	}
	upper, ok, err := seg.UpperBound(from + n)
	if err == nil {
		if !ok {
			upper = s.endOf(i)
		}
		f.AbortedTxns, err = abortedTxns(s, i, wish.offset, upper)
	}
	if err != nil {
		r.Release()
		return Fetched{}, err
	}
	return f, nil
}

// abortedTxns collects the aborted transactions that overlap [from, to), starting with segment i.
func abortedTxns(s *State, i int, from, to int64) ([]AbortedTxn, error) {
	var found []segment.AbortedTxn
	for complete := false; i < len(s.segments) && !complete; i++ {
		var err error
		if found, complete, err = s.segments[i].CollectAborted(found, from, to); err != nil {
			return nil, err
		}
	}
	list := make([]AbortedTxn, len(found))
	for i, a := range found {
		list[i] = AbortedTxn{ProducerID: a.ProducerID, FirstOffset: a.FirstOffset}
	}
	return list, nil
}

// AbortedTxns returns the aborted transactions that overlap [from, to).
func (l *Log) AbortedTxns(from, to int64) ([]AbortedTxn, error) {
	var list []AbortedTxn
	err := l.onState(func(s *State) (err error) {
		list, err = abortedTxns(s, max(s.floor(from), 0), from, to)
		return err
	})
	return list, err
}

// ReadBatches reads whole batches into memory, from the one that holds offset on: about maxBytes of them, at
// least one. It uses buf when that is large enough, and returns io.EOF when nothing is below the bound. CRCs are
// not checked.
func (l *Log) ReadBatches(offset int64, buf []byte, maxBytes int, upTo Bound) ([]byte, error) {
	for attempt := 1; ; attempt++ {
		b, err := l.readBatches(offset, buf, maxBytes, upTo)
		if errors.Is(err, segment.ErrRangeGone) && attempt < readAttempts {
			continue
		}
		return b, err
	}
}

func (l *Log) readBatches(offset int64, buf []byte, maxBytes int, upTo Bound) ([]byte, error) {
	f, err := l.Read(offset, maxBytes, upTo, true)
	if err != nil {
		return nil, err
	}
	if f.Range == nil {
		return nil, io.EOF
	}
	defer f.Range.Release()
	buf = slices.Grow(buf[:0], f.Range.Len())[:f.Range.Len()]
	if n, err := f.Range.ReadAt(buf, 0); n < len(buf) {
		if errors.Is(err, segment.ErrRangeGone) {
			return nil, err
		}
		return nil, l.readError(err)
	}
	whole := 0
	for whole < len(buf) {
		b, _, err := record.Next(buf[whole:])
		if errors.Is(err, record.ErrTruncated) && whole > 0 {
			break
		}
		if err != nil {
			file, position := f.Range.Source()
			return nil, l.readError(&CorruptError{File: file, Position: position + int64(whole), Cause: err})
		}
		whole += len(b)
	}
	return buf[:whole], nil
}

// OffsetForTimestamp returns the first record below the bound whose timestamp is at least millis, exact inside
// compressed batches, or with MaxTimestamp the first record with the largest timestamp of the log. Offset is -1
// when there is none, or when it is not below the bound.
func (l *Log) OffsetForTimestamp(millis int64, upTo Bound) (TimestampOffset, error) {
	none := TimestampOffset{Timestamp: record.NoTimestamp, Offset: -1, LeaderEpoch: -1}
	found := none
	err := l.onState(func(s *State) (err error) {
		found, err = l.searchTime(s, millis)
		if err == nil && found.Offset >= s.End(upTo) {
			found = none
		}
		return err
	})
	if err != nil {
		return none, err
	}
	return found, nil
}

func (l *Log) searchTime(s *State, millis int64) (TimestampOffset, error) {
	none := TimestampOffset{Timestamp: record.NoTimestamp, Offset: -1, LeaderEpoch: -1}
	low, first, last := s.LogStartOffset, 0, len(s.segments)-1
	if millis == MaxTimestamp {
		at, largest, err := segmentOfMax(s)
		if err != nil || at < 0 {
			return none, err
		}
		// Kafka looks at the batch with the largest timestamp, also when the log start lies in it.
		millis, low, first, last = largest, s.segments[at].Base(), at, at
	}
	limits := record.Limits{MaxDecompressedBytes: int64(l.config.Load().MaxDecompressedMessageBytes)}
	for i := first; i <= last; i++ {
		seg, bytes := s.segments[i], s.bytesOf(i)
		newest, err := largestTimestamp(seg)
		if err != nil {
			return none, err
		}
		if newest < millis {
			continue
		}
		f, ok, err := seg.OffsetForTimestamp(millis, low, bytes, limits)
		if err == nil && !seg.Unchanged(s.generation, bytes) {
			err = segment.ErrRangeGone
		}
		if err != nil {
			return none, err
		}
		if ok {
			return TimestampOffset{Timestamp: f.Timestamp, Offset: f.Offset, LeaderEpoch: f.LeaderEpoch}, nil
		}
	}
	return none, nil
}

// segmentOfMax returns the first segment with the largest timestamp, and that; -1 when none has one.
func segmentOfMax(s *State) (at int, largest int64, err error) {
	at, largest = -1, record.NoTimestamp
	for i, seg := range s.segments {
		m, err := seg.MaxTimestamp()
		if err != nil {
			return -1, 0, err
		}
		if m.Timestamp > largest {
			at, largest = i, m.Timestamp
		}
	}
	return at, largest, nil
}
