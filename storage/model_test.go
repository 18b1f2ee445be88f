package storage

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"gregor/protocol/record"
	"gregor/storage/vfs"
)

// dumbLog is a partition as a slice of batches.
type dumbLog struct {
	batches        []record.Batch
	start, hw, end int64
	epochs         []EpochEntry
}

func (d *dumbLog) truncate(offset int64) {
	if offset >= d.end {
		d.epochs = slices.DeleteFunc(d.epochs, func(e EpochEntry) bool { return e.StartOffset >= d.end })
		return
	}
	if len(d.batches) == 0 || offset < d.batches[0].BaseOffset() && offset < d.start {
		d.batches = nil
	}
	d.batches = slices.DeleteFunc(d.batches, func(b record.Batch) bool { return b.LastOffset() >= offset })
	d.end, d.start, d.hw = offset, min(d.start, offset), min(d.hw, offset)
	d.hw = max(d.hw, d.start)
	d.epochs = slices.DeleteFunc(d.epochs, func(e EpochEntry) bool { return e.StartOffset >= offset })
}

// read returns the batches that a reader at offset may see, as one run of bytes.
func (d *dumbLog) read(offset, bound int64) []byte {
	var all []byte
	for _, b := range d.batches {
		if b.LastOffset() >= offset && b.LastOffset() < bound {
			all = append(all, b...)
		}
	}
	return all
}

func (d *dumbLog) offsetForTimestamp(millis int64) int64 {
	for _, b := range d.batches {
		for r := range b.Records(record.Limits{}) {
			if r.Timestamp >= millis && r.Offset >= d.start {
				return r.Offset
			}
		}
	}
	return -1
}

type modelMachine struct {
	t     *rapid.T
	fsys  *vfs.Mem
	o     LogOptions
	l     *Log
	d     dumbLog
	epoch int32
}

func (m *modelMachine) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *modelMachine) open(clean bool) {
	s := State{}
	if m.l != nil {
		s = *m.l.State()
	}
	m.o.HadCleanShutdown, m.o.RecoveryPoint, m.o.LogStartOffset = clean, s.RecoveryPoint, s.LogStartOffset
	var err error
	m.l, err = OpenLog(m.o)
	m.must(err)
	_, err = m.l.UpdateHighWatermark(m.d.hw)
	m.must(err)
	// As Kafka's loader: an epoch in which nothing was written is forgotten.
	m.d.epochs = slices.DeleteFunc(m.d.epochs, func(e EpochEntry) bool { return e.StartOffset >= m.d.end })
}

func (m *modelMachine) append(t *rapid.T) {
	n := rapid.IntRange(1, 5).Draw(t, "records")
	b := record.NewBuilder(record.BuilderOptions{Codec: record.Codec(rapid.SampledFrom([]int8{0, 0, 0, 3, 4}).Draw(t, "codec"))})
	for range n {
		b.Add(rapid.Int64Range(0, 2000).Draw(t, "timestamp"), nil, make([]byte, rapid.IntRange(0, 150).Draw(t, "value")), nil)
	}
	batch := b.Bytes()
	info, err := m.l.AppendAsLeader(batch, m.epoch, AppendOptions{AloneInSync: rapid.Bool().Draw(t, "alone")})
	m.must(err)
	if info.FirstOffset != m.d.end || info.LastOffset != m.d.end+int64(n)-1 {
		t.Fatalf("appended at %d-%d, want %d", info.FirstOffset, info.LastOffset, m.d.end)
	}
	if k := len(m.d.epochs); k == 0 || m.d.epochs[k-1].Epoch != m.epoch {
		m.d.epochs = slices.DeleteFunc(m.d.epochs, func(e EpochEntry) bool { return e.StartOffset >= m.d.end })
		m.d.epochs = append(m.d.epochs, EpochEntry{Epoch: m.epoch, StartOffset: m.d.end})
	}
	m.d.batches = append(m.d.batches, batch)
	m.d.end = info.LastOffset + 1
	if m.l.State().HighWatermark == m.d.end {
		m.d.hw = m.d.end
	}
}

