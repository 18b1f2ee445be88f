package producer

import (
	"bytes"
	"errors"
	"io/fs"
	"syscall"
	"testing"

	"gregor/storage/vfs"
)

func TestSnapshotNamesHaveTwentyDigits(t *testing.T) {
	if name := SnapshotName(42); name != "00000000000000000042.snapshot" {
		t.Fatal(name)
	}
	for _, name := range []string{
		"42.snapshot", "00000000000000000042.snapshot.deleted", "0000000000000000004x.snapshot",
		"99999999999999999999.snapshot", "-0000000000000000042.snapshot", "00000000000000000042.log",
	} {
		if _, ok := ParseSnapshotName(name); ok {
			t.Fatal(name)
		}
	}
}

func TestEmptySnapshotHasTenBytes(t *testing.T) {
	b := EncodeSnapshot(nil)
	if len(b) != 10 {
		t.Fatalf("%x", b)
	}
	states, err := DecodeSnapshot(b)
	if err != nil || len(states) != 0 {
		t.Fatal(states, err)
	}
}

func TestAnyFlippedByteOfASnapshotIsFound(t *testing.T) {
	m := newManager(t, vfs.NewMem())
	replay(t, m, data{pid: 1, count: 3, txn: true}.batch(), data{offset: 3, pid: 2}.batch())
	good := EncodeSnapshot(m.Active())
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 0x10
		if _, err := DecodeSnapshot(bad); !errors.Is(err, ErrCorruptSnapshot) {
			t.Fatalf("byte %d: %v", i, err)
		}
	}
	for n := range good {
		if _, err := DecodeSnapshot(good[:n]); !errors.Is(err, ErrCorruptSnapshot) {
			t.Fatalf("cut to %d: %v", n, err)
		}
	}
}

func FuzzDecodeSnapshot(f *testing.F) {
	m := newManager(f, vfs.NewMem())
	replay(f, m, data{pid: 1, count: 3, txn: true}.batch(), marker(3, 5, 2, true, 7, 9))
	f.Add(EncodeSnapshot(m.Active()))
	f.Add(EncodeSnapshot(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		states, err := DecodeSnapshot(b)
		if err != nil {
			if !errors.Is(err, ErrCorruptSnapshot) {
				t.Fatal(err)
			}
			return
		}
		again, err := DecodeSnapshot(EncodeSnapshot(states))
		must(t, err)
		if len(again) != len(states) {
			t.Fatalf("%d states became %d", len(states), len(again))
		}
		for i := range states {
			if again[i] != states[i] {
				t.Fatalf("%+v became %+v", states[i], again[i])
			}
		}
	})
}

func TestSnapshotOvertakenByATruncationIsRemoved(t *testing.T) {
	fsys := vfs.NewMem()
	m := newManager(t, fsys)
	replay(t, m, data{pid: 1, count: 3}.batch())
	s := m.BeginSnapshot()
	must(t, s.Write())
	must(t, m.TruncateFullyAndStartAt(0))
	must(t, m.FinishSnapshot(s))
	if len(m.Snapshots()) != 0 {
		t.Fatal(m.Snapshots())
	}
	if ok, _ := vfs.Exists(fsys, m.snapshotPath(3)); ok {
		t.Fatal("the file of the old log is still there")
	}
}

func TestSnapshotBeingWrittenCountsWhenTheLogStartMoves(t *testing.T) {
	m := newManager(t, vfs.NewMem())
	replay(t, m, data{pid: 1, count: 3}.batch())
	s := m.BeginSnapshot()
	replay(t, m, data{offset: 3, pid: 1, seq: 3, count: 2}.batch())
	m.OnLogStartIncremented(5)
	must(t, s.Write())
	must(t, m.FinishSnapshot(s))
	must(t, m.TakeSnapshot())
	if got := m.Snapshots(); len(got) != 2 || got[1] != 5 {
		t.Fatalf("%v: the clean stop needs one at the log end", got)
	}
}

func TestCrashWhileASnapshotIsWrittenLosesNoState(t *testing.T) {
	fsys := vfs.NewMem()
	m := newManager(t, fsys)
	must(t, fsys.SyncDir("/"))
	replay(t, m, data{pid: 1, count: 3}.batch())
	must(t, m.TakeSnapshot())
	replay(t, m, data{offset: 3, pid: 1, seq: 3, count: 2}.batch())
	fsys.OnOp(func(n int64, op vfs.Op) {
		for seed := range uint64(30) {
			again, err := NewManager(Options{FS: fsys.Crash(seed), Dir: testDir})
			must(t, err)
			must(t, again.TruncateAndReload(0, 5, 1))
			st, ok := again.Lookup(1)
			if end := again.MapEndOffset(); !ok || end != 3 && end != 5 || st.LastOffset() != end-1 {
				t.Errorf("crash before step %d (%v), seed %d: end %d, %+v", n, op.Kind, seed, end, st)
			}
		}
	})
	must(t, m.TakeSnapshot())
}

