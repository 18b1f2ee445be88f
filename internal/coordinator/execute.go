package coordinator

import (
	"errors"
	"fmt"
	"time"

	"gregor/protocol/record"
)

// recordOverheadBytes bounds what a record adds to its key and value: length,
// attributes, timestamp and offset deltas, key and value lengths, header count.
const recordOverheadBytes = 5 + 1 + 10 + 5 + 5 + 5 + 1

// openBatch collects the records of operations until they are appended.
type openBatch[R any, M Machine[R]] struct {
	builder   record.Builder
	base      int64
	count     int
	sizeBytes int
	millis    int64
	verified  any
	waiting   []deferred
}

// next is the offset of the next record.
func (b *openBatch[R, M]) next() int64 { return b.base + int64(b.count) }

// encoded is a record ready to be added to a batch.
type encoded struct {
	key, value []byte
	sizeBytes  int
}

// execute runs one task. Its answer is given out at once, or with the batch.
func (p *partition[R, M]) execute(t *task[R, M]) {
	executed := p.rt.opts.Events.Executed
	if executed == nil {
		p.dispatch(t)
		return
	}
	start := time.Now()
	p.dispatch(t)
	executed(start.Sub(t.queuedAt), time.Since(start))
}

func (p *partition[R, M]) dispatch(t *task[R, M]) {
	c := &p.rt.counters
	switch t.kind {
	case taskRead:
		c.reads.Add(1)
		t.done(p.guarded("read", func() error {
			_, err := t.run(p.loaded.machine)
			return err
		}))
		return
	case taskEndTxn:
		c.writes.Add(1)
		p.endTxn(t)
		return
	case taskTxnWrite:
		c.writes.Add(1)
		// A batch belongs to one producer.
		_ = p.flush() // it has answered; this operation sees the state that is left
	case taskTimer:
		c.timers.Add(1)
	case taskWrite:
		c.writes.Add(1)
	}
	var effect Effect[R]
	err := p.guarded("write", func() (err error) {
		effect, err = t.run(p.loaded.machine)
		return err
	})
	if err != nil {
		t.done(err)
		return
	}
	answer := deferred{answer: t.operation, effect: effect.Done, expires: p.expires(t)}
	if len(effect.Records) == 0 {
		p.answer(answer)
		return
	}
	p.write(t, effect, answer)
}

// expires is when nobody waits for the task's answer any longer; that of a timer everybody has time for.
func (p *partition[R, M]) expires(t *task[R, M]) time.Time {
	if t.kind == taskTimer {
		return time.Time{}
	}
	return p.loaded.now.Add(p.rt.opts.WriteTimeout)
}

// answer gives out an answer that has no records of its own. It may rest on
// records that are not committed yet, so it waits for those.
func (p *partition[R, M]) answer(d deferred) {
	l := p.loaded
	switch {
	case l.batch != nil:
		l.batch.waiting = append(l.batch.waiting, d)
	case l.registry.LastOffset() > p.highWatermark.Load():
		d.offset = l.registry.LastOffset()
		l.deferred = append(l.deferred, d)
	default:
		p.complete(d, nil)
	}
}