func (m *modelMachine) truncate(t *rapid.T) {
	offset := rapid.Int64Range(max(0, m.d.start-3), m.d.end+1).Draw(t, "to")
	for _, b := range m.d.batches {
		if offset > b.BaseOffset() && offset <= b.LastOffset() {
			offset = b.BaseOffset() // where a batch starts; within one, see TestTruncationWithinABatch
		}
	}
	m.must(m.l.TruncateTo(offset))
	m.d.truncate(offset)
	if m.l.State().LogStartOffset > m.d.start {
		t.Fatalf("log start %d, want %d", m.l.State().LogStartOffset, m.d.start)
	}
}

func (m *modelMachine) restart(t *rapid.T) {
	offset := rapid.Int64Range(0, m.d.end+20).Draw(t, "at")
	m.must(m.l.TruncateFullyAndStartAt(offset))
	m.d = dumbLog{start: offset, hw: offset, end: offset}
}

func (m *modelMachine) deleteRecords(t *rapid.T) {
	offset := rapid.Int64Range(0, m.d.end).Draw(t, "start")
	grown, err := m.l.IncrementLogStartOffset(offset)
	if offset > m.d.hw {
		if !errors.Is(err, ErrOffsetOutOfRange) {
			t.Fatalf("start above the high watermark: %v", err)
		}
		return
	}
	m.must(err)
	if grown != (offset > m.d.start) {
		t.Fatalf("grown is %t for %d after %d", grown, offset, m.d.start)
	}
	m.startAt(max(m.d.start, offset))
}

func (m *modelMachine) startAt(offset int64) {
	m.d.start = offset
	for len(m.d.epochs) > 1 && m.d.epochs[1].StartOffset <= offset {
		m.d.epochs = m.d.epochs[1:]
	}
	if len(m.d.epochs) > 0 && m.d.epochs[0].StartOffset < offset {
		m.d.epochs[0].StartOffset = offset
	}
}

func (m *modelMachine) retention(t *rapid.T) {
	c := m.o.Config
	c.RetentionBytes = rapid.Int64Range(-1, 3000).Draw(t, "retention.bytes")
	m.l.UpdateConfig(c)
	before := m.l.State()
	n, err := m.l.DeleteOldSegments(time.UnixMilli(5000))
	m.must(err)
	m.l.UpdateConfig(m.o.Config)
	after := m.l.State()
	if n > 0 && after.LogStartOffset < before.LogStartOffset || after.LogStartOffset > m.d.hw {
		t.Fatalf("log start from %d to %d, high watermark %d", before.LogStartOffset, after.LogStartOffset, m.d.hw)
	}
	if c.RetentionBytes >= 0 && after.HighWatermark == after.LogEndOffset && after.SizeBytes > c.RetentionBytes+int64(c.SegmentBytes) {
		t.Fatalf("%d bytes are left, retention.bytes is %d", after.SizeBytes, c.RetentionBytes)
	}
	m.startAt(after.LogStartOffset)
}

func (m *modelMachine) raise(t *rapid.T) {
	hw := rapid.Int64Range(0, m.d.end+5).Draw(t, "hw")
	got, err := m.l.UpdateHighWatermark(hw)
	m.must(err)
	m.d.hw = max(m.d.hw, min(hw, m.d.end))
	if got != m.d.hw {
		t.Fatalf("high watermark %d, want %d", got, m.d.hw)
	}
}

