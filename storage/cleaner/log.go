package cleaner

import (
	"errors"
	"iter"
	"time"

	"gregor/storage/segment"
)

// ErrAborted says that a round came to nothing because the log was truncated, deleted, closed or reconfigured
// meanwhile. It is no failure.
var ErrAborted = errors.New("cleaning aborted")

// Log is a partition as the cleaner sees it. Implementations are comparable: equal values are the same partition.
type Log interface {
	// Name is TOPIC-PARTITION, Dir the log directory that it is in.
	Name() string
	Dir() string
	// View is the log at one moment.
	View() View
	// Check answers ErrAborted when a round that began with the view must not go on.
	Check(v *View) error
	// HighWatermark is the one in force.
	HighWatermark() int64
	// LastRecords is the newest batch of each producer that the log remembers, by producer id.
	LastRecords() map[int64]LastRecord
	// Flush makes everything below an offset durable.
	Flush(upTo int64) error
	// Create makes an empty segment with suffix segment.CleanedSuffix.
	Create(base int64) (*segment.Segment, error)
	// Replace puts a sealed and synced segment in place of old ones of the view. After ErrAborted nothing has happened, and
	// the segment is the caller's to remove; after any other error it must be left alone.
	Replace(v *View, cleaned *segment.Segment, old []*segment.Segment) error
	// Split replaces a sealed segment of the view, some of whose offsets are too far from its base, by several. ok is false
	// when there is no need to.
	Split(v *View, s *segment.Segment) (ok bool, err error)
	// SetCleanedTo notes durably where the next round starts.
	SetCleanedTo(v *View, offset int64) error
	// DeleteOldSegments applies retention.
	DeleteOldSegments(now time.Time) error
	// NoSpace reports that a round found no space, and came to nothing.
	NoSpace(err error)
	// Fail reports that a file operation on the log failed.
	Fail(err error)
	// Damaged reports that a file of the view is not what was written.
	Damaged(v *View, err error)
}

// Logs lists the logs that have cleanup.policy=compact now.
type Logs interface {
	// Compacted goes through them. It holds no lock while it yields: the Pool takes its own then, and calls with it held.
	Compacted() iter.Seq[Log]
	// IsCurrent tells whether a log is still one of this node's: its directory has its name.
	IsCurrent(l Log) bool
}

// View is what a round goes by. Offsets are exclusive ends.
type View struct {
	Offsets
	Policy     Policy
	Segments   []*segment.Segment // ascending; the last one is written to
	Generation int64              // of Segment.Range
}

// Offsets are those of a View.
type Offsets struct {
	LogStart, LastStable, LogEnd int64
	// CleanedTo is where the last round ended, 0 when there was none.
	CleanedTo int64
}

// Policy is what of the topic's configs the cleaner acts on.
type Policy struct {
	Delete                bool    // cleanup.policy contains delete, too
	MinDirtyRatio         float64 // min.cleanable.dirty.ratio
	MinLagMillis          int64   // min.compaction.lag.ms
	MaxLagMillis          int64   // max.compaction.lag.ms
	DeleteRetentionMillis int64   // delete.retention.ms
	SegmentBytes          int32   // segment.bytes
	SegmentIndexBytes     int32   // segment.index.bytes
	MaxDecompressedBytes  int64   // max.decompressed.message.bytes
}

// LastRecord is the newest batch of a producer.
type LastRecord struct {
	LastOffset int64 // of its newest data batch, -1 when only a marker is known
	Epoch      int16
}
