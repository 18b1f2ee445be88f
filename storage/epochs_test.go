package storage

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"gregor/protocol/record"
	"gregor/storage/vfs"
)

// TestEpochHistoryAnswersLikeAListOfRecords compares the cache with what the epochs of all records say.
func TestEpochHistoryAnswersLikeAListOfRecords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fsys := vfs.NewMem()
		if err := fsys.MkdirAll(testDir); err != nil {
			t.Fatal(err)
		}
		c, err := loadEpochs(fsys, testDir)
		if err != nil {
			t.Fatal(err)
		}
		var records []int32 // epoch of each offset
		start := 0
		epoch := int32(0)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"append", "append", "elect", "truncate", "start", "reload"}).Draw(t, "step") {
			case "append":
				c.assign(epoch, int64(len(records)))
				records = append(records, epoch)
			case "elect":
				epoch += int32(rapid.IntRange(1, 3).Draw(t, "by"))
			case "truncate":
				end := rapid.IntRange(start, len(records)).Draw(t, "end")
				c.truncateEnd(int64(end))
				records = records[:end]
			case "start":
				start = rapid.IntRange(start, len(records)).Draw(t, "start")
				c.truncateStart(int64(start))
			case "reload":
				if err := c.flush(); err != nil {
					t.Fatal(err)
				}
				if c, err = loadEpochs(fsys, testDir); err != nil {
					t.Fatal(err)
				}
				before := fsys.Ops()
				if err := c.flush(); err != nil || fsys.Ops() != before {
					t.Fatal("a fresh history is behind its file", err)
				}
			}
			if start < len(records) {
				checkEpochs(t, c, records, start)
			}
		}
	})
}

func checkEpochs(t *rapid.T, c *epochCache, records []int32, start int) {
	for offset := start; offset < len(records); offset++ {
		if got, ok := c.forOffset(int64(offset)); !ok || got != records[offset] {
			t.Fatalf("epoch of %d is %d, want %d: %v", offset, got, records[offset], c.all())
		}
	}
	last := records[len(records)-1]
	for epoch := int32(-1); epoch <= last+1; epoch++ {
		found, end := c.endOffset(epoch, int64(len(records)))
		wantFound, wantEnd := int32(-1), int64(-1)
		if epoch >= 0 && epoch <= last {
			wantFound, wantEnd = epoch, int64(start)
			next := slices.IndexFunc(records[start:], func(e int32) bool { return e > epoch })
			switch {
			case next < 0:
				wantFound, wantEnd = last, int64(len(records))
			case next > 0:
				wantFound, wantEnd = records[start+next-1], int64(start+next)
			}
		}
		if found != wantFound || end != wantEnd {
			t.Fatalf("epoch %d: found %d ending at %d, want %d at %d: %v", epoch, found, end, wantFound, wantEnd, c.all())
		}
	}
}

func TestEpochGetsItsEntryWithRecordsAndBeforeTheRecoveryPointPassesThem(t *testing.T) {
	fsys := vfs.NewMem()
	l := openLog(t, testOptions(fsys))
	epochs := func() string { return string(readFile(t, fsys, "leader-epoch-checkpoint")) }
	before := fsys.Ops()
	must(t, l.AssignEpochStart(5, 0))
	l.bg.wait()
	if fsys.Ops() != before || epochs() != "" {
		t.Errorf("becoming the leader of an empty log wrote %q", epochs())
	}
	if e, ok := l.LatestEpoch(); e != 5 || !ok {
		t.Errorf("the epoch is %d, %t", e, ok)
	}
	_, err := l.AppendAsLeader(batchOf(2, 1, record.BuilderOptions{}), 5, AppendOptions{LogAppendTimeMillis: -1})
	must(t, err)
	must(t, l.AssignEpochStart(6, 2))
	must(t, l.AssignEpochStart(7, 2))
	must(t, l.Flush(2))
	if l.State().RecoveryPoint != 2 || epochs() != "0\n1\n5 0\n" {
		t.Errorf("recovery point %d with the file %q", l.State().RecoveryPoint, epochs())
	}
	_, err = l.AppendAsLeader(batchOf(1, 1, record.BuilderOptions{}), 7, AppendOptions{LogAppendTimeMillis: -1})
	must(t, err)
	must(t, l.Roll())
	l.bg.wait()
	if l.State().RecoveryPoint != 3 || epochs() != "0\n2\n5 0\n7 2\n" {
		t.Errorf("after a roll: recovery point %d with the file %q", l.State().RecoveryPoint, epochs())
	}
	// An epoch that starts below the end changes history.
	must(t, l.AssignEpochStart(8, 1))
	if epochs() != "0\n2\n5 0\n8 1\n" {
		t.Errorf("the file holds %q", epochs())
	}
	must(t, l.AssignEpochStart(9, 3))
	must(t, l.Close())
	if epochs() != "0\n3\n5 0\n8 1\n9 3\n" {
		t.Errorf("after a clean stop the file holds %q", epochs())
	}
}
