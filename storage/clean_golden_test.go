package storage

import (
	"bytes"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gregor/protocol/record"
	"gregor/storage/cleaner"
	"gregor/storage/segment"
	"gregor/storage/vfs"
)

// oneLog gives a cleaner a single log.
type oneLog struct{ c cleanable }

func (o oneLog) Compacted() iter.Seq[cleaner.Log] {
	return func(yield func(cleaner.Log) bool) {
		if o.c.l.Config().CleanupCompact {
			yield(o.c)
		}
	}
}

func (o oneLog) IsCurrent(cleaner.Log) bool { return true }

// cleanableLog makes what the cleaner needs of a Manager for a log that is opened without one.
func cleanableLog(fsys vfs.FS, l *Log) cleanable {
	m := &Manager{fs: fsys}
	p := l.topicPartition()
	return cleanable{m: m, l: l, d: &logDir{
		fs: fsys, path: path.Dir(l.Dir()), logs: map[TopicPartition]*Log{p: l}, placing: new(sync.RWMutex),
		written: map[string]map[TopicPartition]int64{}, lowered: map[TopicPartition]loweredPoint{},
		space: newSpaceWatch(fsys, slog.New(slog.DiscardHandler), path.Dir(l.Dir())),
	}}
}

func cleanerConfig() cleaner.Config {
	c := cleaner.DefaultConfig()
	c.DedupeBytes = 1 << 20
	return c
}

// cleanAll lets the cleaner go over a log until it finds nothing more. In a synctest bubble.
func cleanAll(fsys vfs.FS, l *Log) *cleaner.Pool {
	p := cleaner.NewPool(oneLog{cleanableLog(fsys, l)}, cleanerConfig(), nil)
	p.Start()
	synctest.Wait()
	p.Stop()
	return p
}

func sleepUntil(millis int64) { time.Sleep(time.Until(time.UnixMilli(millis))) }

// compactCase is one of the topics that Kafka compacted.
type compactCase struct {
	dir                   string
	policy                string
	deleteRetentionMillis int64
}

var compactCases = []compactCase{
	{dir: "compact-0", policy: "compact", deleteRetentionMillis: 86400000},
	{dir: "compact-lz4-0", policy: "compact", deleteRetentionMillis: 86400000},
	{dir: "compact-tombs-0", policy: "compact"},
	{dir: "compact-txn-0", policy: "compact", deleteRetentionMillis: 86400000},
	{dir: "compact-txn-tombs-0", policy: "compact"},
	{dir: "compact-idem-0", policy: "compact", deleteRetentionMillis: 86400000},
	{dir: "compact-delete-0", policy: "compact,delete", deleteRetentionMillis: 86400000},
}

func (c *compactCase) config(t *testing.T) LogConfig {
	t.Helper()
	config, err := testConfig().With(map[string]string{
		"cleanup.policy": c.policy, "delete.retention.ms": strconv.FormatInt(c.deleteRetentionMillis, 10), "min.cleanable.dirty.ratio": "0",
		"segment.ms": "60000", "retention.ms": map[string]string{"compact": "-1", "compact,delete": "630720000000"}[c.policy],
	})
	must(t, err)
	return config
}

// cleanedAt tells when Kafka cleaned: the first delete horizon in the .log files that is above a time, less the
// retention; any time when there is none.
func (c *compactCase) cleanedAt(t *testing.T, files map[string][]byte, after int64) int64 {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !strings.HasSuffix(name, segment.LogSuffix) {
			continue
		}
		for b, err := range record.Batches(files[name]) {
			must(t, err)
			if h := b.DeleteHorizonMillis() - c.deleteRetentionMillis; b.HasDeleteHorizon() && h > after {
				return h
			}
		}
	}
	return max(after, 1796000000000)
}

// batchLines describes the batches of .log files, records and all; what depends on the compressor is left out.
func batchLines(t *testing.T, files map[string][]byte) string {
	t.Helper()
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !strings.HasSuffix(name, segment.LogSuffix) {
			continue
		}
		fmt.Fprintf(&out, "%s\n", name)
		for b, err := range record.Batches(files[name]) {
			must(t, err)
			fmt.Fprintf(&out, " %d-%d n=%d %s attributes=%#x max=%d epoch=%d producer=%d/%d/%d base=%d valid=%t\n", b.BaseOffset(), b.LastOffset(),
				b.Count(), b.Codec(), b.Attributes(), b.MaxTimestamp(), b.LeaderEpoch(), b.ProducerID(), b.ProducerEpoch(), b.BaseSequence(), b.BaseTimestamp(), b.CRCValid())
			for r, err := range b.Records(record.Limits{}) {
				must(t, err)
				fmt.Fprintf(&out, "  %d t=%d key=%q value=%q (%t) headers=%q\n", r.Offset, r.Timestamp, r.Key, r.Value, r.Value == nil, r.Headers)
			}
		}
	}
	return out.String()
}

