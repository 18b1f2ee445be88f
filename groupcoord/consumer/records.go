package consumer

import (
	"maps"
	"slices"

	"gregor/groupcoord/assignor"
	"gregor/groupcoord/schema"
	"gregor/protocol"
)

func memberRecord(groupID string, m *Member) schema.Record {
	value := schema.NewConsumerGroupMemberMetadataValue()
	value.InstanceID, value.RackID = m.InstanceID, m.RackID
	value.ClientID, value.ClientHost = m.ClientID, m.ClientHost
	value.SubscribedTopicNames = orEmpty(m.Topics)
	regex := m.Regex
	value.SubscribedTopicRegex = &regex
	value.RebalanceTimeoutMs, value.ServerAssignor, value.ClassicMemberMetadata = m.RebalanceTimeoutMillis, m.Assignor, m.Classic
	return schema.Record{Key: &schema.ConsumerGroupMemberMetadataKey{GroupID: groupID, MemberID: m.ID}, Value: value}
}

func memberTombstone(groupID, memberID string) schema.Record {
	return schema.Tombstone(&schema.ConsumerGroupMemberMetadataKey{GroupID: groupID, MemberID: memberID})
}

func epochRecord(groupID string, epoch int32, hash int64) schema.Record {
	value := schema.NewConsumerGroupMetadataValue()
	value.Epoch, value.MetadataHash = epoch, hash
	return schema.Record{Key: &schema.ConsumerGroupMetadataKey{GroupID: groupID}, Value: value}
}

func oldMetadataTombstone(groupID string) schema.Record {
	return schema.Tombstone(&schema.ConsumerGroupPartitionMetadataKey{GroupID: groupID})
}

// targetRecord writes a target in its order, which matters to the next one.
func targetRecord(groupID, memberID string, a assignor.Assignment) schema.Record {
	value := schema.NewConsumerGroupTargetAssignmentMemberValue()
	value.TopicPartitions = make([]schema.ConsumerGroupTargetTopicPartitions, 0, len(a))
	for _, tp := range a {
		value.TopicPartitions = append(value.TopicPartitions, schema.ConsumerGroupTargetTopicPartitions{TopicID: tp.Topic, Partitions: tp.Partitions})
	}
	return schema.Record{Key: &schema.ConsumerGroupTargetAssignmentMemberKey{GroupID: groupID, MemberID: memberID}, Value: value}
}

func targetTombstone(groupID, memberID string) schema.Record {
	return schema.Tombstone(&schema.ConsumerGroupTargetAssignmentMemberKey{GroupID: groupID, MemberID: memberID})
}

func targetEpochRecord(groupID string, epoch int32, millis int64) schema.Record {
	value := schema.NewConsumerGroupTargetAssignmentMetadataValue()
	value.AssignmentEpoch, value.AssignmentTimestamp = epoch, millis
	return schema.Record{Key: &schema.ConsumerGroupTargetAssignmentMetadataKey{GroupID: groupID}, Value: value}
}

func targetEpochTombstone(groupID string) schema.Record {
	return schema.Tombstone(&schema.ConsumerGroupTargetAssignmentMetadataKey{GroupID: groupID})
}

func currentRecord(groupID string, m *Member) schema.Record {
	value := schema.NewConsumerGroupCurrentMemberAssignmentValue()
	value.MemberEpoch, value.PreviousMemberEpoch, value.State = m.Epoch, m.PreviousEpoch, int8(m.State)
	value.AssignedPartitions, value.PartitionsPendingRevocation = ownedValue(m.Assigned), ownedValue(m.Revoking)
	return schema.Record{Key: &schema.ConsumerGroupCurrentMemberAssignmentKey{GroupID: groupID, MemberID: m.ID}, Value: value}
}

func currentTombstone(groupID, memberID string) schema.Record {
	return schema.Tombstone(&schema.ConsumerGroupCurrentMemberAssignmentKey{GroupID: groupID, MemberID: memberID})
}

