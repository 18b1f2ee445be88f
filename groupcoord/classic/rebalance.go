package classic

import (
	"time"

	"gregor/groupcoord/schema"
)

// defaultNewMemberJoinTimeout is Kafka's.
const defaultNewMemberJoinTimeout = 5 * time.Minute

// rebalanceOrComplete begins a rebalance, or sees whether the running one can
// end.
func (m *Manager) rebalanceOrComplete(g *Group, why string) Effect {
	if g.canRebalance() {
		return m.prepareRebalance(g, why)
	}
	return m.maybeCompleteJoin(g)
}

// maybeCompleteJoin ends the join phase if everybody joined; an initial
// rebalance waits for its delay all the same.
func (m *Manager) maybeCompleteJoin(g *Group) Effect {
	if g.state != PreparingRebalance || g.previous == Empty || !g.allJoined() {
		return Effect{}
	}
	return m.completeJoin(g)
}

// prepareRebalance begins a rebalance: all members have to join again.
func (m *Manager) prepareRebalance(g *Group, why string) Effect {
	if g.state == CompletingRebalance {
		m.resetAssignments(g, errRebalanceInProgress)
	}
	clear(g.pendingSync)
	m.timers.Cancel(syncKey(g.ID))
	initial := g.state == Empty
	if initial {
		// More members will follow; waiting a little saves rebalances.
		delay := m.cfg.InitialRebalanceDelay
		m.extendInitial(g.ID, delay, max(g.rebalanceTimeout()-delay, 0))
	}
	g.transition(PreparingRebalance)
	m.log.Info("rebalance begins", "group", g.ID, "generation", g.Generation, "members", len(g.members), "reason", why)
	if initial {
		return Effect{}
	}
	if g.allJoined() {
		return m.completeJoin(g)
	}
	m.scheduleCompletion(g)
	return Effect{}
}

// scheduleCompletion ends the join phase at the latest after the rebalance
// timeout.
func (m *Manager) scheduleCompletion(g *Group) {
	groupID := g.ID
	m.timers.Schedule(joinKey(groupID), g.rebalanceTimeout(), false, func() (Effect, error) {
		if g := m.groups.Classic(groupID); g != nil {
			return m.completeJoin(g), nil
		}
		return Effect{}, nil
	})
}

// extendInitial waits for delay, and longer if members came meanwhile, but in
// all not longer than delay + remaining.
func (m *Manager) extendInitial(groupID string, delay, remaining time.Duration) {
	m.timers.Schedule(joinKey(groupID), delay, false, func() (Effect, error) {
		g := m.groups.Classic(groupID)
		if g == nil {
			return Effect{}, nil
		}
		if !g.newMemberAdded || remaining == 0 {
			return m.completeJoin(g), nil
		}
		g.newMemberAdded = false
		m.extendInitial(groupID, min(m.cfg.InitialRebalanceDelay, remaining), max(remaining-delay, 0))
		return Effect{}, nil
	})
}

// completeJoin ends the join phase: dynamic members that did not join are out,
// the others make the next generation.
func (m *Manager) completeJoin(g *Group) Effect {
	defer g.check()
	m.timers.Cancel(joinKey(g.ID))
	for _, member := range append([]*Member(nil), g.order...) {
		if member.join == nil && member.InstanceID == nil {
			m.log.Info("member removed: it did not join the rebalance", "group", g.ID, "member", member.ID)
			g.remove(member.ID)
			m.timers.Cancel(heartbeatKey(g.ID, member.ID))
		}
	}
	if !g.electLeader() && len(g.members) > 0 {
		// Only static members are left and none joined. Wait until they do, or
		// until their sessions end.
		m.scheduleCompletion(g)
		return Effect{}
	}
	g.nextGeneration()
	if g.state == Empty {
		m.log.Info("group is empty now", "group", g.ID, "generation", g.Generation)
		return Effect{
			Applied: true, Records: []schema.Record{g.record(nil)},
			Done: func(err error) {
				if err != nil {
					// The log still has the members of the last generation. If it
					// is loaded they come back, and time out.
					m.log.Warn("empty group not written", "group", g.ID, "cause", err)
				}
			},
		}
	}
	m.log.Info("rebalance has all members", "group", g.ID, "generation", g.Generation, "members", len(g.members))
	for _, member := range g.order {
		resp := g.joined(member)
		if member.ID == g.leader {
			resp.Members = g.memberList()
		}
		g.answerJoin(member, resp)
		m.expectHeartbeat(g, member)
		member.isNew = false
		g.pendingSync[member.ID] = struct{}{}
	}
	m.scheduleSync(g)
	return Effect{}
}

// scheduleSync removes the members that do not sync in time (KAFKA-12890).
func (m *Manager) scheduleSync(g *Group) {
	groupID, generation := g.ID, g.Generation
	m.timers.Schedule(syncKey(groupID), g.rebalanceTimeout(), false, func() (Effect, error) {
		g := m.groups.Classic(groupID)
		if g == nil || g.Generation != generation || (g.state != CompletingRebalance && g.state != Stable) || len(g.pendingSync) == 0 {
			return Effect{}, nil
		}
		defer g.check()
		for _, member := range append([]*Member(nil), g.order...) {
			if _, pending := g.pendingSync[member.ID]; pending {
				m.log.Info("member removed: it did not sync", "group", g.ID, "member", member.ID)
				g.remove(member.ID)
				m.timers.Cancel(heartbeatKey(g.ID, member.ID))
			}
		}
		return m.prepareRebalance(g, "members did not sync"), nil
	})
}
