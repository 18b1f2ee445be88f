package storage

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"gregor/internal/invariants"
	"gregor/protocol/record"
	"gregor/storage/producer"
	"gregor/storage/segment"
	"gregor/storage/vfs"
)

// flipTries is how many damaged directories are opened; with assertions, and usually the race detector, fewer.
func flipTries() int {
	if invariants.Enabled {
		return 1000
	}
	return 10_000
}

// flipCase is a partition that Kafka wrote, and what is in it.
type flipCase struct {
	name    string
	files   map[string][]byte
	names   []string
	options LogOptions
	batches []record.Batch // from the log start on
	aborted []AbortedTxn
	lists   []string // of aborted transactions, by read
	states  []producer.State
	found   map[int64]TimestampOffset // by timestamps of batches
	start   int64
	end     int64
}

func flipCases(t *testing.T) []*flipCase {
	t.Helper()
	var cases []*flipCase
	for _, archive := range []string{"plain", "transactions", "compacted", "legacy"} {
		a := readArchive(t, archive)
		dirs := a.dirs()
		for _, dir := range slices.Sorted(maps.Keys(dirs)) {
			if strings.HasPrefix(dir, "large") || strings.HasPrefix(dir, "empty") {
				continue
			}
			c := &flipCase{name: archive + "/" + dir, files: dirs[dir], names: slices.Sorted(maps.Keys(dirs[dir]))}
			c.options = LogOptions{
				Dir: testDir, Topic: "t", Config: testConfig(), ProducerExpirationMillis: 1 << 60, HadCleanShutdown: archive != "legacy",
				LogStartOffset: a.checkpointOf("log-start-offset-checkpoint", dir), RecoveryPoint: a.checkpointOf("recovery-point-offset-checkpoint", dir),
			}
			l, err := c.open(t, c.files, c.options.HadCleanShutdown)
			must(t, err)
			for b, err := range record.Batches(contents(t, l, UpToLogEnd)) {
				must(t, err)
				c.batches = append(c.batches, b)
			}
			s := l.State()
			c.start, c.end = s.LogStartOffset, s.LogEndOffset
			c.aborted, err = l.AbortedTxns(c.start, c.end)
			must(t, err)
			c.lists, err = c.committed(l)
			must(t, err)
			c.states = sortedStates(l)
			c.found = map[int64]TimestampOffset{}
			for _, b := range c.batches {
				c.found[b.MaxTimestamp()], err = l.OffsetForTimestamp(b.MaxTimestamp(), UpToLogEnd)
				must(t, err)
			}
			l.CloseUnclean()
			cases = append(cases, c)
		}
	}
	return cases
}

func sortedStates(l *Log) []producer.State {
	states := l.ActiveProducers()
	slices.SortFunc(states, func(a, b producer.State) int { return int(a.ProducerID - b.ProducerID) })
	return states
}

func (c *flipCase) open(t *testing.T, files map[string][]byte, clean bool) (*Log, error) {
	t.Helper()
	o := c.options
	m := vfs.NewMem()
	install(t, m, testDir, files)
	o.FS, o.HadCleanShutdown = m, clean
	l, err := OpenLog(o)
	if err == nil {
		_, err = l.UpdateHighWatermark(1 << 60)
	}
	return l, err
}

// flip is a damaged file.
type flip struct {
	file string
	bits []int // positions
}

// damage flips one to four bits of one file.
func (c *flipCase) damage(r *rand.Rand) (map[string][]byte, flip) {
	files := maps.Clone(c.files)
	for {
		f := flip{file: c.names[r.IntN(len(c.names))]}
		raw := bytes.Clone(files[f.file])
		if len(raw) == 0 {
			continue
		}
		for range 1 + r.IntN(4) {
			bit := r.IntN(8 * len(raw))
			raw[bit/8] ^= 1 << (bit % 8)
			f.bits = append(f.bits, bit)
		}
		files[f.file] = raw
		return files, f
	}
}

// TestFlippedBitsNeverGiveAWrongRecord damages files of partitions at random and reads all that can be read. There is
// no panic; what is read is what was written, or its CRC tells that it is not, or an error names the file.
//
// Kafka's format leaves some bytes unprotected, and these can change unseen: of a batch the offset (but not its order)
// and the leader epoch, of the small text files the numbers, of the transaction index the producer ids. A test of the
// records therefore compares what the CRC covers.
func TestFlippedBitsNeverGiveAWrongRecord(t *testing.T) {
	cases := flipCases(t)
	for try := range flipTries() {
		seed := uint64(try)
		r := rand.New(rand.NewPCG(seed, 4))
		c := cases[r.IntN(len(cases))]
		files, f := c.damage(r)
		clean := r.IntN(3) > 0 && c.options.HadCleanShutdown
		if problem := c.check(t, files, f, clean); problem != "" {
			t.Errorf("seed %d: %s, clean %t, bits %v of %s: %s", seed, c.name, clean, f.bits, f.file, problem)
		}
		if t.Failed() && try > 0 && testing.Short() {
			return
		}
	}
}

