package cleaner

import (
	"bytes"
	"fmt"
	"iter"
	"log/slog"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gregor/protocol/record"
	"gregor/storage/segment"
	"gregor/storage/vfs"
)

func must(t interface {
	Helper()
	Fatal(args ...any)
}, err error,
) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fakeLog is a log of the simplest kind: segments of batches, all of them settled.
type fakeLog struct {
	t    testing.TB
	fsys vfs.FS
	name string
	opts segment.Options

	mu       sync.Mutex
	policy   Policy
	segments []*segment.Segment
	end      int64
	stable   int64 // 0 for the end
	cleaned  int64
	last     map[int64]LastRecord
	aborted  bool // by whatever
	notice   func(op string)

	failed    error
	full      error // there was no space
	damaged   error
	deletions int
	below     atomic.Int64 // how far below what is asked for Create makes a segment
	splits    bool         // whether Split finds anything to do
	split     []int64      // bases of the segments that were to be split
}

func newFakeLog(t testing.TB, fsys vfs.FS, name string) *fakeLog {
	t.Helper()
	l := &fakeLog{
		t: t, fsys: fsys, name: name, last: map[int64]LastRecord{}, notice: func(string) {},
		opts:   segment.Options{Files: vfs.NewCache(fsys, 100), IndexIntervalBytes: 4096, IndexMaxBytes: 1 << 20, MaxBytes: 1 << 20},
		policy: Policy{MaxLagMillis: 1 << 62, DeleteRetentionMillis: 1000, SegmentBytes: 1 << 20, SegmentIndexBytes: 1 << 20},
	}
	must(t, fsys.MkdirAll(l.dir()))
	l.roll()
	return l
}

func (l *fakeLog) dir() string { return path.Join("/logs", l.name) }

func (l *fakeLog) active() *segment.Segment { return l.segments[len(l.segments)-1] }

// roll seals the active segment and starts another one.
func (l *fakeLog) roll() {
	l.t.Helper()
	if len(l.segments) > 0 {
		must(l.t, l.active().Seal())
	}
	s, err := segment.Create(l.dir(), l.end, time.Now().UnixMilli(), "", l.opts)
	must(l.t, err)
	l.segments = append(l.segments, s)
}

// add appends batches, which get the next offsets (format 2) or have them.
func (l *fakeLog) add(batches ...record.Batch) {
	l.t.Helper()
	for _, b := range batches {
		if b.Magic() >= 2 {
			b.SetBaseOffset(l.end)
		}
		must(l.t, l.active().Append(b))
		l.end = b.NextOffset()
	}
}

// addAborted notes an aborted transaction whose marker is in the active segment.
func (l *fakeLog) addAborted(pid, first, last int64) {
	l.t.Helper()
	must(l.t, l.active().AppendAborted(segment.AbortedTxn{ProducerID: pid, FirstOffset: first, LastOffset: last, LastStableOffset: last + 1}))
}

// lines describes the batches of all segments.
func (l *fakeLog) lines() string {
	l.t.Helper()
	var out strings.Builder
	for _, s := range l.segments {
		fmt.Fprintf(&out, "segment %d\n", s.Base())
		must(l.t, s.CheckIndexes(false))
		raw, err := vfs.ReadFile(l.fsys, s.LogPath())
		must(l.t, err)
		for b, err := range record.Batches(raw) {
			must(l.t, err)
			fmt.Fprintf(&out, "%d-%d", b.BaseOffset(), b.LastOffset())
			if b.Magic() < 2 {
				fmt.Fprintf(&out, " v%d", b.Magic())
			}
			if b.HasProducerID() {
				fmt.Fprintf(&out, " producer %d/%d/%d", b.ProducerID(), b.ProducerEpoch(), b.BaseSequence())
			}
			if b.IsTransactional() {
				fmt.Fprint(&out, " txn")
			}
			if b.Codec() != record.CodecNone {
				fmt.Fprintf(&out, " %s", b.Codec())
			}
			if b.TimestampType() == record.LogAppendTime {
				fmt.Fprint(&out, " LogAppendTime")
			}
			if b.HasDeleteHorizon() {
				fmt.Fprintf(&out, " horizon %d", b.DeleteHorizonMillis())
			}
			fmt.Fprintf(&out, " max %d:", b.MaxTimestamp())
			for r, err := range b.Records(record.Limits{}) {
				must(l.t, err)
				switch {
				case b.IsControl():
					kind, err := record.ParseControlKey(r.Key)
					must(l.t, err)
					fmt.Fprintf(&out, " %d %s", r.Offset, kind)
				case r.Value == nil:
					fmt.Fprintf(&out, " %d %s@%d", r.Offset, r.Key, r.Timestamp)
				default:
					fmt.Fprintf(&out, " %d %s=%s@%d", r.Offset, r.Key, r.Value, r.Timestamp)
				}
			}
			fmt.Fprintln(&out)
		}
		aborted, err := s.Aborted()
		must(l.t, err)
		for _, a := range aborted {
			fmt.Fprintf(&out, "aborted %d from %d to %d\n", a.ProducerID, a.FirstOffset, a.LastOffset)
		}
	}
	return out.String()
}

