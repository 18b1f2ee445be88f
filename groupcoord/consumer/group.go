// Package consumer is the consumer group protocol (KIP-848): members send
// heartbeats, the coordinator assigns.
//
// [Group] is the state of one group; all of it comes from records. [Manager]
// takes the steps: a heartbeat updates the member, perhaps bumps the group
// epoch, computes a new target assignment, and moves the member towards it:
// first it has to give up what others shall have, then it gets what is free.
// Members that still speak the classic protocol take part through the steps of
// classicmember.go.
package consumer

import (
	"cmp"
	"maps"
	"slices"

	"gregor/groupcoord/assignor"
	"gregor/internal/timeline"
	"gregor/protocol"
)

// firstEpoch is that of a group without records.
const firstEpoch int32 = 1

// noEpoch marks a partition that nobody owns, and a group without an assignment.
const noEpoch int32 = -1

// partition is a partition of a topic.
type partition struct {
	topic protocol.UUID
	index int32
}

// Resolved is a pattern and the topics that matched it.
type Resolved struct {
	Topics []string // sorted
	// Version is that of the image, Millis the time when it was resolved.
	Version, Millis int64
}

// Group is one consumer group.
type Group struct {
	ID       string
	registry *timeline.Registry

	epoch, assignmentEpoch *timeline.Value[int32]
	assignmentMillis       *timeline.Value[int64]
	hash                   *timeline.Value[int64]
	members                *timeline.Map[string, *Member]
	static                 *timeline.Map[string, string]
	target                 *timeline.Map[string, assignor.Assignment]
	// owners has the epoch of the member that owns a partition, so that it is
	// not given to another one before that one let it go.
	owners *timeline.Map[partition, int32]
	// resolved patterns, and how many members subscribe to each pattern.
	resolved    *timeline.Map[string, Resolved]
	subscribers *timeline.Map[string, int]
	// classicMembers counts the members that speak the classic protocol.
	classicMembers *timeline.Value[int]
	// oldMetadata says that there is a record of type 4, which older versions
	// wrote and which is deleted at the next change.
	oldMetadata *timeline.Value[bool]

	// refreshedEpoch is the group epoch at which the topics were looked at last;
	// -1 asks for it. It is soft state.
	refreshedEpoch int32
}

// NewGroup returns an empty group.
func NewGroup(registry *timeline.Registry, id string) *Group {
	return &Group{
		ID: id, registry: registry, refreshedEpoch: -1,
		epoch: timeline.NewValue(registry, firstEpoch), assignmentEpoch: timeline.NewValue(registry, firstEpoch),
		assignmentMillis: timeline.NewValue(registry, int64(0)), hash: timeline.NewValue(registry, int64(0)),
		members: timeline.NewMap[string, *Member](registry), static: timeline.NewMap[string, string](registry),
		target: timeline.NewMap[string, assignor.Assignment](registry), owners: timeline.NewMap[partition, int32](registry),
		resolved: timeline.NewMap[string, Resolved](registry), subscribers: timeline.NewMap[string, int](registry),
		classicMembers: timeline.NewValue(registry, 0), oldMetadata: timeline.NewValue(registry, false),
	}
}

// Epoch is the group epoch: the generation of subscriptions and topics.
func (g *Group) Epoch() int32 { return g.epoch.Get() }

// AssignmentEpoch is the group epoch of the target assignment.
func (g *Group) AssignmentEpoch() int32 { return g.assignmentEpoch.Get() }

// IsEmpty reports whether the group has no members.
func (g *Group) IsEmpty() bool { return g.members.Len() == 0 }

// NumMembers counts the members.
func (g *Group) NumMembers() int { return g.members.Len() }

// Member returns a member, nil when there is none of that id.
func (g *Group) Member(id string) *Member {
	m, _ := g.members.Get(id)
	return m
}

// StaticMember returns the member with that instance id, or nil.
func (g *Group) StaticMember(instanceID string) *Member {
	if id, ok := g.static.Get(instanceID); ok {
		return g.Member(id)
	}
	return nil
}

