package quorum

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"gregor/internal/invariants"
	"gregor/protocol/record"
)

const (
	// maxMessageBytes is how much of the log one raft message carries, but for a batch that is larger.
	maxMessageBytes = 1 << 20
	// maxInflightMessages is how many of them are on the way to one follower.
	maxInflightMessages = 64
	// maxInflightBytes is how much of the log is on the way to one follower.
	maxInflightBytes = 16 << 20
)

// machine is the deterministic part of a node: raft over the log. One goroutine calls it. After an error it must not
// be called again: the disk is lost, or raft found that the log lost entries.
//
// Invariant: outside of its methods raft has no Ready left; all it decided is on disk and sent.
type machine struct {
	o       *Options
	storage *raftStorage
	states  *stateFile
	board   *board
	acc     *accumulator
	replica *replicaTracker
	send    func(to Peer, msg []byte)

	rn      *raft.RawNode // nil while an observer
	seen    raftView
	config  activeConfig
	lead    leadership
	applied uint64 // index up to which entries are committed and dealt with
	fetch   snapshotFetch
	uploads map[uint64]*upload // by raft id of a voter that was told to take a snapshot
	// lonelyTicks counts ticks without a leader's message while this node is no voter of its own config.
	lonelyTicks int
	removed     bool // the config in force has lost this node
	unsynced    int  // bytes that an observer appended since the last sync
}

// raftView is what was last seen of raft's state.
type raftView struct {
	term uint64
	lead uint64
	role raft.StateType
}

// activeConfig is the voter set in force.
type activeConfig struct {
	voters VoterSet
	level  int16
	// offset is that of the newest config that was put in force; what lies at or below needs no applying.
	offset int64
	// raft's idea of it
	ids     map[uint64]bool
	pending int64 // offset of the newest voter change of this leader, -1 for none
}

// leadership is what only a leader, or a candidate, has.
type leadership struct {
	grants  map[uint64]bool // who voted for this node in the term it campaigned for
	term    uint64
	first   record.Batch // the LeaderChange batch of the term
	index   uint64       // its index
	opened  bool         // proposals are taken
	started bool         // index and first are set
	handing bool         // leadership is being handed over
}

// raftPanic is what the raft library panics with through its logger.
type raftPanic string

// guard runs a call into raft. Its panics say that the storage failed or lost entries: a failure of this node, not of
// the program. Everything else is a programmer error and goes on.
func guard(call func() error) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case raftPanic:
			err = fmt.Errorf("%w: %s", ErrLogLost, string(p))
		case runtime.Error:
			panic(p)
		case error:
			err = p
		default:
			panic(p)
		}
	}()
	return call()
}

// startRaft makes the node a voter, on whatever the storage holds. It is also how a leader steps down.
func (m *machine) startRaft() error {
	m.closeLeadership()
	// What an observer copied need not be synced; what a voter acknowledges must be.
	if err := m.storage.log.Flush(m.storage.endOffset()); err != nil {
		return fmt.Errorf("sync of the metadata log: %w", err)
	}
	hs := m.states.hardState()
	m.applied = max(m.applied, indexOf(m.board.load().highWatermark)-1)
	m.storage.hardState = &raftpb.HardState{Term: new(hs.term), Vote: new(hs.vote), Commit: new(m.applied)}
	newest := m.storage.history.last()
	m.setConfig(newest.config, newest.offset)
	m.storage.confState = confStateOf(newest.config.voters, nil)
	return guard(func() error {
		rn, err := raft.NewRawNode(&raft.Config{
			ID: raftID(m.o.NodeID), ElectionTick: m.o.Timing.electionTicks(), HeartbeatTick: m.o.Timing.heartbeatTicks(),
			Storage: m.storage, Applied: m.applied, MaxSizePerMsg: maxMessageBytes, MaxCommittedSizePerReady: scanBytes,
			MaxInflightMsgs: maxInflightMessages, MaxInflightBytes: maxInflightBytes, CheckQuorum: true, PreVote: true, DisableProposalForwarding: true,
			// Voter changes are checked by proposeVoters, against the newest voter set instead of the applied one.
			DisableConfChangeValidation: true, StepDownOnRemoval: true, Logger: raftLogger{m.o.Logger},
		})
		if err != nil {
			return fmt.Errorf("raft: %w", err)
		}
		m.rn, m.seen, m.lonelyTicks, m.removed = rn, raftView{term: hs.term}, 0, false
		m.publish()
		if m.alone() {
			if err := rn.Campaign(); err != nil {
				return fmt.Errorf("raft: %w", err)
			}
		}
		return m.ready()
	})
}

// stopRaft makes the node an observer.
func (m *machine) stopRaft() {
	m.o.Logger.Info("metadata quorum: this node is no voter and follows as an observer")
	m.closeLeadership()
	m.dropFetch()
	m.rn = nil
	m.uploads = map[uint64]*upload{}
	m.publish()
}

