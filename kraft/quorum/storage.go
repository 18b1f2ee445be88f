package quorum

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"gregor/internal/invariants"
	"gregor/protocol/record"
	"gregor/storage"
)

// partitionLog is what the quorum needs of a storage.Log.
type partitionLog interface {
	State() *storage.State
	AppendRaft(batches []byte) (storage.AppendInfo, error)
	Flush(upTo int64) error
	ReadBatches(offset int64, buf []byte, maxBytes int, upTo storage.Bound) ([]byte, error)
	UpdateHighWatermark(hw int64) (int64, error)
	TruncateTo(offset int64) error
	TruncateFullyAndStartAt(offset int64) error
	IncrementLogStartOffset(offset int64) (bool, error)
	EpochForOffset(offset int64) (int32, bool)
	EndOffsetForEpoch(epoch int32) (foundEpoch int32, endOffset int64)
	LatestEpoch() (int32, bool)
	DeleteOldSegments(now time.Time) (int, error)
	Close() error
}

const (
	// maxAppendBytes is how much goes to the log in one write, but for a batch that is larger.
	maxAppendBytes = 1 << 20
	// tailCacheBytes is how much of the log's end is kept in memory for followers that keep up.
	tailCacheBytes = 1 << 20
	// scanBytes is how much is read at once when the log is scanned.
	scanBytes = 1 << 20
)

// raftStorage is raft.Storage over the metadata log. It belongs to the machine's goroutine; the log and first may be
// read by others.
//
// Invariant: the log holds whole batches; first-1 is the index before the log start, with the term firstTerm.
type raftStorage struct {
	log       partitionLog
	snapshots *snapshotStore
	history   *configHistory
	base      config // of the static voters, for level 0

	full         fullDisk
	segmentBytes int32
	tail         tailCache
	first        atomic.Uint64
	firstTerm    uint64

	// What raft is told when it starts.
	hardState *raftpb.HardState
	confState *raftpb.ConfState
}

var _ raft.Storage = (*raftStorage)(nil)

// InitialState implements raft.Storage.
func (s *raftStorage) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	return s.hardState, s.confState, nil
}

// FirstIndex implements raft.Storage.
func (s *raftStorage) FirstIndex() (uint64, error) { return s.first.Load(), nil }

// LastIndex implements raft.Storage.
func (s *raftStorage) LastIndex() (uint64, error) { return s.lastIndex(), nil }

func (s *raftStorage) lastIndex() uint64 { return indexOf(s.endOffset()) - 1 }

func (s *raftStorage) endOffset() int64 { return s.log.State().LogEndOffset }

// Term implements raft.Storage.
func (s *raftStorage) Term(index uint64) (uint64, error) {
	first := s.first.Load()
	switch {
	case index+1 < first:
		return 0, raft.ErrCompacted
	case index+1 == first:
		return s.firstTerm, nil
	case index > s.lastIndex():
		return 0, raft.ErrUnavailable
	}
	epoch, ok := s.log.EpochForOffset(offsetOf(index))
	if !ok {
		return 0, fmt.Errorf("%w: no leader epoch of offset %d", ErrCorrupt, offsetOf(index))
	}
	return uint64(epoch), nil
}

// Entries implements raft.Storage. A batch is never cut in two, except by hi.
func (s *raftStorage) Entries(lo, hi, maxSize uint64) ([]*raftpb.Entry, error) {
	if lo < s.first.Load() {
		return nil, raft.ErrCompacted
	}
	if hi > s.lastIndex()+1 {
		return nil, raft.ErrUnavailable
	}
	var entries []*raftpb.Entry
	size := uint64(0)
	for lo < hi {
		chunk, err := s.read(offsetOf(lo), int(min(maxSize-min(size, maxSize), scanBytes)))
		if err != nil {
			return nil, err
		}
		for b, err := range record.Batches(chunk) {
			if err != nil {
				return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
			}
			if len(entries) > 0 && size+uint64(len(b)) > maxSize {
				return entries, nil
			}
			if entries, err = entriesOf(entries, b, lo, hi); err != nil {
				return nil, err
			}
			size += uint64(len(b))
			lo = indexOf(b.LastOffset()) + 1
			if lo >= hi {
				break
			}
		}
	}
	return entries, nil
}

// read returns whole batches from the one that holds offset on, at least one.
func (s *raftStorage) read(offset int64, maxBytes int) ([]byte, error) {
	if b := s.tail.from(offset, maxBytes); b != nil {
		return b, nil
	}
	b, err := s.log.ReadBatches(offset, nil, max(maxBytes, 1), storage.UpToLogEnd)
	if err != nil {
		return nil, fmt.Errorf("metadata log at offset %d: %w", offset, err)
	}
	// A bad byte must not travel, nor be taken for a record: the node fails, and the others go on without it.
	for batch, err := range record.Batches(b) {
		if err != nil || !batch.CRCValid() {
			return nil, fmt.Errorf("%w: metadata log at or after offset %d: %w", ErrCorrupt, offset, cmp.Or(err, errBadCRC))
		}
	}
	return b, nil
}

