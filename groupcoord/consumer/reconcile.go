package consumer

import (
	"maps"

	"gregor/groupcoord/assignor"
	"gregor/protocol"
)

// reconciler moves a member towards its target assignment by one step.
type reconciler struct {
	member *Member
	// targetEpoch and target are what the member shall reach.
	targetEpoch int32
	target      assignor.Assignment
	// subscribed are the ids of the existing topics that the member may have.
	subscribed map[protocol.UUID]struct{}
	// subscriptionChanged takes topics away at once that are not subscribed.
	subscriptionChanged bool
	// ownerEpoch is noEpoch for a partition that nobody owns.
	ownerEpoch func(topic protocol.UUID, index int32) int32
	// reported is what the member says it owns; nil when it does not say.
	reported map[protocol.UUID][]int32
}

// step returns the member after one step, the same one when nothing changes.
func (r *reconciler) step() (*Member, error) {
	m := r.member
	switch m.State {
	case StableState:
		if m.Epoch != r.targetEpoch {
			return r.next(m.Epoch), nil
		}
		if r.subscriptionChanged {
			return r.dropUnsubscribed(), nil
		}
		return m, nil
	case UnrevokedPartitions:
		if !r.stillOwns(m.Revoking) {
			return r.next(m.Epoch), nil
		}
		if r.subscriptionChanged {
			return r.dropUnsubscribed(), nil
		}
		return m, nil
	case UnreleasedPartitions:
		return r.next(m.Epoch), nil
	case UnknownState:
	}
	// What a newer version meant cannot be known. A member that owns nothing can
	// start again.
	if r.reported == nil || len(r.reported) > 0 {
		return nil, fenced("The consumer group member is in a unknown state. The member must abandon all its partitions and rejoin.")
	}
	return r.next(r.targetEpoch), nil
}

// stillOwns reports whether the member has some of the partitions. It does as
// long as it does not say otherwise.
func (r *reconciler) stillOwns(o Owned) bool {
	if r.reported == nil {
		return true
	}
	for topic, partitions := range r.reported {
		for _, index := range partitions {
			if o.has(topic, index) {
				return true
			}
		}
	}
	return false
}

// dropUnsubscribed revokes the partitions of topics that the member does not
// subscribe to any more, without waiting for a new target.
func (r *reconciler) dropUnsubscribed() *Member {
	m := r.member
	assigned, revoking := make(Owned), maps.Clone(m.Revoking)
	for topic, partitions := range m.Assigned {
		if _, ok := r.subscribed[topic]; ok {
			assigned[topic] = partitions
			continue
		}
		if revoking == nil {
			revoking = make(Owned)
		}
		merged := maps.Clone(partitions)
		maps.Copy(merged, revoking[topic])
		revoking[topic] = merged
	}
	if len(assigned) == len(m.Assigned) {
		return m
	}
	return m.with(func(n *Member) {
		n.advance(m.Epoch)
		n.Assigned = assigned
		if len(revoking) > 0 && r.stillOwns(revoking) {
			n.State, n.Revoking = UnrevokedPartitions, revoking
		}
	})
}

// next is the step of a member that has nothing to revoke: it keeps what is in
// its target, has to give up what is not, and only when that is done it reaches
// the target's epoch and gets what is free.
func (r *reconciler) next(epoch int32) *Member {
	m := r.member
	assigned, revoking, pending := make(Owned), make(Owned), make(map[protocol.UUID][]int32)
	unreleased := false
	for topic, partitions := range m.Assigned {
		wanted := r.wanted(topic)
		for index, since := range partitions {
			if wanted[index] {
				put(assigned, topic, index, since)
			} else {
				put(revoking, topic, index, since)
			}
		}
	}
	for i := range r.target {
		topic := r.target[i].Topic
		for index := range r.wanted(topic) {
			switch {
			case assigned.has(topic, index):
			case r.ownerEpoch(topic, index) != noEpoch && !m.Revoking.has(topic, index):
				unreleased = true
			default:
				pending[topic] = append(pending[topic], index)
			}
		}
	}
	if len(revoking) > 0 && r.stillOwns(revoking) {
		return m.with(func(n *Member) {
			n.advance(epoch)
			n.State, n.Assigned, n.Revoking = UnrevokedPartitions, assigned, revoking
		})
	}
	for topic, partitions := range pending {
		for _, index := range partitions {
			put(assigned, topic, index, r.targetEpoch)
		}
	}
	return m.with(func(n *Member) {
		n.advance(r.targetEpoch)
		n.State, n.Assigned, n.Revoking = StableState, assigned, nil
		if unreleased {
			n.State = UnreleasedPartitions
		}
	})
}

// wanted returns the partitions of a topic in the target, none when the member
// does not subscribe to it any more.
func (r *reconciler) wanted(topic protocol.UUID) map[int32]bool {
	out := make(map[int32]bool)
	if _, ok := r.subscribed[topic]; ok {
		for _, index := range r.target.Of(topic) {
			out[index] = true
		}
	}
	return out
}

func put(o Owned, topic protocol.UUID, index, epoch int32) {
	if o[topic] == nil {
		o[topic] = make(map[int32]int32)
	}
	o[topic][index] = epoch
}