func (m *machine) setConfig(c config, offset int64) {
	m.config.voters, m.config.level, m.config.offset = c.voters, c.level, offset
	m.config.ids = map[uint64]bool{}
	for _, id := range c.voters.IDs() {
		m.config.ids[raftID(id)] = true
	}
}

// self is this replica.
func (m *machine) self() ReplicaKey { return ReplicaKey{ID: m.o.NodeID, DirectoryID: m.o.DirectoryID} }

// alone tells whether this node is the only voter.
func (m *machine) alone() bool {
	return m.config.voters.Len() == 1 && m.config.voters.Contains(m.self())
}

// step hands a message to raft and does what follows from it. What raft does not want is dropped, as the network
// might have done.
func (m *machine) step(msg *raftpb.Message) error {
	return guard(func() error {
		if err := m.rn.Step(msg); err != nil {
			m.o.Logger.Debug("metadata quorum: raft dropped a message", "type", msg.GetType().String(), "error", err)
		}
		return m.ready()
	})
}

// ready does all that raft has decided.
func (m *machine) ready() error {
	for m.rn != nil && m.rn.HasReady() {
		rd := m.rn.Ready()
		if err := m.handle(&rd); err != nil {
			return err
		}
		m.rn.Advance(rd)
		if err := m.observe(); err != nil {
			return err
		}
		if m.removed {
			m.stopRaft()
		}
	}
	return nil
}

// handle brings one Ready to the disk, the network and the state machines, in the order that makes it safe: what was
// promised in a message is durable before the message leaves. Only a leader's MsgApp may overtake its own disk
// (Raft thesis, 10.2.1), as its own copy counts for nothing before it is synced.
func (m *machine) handle(rd *raft.Ready) error {
	batches, err := m.materialize(rd.Entries)
	if err != nil {
		return err
	}
	messages := rd.Messages
	voteChanged := !raft.IsEmptyHardState(rd.HardState) && m.states.differs(rd.HardState)
	if !voteChanged && len(batches) > 0 {
		if messages, err = m.sendEarly(messages); err != nil {
			return err
		}
	}
	if voteChanged {
		if err := m.saveHardState(rd.HardState); err != nil {
			return err
		}
	}
	if !raft.IsEmptySnap(rd.Snapshot) {
		if err := m.installed(rd.Snapshot); err != nil {
			return err
		}
	}
	if len(batches) > 0 {
		if err := m.append(batches); err != nil {
			return err
		}
	}
	if err := m.sendAll(messages); err != nil {
		return err
	}
	// Raft hands out what is committed in pieces; how much it is all in all, it says at once.
	if !raft.IsEmptyHardState(rd.HardState) {
		m.board.committed(offsetOf(rd.HardState.GetCommit()) + 1)
	}
	return m.apply(rd.CommittedEntries)
}

// materialize turns entries into the bytes of the log.
func (m *machine) materialize(entries []*raftpb.Entry) ([]byte, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	return appendBatches(nil, entries, m.leaderChange)
}

// leaderChange gives the batch of the empty entry with which this node starts to lead. It is built once, since the
// copies in messages and on disk must have the same timestamp.
func (m *machine) leaderChange(e *raftpb.Entry) (record.Batch, error) {
	l := &m.lead
	if l.started && l.index == e.GetIndex() && l.term == e.GetTerm() {
		return l.first, nil
	}
	if e.GetTerm() != l.term {
		return nil, fmt.Errorf("%w: empty entry at index %d of term %d, which this node does not lead", ErrCorrupt, e.GetIndex(), e.GetTerm())
	}
	var granting []int32
	for _, id := range m.config.voters.IDs() {
		if l.grants[raftID(id)] {
			granting = append(granting, id)
		}
	}
	b, err := leaderChangeBatch(m.o.NodeID, m.config.voters.IDs(), granting, time.Now().UnixMilli())
	if err != nil {
		return nil, err
	}
	l.first, l.index, l.started = b, e.GetIndex(), true
	return b, nil
}

func (m *machine) saveHardState(hs *raftpb.HardState) error {
	return m.storage.full.write("write of "+quorumStateFile, func() error {
		return m.states.save(quorumState{
			term: hs.GetTerm(), vote: hs.GetVote(), leader: nodeID(m.rn.BasicStatus().Lead),
			config: config{m.config.level, m.config.voters},
		})
	})
}

// append writes to the log. If that takes away the voter set this node started with, the one before it comes back
// into force.
func (m *machine) append(batches []byte) error {
	if err := m.storage.append(batches); err != nil {
		return err
	}
	if newest := m.storage.history.last(); newest.offset < m.config.offset {
		if err := m.switchVoters(newest); err != nil {
			return err
		}
	}
	m.board.wake()
	return nil
}

