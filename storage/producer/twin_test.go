package producer

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"gregor/protocol/record"
	"gregor/storage/vfs"
)

// twin knows nothing but the list of batches that were appended, and answers every question by going through
// all of it.
type twin struct{ log []record.Batch }

func (w *twin) of(pid int64) []record.Batch {
	var own []record.Batch
	for _, b := range w.log {
		if b.ProducerID() == pid {
			own = append(own, b)
		}
	}
	return own
}

// inEpoch is the data batches of the producer's current epoch.
func (w *twin) inEpoch(pid int64) (epoch int16, batches []record.Batch) {
	epoch = -1
	for _, b := range w.of(pid) {
		if b.ProducerEpoch() != epoch {
			epoch, batches = b.ProducerEpoch(), nil
		}
		if !b.IsControl() {
			batches = append(batches, b)
		}
	}
	return epoch, batches
}

func (w *twin) openTxn(pid int64) int64 {
	open := int64(-1)
	for _, b := range w.of(pid) {
		switch {
		case b.IsControl():
			open = -1
		case b.IsTransactional() && open < 0:
			open = b.BaseOffset()
		}
	}
	return open
}

func (w *twin) duplicate(b record.Batch) bool {
	epoch, batches := w.inEpoch(b.ProducerID())
	if epoch != b.ProducerEpoch() {
		return false
	}
	for _, old := range batches[max(0, len(batches)-5):] {
		if old.BaseSequence() == b.BaseSequence() && old.LastSequence() == b.LastSequence() {
			return true
		}
	}
	return false
}

func (w *twin) accepts(b record.Batch, transactionVersion int8) bool {
	pid := b.ProducerID()
	epoch, batches := w.inEpoch(pid)
	known := len(w.of(pid)) > 0
	open := w.openTxn(pid) >= 0
	if b.ProducerEpoch() < epoch {
		return false
	}
	if b.IsControl() {
		return transactionVersion < 2 || b.ProducerEpoch() > epoch || !open
	}
	if open && !b.IsTransactional() {
		return false
	}
	switch {
	case !known:
		return true
	case b.ProducerEpoch() > epoch || len(batches) == 0:
		return b.BaseSequence() == 0
	default:
		return b.BaseSequence() == record.AddSequence(batches[len(batches)-1].LastSequence(), 1)
	}
}

func (w *twin) unstable(highWatermark int64) (int64, bool) {
	first, found := int64(0), false
	began := map[int64]int64{}
	for _, b := range w.log {
		if !b.IsTransactional() {
			continue
		}
		start, open := began[b.ProducerID()]
		switch {
		case !b.IsControl() && !open:
			began[b.ProducerID()] = b.BaseOffset()
		case b.IsControl() && open:
			delete(began, b.ProducerID())
			if b.BaseOffset() >= highWatermark && (!found || start < first) {
				first, found = start, true
			}
		}
	}
	for _, start := range began {
		if !found || start < first {
			first, found = start, true
		}
	}
	return first, found
}

func (w *twin) state(pid int64) string {
	epoch, batches := w.inEpoch(pid)
	s := fmt.Sprintf("epoch %d txn %d:", epoch, w.openTxn(pid))
	for _, b := range batches[max(0, len(batches)-5):] {
		s += fmt.Sprintf(" %d..%d@%d", b.BaseSequence(), b.LastSequence(), b.BaseOffset())
	}
	return s
}

func describe(m *Manager, pid int64) string {
	st, ok := m.Lookup(pid)
	if !ok {
		return "epoch -1 txn -1:"
	}
	s := fmt.Sprintf("epoch %d txn %d:", st.Epoch, st.CurrentTxnFirstOffset)
	for _, b := range st.Batches() {
		s += fmt.Sprintf(" %d..%d@%d", b.FirstSequence(), b.LastSequence, b.FirstOffset())
	}
	return s
}

