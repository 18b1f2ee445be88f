// Package classic is the classic group protocol: JoinGroup, SyncGroup,
// Heartbeat and LeaveGroup (KIP-62, KIP-345, KIP-394).
//
// [Group] is the state of one group, [Manager] the steps that requests and
// timers take on it. A step changes the group at once and returns what has to
// be written (GroupMetadataValue); it does not wait. Members that wait for a
// rebalance or an assignment are answered through the function they gave. As in
// Kafka the members of a group are soft state: when a write fails nothing is
// rolled back, the step's Done repairs the group instead.
package classic

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/groupcoord/javaorder"
	"gregor/internal/invariants"
)

// State of a group.
type State int8

// The states. A group is Dead once its partition is unloaded.
const (
	Empty State = iota
	PreparingRebalance
	CompletingRebalance
	Stable
	Dead
)

// String returns Kafka's name of the state.
func (s State) String() string {
	return [...]string{"Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"}[s]
}

// follows lists from which states a state may be reached.
var follows = map[State][]State{
	Empty:               {PreparingRebalance},
	PreparingRebalance:  {Stable, CompletingRebalance, Empty},
	CompletingRebalance: {PreparingRebalance},
	Stable:              {CompletingRebalance},
	Dead:                {Stable, PreparingRebalance, CompletingRebalance, Empty, Dead},
}

// ConsumerProtocolType is the protocol type whose metadata the broker can read.
const ConsumerProtocolType = "consumer"

// noTimestamp stands for a group record without the time of its last change.
const noTimestamp int64 = -1

// Group is one classic group.
type Group struct {
	ID         string
	Generation int32
	// ProtocolType is empty for a group that only stores offsets.
	ProtocolType string

	state, previous State
	// stateSince is when state was entered, in Unix milliseconds, or noTimestamp.
	stateSince int64
	// protocol was selected for the generation; nil without members.
	protocol *string
	// leader is a member id, empty without members.
	leader string

	// Invariant: order holds the values of members in the order they came; one that
	// takes the place of another one comes last.
	members map[string]*Member
	order   []*Member
	// peak is the largest number of members that there have been at a time.
	peak int
	// Invariant: static maps the instance ids of members to their ids.
	static map[string]string
	// pendingJoin holds the member ids that were handed out but not used yet.
	pendingJoin map[string]struct{}
	// pendingSync holds the members of the generation that did not sync yet.
	pendingSync map[string]struct{}
	// Invariant: awaitingJoin counts the members with a waiting JoinGroup.
	awaitingJoin int
	// Invariant: supported counts for each protocol the members that have it.
	supported map[string]int
	// subscribed are the topics of all members; nil when not known.
	subscribed map[string]struct{}
	// newMemberAdded prolongs the initial rebalance.
	newMemberAdded bool
}

// NewGroup returns an empty group without a protocol type.
func NewGroup(id string) *Group { return newGroup(id, Empty, time.Now().UnixMilli()) }

func newGroup(id string, state State, sinceMillis int64) *Group {
	return &Group{
		ID: id, state: state, previous: Dead, stateSince: sinceMillis,
		members: make(map[string]*Member), static: make(map[string]string),
		pendingJoin: make(map[string]struct{}), pendingSync: make(map[string]struct{}),
		supported: make(map[string]int),
	}
}

// State returns the present state.
func (g *Group) State() State { return g.state }

// IsEmpty reports whether the group has no members; ids that were only handed
// out do not count.
func (g *Group) IsEmpty() bool { return g.state == Empty }

// Members returns the members in the order they came. The caller must not
// change the slice.
func (g *Group) Members() []*Member { return g.order }

// Protocol returns the protocol of the generation, nil when there is none.
func (g *Group) Protocol() *string { return g.protocol }

