package storage

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"testing"

	"gregor/internal/recording"
	"gregor/protocol/record"
	"gregor/storage/vfs"
)

// archive is the files of a data directory that Kafka wrote, by path.
type archive map[string][]byte

func readArchive(t testing.TB, name string) archive {
	t.Helper()
	return recording.Read(t, os.DirFS("testdata"), name+".tar.gz")
}

// dirs returns the partition directories.
func (a archive) dirs() map[string]map[string][]byte {
	dirs := map[string]map[string][]byte{}
	for name, b := range a {
		dir, file := path.Split(name)
		if dir = path.Clean(dir); dir == "." {
			continue
		}
		if dirs[dir] == nil {
			dirs[dir] = map[string][]byte{}
		}
		dirs[dir][file] = b
	}
	return dirs
}

// table splits a tab-separated file of the archive into fields, grouped by the first one.
func (a archive) table(t testing.TB, name string) map[string][][]string {
	t.Helper()
	rows := map[string][][]string{}
	for line := range strings.Lines(string(a[name])) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		rows[fields[0]] = append(rows[fields[0]], fields[1:])
	}
	if len(rows) == 0 {
		t.Fatalf("no %s", name)
	}
	return rows
}

// checkpointOf returns the offset of a partition in an offset checkpoint of the archive.
func (a archive) checkpointOf(name, dir string) int64 {
	at := strings.LastIndexByte(dir, '-')
	for line := range strings.Lines(string(a[name])) {
		fields := strings.Fields(line)
		if len(fields) == 3 && fields[0] == dir[:at] && fields[1] == dir[at+1:] {
			n, _ := strconv.ParseInt(fields[2], 10, 64)
			return n
		}
	}
	return 0
}

func install(t testing.TB, fsys vfs.FS, dir string, files map[string][]byte) {
	t.Helper()
	must(t, fsys.MkdirAll(dir))
	for name, b := range files {
		must(t, vfs.WriteFile(fsys, path.Join(dir, name), b))
	}
	must(t, fsys.SyncDir(dir))
	must(t, fsys.SyncDir(path.Dir(dir)))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func number(t testing.TB, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	must(t, err)
	return n
}

// testConfig has small indexes, as the recordings of Kafka.
func testConfig() LogConfig {
	c := DefaultLogConfig()
	c.SegmentIndexBytes = 4096
	c.RetentionMillis = Unlimited
	return c
}

const testDir = "/data/t-0"

func testOptions(fsys vfs.FS) LogOptions {
	return LogOptions{FS: fsys, Dir: testDir, Topic: "t", Config: testConfig(), ProducerExpirationMillis: 1 << 60}
}

func openLog(t testing.TB, o LogOptions) *Log {
	t.Helper()
	l, err := OpenLog(o)
	must(t, err)
	t.Cleanup(l.CloseUnclean)
	return l
}

// batchOf makes a batch of n records with the given timestamp.
func batchOf(n int, timestamp int64, o record.BuilderOptions) record.Batch {
	b := record.NewBuilder(o)
	for i := range n {
		b.Add(timestamp, nil, []byte("value-"+strconv.Itoa(i)), nil)
	}
	return b.Bytes()
}

func appendBatch(t testing.TB, l *Log, n int, timestamp int64) AppendInfo {
	t.Helper()
	info, err := l.AppendAsLeader(batchOf(n, timestamp, record.BuilderOptions{}), 0, AppendOptions{LogAppendTimeMillis: -1})
	must(t, err)
	return info
}

// contents reads all batches below a bound.
func contents(t testing.TB, l *Log, upTo Bound) []byte {
	t.Helper()
	var all, buf []byte
	for at := l.State().LogStartOffset; ; {
		b, err := l.ReadBatches(at, buf, 1000, upTo)
		if errors.Is(err, io.EOF) {
			return all
		}
		must(t, err)
		for batch := range record.Validated(b) {
			at = batch.NextOffset()
		}
		all = append(all, b...)
		buf = b
	}
}

func mustEqualBytes(t testing.TB, what string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Errorf("%s: got %d bytes %.100x, want %d bytes %.100x", what, len(got), got, len(want), want)
	}
}

// told is an injector that tells what it has failed last.
type told struct {
	vfs.Injector

	mu     sync.Mutex
	failed string // guarded by mu
}

// Inject implements vfs.Injector.
func (f *told) Inject(op vfs.Op) error {
	err := f.Injector.Inject(op)
	if err != nil {
		f.mu.Lock()
		f.failed = fmt.Sprintf("%s of %s", op.Kind, op.Name)
		f.mu.Unlock()
	}
	return err
}

// what is empty when nothing has failed.
func (f *told) what() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed
}

// changes selects the operations that do more than look.
func changes(op vfs.Op) bool { return op.Kind != vfs.OpRead && op.Kind != vfs.OpStat }
