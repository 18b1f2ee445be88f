package assignor

import (
	"bytes"
	"cmp"
	"slices"

	"gregor/groupcoord/javaorder"
	"gregor/protocol"
)

// maxPasses bounds how often the topics are gone through to even them out.
const maxPasses = 16

// mixed assigns to members that subscribe to different topics. The subscribers of
// each topic end with numbers of partitions that differ by one at most, as far as
// those who have more have partitions of that topic at all. That is even where
// topics have the same subscribers; through a chain of members who share topics
// pairwise it can leave more of a difference.
type mixed struct {
	*problem
	owners [][]int
	// load is the number of partitions, by the place of the member in members.
	load []int
	// subscribers are the places of each topic's subscribers, ascending.
	subscribers [][]int
	places      []int
	scale       *scale
}

func newMixed(p *problem, owners [][]int) *mixed {
	u := &mixed{
		problem: p, owners: owners, load: make([]int, len(p.members)),
		subscribers: make([][]int, len(p.topics)), places: make([]int, len(p.members)),
	}
	u.scale = &scale{load: u.load}
	for place, m := range p.members {
		u.places[m] = place
		for _, t := range p.subscribes[m].topics {
			u.subscribers[t] = append(u.subscribers[t], place)
		}
	}
	return u
}

func (u *mixed) run() {
	for _, m := range u.members {
		current := u.member(m).Current
		for i := range current {
			if _, ok := u.subscribed(m, current[i].Topic); ok {
				u.load[u.places[m]] += len(current[i].Partitions)
			} else {
				u.draft(m).drop(current[i].Topic)
			}
		}
	}
	topics := u.sortedTopics()
	for _, t := range topics {
		u.place(t)
	}
	u.balance(slices.DeleteFunc(topics, func(t int) bool { return len(u.subscribers[t]) < 2 }))
}

// sortedTopics returns the topics with most partitions for each subscriber first,
// then those with fewer subscribers, then by id.
func (u *mixed) sortedTopics() []int {
	out := make([]int, len(u.topics))
	for t := range out {
		out[t] = t
	}
	perSubscriber := func(t int) float64 { return float64(u.topics[t].Partitions) / float64(len(u.subscribers[t])) }
	slices.SortFunc(out, func(a, b int) int {
		return cmp.Or(cmp.Compare(perSubscriber(b), perSubscriber(a)),
			cmp.Compare(len(u.subscribers[a]), len(u.subscribers[b])),
			compareIDs(u.topics[a].ID, u.topics[b].ID))
	})
	return out
}

// compareIDs is Java's order of ids: of two signed numbers.
func compareIDs(a, b protocol.UUID) int {
	for _, i := range []int{0, 8} {
		a[i] ^= 0x80
		b[i] ^= 0x80
	}
	return bytes.Compare(a[:], b[:])
}

// place gives the free partitions of a topic to its least loaded subscribers.
func (u *mixed) place(t int) {
	ready := false
	for index, owner := range u.owners[t] {
		if owner != nobody {
			continue
		}
		if !ready {
			u.scale.load = u.load
			u.scale.reset(u.subscribers[t])
			ready = true
		}
		u.give(t, int32(index), u.scale.lightest())
	}
}

// give hands a partition to the member at a place.
func (u *mixed) give(t int, index int32, to int) {
	if owner := u.owners[t][index]; owner != nobody {
		u.draft(owner).remove(u.topics[t].ID, index)
		u.load[u.places[owner]]--
	}
	subscribers := len(u.subscribers[t])
	expected := (int(u.topics[t].Partitions) + subscribers - 1) / subscribers
	m := u.members[to]
	u.draft(m).add(u.topics[t], index, javaorder.Capacity(javaorder.FitArgument(expected)))
	u.owners[t][index] = m
	u.load[to]++
}

// balance evens the topics out, one after the other, until a whole round changed
// nothing.
func (u *mixed) balance(topics []int) {
	last := -1
	for range maxPasses {
		for i, t := range topics {
			if i == last {
				return
			}
			if u.even(t) || last < 0 {
				last = i
			}
		}
	}
}

// even moves partitions of a topic from its most loaded subscribers to its least
// loaded ones. It reports whether it moved any.
func (u *mixed) even(t int) (moved bool) {
	if u.scale.reset(u.subscribers[t]) <= 1 {
		return false
	}
	owned := u.owned(t)
	for !u.scale.even() {
		from := u.scale.heaviest()
		for from >= 0 && len(owned[from]) == 0 {
			u.scale.exclude()
			from = u.scale.heaviest()
		}
		if from < 0 {
			break
		}
		index := owned[from][len(owned[from])-1]
		owned[from] = owned[from][:len(owned[from])-1]
		to := u.scale.lightest()
		if u.scale.even() {
			break
		}
		u.give(t, index, to)
		moved = true
	}
	return moved
}

// owned returns the partitions of a topic by the place of their owner, ascending.
func (u *mixed) owned(t int) map[int][]int32 {
	out := make(map[int][]int32)
	for index, owner := range u.owners[t] {
		place := u.places[owner]
		out[place] = append(out[place], int32(index))
	}
	return out
}
