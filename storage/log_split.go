package storage

import (
	"errors"
	"io"
	"math"
	"slices"
	"time"

	"gregor/protocol/record"
	"gregor/storage/producer"
	"gregor/storage/segment"
	"gregor/storage/vfs"
)

// Segments of a Kafka before 2.0 may hold offsets more than 2^31-1 above their base, which the indexes cannot express
// (KAFKA-6264): sealed ones, which the cleaner had made of several. As Kafka does, a start that has to read such a segment
// splits it where the offsets no longer fit, by the protocol of the cleaner's swaps: the pieces are written as .cleaned,
// which get the suffix .swap from the highest on; when the lowest has it, the pieces are the log, and finishSwaps, now or at
// the next start, puts them in place. Each piece gets the producer snapshot that a roll would have left, which also tells
// recovery that the gap before it is no torn end.
//
// So does the cleaner when it meets one (splitOverflowed), but writes the indexes of the pieces, too, and puts them in place
// at once.

// piece is a part of a segment's file that becomes a segment.
type piece struct{ base, from, to int64 }

// pieces cuts a segment where its offsets overflow. The first piece has the segment's own base, if need be without any
// batch, so that it takes the segment's place. What follows the last valid batch stays at the end of the last piece: it is
// recovery's to judge.
func (ld *loader) pieces(s *segment.Segment) ([]piece, error) {
	p, err := ld.producersAt(s.Base())
	if err != nil {
		return nil, err
	}
	all := []piece{{base: s.Base()}}
	err = s.VerifyBelow(ld.nextBase(s), func(b record.Batch, position int64) error {
		last := &all[len(all)-1]
		if b.LastOffset()-last.base > math.MaxInt32 {
			last.to = position
			all = append(all, piece{base: b.BaseOffset(), from: position})
			p.UpdateMapEndOffset(b.BaseOffset())
			if err := p.TakeSnapshot(); err != nil {
				return err
			}
		}
		txn, err := applyBatch(p, b)
		if txn != nil {
			p.CompleteTxn(*txn)
		}
		return err
	})
	if err != nil && !errors.Is(err, ErrCorrupt) {
		return nil, err
	}
	all[len(all)-1].to = s.SizeBytes()
	return all, nil
}

// split replaces a segment by its pieces. They have no indexes: opening them finds that out.
func (ld *loader) split(s *segment.Segment) error {
	ld.snapshots = nil // what an interrupted recovery has gone through
	all, err := ld.pieces(s)
	if err != nil {
		return err
	}
	ld.l.log.Info("Splitting a segment whose offsets are too far from its base", "segment", s.LogPath(), "pieces", len(all))
	name := func(p piece, suffix string) string {
		return ld.path(segment.FileName(p.base, segment.LogSuffix+suffix))
	}
	info, err := ld.l.fs.Stat(s.LogPath())
	if err != nil {
		return err
	}
	for _, p := range all {
		if err := copyRange(ld.l.fs, s.LogPath(), name(p, segment.CleanedSuffix), p.from, p.to); err != nil {
			return err
		}
		if err := ld.l.fs.SetModTime(name(p, segment.CleanedSuffix), info.ModTime()); err != nil {
			return err
		}
	}
	if err := ld.l.fs.SyncDir(ld.dir); err != nil {
		return err
	}
	for _, p := range slices.Backward(all) {
		if err := ld.l.fs.Rename(name(p, segment.CleanedSuffix), name(p, segment.SwapSuffix)); err != nil {
			return err
		}
		// In this order on disk, too.
		if err := ld.l.fs.SyncDir(ld.dir); err != nil {
			return err
		}
	}
	return nil
}

