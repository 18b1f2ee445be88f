package storage

import (
	"errors"
	"fmt"

	"gregor/storage/segment"
)

// Failures of a Log. Corruption of data on disk additionally is a *CorruptError.
var (
	// ErrOffsetOutOfRange says that an offset lies below the log start or above the log end (or, for a new log
	// start, above the high watermark).
	ErrOffsetOutOfRange = errors.New("offset out of range")
	// ErrOffsetMovedToTiered says that tiered storage holds the offset and this disk no longer does.
	ErrOffsetMovedToTiered = errors.New("offset moved to tiered storage")
	// ErrCorrupt marks bytes that are not what was written: in a request's batches or in a file.
	ErrCorrupt = segment.ErrCorrupt
	// ErrClosed says that the log has been closed or deleted.
	ErrClosed = errors.New("log is closed")
	// ErrStorage says that a file operation failed: now or earlier, because a log never goes on after one. It
	// wraps the cause.
	ErrStorage = errors.New("log storage failed")
	// ErrNoSpace says that the file system of the log directory, or our quota of it, is full. The operation has changed
	// nothing and may be tried again: the log goes on. It is no ErrStorage.
	ErrNoSpace = errors.New("no space in the log directory")
	// ErrRecordTooLarge says that a batch is larger than max.message.bytes.
	ErrRecordTooLarge = errors.New("record batch too large")
	// ErrSegmentTooSmall says that the batches of one append together are larger than segment.bytes.
	ErrSegmentTooSmall = errors.New("record batches larger than a segment")
	// ErrUnexpectedOffset says that a follower's batch starts below the log end, or that the offsets of an
	// append do not increase.
	ErrUnexpectedOffset = errors.New("unexpected append offset")
	// ErrInconsistentTopicID says that the directory belongs to another topic id.
	ErrInconsistentTopicID = errors.New("inconsistent topic id")
	// ErrOldLeaderEpoch says that a leader appends in an epoch that is over: the log has begun a newer one.
	ErrOldLeaderEpoch = errors.New("leader epoch is over")
	// ErrJoinedRetry says that one of several batches that were to share a write is a producer's retry.
	ErrJoinedRetry = errors.New("a retry among joined batches")
	// ErrEmptyAppend says that an append holds no batch.
	ErrEmptyAppend = errors.New("append without a batch")
)

// CorruptError tells where a file is corrupt. It is an ErrCorrupt.
type CorruptError = segment.CorruptError

// StorageError is an ErrStorage with the operation that failed.
type StorageError struct {
	Op    string // what the log was doing
	Dir   string // partition directory
	Cause error
}

func (e *StorageError) Error() string {
	return fmt.Sprintf("log storage failed: %s of %s: %v", e.Op, e.Dir, e.Cause)
}

// Unwrap makes errors.Is find both ErrStorage and the cause.
func (e *StorageError) Unwrap() []error { return []error{ErrStorage, e.Cause} }

// NoSpaceError is an ErrNoSpace with the operation that found no space.
type NoSpaceError struct {
	Op    string // what the log, or the directory, was doing
	Dir   string // partition directory or log directory
	Cause error
}

func (e *NoSpaceError) Error() string {
	return fmt.Sprintf("no space in the log directory: %s of %s: %v (free some, and it goes on)", e.Op, e.Dir, e.Cause)
}

// Unwrap makes errors.Is find both ErrNoSpace and the cause.
func (e *NoSpaceError) Unwrap() []error { return []error{ErrNoSpace, e.Cause} }

// UnexpectedOffsetError tells which offsets a follower could not append. It is an ErrUnexpectedOffset.
type UnexpectedOffsetError struct {
	FirstOffset, LastOffset int64 // of the batches
	LogEndOffset            int64
}

func (e *UnexpectedOffsetError) Error() string {
	return fmt.Sprintf("unexpected append offset: batches %d-%d, log end %d", e.FirstOffset, e.LastOffset, e.LogEndOffset)
}

// Unwrap makes errors.Is find ErrUnexpectedOffset.
func (e *UnexpectedOffsetError) Unwrap() error { return ErrUnexpectedOffset }

// offsetError is an ErrOffsetOutOfRange with the numbers.
type offsetError struct {
	op                string
	offset, low, high int64
}

func (e *offsetError) Error() string {
	return fmt.Sprintf("offset out of range: %s %d is not in [%d, %d]", e.op, e.offset, e.low, e.high)
}

func (e *offsetError) Unwrap() error { return ErrOffsetOutOfRange }
