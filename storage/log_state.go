package storage

import (
	"slices"

	"gregor/internal/invariants"
	"gregor/storage/segment"
)

// State is the published view of a log: immutable, so that readers take no lock. Offsets are exclusive ends.
//
// Invariant: LogStartOffset <= LastStableOffset <= HighWatermark <= LogEndOffset.
type State struct {
	LogStartOffset      int64
	LocalLogStartOffset int64 // above LogStartOffset when tiered storage holds the records in between
	HighWatermark       int64
	LastStableOffset    int64
	LogEndOffset        int64
	ActiveSegmentBase   int64
	RecoveryPoint       int64 // recovery after a crash starts at the segment that holds it; all below is synced
	SizeBytes           int64 // of all .log files
	LatestEpoch         int32 // of the last leader epoch entry, -1 without one
	Segments            int
	CleanedTo           int64 // where the next cleaning of a compacted log starts, 0 before the first

	segments    []*segment.Segment // ascending; the last one is written to
	activeBytes int64              // of the last one that belong to this view
	generation  int64              // truncations so far
}

// End returns the exclusive end that a bound stands for.
func (s *State) End(b Bound) int64 {
	switch b {
	case UpToHighWatermark:
		return s.HighWatermark
	case UpToLastStable:
		return s.LastStableOffset
	case UpToLogEnd:
	}
	return s.LogEndOffset
}

// floor returns the index of the segment that holds an offset at or above the first base.
func (s *State) floor(offset int64) int {
	i, found := slices.BinarySearchFunc(s.segments, offset, compareBase)
	if found {
		return i
	}
	return i - 1
}

func compareBase(seg *segment.Segment, offset int64) int {
	switch base := seg.Base(); {
	case base < offset:
		return -1
	case base > offset:
		return 1
	}
	return 0
}

// bytesOf is how many bytes of segment i belong to this view.
func (s *State) bytesOf(i int) int64 {
	if i == len(s.segments)-1 {
		return s.activeBytes
	}
	return s.segments[i].SizeBytes()
}

// endOf is the offset after segment i.
func (s *State) endOf(i int) int64 {
	if i == len(s.segments)-1 {
		return s.LogEndOffset
	}
	return s.segments[i+1].Base()
}

// sameFiles tells whether nothing was truncated, deleted, replaced or rolled between two views: the slice is made
// anew for each such change.
func (s *State) sameFiles(o *State) bool {
	return s.generation == o.generation && len(s.segments) == len(o.segments) && &s.segments[0] == &o.segments[0]
}

func (s *State) check() {
	if !invariants.Enabled {
		return
	}
	invariants.Assertf(s.LogStartOffset <= s.LastStableOffset && s.LastStableOffset <= s.HighWatermark &&
		s.HighWatermark <= s.LogEndOffset, "offsets out of order: start %d, stable %d, high watermark %d, end %d",
		s.LogStartOffset, s.LastStableOffset, s.HighWatermark, s.LogEndOffset)
	invariants.Assert(len(s.segments) > 0, "a log has at least one segment")
	for i := 1; i < len(s.segments); i++ {
		invariants.Assert(s.segments[i-1].Base() < s.segments[i].Base(), "segments ascend")
	}
	invariants.Assertf(s.RecoveryPoint <= s.LogEndOffset, "recovery point %d above the end %d", s.RecoveryPoint, s.LogEndOffset)
}
