package storage

import (
	"errors"
	"path"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"gregor/protocol/record"
	"gregor/storage/checkpoint"
	"gregor/storage/vfs"
)

// wantsSpace selects what a full disk refuses. A swap that has begun is left out: before its files get their names, those of
// the segments that they replace have been given up.
func wantsSpace(op vfs.Op) bool {
	return takesSpace(op) && (op.Kind != vfs.OpRename || !strings.HasSuffix(op.Name, ".swap"))
}

// fullDirScript is what a Manager does of its own, and what it is asked for, while its disk is full: done calls each step
// again until it succeeds, and makes space after some tries.
func fullDirScript(t *testing.T, m *Manager, done func(step func() error)) {
	t.Helper()
	for _, topic := range []string{"compacted", "plain"} {
		config := testConfig()
		if topic == "compacted" {
			config = compactConfig()
		}
		var l *Log
		done(func() (err error) {
			l, err = m.CreateLog(topic, 0, topicIDOf(topic), config, [16]byte{})
			return err
		})
		for i := range 4 {
			done(func() error {
				batch := keyed(int64(i))
				if topic == "plain" {
					batch = batchOf(2, int64(i), record.BuilderOptions{})
				}
				_, err := l.AppendAsLeader(batch, int32(i/2), AppendOptions{LogAppendTimeMillis: -1, AloneInSync: true})
				return err
			})
			done(l.Roll)
		}
		if topic == "plain" {
			done(func() error { _, err := l.IncrementLogStartOffset(1); return err })
		}
	}
	time.Sleep(3 * time.Minute) // all checkpoints, cleanings, the rest of the rolls
	done(func() error {
		_, err := m.CreateLog("gone", 0, topicIDOf("gone"), testConfig(), [16]byte{})
		return err
	})
	done(func() error { return m.DeleteLog("gone", 0) })
	time.Sleep(3 * time.Minute)
}

func TestDirectoryOutlivesAFullDisk(t *testing.T) {
	for name, injector := range map[string]func(n int64) vfs.Injector{
		"one operation": func(n int64) vfs.Injector { return vfs.FailNth(n, syscall.ENOSPC, wantsSpace) },
		"all from then": func(n int64) vfs.Injector { return vfs.FailFrom(n, syscall.EDQUOT, wantsSpace) },
	} {
		t.Run(name, func(t *testing.T) {
			for n := int64(1); ; n++ {
				more := false
				synctest.Test(t, func(t *testing.T) { more = outlives(t, n, injector(n)) })
				if t.Failed() {
					t.Fatalf("operation %d", n)
				}
				if !more {
					if n < 100 {
						t.Errorf("only %d operations", n)
					}
					return
				}
			}
		})
	}
}

