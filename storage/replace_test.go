package storage

import (
	"bytes"
	"fmt"
	"slices"
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

// cleanedLog is a log of five segments of two batches each, the first four synced.
func cleanedLog(t *testing.T, fsys vfs.FS) (*Log, LogOptions) {
	t.Helper()
	o := testOptions(fsys)
	o.Config.CleanupCompact, o.Config.CleanupDelete, o.Config.FileDeleteDelayMillis = true, false, 1<<40
	l := openLog(t, o)
	for i := range 5 {
		appendBatch(t, l, 2, int64(10*i))
		appendBatch(t, l, 2, int64(10*i+5))
		if i < 4 {
			must(t, l.Roll())
		}
	}
	l.bg.wait()
	must(t, l.Flush(20))
	return l, o
}

// clean writes the first batch of the first and all of the third of three segments into a new one.
func clean(t *testing.T, l *Log) (cleaned *segment.Segment, old []*segment.Segment) {
	t.Helper()
	old = l.Segments()[:3]
	c, err := segment.Create(l.Dir(), old[0].Base(), 1, segment.CleanedSuffix, l.SegmentOptions())
	must(t, err)
	for i, s := range old {
		must(t, s.Verify(func(b record.Batch, _ int64) error {
			if i == 1 || i == 0 && b.BaseOffset() > 0 {
				return nil
			}
			return c.Append(slices.Clone(b))
		}))
	}
	must(t, c.Seal())
	return c, old
}

func baseOffsets(batches []byte) []int64 {
	var list []int64
	for b := range record.Validated(batches) {
		list = append(list, b.BaseOffset())
	}
	return list
}

// TestSwapDoesNotWaitForRemovals holds up the removal of deleted files while segments are swapped.
func TestSwapDoesNotWaitForRemovals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := cleanedLog(t, vfs.NewMem())
		hold := make(chan struct{})
		l.bg.runAside(func() { <-hold })
		cleaned, old := clean(t, l)
		must(t, l.ReplaceSegments([]*segment.Segment{cleaned}, old, 0))
		closed := false
		go func() {
			must(t, l.Close())
			closed = true
		}()
		synctest.Wait()
		if closed {
			t.Error("the log was closed while files were removed")
		}
		close(hold)
		synctest.Wait()
		if !closed {
			t.Error("the log was not closed")
		}
	})
}

// TestSwapOnADiskThatFillsUpMeanwhile refuses the first rename to *.deleted, then the second, and so on: the file goes at
// once, and when its delay is over the one that has its name by then stays.
func TestSwapOnADiskThatFillsUpMeanwhile(t *testing.T) {
	for refused := int64(1); ; refused++ {
		var full *told
		synctest.Test(t, func(t *testing.T) {
			fsys := vfs.NewMem()
			retiring := func(op vfs.Op) bool {
				return op.Kind == vfs.OpRename && strings.HasSuffix(op.NewName, segment.DeletedSuffix)
			}
			full = &told{Injector: vfs.FailNth(refused, syscall.ENOSPC, retiring)}
			l, o := cleanedLog(t, vfs.NewErr(fsys, full))
			cleaned, old := clean(t, l)
			must(t, l.ReplaceSegments([]*segment.Segment{cleaned}, old, 0))
			want := baseOffsets(contents(t, l, UpToLogEnd))
			time.Sleep(time.Duration(l.config.Load().FileDeleteDelayMillis+1) * time.Millisecond)
			l.bg.wait()
			for _, name := range namesIn(t, fsys, l.Dir()) {
				if strings.HasSuffix(name, segment.DeletedSuffix) {
					t.Errorf("rename %d: %s is left", refused, name)
				}
			}
			must(t, l.Close())
			o.FS, o.Files = fsys, nil
			l = openLog(t, o)
			if got := baseOffsets(contents(t, l, UpToLogEnd)); !slices.Equal(got, want) {
				t.Errorf("rename %d refused: batches %v, want %v", refused, got, want)
			}
			must(t, l.Close())
		})
		if full.what() == "" {
			if refused < 5 {
				t.Errorf("only %d renames", refused-1)
			}
			return
		}
	}
}

