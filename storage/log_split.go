package storage

import (
	"errors"
	"io"
	"math"
	"slices"

	"gregor/protocol/record"
	"gregor/storage/segment"
	"gregor/storage/vfs"
)

// Segments of a Kafka before 2.0 may hold offsets more than 2^31-1 above their base, which the indexes cannot express
// (KAFKA-6264): sealed ones, which the cleaner had made of several. As Kafka does, a start that has to read such a segment
// splits it where the offsets no longer fit, by the protocol of the cleaner's swaps: the pieces are written as .cleaned,
// which get the suffix .swap from the highest on; when the lowest has it, the pieces are the log, and finishSwaps, now or at
// the next start, puts them in place. Each piece gets the producer snapshot that a roll would have left, which also tells
// recovery that the gap before it is no torn end.

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
