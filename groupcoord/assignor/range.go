package assignor

import "gregor/protocol"

// Range gives each member one range of the partitions of each topic. The ranges
// of members that subscribe to the same topics line up, so that topics with the
// same number of partitions are co-partitioned.
type Range struct{}

// Name implements Assignor.
func (Range) Name() string { return "range" }

// Assign implements Assignor.
func (Range) Assign(g Group) (map[string]Assignment, error) {
	if err := g.check(); err != nil {
		return nil, err
	}
	members := sortedMembers(g.Members)
	type share struct{ quota, extra, next int32 }
	subscribers := make(map[protocol.UUID]int32)
	for _, m := range members {
		for id := range m.Topics {
			subscribers[id]++
		}
	}
	shares := make(map[protocol.UUID]*share, len(subscribers))
	for id, n := range subscribers {
		shares[id] = &share{quota: g.Partitions[id] / n, extra: g.Partitions[id] % n}
	}
	out := make(map[string]Assignment, len(members))
	for _, m := range members {
		a := make(Assignment, len(m.Topics))
		for id := range m.Topics {
			s := shares[id]
			n := s.quota
			if s.extra > 0 {
				// The first members get what is left over.
				s.extra--
				n++
			}
			if n > 0 {
				a[id] = sequence(s.next, n)
			}
			s.next += n
		}
		out[m.ID] = a
	}
	return out, nil
}

func sequence(from, n int32) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = from + int32(i)
	}
	return out
}
