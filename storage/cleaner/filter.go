package cleaner

import (
	"fmt"

	"gregor/protocol/record"
)

// filter decides on batches and records, and appends what stays to out.
type filter struct {
	newest *offsetMap
	live   *liveOffsets // of newest
	// keyless tells that there may be records without a key among those that live tells of. They are counted.
	keyless bool
	txns    *txns
	lim     record.Limits
	stats   *Stats

	nowMillis             int64
	deleteRetentionMillis int64
	// keepOldTombstones is the rule for tombstones of formats 0 and 1, which have no horizon: by the age of the segment.
	keepOldTombstones bool
	highWatermark     int64
	producers         map[int64]LastRecord

	out     []byte
	decoder *record.Decoder
	group   []record.Record // of the batch at hand, not decided on yet
	keys    []lookup        // of some of group
	kept    []record.Record // of the batch at hand
	builder record.Builder
}

// verdict is what becomes of a batch: Kafka's BatchRetention.
type verdict int8

const (
	dropBatch      verdict = iota
	dropEmptyBatch         // unless a record stays
	keepBatch              // without records, if none stays
)

// passOver filters a batch by its header, where that will do: nothing is left of the batch, and what it holds was checked
// when its keys were put into the map.
func (f *filter) passOver(head record.Batch, sizeBytes int) bool {
	if head.Magic() < 2 || head.IsControl() || !f.live.covers(head.BaseOffset()) || !f.live.covers(head.LastOffset()) {
		return false
	}
	aborted := f.txns.data(head)
	if !aborted && (f.keyless || !f.live.none(head.BaseOffset(), head.LastOffset())) {
		return false
	}
	f.stats.BytesRead += int64(sizeBytes)
	f.stats.RecordsRead += int64(max(head.Count(), 0))
	if f.verdict(head, aborted) == keepBatch {
		f.writeEmpty(head)
	}
	return true
}

// batch filters one batch.
func (f *filter) batch(b record.Batch) error {
	idle, err := f.discardable(b)
	if err != nil {
		return err
	}
	drop := idle
	if b.IsControl() {
		drop = idle && b.HasDeleteHorizon() && b.DeleteHorizonMillis() <= f.nowMillis
	}
	what := f.verdict(b, drop)
	f.stats.BytesRead += int64(len(b))
	if what == dropBatch {
		f.stats.RecordsRead += int64(max(b.Count(), 0))
		return nil
	}
	all, tombstones, err := f.records(b, drop)
	if err != nil {
		return err
	}
	f.stats.RecordsWritten += int64(len(f.kept))
	if len(f.kept) == 0 {
		if what == keepBatch {
			f.writeEmpty(b)
		}
		return nil
	}
	needsHorizon := (tombstones || idle && b.IsControl()) && !b.HasDeleteHorizon()
	if all && b.Magic() >= 2 && !needsHorizon {
		f.out = append(f.out, b...)
		return nil
	}
	f.rebuild(b, needsHorizon)
	return nil
}

// discardable tells whether a data batch is of an aborted transaction, or a control batch marks nothing any more.
func (f *filter) discardable(b record.Batch) (bool, error) {
	if b.IsControl() {
		return f.txns.control(b)
	}
	return f.txns.data(b), nil
}

func (f *filter) verdict(b record.Batch, drop bool) verdict {
	switch {
	case b.HasProducerID() && f.isLastOfProducer(b):
		return keepBatch
	case b.NextOffset() == f.highWatermark:
		// The end of the log must still be known when the active segment is empty.
		return keepBatch
	case drop:
		return dropBatch
	}
	return dropEmptyBatch
}

// isLastOfProducer tells whether the batch holds the last sequence of its producer or, when no data batch is
// remembered, a marker of its epoch, which fences older ones.
func (f *filter) isLastOfProducer(b record.Batch) bool {
	last, known := f.producers[b.ProducerID()]
	switch {
	case !known:
		return false
	case last.LastOffset >= 0:
		return b.LastOffset() == last.LastOffset
	}
	return b.IsControl() && b.ProducerEpoch() == last.Epoch
}

// records collects the records that stay in kept.
func (f *filter) records(b record.Batch, drop bool) (all, tombstones bool, err error) {
	f.kept, f.group = f.kept[:0], f.group[:0]
	read := 0
	order := newOrder(b)
	for rec, err := range f.decoder.Records(b, f.lim) {
		if err == nil {
			err = order.next(rec.Offset)
		}
		if err != nil {
			return false, false, err
		}
		read++
		switch {
		case drop:
		case b.IsControl():
			f.kept = append(f.kept, rec)
		default:
			if f.group = append(f.group, rec); len(f.group) == groupKeys {
				f.keepOfGroup(b)
			}
		}
	}
	f.keepOfGroup(b)
	f.stats.RecordsRead += int64(read)
	for i := range f.kept {
		tombstones = tombstones || f.kept[i].Value == nil
	}
	return len(f.kept) == read, tombstones, nil
}

