package storage

import (
	"fmt"
	"path"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"gregor/protocol/record"
	"gregor/storage/checkpoint"
	"gregor/storage/vfs"
)

// TestFailureTakesOneDirectoryOffline fails an operation in /d1 and checks that all its logs answer ErrStorage, that
// those in /d2 go on, and that only /d2 is stopped cleanly.
func TestFailureTakesOneDirectoryOffline(t *testing.T) {
	isD1 := vfs.MatchPath("/d1/")
	for name, c := range map[string]struct {
		failing vfs.Match
		provoke func(m *Manager, l *Log)
	}{
		"write of a log": {vfs.MatchKind(vfs.OpWrite).And(isD1), func(_ *Manager, l *Log) {
			_, _ = l.AppendAsLeader(batchOf(1, 1, record.BuilderOptions{}), 0, AppendOptions{})
		}},
		"sync of a log": {vfs.MatchKind(vfs.OpSync).And(isD1), func(_ *Manager, l *Log) { _ = l.Flush(1) }},
		"checkpoint":    {vfs.MatchKind(vfs.OpRename).And(isD1), func(m *Manager, _ *Log) { checkpointAll(m) }},
		"deletion":      {vfs.MatchKind(vfs.OpRename).And(isD1), func(m *Manager, _ *Log) { _ = m.DeleteLog("t", 1) }},
	} {
		t.Run(name, func(t *testing.T) {
			mem := twoDirs(t)
			var s vfs.Switch
			var mu sync.Mutex
			var told []DirInfo
			o := managerOptions(vfs.NewErr(mem, &s), "/d2", "/d1")
			o.DirFailed = func(d DirInfo) {
				mu.Lock()
				told = append(told, d)
				mu.Unlock()
			}
			m := startManager(t, o)
			first, second := createLog(t, m, "t", 0, dirID(1)), createLog(t, m, "t", 1, dirID(1))
			other := createLog(t, m, "t", 2, dirID(2))
			appendBatch(t, first, 1, 1)
			s.Set(vfs.FailFrom(1, syscall.EIO, c.failing))
			c.provoke(m, first)
			for _, l := range []*Log{first, second} {
				_, err := l.AppendAsLeader(batchOf(1, 1, record.BuilderOptions{}), 0, AppendOptions{})
				mustBe(t, err, ErrStorage, "")
				mustBe(t, err, syscall.EIO, "")
			}
			mustBeLost(t, m, 0)
			if name != "deletion" { // there it was taken out of service before
				mustBeLost(t, m, 1)
			}
			// The disk coming back does not bring the directory back: what it lost is not known.
			s.Set(nil)
			_, err := first.AppendAsLeader(batchOf(1, 1, record.BuilderOptions{}), 0, AppendOptions{})
			mustBe(t, err, ErrStorage, "")
			_, err = m.CreateLog("u", 0, topicIDOf("u"), testConfig(), dirID(1))
			mustBe(t, err, ErrStorage, "/d1")
			appendBatch(t, other, 1, 1)
			createLog(t, m, "u", 0, [16]byte{})
			for _, d := range m.Describe() {
				if (d.Err == nil) != (d.Path == "/d2") || d.Err != nil && (len(d.Logs) > 0 || d.TotalBytes != -1) {
					t.Fatalf("%+v", d)
				}
			}
			must(t, m.Shutdown(5))
			if len(told) != 1 || told[0].Path != "/d1" || told[0].ID != dirID(1) || told[0].Err == nil {
				t.Fatalf("told %+v", told)
			}
			if exists(t, mem, "/d1/.kafka_cleanshutdown") || !exists(t, mem, "/d2/.kafka_cleanshutdown") {
				t.Fatal("only the healthy directory was stopped cleanly")
			}
		})
	}
}

// mustBeLost checks that a partition of t is neither served nor made anew while its directory, /d1, is offline.
func mustBeLost(t testing.TB, m *Manager, partition int32) {
	t.Helper()
	if _, ok := m.Log("t", partition); ok {
		t.Fatalf("t-%d is still served", partition)
	}
	_, err := m.CreateLog("t", partition, topicIDOf("t"), testConfig(), [16]byte{})
	mustBe(t, err, ErrStorage, "/d1")
	mustBe(t, m.DeleteLog("t", partition), ErrStorage, "/d1")
}

