package classic

import (
	"gregor/groupcoord/schema"
)

// groupRecordVersion of GroupMetadataValue, as Kafka 4.4 writes it.
const groupRecordVersion = 3

// record is the group as it is written. Members get their assignment from the
// map, or keep the one they have when it is nil.
func (g *Group) record(assignments map[string][]byte) schema.Record {
	value := schema.NewGroupMetadataValue()
	value.ProtocolType, value.Generation, value.Protocol = g.ProtocolType, g.Generation, g.protocol
	value.CurrentStateTimestamp = g.stateSince
	value.Leader = nil
	if g.leader != "" {
		leader := g.leader
		value.Leader = &leader
	}
	value.Members = make([]schema.GroupMetadataMember, 0, len(g.order))
	for _, m := range g.order {
		assignment := m.Assignment
		if assignments != nil {
			assignment = assignments[m.ID]
		}
		value.Members = append(value.Members, schema.GroupMetadataMember{
			MemberID: m.ID, GroupInstanceID: m.InstanceID, ClientID: m.ClientID, ClientHost: m.ClientHost,
			RebalanceTimeout: m.RebalanceTimeoutMillis, SessionTimeout: m.SessionTimeoutMillis,
			Subscription: orEmpty(m.Metadata(g.protocol)), Assignment: orEmpty(assignment),
		})
	}
	return schema.Record{Key: &schema.GroupMetadataKey{Group: g.ID}, Value: value, Version: groupRecordVersion}
}

func orEmpty(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// emptyRecord is the first record of a group.
func emptyRecord(g *Group) schema.Record {
	value := schema.NewGroupMetadataValue()
	value.Protocol, value.Leader = nil, nil
	value.Members = []schema.GroupMetadataMember{}
	value.CurrentStateTimestamp = g.stateSince
	return schema.Record{Key: &schema.GroupMetadataKey{Group: g.ID}, Value: value, Version: groupRecordVersion}
}

// Tombstone deletes the group.
func Tombstone(groupID string) schema.Record {
	return schema.Tombstone(&schema.GroupMetadataKey{Group: groupID})
}

// FromRecord makes the group that a record describes. What contradicts itself
// in a foreign record is tolerated: the members will time out.
func FromRecord(groupID string, v *schema.GroupMetadataValue) *Group {
	state := Stable
	if len(v.Members) == 0 {
		state = Empty
	}
	g := newGroup(groupID, state, v.CurrentStateTimestamp)
	g.Generation, g.ProtocolType, g.protocol = v.Generation, v.ProtocolType, v.Protocol
	if v.Leader != nil {
		g.leader = *v.Leader
	}
	protocol := ""
	if v.Protocol != nil {
		protocol = *v.Protocol
	}
	for i := range v.Members {
		r := &v.Members[i]
		if g.members[r.MemberID] != nil {
			continue
		}
		m := &Member{
			ID: r.MemberID, InstanceID: r.GroupInstanceID, ClientID: r.ClientID, ClientHost: r.ClientHost,
			ProtocolType: v.ProtocolType, Assignment: r.Assignment,
			terms: terms{
				Protocols:              []Protocol{{Name: protocol, Metadata: r.Subscription}},
				RebalanceTimeoutMillis: r.RebalanceTimeout, SessionTimeoutMillis: r.SessionTimeout,
			},
		}
		if m.RebalanceTimeoutMillis == -1 {
			m.RebalanceTimeoutMillis = m.SessionTimeoutMillis
		}
		if m.InstanceID != nil {
			if _, taken := g.static[*m.InstanceID]; taken {
				m.InstanceID = nil
			}
		}
		g.add(m, nil)
	}
	if len(g.members) > 0 && g.members[g.leader] == nil {
		g.leader = g.order[0].ID
	}
	g.subscribed = g.subscribedTopics()
	return g
}
