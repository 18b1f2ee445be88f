package cleaner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gregor/protocol/record"
	"gregor/storage/segment"
)

// Stats are the figures of a round.
type Stats struct {
	Took, IndexTook                       time.Duration
	IndexedBytes, BytesRead, BytesWritten int64
	RecordsRead, RecordsWritten           int64
	InvalidRecords                        int64 // without a key
	MapUtilization                        float64
	SegmentsBefore, SegmentsAfter         int
}

// round is one cleaning of one log.
type round struct {
	ctx      context.Context //nolint:containedctx // of this one call
	log      Log
	view     View
	plan     Plan
	newest   *offsetMap
	throttle *throttle
	buffers  *buffers
	stats    Stats
	lim      record.Limits
	now      time.Time
	// oldTombstonesBefore is the age that a segment must have for its tombstones of formats 0 and 1 to go.
	oldTombstonesBefore int64
	txns                *txns
	// keyless tells that the dirty part has records without a key.
	keyless bool
}

// buffers belong to a goroutine.
type buffers struct {
	read, write []byte
	large       []byte // for batches larger than read
	live        liveOffsets
	keys        record.Decoder
	records     record.Decoder
}

func newBuffers(bytes int) *buffers {
	bytes = max(bytes, minBufferBytes)
	return &buffers{read: make([]byte, bytes), write: make([]byte, 0, bytes), keys: record.Decoder{WithoutHeaders: true}}
}

// forLarge returns a buffer for a batch of n bytes.
func (b *buffers) forLarge(n int) []byte {
	if cap(b.large) < n {
		b.large = make([]byte, n)
	}
	return b.large[:n]
}

// run cleans; the offset is where the next round starts.
func (r *round) run() (end int64, err error) {
	r.now = time.Now()
	r.lim = record.Limits{MaxDecompressedBytes: r.view.Policy.MaxDecompressedBytes}
	if err := r.buildMap(); err != nil {
		return 0, err
	}
	end = r.newest.latest + 1
	r.buffers.live.build(r.newest, r.plan.FirstDirty)
	r.stats.IndexTook, r.stats.MapUtilization = time.Since(r.now), r.newest.utilization()
	// What supersedes a record must not be lost after it.
	if err := r.log.Flush(end); err != nil {
		return 0, err
	}
	if err := r.setOldTombstonesBefore(); err != nil {
		return 0, err
	}
	r.txns = newTxns(r.lim)
	groups, err := groupSegments(r.below(end), &r.view.Policy, r.plan.FirstUncleanable)
	if err != nil {
		return 0, err
	}
	for _, g := range groups {
		if err := r.cleanGroup(g); err != nil {
			return 0, err
		}
	}
	if err := r.log.SetCleanedTo(&r.view, end); err != nil {
		return 0, err
	}
	r.stats.Took = time.Since(r.now)
	return end, nil
}

// below are the segments that begin below an offset.
func (r *round) below(offset int64) []*segment.Segment {
	n := 0
	for n < len(r.view.Segments) && r.view.Segments[n].Base() < offset {
		n++
	}
	return r.view.Segments[:n]
}

func (r *round) setOldTombstonesBefore() error {
	clean := r.below(r.plan.FirstDirty)
	if len(clean) == 0 {
		return nil
	}
	modified, err := clean[len(clean)-1].LastModifiedMillis()
	r.oldTombstonesBefore = modified - r.view.Policy.DeleteRetentionMillis
	return err
}

// pause is called before each piece of work, with the bytes that it moves.
func (r *round) pause(bytes int) error {
	if err := r.throttle.wait(r.ctx, bytes); err != nil {
		return fmt.Errorf("%w: %w", ErrAborted, err)
	}
	return r.log.Check(&r.view)
}

// buildMap reads the dirty segments into the map until it is full.
func (r *round) buildMap() error {
	r.newest.reset()
	from, to := r.plan.FirstDirty, r.plan.FirstUncleanable
	dirty := r.below(to)
	if len(dirty) > 0 {
		dirty = dirty[floor(dirty, from):]
	}
	t := newTxns(r.lim)
	aborted, err := collectAborted(dirty, r.view.Segments, from, to)
	if err != nil {
		return err
	}
	t.add(aborted)
	for i, s := range dirty {
		next := to
		if i+1 < len(dirty) {
			next = dirty[i+1].Base()
		}
		full, err := r.mapSegment(s, t)
		if err != nil || full {
			return err
		}
		// Offsets that are missing at the end of the segment are past too.
		r.newest.completeTo(next - 1)
	}
	r.newest.flush()
	return nil
}

func (r *round) mapSegment(s *segment.Segment, t *txns) (full bool, err error) {
	src, err := openSource(s, &r.view, r.plan.FirstDirty, r.buffers, r.pause)
	if err != nil {
		return false, err
	}
	defer src.close()
	for {
		b, position, err := src.next()
		if err != nil || b == nil {
			return false, err
		}
		r.stats.IndexedBytes += int64(len(b))
		if full, err = r.mapBatch(b, t); err != nil {
			return false, located(s, position, err)
		}
		if full {
			return true, nil
		}
		if b.LastOffset() >= r.plan.FirstDirty {
			r.newest.completeTo(b.LastOffset())
		}
	}
}

