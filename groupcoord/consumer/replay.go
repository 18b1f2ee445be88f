package consumer

import (
	"gregor/groupcoord/assignor"
	"gregor/groupcoord/schema"
	"gregor/protocol"
)

// GroupOf returns the group of a record of this package.
func GroupOf(key schema.Key) (groupID string, ok bool) {
	switch k := key.(type) {
	case *schema.ConsumerGroupMetadataKey:
		return k.GroupID, true
	case *schema.ConsumerGroupPartitionMetadataKey:
		return k.GroupID, true
	case *schema.ConsumerGroupMemberMetadataKey:
		return k.GroupID, true
	case *schema.ConsumerGroupTargetAssignmentMetadataKey:
		return k.GroupID, true
	case *schema.ConsumerGroupTargetAssignmentMemberKey:
		return k.GroupID, true
	case *schema.ConsumerGroupCurrentMemberAssignmentKey:
		return k.GroupID, true
	case *schema.ConsumerGroupRegularExpressionKey:
		return k.GroupID, true
	}
	return "", false
}

// Replay applies a record of the group, in any order that compaction leaves. It
// reports whether the record deleted the group.
func (g *Group) Replay(rec schema.Record) (deleted bool) {
	switch key := rec.Key.(type) {
	case *schema.ConsumerGroupMetadataKey:
		value, ok := rec.Value.(*schema.ConsumerGroupMetadataValue)
		if !ok {
			return true
		}
		g.epoch.Set(value.Epoch)
		g.hash.Set(value.MetadataHash)
	case *schema.ConsumerGroupPartitionMetadataKey:
		g.oldMetadata.Set(rec.Value != nil)
	case *schema.ConsumerGroupMemberMetadataKey:
		value, _ := rec.Value.(*schema.ConsumerGroupMemberMetadataValue)
		g.replayMember(key.MemberID, value)
	case *schema.ConsumerGroupTargetAssignmentMetadataKey:
		value, ok := rec.Value.(*schema.ConsumerGroupTargetAssignmentMetadataValue)
		if !ok {
			value = &schema.ConsumerGroupTargetAssignmentMetadataValue{AssignmentEpoch: noEpoch}
		}
		g.assignmentEpoch.Set(value.AssignmentEpoch)
		g.assignmentMillis.Set(value.AssignmentTimestamp)
	case *schema.ConsumerGroupTargetAssignmentMemberKey:
		value, _ := rec.Value.(*schema.ConsumerGroupTargetAssignmentMemberValue)
		g.replayTarget(key.MemberID, value)
	case *schema.ConsumerGroupCurrentMemberAssignmentKey:
		value, _ := rec.Value.(*schema.ConsumerGroupCurrentMemberAssignmentValue)
		g.replayCurrent(key.MemberID, value)
	case *schema.ConsumerGroupRegularExpressionKey:
		value, ok := rec.Value.(*schema.ConsumerGroupRegularExpressionValue)
		if !ok {
			g.resolved.Delete(key.RegularExpression)
			return false
		}
		g.resolved.Set(key.RegularExpression, Resolved{Topics: sortedSet(value.Topics), Version: value.Version, Millis: value.Timestamp})
	}
	return false
}

// orNew returns a member, a new one where there is none yet: its records may
// come in any order.
func (g *Group) orNew(id string) *Member {
	if m := g.Member(id); m != nil {
		return m
	}
	return newMember(id)
}

func (g *Group) replayMember(id string, v *schema.ConsumerGroupMemberMetadataValue) {
	if v == nil {
		g.removeMember(id)
		return
	}
	g.setMember(g.orNew(id).with(func(m *Member) {
		m.InstanceID, m.RackID, m.ClientID, m.ClientHost = v.InstanceID, v.RackID, v.ClientID, v.ClientHost
		m.Topics, m.Regex = sortedSet(v.SubscribedTopicNames), ""
		if v.SubscribedTopicRegex != nil {
			m.Regex = *v.SubscribedTopicRegex
		}
		m.RebalanceTimeoutMillis, m.Assignor, m.Classic = v.RebalanceTimeoutMs, v.ServerAssignor, v.ClassicMemberMetadata
	}))
}

func (g *Group) replayTarget(memberID string, v *schema.ConsumerGroupTargetAssignmentMemberValue) {
	if v == nil {
		g.target.Delete(memberID)
		return
	}
	a := make(assignor.Assignment, 0, len(v.TopicPartitions))
	places := make(map[protocol.UUID]int, len(v.TopicPartitions))
	for i := range v.TopicPartitions {
		tp := assignor.TopicPartitions{Topic: v.TopicPartitions[i].TopicID, Partitions: v.TopicPartitions[i].Partitions}
		if at, twice := places[tp.Topic]; twice {
			a[at] = tp
			continue
		}
		places[tp.Topic] = len(a)
		a = append(a, tp)
	}
	g.target.Set(memberID, a)
}

func (g *Group) replayCurrent(memberID string, v *schema.ConsumerGroupCurrentMemberAssignmentValue) {
	if v == nil {
		if m := g.Member(memberID); m != nil {
			g.setMember(m.with(func(m *Member) {
				m.Epoch, m.PreviousEpoch, m.Assigned, m.Revoking = leaveEpoch, leaveEpoch, nil, nil
			}))
		}
		return
	}
	g.setMember(g.orNew(memberID).with(func(m *Member) {
		m.Epoch, m.PreviousEpoch, m.State = v.MemberEpoch, v.PreviousMemberEpoch, State(v.State)
		if m.State < StableState || m.State > UnreleasedPartitions {
			m.State = UnknownState
		}
		m.Assigned, m.Revoking = ownedFrom(v.AssignedPartitions, v.MemberEpoch), ownedFrom(v.PartitionsPendingRevocation, v.MemberEpoch)
	}))
}
