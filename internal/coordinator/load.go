package coordinator

import (
	"errors"
	"fmt"
	"time"

	"gregor/internal/timeline"
	"gregor/protocol/record"
)

// loadReport is how often a load that takes long is logged.
const loadReport = 5 * time.Second

// load replays the partition's log into a new machine.
func (p *partition[R, M]) load() error {
	start := time.Now()
	offsets, err := p.rt.opts.Log.Offsets(p.id)
	if err != nil {
		return err
	}
	l := &loader[R, M]{partition: p, registry: timeline.NewRegistry(offsets.LogStart), next: offsets.LogStart, reported: start}
	timers := newTimers[R]()
	l.machine = p.rt.opts.New(Handle[R]{
		Partition: p.id, LeaderEpoch: p.epoch, Registry: l.registry, Timers: timers,
		Background: &background[R, M]{partition: p, running: make(map[string]struct{}), timers: timers}, Logger: p.logger,
	})
	p.highWatermark.Store(offsets.LogStart)
	p.loaded = &loaded[R, M]{machine: l.machine, registry: l.registry, timers: timers}
	err = p.guarded("load", func() error {
		if err := l.replayAll(); err != nil {
			return err
		}
		l.machine.Loaded()
		return nil
	})
	if err != nil {
		p.loaded = nil
		l.machine.Unloaded(ErrNotCoordinator)
		return err
	}
	took := time.Since(start)
	p.rt.counters.loaded(took)
	p.logger.Info("coordinator partition loaded", "records", l.records, "bytes", l.bytes, "took", took)
	if p.rt.opts.Events.Loaded != nil {
		p.rt.opts.Events.Loaded(LoadSummary{Partition: p.id, LeaderEpoch: p.epoch, Records: l.records, Bytes: l.bytes, Took: took})
	}
	return nil
}

// loader is one pass over the log.
type loader[R any, M Machine[R]] struct {
	*partition[R, M]
	machine  M
	registry *timeline.Registry
	// next is the offset after the last replayed batch.
	next           int64
	records, bytes int64
	reported       time.Time
}

// replayAll reads up to the log's end, which may move meanwhile. It stops when
// the partition is no longer led here, or was given up.
func (l *loader[R, M]) replayAll() error {
	for {
		if l.ctx.Err() != nil {
			return ErrNotCoordinator
		}
		offsets, err := l.rt.opts.Log.Offsets(l.id)
		if err != nil {
			return fmt.Errorf("stopped loading at offset %d: %w", l.next, err)
		}
		l.report(offsets.LogEnd)
		if l.next >= offsets.LogEnd {
			return nil
		}
		buf, err := l.rt.opts.Log.Read(l.ctx, l.id, l.next, l.rt.opts.LoadBufferBytes)
		if err != nil {
			return fmt.Errorf("read at offset %d: %w", l.next, err)
		}
		if len(buf) == 0 {
			// Compaction may leave nothing up to the log's end.
			l.batchDone(offsets.LogEnd, offsets.HighWatermark)
			return nil
		}
		l.bytes += int64(len(buf))
		if err := l.replayBuffer(buf); err != nil {
			return err
		}
	}
}

func (l *loader[R, M]) report(logEnd int64) {
	if time.Since(l.reported) >= loadReport {
		l.reported = time.Now()
		l.logger.Info("loading coordinator partition", "offset", l.next, "logEnd", logEnd, "records", l.records)
	}
}

// replayBuffer replays whole batches.
func (l *loader[R, M]) replayBuffer(buf []byte) error {
	before := l.next
	for len(buf) > 0 && l.ctx.Err() == nil {
		batch, rest, err := record.Next(buf)
		if errors.Is(err, record.ErrTruncated) && l.next > before {
			return nil
		}
		if err != nil {
			return fmt.Errorf("batch at offset %d: %w", l.next, err)
		}
		buf = rest
		if batch.NextOffset() <= l.next {
			continue
		}
		if err := l.replayBatch(batch); err != nil {
			return err
		}
		offsets, err := l.rt.opts.Log.Offsets(l.id)
		if err != nil {
			return fmt.Errorf("stopped loading at offset %d: %w", l.next, err)
		}
		l.batchDone(batch.NextOffset(), offsets.HighWatermark)
	}
	return nil
}

// batchDone takes note of a replayed batch. What lies below the high watermark
// needs no history.
func (l *loader[R, M]) batchDone(next, highWatermark int64) {
	l.next = next
	l.registry.Snapshot(next)
	l.registry.Commit(highWatermark)
	l.highWatermarkMoved(highWatermark)
}

// loadLimits bounds what one batch of an internal topic may claim.
var loadLimits = record.Limits{MaxDecompressedBytes: 1 << 30}

func (l *loader[R, M]) replayBatch(batch record.Batch) error {
	producer := NoProducer
	if batch.IsTransactional() {
		producer = Producer{ID: batch.ProducerID(), Epoch: batch.ProducerEpoch()}
	}
	for rec, err := range batch.Records(loadLimits) {
		if err != nil {
			return fmt.Errorf("records at offset %d: %w", batch.BaseOffset(), err)
		}
		if batch.IsControl() {
			l.replayControl(producer, rec)
			continue
		}
		l.records++
		decoded, err := l.rt.opts.Codec.Decode(rec.Key, rec.Value)
		if errors.Is(err, ErrUnknownRecord) {
			l.logger.Warn("unknown record ignored; it may be left over from a newer version", "offset", rec.Offset, "cause", err)
			continue
		}
		if err != nil {
			return fmt.Errorf("record at offset %d: %w", rec.Offset, err)
		}
		if err := l.machine.Replay(rec.Offset, producer, decoded); err != nil {
			return fmt.Errorf("replay the record at offset %d: %w", rec.Offset, err)
		}
	}
	return nil
}

// replayControl applies the end of a transaction. Other control records do not
// concern a coordinator.
func (l *loader[R, M]) replayControl(producer Producer, rec record.Record) {
	switch t, err := record.ParseControlKey(rec.Key); {
	case err != nil:
		l.logger.Warn("unreadable control record ignored", "offset", rec.Offset, "cause", err)
	case t == record.ControlCommit:
		l.machine.ReplayEndTxn(producer, true)
	case t == record.ControlAbort:
		l.machine.ReplayEndTxn(producer, false)
	}
}