func TestAllDirectoriesOfflineIsAnError(t *testing.T) {
	mem := twoDirs(t)
	var s vfs.Switch
	m, err := OpenManager(managerOptions(vfs.NewErr(mem, &s), "/d1", "/d2"))
	must(t, err)
	defer m.Kill()
	s.Set(vfs.FailFrom(1, syscall.EIO, vfs.MatchKind(vfs.OpReadDir)))
	mustBe(t, m.Load(LoadOptions{}), ErrNoOnlineDir, "/d1")
}

func TestLogThatCannotBeLoadedTakesItsDirectoryOffline(t *testing.T) {
	mem := twoDirs(t)
	m := startManager(t, managerOptions(mem, "/d1", "/d2"))
	for i := range int32(6) {
		appendBatch(t, createLog(t, m, "t", i, [16]byte{}), 1, 1)
	}
	must(t, m.Shutdown(1))
	fsys := vfs.NewErr(mem, vfs.FailFrom(1, syscall.EIO, vfs.MatchKind(vfs.OpReadDir).And(vfs.MatchPath("/d1/t-"))))
	m = startManager(t, managerOptions(fsys, "/d1", "/d2"))
	n := 0
	for l := range m.Logs() {
		n++
		if path.Dir(l.Dir()) != "/d2" {
			t.Fatal(l.Dir())
		}
	}
	if n != 3 {
		t.Fatalf("%d logs", n)
	}
	must(t, m.Shutdown(2))
	if exists(t, mem, "/d1/.kafka_cleanshutdown") {
		t.Fatal("not everything in /d1 was recovered")
	}
}

func TestMetadataDirectoryFailsWhenTheQuorumSaysSo(t *testing.T) {
	fsys := twoDirs(t)
	told := make(chan DirInfo, 1)
	o := managerOptions(fsys, "/d1", "/d2")
	o.DirFailed = func(d DirInfo) { told <- d }
	m := startManager(t, o)
	m.MetadataDirFailed(syscall.EIO)
	if d := <-told; !d.Metadata || d.Path != "/d1" {
		t.Fatalf("%+v", d)
	}
	m.MetadataDirFailed(syscall.EIO)
	if len(told) != 0 {
		t.Fatal("told twice")
	}
}

func TestDamagedCheckpointIsPassedOver(t *testing.T) {
	mem := twoDirs(t)
	m := startManager(t, managerOptions(mem, "/d1"))
	appendBatch(t, createLog(t, m, "t", 0, [16]byte{}), 7, 1)
	must(t, m.Shutdown(1))
	for _, name := range []string{checkpoint.RecoveryPointFile, checkpoint.LogStartOffsetFile, checkpoint.HighWatermarkFile} {
		must(t, vfs.WriteFile(mem, "/d1/"+name, []byte("0\n1\nx")))
	}
	lines := &syncBuffer{}
	o := managerOptions(mem, "/d1")
	o.Logger = textLogger(lines)
	m = startManager(t, o)
	l, ok := m.Log("t", 0)
	if s := l.State(); !ok || s.LogEndOffset != 7 || s.HighWatermark != 0 {
		t.Fatalf("%+v", s)
	}
	if n := strings.Count(lines.String(), "Ignoring a damaged checkpoint"); n != 3 {
		t.Fatalf("%d lines", n)
	}
	must(t, m.Shutdown(1))
	if got := offsetsOf(t, mem, "/d1/"+checkpoint.RecoveryPointFile); got != "map[t-0:7]" {
		t.Fatal(got)
	}
}

func TestUnreadableCheckpointIsAFailureOfTheDirectory(t *testing.T) {
	mem := twoDirs(t)
	m := startManager(t, managerOptions(mem, "/d1"))
	createLog(t, m, "t", 0, [16]byte{})
	must(t, m.Shutdown(1))
	fsys := vfs.NewErr(mem, vfs.FailFrom(1, syscall.EIO, vfs.MatchKind(vfs.OpRead).And(vfs.MatchPath("/d1/replication"))))
	m = startManager(t, managerOptions(fsys, "/d2", "/d1"))
	mustBe(t, m.Dirs()[1].Err, syscall.EIO, "replication-offset-checkpoint")
}