// sendEarly sends the leader's messages that need not wait for its disk, and returns the others.
func (m *machine) sendEarly(messages []*raftpb.Message) (later []*raftpb.Message, err error) {
	var now []*raftpb.Message
	for _, msg := range messages {
		if t := msg.GetType(); t == raftpb.MsgApp || t == raftpb.MsgHeartbeat {
			now = append(now, msg)
		} else {
			later = append(later, msg)
		}
	}
	return later, m.sendAll(now)
}

// installed makes the log begin at a snapshot that was received; its file is durable already.
func (m *machine) installed(snap *raftpb.Snapshot) error {
	meta := snap.GetMetadata()
	id := SnapshotID{Offset: offsetOf(meta.GetIndex()) + 1, Epoch: epochOf(meta.GetTerm())}
	r, err := m.storage.snapshots.openSnapshot(id)
	if err != nil {
		return err
	}
	c := r.config(m.storage.base)
	if err := r.Close(); err != nil {
		return err
	}
	if err := m.storage.install(id, c); err != nil {
		return err
	}
	m.setConfig(c, -1)
	m.config.pending = -1
	m.applied = meta.GetIndex()
	return m.committed(id.Offset)
}

// apply puts committed voter sets in force and publishes the high watermark.
func (m *machine) apply(entries []*raftpb.Entry) error {
	if len(entries) == 0 {
		return nil
	}
	highWatermark := int64(-1)
	for _, e := range entries {
		offset := offsetOf(e.GetIndex())
		if e.GetType() == raftpb.EntryConfChangeV2 && offset > m.config.offset {
			if err := m.switchVoters(m.storage.history.at(offset + 1)); err != nil {
				return err
			}
			m.config.offset = offset
		}
		// The high watermark stays at batch ends; raft may hand out a batch of Kafka's in two goes.
		if len(e.GetData()) > 0 || m.lead.started && m.lead.index == e.GetIndex() {
			highWatermark = offset + 1
		}
	}
	m.applied = entries[len(entries)-1].GetIndex()
	if highWatermark < 0 {
		return nil
	}
	return m.committed(highWatermark)
}

// committed publishes a new high watermark.
func (m *machine) committed(highWatermark int64) error {
	if _, err := m.storage.log.UpdateHighWatermark(highWatermark); err != nil {
		return fmt.Errorf("high watermark %d of the metadata log: %w", highWatermark, err)
	}
	m.acc.committed(highWatermark)
	s := *m.board.load()
	s.highWatermark = max(s.highWatermark, highWatermark)
	s.config = config{m.config.level, m.config.voters}
	m.board.publish(&s)
	return nil
}

// switchVoters puts a voter set in force, one voter at a time.
func (m *machine) switchVoters(to configPoint) error {
	if to.config.voters.Len() == 0 {
		return fmt.Errorf("%w: voter set at offset %d is empty", ErrCorrupt, to.offset)
	}
	want := map[uint64]bool{}
	for _, id := range to.config.voters.IDs() {
		want[raftID(id)] = true
		if !m.config.ids[raftID(id)] {
			m.rn.ApplyConfChange(confChange(raftpb.ConfChangeAddNode, raftID(id)))
		}
	}
	for id := range m.config.ids {
		if !want[id] {
			m.rn.ApplyConfChange(confChange(raftpb.ConfChangeRemoveNode, id))
			delete(m.uploads, id)
		}
	}
	m.o.Logger.Info("metadata quorum: voters", "voters", to.config.voters.String(), "offset", to.offset)
	m.removed = m.config.voters.Contains(m.self()) && !to.config.voters.Contains(m.self())
	m.setConfig(to.config, to.offset)
	return nil
}

func confChange(t raftpb.ConfChangeType, id uint64) *raftpb.ConfChangeV2 {
	return &raftpb.ConfChangeV2{Changes: []*raftpb.ConfChangeSingle{{Type: t.Enum(), NodeId: new(id)}}}
}

// observe notices changes of leader, term and role.
func (m *machine) observe() error {
	if m.rn == nil {
		return nil
	}
	st := m.rn.BasicStatus()
	now := raftView{term: st.GetTerm(), lead: st.Lead, role: st.RaftState}
	if now.role == raft.StateCandidate && m.lead.term != now.term {
		m.lead = leadership{term: now.term, grants: map[uint64]bool{raftID(m.o.NodeID): true}}
	}
	leads := now.role == raft.StateLeader && m.lead.started && m.lead.term == now.term
	if now == m.seen && leads == m.lead.opened {
		return nil
	}
	changed := now.term != m.seen.term || now.lead != m.seen.lead
	m.seen = now
	if changed {
		m.states.note(now.term, nodeID(now.lead), config{m.config.level, m.config.voters})
	}
	if m.lead.opened && !leads {
		m.closeLeadership()
	}
	m.publish()
	if leads && !m.lead.opened {
		return m.openLeadership()
	}
	return nil
}

