package storage

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gregor/storage/checkpoint"
	"gregor/storage/producer"
	"gregor/storage/vfs"
)

const plainMeta = "#\n#Sun Nov 29 19:16:52 UTC 2026\nnode.id=1\ndirectory.id=RDaUwGFN2TCrfz8iprWmCw\nversion=1\ncluster.id=" + testCluster + "\n"

// kafkaDir puts a data directory that Kafka wrote at /data.
func kafkaDir(t testing.TB, name string, clean bool) (*vfs.Mem, archive) {
	t.Helper()
	a := readArchive(t, name)
	m := vfs.NewMem()
	for dir, files := range a.dirs() {
		install(t, m, path.Join("/data", dir), files)
	}
	top := map[string][]byte{
		checkpoint.MetaPropertiesFile: []byte(plainMeta),
		checkpoint.CleanerOffsetFile:  {},
	}
	for _, file := range []string{checkpoint.RecoveryPointFile, checkpoint.LogStartOffsetFile} {
		top[file] = a[file]
	}
	if clean {
		top[checkpoint.CleanShutdownFile] = []byte(`{"version":0,"brokerEpoch":14}`)
		// Every partition was replicated to its end.
		top[checkpoint.HighWatermarkFile] = a[checkpoint.RecoveryPointFile]
	}
	install(t, m, "/data", top)
	install(t, m, "/data/"+MetadataTopic+"-0", map[string][]byte{"quorum-state": []byte("{}")})
	install(t, m, "/data/lost+found", map[string][]byte{"x": nil})
	return m, a
}

func sortedLines(b []byte) []string {
	return slices.Sorted(strings.Lines(string(b)))
}

// TestKafkasDirectoryIsServedAndGivenBack opens a directory that Kafka 4.4.0 stopped cleanly and compares the
// offsets with what Kafka had reported; after our clean stop every file is as Kafka left it.
func TestKafkasDirectoryIsServedAndGivenBack(t *testing.T) {
	fsys, a := kafkaDir(t, "plain", true)
	before := tree(t, fsys, "/data")
	m, err := OpenManager(managerOptions(fsys, "/data"))
	must(t, err)
	if epoch, ok := m.PreviousBrokerEpoch(); !ok || epoch != 14 {
		t.Fatalf("previous broker epoch %d, %v", epoch, ok)
	}
	if m.ClusterID() != testCluster {
		t.Fatal(m.ClusterID())
	}
	must(t, m.Load(LoadOptions{}))
	if exists(t, fsys, "/data/"+checkpoint.CleanShutdownFile) || !exists(t, fsys, "/data/.lock") {
		t.Fatal("while running there is a lock and no proof of a clean stop")
	}
	ends := a.table(t, "offsets.tsv")
	for dir, rows := range ends {
		s := logOfDir(t, m, dir).State()
		start, hw, stable := number(t, rows[0][0]), number(t, rows[0][1]), number(t, rows[0][2])
		if s.LogStartOffset != start || s.HighWatermark != hw || s.LastStableOffset != stable || s.LogEndOffset != hw {
			t.Errorf("%s: %+v, Kafka reported %v", dir, s, rows[0])
		}
	}
	if n := len(slices.Collect(m.Logs())); n != len(ends) || n < 20 {
		t.Fatalf("%d logs, Kafka reported %d", n, len(ends))
	}
	must(t, m.Shutdown(14))
	afterKafkasRestart(before, a)
	mustEqualTrees(t, tree(t, fsys, "/data"), before)
}

// afterKafkasRestart makes of the files of a stopped Kafka those that it would leave after another start and stop.
func afterKafkasRestart(before map[string][]byte, a archive) {
	// At every start Kafka deletes the producer snapshots that are not above the log start.
	for name := range before {
		dir, file := path.Split(name)
		dir = path.Clean(dir)
		if offset, ok := producer.ParseSnapshotName(file); ok && offset <= a.checkpointOf(checkpoint.LogStartOffsetFile, dir) {
			delete(before, name)
		}
		// And it forgets a leader epoch that starts at the log end: the next leader notes its own.
		if file == checkpoint.LeaderEpochFile && a.checkpointOf(checkpoint.LogStartOffsetFile, dir) == a.checkpointOf(checkpoint.RecoveryPointFile, dir) {
			before[name] = []byte("0\n0\n")
		}
	}
}

// logOfDir is the log of a partition directory.
func logOfDir(t testing.TB, m *Manager, dir string) *Log {
	t.Helper()
	p, _, ok := ParseDirName(dir)
	if !ok {
		t.Fatal(dir)
	}
	l, ok := m.Log(p.Topic, p.Partition)
	if !ok {
		t.Fatalf("%s is not loaded", dir)
	}
	return l
}