// TestHighWatermarkIsClampedToTheLog: the checkpoint may lag behind the log start and be ahead of a log that lost its
// end (KAFKA-16452).
func TestHighWatermarkIsClampedToTheLog(t *testing.T) {
	for _, c := range []struct{ stored, want int64 }{{0, 4}, {3, 4}, {6, 6}, {8, 8}, {100, 8}} {
		mem := twoDirs(t)
		m := startManager(t, managerOptions(mem, "/d1"))
		l := createLog(t, m, "t", 0, [16]byte{})
		appendBatch(t, l, 8, 1)
		_, err := l.UpdateHighWatermark(8)
		must(t, err)
		_, err = l.IncrementLogStartOffset(4)
		must(t, err)
		must(t, m.Shutdown(1))
		must(t, checkpoint.WriteOffsets(mem, "/d1/"+checkpoint.HighWatermarkFile, map[TopicPartition]int64{{Topic: "t"}: c.stored}))
		m = startManager(t, managerOptions(mem, "/d1"))
		l, _ = m.Log("t", 0)
		if s := l.State(); s.HighWatermark != c.want || s.LogStartOffset != 4 {
			t.Errorf("%d became %d, want %d", c.stored, s.HighWatermark, c.want)
		}
	}
}

// TestCrashWhileLoadingIsNoCleanStop cuts the power before every step of a clean start: from the first log on, the
// next start must recover (KAFKA-10471).
func TestCrashWhileLoadingIsNoCleanStop(t *testing.T) {
	mem := twoDirs(t)
	must(t, mem.SyncDir("/"))
	m := startManager(t, managerOptions(mem, "/d1"))
	appendBatch(t, createLog(t, m, "t", 0, [16]byte{}), 3, 1)
	must(t, m.Shutdown(9))
	steps := 0
	m, err := OpenManager(managerOptions(mem, "/d1"))
	must(t, err)
	mem.OnOp(func(n int64, op vfs.Op) {
		if !strings.HasPrefix(op.Name, "/d1/t-0") {
			return
		}
		steps++
		for seed := range uint64(10) {
			if exists(t, mem.Crash(seed), "/d1/.kafka_cleanshutdown") {
				t.Errorf("crash before step %d (%v of %s), seed %d looks like a clean stop", n, op.Kind, op.Name, seed)
			}
		}
	})
	must(t, m.Load(LoadOptions{}))
	l, _ := m.Log("t", 0)
	appendBatch(t, l, 1, 1)
	mem.OnOp(nil)
	m.Kill()
	if steps == 0 {
		t.Fatal("the log was never touched")
	}
}

// TestCrashAtEveryStepLosesNothingSynced runs a life of two logs with the power cut before every single step and a
// restart from what is left: what was flushed before the cut is there, the log start never goes back behind one
// that was checkpointed, and the files are valid.
func TestCrashAtEveryStepLosesNothingSynced(t *testing.T) {
	mem := vfs.NewMem()
	format(t, mem, "/d1")
	must(t, mem.SyncDir("/"))
	o := managerOptions(mem, "/d1")
	c := testConfig()
	c.SegmentBytes = 300
	var synced, truncatedTo int64 // of t-0: what a flush had made durable; where a truncation may have cut
	check := func(n int64, op vfs.Op) {
		for _, seed := range []uint64{0, uint64(n), uint64(n) + 1000, vfs.CrashKeepAll} {
			after := mem.Crash(seed)
			again := o
			again.FS = after
			m, err := OpenManager(again)
			if err != nil {
				t.Errorf("crash before step %d (%v of %s), seed %d: %v", n, op.Kind, op.Name, seed, err)
				continue
			}
			err = m.Load(LoadOptions{})
			l, ok := m.Log("t", 0)
			switch {
			case err != nil:
				t.Errorf("crash before step %d (%v of %s), seed %d: %v", n, op.Kind, op.Name, seed, err)
			case !ok && synced > 0:
				t.Errorf("crash before step %d (%v of %s), seed %d: the log is gone", n, op.Kind, op.Name, seed)
			case ok && l.State().LogEndOffset < min(synced, truncatedTo):
				t.Errorf("crash before step %d (%v of %s), seed %d: log ends at %d, %d was synced", n, op.Kind, op.Name, seed,
					l.State().LogEndOffset, synced)
			case ok:
				checkRecords(t, fmt.Sprintf("crash before step %d (%v of %s), seed %d", n, op.Kind, op.Name, seed), l)
			}
			m.Kill()
		}
	}
	m := startManager(t, o)
	var hook sync.Mutex // steps of background work run one at a time, as the cuts look at one moment each
	mem.OnOp(func(n int64, op vfs.Op) {
		hook.Lock()
		defer hook.Unlock()
		check(n, op)
	})
	truncatedTo = 1 << 60
	l, err := m.CreateLog("t", 0, topicIDOf("t"), c, [16]byte{})
	must(t, err)
	flush := func() {
		end := l.State().LogEndOffset
		must(t, l.Flush(end))
		hook.Lock()
		synced = end
		hook.Unlock()
	}
	for range 4 {
		appendBatch(t, l, 4, 1)
	}
	flush()
	checkpointAll(m)
	appendBatch(t, l, 4, 1)
	hook.Lock()
	truncatedTo = 8
	hook.Unlock()
	must(t, l.TruncateTo(8))
	hook.Lock()
	synced = 0
	hook.Unlock()
	_, err = l.AppendAsLeader(batchOf(3, 2, record.BuilderOptions{}), 1, AppendOptions{})
	must(t, err)
	flush()
	checkpointAll(m)
	must(t, m.Shutdown(1))
	mem.OnOp(nil)
}

