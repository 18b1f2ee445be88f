package consumer

import (
	"maps"
	"slices"

	"gregor/groupcoord/assignor"
	"gregor/groupcoord/schema"
	"gregor/protocol"
)

// State of a member's reconciliation with its target assignment.
type State int8

// The states, as they are written.
const (
	// StableState: the member has what its target says.
	StableState State = 0
	// UnrevokedPartitions: the member has yet to give partitions up.
	UnrevokedPartitions State = 1
	// UnreleasedPartitions: the member waits for partitions that others have.
	UnreleasedPartitions State = 2
	// UnknownState is one from a newer version.
	UnknownState State = 127
)

// Special member epochs.
const (
	// joinEpoch is sent by who joins.
	joinEpoch int32 = 0
	// leaveEpoch is sent by who leaves for good.
	leaveEpoch int32 = -1
	// leaveStaticEpoch is sent by a static member that will come back.
	leaveStaticEpoch int32 = -2
)

// Owned maps topic ids to partitions and the assignment epoch in which the
// member got each. It is not changed.
type Owned map[protocol.UUID]map[int32]int32

func (o Owned) has(topic protocol.UUID, partition int32) bool {
	_, ok := o[topic][partition]
	return ok
}

func (o Owned) equal(p Owned) bool {
	return maps.EqualFunc(o, p, maps.Equal)
}

// plain drops the epochs. Topics and partitions ascend.
func (o Owned) plain() assignor.Assignment {
	out := make(assignor.Assignment, 0, len(o))
	for _, topic := range sortedIDs(o) {
		out = append(out, assignor.TopicPartitions{Topic: topic, Partitions: slices.Sorted(maps.Keys(o[topic]))})
	}
	return out
}

// Classic is what a member said that still speaks the classic protocol.
type Classic = schema.ConsumerGroupClassicMemberMetadata

// Member of a consumer group. It is not changed; see with.
type Member struct {
	ID string
	// Epoch is the group's assignment epoch that the member has reached;
	// PreviousEpoch the one before.
	Epoch, PreviousEpoch   int32
	State                  State
	InstanceID, RackID     *string
	RebalanceTimeoutMillis int32
	ClientID, ClientHost   string
	// Topics are the subscribed names, sorted, and Regex the pattern, empty for
	// none.
	Topics []string
	Regex  string
	// Assignor is the one that the member wants, nil for any.
	Assignor *string
	// Assigned and Revoking together are what the member may consume.
	Assigned, Revoking Owned
	Classic            *Classic
}

func newMember(id string) *Member {
	return &Member{ID: id, Epoch: joinEpoch, PreviousEpoch: -1, RebalanceTimeoutMillis: -1}
}

// with returns a changed copy.
func (m *Member) with(change func(*Member)) *Member {
	out := *m
	change(&out)
	return &out
}

// advance sets the epoch and remembers the one before.
func (m *Member) advance(epoch int32) {
	m.PreviousEpoch, m.Epoch = m.Epoch, epoch
}

func equalPtr(a, b *string) bool {
	return (a == nil) == (b == nil) && (a == nil || *a == *b)
}

// sameMetadata compares what the member said about itself.
func (m *Member) sameMetadata(o *Member) bool {
	return m.ID == o.ID && equalPtr(m.InstanceID, o.InstanceID) && equalPtr(m.RackID, o.RackID) &&
		m.RebalanceTimeoutMillis == o.RebalanceTimeoutMillis && m.ClientID == o.ClientID && m.ClientHost == o.ClientHost &&
		slices.Equal(m.Topics, o.Topics) && m.Regex == o.Regex && equalPtr(m.Assignor, o.Assignor) && sameClassic(m.Classic, o.Classic)
}

func sameClassic(a, b *Classic) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.SessionTimeoutMs == b.SessionTimeoutMs && slices.EqualFunc(a.SupportedProtocols, b.SupportedProtocols,
		func(p, q schema.ConsumerGroupClassicProtocol) bool {
			return p.Name == q.Name && string(p.Metadata) == string(q.Metadata)
		})
}

// sameAssignment compares where the member is in its reconciliation.
func (m *Member) sameAssignment(o *Member) bool {
	return m.Epoch == o.Epoch && m.PreviousEpoch == o.PreviousEpoch && m.State == o.State && m.Assigned.equal(o.Assigned) && m.Revoking.equal(o.Revoking)
}

// reconciledTo reports whether the member has its target assignment of epoch.
func (m *Member) reconciledTo(epoch int32) bool { return m.State == StableState && m.Epoch == epoch }

// sortedSet sorts names and drops repetitions.
func sortedSet(names []string) []string {
	out := slices.Clone(names)
	slices.Sort(out)
	return slices.Compact(out)
}