func TestFailedWriteLeavesTheSnapshotUnknown(t *testing.T) {
	fsys := vfs.NewMem()
	must(t, fsys.MkdirAll(testDir))
	m, err := NewManager(Options{
		FS: vfs.NewErr(fsys, vfs.FailNth(1, syscall.ENOSPC, vfs.MatchKind(vfs.OpWrite))), Dir: testDir,
	})
	must(t, err)
	replay(t, m, data{pid: 1}.batch())
	if err := m.TakeSnapshot(); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	if len(m.Snapshots()) != 0 {
		t.Fatal(m.Snapshots())
	}
	must(t, m.TakeSnapshot())
}

func TestUnreadableSnapshotIsNotTakenForAMissingOne(t *testing.T) {
	fsys := vfs.NewMem()
	m := newManager(t, fsys)
	replay(t, m, data{pid: 1}.batch())
	must(t, m.TakeSnapshot())
	again, err := NewManager(Options{
		FS: vfs.NewErr(fsys, vfs.FailNth(1, syscall.EIO, vfs.MatchKind(vfs.OpRead))), Dir: testDir,
	})
	must(t, err)
	if err := again.TruncateAndReload(0, 5, 1); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	if ok, _ := vfs.Exists(fsys, m.snapshotPath(1)); !ok {
		t.Fatal("the snapshot was deleted")
	}
}

func TestSnapshotThatVanishedIsPassedOver(t *testing.T) {
	fsys := vfs.NewMem()
	m, err := NewManager(Options{FS: fsys, Dir: testDir, Names: []string{SnapshotName(3), "00000000000000000000.log"}})
	must(t, err)
	must(t, m.TruncateAndReload(0, 5, 1))
	if m.MapEndOffset() != 0 || len(m.Snapshots()) != 0 {
		t.Fatal(m.MapEndOffset(), m.Snapshots())
	}
}

func TestMarkedSnapshotKeepsItsBytesUnderANewName(t *testing.T) {
	fsys := vfs.NewMem()
	m := newManager(t, fsys)
	replay(t, m, data{pid: 1}.batch())
	must(t, m.TakeSnapshot())
	path, ok, err := m.MarkSnapshotDeleted(1)
	must(t, err)
	if !ok || path != testDir+"/00000000000000000001.snapshot.deleted" {
		t.Fatal(path, ok)
	}
	if _, err := ReadSnapshot(fsys, path); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := m.MarkSnapshotDeleted(1); ok || err != nil {
		t.Fatal(ok, err)
	}
	if _, err := ReadSnapshot(fsys, m.snapshotPath(1)); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
}

func TestSnapshotsBelowAnOffsetAreDeleted(t *testing.T) {
	m := newManager(t, vfs.NewMem())
	for i := range int64(4) {
		replay(t, m, data{offset: i, pid: 1, seq: int32(i)}.batch())
		must(t, m.TakeSnapshot())
	}
	must(t, m.DeleteSnapshotsBelow(3))
	if oldest, ok := m.OldestSnapshotOffset(); !ok || oldest != 3 {
		t.Fatal(m.Snapshots())
	}
	if latest, ok := m.LatestSnapshotOffset(); !ok || latest != 4 {
		t.Fatal(m.Snapshots())
	}
}

func TestRenamedDirectoryTakesTheSnapshots(t *testing.T) {
	fsys := vfs.NewMem()
	m := newManager(t, fsys)
	must(t, fsys.Rename(testDir, "/t-0.x-delete"))
	m.SetDir("/t-0.x-delete")
	replay(t, m, data{pid: 1}.batch())
	must(t, m.TakeSnapshot())
	if ok, _ := vfs.Exists(fsys, "/t-0.x-delete/"+SnapshotName(1)); !ok {
		t.Fatal("written elsewhere")
	}
}

func TestSilentTransactionIsLate(t *testing.T) {
	m := newManager(t, vfs.NewMem())
	replay(t, m, data{pid: 1, timestamp: 1000, txn: true}.batch(), data{offset: 1, pid: 2, timestamp: 9000, txn: true}.batch())
	limit := int64(1000 + 500 + LateTxnBufferMillis)
	if m.HasLateTxn(limit, 500) || !m.HasLateTxn(limit+1, 500) {
		t.Fatal("the limit is timeout + 5 minutes after the last batch of the oldest transaction")
	}
	replay(t, m, marker(2, 1, 0, false, 0, 9000))
	if m.HasLateTxn(limit+1, 500) {
		t.Fatal("the late transaction has ended")
	}
}

func TestCompletingATransactionThatIsNotOpenPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Fatal("no panic")
		}
	}()
	newManager(t, vfs.NewMem()).CompleteTxn(CompletedTxn{ProducerID: 1, FirstOffset: 3, LastOffset: 9})
}

func BenchmarkCheckOneIdempotentBatch(b *testing.B) {
	m := newManager(b, vfs.NewMem())
	batch := data{pid: 1}.batch()
	for b.Loop() {
		a := m.Prepare(AppendOptions{Origin: FromReplication})
		if _, err := a.Check(batch); err != nil {
			b.Fatal(err)
		}
		m.Update(a)
	}
}