func TestCleanedSegmentTakesThePlaceOfOldOnes(t *testing.T) {
	fsys := vfs.NewMem()
	l, o := cleanedLog(t, fsys)
	reader, err := l.Read(4, 1000, UpToLogEnd, true)
	must(t, err)
	before := make([]byte, reader.Range.Len())
	_, err = reader.Range.ReadAt(before, 0)
	must(t, err)

	cleaned, old := clean(t, l)
	must(t, l.ReplaceSegments([]*segment.Segment{cleaned}, old, 0))
	want := []int64{0, 8, 10, 12, 14, 16, 18}
	if got := baseOffsets(contents(t, l, UpToLogEnd)); !slices.Equal(got, want) {
		t.Errorf("batches %v", got)
	}
	if s := l.State(); s.Segments != 3 || s.SizeBytes != 7*int64(len(batchOf(2, 1, record.BuilderOptions{}))) {
		t.Errorf("%d segments, %d bytes", s.Segments, s.SizeBytes)
	}
	// Whoever reads the old segment goes on.
	again := make([]byte, len(before))
	if _, err := reader.Range.ReadAt(again, 0); err != nil || !bytes.Equal(again, before) {
		t.Errorf("old range: %v", err)
	}
	reader.Range.Release()
	if err := l.ReplaceSegments([]*segment.Segment{cleaned}, old, 0); err == nil {
		t.Error("replaced what is no longer there")
	}
	must(t, l.Close())
	for _, clean := range []bool{true, false} {
		o.HadCleanShutdown = clean // without: and without a recovery point, all is read
		if got := baseOffsets(contents(t, openLog(t, o), UpToLogEnd)); !slices.Equal(got, want) {
			t.Errorf("after a start: batches %v", got)
		}
	}
}

// TestCrashDuringASwapLeavesTheOldOrTheNewRecords cuts the power at every operation of a swap.
func TestCrashDuringASwapLeavesTheOldOrTheNewRecords(t *testing.T) {
	fsys := vfs.NewMem()
	must(t, fsys.MkdirAll("/data"))
	must(t, fsys.SyncDir("/"))
	l, o := cleanedLog(t, fsys)
	var mu sync.Mutex
	crashes, outcomes := 0, map[string]int{}
	fsys.OnOp(func(n int64, op vfs.Op) {
		mu.Lock()
		defer mu.Unlock()
		for _, seed := range []uint64{0, vfs.CrashKeepAll, uint64(n), uint64(n) + 1000} {
			after := fsys.Crash(seed)
			o := o
			o.FS, o.Files, o.RecoveryPoint = after, nil, 20
			again, err := OpenLog(o)
			if err != nil {
				t.Errorf("before operation %d (%s %s), seed %d: %v", n, op.Kind, op.Name, seed, err)
				continue
			}
			crashes++
			got := fmt.Sprint(baseOffsets(contents(t, again, UpToLogEnd)))
			outcomes[got]++
			if got != "[0 2 4 6 8 10 12 14 16 18]" && got != "[0 8 10 12 14 16 18]" {
				t.Errorf("before operation %d (%s %s), seed %d: batches %s", n, op.Kind, op.Name, seed, got)
			}
			for name := range strings.FieldsSeq(listing(after)) {
				if strings.HasSuffix(name, segment.CleanedSuffix) || strings.HasSuffix(name, segment.SwapSuffix) {
					t.Errorf("%s is left", name)
				}
			}
			for _, s := range again.Segments() {
				if err := s.CheckIndexes(false); err != nil {
					t.Errorf("before operation %d (%s %s), seed %d: %v", n, op.Kind, op.Name, seed, err)
				}
			}
			again.CloseUnclean()
		}
	})
	cleaned, old := clean(t, l)
	must(t, l.ReplaceSegments([]*segment.Segment{cleaned}, old, 0))
	must(t, l.Flush(20))
	l.bg.wait()
	fsys.OnOp(nil)
	if crashes < 50 || len(outcomes) != 2 {
		t.Errorf("%d crashes, outcomes %v", crashes, outcomes)
	}
}
