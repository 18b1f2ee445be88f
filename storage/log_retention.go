package storage

import (
	"errors"
	"math"
	"slices"
	"time"

	"gregor/storage/segment"
)

// DeleteOldSegments deletes from the oldest on what lies below the log start, exceeds retention.bytes or is older
// than retention.ms, as far as the high watermark, and raises the log start. When that is the active segment too,
// it is rolled first. It returns how many segments went.
func (l *Log) DeleteOldSegments(now time.Time) (deleted int, err error) {
	l.mu.Lock()
	defer l.unlock()
	if err := l.usable(); err != nil {
		return 0, err
	}
	c := *l.config.Load()
	rules := []func(LogConfig, time.Time) expiry{l.belowLogStart}
	if c.CleanupDelete || !c.CleanupCompact && l.tiered(c) {
		rules = append(rules, l.aboveRetentionBytes, l.olderThanRetention)
	}
	for _, rule := range rules {
		n, err := l.deleteWhile(rule(c, now))
		deleted += n
		if err != nil {
			return deleted, err
		}
	}
	return deleted, nil
}

// expiry tells whether segment i, the oldest that is left, is to go.
type expiry func(i int, s *segment.Segment) (bool, error)

func (l *Log) tiered(c LogConfig) bool { return c.RemoteStorageEnable && !c.RemoteCopyDisable }

func (l *Log) belowLogStart(LogConfig, time.Time) expiry {
	return func(i int, _ *segment.Segment) (bool, error) {
		return i+1 < len(l.w.segments) && l.w.segments[i+1].Base() <= l.w.logStart, nil
	}
}

func (l *Log) aboveRetentionBytes(c LogConfig, _ time.Time) expiry {
	_, limit := c.LocalRetention()
	surplus := int64(-1)
	if limit >= 0 {
		surplus = l.w.sealedBytes + l.w.active.SizeBytes() - limit
	}
	return func(_ int, s *segment.Segment) (bool, error) {
		surplus -= s.SizeBytes()
		return surplus >= 0, nil
	}
}

func (l *Log) olderThanRetention(c LogConfig, now time.Time) expiry {
	limit, _ := c.LocalRetention()
	return func(_ int, s *segment.Segment) (bool, error) {
		if limit < 0 {
			return false, nil
		}
		newest, err := largestTimestamp(s)
		return err == nil && now.UnixMilli()-newest > limit, err
	}
}

// largestTimestamp is what time-based retention goes by: the largest timestamp of the records, or, without
// any, the time of the last write.
func largestTimestamp(s *segment.Segment) (int64, error) {
	m, err := s.MaxTimestamp()
	if err != nil || m.Timestamp >= 0 {
		return m.Timestamp, err
	}
	return s.LastModifiedMillis()
}

func (l *Log) deleteWhile(expired expiry) (int, error) {
	w := &l.w
	n := 0
	for ; n < len(w.segments); n++ {
		s, end := w.segments[n], w.logEnd
		if n+1 < len(w.segments) {
			end = w.segments[n+1].Base()
		}
		if w.highWatermark < end || n+1 == len(w.segments) && s.SizeBytes() == 0 || !l.mayGo(n, end) {
			break
		}
		gone, err := expired(n, s)
		if err != nil {
			return 0, l.refuse("read", err)
		}
		if !gone {
			break
		}
	}
	if n == 0 {
		return 0, nil
	}
	if n == len(w.segments) {
		var err error
		if n, err = l.rollToDelete(n); err != nil {
			return 0, err
		}
	}
	gone := w.segments[:n]
	w.setSegments(slices.Clone(w.segments[n:]))
	// Readers first lose sight of the records, then the files go.
	grown := false
	if !l.tiered(*l.config.Load()) {
		var err error
		if grown, err = l.incrementLogStart(w.segments[0].Base()); err != nil {
			return 0, err
		}
	}
	if !grown {
		l.publish()
	}
	return n, l.deleteSegments(slices.All(gone))
}

// rollToDelete rolls, for all n segments are to go, and returns how many of them may: without space for another one the older
// ones, which make it.
func (l *Log) rollToDelete(n int) (int, error) {
	err := l.rollAt(l.w.logEnd)
	if errors.Is(err, ErrNoSpace) && n > 1 {
		return n - 1, nil
	}
	return n, err
}

// mayGo tells whether tiered storage allows to delete the local copy of a segment that ends at end.
func (l *Log) mayGo(i int, end int64) bool {
	if !l.tiered(*l.config.Load()) {
		return true
	}
	return end-1 <= l.w.remoteEnd || i+1 < len(l.w.segments) && l.w.logStart >= end
}

// SetRemoteEnd says that tiered storage holds everything up to and with offset: local copies of it may go.
func (l *Log) SetRemoteEnd(offset int64) {
	l.mu.Lock()
	defer l.unlock()
	l.w.remoteEnd = max(l.w.remoteEnd, offset)
}

const noRemoteEnd = int64(math.MinInt64)
