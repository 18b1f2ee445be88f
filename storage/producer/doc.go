// Package producer keeps what a partition remembers of its idempotent and transactional producers: the last
// five batches of each (so that a retry is recognized), its epoch (so that a zombie is fenced), its open
// transaction, and from these the first unstable offset. It follows Kafka's ProducerStateManager and
// ProducerAppendInfo (KIP-98, KIP-360, KIP-890, KIP-1228) and writes the same snapshot files.
//
// A Manager is not locked: the owner of the log calls it with the writer's lock held. Offsets named end are
// exclusive, times are milliseconds since the epoch, -1 stands for no value as in the snapshot format.
package producer

import "errors"

// Failures of an append. All name producer, epoch, sequence and offset in their text.
var (
	// ErrOutOfOrderSequence says that a batch does not follow the last one of its producer.
	ErrOutOfOrderSequence = errors.New("out of order sequence number")
	// ErrInvalidProducerEpoch says that a producer with a newer epoch has been seen.
	ErrInvalidProducerEpoch = errors.New("invalid producer epoch")
	// ErrCoordinatorFenced says that a transaction marker comes from a coordinator that has been replaced.
	ErrCoordinatorFenced = errors.New("transaction coordinator is fenced")
	// ErrInvalidTxnState says that a batch outside a transaction came while one is open, or a transactional one
	// without the transaction being open here or verified with the coordinator.
	ErrInvalidTxnState = errors.New("invalid transaction state")
	// ErrCorruptSnapshot says that a snapshot file is not what was written.
	ErrCorruptSnapshot = errors.New("corrupt producer snapshot")
)

// Origin says who appends, which decides how much is checked.
type Origin int8

// The origins of Kafka's AppendOrigin. FromClient checks sequences, epochs and duplicates; FromCoordinator only
// epochs and coordinator epochs; FromReplication nothing (the leader has), it only takes the state over, also
// when a log is recovered.
const (
	FromClient Origin = iota
	FromCoordinator
	FromReplication
)
