package inspect

import (
	"fmt"
	"math"

	"gregor/storage/producer"
	"gregor/storage/segment"
	"gregor/storage/vfs"
)

// offsetIndex prints an offset index and checks that each entry points at the batch that it names.
func (d *dumper) offsetIndex(path string) error {
	base, err := baseOffset(path)
	if err != nil {
		return err
	}
	raw, err := d.read(path)
	if err != nil {
		return err
	}
	entries, err := segment.DecodeOffsetIndex(raw)
	if err != nil {
		return err
	}
	if len(entries) == 0 {
		d.printf("%s is empty.\n", path)
		return nil
	}
	if d.SanityOnly {
		d.printf("%s passed sanity check.\n", path)
		return nil
	}
	log, size, err := d.openLog(path, base)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // only read
	for _, e := range entries {
		b, err := readBatch(log, int64(e.Position), size)
		offset := base + int64(e.RelativeOffset)
		if err != nil {
			d.found("Mismatches in :"+path, fmt.Sprintf("Index offset: %d, position %d: %v", offset, e.Position, err))
			continue
		}
		if b.LastOffset() != offset {
			d.found("Mismatches in :"+path, fmt.Sprintf("Index offset: %d, log offset: %d", offset, b.LastOffset()))
		}
		if !d.VerifyOnly {
			d.printf("offset: %d position: %d\n", offset, e.Position)
		}
	}
	return nil
}

// openLog opens the log that an index belongs to.
func (d *dumper) openLog(path string, base int64) (vfs.File, int64, error) {
	f, err := d.FS.Open(sibling(path, base, segment.LogSuffix))
	if err != nil {
		return nil, 0, fmt.Errorf("the log of this index: %w", err)
	}
	size, err := f.Size()
	if err != nil {
		_ = f.Close() // the error that counts is the one before
		return nil, 0, err
	}
	return f, size, nil
}

// timeIndex prints a time index and checks that each entry names a batch that has its timestamp.
func (d *dumper) timeIndex(path string) error {
	base, err := baseOffset(path)
	if err != nil {
		return err
	}
	raw, err := d.read(path)
	if err != nil {
		return err
	}
	entries, err := segment.DecodeTimeIndex(raw)
	if err != nil {
		return err
	}
	if d.SanityOnly {
		d.printf("%s passed sanity check.\n", path)
		return nil
	}
	stamps, err := d.batchTimestamps(path, base)
	if err != nil {
		return err
	}
	last := int64(math.MinInt64)
	for _, e := range entries {
		offset := base + int64(e.RelativeOffset)
		if stamp, ok := stamps[offset]; ok && stamp != e.Timestamp {
			d.found("Found timestamp mismatch in :"+path, fmt.Sprintf("Index timestamp: %d, log timestamp: %d", e.Timestamp, stamp))
		}
		if e.Timestamp < last {
			d.found("Found out of order timestamp in :"+path, fmt.Sprintf("Index timestamp: %d, Previously indexed timestamp: %d", e.Timestamp, last))
		}
		last = e.Timestamp
		if !d.VerifyOnly {
			d.printf("timestamp: %d offset: %d\n", e.Timestamp, offset)
		}
	}
	return nil
}

// batchTimestamps maps last offsets of the batches of a log to their largest timestamps.
func (d *dumper) batchTimestamps(path string, base int64) (map[int64]int64, error) {
	log, size, err := d.openLog(path, base)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // only read
	out := map[int64]int64{}
	for at := int64(0); at < size; {
		b, err := readBatch(log, at, size)
		if err != nil {
			break // the log's own dump tells
		}
		out[b.LastOffset()] = b.MaxTimestamp()
		at += int64(b.SizeBytes())
	}
	return out, nil
}

// txnIndex prints a transaction index.
func (d *dumper) txnIndex(path string) error {
	raw, err := d.read(path)
	if err != nil {
		return err
	}
	entries, err := segment.DecodeTxnIndex(raw)
	if err != nil {
		return err
	}
	for _, e := range entries {
		d.printf("version: 0 producerId: %d firstOffset: %d lastOffset: %d lastStableOffset: %d\n", e.ProducerID, e.FirstOffset, e.LastOffset, e.LastStableOffset)
	}
	return nil
}

// producers prints a producer snapshot.
func (d *dumper) producers(path string) error {
	states, err := producer.ReadSnapshot(d.FS, path)
	if err != nil {
		return err
	}
	for i := range states {
		s := &states[i]
		d.printf("producerId: %d producerEpoch: %d coordinatorEpoch: %d currentTxnFirstOffset: %s lastTimestamp: %d ", s.ProducerID, s.Epoch,
			s.CoordinatorEpoch, optional(s.CurrentTxnFirstOffset, s.CurrentTxnFirstOffset >= 0), s.LastTimestamp)
		if all := s.Batches(); len(all) > 0 {
			m := all[0]
			d.printf("firstSequence: %d lastSequence: %d lastOffset: %d offsetDelta: %d timestamp: %d", m.FirstSequence(), m.LastSequence,
				m.LastOffset, m.OffsetDelta, m.Timestamp)
		}
		d.printf("\n")
	}
	return nil
}

// text prints a checkpoint or properties file as it is.
func (d *dumper) text(path string) error {
	raw, err := d.read(path)
	if err != nil {
		return err
	}
	_, err = d.w.Write(raw)
	if err == nil && len(raw) > 0 && raw[len(raw)-1] != '\n' {
		d.printf("\n")
	}
	return err
}
