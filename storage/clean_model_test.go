package storage

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"gregor/protocol/record"
	"gregor/storage/cleaner"
	"gregor/storage/producer"
	"gregor/storage/segment"
	"gregor/storage/vfs"
)

// plainBatch is a batch taken apart, for the dumb twin of the cleaner.
type plainBatch struct {
	base, last, max int64
	pid             int64
	epoch           int16
	sequence        int32
	txn, control    bool
	codec           record.Codec
	horizon         int64 // -1 without one
	marker          record.ControlType
	records         []plainRecord
}

type plainRecord struct {
	offset, timestamp int64
	key, value        string
	null, noKey       bool
}

func (b *plainBatch) String() string {
	return fmt.Sprintf("%d-%d max=%d pid=%d/%d/%d txn=%t control=%t codec=%s horizon=%d %v", b.base, b.last, b.max, b.pid, b.epoch, b.sequence,
		b.txn, b.control, b.codec, b.horizon, b.records)
}

func takeApart(t rapidT, raw []byte) []*plainBatch {
	var list []*plainBatch
	for b, err := range record.Batches(raw) {
		check(t, err)
		p := &plainBatch{
			base: b.BaseOffset(), last: b.LastOffset(), max: b.MaxTimestamp(), pid: b.ProducerID(), epoch: b.ProducerEpoch(),
			sequence: b.BaseSequence(), txn: b.IsTransactional(), control: b.IsControl(), codec: b.Codec(), horizon: b.DeleteHorizonMillis(),
		}
		if !b.CRCValid() {
			t.Fatalf("CRC of batch %v", p)
		}
		for r, err := range b.Records(record.Limits{}) {
			check(t, err)
			if p.control {
				p.marker, err = record.ParseControlKey(r.Key)
				check(t, err)
			}
			p.records = append(p.records, plainRecord{
				offset: r.Offset, timestamp: r.Timestamp, key: string(r.Key), value: string(r.Value), null: r.Value == nil, noKey: r.Key == nil,
			})
		}
		list = append(list, p)
	}
	return list
}

// inBubble runs a property under a fake clock. rapid asks a *testing.T for its deadline, which bubbles do not allow.
func inBubble(t *testing.T, property func(t *rapid.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ *testing.T }{t}, property)
	})
}

// rapidT is what *rapid.T and *testing.T share.
type rapidT interface {
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
	Helper()
}

func check(t rapidT, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v", err)
	}
}

// outcome says how the transaction of a batch ended: the next marker of its producer tells.
func outcome(log []*plainBatch, i int) record.ControlType {
	for _, b := range log[i+1:] {
		if b.control && b.pid == log[i].pid && len(b.records) > 0 {
			return b.marker
		}
	}
	return -1
}

// marksNothing tells whether no batch of the marker's transaction is left.
func marksNothing(log []*plainBatch, i int) bool {
	for _, b := range slices.Backward(log[:i]) {
		if b.pid != log[i].pid {
			continue
		}
		if b.control && len(b.records) > 0 {
			return true
		}
		if b.txn && !b.control {
			return false
		}
	}
	return true
}

// cleanModel is a round by the letter of the rules, with everything in memory.
type cleanModel struct {
	firstDirty, end, now, deleteRetention, highWatermark int64
	last                                                 map[int64]cleaner.LastRecord
}

func (m *cleanModel) clean(log []*plainBatch) []*plainBatch {
	newest := map[string]int64{}
	for i, b := range log {
		if b.control || b.last >= m.end || b.txn && outcome(log, i) == record.ControlAbort {
			continue
		}
		for _, r := range b.records {
			if !r.noKey && r.offset >= m.firstDirty {
				newest[r.key] = r.offset
			}
		}
	}
	var out []*plainBatch
	for i, b := range log {
		if b.base >= m.end {
			out = append(out, b)
			continue
		}
		if c := m.batch(log, i, newest); c != nil {
			out = append(out, c)
		}
	}
	return out
}

