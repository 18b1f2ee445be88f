package quorum

import (
	"gregor/kraft/metadata"
)

// NoLeader is the LeaderID of an epoch without a known leader.
const NoLeader int32 = -1

// LeaderAndEpoch is who leads in which epoch; LeaderID is NoLeader when unknown.
type LeaderAndEpoch struct {
	LeaderID int32
	Epoch    int32
}

// CommittedBatch is a batch of the log, or of a snapshot, that is committed. Records is empty for control batches.
type CommittedBatch struct {
	BaseOffset            int64
	LastOffset            int64
	Epoch                 int32
	AppendTimestampMillis int64
	SizeBytes             int
	Records               []metadata.Record
}

// VersionedRecord is a record with the version in which it is to be written.
type VersionedRecord struct {
	Record  metadata.Record
	Version int16
}

// StateMachine is told what the quorum decides. The methods are called by one goroutine of its own, in the order of
// the log; a slow one holds up nobody else. They must not call Stop.
type StateMachine interface {
	// Commit is called once for every committed batch, control batches too.
	Commit(b CommittedBatch)
	// LoadSnapshot replaces all that was committed before: at the start, and when the node fell so far behind that
	// the log no longer has the next batch. The reader is valid during the call. The bootstrap checkpoint 0-0 is
	// not loaded this way, see Node.Bootstrap. An error ends the node: a state without what the snapshot held must
	// not be acted on.
	LoadSnapshot(r *SnapshotReader) error
	// LeaderChange is called when leader or epoch change; changes in quick succession may be told as one. That
	// this node leads is told only after Commit was called for all batches before the epoch and for the one that
	// starts it, so the machine may decide at once.
	LeaderChange(l LeaderAndEpoch)
}
