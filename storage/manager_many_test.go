package storage

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"path"
	"sync"
	"syscall"
	"testing"

	"gregor/protocol/record"
	"gregor/storage/checkpoint"
	"gregor/storage/vfs"
)

// manyLogs is a manager on a memory file system that batches from a few logs on.
func manyLogs(t testing.TB, fsys vfs.FS) *Manager {
	t.Helper()
	m, err := OpenManager(managerOptions(fsys, "/d1"))
	must(t, err)
	t.Cleanup(m.Kill)
	m.batchFrom = 4
	must(t, m.Load(LoadOptions{}))
	return m
}

// fillMany creates logs that lead in an epoch, and writes into every other one.
func fillMany(t testing.TB, m *Manager, logs int32, epoch int32) {
	t.Helper()
	for i := range logs {
		l := createLog(t, m, "t", i, [16]byte{})
		must(t, l.AssignEpochStart(epoch, l.State().LogEndOffset))
		if i%2 == 1 {
			_, err := l.AppendAsLeader(batchOf(3, 1, record.BuilderOptions{}), epoch, AppendOptions{LogAppendTimeMillis: -1})
			must(t, err)
		}
	}
}

func TestStopOfManyLogsTakesTwoSyncsAndLeavesWhatEachByItselfWould(t *testing.T) {
	const logs = 12
	files := map[bool]map[string][]byte{}
	for _, batched := range []bool{false, true} {
		fsys := vfs.NewMem()
		format(t, fsys, "/d1")
		m := manyLogs(t, fsys)
		if !batched {
			m.batchFrom = logs + 1
		}
		fillMany(t, m, logs, 3)
		m.waitTopicIDs()
		var mu sync.Mutex
		syncs := map[vfs.OpKind]int{}
		fsys.OnOp(func(_ int64, op vfs.Op) {
			mu.Lock()
			defer mu.Unlock()
			if op.Kind == vfs.OpSyncAll || op.Kind == vfs.OpSync && path.Dir(op.Name) != "/d1" {
				syncs[op.Kind]++
			}
		})
		must(t, m.Shutdown(1))
		if batched && (syncs[vfs.OpSyncAll] != 2 || syncs[vfs.OpSync] != 0) {
			t.Errorf("a stop with a batch: %v", syncs)
		}
		if !batched && (syncs[vfs.OpSyncAll] != 0 || syncs[vfs.OpSync] == 0) {
			t.Errorf("a stop without a batch: %v", syncs)
		}
		files[batched] = tree(t, fsys.Crash(0), "/d1") // what is durable
	}
	for name, want := range files[false] {
		if got, ok := files[true][name]; !ok || !bytes.Equal(got, want) && path.Ext(name) != ".log" {
			t.Errorf("%s: %q with a batch (%t), %q without", name, got, ok, want)
		}
	}
	if len(files[true]) != len(files[false]) {
		t.Errorf("%d files with a batch, %d without", len(files[true]), len(files[false]))
	}
	if got := string(files[true]["t-0/leader-epoch-checkpoint"]); got != "0\n1\n3 0\n" {
		t.Errorf("the epoch of a log without records: %q", got)
	}
}

func TestStopWithoutChangesWritesNothingIntoThePartitions(t *testing.T) {
	fsys := vfs.NewMem()
	format(t, fsys, "/d1")
	m := manyLogs(t, fsys)
	for i := range int32(8) {
		appendBatch(t, createLog(t, m, "t", i, [16]byte{}), 1, 1)
	}
	must(t, m.Shutdown(1))
	m = manyLogs(t, fsys)
	fsys.OnOp(func(_ int64, op vfs.Op) {
		if path.Dir(op.Name) != "/d1" && path.Dir(op.Name) != "/" {
			t.Errorf("%s %s", op.Kind, op.Name)
		}
	})
	must(t, m.Shutdown(1))
}

// TestCrashWhileManyLogsAreCreatedAndClosed cuts the power at every operation between the creation of some logs and the
// end of a clean stop: what was flushed is there, and every file is one that the next start can read.
func TestCrashWhileManyLogsAreCreatedAndClosed(t *testing.T) {
	const logs = 6
	fsys := vfs.NewMem()
	format(t, fsys, "/d1")
	m := manyLogs(t, fsys)
	var mu sync.Mutex
	flushed := map[int32]int64{}
	crashes := 0
	fsys.OnOp(func(n int64, op vfs.Op) {
		mu.Lock()
		defer mu.Unlock()
		for _, seed := range []uint64{0, vfs.CrashKeepAll, uint64(n) + 1} {
			if t.Failed() {
				return
			}
			crashes++
			if err := checkMany(fsys.Crash(seed), flushed); err != nil {
				t.Errorf("crash before operation %d (%s %s), seed %d: %v", n, op.Kind, op.Name, seed, err)
			}
		}
	})
	fillMany(t, m, logs, 3)
	l, _ := m.Log("t", 1)
	must(t, l.Flush(3))
	mu.Lock()
	flushed[1] = 3
	mu.Unlock()
	must(t, m.Shutdown(1))
	mu.Lock()
	for i := int32(1); i < logs; i += 2 {
		flushed[i] = 3
	}
	mu.Unlock()
	must(t, fsys.MkdirAll("/done")) // one more operation
	if crashes < 200 && !t.Failed() {
		t.Errorf("only %d crashes", crashes)
	}
}

