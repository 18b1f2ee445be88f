package storage

import (
	"fmt"
	"path"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gregor/protocol/record"
	"gregor/storage/checkpoint"
	"gregor/storage/vfs"
)

func compactConfig() LogConfig {
	c := testConfig()
	c.CleanupCompact, c.CleanupDelete, c.MinCleanableDirtyRatio = true, false, 0
	return c
}

// fillCompacted appends superseded records and rolls.
func fillCompacted(t *testing.T, l *Log, n int) {
	t.Helper()
	for i := range n {
		b := record.NewBuilder(record.BuilderOptions{})
		b.Add(int64(i), []byte("key"), fmt.Append(nil, "value ", i), nil)
		_, err := l.AppendAsLeader(b.Bytes(), 0, AppendOptions{LogAppendTimeMillis: -1, AloneInSync: true})
		must(t, err)
	}
	must(t, l.Roll())
}

func TestManagerCleansAndRemembersHowFar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := vfs.NewMem()
		format(t, fsys, "/d1")
		o := managerOptions(fsys, "/d1")
		o.Cleaner, o.Defaults = new(cleanerConfig()), compactConfig()
		m, err := OpenManager(o)
		must(t, err)
		must(t, m.Load(LoadOptions{}))
		l, err := m.CreateLog("t", 0, topicIDOf("t"), compactConfig(), [16]byte{})
		must(t, err)
		fillCompacted(t, l, 20)
		time.Sleep(time.Minute)
		synctest.Wait()
		if s := l.State(); s.CleanedTo != 20 || s.SizeBytes > 200 {
			t.Errorf("cleaned to %d, %d bytes are left", s.CleanedTo, s.SizeBytes)
		}
		file := path.Join("/d1", checkpoint.CleanerOffsetFile)
		if got := offsetsOf(t, fsys, file); got != "map[t-0:20]" {
			t.Errorf("checkpoint %s", got)
		}
		must(t, m.Shutdown(1))
		m, err = OpenManager(o)
		must(t, err)
		must(t, m.Load(LoadOptions{}))
		l, _ = m.Log("t", 0)
		if l.State().CleanedTo != 20 {
			t.Errorf("after a start: cleaned to %d", l.State().CleanedTo)
		}
		// A truncation lowers it, a deletion forgets it.
		must(t, l.TruncateTo(5))
		if s := l.State(); s.CleanedTo != 0 {
			t.Errorf("after a truncation: %+v", s)
		}
		must(t, m.DeleteLog("t", 0))
		if got := offsetsOf(t, fsys, file); got != "map[]" {
			t.Errorf("checkpoint %s", got)
		}
		must(t, m.Shutdown(1))
	})
}

// TestDeletionAndPolicyChangeEndACleaning lets a slow round be overtaken.
func TestDeletionAndPolicyChangeEndACleaning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := vfs.NewMem()
		format(t, fsys, "/d1")
		o := managerOptions(fsys, "/d1")
		c := cleanerConfig()
		c.MaxBytesPerSecond = 10
		o.Cleaner, o.Defaults = &c, compactConfig()
		m, err := OpenManager(o)
		must(t, err)
		must(t, m.Load(LoadOptions{}))
		for _, end := range []string{"delete", "policy", "truncate"} {
			l, err := m.CreateLog("t", 0, topicIDOf("t"), compactConfig(), [16]byte{})
			must(t, err)
			fillCompacted(t, l, 200)
			for !m.isBeingCleaned(l) {
				time.Sleep(time.Second)
			}
			size := l.State().SizeBytes
			switch end {
			case "policy":
				m.UpdateTopicConfig("t", testConfig())
			case "truncate":
				must(t, l.TruncateTo(100))
				size = l.State().SizeBytes
				m.UpdateTopicConfig("t", testConfig())
			}
			if end != "delete" {
				time.Sleep(time.Hour)
				if s := l.State(); m.isBeingCleaned(l) || s.CleanedTo != 0 || s.SizeBytes != size {
					t.Errorf("%s: busy %t, %+v", end, m.isBeingCleaned(l), s)
				}
			}
			must(t, m.DeleteLog("t", 0))
			if figures, ok := m.CleanerMetrics(); !ok || figures.Rounds != 0 || len(figures.Uncleanable) != 0 || m.Dirs()[0].Err != nil {
				t.Errorf("%s: %+v, %v", end, figures, m.Dirs()[0].Err)
			}
		}
		must(t, m.Shutdown(1))
	})
}

// TestReadersGoOnWhileALogIsCleaned is for the race detector.
func TestReadersGoOnWhileALogIsCleaned(t *testing.T) {
	fsys := vfs.NewMem()
	format(t, fsys, "/d1")
	o := managerOptions(fsys, "/d1")
	c := cleanerConfig()
	c.BackoffMillis, c.Threads = 1, 2
	o.Cleaner, o.Defaults = &c, compactConfig()
	m := startManager(t, o)
	l, err := m.CreateLog("t", 0, topicIDOf("t"), compactConfig(), [16]byte{})
	must(t, err)
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				last := int64(-1)
				for b, err := range record.Batches(contents(t, l, UpToHighWatermark)) {
					if err != nil || !b.CRCValid() || b.BaseOffset() <= last {
						t.Errorf("batch %d after %d: %v", b.BaseOffset(), last, err)
						return
					}
					last = b.LastOffset()
				}
			}
		})
	}
	for i := range int64(10) {
		fillCompacted(t, l, 10)
		for f, _ := m.CleanerMetrics(); f.Rounds <= i/3; f, _ = m.CleanerMetrics() {
			<-time.After(time.Millisecond)
		}
	}
	close(stop)
	readers.Wait()
	if l.Err() != nil {
		t.Error(l.Err())
	}
}
