package cleaner

import (
	"math"
	"slices"

	"gregor/storage/segment"
)

// sizes are what bounds the merging of segments.
type sizes struct{ log, offsets, times int64 }

func (s sizes) plus(o sizes) sizes {
	return sizes{log: s.log + o.log, offsets: s.offsets + o.offsets, times: s.times + o.times}
}

func (s sizes) within(p *Policy) bool {
	return s.log <= int64(p.SegmentBytes) && s.offsets <= int64(p.SegmentIndexBytes) && s.times <= int64(p.SegmentIndexBytes)
}

// groupItem is a segment to be grouped.
type groupItem struct {
	base int64
	sizes
}

// groupSizes merges consecutive segments as long as together, before cleaning, they are within the limits of one
// segment and of its indexes, and the offsets fit. end is the end of the last one. It returns the length of each group.
func groupSizes(items []groupItem, p *Policy, end int64) []int {
	var groups []int
	for len(items) > 0 {
		n, total := 1, items[0].sizes
		for ; n < len(items); n++ {
			next := total.plus(items[n].sizes)
			lastOffset := end - 1
			if n+1 < len(items) {
				lastOffset = items[n+1].base - 1
			}
			// An empty segment takes no offsets: else one would be left for every 2^31 of them.
			if !next.within(p) || items[n].log > 0 && lastOffset-items[0].base > math.MaxInt32 {
				break
			}
			total = next
		}
		groups = append(groups, n)
		items = items[n:]
	}
	return groups
}

// groupSegments returns consecutive segments in groups of which each becomes one.
func groupSegments(segments []*segment.Segment, p *Policy, end int64) ([][]*segment.Segment, error) {
	items := make([]groupItem, len(segments))
	for i, s := range segments {
		offsets, times, err := s.IndexBytes()
		if err != nil {
			return nil, err
		}
		items[i] = groupItem{base: s.Base(), sizes: sizes{log: s.SizeBytes(), offsets: int64(offsets), times: int64(times)}}
	}
	var groups [][]*segment.Segment
	for _, n := range groupSizes(items, p, end) {
		groups = append(groups, slices.Clone(segments[:n]))
		segments = segments[n:]
	}
	return groups, nil
}
