// Package coordinator runs replicated state machines over the partitions of an
// internal topic.
//
// A coordinator (of groups, of transactions, of share state) keeps one
// [Machine] per partition that this broker leads. One goroutine at a time has
// the turn to run what touches the machine: there are no locks in a machine. It
// is the goroutine that submits an operation while nobody has the turn, or the
// partition's owner goroutine, which loads the machine, runs its timers and takes
// over from callers.
//
//   - [Write] and [StartWrite] run an operation that looks at the newest state
//     and returns records and a response. The runtime replays the records into
//     the machine, appends them, and gives out the response once the high
//     watermark has passed them. Operations that arrive while another runs share
//     one append. When the append fails the state goes back to what it was and
//     every operation of the batch gets the error.
//   - [Read] and [StartRead] run an operation on the committed state.
//   - Timers run operations like writes.
//   - [Runtime.Elect] loads a machine by replaying the partition from its start
//     to its end, [Runtime.Resign] unloads it.
//
// The environment is the small interface [Log]; time is the standard time.
package coordinator

import (
	"context"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"gregor/internal/timeline"
	"gregor/protocol/record"
)

// Producer identifies the transactional producer on whose behalf records were
// written.
type Producer struct {
	ID    int64
	Epoch int16
}

// NoProducer stands for records outside of transactions.
var NoProducer = Producer{ID: -1, Epoch: -1}

// Machine is the replicated state of one partition. The runtime calls all its
// methods, and all operations on it, one at a time.
type Machine[R any] interface {
	// Replay applies one record: a decided one of an operation, or one read
	// from the log during loading. offset is where the record is, or is about
	// to be. An error means that the record contradicts the state in a way that
	// no order of compaction explains; loading fails, a write is rolled back.
	Replay(offset int64, producer Producer, rec R) error
	// ReplayEndTxn applies the end of the open transaction of producer.
	ReplayEndTxn(producer Producer, committed bool)
	// Loaded is called once when the whole log was replayed, before the first
	// operation. This is where timers are set for what was loaded.
	Loaded()
	// Unloaded is called once when the machine is given up. It answers
	// everything that still waits inside the machine with err.
	Unloaded(err error)
}

// Codec turns the records of a machine into keys and values and back.
type Codec[R any] interface {
	// Encode appends the key of rec and, unless rec is a tombstone, the value to
	// dst. keyBytes is the length of the key.
	Encode(dst []byte, rec R) (buf []byte, keyBytes int, err error)
	// Decode parses a record. ErrUnknownRecord (wrapped) makes loading skip the
	// record, as a leftover of a newer version; another error fails loading. The
	// result must not alias key and value.
	Decode(key, value []byte) (R, error)
}

// Handle is what a machine gets to know of its surroundings.
type Handle[R any] struct {
	// Partition of the internal topic, and the epoch in which it is led.
	Partition   int32
	LeaderEpoch int32
	// Registry of the machine's timeline structures.
	Registry *timeline.Registry
	// Timers run operations later. They are dropped when the machine is
	// unloaded.
	Timers Timers[R]
	// Background runs work that is too slow for whoever has the turn.
	Background Background[R]
	// Logger names the partition in every line.
	Logger *slog.Logger
}

// Timers schedules operations of one machine by key.
type Timers[R any] interface {
	// Schedule runs op once after the delay, like a write. An operation under
	// the same key replaces the earlier one. With retry an operation that fails
	// runs again after half a second.
	Schedule(key string, after time.Duration, retry bool, op func() (Effect[R], error))
	// Cancel forgets the operation under key.
	Cancel(key string)
	// Scheduled reports whether an operation waits under key.
	Scheduled(key string) bool
}

// Background runs work without the turn.
type Background[R any] interface {
	// Run runs work on a goroutine of its own, and what it returns as an
	// operation of the machine. While work under a key runs, more under the same
	// key is not started. What ends after the machine is unloaded is dropped.
	Run(key string, work func() func() (Effect[R], error))
	// Running reports whether work under the key runs, or its operation waits.
	Running(key string) bool
}

// Effect is what an operation wants to be written.
type Effect[R any] struct {
	// Records to append, in this order, in one batch.
	Records []R
	// Applied says that the operation already changed the state, so that the
	// records are not replayed. Such changes are not rolled back: Done has to
	// repair them.
	Applied bool
	// Splittable allows the records to go into several batches.
	Splittable bool
	// Done, when set, is called like an operation when the records are committed
	// (nil) or will never be (the error).
	Done func(err error)
}

// Offsets are the bounds of a partition's log. Each is the next offset after
// what it bounds.
type Offsets struct {
	LogStart, HighWatermark, LogEnd int64
}

// Append is one batch to be written.
type Append struct {
	Partition int32
	// LeaderEpoch of the election; the log refuses the batch with
	// NOT_LEADER_OR_FOLLOWER when the partition is no longer led in that epoch.
	LeaderEpoch int32
	// Batch is a single batch; offsets and leader epoch are stamped by the log,
	// which does not keep the bytes.
	Batch record.Batch
	// Verified is what [Log.VerifyTxn] returned; nil for a batch outside of
	// transactions and for a marker.
	Verified any
	// CoordinatorEpoch of the transaction coordinator that ends a transaction;
	// set with a control batch only.
	CoordinatorEpoch int32
}

// Log is what the runtime needs of the partitions of its topic. All methods are
// safe for concurrent use and fail with kerr.NotLeaderForPartition when this
// broker does not lead the partition.
type Log interface {
	// Offsets of the partition.
	Offsets(partition int32) (Offsets, error)
	// MaxBatchBytes is the topic's max.message.bytes.
	MaxBatchBytes(partition int32) int32
	// Append writes the batch to the local log as its leader, with the checks
	// of acks=all (kerr.NotEnoughReplicas when the ISR is too small), and
	// returns the next offset after it. It does not wait for the high watermark.
	Append(ctx context.Context, a Append) (nextOffset int64, err error)
	// Read returns whole batches from the one that holds offset on, at least
	// one where there is one, about maxBytes of them, up to the log's end and
	// without regard to transactions. The bytes are the caller's.
	Read(ctx context.Context, partition int32, offset int64, maxBytes int) ([]byte, error)
	// WatchHighWatermark calls moved with each new high watermark, from any
	// goroutine and perhaps from within Append, until cancel is called. moved
	// does not block.
	WatchHighWatermark(partition int32, moved func(highWatermark int64)) (cancel func(), err error)
	// VerifyTxn asks the transaction coordinator whether the producer's
	// transaction includes the partition (KIP-890), and returns what Append
	// wants to see then. apiVersion is that of TxnOffsetCommit.
	VerifyTxn(ctx context.Context, v VerifyTxn) (verified any, err error)
}

// VerifyTxn names the transaction that a write belongs to.
type VerifyTxn struct {
	Partition       int32
	TransactionalID string
	Producer        Producer
	APIVersion      int16
}

// Errors of the runtime itself, in Kafka's terms.
var (
	ErrNotCoordinator  error = kerr.NotCoordinator
	ErrLoading         error = kerr.CoordinatorLoadInProgress
	ErrNotAvailable    error = kerr.CoordinatorNotAvailable
	ErrTimedOut        error = kerr.RequestTimedOut
	ErrTooLargeToWrite error = kerr.MessageTooLarge
)
