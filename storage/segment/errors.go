package segment

import (
	"errors"
	"fmt"
)

var (
	// ErrCorrupt marks bytes of a segment's file that are not what was written there.
	ErrCorrupt = errors.New("corrupt log data")
	// ErrRangeGone is what a Range answers after a truncation below its end.
	ErrRangeGone = errors.New("segment range was truncated")
	// ErrNoSendfile says that a Range has no descriptor to send from; read it instead. It is an errors.ErrUnsupported, which
	// is what the network asks for.
	ErrNoSendfile = fmt.Errorf("no descriptor for sendfile: %w", errors.ErrUnsupported)
	// ErrOffsetOverflow says that an offset is more than 2^31-1 above the segment's base, or below it.
	ErrOffsetOverflow = errors.New("offset out of the segment's range")
)

// OverflowError says that a valid batch of a segment has an ErrOffsetOverflow: the segment has to be split.
type OverflowError struct {
	Segment  *Segment
	Position int64 // of the batch
	Offset   int64 // its last one
}

func (e *OverflowError) Error() string {
	return fmt.Sprintf("%v: %d at byte %d of %s", ErrOffsetOverflow, e.Offset, e.Position, e.Segment.LogPath())
}

// Unwrap makes errors.Is find ErrOffsetOverflow.
func (e *OverflowError) Unwrap() error { return ErrOffsetOverflow }

// CorruptError tells where a file is corrupt. It is an ErrCorrupt.
type CorruptError struct {
	File     string
	Position int64
	Cause    error
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("corrupt log data: %s at byte %d: %v", e.File, e.Position, e.Cause)
}

// Unwrap makes errors.Is find both ErrCorrupt and the cause.
func (e *CorruptError) Unwrap() []error { return []error{ErrCorrupt, e.Cause} }
