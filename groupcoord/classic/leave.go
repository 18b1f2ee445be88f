package classic

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/protocol"
)

// Heartbeat handles a Heartbeat and returns its error.
func (m *Manager) Heartbeat(g *Group, req *kmsg.HeartbeatRequest) error {
	if err := g.validateMember(req.MemberID, req.InstanceID); err != nil {
		return err
	}
	if req.Generation != g.Generation {
		return kerr.IllegalGeneration
	}
	switch g.state {
	case PreparingRebalance:
		m.expectHeartbeat(g, g.members[req.MemberID])
		return kerr.RebalanceInProgress
	case CompletingRebalance, Stable:
		// Members may send heartbeats before they have their assignment.
		m.expectHeartbeat(g, g.members[req.MemberID])
		return nil
	case Empty, Dead:
	}
	return kerr.UnknownMemberID
}

// Leave handles a LeaveGroup. Members may leave by instance id alone: that is
// how an administrator removes them (KIP-345).
func (m *Manager) Leave(g *Group, members []kmsg.LeaveGroupRequestMember) ([]kmsg.LeaveGroupResponseMember, Effect) {
	defer g.check()
	out := make([]kmsg.LeaveGroupResponseMember, 0, len(members))
	left := false
	for i := range members {
		answer := kmsg.NewLeaveGroupResponseMember()
		answer.MemberID, answer.InstanceID = members[i].MemberID, members[i].InstanceID
		if err := m.leave(g, &members[i]); err != nil {
			answer.ErrorCode = protocol.ErrorCode(err)
		} else {
			left = true
		}
		out = append(out, answer)
	}
	if !left {
		return out, Effect{}
	}
	switch g.state {
	case Stable, CompletingRebalance:
		return out, m.rebalanceOrComplete(g, "members left")
	case PreparingRebalance:
		return out, m.maybeCompleteJoin(g)
	case Empty, Dead:
	}
	return out, Effect{}
}

func (m *Manager) leave(g *Group, who *kmsg.LeaveGroupRequestMember) error {
	id := who.MemberID
	if id == "" {
		var ok bool
		if who.InstanceID == nil {
			return kerr.UnknownMemberID
		}
		if id, ok = g.static[*who.InstanceID]; !ok {
			return kerr.UnknownMemberID
		}
	} else if _, pending := g.pendingJoin[id]; pending {
		g.remove(id)
		m.timers.Cancel(heartbeatKey(g.ID, id))
		return nil
	} else if err := g.validateMember(id, who.InstanceID); err != nil {
		return err
	}
	reason := "not provided"
	if who.Reason != nil {
		reason = *who.Reason
	}
	m.log.Info("member left", "group", g.ID, "member", id, "clientReason", reason)
	m.timers.Cancel(heartbeatKey(g.ID, id))
	// A JoinGroup that still waits gets an unknown id, so that its client joins
	// again if it is alive.
	g.answerJoin(g.members[id], joinError("", kerr.UnknownMemberID))
	g.answerSync(g.members[id], &kmsg.SyncGroupResponse{ErrorCode: kerr.UnknownMemberID.Code})
	g.remove(id)
	return nil
}
