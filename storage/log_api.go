package storage

import (
	"io"
	"log/slog"

	"gregor/protocol/record"
	"gregor/storage/checkpoint"
	"gregor/storage/segment"
	"gregor/storage/vfs"
)

// Bound says up to which offset (exclusive) a reader may see.
type Bound int8

// The bounds: replicas read to the log end, consumers to the high watermark, those with
// isolation.level=read_committed to the last stable offset.
const (
	UpToLogEnd Bound = iota
	UpToHighWatermark
	UpToLastStable
)

// Origin says who appends; it decides how much producer state is checked.
type Origin int8

// The origins of Kafka's AppendOrigin: a produce request, a coordinator (offset commits, transaction markers),
// a leader's batches on a follower, the metadata quorum (no producer state at all).
const (
	FromClient Origin = iota
	FromCoordinator
	FromReplication
	FromRaft
)

// Events are told by a log to its owner. A nil function is not called. They run on the goroutine that met the
// event, with no lock of the log held unless it says so.
type Events struct {
	// Failed is told once when a file operation failed; the log answers ErrStorage from then on and the owner
	// takes the log directory offline. It may be on the log's own background work, so it must not wait for the log:
	// closing it is for another goroutine.
	Failed func(l *Log, err error)
	// Damaged is told once when a file turns out to hold something else than what was written; the log answers ErrStorage
	// from then on, the others of its directory go on. It may be called with the writer's lock held: it must not wait and
	// not call the log.
	Damaged func(l *Log, err error)
	// RecoveryPointLowered is asked, with the writer's lock held, to make a lower recovery point durable before a
	// truncation changes the files, because offsets above it will be written anew. An error stops the truncation.
	// It must not call the log, except State.
	RecoveryPointLowered func(l *Log, offset int64) error
}

// LogOptions open a partition. FS or Files, Dir and Config are required.
type LogOptions struct {
	FS        vfs.FS
	Files     *vfs.Cache          // descriptors; nil for a cache of its own
	Indexes   *segment.IndexCache // memory for indexes of sealed segments; nil for a cache of its own
	Dir       string              // the partition's directory; created when missing
	Topic     string
	Partition int32
	TopicID   [16]byte // zero when unknown: taken from partition.metadata
	// TopicIDLater leaves it to the owner when partition.metadata is written; the first append does it at the latest.
	TopicIDLater bool
	Config       LogConfig
	// Workers bounds the background work of many logs; nil for no bound.
	Workers *Workers

	// LogStartOffset and RecoveryPoint are those of the checkpoint files, 0 when they have no entry.
	LogStartOffset int64
	RecoveryPoint  int64
	// CutDamage has recovery cut the log at damage below the recovery point too: for an owner that never leads and gets
	// again whatever is lost.
	CutDamage bool
	// CleanedTo is that of cleaner-offset-checkpoint, 0 without an entry.
	CleanedTo int64
	// HadCleanShutdown makes the start lazy: no file is scanned but the end of the last segment.
	HadCleanShutdown bool
	// ProducerExpirationMillis is producer.id.expiration.ms, 0 for Kafka's default of a day.
	ProducerExpirationMillis int64
	// VerifyTransactions is transaction.partition.verification.enable.
	VerifyTransactions bool

	Events Events
	Logger *slog.Logger // nil for none

	space   *spaceWatch    // of the log directory, set by the Manager; nil for one of its own
	configs *sharedConfigs // of the Manager; nil for none
}

// AppendOptions qualify AppendAsLeader.
type AppendOptions struct {
	Origin Origin
	// Guard is what StartVerification returned for the transaction whose partition the coordinator has verified
	// meanwhile; 0 when none was needed.
	Guard uint64
	// TransactionVersion is the one of the transaction marker (WriteTxnMarkers v2) or of the producer: 2 makes
	// the checks of KIP-890 part 2 and KIP-1228 apply.
	TransactionVersion int8
	// LogAppendTimeMillis is what ValidateProduce stamped, -1 for CreateTime; handed back in AppendInfo.
	LogAppendTimeMillis int64
	// AloneInSync says that the leader is its only in-sync replica: the high watermark follows the log end in
	// the same publication, unless the append has to be synced first (flush.messages).
	AloneInSync bool
	// SyncLater has the append return before the sync that flush.messages asks for: when AppendInfo.Unsynced is set the
	// caller calls SyncAppended before it tells anybody.
	SyncLater bool
	// Joined says that the batches are those of several requests, one of each, which share a write. A retry among
	// them is an ErrJoinedRetry, and nothing is written: it, like every other error, is then found out by appending
	// them one by one.
	Joined bool
}

// AppendInfo is the result of an append. For a duplicate of one of the producer's last five batches it is that
// of the original append, and nothing was written.
type AppendInfo struct {
	FirstOffset         int64 // -1 when nothing was appended
	LastOffset          int64
	MaxTimestamp        int64 // largest timestamp of the batches; of a duplicate, the original's
	LogAppendTimeMillis int64 // -1 with CreateTime
	LogStartOffset      int64
	Bytes               int // bytes written, 0 for a duplicate
	Batches             int
	LeaderEpoch         int32 // of the last batch, -1 when it has none
	Duplicate           bool
	Unsynced            bool // SyncAppended has to be called yet; only with SyncLater

	AloneInSync bool // as AppendOptions has it

	generation int64 // of the log when it was appended
}

// Part is the result for one batch of a joined append. It begins at firstOffset; the batch itself may still have the
// offsets that its producer gave it.
func (i AppendInfo) Part(firstOffset int64, b record.Batch) AppendInfo {
	i.FirstOffset, i.LastOffset = firstOffset, firstOffset+int64(b.LastOffsetDelta())
	i.MaxTimestamp, i.Bytes, i.Batches = b.MaxTimestamp(), len(b), 1
	return i
}

// AbortedTxn is an aborted transaction as a Fetch response lists it.
type AbortedTxn struct {
	ProducerID  int64
	FirstOffset int64
}

// TimestampOffset is the answer of OffsetForTimestamp; Offset is -1 when no record qualifies.
type TimestampOffset struct {
	Timestamp   int64
	Offset      int64
	LeaderEpoch int32 // -1 when unknown
}

// MaxTimestamp is ListOffsets' wish for the offset of the largest timestamp (KIP-734).
const MaxTimestamp int64 = -3

// EpochEntry says that a leader epoch starts at an offset.
type EpochEntry = checkpoint.EpochEntry

// FileRange is bytes of a segment that were promised to a reader: they stay readable and unchanged until
// Release, whatever happens to the log. After a truncation below its end it answers segment.ErrRangeGone
// instead. A *segment.Range is one.
type FileRange interface {
	// Len is the number of bytes.
	Len() int
	// ReadAt reads from the range; off counts from its start.
	io.ReaderAt
	// SendTo sends up to n bytes from off to a non-blocking socket and returns how many it took; EAGAIN is the
	// error when the socket is full, segment.ErrNoSendfile when the file has no descriptor.
	SendTo(dstFd uintptr, off int64, n int) (int, error)
	// Release gives the range up.
	Release()
	// Source tells which file the range is of and where it begins there, for messages.
	Source() (file string, position int64)
}

// Fetched is the result of Read.
type Fetched struct {
	Range        FileRange    // nil when there is nothing to read
	AbortedTxns  []AbortedTxn // with UpToLastStable only
	State        *State       // the view the read was made on
	FirstPartial bool         // the first batch is larger than maxBytes and cut
}
