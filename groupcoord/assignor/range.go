package assignor

import (
	"cmp"
	"slices"

	"gregor/groupcoord/javaorder"
)

// Range gives each member one range of the partitions of each topic. The ranges
// of members that subscribe to the same topics line up, so that topics with the
// same number of partitions are co-partitioned.
type Range struct{}

// Name implements Assignor.
func (Range) Name() string { return "range" }

// Assign implements Assignor.
func (Range) Assign(g Group) []Assignment {
	p := newProblem(g)
	type share struct{ subscribers, quota, extra, next int32 }
	shares := make([]share, len(p.topics))
	for _, s := range p.subscribes {
		for _, t := range s.topics {
			shares[t].subscribers++
		}
	}
	for t := range shares {
		s := &shares[t]
		s.quota, s.extra = p.topics[t].Partitions/s.subscribers, p.topics[t].Partitions%s.subscribers
	}
	homogeneous := g.Homogeneous()
	for _, i := range p.byInstance() {
		sub := p.subscribes[i]
		expected := sub.count
		if homogeneous {
			expected = len(sub.topics)
		}
		table := javaorder.NewTable[TopicPartitions](javaorder.Capacity(javaorder.FitArgument(expected)))
		for _, t := range sub.topics {
			s := &shares[t]
			n := s.quota
			if s.extra > 0 {
				// The first members get what is left over.
				s.extra--
				n++
			}
			if n > 0 {
				table.Put(p.topics[t].hash, TopicPartitions{Topic: p.topics[t].ID, Partitions: sequence(s.next, n)})
			}
			s.next += n
		}
		p.out[i] = keepEqual(p.member(i).Current, values(table.Entries()))
	}
	return p.out
}

// keepEqual returns the assignment so far when the new one is the same: no record
// is written then, and the order stays.
func keepEqual(before, after Assignment) Assignment {
	if before.Equal(after) {
		return before
	}
	return after
}

// byInstance returns the members with static ones first, by instance id, then the
// others by member id. Static members so keep their place when their member id
// changes.
func (p *problem) byInstance() []int {
	out := slices.Clone(p.members)
	slices.SortStableFunc(out, func(i, j int) int {
		a, b := p.member(i), p.member(j)
		switch {
		case a.InstanceID != nil && b.InstanceID != nil:
			return compareUTF16(*a.InstanceID, *b.InstanceID)
		case a.InstanceID == nil && b.InstanceID == nil:
			return compareUTF16(a.ID, b.ID)
		}
		return cmp.Compare(rank(a.InstanceID), rank(b.InstanceID))
	})
	return out
}

func rank(instanceID *string) int {
	if instanceID != nil {
		return 0
	}
	return 1
}

func sequence(from, n int32) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = from + int32(i)
	}
	return out
}
