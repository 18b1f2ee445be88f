package storage

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"gregor/storage/checkpoint"
	"gregor/storage/vfs"
)

func twoDirs(t testing.TB) *vfs.Mem {
	t.Helper()
	fsys := vfs.NewMem()
	format(t, fsys, "/d1", "/d2")
	return fsys
}

func TestNewLogsGoWhereTheFewestAre(t *testing.T) {
	fsys := vfs.NewMem()
	format(t, fsys, "/d1", "/d2", "/d3")
	m := startManager(t, managerOptions(fsys, "/d1", "/d2", "/d3"))
	createLog(t, m, "asked", 0, dirID(1))
	createLog(t, m, "asked", 1, dirID(1))
	var got []string
	for i := range int32(5) {
		got = append(got, path.Dir(createLog(t, m, "t", i, [16]byte{15: byte(i)}).Dir()))
	}
	if want := []string{"/d2", "/d3", "/d2", "/d3", "/d1"}; !slices.Equal(got, want) {
		t.Fatalf("%v, want %v", got, want)
	}
	m.SetCordoned([]string{"/d1/", "/d3"})
	for i := range int32(3) {
		if l := createLog(t, m, "u", i, [16]byte{}); path.Dir(l.Dir()) != "/d2" {
			t.Fatalf("%s is in a cordoned directory", l.Dir())
		}
	}
	m.SetCordoned([]string{"/d1", "/d2", "/d3"})
	createLog(t, m, "v", 0, [16]byte{}) // assigned just before: it has to go somewhere
	if d := m.DirOf(createLog(t, m, "w", 0, dirID(3))); d.Path != "/d3" || d.ID != dirID(3) {
		t.Fatalf("%+v", d)
	}
}

func TestUnknownDirectoryIDMeansAnyWhileAllAreOnline(t *testing.T) {
	m := startManager(t, managerOptions(twoDirs(t), "/d1", "/d2"))
	createLog(t, m, "t", 0, dirID(77))
}

func TestLogOfAnotherTopicIDIsNotReused(t *testing.T) {
	m := startManager(t, managerOptions(twoDirs(t), "/d1", "/d2"))
	l := createLog(t, m, "t", 0, [16]byte{})
	if again := createLog(t, m, "t", 0, dirID(2)); again != l {
		t.Fatal("creating twice must give the same log")
	}
	_, err := m.CreateLog("t", 0, topicIDOf("other"), testConfig(), [16]byte{})
	mustBe(t, err, ErrInconsistentTopicID, "t-0")
	if found, err := m.CreateLog("t", 0, [16]byte{}, testConfig(), [16]byte{}); found != l || err != nil {
		t.Fatal("who does not know the id gets what is there", err)
	}
}

func TestTopicIDIsOnDiskAfterARestart(t *testing.T) {
	fsys := twoDirs(t)
	m := startManager(t, managerOptions(fsys, "/d1"))
	createLog(t, m, "t", 0, [16]byte{})
	must(t, m.Shutdown(1))
	id, err := checkpoint.ReadPartitionMetadata(fsys, "/d1/t-0/partition.metadata")
	must(t, err)
	if id != topicIDOf("t") {
		t.Fatal(id)
	}
	m = startManager(t, managerOptions(fsys, "/d1"))
	_, err = m.CreateLog("t", 0, topicIDOf("other"), testConfig(), [16]byte{})
	mustBe(t, err, ErrInconsistentTopicID, "t-0")
}

func TestDeletedLogIsRenamedAtOnceAndRemovedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := twoDirs(t)
		m := startManager(t, managerOptions(fsys, "/d1"))
		l := createLog(t, m, "t", 3, [16]byte{})
		appendBatch(t, l, 5, 1)
		must(t, m.DeleteLog("t", 3))
		if _, ok := m.Log("t", 3); ok || exists(t, fsys, "/d1/t-3") {
			t.Fatal("the log is still there")
		}
		name := nameLike(t, fsys, "/d1", "t-3.", "-delete")
		// A topic of the same name begins empty, while the old one waits for its removal.
		fresh := createLog(t, m, "t", 3, [16]byte{})
		if s := fresh.State(); s.LogEndOffset != 0 {
			t.Fatalf("%+v", s)
		}
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if !exists(t, fsys, "/d1/"+name) {
			t.Fatal("removed before file.delete.delay.ms")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if exists(t, fsys, "/d1/"+name) || m.PendingDeletions() != 0 {
			t.Fatal("not removed after file.delete.delay.ms")
		}
		must(t, m.DeleteLog("nobody", 0))
		must(t, m.Shutdown(1))
	})
}

func TestRemovalIsTakenUpAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := twoDirs(t)
		m := startManager(t, managerOptions(fsys, "/d1"))
		appendBatch(t, createLog(t, m, "t", 0, [16]byte{}), 5, 1)
		must(t, m.DeleteLog("t", 0))
		must(t, m.Shutdown(1))
		name := nameLike(t, fsys, "/d1", "t-0.", "-delete")
		again := startManager(t, managerOptions(fsys, "/d1"))
		time.Sleep(61 * time.Second)
		synctest.Wait()
		if exists(t, fsys, "/d1/"+name) {
			t.Fatal("the deleted log stays for ever")
		}
		must(t, again.Shutdown(1))
	})
}

func TestCheckpointsAreWrittenWhenTheyDifferFromTheFile(t *testing.T) {
	fsys := twoDirs(t)
	m := startManager(t, managerOptions(fsys, "/d1"))
	l := createLog(t, m, "t", 0, [16]byte{})
	createLog(t, m, "u", 0, [16]byte{})
	appendBatch(t, l, 9, 1)
	for _, step := range []struct {
		does   string
		do     func()
		writes bool
		want   string
	}{
		{"at first", func() {}, true, "map[t-0:0 u-0:0]"},
		{"nothing happens", func() {}, false, "map[t-0:0 u-0:0]"},
		{"the high watermark moves", func() { _, _ = l.UpdateHighWatermark(9) }, true, "map[t-0:9 u-0:0]"},
		{"nothing happens again", func() {}, false, "map[t-0:9 u-0:0]"},
		{"a log comes", func() { createLog(t, m, "v", 0, [16]byte{}) }, true, "map[t-0:9 u-0:0 v-0:0]"},
		{"a log goes and another comes", func() {
			must(t, m.DeleteLogs([]TopicPartition{{Topic: "u"}}))
			createLog(t, m, "w", 0, [16]byte{})
		}, true, "map[t-0:9 v-0:0 w-0:0]"},
	} {
		step.do()
		d := m.dirs[0]
		d.checkpoints.Lock()
		writes := !d.isWritten(highWatermarksIn)
		d.checkpoints.Unlock()
		must(t, m.checkpoint(d, highWatermarksIn))
		if got := offsetsOf(t, fsys, "/d1/"+checkpoint.HighWatermarkFile); writes != step.writes || got != step.want {
			t.Errorf("%s: written is %v, the file has %s, want %v and %s", step.does, writes, got, step.writes, step.want)
		}
	}
}

// TestRecreatedLogDoesNotInheritOffsets: a log that begins at 0 under the name of one whose log start offset was 5
// must not lose its records when it is recovered.
func TestRecreatedLogDoesNotInheritOffsets(t *testing.T) {
	fsys := twoDirs(t)
	m := startManager(t, managerOptions(fsys, "/d1"))
	l := createLog(t, m, "t", 0, [16]byte{})
	appendBatch(t, l, 9, 1)
	must(t, l.Flush(9))
	_, err := l.UpdateHighWatermark(9)
	must(t, err)
	_, err = l.IncrementLogStartOffset(5)
	must(t, err)
	checkpointAll(m)
	for name, want := range map[string]string{
		checkpoint.RecoveryPointFile: pointsOf(l), checkpoint.LogStartOffsetFile: "map[t-0:5]", checkpoint.HighWatermarkFile: "map[t-0:9]",
	} {
		if got := offsetsOf(t, fsys, "/d1/"+name); got != want {
			t.Fatalf("%s: %s, want %s", name, got, want)
		}
	}
	must(t, m.DeleteLogs([]TopicPartition{{Topic: "t", Partition: 0}}))
	l = createLog(t, m, "t", 0, [16]byte{})
	for _, name := range []string{checkpoint.RecoveryPointFile, checkpoint.LogStartOffsetFile, checkpoint.HighWatermarkFile} {
		if got := offsetsOf(t, fsys, "/d1/"+name); got != "map[]" {
			t.Fatalf("%s still has %s", name, got)
		}
	}
	appendBatch(t, l, 2, 1)
	must(t, l.Flush(2))
	again := startManager(t, managerOptions(fsys.Crash(vfs.CrashKeepAll), "/d1"))
	recovered, ok := again.Log("t", 0)
	if s := recovered.State(); !ok || s.LogStartOffset != 0 || s.LogEndOffset != 2 {
		t.Fatalf("%+v", s)
	}
}

// pointsOf is what a checkpoint of the recovery points of logs must hold: how far below the flushed offset they are
// is the logs' affair.
func pointsOf(logs ...*Log) string {
	points := map[TopicPartition]int64{}
	for _, l := range logs {
		points[l.topicPartition()] = l.State().RecoveryPoint
	}
	return fmt.Sprint(points)
}

