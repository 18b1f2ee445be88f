package assignor

import (
	"slices"

	"gregor/groupcoord/javaorder"
)

// Uniform spreads the partitions evenly over the members, whatever their topics,
// and moves few. Where all members subscribe to the same topics their numbers of
// partitions differ by one at most and no partition moves needlessly; else see
// mixed.
type Uniform struct{}

// Name implements Assignor.
func (Uniform) Name() string { return "uniform" }

// Assign implements Assignor.
func (Uniform) Assign(g Group) []Assignment {
	p := newProblem(g)
	owners := p.currentOwners()
	if len(p.topics) == 0 {
		for i := range p.out {
			p.out[i] = keepEqual(p.member(i).Current, Assignment{})
		}
		return p.out
	}
	p.drafts = make([]*draft, len(g.Members))
	if g.Homogeneous() {
		u := &level{problem: p, owners: owners}
		u.run()
	} else {
		newMixed(p, owners).run()
	}
	for i := range p.out {
		p.out[i] = p.member(i).Current
		if p.drafts[i] != nil {
			p.out[i] = keepEqual(p.out[i], p.drafts[i].assignment())
		}
	}
	return p.out
}

// nobody owns a partition that is free.
const nobody = -1

// currentOwners returns who has each partition of each topic, as far as it
// subscribes to it, and takes away what there cannot be: see the package.
func (p *problem) currentOwners() [][]int {
	owners := make([][]int, len(p.topics))
	for t := range owners {
		owners[t] = make([]int, p.topics[t].Partitions)
		for i := range owners[t] {
			owners[t][i] = nobody
		}
	}
	for _, m := range p.members {
		current := p.member(m).Current
		for i := range current {
			t, ok := p.subscribed(m, current[i].Topic)
			if ok && !own(owners[t], current[i].Partitions, m) {
				p.repair(m, owners)
				break
			}
		}
	}
	return owners
}

// own notes that a member has partitions. It reports whether it can.
func own(owners []int, partitions []int32, member int) bool {
	for _, index := range partitions {
		if index < 0 || int(index) >= len(owners) || owners[index] != nobody {
			return false
		}
		owners[index] = member
	}
	return true
}

// repair leaves a member only what exists and nobody else has.
func (p *problem) repair(member int, owners [][]int) {
	for _, of := range owners {
		for i := range of {
			if of[i] == member {
				of[i] = nobody
			}
		}
	}
	var out Assignment
	for _, tp := range p.member(member).Current {
		t, ok := p.subscribed(member, tp.Topic)
		if !ok {
			out = append(out, tp)
			continue
		}
		kept := TopicPartitions{Topic: tp.Topic}
		for _, index := range tp.Partitions {
			if own(owners[t], []int32{index}, member) {
				kept.Partitions = append(kept.Partitions, index)
			}
		}
		if len(kept.Partitions) > 0 {
			out = append(out, kept)
		}
	}
	p.group.Members = slices.Clone(p.group.Members)
	p.group.Members[member].Current = out
}

// partition is a partition of a topic, by the topic's number.
type partition struct {
	topic int
	index int32
}

// level assigns to members that all subscribe to the same topics.
type level struct {
	*problem
	owners [][]int
	// free are the partitions without an owner, in the order in which they are
	// given out.
	free []partition
	// hungry are the members with room.
	hungry []hungry
}

// hungry is a member that has room for so many partitions.
type hungry struct{ member, room int }

func (u *level) run() {
	total := 0
	first := u.subscribes[u.members[0]]
	for _, t := range idSet(u.topics, first) {
		for index, owner := range u.owners[t] {
			if owner == nobody {
				u.free = append(u.free, partition{t, int32(index)})
			}
		}
		total += len(u.owners[t])
	}
	u.limit(total)
	for _, h := range u.hungry {
		n := min(h.room, len(u.free))
		for _, p := range u.free[:n] {
			u.draft(h.member).add(u.topics[p.topic], p.index, defaultSlots)
		}
		u.free = u.free[n:]
	}
}

// idSet returns a subscription's topics in the order of the HashSet that is made
// of their ids: with room for all names.
func idSet(topics []topic, s *subscription) []int {
	entries := make([]javaorder.Entry[int], len(s.topics))
	for i, t := range s.topics {
		entries[i] = javaorder.Entry[int]{Hash: topics[t].hash, Value: t}
	}
	javaorder.Copied(entries, javaorder.CopyCapacity(s.count))
	return values(entries)
}

// limit takes from each member what it has above its quota, and what it does not
// subscribe to any more, and finds those with room. The quota is the quotient of
// partitions and members; the first of those who have more already may have one
// of the remainder, or else the last members.
func (u *level) limit(total int) {
	quota, extra := total/len(u.members), total%len(u.members)
	for nth, m := range u.members {
		room := quota
		if extra > 0 {
			room++
		}
		room = u.shrink(m, room)
		if room > 0 && extra > 0 && len(u.members)-nth > extra {
			// It does without: there are enough members after it.
			room--
		} else if extra > 0 {
			extra--
		}
		if room > 0 {
			u.hungry = append(u.hungry, hungry{m, room})
		}
	}
}

// shrink takes from a member what is above room, and returns how much is left.
func (u *level) shrink(m, room int) int {
	current := u.member(m).Current
	has := 0
	for i := range current {
		if _, ok := u.subscribed(m, current[i].Topic); ok {
			has += len(current[i].Partitions)
		} else {
			u.draft(m).drop(current[i].Topic)
		}
	}
	if has <= room {
		return room - has
	}
	for _, tp := range topicOrder(current) {
		t, ok := u.subscribed(m, tp.Topic)
		if !ok {
			continue
		}
		n := min(room, len(tp.Partitions))
		room -= n
		if n == len(tp.Partitions) {
			continue
		}
		partitions := copyOrder(tp.Partitions)
		u.draft(m).keep(tp.Topic, partitions[:n])
		for _, index := range partitions[n:] {
			u.free = append(u.free, partition{t, index})
		}
	}
	return room
}
