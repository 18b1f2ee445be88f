package quorum

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"gregor/protocol/record"
	"gregor/storage"
)

// Errors of Fetch and FetchSnapshot; each wraps Kafka's.
var (
	ErrFencedEpoch      = fmt.Errorf("leader epoch of the request is old: %w", kerr.FencedLeaderEpoch)
	ErrUnknownEpoch     = fmt.Errorf("leader epoch of the request is not known here yet: %w", kerr.UnknownLeaderEpoch)
	ErrSnapshotNotFound = fmt.Errorf("no such metadata snapshot: %w", kerr.SnapshotNotFound)
	ErrSnapshotPosition = fmt.Errorf("position outside of the metadata snapshot: %w", kerr.PositionOutOfRange)
	ErrFetchOffset      = fmt.Errorf("fetch offset or epoch is negative: %w", kerr.InvalidRequest)
)

// FetchRequest is an observer's fetch of the metadata log.
type FetchRequest struct {
	Replica            ReplicaKey // ID -1: not a replica, not listed among the observers
	CurrentLeaderEpoch int32      // -1: unknown to the sender
	FetchOffset        int64
	LastFetchedEpoch   int32
	MaxBytes           int
	MaxWait            time.Duration
	// HighWatermark is the one the sender knows (KIP-1166): a newer one is answered at once. math.MaxInt64 when the
	// version of the request lacks it.
	HighWatermark int64
}

// EpochEndOffset is where an epoch ends in the leader's log.
type EpochEndOffset struct {
	Epoch     int32
	EndOffset int64
}

// FetchResponse answers a fetch. At most one of Records, Diverging and Snapshot is set.
type FetchResponse struct {
	Err            error // wraps a *kerr.Error
	Leader         LeaderAndEpoch
	HighWatermark  int64 // -1 while unknown in this epoch
	LogStartOffset int64
	Records        []byte          // whole batches, committed or not
	Diverging      *EpochEndOffset // the sender's log must be truncated
	Snapshot       *SnapshotID     // the sender must fetch this snapshot first
}

// Fetch answers an observer as KRaft's leader does. It waits up to MaxWait for records or a newer high watermark.
func (n *Node) Fetch(ctx context.Context, req FetchRequest) FetchResponse {
	deadline := time.Now().Add(req.MaxWait)
	for {
		changed := n.board.watch()
		resp, wait := n.fetchNow(req)
		left := time.Until(deadline)
		if !wait || left <= 0 {
			return resp
		}
		timer := time.NewTimer(left)
		select {
		case <-changed:
		case <-timer.C:
		case <-n.stop:
			timer.Stop()
			return n.fetchError(ErrNotLeader)
		case <-ctx.Done():
			timer.Stop()
			return resp
		}
		timer.Stop()
	}
}

// checkEpoch compares the epoch of a request with that of this node, which must lead.
func checkEpoch(s *state, epoch int32) error {
	switch {
	case epoch >= 0 && epoch < s.leader.Epoch:
		return ErrFencedEpoch
	case epoch > s.leader.Epoch:
		return ErrUnknownEpoch
	case s.epochStart < 0:
		return ErrNotLeader
	default:
		return nil
	}
}

func (n *Node) fetchError(err error) FetchResponse {
	return FetchResponse{Err: err, Leader: n.board.load().leader, HighWatermark: -1, LogStartOffset: -1}
}

// fetchNow answers without waiting. wait says that there is nothing to tell yet.
func (n *Node) fetchNow(req FetchRequest) (resp FetchResponse, wait bool) {
	s := n.board.load()
	if err := checkEpoch(s, req.CurrentLeaderEpoch); err != nil {
		return n.fetchError(err), false
	}
	if req.FetchOffset < 0 || req.LastFetchedEpoch < 0 {
		return n.fetchError(ErrFetchOffset), false
	}
	st := n.machine.storage.log.State()
	resp = FetchResponse{Leader: s.leader, HighWatermark: -1, LogStartOffset: st.LogStartOffset}
	if s.leads() {
		resp.HighWatermark = s.highWatermark
	}
	resp.Diverging, resp.Snapshot = n.machine.storage.compare(req.FetchOffset, req.LastFetchedEpoch)
	if resp.Diverging != nil || resp.Snapshot != nil {
		return resp, false
	}
	maxBytes := min(max(req.MaxBytes, 1), maxFetchBytes)
	records, err := n.machine.storage.log.ReadBatches(req.FetchOffset, nil, maxBytes, storage.UpToLogEnd)
	if err != nil && !errors.Is(err, io.EOF) {
		return n.fetchError(fmt.Errorf("metadata log at offset %d: %w", req.FetchOffset, err)), false
	}
	if newerThan(records, s.leader.Epoch) {
		// Another leader has cut the log since the comparison and written on: this may not follow on what the sender has.
		return n.fetchError(ErrNotLeader), false
	}
	resp.Records = records
	if req.Replica.ID >= 0 {
		n.machine.replica.observer(req.Replica, req.FetchOffset, st.LogEndOffset, time.Now())
	}
	return resp, len(records) == 0 && resp.HighWatermark <= req.HighWatermark
}

