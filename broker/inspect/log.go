package inspect

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"

	"gregor/protocol/record"
	"gregor/storage/vfs"
)

// log prints a segment or a snapshot of the metadata log, batch by batch.
func (d *dumper) log(path string) error {
	f, err := d.FS.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read
	if err := d.logTitle(path); err != nil {
		return err
	}
	size, err := f.Size()
	if err != nil {
		return err
	}
	if d.MaxBytes > 0 {
		size = min(size, d.MaxBytes)
	}
	p := &progress{d: d, path: path, size: size}
	next := int64(-1)
	for at := int64(0); at < size; {
		b, err := readBatch(f, at, size)
		if err != nil {
			d.found("Found "+strconv.FormatInt(size-at, 10)+" invalid bytes at the end of "+filepath.Base(path), err.Error())
			return nil
		}
		d.batch(b, at)
		if d.Deep {
			next = d.records(path, b, next)
		}
		at += int64(b.SizeBytes())
		p.reached(at)
	}
	return nil
}

// logTitle prints where the file begins.
func (d *dumper) logTitle(path string) error {
	if d.JSON {
		return nil
	}
	name := filepath.Base(path)
	if stem, ok := strings.CutSuffix(name, ".checkpoint"); ok {
		offset, epoch, found := strings.Cut(stem, "-")
		end, err1 := strconv.ParseInt(offset, 10, 64)
		e, err2 := strconv.ParseInt(epoch, 10, 32)
		if !found || err1 != nil || err2 != nil {
			return fmt.Errorf("%s is not named OFFSET-EPOCH.checkpoint", name)
		}
		d.printf("Snapshot end offset: %d, epoch: %d\n", end, e)
		return nil
	}
	base, err := baseOffset(path)
	if err != nil {
		return err
	}
	d.printf("Log starting offset: %d\n", base)
	return nil
}

// readBatch reads the batch at a position. The memory grows with what the file holds, not with what a length claims.
func readBatch(f vfs.File, at, end int64) (record.Batch, error) {
	if at < 0 || at >= end {
		return nil, fmt.Errorf("position %d is outside the file of %d bytes", at, end)
	}
	head := make([]byte, min(end-at, record.EntrySizeBytes))
	if _, err := f.ReadAt(head, at); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	size, err := record.EntrySize(head)
	if err != nil {
		return nil, err
	}
	if at+int64(size) > end {
		return nil, fmt.Errorf("position %d: %w", at, record.ErrTruncated)
	}
	buf := make([]byte, size)
	if _, err := f.ReadAt(buf, at); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	b, _, err := record.Next(buf)
	return b, err
}

// optional is a number as Java prints an OptionalLong.
func optional(v int64, present bool) string {
	if !present {
		return "OptionalLong.empty"
	}
	return fmt.Sprintf("OptionalLong[%d]", v)
}

func codecName(c record.Codec) string {
	if c == record.CodecNone {
		return "none"
	}
	return c.String()
}

// timestampName is the label of a timestamp.
func timestampName(b record.Batch) string {
	if b.Magic() == 0 {
		return "NoTimestampType"
	}
	return b.TimestampType().String()
}

// batch prints the header of a batch.
func (d *dumper) batch(b record.Batch, at int64) {
	if d.JSON {
		d.batchJSON(b, at)
		return
	}
	if b.Magic() >= 2 {
		d.printf("baseOffset: %d lastOffset: %d count: %d baseSequence: %d lastSequence: %d producerId: %d producerEpoch: %d partitionLeaderEpoch: %d isTransactional: %t isControl: %t deleteHorizonMs: %s",
			b.BaseOffset(), b.LastOffset(), b.Count(), b.BaseSequence(), b.LastSequence(), b.ProducerID(), b.ProducerEpoch(), b.LeaderEpoch(),
			b.IsTransactional(), b.IsControl(), optional(b.DeleteHorizonMillis(), b.HasDeleteHorizon()))
	} else {
		d.printf("offset: %d", b.LastOffset())
	}
	d.printf(" position: %d %s: %d size: %d magic: %d compresscodec: %s crc: %d isvalid: %t\n", at, timestampName(b), b.MaxTimestamp(),
		b.SizeBytes(), b.Magic(), codecName(b.Codec()), b.CRC(), b.CRCValid())
}

// records prints the records of a batch and returns the offset that should follow, -1 when it does not matter.
func (d *dumper) records(path string, b record.Batch, next int64) int64 {
	for r, err := range b.Records(record.Limits{MaxDecompressedBytes: d.MaxDecompressedBytes}) {
		if err != nil {
			d.found("Cannot read records in "+filepath.Base(path), fmt.Sprintf("batch at offset %d: %v", b.BaseOffset(), err))
			return -1
		}
		if next >= 0 && r.Offset != next {
			d.found("Non-consecutive offsets in "+filepath.Base(path), fmt.Sprintf("%d is followed by %d", next-1, r.Offset))
		}
		next = r.Offset + 1
		d.record(b, r)
	}
	return next
}

func sizeOf(b []byte) int {
	if b == nil {
		return -1
	}
	return len(b)
}

// record prints one record.
func (d *dumper) record(b record.Batch, r record.Record) {
	if d.JSON {
		d.recordJSON(b, r)
		return
	}
	if d.SkipMetadata && b.IsControl() {
		d.printf("\n") // as Kafka's tool has it
		return
	}
	d.printf("|")
	if !d.SkipMetadata {
		d.printf(" offset: %d %s: %d keySize: %d valueSize: %d", r.Offset, timestampName(b), r.Timestamp, sizeOf(r.Key), sizeOf(r.Value))
		if b.Magic() >= 2 {
			names := make([]string, len(r.Headers))
			for i, h := range r.Headers {
				names[i] = h.Key
			}
			d.printf(" sequence: %d headerKeys: [%s]", r.Sequence, strings.Join(names, ","))
		} else {
			d.printf(" crc: %d isvalid: %t", b.CRC(), b.CRCValid())
		}
	}
	switch {
	case b.IsControl():
		d.printf("%s", controlText(r))
	case d.Decoder != NoDecoder:
		x := d.decode(r)
		if x.key != nil {
			d.printf(" key: %s", *x.key)
		}
		if x.payload != nil {
			d.printf(" payload: %s", *x.payload)
		}
	}
	d.printf("\n")
}

// progress tells of long files.
type progress struct {
	d    *dumper
	path string
	size int64
	last int64
}

// progressBytes is how much is read between two lines of progress.
const progressBytes = 256 << 20

func (p *progress) reached(at int64) {
	if p.d.Errs == nil || at-p.last < progressBytes {
		return
	}
	p.last = at
	_, _ = fmt.Fprintf(p.d.Errs, "%s: %d of %d MiB\n", p.path, at>>20, p.size>>20) // progress only
}
