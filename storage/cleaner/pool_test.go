package cleaner

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"gregor/protocol/record"
	"gregor/storage/segment"
	"gregor/storage/vfs"
)

// dirtyLog is a log with so many superseded records of some size in front of one that stays.
func dirtyLog(t *testing.T, fsys vfs.FS, name string, n, valueBytes int) *fakeLog {
	t.Helper()
	l := newFakeLog(t, fsys, name)
	for i := range n {
		l.add(keyed(record.BuilderOptions{}, 1, "a="+strings.Repeat(strconv.Itoa(i%10), valueBytes)))
	}
	l.roll()
	return l
}

// started runs a pool over logs until the test ends.
func started(t *testing.T, c Config, out *lineBuffer, logs ...*fakeLog) (*Pool, *fakeLogs) {
	t.Helper()
	f := &fakeLogs{logs: logs}
	p := NewPool(f, c, out.logger())
	p.Start()
	t.Cleanup(p.Stop)
	return p, f
}

func TestFilthiestLogComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := vfs.NewMem()
		var mu sync.Mutex
		var order []string
		var logs []*fakeLog
		for i, clean := range []int64{5, 1, 3} {
			l := dirtyLog(t, fsys, fmt.Sprint("t-", i), 10, 10)
			// A clean segment in front makes it less dirty.
			l.cleaned = l.end
			for range clean {
				l.add(keyed(record.BuilderOptions{}, 1, "b=1", "c=1", "d=1", "e=1"))
			}
			l.roll()
			l.notice = func(op string) {
				if op == "create" {
					mu.Lock()
					order = append(order, l.name)
					mu.Unlock()
				}
			}
			logs = append(logs, l)
		}
		p, _ := started(t, smallConfig(), &lineBuffer{}, logs...)
		synctest.Wait()
		if !slices.Equal(order, []string{"t-0", "t-2", "t-1"}) {
			t.Errorf("cleaned %v", order)
		}
		m := p.Metrics()
		if m.Rounds != 3 || m.MaxDirtyPercent != 0 || m.BytesRead == 0 || m.BytesWritten == 0 || m.RecopyPercent <= 0 || m.RecopyPercent >= 100 {
			t.Errorf("%+v", m)
		}
		// Every log has had retention after each of the four passes.
		if logs[0].deletions != 4 {
			t.Errorf("retention ran %d times", logs[0].deletions)
		}
	})
}

func TestWorkersRestForTheBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := dirtyLog(t, vfs.NewMem(), "t-0", 10, 10)
		c := smallConfig()
		c.BackoffMillis = 5000
		p, _ := started(t, c, &lineBuffer{}, l)
		synctest.Wait()
		l.mu.Lock()
		l.add(keyed(record.BuilderOptions{}, 1, "a=1", "b=1", "c=1", "d=1"))
		l.roll()
		l.mu.Unlock()
		time.Sleep(4999 * time.Millisecond)
		if m := p.Metrics(); m.Rounds != 1 || m.SinceLastRunMillis != 4999 {
			t.Errorf("%+v", m)
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if m := p.Metrics(); m.Rounds != 2 {
			t.Errorf("%+v", m)
		}
	})
}

func TestSeveralLogsAreCleanedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := vfs.NewMem()
		hold := make(chan struct{})
		var logs []*fakeLog
		for i := range 3 {
			l := dirtyLog(t, fsys, fmt.Sprint("t-", i), 10, 10)
			l.notice = func(op string) {
				if op == "replace" {
					<-hold
				}
			}
			logs = append(logs, l)
		}
		c := smallConfig()
		c.Threads = 2
		p, _ := started(t, c, &lineBuffer{}, logs...)
		synctest.Wait()
		busy := 0
		for _, l := range logs {
			if p.IsBusy(l) {
				busy++
			}
		}
		if busy != 2 {
			t.Errorf("%d logs at once", busy)
		}
		close(hold)
		synctest.Wait()
		if m := p.Metrics(); m.Rounds != 3 {
			t.Errorf("%+v", m)
		}
	})
}

func TestAbortWaitsUntilTheFilesAreLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := vfs.NewMem()
		l := dirtyLog(t, fsys, "t-0", 1000, 100)
		c := smallConfig()
		c.MaxBytesPerSecond = 10_000 // so that the round takes its time
		out := &lineBuffer{}
		p, logs := started(t, c, out, l)
		time.Sleep(15 * time.Second)
		if !p.IsBusy(l) {
			t.Fatal("not being cleaned")
		}
		logs.remove(l)
		p.Abort(l)
		if p.IsBusy(l) {
			t.Error("still being cleaned")
		}
		entries, err := fsys.ReadDir(l.dir())
		must(t, err)
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), segment.CleanedSuffix) {
				t.Errorf("%s is left", e.Name())
			}
		}
		if l.cleaned != 0 || p.Metrics().Rounds != 0 || !strings.Contains(out.String(), "aborted") {
			t.Errorf("cleaned to %d, %d rounds; %s", l.cleaned, p.Metrics().Rounds, out)
		}
		p.Abort(l) // nothing to do
		time.Sleep(time.Hour)
		if p.Metrics().Rounds != 0 {
			t.Error("cleaned although it is gone")
		}
	})
}