// checkpointAll writes all checkpoints, as the background work does.
func checkpointAll(m *Manager) {
	for _, what := range []offsetsIn{recoveryPointsIn, logStartOffsetsIn, highWatermarksIn} {
		m.checkpoints(what)()
	}
}

func TestTopicConfigReachesLoadedAndOpenLogs(t *testing.T) {
	fsys := twoDirs(t)
	o := managerOptions(fsys, "/d1")
	m := startManager(t, o)
	createLog(t, m, "t", 0, [16]byte{})
	createLog(t, m, "u", 0, [16]byte{})
	c := testConfig()
	c.RetentionMillis = 5
	m.UpdateTopicConfig("t", c)
	for l := range m.Logs() {
		if got, want := l.Config().RetentionMillis, map[string]int64{"t": 5, "u": Unlimited}[l.Topic()]; got != want {
			t.Fatalf("%s has %d", l.Topic(), got)
		}
	}
	must(t, m.Shutdown(1))
	o.TopicConfig = func(topic string) LogConfig {
		if topic == "t" {
			return c
		}
		return testConfig()
	}
	m = startManager(t, o)
	if l, _ := m.Log("t", 0); l.Config().RetentionMillis != 5 {
		t.Fatal("loaded with the defaults")
	}
}

func TestPartitionsShareEqualConfigs(t *testing.T) {
	m := startManager(t, managerOptions(twoDirs(t), "/d1"))
	var logs []*Log
	for p := range int32(3) {
		logs = append(logs, createLog(t, m, "t", p, [16]byte{}))
	}
	other := createLog(t, m, "other", 0, [16]byte{})
	for i := range int64(10) { // more than are known at a time
		c := testConfig()
		c.RetentionMillis = i + 1
		m.UpdateTopicConfig("t", c)
		for _, l := range logs {
			if l.Config() != logs[0].Config() || *l.Config() != c {
				t.Fatalf("%s-%d has a config of its own, or another one", l.Topic(), l.Partition())
			}
		}
		if *other.Config() != testConfig() {
			t.Fatal("the config of another topic has changed")
		}
	}
}

func TestDescriptionTellsSizesAndVolumes(t *testing.T) {
	fsys := twoDirs(t)
	m := startManager(t, managerOptions(fsys, "/d1", "/d2"))
	appendBatch(t, createLog(t, m, "t", 1, dirID(1)), 5, 1)
	createLog(t, m, "t", 0, dirID(1))
	createLog(t, m, "t", 2, dirID(2))
	_, err := m.CreateFutureLog("t", 2, testConfig(), "/d1")
	must(t, err)
	m.SetCordoned([]string{"/d2"})
	dirs := m.Describe()
	if len(dirs) != 2 || dirs[0].Path != "/d1" || len(dirs[0].Logs) != 2 || len(dirs[0].FutureLogs) != 1 || len(dirs[1].Logs) != 1 {
		t.Fatalf("%+v", dirs)
	}
	if dirs[0].Logs[0].Partition() != 0 || dirs[0].Logs[1].State().SizeBytes == 0 {
		t.Fatal("logs are sorted and have sizes")
	}
	if dirs[0].TotalBytes <= dirs[0].UsableBytes || dirs[0].UsableBytes <= 0 || dirs[0].Cordoned || !dirs[1].Cordoned {
		t.Fatalf("%+v", dirs)
	}
}

func TestMoveToAnotherDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := twoDirs(t)
		m := startManager(t, managerOptions(fsys, "/d1", "/d2"))
		l := createLog(t, m, "t", 0, dirID(1))
		appendBatch(t, l, 5, 1)
		_, err := l.UpdateHighWatermark(5)
		must(t, err)
		future, err := m.CreateFutureLog("t", 0, testConfig(), "/d2")
		must(t, err)
		nameLike(t, fsys, "/d2", "t-0.", "-future")
		if again, err := m.CreateFutureLog("t", 0, testConfig(), "/d2"); again != future || err != nil {
			t.Fatal(err)
		}
		_, err = m.CreateFutureLog("t", 0, testConfig(), "/d1")
		mustBe(t, err, nil, "another directory already")
		_, err = m.CreateFutureLog("t", 0, testConfig(), "/elsewhere")
		mustBe(t, err, nil, "is not found in the config")
		_, err = future.AppendAsFollower(contents(t, l, UpToLogEnd), 0)
		must(t, err)
		// The move goes on after a restart.
		must(t, m.Shutdown(1))
		m = startManager(t, managerOptions(fsys, "/d1", "/d2"))
		future, ok := m.FutureLog("t", 0)
		if !ok || future.State().LogEndOffset != 5 {
			t.Fatal("the future log is lost")
		}
		promoted, err := m.PromoteFuture("t", 0)
		must(t, err)
		if now, _ := m.Log("t", 0); now != promoted || promoted != future || now.State().HighWatermark != 5 || now.Dir() != "/d2/t-0" {
			t.Fatalf("%s %+v", now.Dir(), now.State())
		}
		if _, ok := m.FutureLog("t", 0); ok || exists(t, fsys, "/d1/t-0") {
			t.Fatal("the old replica is still there")
		}
		nameLike(t, fsys, "/d1", "t-0.", "-delete")
		_, err = m.PromoteFuture("t", 0)
		mustBe(t, err, ErrStorage, "not online")
		time.Sleep(61 * time.Second)
		synctest.Wait()
		if got := namesIn(t, fsys, "/d1"); slices.ContainsFunc(got, func(n string) bool { return strings.HasPrefix(n, "t-0") }) {
			t.Fatal(got)
		}
		must(t, m.Shutdown(1))
	})
}

func TestMoveCanBeGivenUp(t *testing.T) {
	fsys := twoDirs(t)
	m := startManager(t, managerOptions(fsys, "/d1", "/d2"))
	_, err := m.CreateFutureLog("t", 0, testConfig(), "/d2")
	mustBe(t, err, ErrStorage, "not online")
	createLog(t, m, "t", 0, dirID(1))
	_, err = m.CreateFutureLog("t", 0, testConfig(), "/d2")
	must(t, err)
	must(t, m.DeleteFutureLog("t", 0))
	must(t, m.DeleteFutureLog("t", 0))
	nameLike(t, fsys, "/d2", "t-0.", "-delete")
	if _, ok := m.Log("t", 0); !ok {
		t.Fatal("the current replica went too")
	}
	_, err = m.CreateFutureLog("t", 0, testConfig(), "/d2")
	must(t, err)
	must(t, m.DeleteLog("t", 0))
	if _, ok := m.FutureLog("t", 0); ok {
		t.Fatal("deleting the partition leaves its future replica")
	}
}

func TestTwoDirectoriesOfOnePartitionStopTheStart(t *testing.T) {
	fsys := twoDirs(t)
	for _, d := range []string{"/d1", "/d2"} {
		m := startManager(t, managerOptions(fsys, d))
		createLog(t, m, "t", 0, [16]byte{})
		must(t, m.Shutdown(1))
	}
	m, err := OpenManager(managerOptions(fsys, "/d1", "/d2"))
	must(t, err)
	defer m.Kill()
	mustBe(t, m.Load(LoadOptions{}), nil, "duplicate log directories for t-0")
}

func TestFailedCreationTakesTheDirectoryOffline(t *testing.T) {
	mem := vfs.NewMem()
	format(t, mem, "/d1", "/d2", "/d3")
	var s vfs.Switch
	m := startManager(t, managerOptions(vfs.NewErr(mem, &s), "/d1", "/d2", "/d3"))
	s.Set(vfs.FailFrom(1, syscall.EIO, vfs.MatchKind(vfs.OpMkdir).And(vfs.MatchPath("/d1/t-0"))))
	l := createLog(t, m, "t", 0, [16]byte{})
	if path.Dir(l.Dir()) != "/d2" {
		t.Fatal(l.Dir())
	}
	mustBe(t, m.Dirs()[0].Err, syscall.EIO, "/d1")
	// Once its directory exists, the log must not be made elsewhere: it would be there twice after a restart.
	s.Set(vfs.FailFrom(1, syscall.EIO, vfs.MatchKind(vfs.OpCreate).And(vfs.MatchPath("/d3/t-1"))))
	_, err := m.CreateLog("t", 1, topicIDOf("t"), testConfig(), [16]byte{})
	mustBe(t, err, ErrStorage, "t-1")
	if exists(t, mem, "/d2/t-1") || !exists(t, mem, "/d3/t-1") {
		t.Fatal("made in another directory")
	}
	s.Set(vfs.FailFrom(1, syscall.EIO, vfs.MatchKind(vfs.OpMkdir)))
	_, err = m.CreateLog("t", 2, topicIDOf("t"), testConfig(), [16]byte{})
	mustBe(t, err, ErrStorage, "t-2")
	_, err = m.CreateLog("t", 3, topicIDOf("t"), testConfig(), [16]byte{})
	mustBe(t, err, ErrNoOnlineDir, "creation of a log")
}
