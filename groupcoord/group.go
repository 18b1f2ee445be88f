package groupcoord

import (
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/groupcoord/classic"
	"gregor/groupcoord/consumer"
	"gregor/groupcoord/offsets"
	"gregor/groupcoord/schema"
	"gregor/protocol"
)

// GroupType is the protocol that a group id belongs to.
type GroupType int8

// The group types.
const (
	TypeUnknown GroupType = iota
	TypeClassic
	TypeConsumer
	TypeShare
	TypeStreams
)

var typeNames = [...]string{"unknown", "classic", "consumer", "share", "streams"}

// String returns Kafka's name of the type.
func (t GroupType) String() string { return typeNames[t] }

// ParseGroupType reads a name of any case; what it does not know is unknown.
func ParseGroupType(name string) GroupType {
	for t, n := range typeNames {
		if strings.EqualFold(n, name) {
			return GroupType(t)
		}
	}
	return TypeUnknown
}

// group is an entry of the table of groups.
type group interface {
	offsets.Group
	kind() GroupType
	// isEmpty reports whether the group has no members.
	isEmpty() bool
	// validateDelete says whether DeleteGroups may take the group.
	validateDelete() error
	// tombstones deletes all records of the group but its offsets.
	tombstones() []schema.Record
	// listed is the committed state for ListGroups.
	listed() kmsg.ListGroupsResponseGroup
}

// classicGroup puts a classic group into the table.
type classicGroup struct{ *classic.Group }

func (g classicGroup) kind() GroupType { return TypeClassic }
func (g classicGroup) isEmpty() bool   { return g.IsEmpty() }

func (g classicGroup) validateDelete() error { return g.ValidateDelete() }

func (g classicGroup) tombstones() []schema.Record {
	return []schema.Record{classic.Tombstone(g.ID)}
}

func (g classicGroup) listed() kmsg.ListGroupsResponseGroup {
	out := kmsg.NewListGroupsResponseGroup()
	out.Group, out.ProtocolType, out.GroupState, out.GroupType = g.ID, g.ProtocolType, g.State().String(), TypeClassic.String()
	return out
}

// ValidateCommit implements offsets.Group.
func (g classicGroup) ValidateCommit(c offsets.Commit) (func(string, protocol.UUID, int32) error, error) {
	return nil, g.Group.ValidateCommit(c.MemberID, c.InstanceID, c.Generation, c.Transactional)
}

// ValidateFetch implements offsets.Group: anybody may read.
func (g classicGroup) ValidateFetch(*string, int32, bool) error { return nil }

// ExpiryBase implements offsets.Group.
func (g classicGroup) ExpiryBase() (func(*offsets.Offset) int64, bool) {
	switch e := g.Expiry(); {
	case e.Never:
		return nil, false
	case e.SinceMillis < 0:
		return func(o *offsets.Offset) int64 { return o.CommitMillis }, true
	default:
		return func(*offsets.Offset) int64 { return e.SinceMillis }, true
	}
}

// consumerGroup puts a consumer group into the table.
type consumerGroup struct{ *consumer.Group }

func (g consumerGroup) kind() GroupType { return TypeConsumer }
func (g consumerGroup) isEmpty() bool   { return g.IsEmpty() }

func (g consumerGroup) validateDelete() error { return g.ValidateDelete() }

func (g consumerGroup) tombstones() []schema.Record {
	return g.Tombstones(func(memberID string) string { return memberID })
}

func (g consumerGroup) listed() kmsg.ListGroupsResponseGroup {
	out := kmsg.NewListGroupsResponseGroup()
	out.Group, out.ProtocolType, out.GroupState, out.GroupType = g.ID, TypeConsumer.String(), g.CommittedState(), TypeConsumer.String()
	return out
}

// ValidateCommit implements offsets.Group.
func (g consumerGroup) ValidateCommit(c offsets.Commit) (func(string, protocol.UUID, int32) error, error) {
	return g.Group.ValidateCommit(consumer.Commit{
		MemberID: c.MemberID, InstanceID: c.InstanceID, Epoch: c.Generation, Transactional: c.Transactional, Version: c.Version,
	})
}

// ValidateOffsetDelete implements offsets.Group: of topics that nobody reads
// offsets may be deleted at any time.
func (g consumerGroup) ValidateOffsetDelete() error { return nil }

// ExpiryBase implements offsets.Group.
func (g consumerGroup) ExpiryBase() (func(*offsets.Offset) int64, bool) {
	return func(o *offsets.Offset) int64 { return o.CommitMillis }, true
}
