package consumer

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/groupcoord/schema"
)

// Leave handles the heartbeat of a member that leaves.
func (m *Manager) Leave(g *Group, req *kmsg.ConsumerGroupHeartbeatRequest) (*kmsg.ConsumerGroupHeartbeatResponse, Effect, error) {
	resp := req.ResponseKind().(*kmsg.ConsumerGroupHeartbeatResponse)
	memberID := req.MemberID
	resp.MemberID, resp.MemberEpoch = &memberID, req.MemberEpoch
	member := g.Member(memberID)
	if req.InstanceID == nil {
		if member == nil {
			return nil, Effect{}, unknownMember(g, memberID)
		}
	} else {
		member = g.StaticMember(*req.InstanceID)
		if err := checkStatic(member, memberID, *req.InstanceID); err != nil {
			return nil, Effect{}, err
		}
		if req.MemberEpoch == leaveStaticEpoch {
			m.Logger.Info("static member left for a while", "group", g.ID, "member", memberID)
			return resp, Effect{Records: []schema.Record{currentRecord(g.ID, away(member))}}, nil
		}
	}
	m.Logger.Info("member left", "group", g.ID, "member", memberID)
	effect, err := m.remove(g, []*Member{member})
	return resp, effect, err
}

// away is a static member that is expected back: it keeps what it has until its
// session ends.
func away(member *Member) *Member {
	return member.with(func(n *Member) {
		n.Epoch, n.Revoking = leaveStaticEpoch, nil
		assigned := make(Owned, len(n.Assigned))
		for topic, partitions := range n.Assigned {
			for index := range partitions {
				put(assigned, topic, index, 0)
			}
		}
		n.Assigned = assigned
	})
}
