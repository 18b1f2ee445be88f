package quorum

import (
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// receive takes a message of another controller. A message that is wrong in itself is an error that leaves the node
// as it was (malformed reports true); any other error is the end of the node.
func (m *machine) receive(msg []byte) (malformed bool, err error) {
	e, s := parseEnvelope(msg)
	if s.err != nil {
		return true, fmt.Errorf("%w: message of a controller: %w", ErrCorrupt, s.err)
	}
	if err := m.checkAddress(e); err != nil {
		return true, err
	}
	switch e.kind {
	case kindRaft:
		return m.receiveRaft(e, s)
	case kindChunkRequest, kindChunk:
		c, err := s.chunk(e.kind == kindChunkRequest)
		if err != nil {
			return true, fmt.Errorf("%w: message of node %d: %w", ErrCorrupt, e.from.ID, err)
		}
		if e.kind == kindChunkRequest {
			return false, m.serveChunk(e.from, c)
		}
		return false, m.takeChunk(e.from, c)
	case kindNotVoter:
		leader, epoch := s.int32(), s.int32()
		if s.err != nil {
			return true, fmt.Errorf("%w: message of node %d: %w", ErrCorrupt, e.from.ID, s.err)
		}
		m.toldNoVoter(leader, epoch)
		return false, nil
	default:
		return true, fmt.Errorf("%w: message of kind %d", ErrCorrupt, e.kind)
	}
}

// checkAddress refuses messages of other clusters and those that are meant for, or come from, another disk than the
// one that votes under the node's name.
func (m *machine) checkAddress(e envelope) error {
	if e.clusterID != m.o.ClusterID {
		return fmt.Errorf("%w: cluster %q", ErrWrongPeer, e.clusterID)
	}
	if e.to.ID != m.o.NodeID || e.from.ID == m.o.NodeID || !sameDirectory(e.to.DirectoryID, m.o.DirectoryID) {
		return fmt.Errorf("%w: from %v to %v", ErrWrongPeer, e.from, e.to)
	}
	return nil
}

// fromLeader tells whether only an elected leader sends such a message. It proves that a majority knows the sender
// under its directory id, whatever this node's voter set says.
func fromLeader(t raftpb.MessageType) bool {
	switch t {
	case raftpb.MsgApp, raftpb.MsgHeartbeat, raftpb.MsgSnap, raftpb.MsgTimeoutNow:
		return true
	default:
		return false
	}
}

func (m *machine) receiveRaft(e envelope, s *scanner) (malformed bool, err error) {
	msg, offer, err := parseRaft(e, s)
	if err != nil {
		return true, fmt.Errorf("%w: raft message of node %d: %w", ErrCorrupt, e.from.ID, err)
	}
	if voter, ok := m.config.voters.Get(e.from.ID); ok && !sameDirectory(voter.Key.DirectoryID, e.from.DirectoryID) && !fromLeader(msg.GetType()) {
		return true, fmt.Errorf("%w: %v, voter is %v", ErrWrongPeer, e.from, voter.Key)
	}
	m.replica.noteDirectory(e.from)
	if m.rn == nil {
		if !m.addressedAsVoter(e, msg) {
			return false, nil
		}
		if err := m.startRaft(); err != nil {
			return false, err
		}
	}
	switch msg.GetType() {
	case raftpb.MsgApp, raftpb.MsgHeartbeat, raftpb.MsgSnap:
		m.lonelyTicks = 0
	case raftpb.MsgVoteResp:
		if !msg.GetReject() && msg.GetTerm() == m.lead.term {
			m.lead.grants[msg.GetFrom()] = true
		}
	case raftpb.MsgPreVote, raftpb.MsgVote:
		if m.refuseStranger(e) {
			return false, nil
		}
	}
	if offer != nil {
		return false, m.offered(e.from, msg, *offer)
	}
	if err := m.step(msg); err != nil {
		return false, err
	}
	m.noteProgress(msg)
	return false, nil
}

// addressedAsVoter tells whether a message makes a voter of an observer: its sender counts this very directory among
// the voters.
func (m *machine) addressedAsVoter(e envelope, msg *raftpb.Message) bool {
	if m.o.Observer || isResponse(msg) || msg.GetType() == raftpb.MsgTimeoutNow || msg.GetTerm() < m.states.hardState().term {
		return false
	}
	return e.to.DirectoryID == m.o.DirectoryID && !e.to.DirectoryID.IsZero()
}

// refuseStranger answers a candidate that is no voter any more while there is a leader: it missed its own removal,
// and nobody else will tell it.
func (m *machine) refuseStranger(e envelope) bool {
	if m.seen.lead == raft.None || m.config.voters.Contains(e.from) || m.storage.history.last().config.voters.Contains(e.from) {
		return false
	}
	body := encodeEnvelope(m.envelope(kindNotVoter, e.from))
	m.send(m.peer(e.from), appendInt32s(body, nodeID(m.seen.lead), epochOf(m.seen.term)))
	return true
}

// toldNoVoter makes an observer of a node that campaigns although a later voter set lacks it. Should the sender have
// been behind, the leader's next message makes it a voter again.
func (m *machine) toldNoVoter(leader, epoch int32) {
	if m.rn == nil || m.seen.lead != raft.None || uint64(max(epoch, 0)) < m.seen.term {
		return
	}
	m.o.Logger.Info("metadata quorum: told that this node is no voter", "leader", leader, "epoch", epoch)
	m.stopRaft()
}

// envelope addresses a message.
func (m *machine) envelope(kind messageKind, to ReplicaKey) envelope {
	return envelope{kind: kind, clusterID: m.o.ClusterID, from: m.self(), to: to}
}

// peer finds the endpoints of a replica.
func (m *machine) peer(k ReplicaKey) Peer {
	p := Peer{ID: k.ID, DirectoryID: k.DirectoryID}
	for _, voters := range []VoterSet{m.config.voters, m.storage.history.last().config.voters} {
		if v, ok := voters.Get(k.ID); ok && sameDirectory(v.Key.DirectoryID, k.DirectoryID) {
			p.DirectoryID, p.Endpoints = v.Key.DirectoryID, v.Endpoints
		}
	}
	return p
}

// keyOf finds the directory of a raft id: that of the voter set, or what the node last said of itself.
func (m *machine) keyOf(id uint64) ReplicaKey {
	if v, ok := m.config.voters.Get(nodeID(id)); ok && !v.Key.DirectoryID.IsZero() {
		return v.Key
	}
	if v, ok := m.storage.history.last().config.voters.Get(nodeID(id)); ok && !v.Key.DirectoryID.IsZero() {
		return v.Key
	}
	return ReplicaKey{ID: nodeID(id), DirectoryID: m.replica.directory(nodeID(id))}
}

// sendAll sends raft's messages.
func (m *machine) sendAll(messages []*raftpb.Message) error {
	for _, msg := range messages {
		to := m.keyOf(msg.GetTo())
		out := appendRaft(encodeEnvelope(m.envelope(kindRaft, to)), msg)
		switch msg.GetType() {
		case raftpb.MsgApp:
			var err error
			if out, err = appendBatches(out, msg.GetEntries(), m.leaderChange); err != nil {
				return err
			}
		case raftpb.MsgSnap:
			meta := msg.GetSnapshot().GetMetadata()
			id := SnapshotID{Offset: offsetOf(meta.GetIndex()) + 1, Epoch: epochOf(meta.GetTerm())}
			out = appendInt64(appendSnapshotID(out, id), m.storage.snapshots.sizeOf(id))
			m.uploads[msg.GetTo()] = &upload{id: id}
		}
		m.send(m.peer(to), out)
	}
	return nil
}