func (m *modelMachine) read(t *rapid.T) {
	offset := rapid.Int64Range(0, m.d.end+2).Draw(t, "from")
	maxBytes := rapid.IntRange(0, 700).Draw(t, "maxBytes")
	bound := rapid.SampledFrom([]Bound{UpToLogEnd, UpToHighWatermark}).Draw(t, "bound")
	whole := rapid.Bool().Draw(t, "minOneBatch")
	f, err := m.l.Read(offset, maxBytes, bound, whole)
	if offset < m.d.start || offset > m.d.end {
		if !errors.Is(err, ErrOffsetOutOfRange) {
			t.Fatalf("read at %d of [%d, %d]: %v", offset, m.d.start, m.d.end, err)
		}
		return
	}
	m.must(err)
	end := m.d.end
	if bound == UpToHighWatermark {
		end = m.d.hw
	}
	want := m.d.read(offset, end)
	if offset >= end {
		want = nil
	}
	if f.Range == nil {
		if len(want) > 0 && (maxBytes > 0 || whole) {
			t.Fatalf("nothing at %d, want %d bytes", offset, len(want))
		}
		return
	}
	defer f.Range.Release()
	got := make([]byte, f.Range.Len())
	if _, err := f.Range.ReadAt(got, 0); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	first, _, err := record.Next(want)
	m.must(err)
	limit := maxBytes
	if whole {
		limit = max(limit, len(first))
	}
	if len(got) > limit || f.FirstPartial != (len(got) < len(first)) || !bytes.HasPrefix(want, got) {
		t.Fatalf("%d bytes at %d (partial %t), limit %d, first batch %d, want a prefix of %d", len(got), offset, f.FirstPartial, limit, len(first), len(want))
	}
	if len(got) == 0 {
		t.Fatal("an empty range")
	}
}

func (m *modelMachine) search(t *rapid.T) {
	millis := rapid.Int64Range(0, 2100).Draw(t, "millis")
	got, err := m.l.OffsetForTimestamp(millis, UpToLogEnd)
	m.must(err)
	if want := m.d.offsetForTimestamp(millis); got.Offset != want {
		t.Fatalf("timestamp %d is at %+v, want %d", millis, got, want)
	}
}

func (m *modelMachine) checkAll(t *rapid.T) {
	s := m.l.State()
	if s.LogStartOffset != m.d.start || s.HighWatermark != m.d.hw || s.LogEndOffset != m.d.end {
		t.Fatalf("start %d, high watermark %d, end %d; want %d, %d, %d",
			s.LogStartOffset, s.HighWatermark, s.LogEndOffset, m.d.start, m.d.hw, m.d.end)
	}
	if got := m.l.EpochEntries(); !slices.Equal(got, m.d.epochs) {
		t.Fatalf("epochs %v, want %v", got, m.d.epochs)
	}
	var got []byte
	for at := s.LogStartOffset; ; {
		b, err := m.l.ReadBatches(at, nil, 500, UpToLogEnd)
		if errors.Is(err, io.EOF) {
			break
		}
		m.must(err)
		for batch := range record.Validated(b) {
			at = batch.NextOffset()
		}
		got = append(got, b...)
	}
	if want := m.d.read(m.d.start, m.d.end); !bytes.Equal(got, want) {
		t.Fatalf("%d bytes, want %d", len(got), len(want))
	}
}

// TestLogBehavesLikeASliceOfBatches drives a log with tiny segments and a dumb twin with the same random
// operations.
func TestLogBehavesLikeASliceOfBatches(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fsys := vfs.NewMem()
		m := &modelMachine{t: t, fsys: fsys, o: testOptions(fsys)}
		m.o.Config.SegmentBytes, m.o.Config.IndexIntervalBytes, m.o.Config.FileDeleteDelayMillis = 1200, 150, 0
		m.o.Config.SegmentMillis = 1 << 40
		m.o.Config.SegmentIndexBytes = rapid.SampledFrom([]int32{48, 4096}).Draw(t, "segment.index.bytes")
		m.open(false)
		defer func() { m.l.CloseUnclean() }()
		t.Repeat(map[string]func(*rapid.T){
			"append":  m.append,
			"append2": m.append,
			"epoch":   func(*rapid.T) { m.epoch++ },
			"flush":   func(*rapid.T) { m.must(m.l.Flush(m.d.end)) },
			"roll":    func(*rapid.T) { m.must(m.l.Roll()) },
			"raise":   m.raise, "truncate": m.truncate, "restart": m.restart, "deleteRecords": m.deleteRecords,
			"retention": m.retention, "read": m.read, "search": m.search,
			"reopen": func(*rapid.T) { m.must(m.l.Close()); m.open(true) },
			"kill": func(*rapid.T) { // the process dies, the machine does not
				m.l.CloseUnclean()
				m.open(false)
				// Recovery learns epochs from the batches, also one whose entry had gone.
				m.d.epochs = m.l.EpochEntries()
			},
			"": m.checkAll,
		})
	})
}