// named tells whether an error says which file is damaged. A lookup may meet the damage of an index in the log.
func named(err error, f flip) bool {
	base, _, _ := strings.Cut(f.file, ".")
	return strings.Contains(err.Error(), path.Join(testDir, f.file)) || strings.Contains(err.Error(), path.Join(testDir, base)+segment.LogSuffix)
}

// check opens and reads a damaged partition and tells what is wrong with the result.
func (c *flipCase) check(t *testing.T, files map[string][]byte, f flip, clean bool) (problem string) {
	t.Helper()
	defer func() {
		if p := recover(); p != nil {
			problem = fmt.Sprintf("panic: %v", p)
		}
	}()
	l, err := c.open(t, files, clean)
	if err != nil {
		if !named(err, f) {
			return "open: the error names no file: " + err.Error()
		}
		return ""
	}
	defer l.CloseUnclean()
	if problem := c.readAll(l, f); problem != "" {
		return problem
	}
	if problem := c.lookups(l, f); problem != "" {
		return problem
	}
	intact := strings.HasSuffix(f.file, segment.SnapshotSuffix) || strings.HasSuffix(f.file, "index")
	if !intact {
		return ""
	}
	// What the log holds decides what files beside it say.
	if s := l.State(); s.LogStartOffset != c.start || s.LogEndOffset != c.end {
		return fmt.Sprintf("offsets %d to %d, were %d to %d", s.LogStartOffset, s.LogEndOffset, c.start, c.end)
	}
	if got := sortedStates(l); !slices.EqualFunc(got, c.states, sameState) {
		return fmt.Sprintf("producers %+v, were %+v", got, c.states)
	}
	return c.checkAborted(l, f)
}

// committed are the aborted transactions that come with reads of a few batches each.
func (c *flipCase) committed(l *Log) (lists []string, err error) {
	for _, b := range c.batches {
		r, err := l.Read(max(b.BaseOffset(), c.start), 200, UpToLastStable, true)
		if err != nil {
			return lists, err
		}
		if r.Range != nil {
			r.Range.Release()
		}
		lists = append(lists, fmt.Sprint(b.BaseOffset(), r.AbortedTxns))
	}
	return lists, nil
}

func sameState(a, b producer.State) bool {
	return a.ProducerID == b.ProducerID && a.Epoch == b.Epoch && a.CurrentTxnFirstOffset == b.CurrentTxnFirstOffset && lastBatch(a) == lastBatch(b)
}

// lastBatch is the newest batch of a producer, which a snapshot holds; the log gives the last five.
func lastBatch(s producer.State) producer.BatchMeta {
	if all := s.Batches(); len(all) > 0 {
		return all[len(all)-1]
	}
	return producer.BatchMeta{}
}

func (c *flipCase) checkAborted(l *Log, f flip) string {
	got, err := l.AbortedTxns(c.start, c.end)
	switch {
	case err != nil && !named(err, f):
		return "aborted transactions: the error names no file: " + err.Error()
	case err == nil && !slices.Equal(got, c.aborted):
		return fmt.Sprintf("aborted transactions %v, were %v", got, c.aborted)
	}
	lists, err := c.committed(l)
	switch {
	case err != nil && !named(err, f):
		return "read_committed: the error names no file: " + err.Error()
	case err == nil && !slices.Equal(lists, c.lists):
		return fmt.Sprintf("aborted transactions of reads %v, were %v", lists, c.lists)
	}
	return ""
}

// readAll reads from the log start to the end.
func (c *flipCase) readAll(l *Log, f flip) string {
	s := l.State()
	var buf []byte
	for at := s.LogStartOffset; at < s.LogEndOffset; {
		raw, err := l.ReadBatches(at, buf, 3000, UpToLogEnd)
		if err != nil {
			if !named(err, f) {
				return fmt.Sprintf("read at %d: the error names no file: %v", at, err)
			}
			return ""
		}
		before := at
		for b, err := range record.Batches(raw) {
			if err != nil {
				return "" // as a consumer finds it: the bytes are no batch
			}
			if problem := c.compare(b); problem != "" {
				return problem
			}
			at = max(at, b.NextOffset())
		}
		if at == before {
			return fmt.Sprintf("no progress at %d", at)
		}
		buf = raw
	}
	return ""
}