func ownedValue(o Owned) []schema.ConsumerGroupCurrentTopicPartitions {
	out := make([]schema.ConsumerGroupCurrentTopicPartitions, 0, len(o))
	for _, topic := range sortedIDs(o) {
		tp := schema.ConsumerGroupCurrentTopicPartitions{TopicID: topic, Partitions: slices.Sorted(maps.Keys(o[topic]))}
		tp.AssignmentEpochs = make([]int32, 0, len(tp.Partitions))
		for _, index := range tp.Partitions {
			tp.AssignmentEpochs = append(tp.AssignmentEpochs, o[topic][index])
		}
		out = append(out, tp)
	}
	return out
}

// ownedFrom reads owned partitions. Records of before Kafka 4.4 have no epochs:
// the member's counts then.
func ownedFrom(tps []schema.ConsumerGroupCurrentTopicPartitions, memberEpoch int32) Owned {
	out := make(Owned, len(tps))
	for i := range tps {
		partitions := make(map[int32]int32, len(tps[i].Partitions))
		for j, index := range tps[i].Partitions {
			epoch := max(memberEpoch, 0)
			if len(tps[i].AssignmentEpochs) == len(tps[i].Partitions) {
				epoch = tps[i].AssignmentEpochs[j]
			}
			partitions[index] = epoch
		}
		out[tps[i].TopicID] = partitions
	}
	return out
}

func regexRecord(groupID, regex string, r Resolved) schema.Record {
	value := schema.NewConsumerGroupRegularExpressionValue()
	value.Topics, value.Version, value.Timestamp = orEmpty(r.Topics), r.Version, r.Millis
	return schema.Record{Key: &schema.ConsumerGroupRegularExpressionKey{GroupID: groupID, RegularExpression: regex}, Value: value}
}

func regexTombstone(groupID, regex string) schema.Record {
	return schema.Tombstone(&schema.ConsumerGroupRegularExpressionKey{GroupID: groupID, RegularExpression: regex})
}

func orEmpty(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

func sortedIDs[V any](m map[protocol.UUID]V) []protocol.UUID {
	ids := slices.Collect(maps.Keys(m))
	slices.SortFunc(ids, func(a, b protocol.UUID) int { return slices.Compare(a[:], b[:]) })
	return ids
}

// removeRecords deletes a member.
func removeRecords(groupID, memberID string) []schema.Record {
	return []schema.Record{currentTombstone(groupID, memberID), targetTombstone(groupID, memberID), memberTombstone(groupID, memberID)}
}

// Tombstones deletes the group. as renames a member: one that took the place of
// another in the same batch.
func (g *Group) Tombstones(as func(memberID string) string) (out []schema.Record) {
	members := g.Members()
	each := func(tombstone func(groupID, memberID string) schema.Record) {
		for _, m := range members {
			out = append(out, tombstone(g.ID, as(m.ID)))
		}
	}
	each(currentTombstone)
	each(targetTombstone)
	out = append(out, targetEpochTombstone(g.ID))
	each(memberTombstone)
	for _, regex := range sortedKeys(maps.Collect(g.resolved.All())) {
		out = append(out, regexTombstone(g.ID, regex))
	}
	return append(out, oldMetadataTombstone(g.ID), schema.Tombstone(&schema.ConsumerGroupMetadataKey{GroupID: g.ID}))
}

// Records writes the whole group, as after its upgrade from a classic one.
func (g *Group) Records() (out []schema.Record) {
	members := g.Members()
	for _, m := range members {
		out = append(out, memberRecord(g.ID, m))
	}
	out = append(out, epochRecord(g.ID, g.Epoch(), g.hash.Get()))
	for _, m := range members {
		out = append(out, targetRecord(g.ID, m.ID, g.Target(m.ID)))
	}
	out = append(out, targetEpochRecord(g.ID, g.AssignmentEpoch(), g.assignmentMillis.Get()))
	for _, m := range members {
		out = append(out, currentRecord(g.ID, m))
	}
	return out
}