// outlives runs the script on a disk that is full from an operation on, and checks what is left. It returns whether there was
// such an operation.
func outlives(t *testing.T, n int64, full vfs.Injector) (met bool) {
	mem := vfs.NewMem()
	format(t, mem, "/d1")
	var disk vfs.Switch
	lines := &syncBuffer{}
	o := managerOptions(vfs.NewErr(mem, &disk), "/d1")
	o.Cleaner, o.Defaults, o.Logger = new(cleanerConfig()), testConfig(), textLogger(lines)
	m, err := OpenManager(o)
	must(t, err)
	must(t, m.Load(LoadOptions{}))
	var refused atomic.Int64
	disk.Set(vfs.InjectorFunc(func(op vfs.Op) error {
		err := full.Inject(op)
		if err != nil {
			refused.Add(1)
		}
		return err
	}))
	fullDirScript(t, m, func(step func() error) {
		t.Helper()
		for tries := 0; ; tries++ {
			err := step()
			if err == nil {
				return
			}
			if mustOrFull(t, err); tries > 3 {
				t.Fatalf("operation %d: refused although there is space: %v", n, err)
			}
			synctest.Wait()
			if tries == 2 {
				disk.Set(nil)
			}
		}
	})
	disk.Set(nil)
	time.Sleep(3 * time.Minute)
	synctest.Wait()
	if err := m.Dirs()[0].Err; err != nil {
		t.Fatalf("operation %d: %v\n%s", n, err, lines.String())
	}
	for file, want := range map[string]string{
		checkpoint.RecoveryPointFile: "map[compacted-0:4 plain-0:8]", checkpoint.HighWatermarkFile: "map[compacted-0:4 plain-0:8]",
		checkpoint.LogStartOffsetFile: "map[plain-0:1]", checkpoint.CleanerOffsetFile: "map[compacted-0:4]",
	} {
		if got := offsetsOf(t, mem, path.Join("/d1", file)); got != want {
			t.Errorf("operation %d: %s is %s, want %s", n, file, got, want)
		}
	}
	if full, back := strings.Count(lines.String(), "is full"), strings.Count(lines.String(), "has space again"); full > 2 || back > 2 {
		t.Errorf("operation %d: %d and %d lines:\n%s", n, full, back, lines.String())
	}
	must(t, m.Shutdown(1))
	for _, dir := range []string{"/d1", "/d1/plain-0", "/d1/compacted-0"} {
		for _, name := range namesIn(t, mem, dir) {
			if path.Ext(name) == ".tmp" || path.Ext(name) == ".cleaned" || path.Ext(name) == ".swap" || strings.Contains(name, "gone") {
				t.Errorf("operation %d: %s is left in %s", n, name, dir)
			}
		}
	}
	if !exists(t, mem, "/d1/.kafka_cleanshutdown") {
		t.Errorf("operation %d: the stop was not clean", n)
	}
	m, err = OpenManager(o)
	must(t, err)
	must(t, m.Load(LoadOptions{}))
	for topic, end := range map[string]int64{"plain": 8, "compacted": 4} {
		if l, ok := m.Log(topic, 0); !ok || l.State().LogEndOffset != end {
			t.Errorf("operation %d: %s is not what it was", n, topic)
		}
	}
	must(t, m.Shutdown(2))
	return refused.Load() > 0
}

// TestStopOnAFullDiskIsNotClean: the next start recovers, and everything is there.
func TestStopOnAFullDiskIsNotClean(t *testing.T) {
	mem := twoDirs(t)
	var disk vfs.Switch
	m := startManager(t, managerOptions(vfs.NewErr(mem, &disk), "/d1"))
	l := createLog(t, m, "t", 0, [16]byte{})
	appendBatch(t, l, 7, 1)
	disk.Set(vfs.FailFrom(1, syscall.ENOSPC, takesSpace))
	if err := m.Shutdown(1); err == nil || errors.Is(err, ErrNoSpace) == errors.Is(err, ErrStorage) {
		t.Fatalf("stopped with %v", err)
	}
	if exists(t, mem, "/d1/.kafka_cleanshutdown") {
		t.Fatal("the stop counts as clean")
	}
	m = startManager(t, managerOptions(mem, "/d1"))
	if l, ok := m.Log("t", 0); !ok || l.State().LogEndOffset != 7 {
		t.Fatal("not what it was")
	}
}

func TestLogIsCreatedInAnotherDirectoryWhereOneIsFull(t *testing.T) {
	mem := vfs.NewMem()
	format(t, mem, "/d1", "/d2")
	var disk vfs.Switch
	m := startManager(t, managerOptions(vfs.NewErr(mem, &disk), "/d1", "/d2"))
	disk.Set(vfs.FailFrom(1, syscall.ENOSPC, vfs.MatchKind(vfs.OpCreate).And(vfs.MatchPath("/d1/"))))
	if l := createLog(t, m, "t", 0, [16]byte{}); path.Dir(l.Dir()) != "/d2" {
		t.Fatal(l.Dir())
	}
	_, err := m.CreateLog("t", 1, topicIDOf("t"), testConfig(), dirID(1))
	mustBe(t, err, ErrNoSpace, "/d1")
	if exists(t, mem, "/d1/t-0") || exists(t, mem, "/d1/t-1") || m.Dirs()[0].Err != nil {
		t.Fatal("something is left in the full directory")
	}
	disk.Set(nil)
	createLog(t, m, "t", 1, dirID(1))
}

// keyed makes a batch of one record under one key, which the next one supersedes.
func keyed(timestamp int64) record.Batch {
	b := record.NewBuilder(record.BuilderOptions{})
	b.Add(timestamp, []byte("key"), []byte("value"), nil)
	return b.Bytes()
}
