package quorum

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"
)

// maintain does what need not be done at once: the leader's id goes to quorum-state, old snapshots and the log before
// them are deleted. What there is no space for is done another time.
func (m *machine) maintain(now time.Time) error {
	return m.storage.full.putOff(m.tidy(now))
}

func (m *machine) tidy(now time.Time) error {
	if err := m.states.flush(); err != nil {
		return err
	}
	if err := m.storage.snapshots.removeDoomed(now); err != nil {
		return err
	}
	if newest, ok := m.storage.snapshots.latest(); ok {
		m.storage.history.compact(newest.Offset)
	}
	if err := m.storage.clean(m.o.Log, now); err != nil {
		return err
	}
	if _, err := m.storage.log.DeleteOldSegments(now); err != nil {
		return fmt.Errorf("old segments of the metadata log: %w", err)
	}
	return nil
}

// clean deletes snapshots, and the log before the next one, while they are too old or all together too large. The
// newest snapshot stays, and all of the log after it.
func (s *raftStorage) clean(o LogOptions, now time.Time) error {
	ids := s.snapshots.list()
	snapshotBytes := int64(0)
	for _, id := range ids {
		snapshotBytes += s.snapshots.sizeOf(id)
	}
	for i := 0; i+1 < len(ids); i++ {
		tooLarge := o.RetentionBytes >= 0 && s.log.State().SizeBytes+snapshotBytes > o.RetentionBytes
		tooOld := false
		if !tooLarge && o.RetentionMillis >= 0 {
			last, err := s.lastContainedMillis(ids[i])
			if err != nil {
				return err
			}
			tooOld = now.UnixMilli()-last > o.RetentionMillis
		}
		if !tooLarge && !tooOld {
			return nil
		}
		snapshotBytes -= s.snapshots.sizeOf(ids[i])
		if err := s.deleteBefore(ids[i+1], now); err != nil {
			return err
		}
	}
	return nil
}

func (s *raftStorage) lastContainedMillis(id SnapshotID) (int64, error) {
	r, err := s.snapshots.openSnapshot(id)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return r.LastContainedLogTimestampMillis(), r.Close()
}

// deleteBefore makes the log begin at a snapshot.
func (s *raftStorage) deleteBefore(id SnapshotID, now time.Time) error {
	if _, err := s.log.IncrementLogStartOffset(id.Offset); err != nil {
		return fmt.Errorf("log start %d of the metadata log: %w", id.Offset, err)
	}
	if err := s.beginAt(id, now); err != nil {
		return err
	}
	if _, err := s.log.DeleteOldSegments(now); err != nil {
		return fmt.Errorf("segments of the metadata log before offset %d: %w", id.Offset, err)
	}
	return nil
}

// handOver begins to transfer leadership to the follower that has most of the log. false: there is none, or this
// node does not lead.
func (m *machine) handOver() (bool, error) {
	if !m.lead.opened || m.lead.handing {
		return m.lead.handing, nil
	}
	best, match := raft.None, uint64(0)
	m.rn.WithProgress(func(id uint64, t raft.ProgressType, p tracker.Progress) {
		if id != raftID(m.o.NodeID) && t == raft.ProgressTypePeer && p.RecentActive && p.Match >= match {
			best, match = id, p.Match
		}
	})
	if best == raft.None {
		return false, nil
	}
	if err := m.drain(); err != nil || !m.lead.opened {
		return false, err
	}
	// Raft drops proposals from now on; whoever makes some learns at once that this node leads no more.
	m.lead.handing = true
	m.acc.close()
	err := guard(func() error {
		m.rn.TransferLeader(best)
		return m.ready()
	})
	return m.lead.handing, err
}

// close gives the files back. What was promised is on disk already.
func (m *machine) close() error {
	m.dropFetch()
	return errors.Join(m.states.flush(), m.storage.log.Close())
}