// TestLogThatGoesWhileItIsChosenIsLeftAlone removes a log between its listing and the start of its round.
func TestLogThatGoesWhileItIsChosenIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := dirtyLog(t, vfs.NewMem(), "t-0", 10, 10)
		logs := &fakeLogs{logs: []*fakeLog{l}}
		p := NewPool(logs, smallConfig(), nil)
		// Listed by Compacted, but no longer current.
		gone := &listedOnly{logs}
		p.logs = gone
		p.Start()
		synctest.Wait()
		if p.IsBusy(l) || l.cleaned != 0 {
			t.Error("cleaned a log that is gone")
		}
		p.Stop()
	})
}

type listedOnly struct{ *fakeLogs }

func (listedOnly) IsCurrent(Log) bool { return false }

func TestTruncatedLogIsCleanedAnewLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := dirtyLog(t, vfs.NewMem(), "t-0", 100, 100)
		n := 0
		l.notice = func(op string) {
			if op == "check" {
				if n++; n == 2 {
					l.mu.Lock()
					l.aborted = true // as after a truncation
					l.mu.Unlock()
				}
			}
		}
		out := &lineBuffer{}
		p, _ := started(t, smallConfig(), out, l)
		synctest.Wait()
		if m := p.Metrics(); m.Rounds != 0 || len(m.Uncleanable) > 0 || l.cleaned != 0 || !strings.Contains(out.String(), "aborted") {
			t.Errorf("%+v, cleaned to %d: %s", m, l.cleaned, out)
		}
		l.mu.Lock()
		l.aborted = false
		l.mu.Unlock()
		time.Sleep(time.Minute)
		if m := p.Metrics(); m.Rounds != 1 || l.cleaned != l.end {
			t.Errorf("%+v, cleaned to %d", m, l.cleaned)
		}
	})
}

func TestDamagedLogIsUncleanableAndSaysWhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := vfs.NewMem()
		l, other := dirtyLog(t, fsys, "t-0", 10, 10), dirtyLog(t, fsys, "t-1", 5, 10)
		name := l.segments[0].LogPath()
		raw, err := vfs.ReadFile(fsys, name)
		must(t, err)
		size := len(raw) / 10
		raw[3*size+70] ^= 1
		must(t, vfs.WriteFile(fsys, name, raw))
		out := &lineBuffer{}
		p, logs := started(t, smallConfig(), out, l, other)
		synctest.Wait()
		time.Sleep(time.Minute)
		m := p.Metrics()
		if len(m.Uncleanable) != 1 || m.Uncleanable[0].Log != "t-0" || m.Uncleanable[0].Bytes != int64(10*size) || m.Uncleanable[0].Dir != "/logs" {
			t.Fatalf("%+v", m)
		}
		var corrupt *segment.CorruptError
		if !errors.As(m.Uncleanable[0].Err, &corrupt) || corrupt.File != name || corrupt.Position != int64(3*size) {
			t.Errorf("%v", m.Uncleanable[0].Err)
		}
		if !errors.Is(l.damaged, m.Uncleanable[0].Err) || other.damaged != nil {
			t.Errorf("the logs are told %v and %v", l.damaged, other.damaged)
		}
		if got := out.String(); strings.Count(got, "uncleanable") != 1 || !strings.Contains(got, name) {
			t.Errorf("log lines: %s", got)
		}
		if other.cleaned != other.end || l.cleaned != 0 || l.failed != nil {
			t.Errorf("the other cleaned to %d, the damaged one to %d, failed %v", other.cleaned, l.cleaned, l.failed)
		}
		// A deleted partition is forgotten.
		logs.remove(l)
		time.Sleep(time.Minute)
		if m := p.Metrics(); len(m.Uncleanable) != 0 {
			t.Errorf("%+v", m)
		}
	})
}

func TestImpossibleRecordOffsetsAreDamage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newFakeLog(t, vfs.NewMem(), "t-0")
		b := record.NewBuilder(record.BuilderOptions{})
		b.AddAt(0, 1, []byte("a"), []byte("1"), nil)
		b.AddAt(5, 1, []byte("b"), []byte("1"), nil)
		bad := b.Bytes()
		bad.SetMaxTimestamp(record.LogAppendTime, 3) // renews the CRC below
		copy(bad[23:], []byte{0, 0, 0, 2})           // last offset delta
		bad.SetMaxTimestamp(record.CreateTime, 1)
		l.add(bad, keyed(record.BuilderOptions{}, 1, "a=2"))
		l.roll()
		p, _ := started(t, smallConfig(), &lineBuffer{}, l)
		synctest.Wait()
		if m := p.Metrics(); len(m.Uncleanable) != 1 || !errors.Is(m.Uncleanable[0].Err, segment.ErrCorrupt) {
			t.Errorf("%+v", m)
		}
	})
}