// checkMany starts on what a crash has left.
func checkMany(fsys *vfs.Mem, flushed map[int32]int64) error {
	m, err := OpenManager(managerOptions(fsys, "/d1"))
	if err != nil {
		return err
	}
	defer m.Kill()
	if err := m.Load(LoadOptions{}); err != nil {
		return err
	}
	if err := m.Dirs()[0].Err; err != nil {
		return err
	}
	for i, end := range flushed {
		l, ok := m.Log("t", i)
		if !ok {
			return fmt.Errorf("t-%d is not there", i)
		}
		if got := l.State().LogEndOffset; got < end {
			return fmt.Errorf("t-%d ends at %d, %d was flushed", i, got, end)
		}
		if e, _ := l.LatestEpoch(); e != 3 {
			return fmt.Errorf("t-%d has epoch %d", i, e)
		}
	}
	for l := range m.Logs() {
		// A record comes only after its topic's id.
		if id := l.TopicID(); l.State().LogEndOffset > 0 && id != topicIDOf("t") {
			return fmt.Errorf("%s has records and the topic id %x", l.Dir(), id)
		}
	}
	return nil
}

func TestFailedSyncOfTheVolumeIsNoCleanStop(t *testing.T) {
	mem := vfs.NewMem()
	format(t, mem, "/d1")
	m := manyLogs(t, vfs.NewErr(mem, vfs.FailFrom(1, syscall.EIO, vfs.MatchKind(vfs.OpSyncAll))))
	m.batchFrom = 100
	fillMany(t, m, 4, 3)
	m.waitTopicIDs()
	m.batchFrom = 4
	mustBe(t, m.Shutdown(1), ErrStorage, "input/output error")
	if exists(t, mem, "/d1/"+checkpoint.CleanShutdownFile) {
		t.Fatal("the stop counts as clean")
	}
}

func TestFailedSyncOfTheVolumeAtCreationTakesTheDirectoryOffline(t *testing.T) {
	mem := vfs.NewMem()
	format(t, mem, "/d1")
	m := manyLogs(t, vfs.NewErr(mem, vfs.FailFrom(1, syscall.EIO, vfs.MatchKind(vfs.OpSyncAll))))
	m.batchFrom = 1
	// The sync fails in the background: before the creation has come to its end, or after it.
	if _, err := m.CreateLog("t", 0, topicIDOf("t"), testConfig(), [16]byte{}); err != nil {
		mustBe(t, err, ErrStorage, "input/output error")
	}
	m.waitTopicIDs()
	mustBe(t, m.Dirs()[0].Err, ErrStorage, "input/output error")
}

// waitTopicIDs waits until the queue of partition.metadata files is empty.
func (m *Manager) waitTopicIDs() {
	for {
		m.topicIDs.mu.Lock()
		busy := false
		for _, running := range m.topicIDs.running {
			busy = busy || running
		}
		m.topicIDs.mu.Unlock()
		if !busy {
			return
		}
	}
}

func TestLogsAreCreatedAndDeletedByManyGoroutines(t *testing.T) {
	fsys := vfs.NewMem()
	format(t, fsys, "/d1", "/d2")
	o := managerOptions(fsys, "/d1", "/d2")
	o.Defaults.FileDeleteDelayMillis = 0
	m := startManager(t, o)
	m.batchFrom = 3
	var wg sync.WaitGroup
	var mu sync.Mutex
	logs := map[int32]*Log{}
	for range 8 {
		wg.Go(func() {
			for i := range int32(60) {
				l, err := m.CreateLog("t", i, topicIDOf("t"), testConfig(), [16]byte{})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if logs[i] == nil {
					logs[i] = l
				} else if logs[i] != l {
					t.Errorf("t-%d has two logs", i)
				}
				mu.Unlock()
				if i%3 == 0 {
					_, err = m.CreateLog("gone", i, topicIDOf("gone"), testConfig(), [16]byte{})
					if err == nil {
						err = m.DeleteLog("gone", i)
					}
					if err != nil && !bytes.Contains([]byte(err.Error()), []byte("closed")) {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	perDir := map[string]int{}
	for _, l := range logs {
		perDir[path.Dir(l.Dir())]++
	}
	if perDir["/d1"] < 20 || perDir["/d2"] < 20 {
		t.Errorf("the logs are spread as %v", perDir)
	}
	m.waitTopicIDs()
	for _, d := range m.Dirs() {
		must(t, d.Err)
	}
	must(t, m.Shutdown(1))
}

func TestFewDescriptorsServeManyLogs(t *testing.T) {
	const logs, descriptors = 300, 16
	fsys := vfs.Real()
	dir := t.TempDir()
	format(t, fsys, dir)
	o := managerOptions(fsys, dir)
	o.MaxOpenFiles = descriptors
	m := startManager(t, o)
	dice := rand.New(rand.NewPCG(1, 2))
	want := map[int32]int64{}
	for i := range int32(logs) {
		createLog(t, m, "t", i, [16]byte{})
	}
	produce := func(m *Manager) {
		for range 400 {
			i := dice.Int32N(logs)
			l, ok := m.Log("t", i)
			if !ok {
				t.Fatalf("t-%d is not there", i)
			}
			if info := appendBatch(t, l, 2, 1); info.FirstOffset != want[i] {
				t.Fatalf("t-%d goes on at %d instead of %d", i, info.FirstOffset, want[i])
			}
			want[i] += 2
		}
		if open := m.Files().Stats().Open; open > descriptors {
			t.Errorf("%d descriptors are open", open)
		}
	}
	produce(m)
	must(t, m.Shutdown(1))
	m = startManager(t, o)
	if open := m.Files().Stats().Open; open > descriptors {
		t.Errorf("%d descriptors are open after the start", open)
	}
	produce(m)
	for i, end := range want {
		l, _ := m.Log("t", i)
		if got := bytes.Count(contents(t, l, UpToLogEnd), []byte("v")); l.State().LogEndOffset != end || got < int(end) {
			t.Errorf("t-%d holds [0, %d) with %d values, want %d", i, l.State().LogEndOffset, got, end)
		}
	}
	must(t, m.Shutdown(1))
}