// mustEqualTrees compares a data directory with what Kafka left; the lines of its offset checkpoints have no order.
func mustEqualTrees(t testing.TB, got, want map[string][]byte) {
	t.Helper()
	if got, want := slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)); !slices.Equal(got, want) {
		t.Fatalf("files after the stop: %v\nKafka left: %v", got, want)
	}
	for name, b := range want {
		if strings.HasSuffix(name, "-checkpoint") && path.Dir(name) == "." {
			if !slices.Equal(sortedLines(got[name]), sortedLines(b)) {
				t.Errorf("%s: %q, Kafka wrote %q", name, got[name], b)
			}
			continue
		}
		mustEqualBytes(t, name, got[name], b)
	}
}

// TestKafkasCrashedDirectoryIsRecoveredLikeKafkaDoes compares offsets with those that Kafka 4.4.0 came to on the
// same damaged directory, and what it does with directories that are not partitions of this broker.
func TestKafkasCrashedDirectoryIsRecoveredLikeKafkaDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys, a := kafkaDir(t, "crashed", false)
		lines := &syncBuffer{}
		o := managerOptions(fsys, "/data")
		o.Logger = textLogger(lines)
		m, err := OpenManager(o)
		must(t, err)
		if _, ok := m.PreviousBrokerEpoch(); ok {
			t.Fatal("there was no clean stop")
		}
		var mu sync.Mutex
		asked := map[string]bool{}
		must(t, m.Load(LoadOptions{IsStray: func(p TopicPartition, id [16]byte) bool {
			if id == [16]byte{} {
				t.Errorf("%s has no topic id", p)
			}
			mu.Lock()
			defer mu.Unlock()
			asked[p.Topic] = true
			return p.Topic == "stranger"
		}}))
		for dir, rows := range a.table(t, "after.offsets.tsv") {
			l := logOfDir(t, m, dir)
			s := l.State()
			if start, end := number(t, rows[0][0]), number(t, rows[0][1]); s.LogStartOffset != start || s.LogEndOffset != end {
				t.Errorf("%s: %d to %d, Kafka came to %d to %d", dir, s.LogStartOffset, s.LogEndOffset, start, end)
			}
			if !asked[l.Topic()] {
				t.Errorf("nobody asked whether %s is a stray", dir)
			}
		}
		if _, ok := m.Log("stranger", 0); ok || exists(t, fsys, "/data/stranger-0") {
			t.Fatal("the stray is still in place")
		}
		stray := nameLike(t, fsys, "/data", "stranger-0.", "-stray")
		gone := "/data/gone-0.00000000000000000000000000000007-delete"
		if !exists(t, fsys, gone) || m.PendingDeletions() != 1 {
			t.Fatal("the deleted log must stay for file.delete.delay.ms")
		}
		time.Sleep(time.Duration(testConfig().FileDeleteDelayMillis)*time.Millisecond + time.Second)
		synctest.Wait()
		if exists(t, fsys, gone) || m.PendingDeletions() != 0 {
			t.Fatal("the deleted log is still there")
		}
		must(t, m.Shutdown(3))
		if !exists(t, fsys, "/data/"+stray) || !exists(t, fsys, "/data/lost+found") {
			t.Fatal("strays and unknown directories are left alone")
		}
		mustContainAll(t, lines.String(), "lost+found", "set aside", "recovering the logs", "done=17 total=17")
		again := startManager(t, managerOptions(fsys, "/data"))
		if n := len(slices.Collect(again.Logs())); n != 16 {
			t.Fatalf("%d logs after the restart", n)
		}
	})
}

func mustContainAll(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("no line about %q in\n%s", part, text)
		}
	}
}

// TestFilesOfARecoveredDirectoryEqualKafkas compares the logs and indexes after recovery and clean stop.
func TestFilesOfARecoveredDirectoryEqualKafkas(t *testing.T) {
	fsys, a := kafkaDir(t, "crashed", false)
	m, err := OpenManager(managerOptions(fsys, "/data"))
	must(t, err)
	must(t, m.Load(LoadOptions{IsStray: func(p TopicPartition, _ [16]byte) bool { return p.Topic == "stranger" }}))
	must(t, m.Shutdown(3))
	files := tree(t, fsys, "/data")
	compared := 0
	for name, rows := range a.table(t, "after.files.tsv") {
		// The name of the stray is random.
		if path.Ext(name) != ".log" || strings.HasPrefix(name, "stranger-") {
			continue
		}
		sum := sha256.Sum256(files[name])
		if hex.EncodeToString(sum[:]) != rows[0][1] {
			t.Errorf("%s: %d bytes, Kafka has %s", name, len(files[name]), rows[0][0])
		}
		compared++
	}
	if compared < 40 {
		t.Fatalf("%d files compared", compared)
	}
}
