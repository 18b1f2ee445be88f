package quorum

import (
	"context"
	"errors"
	"fmt"

	"gregor/protocol/record"
)

// FollowState says what an observer has to fetch next.
type FollowState struct {
	// Following is false while the node is a voter: raft brings it the log, nothing is to be fetched.
	Following        bool
	FetchOffset      int64
	LastFetchedEpoch int32
	Leader           LeaderAndEpoch
	HighWatermark    int64
}

// FetchedFromLeader is the answer of a leader to an observer's Fetch.
type FetchedFromLeader struct {
	Leader        LeaderAndEpoch
	HighWatermark int64 // -1 when the leader does not know it
	Records       []byte
	Diverging     *EpochEndOffset
}

// FetchState tells an observer where its log ends.
func (n *Node) FetchState() FollowState {
	s := n.board.load()
	st := n.machine.storage.log.State()
	return FollowState{
		Following: s.following, FetchOffset: st.LogEndOffset, LastFetchedEpoch: n.machine.storage.lastEpoch(),
		Leader: s.leader, HighWatermark: s.highWatermark,
	}
}

// HandleFetched takes what an observer fetched. Answers that do not fit (any more) are ignored: fetch again from
// FetchState. An error is the end of the node or, when it wraps ErrCorrupt and Err stays nil, of the answer.
func (n *Node) HandleFetched(ctx context.Context, f FetchedFromLeader) error {
	return n.do(ctx, func(m *machine) (error, error) {
		err := m.follow(f)
		if errors.Is(err, errBadAnswer) {
			return err, nil
		}
		return err, err
	})
}

// HandleLeader takes what an answer with an error said about leader and epoch.
func (n *Node) HandleLeader(ctx context.Context, l LeaderAndEpoch) error {
	return n.do(ctx, func(m *machine) (error, error) {
		_, err := m.adoptLeader(l)
		return err, err
	})
}

// BeginSnapshot starts the download of a snapshot that a Fetch was answered with. Its Complete makes it the
// beginning of the log.
func (n *Node) BeginSnapshot(id SnapshotID) (*SnapshotDownload, error) {
	return n.machine.storage.snapshots.newDownload(id, func(d *SnapshotDownload) error {
		return n.do(context.Background(), func(m *machine) (error, error) {
			err := m.followSnapshot(d.ID())
			return err, err
		})
	})
}

// errBadAnswer says that an answer was refused; it is an ErrCorrupt.
var errBadAnswer = fmt.Errorf("%w: answer of the leader", ErrCorrupt)

// adoptLeader notes leader and epoch. false: the node is a voter, or knows a newer epoch.
func (m *machine) adoptLeader(l LeaderAndEpoch) (bool, error) {
	saved := m.states.hardState()
	if m.rn != nil || l.Epoch < 0 || uint64(l.Epoch) < saved.term {
		return false, nil
	}
	if uint64(l.Epoch) == saved.term && (l.LeaderID == saved.leader || l.LeaderID < 0) {
		return true, nil
	}
	next := quorumState{term: uint64(l.Epoch), leader: max(l.LeaderID, NoLeader), config: config{m.config.level, m.config.voters}}
	if next.term == saved.term {
		next.vote = saved.vote
	}
	if err := m.states.save(next); err != nil {
		return false, err
	}
	m.publish()
	return true, nil
}

// follow brings a leader's answer into the log of an observer.
func (m *machine) follow(f FetchedFromLeader) error {
	current, err := m.adoptLeader(f.Leader)
	if err != nil || !current {
		return err
	}
	if f.Diverging != nil {
		return m.followTruncate(*f.Diverging)
	}
	if len(f.Records) > 0 {
		if err := m.checkFollowed(f.Records, f.Leader.Epoch); err != nil {
			return err
		}
		if err := m.appendFollowed(f.Records); err != nil {
			return err
		}
		m.followConfig()
		m.board.wake()
	}
	m.board.committed(f.HighWatermark)
	highWatermark := min(f.HighWatermark, m.storage.endOffset())
	if highWatermark <= m.board.load().highWatermark {
		return nil
	}
	m.applied = indexOf(highWatermark) - 1
	return m.committed(highWatermark)
}

// appendFollowed appends without a sync most of the time: what a crash takes is fetched again.
func (m *machine) appendFollowed(records []byte) error {
	if err := m.storage.appendUnsynced(records); err != nil {
		return err
	}
	if m.unsynced += len(records); m.unsynced < maxUnsyncedBytes/4 {
		return nil
	}
	m.unsynced = 0
	if err := m.storage.log.Flush(m.storage.endOffset()); err != nil {
		return fmt.Errorf("sync of the metadata log: %w", err)
	}
	return nil
}

// checkFollowed accepts whole batches that go on where the log ends.
func (m *machine) checkFollowed(records []byte, epoch int32) error {
	next, last := m.storage.endOffset(), int32(0)
	if known, ok := m.storage.log.LatestEpoch(); ok {
		last = known
	}
	for b, err := range record.Batches(records) {
		if err == nil {
			err = checkBatch(b)
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errBadAnswer, err)
		}
		if b.BaseOffset() != next || b.LeaderEpoch() < last || b.LeaderEpoch() > epoch {
			return fmt.Errorf("%w: batch at offset %d of epoch %d, expected offset %d, epoch %d to %d", errBadAnswer,
				b.BaseOffset(), b.LeaderEpoch(), next, last, epoch)
		}
		if b.IsControl() {
			if _, err := readControl(b); err != nil {
				return fmt.Errorf("%w: %w", errBadAnswer, err)
			}
		}
		next, last = b.NextOffset(), b.LeaderEpoch()
	}
	return nil
}

// followConfig lets an observer use the newest voter set of its log.
func (m *machine) followConfig() {
	newest := m.storage.history.last()
	if newest.offset != m.config.offset {
		m.setConfig(newest.config, newest.offset)
		m.publish()
	}
}

// followTruncate cuts the log to the largest end that both logs may have in common (KIP-595).
func (m *machine) followTruncate(d EpochEndOffset) error {
	if d.EndOffset < 0 || d.Epoch < 0 {
		return fmt.Errorf("%w: diverging epoch %d ends at %d", errBadAnswer, d.Epoch, d.EndOffset)
	}
	end := m.storage.endOfEpoch(d.Epoch)
	to := end.EndOffset
	if end.Epoch == d.Epoch {
		to = min(to, d.EndOffset)
	}
	if to < m.board.load().highWatermark {
		return fmt.Errorf("%w: the leader's log ends epoch %d at offset %d, below the high watermark %d", ErrLogLost,
			d.Epoch, to, m.board.load().highWatermark)
	}
	if err := m.storage.truncate(min(to, m.storage.endOffset())); err != nil {
		return err
	}
	m.followConfig()
	m.board.wake()
	return nil
}

// followSnapshot makes a downloaded snapshot the beginning of the log, unless the log has it all the same.
func (m *machine) followSnapshot(id SnapshotID) error {
	if m.rn != nil || id.Offset <= m.board.load().highWatermark {
		return nil
	}
	r, err := m.storage.snapshots.openSnapshot(id)
	if err != nil {
		return err
	}
	c := r.config(m.storage.base)
	if err := r.Close(); err != nil {
		return fmt.Errorf("snapshot %v: %w", id, err)
	}
	if err := m.storage.install(id, c); err != nil {
		return err
	}
	m.setConfig(c, -1)
	m.applied = indexOf(id.Offset) - 1
	return m.committed(id.Offset)
}
