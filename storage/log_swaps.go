package storage

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"gregor/protocol/record"
	"gregor/storage/segment"
)

// finishSwaps removes what deletions and cleanings left behind, and completes a swap whose new files are all
// there: the segments that they replace go, then they get their names.
func (ld *loader) finishSwaps() error {
	swaps, err := ld.removeTemporary()
	if err != nil || len(swaps) == 0 {
		return err
	}
	low, high, err := ld.swapRange(swaps)
	if err != nil {
		return err
	}
	for name := range ld.names {
		offset, suffix, ok := segment.ParseFileName(name)
		if suffix == segment.SnapshotSuffix && slices.Contains(swaps, segment.FileName(offset, segment.LogSuffix+segment.SwapSuffix)) {
			continue // of the producers before the segment, which the swap does not change
		}
		if ok && !strings.HasSuffix(suffix, segment.SwapSuffix) && offset >= low && offset < high {
			ld.l.log.Info("Deleting a file that a finished cleaning replaces", "file", ld.path(name))
			if err := ld.remove(name); err != nil {
				return err
			}
		}
	}
	if err := ld.l.fs.SyncDir(ld.dir); err != nil {
		return err
	}
	for _, name := range swaps {
		ld.l.log.Info("Swapping in a cleaned file", "file", ld.path(name))
		if err := ld.l.fs.Rename(ld.path(name), ld.path(strings.TrimSuffix(name, segment.SwapSuffix))); err != nil {
			return err
		}
	}
	if err := ld.l.fs.SyncDir(ld.dir); err != nil {
		return err
	}
	return ld.list()
}

// removeTemporary removes *.deleted and *.cleaned and returns the *.swap that count, sorted. Swap files at or
// above a cleaned file are from a split of a segment that did not come to its end.
func (ld *loader) removeTemporary() (swaps []string, err error) {
	lowestCleaned := int64(math.MaxInt64)
	var gone []string
	for name := range ld.names {
		offset, suffix, ok := segment.ParseFileName(name)
		switch {
		case strings.HasSuffix(name, segment.DeletedSuffix) && !strings.HasSuffix(name, ".checkpoint.deleted"):
			gone = append(gone, name)
		case ok && strings.HasSuffix(suffix, segment.CleanedSuffix):
			lowestCleaned = min(lowestCleaned, offset)
			gone = append(gone, name)
		case ok && strings.HasSuffix(suffix, segment.SwapSuffix):
			swaps = append(swaps, name)
		}
	}
	swaps = slices.DeleteFunc(swaps, func(name string) bool {
		offset, _, _ := segment.ParseFileName(name)
		if offset >= lowestCleaned {
			gone = append(gone, name)
			return true
		}
		return false
	})
	// Swap files first: what makes them void must not vanish before they do.
	slices.SortFunc(gone, func(a, b string) int {
		return cmp.Compare(strings.Index(b, segment.SwapSuffix), strings.Index(a, segment.SwapSuffix))
	})
	for _, name := range gone {
		ld.l.log.Info("Deleting a leftover file", "file", ld.path(name))
		if err := ld.remove(name); err != nil {
			return nil, err
		}
	}
	slices.Sort(swaps)
	return swaps, nil
}

// swapRange is the range of offsets that swapped segments cover. Several at once are the pieces of one that was split.
func (ld *loader) swapRange(swaps []string) (low, high int64, err error) {
	var bases []int64
	for _, name := range swaps {
		if base, suffix, _ := segment.ParseFileName(name); suffix == segment.LogSuffix+segment.SwapSuffix {
			bases = append(bases, base)
		}
	}
	low, high = math.MaxInt64, math.MinInt64
	for _, base := range bases {
		next, err := ld.swapEnd(base, len(bases) > 1)
		if err != nil {
			return 0, 0, err
		}
		// An empty one replaces what was at its base all the same.
		low, high = min(low, base), max(high, next, base+1)
	}
	return low, high, nil
}

// swapEnd is the offset after the last batch of a segment that is to be swapped in. The files that it covers are deleted, so
// it is read whole, and its end must be one that the cleaner can have left: no checksum protects the offset of a batch.
func (ld *loader) swapEnd(base int64, piece bool) (next int64, err error) {
	size, err := ld.sizeOf(segment.FileName(base, segment.LogSuffix+segment.SwapSuffix))
	if err != nil {
		return 0, err
	}
	s := segment.Open(ld.dir, base, size, nowMillis(), segment.SwapSuffix, ld.options)
	defer func() { err = errors.Join(err, s.Close()) }()
	var last segment.Entry
	next, magic := base, int8(0)
	err = s.Verify(func(b record.Batch, position int64) error {
		last = segment.Entry{Position: position, BaseOffset: b.BaseOffset(), LastOffset: b.LastOffset()}
		next, magic = b.NextOffset(), b.Magic()
		return nil
	})
	if piece && errors.Is(err, ErrCorrupt) {
		return next, nil // the end of what was split, which recovery judges
	}
	if err != nil || next == base {
		return next, err
	}
	cause, err := ld.impossibleEnd(base, last, magic >= 2)
	if err == nil && cause != "" {
		err = &CorruptError{File: s.LogPath(), Position: last.Position, Cause: errors.New(cause)}
	}
	return next, err
}

// impossibleEnd says why the last batch of a swapped segment cannot be its last, "" when it can: the cleaner leaves the
// segment that is written alone, and leaves a batch where it was in one of the segments that it replaces, from its first
// offset to its last one if the format has both.
func (ld *loader) impossibleEnd(base int64, last segment.Entry, hasRange bool) (cause string, err error) {
	newest, covered := base, base
	for name := range ld.names {
		b, suffix, ok := segment.ParseFileName(name)
		if !ok || suffix != segment.LogSuffix {
			continue
		}
		newest = max(newest, b)
		if b <= last.LastOffset {
			covered = max(covered, b)
		}
	}
	if newest > base && last.LastOffset >= newest {
		return fmt.Sprintf("a cleaned segment ends with the offset %d, in the segment %d, which was still written", last.LastOffset, newest), nil
	}
	if covered == base || !hasRange {
		return "", nil
	}
	size, err := ld.sizeOf(segment.FileName(covered, segment.LogSuffix))
	if err != nil {
		return "", err
	}
	s := segment.Open(ld.dir, covered, size, nowMillis(), "", ld.options)
	defer func() { err = errors.Join(err, s.Close()) }()
	was, ok, err := s.Find(last.LastOffset, size)
	switch {
	case errors.Is(err, ErrCorrupt):
		return "", nil // nothing to compare with
	case err != nil || !ok:
		return "", err
	case was.BaseOffset != last.BaseOffset || was.LastOffset != last.LastOffset:
		return fmt.Sprintf("a cleaned segment ends with the batch %d-%d, where there was the batch %d-%d in the segment %d", last.BaseOffset,
			last.LastOffset, was.BaseOffset, was.LastOffset, covered), nil
	}
	return "", nil
}
