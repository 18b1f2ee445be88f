package producer

import (
	"testing"

	"gregor/protocol/record"
	"gregor/storage/vfs"
)

const testDir = "/t-0"

// failer is a test, a benchmark or a rapid check.
type failer interface {
	Helper()
	Fatal(args ...any)
}

func must(t failer, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newManager(t testing.TB, fsys vfs.FS) *Manager {
	t.Helper()
	must(t, fsys.MkdirAll(testDir))
	m, err := NewManager(Options{FS: fsys, Dir: testDir})
	must(t, err)
	return m
}

// data describes a data batch.
type data struct {
	offset    int64
	pid       int64
	epoch     int16
	seq       int32
	count     int
	timestamp int64
	txn       bool
}

func (d data) batch() record.Batch {
	b := record.NewBuilder(record.BuilderOptions{
		BaseOffset: d.offset, HasProducer: d.pid >= 0, ProducerID: d.pid, ProducerEpoch: d.epoch,
		BaseSequence: d.seq, Transactional: d.txn,
	})
	for range max(d.count, 1) {
		b.Add(d.timestamp, nil, []byte("v"), nil)
	}
	return b.Bytes()
}

func marker(offset, pid int64, epoch int16, commit bool, coordinatorEpoch int32, timestamp int64) record.Batch {
	return record.BuildEndTxnMarker(record.EndTxnOptions{
		BaseOffset: offset, TimestampMillis: timestamp, ProducerID: pid, ProducerEpoch: epoch,
		Commit: commit, CoordinatorEpoch: coordinatorEpoch,
	})
}

// appendAll does with batches what a log does in one append.
func appendAll(m *Manager, o AppendOptions, batches ...record.Batch) ([]CompletedTxn, error) {
	a := m.Prepare(o)
	var completed []CompletedTxn
	for _, b := range batches {
		txn, err := a.Check(b)
		if err != nil {
			return nil, err
		}
		if txn != nil {
			completed = append(completed, *txn)
		}
	}
	m.Update(a)
	for _, txn := range completed {
		m.CompleteTxn(txn)
	}
	if len(batches) > 0 {
		m.UpdateMapEndOffset(batches[len(batches)-1].NextOffset())
	}
	return completed, nil
}

func replay(t testing.TB, m *Manager, batches ...record.Batch) {
	t.Helper()
	_, err := appendAll(m, AppendOptions{Origin: FromReplication}, batches...)
	must(t, err)
}
