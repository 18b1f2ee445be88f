package cleaner

import (
	"fmt"

	"gregor/protocol/record"
)

// filter decides on batches and records, and appends what stays to out.
type filter struct {
	newest *offsetMap
	txns   *txns
	lim    record.Limits
	stats  *Stats

	nowMillis             int64
	deleteRetentionMillis int64
	// keepOldTombstones is the rule for tombstones of formats 0 and 1, which have no horizon: by the age of the segment.
	keepOldTombstones bool
	highWatermark     int64
	producers         map[int64]LastRecord

	out     []byte
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
	f.kept = f.kept[:0]
	all = true
	last := b.BaseOffset() - 1
	if b.Magic() < 2 {
		last = -1 // the offset of a compressed one is that of its last record
	}
	for rec, err := range b.Records(f.lim) {
		if err != nil {
			return false, false, err
		}
		if rec.Offset <= last || rec.Offset > b.LastOffset() {
			return false, false, fmt.Errorf("%w: record offset %d after %d in a batch that ends with %d", record.ErrCorrupt, rec.Offset, last, b.LastOffset())
		}
		last = rec.Offset
		f.stats.RecordsRead++
		if drop || !b.IsControl() && !f.stays(b, &rec) {
			all = false
			continue
		}
		tombstones = tombstones || rec.Value == nil
		f.kept = append(f.kept, rec)
	}
	return all, tombstones, nil
}

// stays decides on a record of a data batch.
func (f *filter) stays(b record.Batch, rec *record.Record) bool {
	switch {
	case rec.Offset > f.newest.latest:
		return true
	case rec.Key == nil:
		f.stats.InvalidRecords++
		return false
	case rec.Offset < f.newest.get(rec.Key):
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
