package cleaner

import (
	"math"

	"gregor/storage/segment"
)

// planned is a segment as far as planning looks at it.
type planned interface {
	Base() int64
	SizeBytes() int64
	MaxTimestamp() (segment.TimestampOffset, error)
	FirstTimestamp() (millis int64, ok bool, err error)
	LastModifiedMillis() (int64, error)
}

// Plan says what of a log can be cleaned and how much that would be worth.
type Plan struct {
	FirstDirty       int64
	FirstUncleanable int64 // base of a segment
	CleanBytes       int64 // of segments below FirstDirty
	CleanableBytes   int64 // of those in between
	// DelayMillis is for how long some record has been older than max.compaction.lag.ms, 0 when none is.
	DelayMillis int64
	// Invalid says that CleanedTo does not lie in the log; FirstDirty is the log start then.
	Invalid bool
}

// Ratio is the dirty part of what is looked at, 0 to 1.
func (p *Plan) Ratio() float64 {
	if p.CleanBytes+p.CleanableBytes == 0 {
		return 0
	}
	return float64(p.CleanableBytes) / float64(p.CleanBytes+p.CleanableBytes)
}

// due tells whether the log is to be cleaned now.
func (p *Plan) due(policy *Policy) bool {
	return p.CleanableBytes > 0 && (p.DelayMillis > 0 || p.Ratio() > policy.MinDirtyRatio)
}

// newPlan looks at a log; the last of the segments is the active one.
func newPlan[S planned](o Offsets, policy *Policy, segments []S, nowMillis int64) (Plan, error) {
	p := Plan{FirstDirty: o.CleanedTo}
	if o.CleanedTo < o.LogStart || o.CleanedTo > o.LogEnd {
		p.FirstDirty, p.Invalid = o.LogStart, o.CleanedTo > 0
	}
	sealed, activeBase := segments[:len(segments)-1], segments[len(segments)-1].Base()
	var dirty []S
	if p.FirstDirty < activeBase && len(sealed) > 0 {
		dirty = sealed[floor(sealed, p.FirstDirty):]
	}
	limit := min(o.LastStable, activeBase)
	if policy.MinLagMillis > 0 {
		young, err := firstYoung(dirty, nowMillis-policy.MinLagMillis)
		if err != nil {
			return Plan{}, err
		}
		limit = min(limit, young)
	}
	// Whole segments only.
	p.FirstUncleanable = activeBase
	if limit = max(limit, p.FirstDirty); limit < activeBase && len(sealed) > 0 {
		p.FirstUncleanable = sealed[floor(sealed, limit)].Base()
	}
	for _, s := range sealed {
		if s.Base() < p.FirstDirty {
			p.CleanBytes += s.SizeBytes()
		}
	}
	for _, s := range dirty {
		if s.Base() < p.FirstUncleanable && p.FirstDirty < p.FirstUncleanable {
			p.CleanableBytes += s.SizeBytes()
		}
	}
	var err error
	p.DelayMillis, err = delay(dirty, policy.MaxLagMillis, nowMillis)
	return p, err
}

// floor is the index of the segment that an offset lies in, of the first one for offsets before it.
func floor[S planned](segments []S, offset int64) int {
	low, high := 0, len(segments)
	for low < high {
		mid := int(uint(low+high) >> 1)
		if segments[mid].Base() <= offset {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return max(low-1, 0)
}

// firstYoung is the base of the first segment with a record younger than since; MaxInt64 when there is none.
func firstYoung[S planned](segments []S, since int64) (int64, error) {
	for _, s := range segments {
		newest, err := s.MaxTimestamp()
		if err != nil {
			return 0, err
		}
		if newest.Timestamp < 0 {
			if newest.Timestamp, err = s.LastModifiedMillis(); err != nil {
				return 0, err
			}
		}
		if newest.Timestamp > since {
			return s.Base(), nil
		}
	}
	return math.MaxInt64, nil
}

// delay is by how much the first batch of the oldest dirty segment is older than maxLagMillis.
func delay[S planned](dirty []S, maxLagMillis, nowMillis int64) (int64, error) {
	if maxLagMillis >= nowMillis {
		return 0, nil // no record can be as old
	}
	oldest := int64(math.MaxInt64)
	for _, s := range dirty {
		first, ok, err := s.FirstTimestamp()
		if err != nil {
			return 0, err
		}
		if ok && first > 0 {
			oldest = min(oldest, first)
		}
	}
	return max(nowMillis-max(maxLagMillis, 0)-oldest, 0), nil
}
