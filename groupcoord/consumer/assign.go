package consumer

import (
	"time"

	"gregor/groupcoord/assignor"
	"gregor/groupcoord/javaorder"
	"gregor/groupcoord/schema"
	"gregor/protocol"
)

// assignAndReconcile computes a new target when the group needs one and it is
// time, and moves the member towards its target.
func (s *stepper) assignAndReconcile(subscriptionChanged bool) (*Member, error) {
	epoch, target := s.assign()
	return s.reconcile(epoch, target, subscriptionChanged)
}

// lastTarget is the target assignment so far; a static member inherits that of
// the member it replaces.
func (s *stepper) lastTarget() (int32, assignor.Assignment) {
	g := s.group
	id := s.after.ID
	if s.after.InstanceID != nil {
		id, _ = g.static.Get(*s.after.InstanceID)
	}
	return g.AssignmentEpoch(), g.Target(id)
}

func (s *stepper) assign() (int32, assignor.Assignment) {
	g := s.group
	due := g.assignmentMillis.Get() + s.config(g.ID).AssignmentInterval.Milliseconds()
	if g.AssignmentEpoch() >= s.epoch || (g.assignmentMillis.Get() != 0 && time.Now().UnixMilli() < due) {
		epoch, target := s.lastTarget()
		return epoch, target
	}
	target, records := s.computeTarget(g, s.change(), s.epoch)
	s.records = append(s.records, records...)
	return s.epoch, target
}

// computeTarget runs the assignor over the changed group and returns the target of
// the member of the step, and the records of what changed in the targets.
func (m *Manager) computeTarget(g *Group, c change, epoch int32) (assignor.Assignment, []schema.Record) {
	input := m.assignorInput(g, c)
	name := m.assignorOf(g, c)
	targets := m.assignorByName(name).Assign(input)
	var own assignor.Assignment
	var records []schema.Record
	for i := range input.Members {
		member := &input.Members[i]
		if c.with != nil && member.ID == c.with.ID {
			own = targets[i]
		}
		_, had := g.target.Get(g.heir(c, member.ID, member.InstanceID))
		if !had || !targets[i].Equal(member.Current) {
			records = append(records, targetRecord(g.ID, member.ID, targets[i]))
		}
	}
	m.Logger.Info("target assignment computed", "group", g.ID, "epoch", epoch, "assignor", name, "members", len(targets))
	return own, append(records, targetEpochRecord(g.ID, epoch, time.Now().UnixMilli()))
}

// assignorInput is the changed group as an assignor sees it.
func (m *Manager) assignorInput(g *Group, c change) assignor.Group {
	topics := m.Topics()
	input := assignor.Group{
		Members: make([]assignor.Member, 0, g.NumMembers()+1), Patterns: make(map[string][]string),
		Topic: func(name string) (assignor.Topic, bool) {
			t, ok := topics.ByName(name)
			return assignor.Topic{ID: t.ID, Partitions: t.Partitions}, ok
		},
	}
	for _, member := range g.visited(c) {
		current, _ := g.target.Get(g.heir(c, member.ID, member.InstanceID))
		input.Members = append(input.Members, assignor.Member{
			ID: member.ID, InstanceID: member.InstanceID, Names: member.Topics, Pattern: member.Regex, Current: current,
		})
		if member.Regex != "" {
			input.Patterns[member.Regex] = g.resolvedTopics(member.Regex, c.resolved)
		}
	}
	return input
}

// heir is whose target a member has: its own, or that of the static member that
// it replaces.
func (g *Group) heir(c change, memberID string, instanceID *string) string {
	if instanceID != nil {
		if id, ok := g.static.Get(*instanceID); ok && c.without[id] {
			return id
		}
	}
	return memberID
}

// visited returns the members of the changed group in the order in which Kafka
// visits them: that of its table, then the new one.
func (g *Group) visited(c change) []*Member {
	entries := make([]javaorder.Entry[*Member], 0, g.members.Len())
	for id, member := range g.members.All() {
		switch {
		case c.without[id]:
			continue
		case c.with != nil && id == c.with.ID:
			member = c.with
		}
		entries = append(entries, javaorder.Entry[*Member]{Hash: javaorder.String(id), Arrival: g.members.Arrival(id), Value: member})
	}
	javaorder.Timeline(entries, g.members.Room())
	out := make([]*Member, 0, len(entries)+1)
	for _, e := range entries {
		out = append(out, e.Value)
	}
	if c.with != nil && g.Member(c.with.ID) == nil {
		out = append(out, c.with)
	}
	return out
}

// reconcile moves the member one step towards its target.
func (s *stepper) reconcile(epoch int32, target assignor.Assignment, subscriptionChanged bool) (*Member, error) {
	m := s.after
	if !subscriptionChanged && m.reconciledTo(epoch) {
		return m, nil
	}
	r := &reconciler{
		member: m, targetEpoch: epoch, target: target, subscriptionChanged: subscriptionChanged,
		ownerEpoch: s.group.ownerEpoch, reported: s.reported, subscribed: make(map[protocol.UUID]struct{}),
	}
	topics := s.Topics()
	for _, name := range s.group.subscription(m, nil) {
		if t, ok := topics.ByName(name); ok {
			r.subscribed[t.ID] = struct{}{}
		}
	}
	next, err := r.step()
	if err != nil || next.sameAssignment(m) {
		return m, err
	}
	s.records = append(s.records, currentRecord(s.group.ID, next))
	if next.Classic == nil {
		if next.State == UnrevokedPartitions {
			s.expectRevocation(s.group.ID, next)
		} else {
			s.Timers.Cancel(rebalanceKey(s.group.ID, next.ID))
		}
	}
	s.after = next
	return next, nil
}