// checkRecords reads everything: batches must be whole, valid and without gaps.
func checkRecords(t *testing.T, when string, l *Log) {
	t.Helper()
	next := l.State().LogStartOffset
	for b, err := range record.Batches(contents(t, l, UpToLogEnd)) {
		if err != nil || !b.CRCValid() || b.BaseOffset() > next && next > l.State().LogStartOffset {
			t.Errorf("%s: batch at %d: %v", when, next, err)
			return
		}
		next = b.NextOffset()
	}
	if next != l.State().LogEndOffset {
		t.Errorf("%s: batches end at %d, the log at %d", when, next, l.State().LogEndOffset)
	}
}

func TestRecoveryPointIsLoweredBeforeATruncation(t *testing.T) {
	mem := twoDirs(t)
	m := startManager(t, managerOptions(mem, "/d1"))
	l := createLog(t, m, "t", 0, [16]byte{})
	other := createLog(t, m, "u", 0, [16]byte{})
	appendBatch(t, l, 9, 1)
	appendBatch(t, l, 9, 1)
	appendBatch(t, other, 2, 1)
	must(t, l.Flush(18))
	must(t, other.Flush(2))
	checkpointAll(m)
	before, err := checkpoint.ReadOffsets(mem, "/d1/"+checkpoint.RecoveryPointFile)
	must(t, err)
	if before[TopicPartition{Topic: "t"}] <= 9 {
		t.Fatalf("%v: there is nothing to lower", before)
	}
	seen := false
	mem.OnOp(func(_ int64, op vfs.Op) {
		if op.Kind == vfs.OpTruncate && strings.HasSuffix(op.Name, "/t-0/00000000000000000000.log") {
			seen = true
			// A checkpoint in the middle must not bring the old one back.
			checkpointAll(m)
			offsets, err := checkpoint.ReadOffsets(mem.Crash(0), "/d1/"+checkpoint.RecoveryPointFile)
			if err != nil || offsets[TopicPartition{Topic: "t"}] > 9 || offsets[TopicPartition{Topic: "u"}] != before[TopicPartition{Topic: "u"}] {
				t.Errorf("when the file is cut the recovery points on disk are %v, %v", offsets, err)
			}
		}
	})
	must(t, l.TruncateTo(9))
	mem.OnOp(nil)
	if !seen {
		t.Fatal("the file was not cut")
	}
	appendBatch(t, l, 5, 1)
	must(t, l.Flush(14))
	checkpointAll(m)
	if got := offsetsOf(t, mem, "/d1/"+checkpoint.RecoveryPointFile); got != pointsOf(l, other) || l.State().RecoveryPoint <= 9 {
		t.Fatalf("%s: the recovery point must rise again", got)
	}
}

func TestBackgroundWorkKeepsItsIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := twoDirs(t)
		m := startManager(t, managerOptions(mem, "/d1", "/d2"))
		c := testConfig()
		c.SegmentBytes = 300
		l, err := m.CreateLog("t", 0, topicIDOf("t"), c, dirID(1))
		must(t, err)
		for range 4 {
			appendBatch(t, l, 4, time.Now().UnixMilli())
		}
		_, err = l.UpdateHighWatermark(16)
		must(t, err)
		must(t, l.Flush(16))
		_, err = l.IncrementLogStartOffset(2)
		must(t, err)
		at := func(d time.Duration) { time.Sleep(d); synctest.Wait() }
		at(5001 * time.Millisecond)
		if got := offsetsOf(t, mem, "/d1/"+checkpoint.HighWatermarkFile); got != "map[t-0:16]" {
			t.Fatalf("high watermarks after 5 s: %s", got)
		}
		if exists(t, mem, "/d1/"+checkpoint.RecoveryPointFile) {
			t.Fatal("recovery points before their time")
		}
		at(56 * time.Second)
		if got := offsetsOf(t, mem, "/d1/"+checkpoint.RecoveryPointFile); got != pointsOf(l) {
			t.Fatalf("recovery points after 60 s: %s", got)
		}
		if got := offsetsOf(t, mem, "/d1/"+checkpoint.LogStartOffsetFile); got != "map[t-0:2]" {
			t.Fatalf("log start offsets after 60 s: %s", got)
		}
		before := mem.Ops()
		at(150 * time.Second)
		if n := mem.Ops() - before; n != 0 {
			t.Fatalf("%d file operations although nothing changed", n)
		}
		// Retention runs after 30 s and then every 5 minutes.
		c.RetentionMillis = 1000
		l.UpdateConfig(c)
		at(121 * time.Second)
		if s := l.State(); s.LogStartOffset != 16 || s.Segments != 1 {
			t.Fatalf("after retention: %+v", s)
		}
		must(t, m.Shutdown(1))
	})
}

func TestSilentProducersAreForgottenInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := managerOptions(twoDirs(t), "/d1")
		o.ProducerExpirationMillis = 1000
		m := startManager(t, o)
		l := createLog(t, m, "t", 0, [16]byte{})
		_, err := l.AppendAsLeader(batchOf(1, time.Now().UnixMilli(), record.BuilderOptions{HasProducer: true, ProducerID: 7}), 0, AppendOptions{})
		must(t, err)
		time.Sleep(599 * time.Second)
		synctest.Wait()
		if n := len(l.ActiveProducers()); n != 1 {
			t.Fatal("forgotten before producer.id.expiration.check.interval.ms")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := len(l.ActiveProducers()); n != 0 {
			t.Fatal("never forgotten")
		}
		must(t, m.Shutdown(1))
	})
}

// TestRecoveryBeginsAtTheCheckpointedPoint damages the first of two segments: with a recovery point below it is found
// and cut off, with one above it is not looked at.
func TestRecoveryBeginsAtTheCheckpointedPoint(t *testing.T) {
	for point, wantEnd := range map[int64]int64{0: 4, 8: 12} {
		mem := twoDirs(t)
		m := startManager(t, managerOptions(mem, "/d1"))
		c := testConfig()
		c.SegmentBytes = 300
		l, err := m.CreateLog("t", 0, topicIDOf("t"), c, [16]byte{})
		must(t, err)
		for range 3 {
			appendBatch(t, l, 4, 1)
		}
		if s := l.State(); s.ActiveSegmentBase != 8 {
			t.Fatalf("%+v", s)
		}
		must(t, m.Shutdown(1))
		after := mem.Clone()
		must(t, after.Remove("/d1/.kafka_cleanshutdown"))
		must(t, checkpoint.WriteOffsets(after, "/d1/"+checkpoint.RecoveryPointFile, map[TopicPartition]int64{{Topic: "t"}: point}))
		f, err := after.OpenReadWrite("/d1/t-0/00000000000000000000.log")
		must(t, err)
		size, err := f.Size()
		must(t, err)
		_, err = f.WriteAt([]byte{0xff}, size-5)
		must(t, err)
		again := startManager(t, managerOptions(after, "/d1"))
		l, ok := again.Log("t", 0)
		if !ok || l.State().LogEndOffset != wantEnd {
			t.Errorf("recovery from %d: log ends at %d, want %d", point, l.State().LogEndOffset, wantEnd)
		}
	}
}

func TestLogOpenedWhileItsDirectoryFailsIsNotServed(t *testing.T) {
	m := startManager(t, managerOptions(twoDirs(t), "/d1", "/d2"))
	d := m.dirs[1]
	p := TopicPartition{Topic: "t", Partition: 0}
	l, err := OpenLog(m.logOptions(d, p, p.String(), testConfig()))
	must(t, err)
	t.Cleanup(l.CloseUnclean)
	m.dirFailed(d, syscall.EIO)
	must(t, m.place(d, found{partition: p, name: p.String()}, l))
	if _, ok := m.Log("t", 0); ok {
		t.Fatal("it is served")
	}
	mustBe(t, l.Err(), ErrStorage, "input/output error")
	_, err = m.CreateLog("t", 0, topicIDOf("t"), testConfig(), [16]byte{})
	mustBe(t, err, ErrStorage, "/d2")
}