// inKafkasOrder returns the members in the order of Kafka's map of them: so they are
// described and told to the leader, and the first of them is the next leader.
func (g *Group) inKafkasOrder() []*Member {
	entries := make([]javaorder.Entry[*Member], len(g.order))
	for i, m := range g.order {
		entries[i] = javaorder.Entry[*Member]{Hash: javaorder.String(m.ID), Arrival: uint64(i), Value: m}
	}
	javaorder.HashMap(entries, g.peak)
	out := make([]*Member, len(entries))
	for i, e := range entries {
		out[i] = e.Value
	}
	return out
}

func (g *Group) transition(to State) {
	if invariants.Enabled {
		valid := false
		for _, from := range follows[to] {
			valid = valid || from == g.state
		}
		invariants.Assertf(valid, "group %s goes from %s to %s", g.ID, g.state, to)
	}
	g.previous, g.state = g.state, to
	g.stateSince = time.Now().UnixMilli()
}

// canRebalance reports whether a rebalance may begin.
func (g *Group) canRebalance() bool {
	return g.state == Stable || g.state == CompletingRebalance || g.state == Empty
}

// add makes member part of the group; reply waits for the rebalance, nil when
// the member comes from the log.
func (g *Group) add(m *Member, reply func(*kmsg.JoinGroupResponse)) {
	if m.InstanceID != nil {
		g.static[*m.InstanceID] = m.ID
	}
	if len(g.members) == 0 {
		g.ProtocolType = m.ProtocolType
	}
	if g.leader == "" {
		g.leader = m.ID
	}
	g.members[m.ID] = m
	g.order = append(g.order, m)
	g.peak = max(g.peak, len(g.order))
	g.count(m, 1)
	m.join = reply
	if reply != nil {
		g.awaitingJoin++
	}
	delete(g.pendingJoin, m.ID)
}

// remove takes a member, or a pending one, out of the group.
func (g *Group) remove(id string) {
	if m := g.members[id]; m != nil {
		delete(g.members, id)
		for i, o := range g.order {
			if o == m {
				g.order = append(g.order[:i:i], g.order[i+1:]...)
				break
			}
		}
		g.count(m, -1)
		if m.join != nil {
			g.awaitingJoin--
		}
		if m.InstanceID != nil && g.static[*m.InstanceID] == id {
			delete(g.static, *m.InstanceID)
		}
	}
	if g.leader == id {
		g.leader = ""
		if len(g.order) > 0 {
			g.leader = g.inKafkasOrder()[0].ID
		}
	}
	delete(g.pendingJoin, id)
	delete(g.pendingSync, id)
}

// count adds delta to the count of each protocol of m.
func (g *Group) count(m *Member, delta int) {
	for _, p := range m.Protocols {
		if g.supported[p.Name] += delta; g.supported[p.Name] == 0 {
			delete(g.supported, p.Name)
		}
	}
}

// update replaces what a member said when it joined.
func (g *Group) update(m *Member, t terms, reply func(*kmsg.JoinGroupResponse)) {
	g.count(m, -1)
	m.terms = t
	g.count(m, 1)
	switch {
	case reply != nil && m.join == nil:
		g.awaitingJoin++
	case reply == nil && m.join != nil:
		g.awaitingJoin--
	}
	m.join = reply
}

// replaceStatic gives the static member old a new id. Whoever waits under the
// old id is fenced.
func (g *Group) replaceStatic(instanceID, oldID, newID string) *Member {
	old := g.members[oldID]
	g.answerJoin(old, &kmsg.JoinGroupResponse{MemberID: oldID, Generation: -1, ErrorCode: kerr.FencedInstanceID.Code})
	g.answerSync(old, &kmsg.SyncGroupResponse{MemberAssignment: []byte{}, ErrorCode: kerr.FencedInstanceID.Code})
	m := &Member{
		ID: newID, InstanceID: old.InstanceID, ClientID: old.ClientID, ClientHost: old.ClientHost,
		ProtocolType: old.ProtocolType, terms: old.terms, Assignment: old.Assignment,
	}
	delete(g.members, oldID)
	g.members[newID] = m
	g.order = append(slices.DeleteFunc(g.order, func(o *Member) bool { return o == old }), m)
	if _, pending := g.pendingSync[oldID]; pending {
		delete(g.pendingSync, oldID)
		g.pendingSync[newID] = struct{}{}
	}
	if g.leader == oldID {
		g.leader = newID
	}
	g.static[instanceID] = newID
	return m
}