// write adds the records of an operation to the open batch and applies them.
func (p *partition[R, M]) write(t *task[R, M], effect Effect[R], answer deferred) {
	records, total, err := p.encode(effect.Records)
	if err != nil {
		p.complete(answer, err)
		return
	}
	limit := int(p.rt.opts.Log.MaxBatchBytes(p.id)) - record.HeaderSizeBytes
	if !effect.Splittable {
		if total > limit {
			p.complete(answer, fmt.Errorf("%d records of %d bytes, at most %d fit a batch: %w", len(records), total, limit, ErrTooLargeToWrite))
			return
		}
		if err := p.makeRoom(total, limit); err != nil {
			// The operation was decided on a state that has been rolled back.
			p.complete(answer, err)
			return
		}
	}
	for i, e := range records {
		if effect.Splittable {
			if e.sizeBytes > limit {
				p.fail(fmt.Errorf("a record of %d bytes: %w", e.sizeBytes, ErrTooLargeToWrite), answer)
				return
			}
			if err := p.makeRoom(e.sizeBytes, limit); err != nil {
				p.complete(answer, err)
				return
			}
		}
		b := p.openBatch(t)
		if !effect.Applied {
			err := p.guarded("replay", func() error {
				return p.loaded.machine.Replay(b.next(), t.recordProducer(), effect.Records[i])
			})
			if err != nil {
				p.fail(fmt.Errorf("replay: %w", err), answer)
				return
			}
		}
		b.builder.Add(b.millis, e.key, e.value, nil)
		b.count++
		b.sizeBytes += e.sizeBytes
	}
	p.loaded.batch.waiting = append(p.loaded.batch.waiting, answer)
	if t.kind == taskTxnWrite {
		_ = p.flush() // it has answered
	}
}

// recordProducer is the producer of the task's records.
func (t *task[R, M]) recordProducer() Producer {
	if t.kind == taskTxnWrite {
		return t.producer
	}
	return NoProducer
}

// encode turns records into bytes, which are valid until the next call.
func (p *partition[R, M]) encode(records []R) (out []encoded, totalBytes int, err error) {
	l := p.loaded
	out, buf := l.encoded[:0], l.scratch[:0]
	for i, rec := range records {
		start := len(buf)
		next, keyBytes, err := p.rt.opts.Codec.Encode(buf, rec)
		if err != nil {
			return nil, 0, fmt.Errorf("encode record %d of %d: %w", i+1, len(records), err)
		}
		buf = next
		e := encoded{key: buf[start : start+keyBytes], sizeBytes: recordOverheadBytes + len(buf) - start}
		if len(buf) > start+keyBytes {
			e.value = buf[start+keyBytes:]
		}
		out = append(out, e)
		totalBytes += e.sizeBytes
	}
	if cap(buf) <= maxSpareBytes {
		l.encoded, l.scratch = out, buf
	}
	return out, totalBytes, nil
}

// maxSpareBytes is the largest buffer whose memory is kept.
const maxSpareBytes = 64 << 10

// makeRoom appends the open batch first when size more bytes do not fit it. The error is that of the append, after
// which the state is what it was before the batch.
func (p *partition[R, M]) makeRoom(size, limit int) error {
	if b := p.loaded.batch; b != nil && b.sizeBytes+size > limit {
		return p.flush()
	}
	return nil
}

// openBatch returns the open batch, a new one where there is none.
func (p *partition[R, M]) openBatch(t *task[R, M]) *openBatch[R, M] {
	if p.loaded.batch != nil {
		return p.loaded.batch
	}
	l := p.loaded
	b := l.spareBatch
	if l.spareBatch = nil; b == nil {
		b = new(openBatch[R, M])
	}
	b.base, b.count, b.sizeBytes, b.verified = l.registry.LastOffset(), 0, 0, t.verified
	b.millis = l.now.UnixMilli()
	producer := t.recordProducer()
	// The sequence is 0 also without a producer, as in Kafka's coordinators.
	b.builder.Reset(record.BuilderOptions{
		BaseOffset: b.base, LeaderEpoch: p.epoch, Codec: p.rt.opts.Compression,
		HasProducer: true, ProducerID: producer.ID, ProducerEpoch: producer.Epoch, BaseSequence: 0,
		Transactional: t.kind == taskTxnWrite,
	})
	l.batch = b
	return b
}

// fail rolls the open batch back and fails its operations, and the one that
// could not be added to it.
func (p *partition[R, M]) fail(err error, also ...deferred) {
	l := p.loaded
	var waiting []deferred
	if l.batch != nil {
		waiting = l.batch.waiting
	}
	l.batch = nil
	l.registry.Revert()
	for _, d := range append(waiting, also...) {
		p.complete(d, err)
	}
}