// copyRange makes a file of a part of another one, durably.
func copyRange(fsys vfs.FS, from, to string, start, end int64) (err error) {
	in, err := fsys.Open(from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	out, err := fsys.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	buf := make([]byte, min(end-start, 1<<20))
	for at := start; at < end; {
		n, err := in.ReadAt(buf[:min(int64(len(buf)), end-at)], at)
		if n == 0 {
			if err == nil || errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		if _, err := out.WriteAt(buf[:n], at-start); err != nil {
			return err
		}
		at += int64(n)
	}
	return out.Sync()
}

// splitOverflowed splits the segment that an error says overflows, and forgets what has been loaded so far, to load anew;
// ok is false for another error.
func (ld *loader) splitOverflowed(err error) (ok bool, splitErr error) {
	overflow := new(segment.OverflowError)
	if !errors.As(err, &overflow) {
		return false, nil
	}
	splitErr = ld.split(overflow.Segment)
	for _, s := range ld.segments {
		splitErr = errors.Join(splitErr, s.Close())
	}
	splitErr = errors.Join(splitErr, overflow.Segment.Close())
	ld.segments, ld.recovered, ld.snapshots = nil, nil, nil
	ld.l.flush.filesChanged()
	return true, splitErr
}

// splitOverflowed splits a sealed segment of a log that is open, unless the log was truncated since generation
// (ErrOffsetOutOfRange). ok is false when its offsets fit.
func (l *Log) splitOverflowed(s *segment.Segment, generation int64) (ok bool, err error) {
	o := onlineSplit{l: l, state: l.state.Load(), s: s}
	at := slices.Index(o.state.segments, s)
	if o.state.generation != generation || at < 0 || at+1 >= len(o.state.segments) {
		return false, ErrOffsetOutOfRange
	}
	swapped := false
	defer func() {
		if !swapped {
			err = errors.Join(err, o.remove())
		}
	}()
	if err := o.write(at); err != nil || len(o.pieces) == 1 {
		return false, err
	}
	l.log.Info("Splitting a segment whose offsets are too far from its base", "segment", s.LogPath(), "pieces", len(o.pieces))
	for _, p := range o.snapshots {
		if err := p.Write(); err != nil {
			return false, err
		}
	}
	err = l.ReplaceSegments(o.pieces, []*segment.Segment{s}, generation)
	// After a failure the swap may have begun, and the next start finishes it. Without space the pieces are gone.
	swapped = err == nil || errors.Is(err, ErrStorage) || errors.Is(err, ErrNoSpace)
	if err != nil {
		return false, err
	}
	l.mu.Lock()
	defer l.unlock()
	for _, p := range o.snapshots {
		l.w.producers.NoteSnapshot(p.Offset)
	}
	return true, nil
}

// onlineSplit is the split of a segment of an open log.
type onlineSplit struct {
	l         *Log
	state     *State
	s         *segment.Segment
	producers *producer.Manager
	pieces    []*segment.Segment
	snapshots []*producer.Snapshot // at the bases of all pieces but the first
}

// write makes the pieces of the segment with the given index, sealed and durable.
func (o *onlineSplit) write(at int) error {
	if err := o.loadProducers(at); err != nil {
		return err
	}
	if err := o.begin(o.s.Base()); err != nil {
		return err
	}
	err := o.s.VerifyBelow(o.state.segments[at+1].Base(), func(b record.Batch, position int64) error {
		if !o.last().Fits(b.LastOffset()) {
			o.producers.UpdateMapEndOffset(b.BaseOffset())
			if p := o.producers.BeginSnapshot(); p != nil {
				o.snapshots = append(o.snapshots, p)
			}
			if err := o.begin(b.BaseOffset()); err != nil {
				return err
			}
		}
		txn, err := applyBatch(o.producers, b)
		if err != nil {
			return err
		}
		if txn != nil {
			o.producers.CompleteTxn(*txn)
		}
		if b, err = o.whole(b, position); err != nil {
			return err
		}
		return o.last().Append(b)
	})
	if err != nil {
		return err
	}
	return o.finish()
}

// whole returns a batch of which a large one is only a header.
func (o *onlineSplit) whole(b record.Batch, position int64) (record.Batch, error) {
	size, err := record.EntrySize(b)
	if err != nil || size == len(b) {
		return b, err
	}
	r, err := o.s.Range(position, size, o.state.generation)
	if err != nil {
		return nil, err
	}
	defer r.Release()
	raw := make([]byte, size)
	if _, err := r.ReadAt(raw, 0); err != nil {
		return nil, err
	}
	return raw, nil
}

func (o *onlineSplit) last() *segment.Segment { return o.pieces[len(o.pieces)-1] }

// begin makes the next piece.
func (o *onlineSplit) begin(base int64) error {
	p, err := segment.Create(o.l.Dir(), base, nowMillis(), segment.CleanedSuffix, o.l.segmentOptions())
	if err != nil {
		return err
	}
	o.pieces = append(o.pieces, p)
	return nil
}

// loadProducers finds the producer states at the base of the segment, without a change to the files of the log's own.
func (o *onlineSplit) loadProducers(at int) error {
	l, start, base := o.l, o.state.LogStartOffset, o.s.Base()
	entries, err := l.fs.ReadDir(l.Dir())
	if err != nil {
		return err
	}
	names := []string{}
	for _, e := range entries {
		if offset, suffix, ok := segment.ParseFileName(e.Name()); ok && suffix == segment.SnapshotSuffix && offset > start && offset <= base {
			names = append(names, e.Name())
		}
	}
	o.producers, err = producer.NewManager(producer.Options{
		FS: l.fs, Dir: l.Dir(), Names: names, ExpirationMillis: l.opts.producerExpirationMillis, Logger: l.log,
	})
	if err != nil {
		return err
	}
	if err := o.producers.TruncateAndReload(start, base, nowMillis()); err != nil {
		return err
	}
	if err := replayProducers(o.producers, o.state.segments[:at], start, base, nil); err != nil {
		return err
	}
	o.producers.UpdateMapEndOffset(base)
	return nil
}

// finish writes the transaction indexes of the pieces: an aborted transaction is noted where its marker is.
func (o *onlineSplit) finish() error {
	aborted, err := o.s.Aborted()
	if err != nil {
		return err
	}
	modified, err := o.s.LastModifiedMillis()
	if err != nil {
		return err
	}
	for i, p := range o.pieces {
		for len(aborted) > 0 && (i+1 == len(o.pieces) || aborted[0].LastOffset < o.pieces[i+1].Base()) {
			if err := p.AppendAborted(aborted[0]); err != nil {
				return err
			}
			aborted = aborted[1:]
		}
		if err := p.Seal(); err != nil {
			return err
		}
		if err := p.SyncAll(); err != nil {
			return err
		}
		if err := p.SetLastModified(time.UnixMilli(modified)); err != nil {
			return err
		}
	}
	return nil
}

// remove removes the pieces of a split that comes to nothing. Snapshots may stay: the next start removes those that are at
// no segment's base.
func (o *onlineSplit) remove() (err error) {
	for _, p := range o.pieces {
		err = errors.Join(err, p.Remove())
	}
	return err
}