var errBadCRC = errors.New("batch fails its CRC")

// Snapshot implements raft.Storage: the newest checkpoint.
func (s *raftStorage) Snapshot() (*raftpb.Snapshot, error) {
	id, ok := s.snapshots.latest()
	if !ok || id.Offset == 0 {
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	return &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
		Index: new(indexOf(id.Offset) - 1), Term: new(uint64(id.Epoch)),
		ConfState: confStateOf(s.history.at(id.Offset).config.voters, nil),
	}}, nil
}

// confStateOf is raft's form of a voter set; extra is a learner, for a node that is not in it.
func confStateOf(voters VoterSet, learner *int32) *raftpb.ConfState {
	cs := &raftpb.ConfState{}
	for _, id := range voters.IDs() {
		cs.Voters = append(cs.Voters, raftID(id))
	}
	if learner != nil {
		cs.Learners = []uint64{raftID(*learner)}
	}
	return cs
}

// append writes whole batches at the offset of the first one, over whatever the log has from there on, and syncs
// them. The bytes belong to the storage afterwards.
func (s *raftStorage) append(batches []byte) error {
	if err := s.appendUnsynced(batches); err != nil {
		return err
	}
	if err := s.log.Flush(s.endOffset()); err != nil {
		return fmt.Errorf("sync of the metadata log: %w", err)
	}
	return nil
}

// appendUnsynced is append without the sync.
func (s *raftStorage) appendUnsynced(batches []byte) error {
	first, _, err := record.Next(batches)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if err := s.truncate(first.BaseOffset()); err != nil {
		return err
	}
	if err := s.write(batches); err != nil {
		return err
	}
	return s.noteConfigs(batches)
}

// truncate drops the log from endOffset on. A gap is a programmer error.
func (s *raftStorage) truncate(endOffset int64) error {
	end := s.endOffset()
	invariants.Assertf(endOffset <= end, "metadata log: append at offset %d, log end %d", endOffset, end)
	if endOffset >= end {
		return nil
	}
	s.tail.truncate(endOffset)
	s.history.truncate(endOffset)
	err := s.full.write("truncation of the metadata log", func() error { return s.log.TruncateTo(endOffset) })
	if err != nil {
		return fmt.Errorf("truncation of the metadata log to offset %d: %w", endOffset, err)
	}
	return nil
}

// write appends batches in pieces that fit a segment.
func (s *raftStorage) write(batches []byte) error {
	limit := min(maxAppendBytes, int(s.segmentBytes))
	start, at := 0, 0
	flush := func() error {
		if at == start {
			return nil
		}
		err := s.full.write("append to the metadata log", func() error {
			_, err := s.log.AppendRaft(batches[start:at])
			return err
		})
		if err != nil {
			return fmt.Errorf("append to the metadata log: %w", err)
		}
		start = at
		return nil
	}
	for b, err := range record.Batches(batches) {
		if err != nil {
			return fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		if at > start && at-start+len(b) > limit {
			if err := flush(); err != nil {
				return err
			}
		}
		at += len(b)
		s.tail.add(b)
	}
	return flush()
}

// noteConfigs enters the voter sets of appended batches into the history.
func (s *raftStorage) noteConfigs(batches []byte) error {
	for b, err := range record.Batches(batches) {
		if err != nil {
			return fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		if !b.IsControl() {
			continue
		}
		c, err := readControl(b)
		if err != nil {
			return err
		}
		if c.changesConfig() {
			s.history.add(b.LastOffset(), c.apply(s.history.last().config))
		}
	}
	return nil
}

// install makes a snapshot that is already on disk the beginning of an empty log.
func (s *raftStorage) install(id SnapshotID, c config) error {
	s.tail.reset()
	if err := s.log.TruncateFullyAndStartAt(id.Offset); err != nil {
		return fmt.Errorf("metadata log start at snapshot offset %d: %w", id.Offset, err)
	}
	s.history = newConfigHistory(c)
	return s.beginAt(id, time.Now())
}

// beginAt notes the snapshot that the log begins at, and forgets the older ones: beside them compare would take the log
// for one that begins earlier, and send whoever has the newest snapshot for it again and again.
func (s *raftStorage) beginAt(id SnapshotID, now time.Time) error {
	s.firstTerm = uint64(id.Epoch)
	s.first.Store(indexOf(id.Offset))
	return s.snapshots.forgetBefore(id, now)
}

// scanConfigs reads the voter sets of the log from offset on.
func (s *raftStorage) scanConfigs(offset int64) error {
	var buf []byte
	for end := s.endOffset(); offset < end; {
		b, err := s.log.ReadBatches(offset, buf, scanBytes, storage.UpToLogEnd)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("scan of the metadata log at offset %d: %w", offset, err)
		}
		buf = b
		for batch, err := range record.Batches(b) {
			if err != nil {
				return fmt.Errorf("%w: scan of the metadata log: %w", ErrCorrupt, err)
			}
			offset = batch.NextOffset()
		}
		if err := s.noteConfigs(b); err != nil {
			return err
		}
	}
	return nil
}