// compareFiles compares the files of a partition: the .log of all segments, the indexes of all but the active one
// (Kafka was running). Producer snapshots are left out, those at the log end come from our start.
func compareFiles(t *testing.T, got, want map[string][]byte, active int64, compressed bool) {
	t.Helper()
	compared := func(name string) bool {
		base, suffix, ok := segment.ParseFileName(name)
		if !ok || suffix == segment.SnapshotSuffix || strings.HasSuffix(suffix, segment.DeletedSuffix) {
			return false
		}
		return suffix == segment.LogSuffix || base != active
	}
	for _, files := range []map[string][]byte{got, want} {
		maps.DeleteFunc(files, func(name string, _ []byte) bool { return !compared(name) })
	}
	if g, w := batchLines(t, got), batchLines(t, want); g != w {
		t.Errorf("batches differ from Kafka's\ngot:\n%s\nwant:\n%s", g, w)
	}
	if g, w := slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)); !slices.Equal(g, w) {
		t.Errorf("files %v, Kafka has %v", g, w)
	}
	if len(want) < 4 {
		t.Error("nothing to compare with")
	}
	for name, b := range got {
		if compressed && strings.HasSuffix(name, segment.LogSuffix) {
			continue // the batches are the same, the compressor is not
		}
		if !bytes.Equal(b, want[name]) {
			t.Errorf("%s: got %d bytes %.80x, Kafka has %d bytes %.80x", name, len(b), b, len(want[name]), want[name])
		}
	}
}

// compactingDirs is before/, first/ and data/: partition directories before any cleaning, after the first one, and
// after more writes and cleanings.
func compactingDirs(t *testing.T) map[string]map[string][]byte {
	t.Helper()
	dirs := readArchive(t, "compacting").dirs()
	for _, files := range dirs {
		delete(files, "")
	}
	return dirs
}

// TestFirstCleaningLeavesWhatKafkasLeft cleans at the moment when Kafka did and compares all files, byte by byte.
func TestFirstCleaningLeavesWhatKafkasLeft(t *testing.T) {
	a := compactingDirs(t)
	for _, c := range compactCases {
		t.Run(c.dir, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				before, first := a["before/"+c.dir], a["first/"+c.dir]
				sleepUntil(c.cleanedAt(t, first, 0))
				fsys := vfs.NewMem()
				install(t, fsys, testDir, before)
				o := testOptions(fsys)
				o.Config = c.config(t)
				l := openLog(t, o)
				_, err := l.UpdateHighWatermark(1 << 60)
				must(t, err)
				p := cleanAll(fsys, l)
				l.bg.wait()
				if got := l.State().CleanedTo; got != l.State().ActiveSegmentBase {
					t.Errorf("cleaned to %d, the active segment starts at %d", got, l.State().ActiveSegmentBase)
				}
				if m := p.Metrics(); m.Rounds != 1 || len(m.Uncleanable) > 0 {
					t.Errorf("metrics %+v", m)
				}
				compareFiles(t, tree(t, fsys, testDir), first, l.State().ActiveSegmentBase, strings.Contains(c.dir, "lz4"))
				l.CloseUnclean()
			})
		})
	}
}

// appendPlain appends a record as the recording's producer did.
func appendPlain(t *testing.T, l *Log, timestamp int64, key, value string) {
	t.Helper()
	b := record.NewBuilder(record.BuilderOptions{})
	b.Add(timestamp, []byte(key), []byte(value), nil)
	_, err := l.AppendAsLeader(b.Bytes(), 0, AppendOptions{LogAppendTimeMillis: -1, AloneInSync: true})
	must(t, err)
}

// TestLaterCleaningsLeaveWhatKafkasLeft goes on as the recording did: more records, then further cleanings.
func TestLaterCleaningsLeaveWhatKafkasLeft(t *testing.T) {
	a := compactingDirs(t)
	for _, c := range compactCases {
		t.Run(c.dir, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first, data := a["first/"+c.dir], a["data/"+c.dir]
				firstAt := c.cleanedAt(t, first, 0)
				sleepUntil(firstAt)
				fsys := vfs.NewMem()
				install(t, fsys, testDir, first)
				o := testOptions(fsys)
				o.Config = c.config(t)
				l := openLog(t, o)
				_, err := l.UpdateHighWatermark(1 << 60)
				must(t, err)
				must(t, l.setCleanedTo(l.State().ActiveSegmentBase, 0))
				const t0 = 1700000000000
				base := int64(t0 + 20_000_000)
				if strings.HasPrefix(c.dir, "compact-txn") {
					base = 4102444800000
				}
				sleepUntil(c.cleanedAt(t, data, firstAt))
				for i := range int64(3) {
					appendPlain(t, l, base+i, fmt.Sprint("k", i), fmt.Sprint("second round ", i))
				}
				appendPlain(t, l, base+100_000, "roll1", "rolls the segment")
				cleanAll(fsys, l)
				if strings.Contains(c.dir, "tombs") {
					time.Sleep(time.Minute)
					appendPlain(t, l, base+300_000, "roll2", "rolls the segment")
					appendPlain(t, l, base+400_000, "roll3", "rolls the segment")
					cleanAll(fsys, l)
				}
				l.bg.wait()
				compareFiles(t, tree(t, fsys, testDir), data, l.State().ActiveSegmentBase, strings.Contains(c.dir, "lz4"))
				l.CloseUnclean()
			})
		})
	}
}
