package storage

import (
	"io"
	"time"
)

// Log is one partition.
type Log struct{}

// FileRange is bytes of a segment that were promised to a reader: they stay readable and unchanged until
// Release, whatever happens to the log; after a truncation below its end it answers ErrRangeGone instead.
type FileRange interface {
	// Len is the number of bytes.
	Len() int
	// ReadAt reads from the range; off counts from its start.
	io.ReaderAt
	// SendTo sends up to n bytes from off to a socket by sendfile, returns how many were taken (EAGAIN as the
	// error when the socket is full). ErrNoSendfile when the file has no descriptor.
	SendTo(dstFd uintptr, off int64, n int) (int, error)
	// Release gives the range up; exactly once.
	Release()
}

// Fetched is the result of Read.
type Fetched struct {
	Range        FileRange    // nil when there is nothing to read
	AbortedTxns  []AbortedTxn // with UpToLastStable only
	State        *State       // the view the read was made on
	FirstPartial bool         // the first batch is larger than maxBytes and cut
}

func OpenLog(o LogOptions) (*Log, error) { return nil, ErrClosed }

func (l *Log) State() *State            { return nil }
func (l *Log) TopicID() [16]byte        { return [16]byte{} }
func (l *Log) Dir() string              { return "" }
func (l *Log) Topic() string            { return "" }
func (l *Log) Partition() int32         { return 0 }
func (l *Log) Config() LogConfig        { return LogConfig{} }
func (l *Log) UpdateConfig(c LogConfig) {}
func (l *Log) Err() error               { return nil } // failure that the log is latched on

// Appends. batches is modified in place (base offsets, epochs) and not kept.
func (l *Log) AppendAsLeader(batches []byte, leaderEpoch int32, o AppendOptions) (AppendInfo, error) {
	return AppendInfo{}, ErrClosed
}

// AppendAsFollower appends verbatim; batches of an epoch above leaderEpoch (the replica's own) and a cut batch at the end are left out.
func (l *Log) AppendAsFollower(batches []byte, leaderEpoch int32) (AppendInfo, error) {
	return AppendInfo{}, ErrClosed
}

// AppendRaft appends verbatim without syncing; the caller calls Flush.
func (l *Log) AppendRaft(batches []byte) (AppendInfo, error) { return AppendInfo{}, ErrClosed }

func (l *Log) Read(offset int64, maxBytes int, upTo Bound, minOneBatch bool) (Fetched, error) {
	return Fetched{}, ErrClosed
}

// ReadBatches reads whole batches into memory: at least one when there is one; io.EOF at the bound. buf is reused when large enough.
func (l *Log) ReadBatches(offset int64, buf []byte, maxBytes int, upTo Bound) ([]byte, error) {
	return nil, ErrClosed
}

func (l *Log) UpdateHighWatermark(hw int64) (int64, error)        { return 0, ErrClosed } // clamped; returns the new one; may go back
func (l *Log) TruncateTo(offset int64) error                      { return ErrClosed }
func (l *Log) TruncateFullyAndStartAt(offset int64) error         { return ErrClosed }
func (l *Log) IncrementLogStartOffset(offset int64) (bool, error) { return false, ErrClosed }
func (l *Log) OffsetForTimestamp(ts int64, upTo Bound) (TimestampOffset, error) {
	return TimestampOffset{}, ErrClosed
}
func (l *Log) EndOffsetForEpoch(epoch int32) (foundEpoch int32, endOffset int64) { return -1, -1 }
func (l *Log) EpochForOffset(offset int64) (int32, bool)                         { return -1, false }
func (l *Log) EpochEntries() []EpochEntry                                        { return nil }
func (l *Log) AssignEpochStart(epoch int32, offset int64) error                  { return ErrClosed }
func (l *Log) LatestEpoch() (int32, bool)                                        { return -1, false }

func (l *Log) DeleteOldSegments(now time.Time) (int, error)     { return 0, ErrClosed }
func (l *Log) Roll() error                                      { return ErrClosed }
func (l *Log) Flush(upTo int64) error                           { return ErrClosed } // exclusive; group commit
func (l *Log) LastFlushed() time.Time                           { return time.Time{} }
func (l *Log) AbortedTxns(from, to int64) ([]AbortedTxn, error) { return nil, ErrClosed }
func (l *Log) StartVerification(producerID int64, epoch int16, sequence int32, supportsEpochBump bool) (guard uint64) {
	return 0
}
func (l *Log) HasOngoingTxn(producerID int64, epoch int16) bool { return false }
func (l *Log) ExpireProducers(now time.Time)                    {}
func (l *Log) RenameDir(dir string) error                       { return ErrClosed } // the directory itself is renamed
func (l *Log) Close() error                                     { return ErrClosed } // clean
func (l *Log) CloseUnclean()                                    {}                   // drops descriptors, writes nothing
func (l *Log) Delete() error                                    { return ErrClosed } // closes and removes the directory