// flush appends the open batch. When that fails its operations have been answered, and their state is rolled back.
func (p *partition[R, M]) flush() error {
	l := p.loaded
	b := l.batch
	if b == nil || l.mustReload() {
		return nil
	}
	a := Append{Partition: p.id, LeaderEpoch: p.epoch, Batch: b.builder.Bytes(), Verified: b.verified}
	if err := p.append(a, b.next(), b.count, nil); err != nil {
		return err
	}
	l.batch = nil
	p.applied(b.next(), b.waiting)
	p.retire(b)
	return nil
}

// retire keeps the memory of a batch for the next one.
func (p *partition[R, M]) retire(b *openBatch[R, M]) {
	if b.builder.SizeBytes() > maxSpareBytes {
		return
	}
	clear(b.waiting)
	b.waiting, b.verified = b.waiting[:0], nil
	p.loaded.spareBatch = b
}

// endTxn writes the marker that ends a transaction.
func (p *partition[R, M]) endTxn(t *task[R, M]) {
	_ = p.flush() // it has answered
	l := p.loaded
	if l.mustReload() {
		t.done(ErrNotCoordinator)
		return
	}
	next := l.registry.LastOffset() + 1
	marker := record.BuildEndTxnMarker(record.EndTxnOptions{
		BaseOffset: next - 1, LeaderEpoch: p.epoch, TimestampMillis: l.now.UnixMilli(),
		ProducerID: t.producer.ID, ProducerEpoch: t.producer.Epoch,
		Commit: t.commit, CoordinatorEpoch: t.coordinatorEpoch,
	})
	answer := deferred{answer: t.operation, expires: p.expires(t)}
	a := Append{Partition: p.id, LeaderEpoch: p.epoch, Batch: marker, CoordinatorEpoch: t.coordinatorEpoch}
	if p.append(a, next, 1, []deferred{answer}) != nil {
		return
	}
	err := p.guarded("end of transaction", func() error {
		l.machine.ReplayEndTxn(t.producer, t.commit)
		return nil
	})
	if err != nil {
		t.done(err)
		return
	}
	p.applied(next, []deferred{answer})
}

// append writes a batch that ends before next. When it fails, everything since
// the last append is rolled back, and the operations of the open batch and also
// get the error, which is returned as well.
func (p *partition[R, M]) append(a Append, next int64, count int, also []deferred) error {
	var start time.Time
	flushed := p.rt.opts.Events.Flushed
	if flushed != nil {
		start = time.Now()
	}
	got, err := p.rt.opts.Log.Append(p.ctx, a)
	if flushed != nil {
		flushed(FlushSummary{Partition: p.id, Records: count, Bytes: len(a.Batch), Took: time.Since(start), Err: err})
	}
	c := &p.rt.counters
	if err == nil && got != next {
		// Somebody else wrote to the partition. What is in the log counts.
		err = fmt.Errorf("%w: next offset %d, expected %d", errOutOfSync, got, next)
		p.loaded.broken = err
	}
	if err != nil {
		c.failures.Add(1)
		err = clientSafe(err)
		p.fail(err, also...)
		return err
	}
	c.batches.Add(1)
	c.records.Add(uint64(count))
	c.appendBytes.Add(uint64(len(a.Batch)))
	return nil
}

// clientSafe hides the runtime's own errors from clients.
func clientSafe(err error) error {
	if errors.Is(err, errOutOfSync) {
		return fmt.Errorf("%w (%w)", ErrNotCoordinator, err)
	}
	return err
}

// applied takes note of a successful append that ends before next.
func (p *partition[R, M]) applied(next int64, waiting []deferred) {
	l := p.loaded
	l.registry.Snapshot(next)
	for _, d := range waiting {
		d.offset = next
		l.deferred = append(l.deferred, d)
	}
}