// Members returns the members by id.
func (g *Group) Members() []*Member {
	out := slices.Collect(maps.Values(maps.Collect(g.members.All())))
	slices.SortFunc(out, func(a, b *Member) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// Target returns the target assignment of a member.
func (g *Group) Target(memberID string) assignor.Assignment {
	a, _ := g.target.Get(memberID)
	return a
}

// ownerEpoch is the epoch of the member that owns a partition, or noEpoch.
func (g *Group) ownerEpoch(topic protocol.UUID, index int32) int32 {
	if epoch, ok := g.owners.Get(partition{topic, index}); ok {
		return epoch
	}
	return noEpoch
}

// RequestRefresh makes the next heartbeat look at the topics again.
func (g *Group) RequestRefresh() { g.refreshedEpoch = -1 }

// refreshNeeded reports whether the topics were not looked at since the last
// request, or since an epoch that was taken back.
func (g *Group) refreshNeeded() bool {
	return g.refreshedEpoch < 0 || g.Epoch() < g.refreshedEpoch
}

// setMember puts a member into the group, or replaces it.
func (g *Group) setMember(m *Member) {
	old := g.Member(m.ID)
	g.forget(old)
	g.members.Set(m.ID, m)
	if m.InstanceID != nil {
		g.static.Set(*m.InstanceID, m.ID)
	}
	g.addOwner(m.Assigned, m.Epoch)
	g.addOwner(m.Revoking, m.Epoch)
	if m.Regex != "" {
		n, _ := g.subscribers.Get(m.Regex)
		g.subscribers.Set(m.Regex, n+1)
	}
	if m.Classic != nil {
		g.classicMembers.Set(g.classicMembers.Get() + 1)
	}
}

// removeMember takes a member out of the group.
func (g *Group) removeMember(id string) {
	g.forget(g.Member(id))
	g.members.Delete(id)
}

// forget takes back what setMember noted about a member.
func (g *Group) forget(m *Member) {
	if m == nil {
		return
	}
	if m.InstanceID != nil {
		if id, _ := g.static.Get(*m.InstanceID); id == m.ID {
			g.static.Delete(*m.InstanceID)
		}
	}
	g.removeOwner(m.Assigned, m.Epoch)
	g.removeOwner(m.Revoking, m.Epoch)
	if m.Regex != "" {
		if n, _ := g.subscribers.Get(m.Regex); n > 1 {
			g.subscribers.Set(m.Regex, n-1)
		} else {
			g.subscribers.Delete(m.Regex)
		}
	}
	if m.Classic != nil {
		g.classicMembers.Set(g.classicMembers.Get() - 1)
	}
}

// addOwner notes that partitions are owned in epoch. While a compacted log is
// replayed an earlier owner may not have been seen to let go; the later one
// counts (R35).
func (g *Group) addOwner(o Owned, epoch int32) {
	for topic, partitions := range o {
		for index := range partitions {
			key := partition{topic, index}
			if old, ok := g.owners.Get(key); !ok || old < epoch {
				g.owners.Set(key, epoch)
			}
		}
	}
}

// removeOwner notes that partitions are given up, unless a later owner has them.
func (g *Group) removeOwner(o Owned, epoch int32) {
	for topic, partitions := range o {
		for index := range partitions {
			key := partition{topic, index}
			if old, ok := g.owners.Get(key); ok && old == epoch {
				g.owners.Delete(key)
			}
		}
	}
}

// change is the group as a step wants it: without some members, with another
// one, and with other topics for the patterns.
type change struct {
	without map[string]bool
	with    *Member
	// resolved overrides the topics of patterns; gone are patterns without
	// members.
	resolved map[string]Resolved
}

// each visits the members of the changed group.
func (g *Group) each(c change, visit func(*Member)) {
	seen := false
	for id, m := range g.members.All() {
		switch {
		case c.without[id]:
		case c.with != nil && id == c.with.ID:
			seen = true
			visit(c.with)
		default:
			visit(m)
		}
	}
	if c.with != nil && !seen {
		visit(c.with)
	}
}

// topicNames returns the topics that the members of the changed group subscribe
// to, by name or by a pattern that was resolved.
func (g *Group) topicNames(c change) map[string]struct{} {
	out := make(map[string]struct{})
	g.each(c, func(m *Member) {
		for _, name := range g.subscription(m, c.resolved) {
			out[name] = struct{}{}
		}
	})
	return out
}

// subscription returns the names of a member's topics.
func (g *Group) subscription(m *Member, resolved map[string]Resolved) []string {
	if m.Regex == "" {
		return m.Topics
	}
	matches := g.resolvedTopics(m.Regex, resolved)
	if len(m.Topics) == 0 {
		return matches
	}
	return sortedSet(slices.Concat(m.Topics, matches))
}

// resolvedTopics returns the topics of a pattern, as far as they are known.
func (g *Group) resolvedTopics(regex string, resolved map[string]Resolved) []string {
	r, ok := resolved[regex]
	if !ok {
		r, _ = g.resolved.Get(regex)
	}
	return r.Topics
}

// Subscribed reports whether a member subscribes to the topic.
func (g *Group) Subscribed(topic string) bool {
	for _, m := range g.members.All() {
		if _, ok := slices.BinarySearch(m.Topics, topic); ok {
			return true
		}
	}
	for _, r := range g.resolved.All() {
		if _, ok := slices.BinarySearch(r.Topics, topic); ok {
			return true
		}
	}
	return false
}

// preferredAssignor is the one that most members of the changed group want,
// empty when none wants any. Equals are decided by name.
func (g *Group) preferredAssignor(c change) string {
	votes := make(map[string]int)
	g.each(c, func(m *Member) {
		if m.Assignor != nil {
			votes[*m.Assignor]++
		}
	})
	best := ""
	for _, name := range sortedKeys(votes) {
		if best == "" || votes[name] > votes[best] {
			best = name
		}
	}
	return best
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
