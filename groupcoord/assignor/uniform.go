package assignor

import (
	"cmp"
	"slices"

	"gregor/protocol"
)

// Uniform spreads the partitions evenly over the members, whatever their topics,
// and moves as few as it can. Where all members subscribe to the same topics
// their numbers of partitions differ by one at most; else the assignment is as
// even as the subscriptions allow.
type Uniform struct{}

// Name implements Assignor.
func (Uniform) Name() string { return "uniform" }

// Assign implements Assignor.
func (Uniform) Assign(g Group) (map[string]Assignment, error) {
	if len(g.Members) == 0 {
		return map[string]Assignment{}, nil
	}
	if err := g.check(); err != nil {
		return nil, err
	}
	u := newUniform(g)
	u.keep()
	if g.homogeneous() {
		u.level()
	} else {
		u.place()
		u.balance()
	}
	return u.result(), nil
}

// partition is a partition of a topic.
type partition struct {
	topic protocol.UUID
	index int32
}

func comparePartitions(a, b partition) int {
	return cmp.Or(compareIDs(a.topic, b.topic), cmp.Compare(a.index, b.index))
}

// uniform is one run of the assignor.
type uniform struct {
	group   Group
	members []*Member
	// owned are the partitions of each member, by topic.
	owned []map[protocol.UUID][]int32
	// load counts the partitions of each member.
	load []int
	// free are the partitions without an owner, in order.
	free []partition
	// subscribers are the members of each topic.
	subscribers map[protocol.UUID][]int
}

func newUniform(g Group) *uniform {
	u := &uniform{group: g, members: make([]*Member, len(g.Members)), subscribers: make(map[protocol.UUID][]int)}
	for i := range g.Members {
		u.members[i] = &g.Members[i]
	}
	slices.SortFunc(u.members, func(a, b *Member) int { return cmp.Compare(a.ID, b.ID) })
	u.owned = make([]map[protocol.UUID][]int32, len(u.members))
	u.load = make([]int, len(u.members))
	for i, m := range u.members {
		u.owned[i] = make(map[protocol.UUID][]int32)
		for id := range m.Topics {
			u.subscribers[id] = append(u.subscribers[id], i)
		}
	}
	return u
}

// keep lets each member have what it has, as far as it still subscribes to it
// and nobody else has it, and collects the rest.
func (u *uniform) keep() {
	taken := make(map[partition]struct{})
	for i, m := range u.members {
		for _, topic := range topicsOf(m) {
			for _, index := range m.Current[topic] {
				p := partition{topic, index}
				if _, dup := taken[p]; dup || index < 0 || index >= u.group.Partitions[topic] {
					continue
				}
				taken[p] = struct{}{}
				u.give(i, p)
			}
		}
	}
	for topic := range u.subscribers {
		for index := range u.group.Partitions[topic] {
			if _, ok := taken[partition{topic, index}]; !ok {
				u.free = append(u.free, partition{topic, index})
			}
		}
	}
	slices.SortFunc(u.free, comparePartitions)
}

func (u *uniform) give(member int, p partition) {
	u.owned[member][p.topic] = append(u.owned[member][p.topic], p.index)
	u.load[member]++
}

// take removes the last partition of a topic from a member.
func (u *uniform) take(member int, topic protocol.UUID) partition {
	partitions := u.owned[member][topic]
	p := partition{topic, partitions[len(partitions)-1]}
	if len(partitions) == 1 {
		delete(u.owned[member], topic)
	} else {
		u.owned[member][topic] = partitions[:len(partitions)-1]
	}
	u.load[member]--
	return p
}

// ownedTopics returns the topics that a member has partitions of, in order.
func (u *uniform) ownedTopics(member int) []protocol.UUID {
	ids := make([]protocol.UUID, 0, len(u.owned[member]))
	for id := range u.owned[member] {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, compareIDs)
	return ids
}