// compare looks for a batch among those that were written.
func (c *flipCase) compare(b record.Batch) string {
	if !b.CRCValid() {
		return ""
	}
	covered := record.HeaderSizeBytes - 40 // attributes on
	if b.Magic() < 2 {
		covered = 16
	}
	if !slices.ContainsFunc(c.batches, func(w record.Batch) bool { return len(w) == len(b) && bytes.Equal(w[covered:], b[covered:]) }) {
		return fmt.Sprintf("batch %d-%d was never written and has a valid CRC", b.BaseOffset(), b.LastOffset())
	}
	return ""
}

// lookups finds every batch by offset and by time.
func (c *flipCase) lookups(l *Log, f flip) string {
	if strings.HasSuffix(f.file, segment.LogSuffix) || f.file == "partition.metadata" {
		return ""
	}
	for _, w := range c.batches {
		raw, err := l.ReadBatches(max(w.BaseOffset(), c.start), nil, 1, UpToLogEnd)
		if err != nil {
			if !named(err, f) {
				return fmt.Sprintf("read at %d: the error names no file: %v", w.BaseOffset(), err)
			}
			continue
		}
		if b, _, err := record.Next(raw); err != nil || b.LastOffset() < w.BaseOffset() || !bytes.HasPrefix(raw, w) && b.LastOffset() >= w.LastOffset() {
			return fmt.Sprintf("a read at %d gives the batch %d-%d", w.BaseOffset(), b.BaseOffset(), b.LastOffset())
		}
		found, err := l.OffsetForTimestamp(w.MaxTimestamp(), UpToLogEnd)
		var corrupt *CorruptError
		if err != nil && !errors.As(err, &corrupt) {
			return fmt.Sprintf("lookup of the timestamp %d: %v", w.MaxTimestamp(), err)
		}
		if want := c.found[w.MaxTimestamp()]; err == nil && found.Offset != want.Offset {
			return fmt.Sprintf("the first record at %d is %+v, was %+v", w.MaxTimestamp(), found, want)
		}
	}
	return ""
}

// TestFlippedBitsBesideThePartitions damages the files of the log directory itself. Whatever a checkpoint says, no record
// changes; meta.properties can refuse the start, and says so.
func TestFlippedBitsBesideThePartitions(t *testing.T) {
	open := func() *vfs.Mem {
		fsys, _ := kafkaDir(t, "plain", true)
		must(t, vfs.WriteFile(fsys, "/data/cleaner-offset-checkpoint", []byte("0\n2\nkeyed 0 7\nedge 1 3\n")))
		return fsys
	}
	fsys := open()
	before := map[string]string{}
	m, err := OpenManager(managerOptions(fsys, "/data"))
	must(t, err)
	must(t, m.Load(LoadOptions{}))
	for l := range m.Logs() {
		before[path.Base(l.Dir())] = string(contents(t, l, UpToLogEnd))
	}
	m.Kill()
	names := []string{
		"meta.properties", "recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint", ".kafka_cleanshutdown",
		"cleaner-offset-checkpoint",
	}
	for try := range flipTries() / 100 {
		r := rand.New(rand.NewPCG(uint64(try), 6))
		fsys := open()
		name := names[r.IntN(len(names))]
		raw, err := vfs.ReadFile(fsys, "/data/"+name)
		must(t, err)
		raw = bytes.Clone(raw)
		bit := r.IntN(8 * len(raw))
		raw[bit/8] ^= 1 << (bit % 8)
		must(t, vfs.WriteFile(fsys, "/data/"+name, raw))
		lines := &syncBuffer{}
		o := managerOptions(fsys, "/data")
		o.Logger = textLogger(lines)
		m, err := OpenManager(o)
		if err == nil {
			err = m.Load(LoadOptions{})
		}
		if err != nil {
			if name != "meta.properties" || !strings.Contains(err.Error()+lines.String(), name) {
				t.Errorf("seed %d: bit %d of %s: %v", try, bit, name, err)
			}
			continue
		}
		for l := range m.Logs() {
			// A false log start can hide records, or show deleted ones; what shows is what was written.
			got, want := contents(t, l, UpToLogEnd), before[path.Base(l.Dir())]
			if !strings.HasSuffix(want, string(got)) && !bytes.HasSuffix(got, []byte(want)) {
				t.Errorf("seed %d: bit %d of %s: %s has other records", try, bit, name, l.Dir())
			}
		}
		m.Kill()
	}
}