// keepOfGroup moves those records of the group to kept that stay. What only the map knows of them it looks up together.
func (f *filter) keepOfGroup(b record.Batch) {
	var superseded [groupKeys]bool
	f.keys = f.keys[:0]
	for i := range f.group {
		rec := &f.group[i]
		if rec.Key == nil || rec.Offset > f.newest.latest {
			continue
		}
		if f.live.covers(rec.Offset) {
			if live, certain := f.live.has(rec.Offset); certain {
				superseded[i] = !live
				continue
			}
		}
		f.keys = append(f.keys, lookup{hash: f.newest.hasher.hash(rec.Key), record: i})
	}
	f.newest.find(f.keys)
	for _, k := range f.keys {
		superseded[k.record] = f.group[k.record].Offset < k.newest
	}
	for i := range f.group {
		if rec := &f.group[i]; f.stays(b, rec, superseded[i]) {
			f.kept = append(f.kept, *rec)
		}
	}
	f.group = f.group[:0]
}

// order checks the offsets of the records of a batch.
type order struct{ previous, last int64 }

func newOrder(b record.Batch) order {
	if b.Magic() < 2 {
		return order{previous: -1, last: b.LastOffset()} // the offset of a compressed one is that of its last record
	}
	return order{previous: b.BaseOffset() - 1, last: b.LastOffset()}
}

func (o *order) next(offset int64) error {
	if offset <= o.previous || offset > o.last {
		return fmt.Errorf("%w: record offset %d after %d in a batch that ends with %d", record.ErrCorrupt, offset, o.previous, o.last)
	}
	o.previous = offset
	return nil
}

// stays decides on a record of a data batch; superseded says that there is a newer one of its key.
func (f *filter) stays(b record.Batch, rec *record.Record, superseded bool) bool {
	switch {
	case rec.Offset > f.newest.latest:
		return true
	case rec.Key == nil:
		f.stats.InvalidRecords++
		return false
	case superseded:
		return false
	case rec.Value != nil:
		return true
	case b.Magic() < 2:
		return f.keepOldTombstones
	}
	return !b.HasDeleteHorizon() || f.nowMillis < b.DeleteHorizonMillis()
}

// writeEmpty writes the batch without its records.
func (f *filter) writeEmpty(b record.Batch) {
	if b.Magic() >= 2 {
		f.out = record.AppendEmptyBatch(f.out, b)
		return
	}
	// Kafka gives up here. An empty batch of format 2 at the same offset keeps the end of the log as well.
	f.builder.Reset(record.BuilderOptions{BaseOffset: b.LastOffset(), LeaderEpoch: b.LeaderEpoch()})
	f.builder.SetLastOffset(b.LastOffset())
	f.out = append(f.out, f.builder.Bytes()...)
}

// rebuild writes a batch with the kept records.
func (f *filter) rebuild(b record.Batch, needsHorizon bool) {
	o := record.BuilderOptions{
		BaseOffset: b.BaseOffset(), LeaderEpoch: b.LeaderEpoch(), Codec: b.Codec(),
		HasProducer: b.HasProducerID(), ProducerID: b.ProducerID(), ProducerEpoch: b.ProducerEpoch(), BaseSequence: b.BaseSequence(),
		Transactional: b.IsTransactional(), Control: b.IsControl(),
		HasDeleteHorizon: b.HasDeleteHorizon(), DeleteHorizonMillis: b.DeleteHorizonMillis(),
	}
	if b.TimestampType() == record.LogAppendTime {
		o.TimestampType, o.LogAppendTimeMillis = record.LogAppendTime, b.MaxTimestamp()
	}
	if needsHorizon {
		o.HasDeleteHorizon, o.DeleteHorizonMillis = true, f.nowMillis+f.deleteRetentionMillis
	}
	if b.Magic() < 2 {
		o.BaseOffset = f.kept[0].Offset
	}
	f.builder.Reset(o)
	for i := range f.kept {
		r := &f.kept[i]
		f.builder.AddAt(r.Offset, r.Timestamp, r.Key, r.Value, r.Headers)
	}
	if b.Magic() >= 2 {
		// The last sequence follows from the last offset.
		f.builder.SetLastOffset(b.LastOffset())
	}
	f.out = append(f.out, f.builder.Bytes()...)
}