// allJoined reports whether the rebalance has everybody it waits for.
func (g *Group) allJoined() bool {
	return len(g.members) == g.awaitingJoin && len(g.pendingJoin) == 0
}

// electLeader makes sure that the leader is among those who joined, and reports
// whether anybody did.
func (g *Group) electLeader() bool {
	if m := g.members[g.leader]; m != nil && m.join != nil {
		return true
	}
	for _, m := range g.inKafkasOrder() {
		if m.join != nil {
			g.leader = m.ID
			return true
		}
	}
	return false
}

// rebalanceTimeout is the longest of the members'.
func (g *Group) rebalanceTimeout() time.Duration {
	longest := int32(0)
	for _, m := range g.order {
		longest = max(longest, m.RebalanceTimeoutMillis)
	}
	return time.Duration(longest) * time.Millisecond
}

// nextGeneration ends the join phase.
func (g *Group) nextGeneration() {
	g.Generation++
	if len(g.members) > 0 {
		selected := g.selectProtocol()
		g.protocol = &selected
		g.subscribed = g.subscribedTopics()
		g.transition(CompletingRebalance)
	} else {
		g.protocol = nil
		g.subscribed = g.subscribedTopics()
		g.transition(Empty)
	}
	clear(g.pendingSync)
}

// validateMember checks that a request comes from a member.
func (g *Group) validateMember(id string, instanceID *string) error {
	if instanceID != nil {
		switch current, ok := g.static[*instanceID]; {
		case !ok:
			return kerr.UnknownMemberID
		case current != id:
			return kerr.FencedInstanceID
		}
	}
	if g.members[id] == nil {
		return kerr.UnknownMemberID
	}
	return nil
}

func (g *Group) answerJoin(m *Member, resp *kmsg.JoinGroupResponse) {
	if m.join == nil {
		return
	}
	m.join(resp)
	m.join = nil
	g.awaitingJoin--
}

func (g *Group) answerSync(m *Member, resp *kmsg.SyncGroupResponse) bool {
	if m.sync == nil {
		return false
	}
	m.sync(resp)
	m.sync = nil
	return true
}

// check asserts the invariants of the group.
func (g *Group) check() {
	if !invariants.Enabled {
		return
	}
	waiting, counts := 0, make(map[string]int)
	for _, m := range g.order {
		invariants.Assertf(g.members[m.ID] == m, "group %s: member %s is in the order only", g.ID, m.ID)
		if m.join != nil {
			waiting++
		}
		for _, p := range m.Protocols {
			counts[p.Name]++
		}
		if m.InstanceID != nil {
			invariants.Assertf(g.static[*m.InstanceID] == m.ID, "group %s: static member %s is not mapped", g.ID, m.ID)
		}
		_, pending := g.pendingJoin[m.ID]
		invariants.Assertf(!pending, "group %s: member %s is pending too", g.ID, m.ID)
	}
	invariants.Assertf(len(g.order) == len(g.members), "group %s: order and members differ", g.ID)
	invariants.Assertf(waiting == g.awaitingJoin, "group %s: %d wait, counted %d", g.ID, waiting, g.awaitingJoin)
	for name, n := range counts {
		invariants.Assertf(g.supported[name] == n, "group %s: protocol %s counted wrong", g.ID, name)
	}
	invariants.Assertf(len(g.members) == 0 || g.leader != "", "group %s has members and no leader", g.ID)
	invariants.Assertf(g.state != Empty || len(g.members) == 0, "group %s is empty with %d members", g.ID, len(g.members))
}
