package consumer

import (
	"fmt"
	"maps"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/groupcoord/assignor"
	"gregor/groupcoord/javaorder"
	"gregor/protocol"
)

// commitVersion is the first OffsetCommit for members of this protocol.
const commitVersion = 9

// Commit is where an offset commit comes from.
type Commit struct {
	MemberID      string
	InstanceID    *string
	Epoch         int32
	Transactional bool
	Version       int16
}

// staleEpoch is the error of a wrong epoch: classic members know it as a wrong
// generation.
func staleEpoch(m *Member, message string) error {
	if m.Classic != nil {
		return protocol.NewError(kerr.IllegalGeneration.Code, message)
	}
	return protocol.NewError(kerr.StaleMemberEpoch.Code, message)
}

// ValidateCommit says whether an offset commit is allowed. A member may commit
// in an older epoch what it was assigned in that epoch or before: the function
// judges each partition then.
func (g *Group) ValidateCommit(c Commit) (func(topic string, id protocol.UUID, index int32) error, error) {
	if c.Epoch < 0 && g.IsEmpty() {
		return nil, nil
	}
	if c.Transactional && c.Epoch == -1 && c.MemberID == "" && c.InstanceID == nil {
		return nil, nil
	}
	m := g.Member(c.MemberID)
	switch {
	case m == nil:
		return nil, unknownMember(g, c.MemberID)
	case !c.Transactional && m.Classic == nil && c.Version < commitVersion:
		return nil, protocol.NewError(kerr.UnsupportedVersion.Code,
			"OffsetCommit version 9 or above must be used by members using the consumer group protocol")
	case c.Epoch == m.Epoch:
		return nil, nil
	case c.Epoch > m.Epoch:
		return nil, staleEpoch(m, fmt.Sprintf("Received member epoch %d is newer than current member epoch %d.", c.Epoch, m.Epoch))
	}
	return func(topic string, id protocol.UUID, index int32) error {
		return m.validatePartition(c.Epoch, topic, id, index)
	}, nil
}

// validatePartition says whether a member may commit an offset of a partition in
// an older epoch.
func (m *Member) validatePartition(epoch int32, topic string, id protocol.UUID, index int32) error {
	since, ok := m.Assigned[id][index]
	if !ok {
		since, ok = m.Revoking[id][index]
	}
	switch {
	case !ok:
		return staleEpoch(m, fmt.Sprintf("Partition %s-%d is not assigned or pending revocation for member.", topic, index))
	case epoch < since:
		return staleEpoch(m, fmt.Sprintf("Received member epoch %d is older than assignment epoch %d for partition %s-%d.", epoch, since, topic, index))
	}
	return nil
}

// ValidateFetch says whether a member may read offsets: it has to know its
// epoch, if it says who it is.
func (g *Group) ValidateFetch(memberID *string, epoch int32, committed bool) error {
	if memberID == nil && epoch < 0 {
		return nil
	}
	id := ""
	if memberID != nil {
		id = *memberID
	}
	m, ok := g.members.Get(id)
	if committed {
		m, ok = g.members.GetCommitted(id)
	}
	if !ok {
		return unknownMember(g, id)
	}
	if epoch != m.Epoch {
		return staleEpoch(m, fmt.Sprintf("The received member epoch %d does not match the expected member epoch %d.", epoch, m.Epoch))
	}
	return nil
}

// ValidateDelete says whether the group may be deleted.
func (g *Group) ValidateDelete() error {
	if !g.IsEmpty() {
		return kerr.NonEmptyGroup
	}
	return nil
}

// CommittedState returns Kafka's name of the committed state.
func (g *Group) CommittedState() string {
	members := maps.Collect(g.members.AllCommitted())
	epoch := g.assignmentEpoch.GetCommitted()
	switch {
	case len(members) == 0:
		return "Empty"
	case g.epoch.GetCommitted() > epoch:
		return "Assigning"
	}
	for _, m := range members {
		if !m.reconciledTo(epoch) {
			return "Reconciling"
		}
	}
	return "Stable"
}

// Member types of ConsumerGroupDescribe.
const (
	classicMemberType  int8 = 0
	consumerMemberType int8 = 1
)

// Describe answers ConsumerGroupDescribe from the committed state.
func (m *Manager) Describe(g *Group) kmsg.ConsumerGroupDescribeResponseGroup {
	out := kmsg.NewConsumerGroupDescribeResponseGroup()
	out.Group, out.State = g.ID, g.CommittedState()
	out.Epoch, out.AssignmentEpoch = g.epoch.GetCommitted(), g.assignmentEpoch.GetCommitted()
	members := g.committedMembers()
	votes := make(map[string]int)
	topics := m.Topics()
	for _, e := range members {
		member := e.Value
		if member.Assignor != nil {
			votes[*member.Assignor]++
		}
		target, _ := g.target.GetCommitted(member.ID)
		out.Members = append(out.Members, describeMember(member, target, topics))
	}
	out.AssignorName = m.defaultAssignor()
	most := 0
	for _, name := range sortedKeys(votes) {
		if votes[name] > most {
			out.AssignorName, most = name, votes[name]
		}
	}
	return out
}

// committedMembers returns the members in Kafka's order.
func (g *Group) committedMembers() []javaorder.Entry[*Member] {
	out := make([]javaorder.Entry[*Member], 0, g.members.Len())
	for id, m := range g.members.AllCommitted() {
		out = append(out, javaorder.Entry[*Member]{Hash: javaorder.String(id), Arrival: g.members.Arrival(id), Value: m})
	}
	javaorder.Timeline(out, g.members.Room())
	return out
}

func describeMember(m *Member, target assignor.Assignment, topics Topics) kmsg.ConsumerGroupDescribeResponseGroupMember {
	out := kmsg.NewConsumerGroupDescribeResponseGroupMember()
	out.MemberID, out.InstanceID, out.RackID, out.MemberEpoch = m.ID, m.InstanceID, m.RackID, m.Epoch
	out.ClientID, out.ClientHost, out.SubscribedTopics = m.ClientID, m.ClientHost, orEmpty(m.Topics)
	regex := m.Regex
	out.SubscribedTopicRegex = &regex
	owned := make(Owned)
	for _, o := range []Owned{m.Assigned, m.Revoking} {
		for topic, partitions := range o {
			for index, epoch := range partitions {
				put(owned, topic, index, epoch)
			}
		}
	}
	out.Assignment = describeAssignment(owned.plain(), topics)
	out.TargetAssignment = describeAssignment(target, topics)
	out.MemberType = consumerMemberType
	if m.Classic != nil {
		out.MemberType = classicMemberType
	}
	return out
}

// describeAssignment names the topics; those that are gone are left out.
func describeAssignment(a assignor.Assignment, topics Topics) kmsg.Assignment {
	var out kmsg.Assignment
	for _, of := range a.Sorted() {
		t, ok := topics.ByID(of.Topic)
		if !ok {
			continue
		}
		tp := kmsg.NewAssignmentTopicPartition()
		tp.TopicID, tp.Topic, tp.Partitions = of.Topic, t.Name, of.Partitions
		out.TopicPartitions = append(out.TopicPartitions, tp)
	}
	return out
}