func TestSegmentWhoseOffsetsOverflowIsSplit(t *testing.T) {
	for _, splits := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			l := newFakeLog(t, vfs.NewMem(), "t-0")
			l.end = 1 << 33
			l.roll()
			l.add(keyed(record.BuilderOptions{}, 1, "a=1"))
			l.roll()
			l.splits = splits
			l.below.Store(1 << 32) // what stays does not fit into the new segment
			out := &lineBuffer{}
			p, _ := started(t, smallConfig(), out, l)
			synctest.Wait()
			m := p.Metrics()
			if !slices.Equal(l.split, []int64{1 << 33}) || l.failed != nil || m.Rounds != 0 {
				t.Errorf("split %v, failed %v, %+v", l.split, l.failed, m)
			}
			if !splits {
				if len(m.Uncleanable) != 1 || !errors.Is(m.Uncleanable[0].Err, segment.ErrOffsetOverflow) {
					t.Errorf("nothing was split: %+v", m)
				}
				return
			}
			if len(m.Uncleanable) != 0 || !strings.Contains(out.String(), "has been split") {
				t.Errorf("%+v: %s", m, out)
			}
			l.below.Store(0)
			time.Sleep(time.Minute)
			if m := p.Metrics(); m.Rounds != 1 || l.cleaned != l.end {
				t.Errorf("%+v, cleaned to %d", m, l.cleaned)
			}
		})
	}
}

func TestFailingDiskFailsTheLog(t *testing.T) {
	for _, kind := range []vfs.OpKind{vfs.OpCreate, vfs.OpWrite, vfs.OpSync, vfs.OpSetModTime} {
		t.Run(kind.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mem := vfs.NewMem()
				var s vfs.Switch
				l := dirtyLog(t, vfs.NewErr(mem, &s), "t-0", 10, 10)
				s.Set(vfs.FailNth(1, syscall.EIO, vfs.MatchKind(kind)))
				out := &lineBuffer{}
				p, _ := started(t, smallConfig(), out, l)
				synctest.Wait()
				if !errors.Is(l.failed, syscall.EIO) || len(p.Metrics().Uncleanable) != 0 || l.cleaned != 0 {
					t.Errorf("failed %v, %+v, cleaned to %d", l.failed, p.Metrics(), l.cleaned)
				}
			})
		})
	}
}

func TestFullDiskIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMem()
		var s vfs.Switch
		l := dirtyLog(t, vfs.NewErr(mem, &s), "t-0", 10, 10)
		s.Set(vfs.InjectorFunc(func(op vfs.Op) error {
			if op.Kind == vfs.OpWrite {
				return syscall.ENOSPC
			}
			return nil
		}))
		out := &lineBuffer{}
		p, _ := started(t, smallConfig(), out, l)
		synctest.Wait()
		entries, err := mem.ReadDir(l.dir())
		must(t, err)
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), segment.CleanedSuffix) {
				t.Errorf("%s takes space", e.Name())
			}
		}
		if l.failed != nil || !errors.Is(l.full, syscall.ENOSPC) || len(p.Metrics().Uncleanable) != 0 || strings.Contains(out.String(), "ERROR") {
			t.Errorf("failed %v, full %v: %s", l.failed, l.full, out)
		}
		s.Set(nil)
		time.Sleep(time.Minute)
		if m := p.Metrics(); m.Rounds != 1 || l.cleaned != l.end {
			t.Errorf("%+v, cleaned to %d", m, l.cleaned)
		}
	})
}

func TestReconfigurationTakesEffectAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := dirtyLog(t, vfs.NewMem(), "t-0", 1000, 100)
		c := smallConfig()
		c.MaxBytesPerSecond = 1
		p, _ := started(t, c, &lineBuffer{}, l)
		time.Sleep(time.Hour)
		if m := p.Metrics(); m.Rounds != 0 || !p.IsBusy(l) {
			t.Fatalf("%+v", m)
		}
		c.MaxBytesPerSecond, c.Threads = 1e300, 4
		p.Reconfigure(c)
		p.Reconfigure(c) // nothing changes
		synctest.Wait()
		if m := p.Metrics(); m.Rounds != 1 || len(p.workers) != 4 {
			t.Errorf("%+v, %d workers", m, len(p.workers))
		}
		p.Stop()
		c.Threads = 1
		p.Reconfigure(c) // after the stop: no new workers
		synctest.Wait()
	})
}

func TestInvalidCheckpointStartsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := dirtyLog(t, vfs.NewMem(), "t-0", 10, 10)
		l.cleaned = 1000
		out := &lineBuffer{}
		started(t, smallConfig(), out, l)
		synctest.Wait()
		if l.cleaned != l.end || !strings.Contains(out.String(), "Resetting") {
			t.Errorf("cleaned to %d: %s", l.cleaned, out)
		}
	})
}
