package classic

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/groupcoord/schema"
	"gregor/internal/coordinator"
	"gregor/protocol"
)

var errRebalanceInProgress error = kerr.RebalanceInProgress

// Sync handles a SyncGroup; reply gets the answer, perhaps later.
func (m *Manager) Sync(g *Group, req *kmsg.SyncGroupRequest, reply func(*kmsg.SyncGroupResponse)) Effect {
	defer g.check()
	fail := func(err error) Effect {
		reply(&kmsg.SyncGroupResponse{ErrorCode: protocol.ErrorCode(err)})
		return Effect{}
	}
	if err := g.validateSync(req); err != nil {
		return fail(err)
	}
	switch g.state {
	case PreparingRebalance:
		return fail(errRebalanceInProgress)
	case CompletingRebalance:
		g.members[req.MemberID].sync = reply
		m.synced(g, req.MemberID)
		if g.leader == req.MemberID {
			return m.assign(g, req)
		}
	case Stable:
		m.synced(g, req.MemberID)
		reply(g.assigned(g.members[req.MemberID]))
	case Empty, Dead:
		return fail(kerr.UnknownMemberID)
	}
	return Effect{}
}

func (g *Group) validateSync(req *kmsg.SyncGroupRequest) error {
	if err := g.validateMember(req.MemberID, req.InstanceID); err != nil {
		return err
	}
	if req.Generation != g.Generation {
		return kerr.IllegalGeneration
	}
	if req.ProtocolType != nil && g.ProtocolType != "" && *req.ProtocolType != g.ProtocolType {
		return kerr.InconsistentGroupProtocol
	}
	if req.Protocol != nil && g.protocol != nil && *req.Protocol != *g.protocol {
		return kerr.InconsistentGroupProtocol
	}
	return nil
}

// synced takes note that a member asked for its assignment.
func (m *Manager) synced(g *Group, memberID string) {
	delete(g.pendingSync, memberID)
	if len(g.pendingSync) == 0 {
		m.timers.Cancel(syncKey(g.ID))
	}
}

// assigned is the answer to a member whose assignment is known.
func (g *Group) assigned(member *Member) *kmsg.SyncGroupResponse {
	resp := &kmsg.SyncGroupResponse{Protocol: g.protocol, MemberAssignment: member.Assignment}
	if g.ProtocolType != "" {
		protocolType := g.ProtocolType
		resp.ProtocolType = &protocolType
	}
	return resp
}

// assign takes the leader's assignment. It counts once it is written; until
// then the members wait.
func (m *Manager) assign(g *Group, req *kmsg.SyncGroupRequest) Effect {
	assignments := make(map[string][]byte, len(g.members))
	for _, a := range req.GroupAssignment {
		assignments[a.MemberID] = append([]byte{}, a.MemberAssignment...)
	}
	generation := g.Generation
	return Effect{
		Applied: true, Records: []schema.Record{g.record(assignments)},
		Done: func(err error) {
			// Meanwhile another rebalance may have begun; then this assignment
			// does not matter any more.
			if g.state != CompletingRebalance || g.Generation != generation {
				return
			}
			defer g.check()
			if err != nil {
				m.log.Warn("assignment not written", "group", g.ID, "generation", generation, "cause", err)
				m.resetAssignments(g, coordinator.ClientError(err))
				m.rebalanceOrComplete(g, "the assignment could not be written")
				return
			}
			for _, member := range g.order {
				member.Assignment = assignments[member.ID]
			}
			m.propagate(g, func(member *Member) *kmsg.SyncGroupResponse { return g.assigned(member) })
			g.transition(Stable)
			m.completed()
		},
	}
}

// resetAssignments forgets the assignments and gives the waiting members an
// error.
func (m *Manager) resetAssignments(g *Group, err error) {
	for _, member := range g.order {
		member.Assignment = nil
	}
	m.propagate(g, func(*Member) *kmsg.SyncGroupResponse {
		return &kmsg.SyncGroupResponse{ErrorCode: protocol.ErrorCode(err)}
	})
}

// propagate answers the members that wait for their assignment. Their sessions
// begin anew, because they were excused from heartbeats.
func (m *Manager) propagate(g *Group, answer func(*Member) *kmsg.SyncGroupResponse) {
	for _, member := range g.order {
		if g.answerSync(member, answer(member)) {
			m.expectHeartbeat(g, member)
		}
	}
}