// mapBatch maps the keys of a batch, except of a control batch or of an aborted transaction.
func (r *round) mapBatch(b record.Batch, t *txns) (full bool, err error) {
	if b.IsControl() {
		_, err := t.control(b)
		return false, err
	}
	if t.data(b) {
		return false, nil
	}
	order := newOrder(b)
	for rec, err := range r.buffers.keys.Records(b, r.lim) {
		if err == nil {
			err = order.next(rec.Offset)
		}
		switch {
		case err != nil:
			return false, err
		case rec.Offset < r.plan.FirstDirty:
		case rec.Key == nil:
			r.keyless = true
		case r.newest.add(rec.Key, rec.Offset):
			return true, nil
		}
	}
	return false, nil
}

// located makes damage inside a batch tell its place.
func located(s *segment.Segment, position int64, err error) error {
	if errors.Is(err, record.ErrCorrupt) || errors.Is(err, record.ErrTruncated) || errors.Is(err, record.ErrLimit) {
		return corruptAt(s, position, err)
	}
	return err
}

// collectAborted finds the aborted transactions that overlap [from, to): from the first of the segments on, and in all
// those of the log that follow, because the marker may come late.
func collectAborted(segments, all []*segment.Segment, from, to int64) ([]segment.AbortedTxn, error) {
	if len(segments) == 0 {
		return nil, nil
	}
	var found []segment.AbortedTxn
	for _, s := range all[floor(all, segments[0].Base()):] {
		var complete bool
		var err error
		if found, complete, err = s.CollectAborted(found, from, to); err != nil {
			return nil, err
		}
		if complete {
			break
		}
	}
	return found, nil
}

// cleanGroup writes the segments of a group into one and swaps it in.
func (r *round) cleanGroup(group []*segment.Segment) error {
	if err := r.pause(0); err != nil {
		return err
	}
	dest, err := r.log.Create(group[0].Base())
	if err != nil {
		return err
	}
	if err := r.fill(dest, group); err != nil {
		// What is left of the files goes at the next start.
		if removed := dest.Remove(); removed != nil || !errors.Is(err, segment.ErrOffsetOverflow) {
			return errors.Join(err, removed)
		}
		return r.split(group[0], err)
	}
	if err := r.log.Replace(&r.view, dest, group); err != nil {
		if errors.Is(err, ErrAborted) {
			return errors.Join(err, dest.Remove())
		}
		return err
	}
	r.stats.SegmentsBefore += len(group)
	r.stats.SegmentsAfter++
	r.stats.BytesWritten += dest.SizeBytes()
	return nil
}

// split splits the segment that begins a group, when what was to be written did not fit above its base: only a segment that a
// Kafka before 2.0 has made can be like that, and no other one is merged with it. The round ends; the next one finds the pieces.
func (r *round) split(s *segment.Segment, overflow error) error {
	ok, err := r.log.Split(&r.view, s)
	if err == nil && ok {
		err = fmt.Errorf("%w: the segment %d has been split: %w", ErrAborted, s.Base(), overflow)
	}
	if err == nil {
		err = overflow
	}
	return err
}

// fill writes what stays of a group into dest, durably.
func (r *round) fill(dest *segment.Segment, group []*segment.Segment) error {
	f := filter{
		newest: r.newest, live: &r.buffers.live, keyless: r.keyless, decoder: &r.buffers.records, txns: r.txns, lim: r.lim, stats: &r.stats, out: r.buffers.write[:0],
		nowMillis: r.now.UnixMilli(), deleteRetentionMillis: r.view.Policy.DeleteRetentionMillis,
		producers: r.log.LastRecords(),
	}
	r.txns.keep = dest.AppendAborted
	var modified int64
	for i, s := range group {
		end, err := endOf(group, i)
		if err != nil {
			return err
		}
		aborted, err := collectAborted(group[i:], r.view.Segments, s.Base(), end)
		if err != nil {
			return err
		}
		r.txns.add(aborted)
		if modified, err = s.LastModifiedMillis(); err != nil {
			return err
		}
		f.keepOldTombstones = modified > r.oldTombstonesBefore
		f.highWatermark = r.log.HighWatermark()
		if err := r.cleanInto(dest, s, &f); err != nil {
			return err
		}
	}
	if err := r.write(dest, &f); err != nil {
		return err
	}
	if err := dest.Seal(); err != nil {
		return err
	}
	if err := dest.SyncAll(); err != nil {
		return err
	}
	// The age of records without timestamps.
	return dest.SetLastModified(time.UnixMilli(modified))
}

// endOf is the offset after segment i.
func endOf(segments []*segment.Segment, i int) (int64, error) {
	if i+1 < len(segments) {
		return segments[i+1].Base(), nil
	}
	return segments[i].NextOffset()
}

// cleanInto filters a segment into dest.
func (r *round) cleanInto(dest, s *segment.Segment, f *filter) error {
	src, err := openSource(s, &r.view, 0, r.buffers, r.pause)
	if err != nil {
		return err
	}
	defer src.close()
	for {
		position := src.at
		b, err := src.head()
		if err != nil || b == nil {
			return err
		}
		if f.passOver(b, src.size) {
			err = src.skip(b)
		} else if b, err = src.body(); err == nil {
			err = located(s, position, f.batch(b))
		}
		if err != nil {
			return err
		}
		if len(f.out) >= cap(r.buffers.write) {
			if err := r.write(dest, f); err != nil {
				return err
			}
		}
	}
}

// write appends what the filter has put out.
func (r *round) write(dest *segment.Segment, f *filter) error {
	if len(f.out) == 0 {
		return nil
	}
	if err := r.pause(len(f.out)); err != nil {
		return err
	}
	err := dest.Append(f.out)
	f.out = f.out[:0]
	return err
}
