// Package assignor holds the server-side assignors of consumer groups (KIP-848):
// range and uniform. An assignor is a pure function of the members, what they
// subscribe to and the target assignment they have now.
package assignor

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"gregor/protocol"
)

// Assignment maps topic ids to partitions in ascending order. It is not changed
// once it was handed out.
type Assignment map[protocol.UUID][]int32

// Equal reports whether both assign the same partitions.
func (a Assignment) Equal(b Assignment) bool {
	if len(a) != len(b) {
		return false
	}
	for id, partitions := range a {
		if other, ok := b[id]; !ok || !slices.Equal(partitions, other) {
			return false
		}
	}
	return true
}

// Member is what an assignor knows of a member.
type Member struct {
	ID         string
	InstanceID *string
	RackID     *string
	// Topics are the ids of the existing topics that the member subscribes to.
	Topics map[protocol.UUID]struct{}
	// Current is the target assignment so far.
	Current Assignment
}

// Group is the input of an assignor.
type Group struct {
	Members []Member
	// Partitions is the number of partitions of each subscribed topic.
	Partitions map[protocol.UUID]int32
}

// Assignor computes target assignments, by member id. Every partition of a topic
// with a subscriber is assigned to exactly one of the subscribers.
type Assignor interface {
	// Name as in group.consumer.assignors.
	Name() string
	Assign(g Group) (map[string]Assignment, error)
}

// ErrUnknownTopic says that a member subscribes to a topic that is not among
// the group's partitions.
var ErrUnknownTopic = errors.New("member is subscribed to a topic that does not exist")

// ByName returns the assignor of that name.
func ByName(name string) (Assignor, bool) {
	switch name {
	case Range{}.Name():
		return Range{}, true
	case Uniform{}.Name():
		return Uniform{}, true
	}
	return nil, false
}

// homogeneous reports whether all members subscribe to the same topics.
func (g Group) homogeneous() bool {
	for _, m := range g.Members[1:] {
		if len(m.Topics) != len(g.Members[0].Topics) {
			return false
		}
		for id := range m.Topics {
			if _, ok := g.Members[0].Topics[id]; !ok {
				return false
			}
		}
	}
	return true
}

// check makes sure that the number of partitions of every topic is known.
func (g Group) check() error {
	for _, m := range g.Members {
		for id := range m.Topics {
			if _, ok := g.Partitions[id]; !ok {
				return fmt.Errorf("%w: %s", ErrUnknownTopic, id)
			}
		}
	}
	return nil
}

// topicsOf returns the topics of a member in order.
func topicsOf(m *Member) []protocol.UUID {
	ids := make([]protocol.UUID, 0, len(m.Topics))
	for id := range m.Topics {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, compareIDs)
	return ids
}

func compareIDs(a, b protocol.UUID) int { return slices.Compare(a[:], b[:]) }

// sortedMembers returns the members with static ones first, by instance id, then
// the others by member id. Static members so keep their place when their member
// id changes.
func sortedMembers(members []Member) []*Member {
	out := make([]*Member, len(members))
	for i := range members {
		out[i] = &members[i]
	}
	slices.SortFunc(out, func(a, b *Member) int {
		switch {
		case a.InstanceID != nil && b.InstanceID != nil:
			return cmp.Compare(*a.InstanceID, *b.InstanceID)
		case a.InstanceID != nil:
			return -1
		case b.InstanceID != nil:
			return 1
		default:
			return cmp.Compare(a.ID, b.ID)
		}
	})
	return out
}
