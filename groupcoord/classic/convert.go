package classic

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/groupcoord/schema"
	"gregor/protocol"
)

// Upgraded answers everybody who waits in a group that becomes a consumer group:
// they have to join again.
func (m *Manager) Upgraded(g *Group) {
	code := protocol.ErrorCode(errRebalanceInProgress)
	for _, member := range g.order {
		g.answerJoin(member, &kmsg.JoinGroupResponse{MemberID: member.ID, Generation: -1, ErrorCode: code})
		g.answerSync(member, &kmsg.SyncGroupResponse{ErrorCode: code})
		m.timers.Cancel(heartbeatKey(g.ID, member.ID))
	}
	m.Deleted(g)
}

// Former is a member of a consumer group that becomes a classic one.
type Former struct {
	ID, ClientID, ClientHost string
	InstanceID               *string
	RebalanceTimeoutMillis   int32
	SessionTimeoutMillis     int32
	Protocols                []Protocol
	Assignment               []byte
}

// Downgraded makes a stable classic group of what was a consumer group, and
// returns its record. With rebalance the members have to join again.
func (m *Manager) Downgraded(id string, generation int32, members []Former, rebalance bool, why string) (*Group, schema.Record) {
	g := NewGroup(id)
	g.state, g.Generation, g.ProtocolType = Stable, generation, ConsumerProtocolType
	for i := range members {
		f := &members[i]
		g.add(&Member{
			ID: f.ID, InstanceID: f.InstanceID, ClientID: f.ClientID, ClientHost: f.ClientHost, ProtocolType: ConsumerProtocolType,
			Assignment: f.Assignment,
			terms: terms{
				Protocols: f.Protocols, RebalanceTimeoutMillis: f.RebalanceTimeoutMillis, SessionTimeoutMillis: f.SessionTimeoutMillis,
			},
		}, nil)
	}
	selected := g.selectProtocol()
	g.protocol = &selected
	g.subscribed = g.subscribedTopics()
	record := g.record(nil)
	for _, member := range g.order {
		m.expectHeartbeat(g, member)
	}
	if rebalance {
		m.prepareRebalance(g, why)
	}
	g.check()
	return g, record
}
