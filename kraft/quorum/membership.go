package quorum

import (
	"fmt"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"gregor/protocol/record"
)

// votersEntry makes the entry of a new voter set: a KRaftVoters batch as Kafka writes it, with raft's bytes in a
// tagged field, inside raft's conf change.
func votersEntry(voters VoterSet, changes []*raftpb.ConfChangeSingle, nowMillis int64) (*raftpb.Entry, error) {
	raftBytes, err := proto.MarshalOptions{Deterministic: true}.Marshal(&raftpb.ConfChangeV2{Changes: changes})
	if err != nil {
		return nil, fmt.Errorf("conf change: %w", err)
	}
	b, err := buildControl(record.BuilderOptions{}, nowMillis, votersRecord(voters, raftBytes))
	if err != nil {
		return nil, err
	}
	data, err := proto.Marshal(&raftpb.ConfChangeV2{Changes: changes, Context: b})
	if err != nil {
		return nil, fmt.Errorf("conf change: %w", err)
	}
	return &raftpb.Entry{Type: raftpb.EntryConfChangeV2.Enum(), Data: data}, nil
}

// mayReconfigure tells whether the voters may be changed: this node leads, has committed an entry of its epoch (the
// flaw of raft's single-server changes, found 2015) and no other change is on the way.
func (m *machine) mayReconfigure() error {
	s := m.board.load()
	if !m.lead.opened {
		return ErrNotLeader
	}
	if m.lead.handing || !s.leads() || m.config.pending >= s.highWatermark || m.storage.history.last().offset >= s.highWatermark {
		return ErrReconfigurationPending
	}
	return nil
}

// dynamic additionally wants a log in which the voters can be changed at all.
func (m *machine) dynamic() error {
	if err := m.mayReconfigure(); err != nil {
		return err
	}
	if m.config.level < 1 {
		return ErrStaticVoters
	}
	return nil
}

// proposeVoters queues a voter set that differs by the changes. It returns the offset to wait for.
func (m *machine) proposeVoters(voters VoterSet, changes []*raftpb.ConfChangeSingle, before ...*raftpb.Entry) (int64, error) {
	entry, err := votersEntry(voters, changes, time.Now().UnixMilli())
	if err != nil {
		return 0, err
	}
	_, last, err := m.acc.add(epochOf(m.lead.term), append(before, entry))
	if err != nil {
		return 0, err
	}
	m.config.pending = last
	return last, m.drain()
}

// addVoter proposes one more voter. It must be an observer that keeps up, or the quorum might be unable to commit.
func (m *machine) addVoter(v Voter) (int64, error) {
	if err := m.dynamic(); err != nil {
		return 0, err
	}
	switch {
	case v.Key.ID < 0 || v.Key.DirectoryID.IsZero() || len(v.Endpoints) == 0:
		return 0, fmt.Errorf("%w: voter %v with %d endpoints", ErrInvalidVoters, v.Key, len(v.Endpoints))
	case m.config.level < v.MinKRaftVersion || m.config.level > v.MaxKRaftVersion:
		return 0, fmt.Errorf("%w: voter %v supports kraft.version %d to %d, not %d", ErrInvalidVoters, v.Key,
			v.MinKRaftVersion, v.MaxKRaftVersion, m.config.level)
	}
	if old, ok := m.config.voters.Get(v.Key.ID); ok {
		return 0, fmt.Errorf("%w: %v", ErrDuplicateVoter, old.Key)
	}
	if !m.replica.caughtUp(v.Key, time.Now()) {
		return 0, fmt.Errorf("%w: %v", ErrNotCaughtUp, v.Key)
	}
	change := &raftpb.ConfChangeSingle{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: new(raftID(v.Key.ID))}
	return m.proposeVoters(m.config.voters.With(v), []*raftpb.ConfChangeSingle{change})
}

// removeVoter proposes one voter less, which may be this one.
func (m *machine) removeVoter(k ReplicaKey) (int64, error) {
	if err := m.dynamic(); err != nil {
		return 0, err
	}
	old, ok := m.config.voters.Get(k.ID)
	if !ok || old.Key != k {
		return 0, fmt.Errorf("%w: %v", ErrVoterNotFound, k)
	}
	if m.config.voters.Len() == 1 {
		return 0, fmt.Errorf("%w: %v is the only voter", ErrInvalidVoters, k)
	}
	change := &raftpb.ConfChangeSingle{Type: raftpb.ConfChangeRemoveNode.Enum(), NodeId: new(raftID(k.ID))}
	return m.proposeVoters(m.config.voters.Without(k.ID), []*raftpb.ConfChangeSingle{change})
}

// updateVoter proposes other endpoints or supported versions for a voter. Under kraft.version 0 nothing is written:
// the directory id is kept for the change to kraft.version 1.
func (m *machine) updateVoter(v Voter) (int64, error) {
	if err := m.mayReconfigure(); err != nil {
		return 0, err
	}
	old, ok := m.config.voters.Get(v.Key.ID)
	if !ok || m.config.level >= 1 && old.Key != v.Key {
		return 0, fmt.Errorf("%w: %v", ErrVoterNotFound, v.Key)
	}
	if len(v.Endpoints) == 0 || m.config.level < v.MinKRaftVersion || m.config.level > v.MaxKRaftVersion {
		return 0, fmt.Errorf("%w: voter %v with %d endpoints, kraft.version %d to %d, in use %d", ErrInvalidVoters, v.Key,
			len(v.Endpoints), v.MinKRaftVersion, v.MaxKRaftVersion, m.config.level)
	}
	if m.config.level < 1 {
		m.replica.noteVoter(v)
		return m.board.load().highWatermark - 1, nil
	}
	next := m.config.voters.With(v)
	if next.Equal(m.config.voters) {
		return m.board.load().highWatermark - 1, nil
	}
	return m.proposeVoters(next, nil)
}

// upgradeLevel goes from kraft.version 0 to 1: the voters, with the directory ids they told by UpdateVoter or in
// their messages, become part of the log.
func (m *machine) upgradeLevel(level int16) (int64, error) {
	if err := m.mayReconfigure(); err != nil {
		return 0, err
	}
	if level == m.config.level {
		return m.board.load().highWatermark - 1, nil
	}
	if level != 1 || m.config.level != 0 {
		return 0, fmt.Errorf("%w: from %d to %d", ErrInvalidKRaftVersion, m.config.level, level)
	}
	next := m.config.voters
	for _, v := range m.config.voters.All() {
		known, ok := m.replica.knownVoter(v)
		if v.Key.ID == m.o.NodeID {
			known.Key, ok = m.self(), true
		}
		if !ok || known.Key.DirectoryID.IsZero() || known.MaxKRaftVersion < level && v.Key.ID != m.o.NodeID {
			return 0, fmt.Errorf("%w: directory id and supported versions of voter %d are unknown or too low", ErrInvalidKRaftVersion, v.Key.ID)
		}
		known.MaxKRaftVersion = max(known.MaxKRaftVersion, level)
		next = next.With(known)
	}
	version, err := buildControl(record.BuilderOptions{}, time.Now().UnixMilli(), kraftVersionRecord(level))
	if err != nil {
		return 0, err
	}
	return m.proposeVoters(next, nil, &raftpb.Entry{Data: version})
}