func (m *cleanModel) batch(log []*plainBatch, i int, newest map[string]int64) *plainBatch {
	b := *log[i]
	idle := b.control && (len(b.records) == 0 || marksNothing(log, i))
	gone := b.txn && !b.control && outcome(log, i) == record.ControlAbort
	if b.control {
		gone = idle && b.horizon >= 0 && b.horizon <= m.now
	}
	var kept []plainRecord
	tombstone := false
	for _, r := range b.records {
		stays := !gone
		if stays && !b.control {
			offset, known := newest[r.key]
			stays = !r.noKey && (!known || r.offset >= offset) && (!r.null || b.horizon < 0 || m.now < b.horizon)
		}
		if stays {
			kept = append(kept, r)
			tombstone = tombstone || r.null
		}
	}
	if len(kept) == 0 {
		last, known := m.last[b.pid]
		ofProducer := b.pid >= 0 && known && (last.LastOffset >= 0 && b.last == last.LastOffset ||
			last.LastOffset < 0 && b.control && b.epoch == last.Epoch)
		if !ofProducer && b.last+1 != m.highWatermark {
			return nil
		}
		b.records, b.horizon, b.codec = nil, -1, record.CodecNone
		return &b
	}
	if (tombstone || b.control && idle) && b.horizon < 0 {
		b.horizon = m.now + m.deleteRetention
	}
	if len(kept) < len(b.records) {
		b.max = kept[0].timestamp
		for _, r := range kept {
			b.max = max(b.max, r.timestamp)
		}
	}
	b.records = kept
	return &b
}

// lines describes a log without what only a rewritten batch has.
func lines(log []*plainBatch) string {
	var s strings.Builder
	for _, b := range log {
		fmt.Fprintln(&s, b)
	}
	return s.String()
}

// latest is what a consumer with read_committed ends up with, by key; it trusts the list of aborted transactions.
func latest(t rapidT, l *Log) map[string]string {
	state := map[string]string{}
	var buf []byte
	for at := l.State().LogStartOffset; ; {
		f, err := l.Read(at, 300, UpToLastStable, true)
		check(t, err)
		if f.Range == nil {
			return state
		}
		buf = slices.Grow(buf[:0], f.Range.Len())[:f.Range.Len()]
		_, err = f.Range.ReadAt(buf, 0)
		f.Range.Release()
		check(t, err)
		aborted := slices.Clone(f.AbortedTxns)
		open := map[int64]bool{}
		for b, err := range record.Batches(buf) {
			if err != nil {
				break // cut off
			}
			at = b.NextOffset()
			for i := 0; i < len(aborted); {
				if aborted[i].FirstOffset > b.LastOffset() {
					i++
					continue
				}
				open[aborted[i].ProducerID] = true
				aborted = slices.Delete(aborted, i, i+1)
			}
			if b.IsControl() {
				if kind, _, ok, err := record.ParseEndTxnBatch(b, record.Limits{}); err == nil && ok && kind == record.ControlAbort {
					delete(open, b.ProducerID())
				}
				continue
			}
			if b.IsTransactional() && open[b.ProducerID()] {
				continue
			}
			for r, err := range b.Records(record.Limits{}) {
				check(t, err)
				switch {
				case r.Key == nil || r.Offset < l.State().LogStartOffset:
				case r.Value == nil:
					delete(state, string(r.Key))
				default:
					state[string(r.Key)] = string(r.Value)
				}
			}
		}
	}
}

// cleanHistory is a log with random writers.
type cleanHistory struct {
	t      *rapid.T
	fsys   *vfs.Mem
	o      LogOptions
	l      *Log
	writer map[int64]*historyWriter
	n      int
}

type historyWriter struct {
	epoch    int16
	sequence int32
	open     bool
}

const (
	plainWriter      = -1
	idempotentWriter = 1 // others are transactional
	writers          = 5
)

func newCleanHistory(t *rapid.T) *cleanHistory {
	h := &cleanHistory{t: t, fsys: vfs.NewMem(), writer: map[int64]*historyWriter{}}
	check(t, h.fsys.MkdirAll("/data"))
	check(t, h.fsys.SyncDir("/"))
	h.o = testOptions(h.fsys)
	h.o.Config.CleanupCompact, h.o.Config.CleanupDelete = true, false
	h.o.Config.MinCleanableDirtyRatio, h.o.Config.IndexIntervalBytes = 0, 100
	h.o.Config.SegmentBytes = int32(rapid.IntRange(500, 3000).Draw(t, "segmentBytes"))
	h.o.Config.DeleteRetentionMillis = int64(rapid.SampledFrom([]int{0, 1000}).Draw(t, "deleteRetention"))
	h.open()
	return h
}

func (h *cleanHistory) open() {
	l, err := OpenLog(h.o)
	check(h.t, err)
	h.l = l
	_, err = l.UpdateHighWatermark(1 << 60)
	check(h.t, err)
}