// TestRandomHistoriesAgreeWithTheTwin lets a few producers send right, repeated, stale and skipped batches and
// markers.
func TestRandomHistoriesAgreeWithTheTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, err := NewManager(Options{FS: vfs.NewMem(), Dir: testDir})
		if err != nil {
			t.Fatal(err)
		}
		w := &twin{}
		highWatermark := int64(0)
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			pid := rapid.Int64Range(0, 2).Draw(t, "pid")
			version := int8(rapid.IntRange(1, 2).Draw(t, "version"))
			b := randomBatch(t, w, pid, m.MapEndOffset())
			dup := false
			if !b.IsControl() {
				_, dup = m.Duplicate(b)
				if dup != w.duplicate(b) {
					t.Fatalf("duplicate %v, the twin says otherwise", dup)
				}
			}
			if !dup {
				origin := FromClient
				if b.IsControl() {
					origin = FromCoordinator
				}
				_, err := appendAll(m, AppendOptions{Origin: origin, TransactionVersion: version}, b)
				if (err == nil) != w.accepts(b, version) {
					t.Fatalf("append: %v, the twin says otherwise (%s)", err, w.state(pid))
				}
				if err == nil {
					w.log = append(w.log, b)
				}
			}
			if rapid.Bool().Draw(t, "replicate") {
				highWatermark = rapid.Int64Range(highWatermark, m.MapEndOffset()).Draw(t, "hw")
				m.OnHighWatermark(highWatermark)
			}
			got, ok := m.FirstUnstableOffset()
			want, wantOK := w.unstable(highWatermark)
			if got != want || ok != wantOK {
				t.Fatalf("first unstable %d %v, the twin says %d %v", got, ok, want, wantOK)
			}
			if got, want := describe(m, pid), w.state(pid); got != want {
				t.Fatalf("state %s, the twin says %s", got, want)
			}
		}
	})
}

func randomBatch(t *rapid.T, w *twin, pid, offset int64) record.Batch {
	epoch, batches := w.inEpoch(pid)
	newEpoch := max(0, epoch) + int16(rapid.SampledFrom([]int{0, 0, 0, 0, 0, 1, -1}).Draw(t, "epoch"))
	newEpoch = max(newEpoch, 0)
	if rapid.IntRange(0, 3).Draw(t, "kind") == 0 {
		return marker(offset, pid, newEpoch, rapid.Bool().Draw(t, "commit"), 0, 1)
	}
	seq := int32(0)
	if n := len(batches); n > 0 && rapid.IntRange(0, 9).Draw(t, "seq") > 0 {
		seq = record.AddSequence(batches[n-1].LastSequence(), 1)
	}
	count := rapid.IntRange(1, 3).Draw(t, "count")
	if n := len(batches); n > 0 && rapid.IntRange(0, 4).Draw(t, "again") == 0 {
		old := batches[n-1-rapid.IntRange(0, min(n-1, 7)).Draw(t, "which")]
		seq, count = old.BaseSequence(), int(old.Count())
	}
	txn := w.openTxn(pid) >= 0 || rapid.Bool().Draw(t, "txn")
	if rapid.IntRange(0, 19).Draw(t, "mixed") == 0 {
		txn = !txn
	}
	return data{offset: offset, pid: pid, epoch: newEpoch, seq: seq, count: count, timestamp: 1, txn: txn}.batch()
}

// TestRestartFromASnapshotGivesTheStateOfAReplay compares a state that was loaded from a snapshot and replayed from
// there with one that has seen everything: they differ in remembered batches at most.
func TestRestartFromASnapshotGivesTheStateOfAReplay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fsys := vfs.NewMem()
		must(t, fsys.MkdirAll(testDir))
		m, err := NewManager(Options{FS: fsys, Dir: testDir})
		must(t, err)
		w := &twin{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			b := randomBatch(t, w, rapid.Int64Range(0, 3).Draw(t, "pid"), m.MapEndOffset())
			if !w.accepts(b, 1) {
				continue
			}
			_, err := appendAll(m, AppendOptions{Origin: FromReplication}, b)
			must(t, err)
			w.log = append(w.log, b)
			if rapid.IntRange(0, 9).Draw(t, "snapshot") == 0 {
				must(t, m.TakeSnapshot())
			}
		}
		again, err := NewManager(Options{FS: fsys, Dir: testDir})
		must(t, err)
		must(t, again.TruncateAndReload(-1, m.MapEndOffset(), 2))
		for _, b := range w.log {
			if b.BaseOffset() >= again.MapEndOffset() {
				_, err := appendAll(again, AppendOptions{Origin: FromReplication}, b)
				must(t, err)
			}
		}
		if got, want := EncodeSnapshot(again.Active()), EncodeSnapshot(m.Active()); !slices.Equal(got, want) {
			t.Fatalf("restarted %x, went on %x", got, want)
		}
		if got, want := fmt.Sprint(again.ongoing), fmt.Sprint(m.ongoing); got != want {
			t.Fatalf("open transactions: restarted %s, went on %s", got, want)
		}
	})
}