// newerThan tells whether a batch is of an epoch after the given one.
func newerThan(batches []byte, epoch int32) bool {
	for b, err := range record.Batches(batches) {
		if err != nil || b.LeaderEpoch() > epoch {
			return true
		}
	}
	return false
}

// compare finds out whether a log that ends at offset, with a last record of an epoch, is a prefix of this one. A
// sender whose end this log no longer has is sent to the newest snapshot.
func (s *raftStorage) compare(offset int64, epoch int32) (*EpochEndOffset, *SnapshotID) {
	st := s.log.State()
	if st.LogStartOffset == 0 && offset == 0 && epoch == 0 {
		return nil, nil
	}
	if first, ok := s.snapshots.earliest(); ok &&
		(offset < st.LogStartOffset || offset == st.LogStartOffset && epoch != first.Epoch || epoch < first.Epoch) {
		newest, _ := s.snapshots.latest()
		return nil, &newest
	}
	if offset == st.LogStartOffset && st.LogStartOffset > 0 {
		return nil, nil // the end of the oldest snapshot
	}
	end := s.endOfEpoch(epoch)
	if end.Epoch != epoch || end.EndOffset < offset {
		return &end, nil
	}
	return nil, nil
}

// endOfEpoch is the end of the newest epoch that is not above the given one; the log end when all epochs are below it.
func (s *raftStorage) endOfEpoch(epoch int32) EpochEndOffset {
	found, end := s.log.EndOffsetForEpoch(epoch)
	if found < 0 || end < 0 {
		return EpochEndOffset{Epoch: s.lastEpoch(), EndOffset: s.endOffset()}
	}
	if first, ok := s.snapshots.earliest(); ok && end == first.Offset && found == epoch {
		return EpochEndOffset{Epoch: first.Epoch, EndOffset: end}
	}
	return EpochEndOffset{Epoch: found, EndOffset: end}
}

// lastEpoch is the epoch of the last record of the log, or of the snapshot that an empty log begins at; 0 without.
func (s *raftStorage) lastEpoch() int32 {
	if epoch, ok := s.log.LatestEpoch(); ok && epoch >= 0 {
		return epoch
	}
	if id, ok := s.snapshots.latest(); ok && id.Offset == s.endOffset() {
		return id.Epoch
	}
	return 0
}

// FetchSnapshotRequest asks for a piece of a snapshot.
type FetchSnapshotRequest struct {
	CurrentLeaderEpoch int32
	ID                 SnapshotID
	Position           int64
	MaxBytes           int
}

// FetchSnapshotResponse is a piece of a snapshot file.
type FetchSnapshotResponse struct {
	Err       error
	Leader    LeaderAndEpoch
	ID        SnapshotID
	SizeBytes int64 // of the file
	Position  int64
	Bytes     []byte
}

// FetchSnapshot answers an observer that was sent to a snapshot.
func (n *Node) FetchSnapshot(req FetchSnapshotRequest) FetchSnapshotResponse {
	s := n.board.load()
	resp := FetchSnapshotResponse{Leader: s.leader, ID: req.ID, Position: req.Position}
	if resp.Err = checkEpoch(s, req.CurrentLeaderEpoch); resp.Err != nil {
		return resp
	}
	f, size, err := n.machine.storage.snapshots.open(req.ID)
	if errors.Is(err, fs.ErrNotExist) || !n.machine.storage.snapshots.has(req.ID) && err == nil {
		if err == nil {
			_ = f.Close()
		}
		resp.Err = ErrSnapshotNotFound
		return resp
	}
	if err != nil {
		resp.Err = fmt.Errorf("snapshot %v: %w", req.ID, err)
		return resp
	}
	defer func() { _ = f.Close() }()
	resp.SizeBytes = size
	if req.Position < 0 || req.Position >= size {
		resp.Err = ErrSnapshotPosition
		return resp
	}
	resp.Bytes = make([]byte, min(int64(max(req.MaxBytes, 1)), size-req.Position, maxFetchBytes))
	read, err := f.ReadAt(resp.Bytes, req.Position)
	if err != nil && !errors.Is(err, io.EOF) {
		resp.Err = fmt.Errorf("snapshot %v: %w", req.ID, err)
	}
	resp.Bytes = resp.Bytes[:read]
	return resp
}

// maxFetchBytes is how much of the log or of a snapshot one answer carries at most, but for a batch that is larger.
const maxFetchBytes = 8 << 20

// Describe is DescribeQuorum's answer; ErrNotLeader unless this node leads.
func (n *Node) Describe() (Description, error) {
	s := n.board.load()
	if s.epochStart < 0 {
		return Description{}, ErrNotLeader
	}
	d := Description{Leader: s.leader, HighWatermark: -1, VoterSet: s.config.voters}
	if s.leads() {
		d.HighWatermark = s.highWatermark
	}
	d.Voters, d.Observers = n.machine.replica.describe(s.config.voters, n.o.NodeID, n.LogEndOffset(), time.Now())
	return d, nil
}
