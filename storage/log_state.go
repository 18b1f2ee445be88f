package storage

// State is the published view of a log: immutable, so that readers take no lock. Offsets are exclusive ends.
//
// Invariant: LogStartOffset <= LastStableOffset <= HighWatermark <= LogEndOffset.
type State struct {
	LogStartOffset    int64
	HighWatermark     int64
	LastStableOffset  int64
	LogEndOffset      int64
	ActiveSegmentBase int64
	RecoveryPoint     int64 // everything below is synced
	SizeBytes         int64 // of all .log files
	LatestEpoch       int32 // of the last leader epoch entry, -1 without one
	Segments          int
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