func (h *cleanHistory) write() {
	t := h.t
	pid := int64(rapid.IntRange(plainWriter, writers).Draw(t, "writer"))
	o := record.BuilderOptions{Codec: rapid.SampledFrom([]record.Codec{record.CodecNone, record.CodecNone, record.CodecGzip, record.CodecLZ4}).Draw(t, "codec")}
	w := h.writer[pid]
	if w == nil {
		w = &historyWriter{}
		h.writer[pid] = w
	}
	if pid >= 0 {
		o.HasProducer, o.ProducerID, o.ProducerEpoch, o.BaseSequence = true, pid, w.epoch, w.sequence
		o.Transactional = pid > idempotentWriter
		w.open = o.Transactional
	}
	b := record.NewBuilder(o)
	for range rapid.IntRange(1, 4).Draw(t, "records") {
		h.n++
		key := []byte(fmt.Sprint("k", rapid.IntRange(0, 6).Draw(t, "key")))
		value := []byte(fmt.Sprint("v", h.n))
		switch rapid.IntRange(0, 9).Draw(t, "kind") {
		case 0, 1:
			value = nil
		case 2:
			key = nil
		}
		b.Add(time.Now().UnixMilli()-int64(rapid.IntRange(0, 50).Draw(t, "age")), key, value, nil)
		w.sequence = record.AddSequence(w.sequence, 1)
	}
	_, err := h.l.AppendAsLeader(b.Bytes(), 0, AppendOptions{LogAppendTimeMillis: -1, AloneInSync: true})
	if errors.Is(err, producer.ErrOutOfOrderSequence) && h.l.State().LogStartOffset > 0 {
		// The batches before were deleted, and a start has forgotten them: the client begins a new epoch.
		w.epoch++
		w.sequence, w.open = 0, false
		return
	}
	check(t, err)
}

// end ends the open transactions with the given ids; a writer with a new epoch starts from sequence 0.
func (h *cleanHistory) end(pid int64, commit, bump bool) {
	w := h.writer[pid]
	if w == nil || !w.open {
		return
	}
	if bump {
		w.epoch++
		w.sequence = 0
	}
	m := record.BuildEndTxnMarker(record.EndTxnOptions{TimestampMillis: time.Now().UnixMilli(), ProducerID: pid, ProducerEpoch: w.epoch, Commit: commit})
	_, err := h.l.AppendAsLeader(m, 0, AppendOptions{Origin: FromCoordinator, LogAppendTimeMillis: -1, AloneInSync: true})
	check(h.t, err)
	w.open = false
}

// step does something other than cleaning.
func (h *cleanHistory) step() {
	t := h.t
	switch rapid.IntRange(0, 19).Draw(t, "step") {
	case 0, 1:
		check(t, h.l.Roll())
	case 2, 3, 4, 5, 6:
		h.end(int64(rapid.IntRange(idempotentWriter+1, writers).Draw(t, "ended")), rapid.Bool().Draw(t, "commit"), rapid.Bool().Draw(t, "bump"))
	case 7:
		time.Sleep(time.Duration(rapid.IntRange(1, 1500).Draw(t, "millis")) * time.Millisecond)
	case 8:
		s := h.l.State()
		if s.LastStableOffset < s.HighWatermark {
			break // of an open transaction that begins below the log start, a start may forget, as in Kafka
		}
		_, err := h.l.IncrementLogStartOffset(s.LogStartOffset + (s.HighWatermark-s.LogStartOffset)/4)
		check(t, err)
	case 9:
		h.reopen(rapid.Bool().Draw(t, "clean"))
	default:
		h.write()
	}
}

func (h *cleanHistory) reopen(clean bool) {
	s := h.l.State()
	h.o.LogStartOffset, h.o.CleanedTo, h.o.RecoveryPoint, h.o.HadCleanShutdown = s.LogStartOffset, s.CleanedTo, s.RecoveryPoint, clean
	if clean {
		check(h.t, h.l.Close())
	} else {
		h.l.bg.wait()
		h.l.CloseUnclean()
	}
	h.open()
	after := h.l.State()
	if after.LogEndOffset != s.LogEndOffset || after.LastStableOffset != s.LastStableOffset || after.LogStartOffset != s.LogStartOffset {
		h.t.Fatalf("before the start %+v, after it %+v", s, after)
	}
}

func (h *cleanHistory) all() []byte {
	var all []byte
	for _, s := range h.l.Segments() {
		raw, err := vfs.ReadFile(h.fsys, s.LogPath())
		check(h.t, err)
		all = append(all, raw[:s.SizeBytes()]...)
	}
	return all
}

// producersOf describes the producer states that sequences and fencing depend on.
func producersOf(l *Log) string {
	var s strings.Builder
	for _, p := range l.ActiveProducers() {
		fmt.Fprintf(&s, "%d: epoch %d, sequence %d at %d, open from %d\n", p.ProducerID, p.Epoch, p.LastSequence(), p.LastOffset(), p.CurrentTxnFirstOffset)
	}
	return s.String()
}