// level evens out a group in which everybody may have everything: each member
// gets the quotient, and those who have more already keep one of the remainder
// first.
func (u *uniform) level() {
	total := len(u.free)
	for _, n := range u.load {
		total += n
	}
	quota, extra := total/len(u.members), total%len(u.members)
	byLoad := u.membersByLoad()
	slices.Reverse(byLoad)
	limits := make([]int, len(u.members))
	for _, i := range byLoad {
		limits[i] = quota
		if extra > 0 {
			limits[i]++
			extra--
		}
	}
	for i := range u.members {
		for u.load[i] > limits[i] {
			// From the topic with most partitions, so that each topic stays spread.
			u.free = append(u.free, u.take(i, u.largestTopic(i)))
		}
	}
	slices.SortFunc(u.free, comparePartitions)
	next := 0
	for i := range u.members {
		for ; u.load[i] < limits[i]; next++ {
			u.give(i, u.free[next])
		}
	}
	u.free = u.free[next:]
}

func (u *uniform) largestTopic(member int) protocol.UUID {
	var best protocol.UUID
	most := 0
	for _, topic := range u.ownedTopics(member) {
		if n := len(u.owned[member][topic]); n > most {
			best, most = topic, n
		}
	}
	return best
}

// membersByLoad returns the members from the least loaded on; equals in order.
func (u *uniform) membersByLoad() []int {
	order := make([]int, len(u.members))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(u.load[a], u.load[b]) })
	return order
}

// place gives each free partition to the least loaded of its subscribers; those
// with the smallest choice come first.
func (u *uniform) place() {
	slices.SortStableFunc(u.free, func(a, b partition) int {
		return cmp.Compare(len(u.subscribers[a.topic]), len(u.subscribers[b.topic]))
	})
	for _, p := range u.free {
		best := -1
		for _, i := range u.subscribers[p.topic] {
			if best < 0 || u.load[i] < u.load[best] {
				best = i
			}
		}
		u.give(best, p)
	}
	u.free = nil
}

// balance moves partitions from loaded members to those with two fewer or less,
// perhaps through others: a chain of members, each of which hands a partition to
// the next. Each chain makes the assignment more even, so this ends; and when no
// chain is left no assignment is more even.
func (u *uniform) balance() {
	for moved := true; moved; {
		moved = false
		order := u.membersByLoad()
		slices.Reverse(order)
		for _, from := range order {
			for u.chain(from) {
				moved = true
			}
		}
	}
}

// step is how a chain came to a member.
type step struct {
	from  int
	topic protocol.UUID
}

// chain looks for the shortest way to the least loaded member that from can
// reach, and moves a partition along it. It reports whether it did.
func (u *uniform) chain(from int) bool {
	came := map[int]step{from: {from: -1}}
	seenTopics := make(map[protocol.UUID]struct{})
	queue := []int{from}
	best := -1
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for _, topic := range u.ownedTopics(at) {
			if _, seen := seenTopics[topic]; seen {
				continue
			}
			seenTopics[topic] = struct{}{}
			for _, to := range u.subscribers[topic] {
				if _, seen := came[to]; seen {
					continue
				}
				came[to] = step{from: at, topic: topic}
				queue = append(queue, to)
				if u.load[to] <= u.load[from]-2 && (best < 0 || u.load[to] < u.load[best]) {
					best = to
				}
			}
		}
	}
	if best < 0 {
		return false
	}
	for to := best; to != from; to = came[to].from {
		u.give(to, u.take(came[to].from, came[to].topic))
	}
	return true
}

// result returns the assignments, an empty one for who has nothing.
func (u *uniform) result() map[string]Assignment {
	out := make(map[string]Assignment, len(u.members))
	for i, m := range u.members {
		a := make(Assignment, len(u.owned[i]))
		for topic, partitions := range u.owned[i] {
			slices.Sort(partitions)
			a[topic] = partitions
		}
		out[m.ID] = a
	}
	return out
}
