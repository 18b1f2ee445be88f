package consumer

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"gregor/groupcoord/assignor"
	"gregor/groupcoord/schema"
	"gregor/protocol"
)

// assignAndReconcile computes a new target when the group needs one and it is
// time, and moves the member towards its target.
func (s *stepper) assignAndReconcile(subscriptionChanged bool) (*Member, error) {
	epoch, target, err := s.assign()
	if err != nil {
		return nil, err
	}
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

func (s *stepper) assign() (int32, assignor.Assignment, error) {
	g := s.group
	due := g.assignmentMillis.Get() + s.config(g.ID).AssignmentInterval.Milliseconds()
	if g.AssignmentEpoch() >= s.epoch || (g.assignmentMillis.Get() != 0 && time.Now().UnixMilli() < due) {
		epoch, target := s.lastTarget()
		return epoch, target, nil
	}
	targets, records, err := s.computeTarget(g, s.change(), s.epoch)
	if err != nil {
		return 0, nil, protocol.NewError(kerr.UnknownServerError.Code, fmt.Sprintf("Failed to compute a new target assignment for epoch %d: %v", s.epoch, err))
	}
	s.records = append(s.records, records...)
	return s.epoch, targets[s.after.ID], nil
}

// computeTarget runs the assignor over the changed group and returns the targets
// and the records of what changed in them.
func (m *Manager) computeTarget(g *Group, c change, epoch int32) (map[string]assignor.Assignment, []schema.Record, error) {
	topics := m.Topics()
	input := assignor.Group{Partitions: make(map[protocol.UUID]int32)}
	inherited := make(map[string]assignor.Assignment)
	g.each(c, func(member *Member) {
		am := assignor.Member{ID: member.ID, InstanceID: member.InstanceID, RackID: member.RackID, Topics: make(map[protocol.UUID]struct{})}
		for _, name := range g.subscription(member, c.resolved) {
			if t, ok := topics.ByName(name); ok {
				am.Topics[t.ID] = struct{}{}
				input.Partitions[t.ID] = t.Partitions
			}
		}
		am.Current = g.Target(member.ID)
		if member.InstanceID != nil {
			if id, ok := g.static.Get(*member.InstanceID); ok && c.without[id] {
				am.Current = g.Target(id)
			}
		}
		inherited[member.ID] = am.Current
		input.Members = append(input.Members, am)
	})
	name := m.assignorOf(g, c)
	targets, err := m.assignorByName(name).Assign(input)
	if err != nil {
		return nil, nil, err
	}
	var records []schema.Record
	for _, id := range sortedKeys(targets) {
		_, had := g.target.Get(id)
		_, inherits := inherited[id], had || len(inherited[id]) > 0
		if !inherits || !targets[id].Equal(inherited[id]) {
			records = append(records, targetRecord(g.ID, id, targets[id]))
		}
	}
	m.Logger.Info("target assignment computed", "group", g.ID, "epoch", epoch, "assignor", name, "members", len(targets))
	return targets, append(records, targetEpochRecord(g.ID, epoch, time.Now().UnixMilli())), nil
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