// clean lets the cleaner do a round and compares with the model, where the map is large enough for one round.
func (h *cleanHistory) clean(c cleaner.Config, exact bool) {
	t := h.t
	_, err := h.l.DeleteOldSegments(time.Now()) // as a pass of the cleaner does
	check(t, err)
	h.l.bg.wait()
	before, want := h.l.State(), latest(t, h.l)
	log, producers := takeApart(t, h.all()), producersOf(h.l)
	m := cleanModel{
		firstDirty: max(before.CleanedTo, before.LogStartOffset), now: time.Now().UnixMilli(), deleteRetention: h.o.Config.DeleteRetentionMillis,
		highWatermark: before.HighWatermark, last: cleanableLog(h.fsys, h.l).LastRecords(),
	}
	m.end = before.segments[before.floor(min(before.LastStableOffset, before.ActiveSegmentBase))].Base()
	p := cleaner.NewPool(oneLog{cleanableLog(h.fsys, h.l)}, c, nil)
	p.Start()
	synctest.Wait()
	p.Stop()
	if bad := p.Metrics().Uncleanable; len(bad) > 0 || h.l.Err() != nil {
		t.Fatalf("uncleanable: %v, failed: %v", bad, h.l.Err())
	}
	if exact && m.end > m.firstDirty {
		log = m.clean(log)
	}
	if got := lines(takeApart(t, h.all())); exact && got != lines(log) {
		t.Fatalf("cleaned from %d to %d at %d:\n%s\nwant:\n%s", m.firstDirty, m.end, m.now, got, lines(log))
	}
	h.checkSame(before, want, producers)
}

// checkSame checks what no cleaning may change, before and after a start that derives everything from the segments.
func (h *cleanHistory) checkSame(before *State, want map[string]string, producers string) {
	t := h.t
	if got := latest(t, h.l); !maps.Equal(got, want) {
		t.Fatalf("a consumer finds %v, before the cleaning %v", got, want)
	}
	for _, s := range h.l.Segments() {
		check(t, s.CheckIndexes(false))
	}
	if s := h.l.State(); s.LogEndOffset != before.LogEndOffset || s.LastStableOffset != before.LastStableOffset {
		t.Fatalf("the log changed from %+v to %+v", before, s)
	}
	after := h.fsys.Crash(vfs.CrashKeepAll)
	entries, err := after.ReadDir(testDir)
	check(t, err)
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), segment.SnapshotSuffix) {
			check(t, after.Remove(testDir+"/"+e.Name()))
		}
		if strings.HasSuffix(e.Name(), segment.CleanedSuffix) || strings.HasSuffix(e.Name(), segment.SwapSuffix) {
			t.Fatalf("%s is left", e.Name())
		}
	}
	o := h.o
	o.FS, o.HadCleanShutdown, o.RecoveryPoint, o.LogStartOffset = after, false, before.LogEndOffset, before.LogStartOffset
	again, err := OpenLog(o)
	check(t, err)
	defer again.CloseUnclean()
	_, err = again.UpdateHighWatermark(1 << 60)
	check(t, err)
	if s := again.State(); s.LogEndOffset != before.LogEndOffset || s.LastStableOffset != before.LastStableOffset {
		t.Fatalf("after a start: %+v, before the cleaning %+v", s, before)
	}
	if got := latest(t, again); !maps.Equal(got, want) {
		t.Fatalf("after a start a consumer finds %v, before the cleaning %v", got, want)
	}
	if got := producersOf(again); got != producers && before.LogStartOffset == 0 {
		t.Fatalf("producers from the cleaned log:\n%swant:\n%s", got, producers)
	}
}

// TestCleaningIsWhatTheModelSays compares random histories of writes, transactions, rolls, starts and cleanings with
// the dumb twin.
func TestCleaningIsWhatTheModelSays(t *testing.T) {
	inBubble(t, func(t *rapid.T) {
		h := newCleanHistory(t)
		defer func() { h.l.CloseUnclean() }()
		for range rapid.IntRange(1, 4).Draw(t, "rounds") {
			for range rapid.IntRange(1, 30).Draw(t, "steps") {
				h.step()
			}
			h.clean(cleanerConfig(), true)
		}
	})
}

// TestCleaningWithLittleMemoryLosesNothing gives the map of keys room for a few, so that rounds end within
// segments and within transactions.
func TestCleaningWithLittleMemoryLosesNothing(t *testing.T) {
	inBubble(t, func(t *rapid.T) {
		h := newCleanHistory(t)
		defer func() { h.l.CloseUnclean() }()
		c := cleanerConfig()
		c.DedupeBytes, c.IOBufferBytes = int64(24*rapid.IntRange(3, 8).Draw(t, "slots")), 1
		for range rapid.IntRange(1, 4).Draw(t, "rounds") {
			for range rapid.IntRange(1, 30).Draw(t, "steps") {
				h.step()
			}
			h.clean(c, false)
		}
	})
}
