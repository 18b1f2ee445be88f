package assignor

import (
	"cmp"
	"slices"
)

// scale picks from the members of a topic who gets a partition next, and who
// gives one away. Those with the fewest partitions form a run at the light end of
// the sorted members: each gets one in turn, and when all have, the run takes in
// those who had one more. Likewise with those who have most at the heavy end.
type scale struct {
	// load is the number of partitions of each member; it changes meanwhile.
	load []int
	// order are the members, the least loaded first.
	order []int

	// The light run is order[:lightEnd], its members had lightLoad partitions when
	// their turn began; lightNext is whose turn is next.
	lightEnd, lightLoad, lightNext int
	// The heavy run is order[heavyStart:heavyEnd]; its turns go downwards.
	heavyStart, heavyEnd, heavyLoad, heavyNext int
}

// reset begins with other members, and returns how far their loads are apart.
func (s *scale) reset(members []int) int {
	s.order = append(s.order[:0], members...)
	slices.SortFunc(s.order, func(a, b int) int {
		return cmp.Or(cmp.Compare(s.load[a], s.load[b]), cmp.Compare(a, b))
	})
	n := len(s.order)
	least, most := s.load[s.order[0]], s.load[s.order[n-1]]
	s.lightEnd, s.lightLoad, s.lightNext = 0, least-1, 0
	s.heavyStart, s.heavyEnd, s.heavyLoad, s.heavyNext = n, n, most+1, n-1
	return most - least
}

// lightest returns who gets the next partition.
func (s *scale) lightest() int {
	if s.lightNext >= s.lightEnd {
		s.lightLoad++
		for s.lightEnd < len(s.order) && s.load[s.order[s.lightEnd]] == s.lightLoad {
			s.lightEnd++
		}
		s.lightNext = 0
	}
	s.lightNext++
	return s.order[s.lightNext-1]
}

// heaviest returns who gives the next partition away, -1 when nobody can.
func (s *scale) heaviest() int {
	if s.heavyNext < s.heavyStart {
		if s.heavyEnd <= s.heavyStart && s.heavyStart > 0 {
			// All of the run were excluded: those before it make the next one.
			s.heavyLoad = s.load[s.order[s.heavyStart-1]]
		} else {
			s.heavyLoad--
		}
		for s.heavyStart > 0 && s.load[s.order[s.heavyStart-1]] == s.heavyLoad {
			s.heavyStart--
		}
		s.heavyNext = s.heavyEnd - 1
	}
	if s.heavyNext < 0 {
		return -1
	}
	s.heavyNext--
	return s.order[s.heavyNext+1]
}

// exclude takes the member that heaviest returned last out of the heavy run: it
// has nothing to give.
func (s *scale) exclude() {
	at, end := s.heavyNext+1, s.heavyEnd-1
	s.order[at], s.order[end] = s.order[end], s.order[at]
	s.heavyEnd--
}

// even reports whether the runs are so close that moving a partition from one to
// the other is of no use.
func (s *scale) even() bool { return s.heavyLoad-s.lightLoad <= 1 }
