package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"gregor/protocol/record"
	"gregor/storage/checkpoint"
	"gregor/storage/cleaner"
	"gregor/storage/segment"
	"gregor/storage/vfs"
)

// crashed is a disk after a power cut.
type crashed struct {
	fsys *vfs.Mem
	when string
}

// TestPowerCutDuringACleaningLosesNothing cuts the power before every operation of a round, and of the one after the
// start: the same records are there, and of no transaction more or less.
func TestPowerCutDuringACleaningLosesNothing(t *testing.T) {
	points := 0
	inBubble(t, func(t *rapid.T) {
		h := newCleanHistory(t)
		defer func() { h.l.CloseUnclean() }()
		for range rapid.IntRange(10, 40).Draw(t, "steps") {
			h.step()
		}
		_, err := h.l.DeleteOldSegments(time.Now())
		check(t, err)
		check(t, h.l.Flush(h.l.State().LogEndOffset))
		h.l.bg.wait()
		check(t, h.fsys.SyncDir(testDir))
		before, want := h.l.State(), latest(t, h.l)
		every := int64(rapid.IntRange(3, 9).Draw(t, "every"))
		disks := cutsDuringCleaning(h.fsys, h.l, every, rapid.Uint64().Draw(t, "seed"))
		points += len(disks)
		for i, d := range disks {
			l := h.recover(d, before)
			h.checkRecovered(l, d, before, want)
			if i%7 == 0 {
				// The round is done again, by the rules of a start after a crash; and again the power fails.
				again := cutsDuringCleaning(d.fsys, l, 5, uint64(i))
				h.checkRecovered(l, d, before, want)
				for _, d := range again {
					l := h.recover(d, before)
					h.checkRecovered(l, d, before, want)
					l.CloseUnclean()
				}
				points += len(again)
			}
			l.CloseUnclean()
		}
	})
	if points < 200 {
		t.Errorf("only %d power cuts", points)
	}
	t.Logf("%d power cuts", points)
}

// cutsDuringCleaning cleans and returns what power cuts would have left before every n-th operation.
func cutsDuringCleaning(fsys *vfs.Mem, l *Log, every int64, seed uint64) []crashed {
	var mu sync.Mutex
	var disks []crashed
	fsys.OnOp(func(n int64, op vfs.Op) {
		mu.Lock()
		defer mu.Unlock()
		if n%every != 0 {
			return
		}
		for _, s := range []uint64{0, vfs.CrashKeepAll, seed + uint64(n)} {
			disks = append(disks, crashed{fsys: fsys.Crash(s), when: fmt.Sprintf("before operation %d (%s %s), seed %d", n, op.Kind, op.Name, s)})
		}
	})
	p := cleaner.NewPool(oneLog{cleanableLog(fsys, l)}, cleanerConfig(), nil)
	p.Start()
	synctest.Wait()
	p.Stop()
	l.bg.wait()
	fsys.OnOp(nil)
	return disks
}

// recover opens the log of a disk as a start after a crash does.
func (h *cleanHistory) recover(d crashed, before *State) *Log {
	o := h.o
	o.FS, o.HadCleanShutdown, o.RecoveryPoint, o.LogStartOffset = d.fsys, false, before.RecoveryPoint, before.LogStartOffset
	cleaned, err := checkpoint.ReadOffsets(d.fsys, "/data/"+checkpoint.CleanerOffsetFile)
	if !errors.Is(err, fs.ErrNotExist) {
		check(h.t, err)
	}
	o.CleanedTo = cleaned[TopicPartition{Topic: "t"}]
	l, err := OpenLog(o)
	if err != nil {
		h.t.Fatalf("%s: %v", d.when, err)
	}
	_, err = l.UpdateHighWatermark(1 << 60)
	check(h.t, err)
	return l
}

func (h *cleanHistory) checkRecovered(l *Log, d crashed, before *State, want map[string]string) {
	t := h.t
	s := l.State()
	if s.LogEndOffset != before.LogEndOffset || s.LastStableOffset != before.LastStableOffset || s.LogStartOffset != before.LogStartOffset {
		t.Fatalf("%s: %+v, before %+v", d.when, s, before)
	}
	if got := latest(t, l); !maps.Equal(got, want) {
		t.Fatalf("%s: a consumer finds %v, before %v", d.when, got, want)
	}
	for _, seg := range l.Segments() {
		if err := seg.CheckIndexes(false); err != nil {
			t.Fatalf("%s: %v", d.when, err)
		}
	}
	for name := range strings.FieldsSeq(listing(d.fsys)) {
		if strings.HasSuffix(name, segment.CleanedSuffix) || strings.HasSuffix(name, segment.SwapSuffix) {
			t.Fatalf("%s: %s is left", d.when, name)
		}
	}
}

// TestFailureDuringACleaningLosesNothing fails one operation of a round after the other, and goes on with a disk that works
// again: what the round did once the log had failed must not have taken the segments away.
func TestFailureDuringACleaningLosesNothing(t *testing.T) {
	failures := 0
	for n, met := int64(1), true; met; n++ {
		met = false
		synctest.Test(t, func(t *testing.T) {
			mem := vfs.NewMem()
			var s vfs.Switch
			o := testOptions(vfs.NewErr(mem, &s))
			o.Config.CleanupCompact, o.Config.CleanupDelete, o.Config.MinCleanableDirtyRatio = true, false, 0
			l := openLog(t, o)
			for i := range 12 {
				b := record.NewBuilder(record.BuilderOptions{})
				b.Add(int64(i), []byte{'k', byte(i % 5)}, []byte(strconv.Itoa(i)), nil)
				_, err := l.AppendAsLeader(b.Bytes(), 0, AppendOptions{AloneInSync: true})
				must(t, err)
				if i%4 == 3 {
					must(t, l.Roll())
				}
			}
			must(t, l.Flush(12))
			l.bg.wait()
			before, want := l.State(), latest(t, l)
			failing := &told{Injector: vfs.FailNth(n, syscall.EIO, changes)}
			s.Set(failing)
			cleanAll(mem, l)
			l.CloseUnclean()
			s.Set(nil)
			failed := failing.what()
			met = failed != ""
			o.RecoveryPoint = before.RecoveryPoint
			again, err := OpenLog(o)
			if err != nil {
				t.Fatalf("after a failed %s: %v", failed, err)
			}
			_, err = again.UpdateHighWatermark(12)
			must(t, err)
			if got := latest(t, again); !maps.Equal(got, want) || again.State().LogEndOffset != before.LogEndOffset {
				t.Errorf("after a failed %s a consumer finds %v up to %d, before %v\n%s", failed, got, again.State().LogEndOffset, want, listing(mem))
			}
			again.CloseUnclean()
		})
		failures++
	}
	if failures < 20 {
		t.Errorf("only %d failures", failures)
	}
}