// Name implements Log.
func (l *fakeLog) Name() string { return l.name }

// Dir implements Log.
func (l *fakeLog) Dir() string { return "/logs" }

// View implements Log.
func (l *fakeLog) View() View {
	l.mu.Lock()
	defer l.mu.Unlock()
	stable := l.end
	if l.stable > 0 {
		stable = l.stable
	}
	return View{
		Offsets: Offsets{LastStable: stable, LogEnd: l.end, CleanedTo: l.cleaned}, Policy: l.policy,
		Segments: append([]*segment.Segment(nil), l.segments...),
	}
}

// Check implements Log.
func (l *fakeLog) Check(*View) error {
	l.notice("check")
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.aborted {
		return ErrAborted
	}
	return nil
}

// HighWatermark implements Log.
func (l *fakeLog) HighWatermark() int64 { return l.end }

// LastRecords implements Log.
func (l *fakeLog) LastRecords() map[int64]LastRecord { return l.last }

// Flush implements Log.
func (l *fakeLog) Flush(int64) error {
	l.notice("flush")
	return nil
}

// Create implements Log.
func (l *fakeLog) Create(base int64) (*segment.Segment, error) {
	l.notice("create")
	return segment.Create(l.dir(), base-l.below.Load(), time.Now().UnixMilli(), segment.CleanedSuffix, l.opts)
}

// Replace implements Log.
func (l *fakeLog) Replace(_ *View, cleaned *segment.Segment, old []*segment.Segment) error {
	l.notice("replace")
	l.mu.Lock()
	defer l.mu.Unlock()
	at := 0
	for l.segments[at] != old[0] {
		at++
	}
	for _, s := range old {
		if err := s.Retire(); err != nil {
			return err
		}
	}
	if err := cleaned.ChangeSuffix(""); err != nil {
		return err
	}
	l.segments = append(append(append([]*segment.Segment(nil), l.segments[:at]...), cleaned), l.segments[at+len(old):]...)
	return nil
}

// Split implements Log.
func (l *fakeLog) Split(_ *View, s *segment.Segment) (ok bool, err error) {
	l.split = append(l.split, s.Base())
	return l.splits, nil
}

// SetCleanedTo implements Log.
func (l *fakeLog) SetCleanedTo(_ *View, offset int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cleaned = offset
	return nil
}

// DeleteOldSegments implements Log.
func (l *fakeLog) DeleteOldSegments(time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deletions++
	return nil
}

// Fail implements Log.
func (l *fakeLog) NoSpace(err error) { l.full = err }

func (l *fakeLog) Fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed, l.aborted = err, true
}

// Damaged implements Log.
func (l *fakeLog) Damaged(_ *View, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.damaged = err
}

// fakeLogs lists logs.
type fakeLogs struct {
	mu   sync.Mutex
	logs []*fakeLog
	gone map[Log]bool
}

// Compacted implements Logs.
func (f *fakeLogs) Compacted() iter.Seq[Log] {
	return func(yield func(Log) bool) {
		f.mu.Lock()
		listed := slices.DeleteFunc(slices.Clone(f.logs), func(l *fakeLog) bool { return f.gone[l] })
		f.mu.Unlock()
		for _, l := range listed {
			if !yield(l) {
				return
			}
		}
	}
}

// IsCurrent implements Logs.
func (f *fakeLogs) IsCurrent(l Log) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.gone[l]
}

func (f *fakeLogs) remove(l Log) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.gone == nil {
		f.gone = map[Log]bool{}
	}
	f.gone[l] = true
}

// lineBuffer collects log lines.
type lineBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lineBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lineBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *lineBuffer) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func smallConfig() Config {
	c := DefaultConfig()
	c.DedupeBytes = 1 << 16
	return c
}

// keyed makes a batch of "key=value" and "key" (tombstone) and "=value" (without a key) at a timestamp.
func keyed(o record.BuilderOptions, timestamp int64, records ...string) record.Batch {
	b := record.NewBuilder(o)
	for _, r := range records {
		key, value, ok := strings.Cut(r, "=")
		var k, v []byte
		if key != "" {
			k = []byte(key)
		}
		if ok {
			v = []byte(value)
		}
		b.Add(timestamp, k, v, nil)
	}
	return bytes.Clone(b.Bytes())
}

func ofProducer(pid int64, epoch int16, sequence int32, transactional bool) record.BuilderOptions {
	return record.BuilderOptions{HasProducer: true, ProducerID: pid, ProducerEpoch: epoch, BaseSequence: sequence, Transactional: transactional}
}

func marker(pid int64, epoch int16, commit bool) record.Batch {
	return bytes.Clone(record.BuildEndTxnMarker(record.EndTxnOptions{TimestampMillis: 7, ProducerID: pid, ProducerEpoch: epoch, Commit: commit}))
}

func expect(t *testing.T, l *fakeLog, want string) {
	t.Helper()
	if got := l.lines(); got != strings.TrimPrefix(want, "\n") {
		t.Errorf("got:\n%swant:%s", got, want)
	}
}