// publish shows leader, role and voters to the others.
func (m *machine) publish() {
	s := *m.board.load()
	hs := m.states.hardState()
	s.following, s.epochStart = m.rn == nil, -1
	s.role, s.vote = m.roleName(), nodeID(hs.vote)
	if m.rn != nil {
		s.leader = LeaderAndEpoch{LeaderID: nodeID(m.seen.lead), Epoch: epochOf(m.seen.term)}
		if m.seen.role == raft.StateLeader && m.lead.started && m.lead.term == m.seen.term {
			s.epochStart = offsetOf(m.lead.index)
		} else if m.seen.role == raft.StateLeader {
			s.leader.LeaderID = NoLeader // until the first batch of the epoch is written
		}
	} else {
		s.leader = LeaderAndEpoch{LeaderID: hs.leader, Epoch: epochOf(hs.term)}
	}
	s.config = config{m.config.level, m.config.voters}
	m.board.publish(&s)
}

// openLeadership takes proposals from now on. In the first epoch of a quorum whose voters were given to the format
// command, they are written to the log first, so that those who have no bootstrap checkpoint learn them.
func (m *machine) openLeadership() error {
	m.lead.opened = true
	m.replica.reset()
	m.config.pending = -1
	epoch := epochOf(m.lead.term)
	m.acc.open(epoch, offsetOf(m.lead.index)+1)
	id, hasSnapshot := m.storage.snapshots.latest()
	newest := m.storage.history.last()
	if newest.config.level < 1 || newest.offset >= 0 || hasSnapshot && !id.IsBootstrap() {
		return nil
	}
	now := time.Now().UnixMilli()
	level, err := buildControl(record.BuilderOptions{}, now, kraftVersionRecord(newest.config.level))
	if err != nil {
		return err
	}
	voters, err := votersEntry(newest.config.voters, nil, now)
	if err != nil {
		return err
	}
	_, last, err := m.acc.add(epoch, []*raftpb.Entry{{Data: level}, voters})
	if err != nil {
		return err
	}
	m.config.pending = last
	return nil
}

func (m *machine) closeLeadership() {
	m.acc.close()
	m.lead.opened, m.lead.handing = false, false
	m.uploads = map[uint64]*upload{}
}

// maxRoundBytes is how much of the proposals is appended and synced at once.
const maxRoundBytes = 4 << 20

// drain gives queued proposals to raft: one append, one sync for all of them, unless they are very many.
func (m *machine) drain() error {
	for m.lead.opened {
		p := m.acc.take(maxRoundBytes)
		if len(p.entries) == 0 {
			return nil
		}
		if err := m.proposeRound(p); err != nil {
			return err
		}
	}
	return nil
}

func (m *machine) proposeRound(p proposals) error {
	invariants.Assertf(p.baseOffset == m.storage.endOffset(), "proposals at offset %d, log end %d", p.baseOffset, m.storage.endOffset())
	var dropped bool
	err := guard(func() error {
		err := m.rn.Step(&raftpb.Message{Type: raftpb.MsgProp.Enum(), From: new(raftID(m.o.NodeID)), Entries: p.entries})
		if errors.Is(err, raft.ErrProposalDropped) {
			dropped = true
			return nil
		}
		if err != nil {
			return err
		}
		return m.ready()
	})
	if err != nil || !dropped {
		return err
	}
	// Offsets were promised that will never be: lead no more, so that the callers learn it.
	m.o.Logger.Warn("metadata quorum: raft dropped proposals, stepping down", "epoch", p.epoch)
	return m.startRaft()
}

// tick counts time. Nobody needs to call it while needsTicks is false.
func (m *machine) tick() error {
	if m.rn == nil {
		return nil
	}
	err := guard(func() error {
		m.rn.Tick()
		return m.ready()
	})
	if err != nil || m.rn == nil {
		return err
	}
	if err := m.tickTransfers(); err != nil {
		return err
	}
	if err := m.storage.full.putOff(m.states.flush()); err != nil {
		return err
	}
	return m.tickLonely()
}

// tickLonely makes an observer of a node that is no voter of its config and hears of no leader.
func (m *machine) tickLonely() error {
	if m.config.voters.Contains(m.self()) {
		m.lonelyTicks = 0
		return nil
	}
	m.lonelyTicks++
	if m.lonelyTicks > 2*m.o.Timing.electionTicks() {
		m.stopRaft()
	}
	return nil
}

// needsTicks tells whether time matters: not to an observer, and not to a leader that is the only voter.
func (m *machine) needsTicks() bool {
	return m.rn != nil && (!m.alone() || m.seen.role != raft.StateLeader || len(m.uploads) > 0)
}
