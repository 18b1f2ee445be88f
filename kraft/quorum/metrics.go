package quorum

import (
	"go.etcd.io/raft/v3"
)

// Metrics are what Kafka's raft-metrics group shows of a node's state.
type Metrics struct {
	// CurrentState is Kafka's name of it: leader, candidate, prospective, follower, observer, or unattached while a
	// voter or an observer knows no leader.
	CurrentState  string
	CurrentLeader int32 // NoLeader when unknown
	CurrentVote   int32 // NoLeader when this node has not voted in the epoch
	CurrentEpoch  int32
	HighWatermark int64
	LogEndOffset  int64
	LogEndEpoch   int32
	Voters        int
	Observers     int // as the leader sees them
}

// Metrics returns a view of the node's state, taken without waiting for it.
func (n *Node) Metrics() Metrics {
	s := n.board.load()
	m := Metrics{
		CurrentState: s.role, CurrentLeader: s.leader.LeaderID, CurrentVote: s.vote, CurrentEpoch: s.leader.Epoch,
		HighWatermark: s.highWatermark, LogEndOffset: n.LogEndOffset(), Voters: s.config.voters.Len(),
	}
	m.LogEndEpoch, _ = n.machine.storage.log.LatestEpoch()
	if d, err := n.Describe(); err == nil {
		m.Observers = len(d.Observers)
	}
	return m
}

// roleName is Kafka's name of the node's role.
func (m *machine) roleName() string {
	leader := nodeID(m.seen.lead)
	if m.rn == nil {
		leader = m.states.hardState().leader
	}
	switch {
	case m.rn != nil && m.seen.role == raft.StateLeader:
		return "leader"
	case m.rn != nil && m.seen.role == raft.StateCandidate:
		return "candidate"
	case m.rn != nil && m.seen.role == raft.StatePreCandidate:
		return "prospective"
	case leader == NoLeader:
		return "unattached"
	case m.rn == nil:
		return "observer"
	default:
		return "follower"
	}
}
