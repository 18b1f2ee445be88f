package storage

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"gregor/protocol/record"
	"gregor/storage/producer"
	"gregor/storage/vfs"
)

// crashModel is what a log under test may hold at a moment of a random workload. Before each step it is told
// what the step may change, so that a crash in its middle can be judged.
type crashModel struct {
	mu         sync.Mutex
	batches    []record.Batch // all that may be there, in order
	durable    int64          // the log must reach at least to here
	start      int64          // and start at or below
	checkpoint int64          // recovery point in the checkpoint file
	clean      bool           // closed cleanly: all is durable, and the start is lazy
}

type crashState struct {
	batches                    []record.Batch
	durable, start, checkpoint int64
	clean                      bool
}

func (m *crashModel) get() crashState {
	m.mu.Lock()
	defer m.mu.Unlock()
	return crashState{slices.Clone(m.batches), m.durable, m.start, m.checkpoint, m.clean}
}

func (m *crashModel) change(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
}

func (m *crashModel) end() int64 {
	if n := len(m.batches); n > 0 {
		return m.batches[n-1].NextOffset()
	}
	return 0
}

func crashConfig(dice *rand.Rand) LogConfig {
	c := testConfig()
	c.SegmentBytes, c.IndexIntervalBytes, c.FileDeleteDelayMillis = 1500, 200, 0
	c.SegmentMillis = 1 << 40
	c.Preallocate = dice.IntN(4) == 0
	return c
}

// crashWorkload runs a random workload and calls crashed before every operation of the file system.
func crashWorkload(t *testing.T, seed uint64, steps int, disk *fillingDisk, crashed func(n int64, op vfs.Op, m *crashModel, fsys *vfs.Mem, c LogConfig)) {
	t.Helper()
	dice := rand.New(rand.NewPCG(seed, 1))
	fsys, m := vfs.NewMem(), &crashModel{}
	must(t, fsys.MkdirAll(path.Dir(testDir)))
	must(t, fsys.SyncDir("/"))
	config := crashConfig(dice)
	fsys.OnOp(func(n int64, op vfs.Op) { crashed(n, op, m, fsys, config) })
	defer fsys.OnOp(nil)

	options := func() LogOptions {
		o := testOptions(vfs.NewErr(fsys, disk))
		o.Config = config
		s := m.get()
		o.HadCleanShutdown, o.RecoveryPoint, o.LogStartOffset = s.clean, s.checkpoint, s.start
		o.Events.RecoveryPointLowered = func(_ *Log, offset int64) error {
			m.change(func() { m.checkpoint = min(m.checkpoint, offset) })
			return nil
		}
		return o
	}
	l, err := OpenLog(options())
	must(t, err)
	w := &crashSteps{m: m, dice: dice, disk: disk, sequences: map[int64]int32{}}
	for range steps {
		disk.fill(dice)
		l = w.step(t, l, options)
		if dice.IntN(3) == 0 {
			l.bg.wait()
		}
		if dice.IntN(3) == 0 {
			s := l.State()
			m.change(func() { m.checkpoint = s.RecoveryPoint })
		}
	}
	disk.empty()
	must(t, l.Close())
}

type crashSteps struct {
	m         *crashModel
	dice      *rand.Rand
	disk      *fillingDisk
	sequences map[int64]int32
}

func (w *crashSteps) step(t *testing.T, l *Log, options func() LogOptions) *Log {
	t.Helper()
	m := w.m
	switch w.dice.IntN(12) {
	case 0, 1:
		must(t, l.Flush(l.State().LogEndOffset))
		m.change(func() { m.durable = l.State().LogEndOffset })
	case 2:
		mustOrFull(t, l.Roll())
	case 3:
		s := l.State()
		to := s.HighWatermark + w.dice.Int64N(s.LogEndOffset-s.HighWatermark+1)
		to = w.boundary(to)
		m.change(func() { m.durable = min(m.durable, to) })
		err := l.TruncateTo(to)
		mustOrFull(t, err)
		if err != nil {
			return l
		}
		m.change(func() {
			m.batches = slices.DeleteFunc(m.batches, func(b record.Batch) bool { return b.LastOffset() >= to })
		})
		w.sequences = map[int64]int32{}
	case 4:
		s := l.State()
		_, err := l.UpdateHighWatermark(w.boundary(s.HighWatermark + w.dice.Int64N(s.LogEndOffset-s.HighWatermark+1)))
		must(t, err)
	case 5:
		s := l.State()
		start := s.LogStartOffset + w.dice.Int64N(s.HighWatermark-s.LogStartOffset+1)
		m.change(func() { m.start = max(m.start, start) })
		_, err := l.IncrementLogStartOffset(start)
		must(t, err)
		_, err = l.DeleteOldSegments(l.LastFlushed())
		mustOrFull(t, err)
	case 6:
		w.disk.empty()
		must(t, l.Close())
		m.change(func() { m.durable, m.clean = m.end(), true })
		reopened, err := OpenLog(options())
		must(t, err)
		_, err = reopened.UpdateHighWatermark(reopened.State().LogStartOffset)
		must(t, err)
		m.change(func() { m.clean, m.checkpoint = false, reopened.State().RecoveryPoint })
		return reopened
	default:
		w.append(t, l)
	}
	return l
}

// boundary rounds an offset down to the start of a batch.
func (w *crashSteps) boundary(offset int64) int64 {
	for _, b := range w.m.get().batches {
		if offset > b.BaseOffset() && offset <= b.LastOffset() {
			return b.BaseOffset()
		}
	}
	return offset
}

func (w *crashSteps) append(t *testing.T, l *Log) {
	t.Helper()
	var all []byte
	before, sequences := w.m.get().batches, maps.Clone(w.sequences)
	next := l.State().LogEndOffset
	for range 1 + w.dice.IntN(2) {
		n := 1 + w.dice.IntN(4)
		o := record.BuilderOptions{BaseOffset: next, LeaderEpoch: int32(next / 40)}
		if id := w.dice.Int64N(4); id > 0 {
			o.HasProducer, o.ProducerID, o.BaseSequence = true, id, w.sequences[id]
			w.sequences[id] += int32(n)
		}
		b := record.NewBuilder(o)
		for range n {
			b.Add(1700000000000+w.dice.Int64N(1000), nil, bytes.Repeat([]byte{byte(next)}, w.dice.IntN(120)), nil)
		}
		batch := b.Bytes()
		next = batch.NextOffset()
		all = append(all, batch...)
		w.m.change(func() { w.m.batches = append(w.m.batches, batch) })
	}
	s, epochs := *l.State(), l.EpochEntries()
	_, err := l.AppendAsFollower(all, 1000)
	mustOrFull(t, err)
	if err == nil {
		return
	}
	w.m.change(func() { w.m.batches = before })
	w.sequences = sequences
	if now := l.State(); now.LogEndOffset != s.LogEndOffset || now.SizeBytes != s.SizeBytes || now.Segments != s.Segments {
		t.Fatalf("a refused append has changed %+v to %+v", s, now)
	}
	if now := l.EpochEntries(); !slices.Equal(now, epochs) {
		t.Fatalf("a refused append has changed the epochs %v to %v", epochs, now)
	}
	var want []byte
	for _, b := range before {
		if b.LastOffset() >= s.LogStartOffset {
			want = append(want, b...)
		}
	}
	mustEqualBytes(t, "records after a refused append", contents(t, l, UpToLogEnd), want)
	must(t, checkProducers(l, want))
}

// checkRecovered opens what a crash left and judges it.
func checkRecovered(t *testing.T, fsys *vfs.Mem, m crashState, config LogConfig) error {
	t.Helper()
	o := testOptions(fsys)
	o.Config = config
	o.HadCleanShutdown, o.RecoveryPoint, o.LogStartOffset = m.clean, m.checkpoint, m.start
	l, err := OpenLog(o)
	if err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	defer l.CloseUnclean()
	s := l.State()
	if s.LogEndOffset < m.durable {
		return fmt.Errorf("the log ends at %d, below %d, which was synced", s.LogEndOffset, m.durable)
	}
	if s.LogStartOffset > max(m.start, m.durable) {
		return fmt.Errorf("the log starts at %d, above %d", s.LogStartOffset, m.start)
	}
	got := contents(t, l, UpToLogEnd)
	var want []byte
	for _, b := range m.batches {
		if b.LastOffset() >= s.LogStartOffset && b.LastOffset() < s.LogEndOffset {
			want = append(want, b...)
		}
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("the log [%d, %d) is not a prefix of what was written: %d bytes, want %d", s.LogStartOffset, s.LogEndOffset, len(got), len(want))
	}
	for i, seg := range s.segments {
		if err := seg.CheckIndexes(i == len(s.segments)-1 && !m.clean); err != nil {
			return fmt.Errorf("segment %d: %w", seg.Base(), err)
		}
	}
	if err := checkProducers(l, got); err != nil {
		return err
	}
	info, err := l.AppendAsLeader(batchOf(1, 1, record.BuilderOptions{}), 1000, AppendOptions{})
	if err != nil || info.FirstOffset != s.LogEndOffset {
		return fmt.Errorf("append after recovery: offset %d, %w", info.FirstOffset, err)
	}
	return l.Close()
}

// checkProducers compares the producer states with those that replaying the log gives.
func checkProducers(l *Log, batches []byte) error {
	if l.State().LogStartOffset > 0 {
		return nil // states outlive their records
	}
	replayed, err := producer.NewManager(producer.Options{FS: vfs.NewMem(), Dir: "/", ExpirationMillis: 1 << 60})
	if err != nil {
		return err
	}
	for b := range record.Validated(batches) {
		if _, err := applyBatch(replayed, b); err != nil {
			return err
		}
	}
	describe := func(states []producer.State) string {
		text := ""
		for _, s := range states {
			// Only the last batch survives in a snapshot.
			text += fmt.Sprintln(s.ProducerID, s.Epoch, s.LastSequence(), s.LastOffset(), s.LastTimestamp)
		}
		return text
	}
	if got, want := describe(l.ActiveProducers()), describe(replayed.Active()); got != want {
		return fmt.Errorf("producers\n%swant\n%s", got, want)
	}
	return nil
}

// TestCrashAtAnyOperationLeavesASyncedPrefix cuts the power before every operation of random workloads, with
// several choices of what the disk keeps. GREGOR_CRASH_WORKLOADS raises the number of workloads.
func TestCrashAtAnyOperationLeavesASyncedPrefix(t *testing.T) {
	crashEverywhere(t, nil, func(uint64) *fillingDisk { return nil })
}

// TestCrashBesideAFullDiskLeavesASyncedPrefix is the same on a disk that is full at times. Appends that it refuses must
// leave nothing, in memory and, whatever a crash keeps, on disk.
func TestCrashBesideAFullDiskLeavesASyncedPrefix(t *testing.T) {
	var refused atomic.Int64
	// In these the recovery point was held back when the log was truncated, to above that point but below the one on disk.
	truncatedWhileHeld := []uint64{486, 568}
	crashEverywhere(t, truncatedWhileHeld, func(seed uint64) *fillingDisk {
		return &fillingDisk{dice: rand.New(rand.NewPCG(seed, 2)), refused: &refused}
	})
	if refused.Load() < 15 {
		t.Errorf("only %d operations found no space", refused.Load())
	}
}

// crashEverywhere plays the first workloads, and those of seeds with which something was once wrong.
func crashEverywhere(t *testing.T, seeds []uint64, diskOf func(seed uint64) *fillingDisk) {
	t.Helper()
	workloads := 12
	if text := os.Getenv("GREGOR_CRASH_WORKLOADS"); text != "" {
		n, err := strconv.Atoi(text)
		must(t, err)
		workloads = n
	}
	total := 0
	for seed := range uint64(workloads) {
		seeds = append(seeds, seed)
	}
	for _, seed := range seeds {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			var mu sync.Mutex
			failed := false
			crashWorkload(t, seed, 60, diskOf(seed), func(n int64, op vfs.Op, m *crashModel, fsys *vfs.Mem, c LogConfig) {
				mu.Lock()
				defer mu.Unlock()
				state := m.get()
				for _, crashSeed := range []uint64{0, vfs.CrashKeepAll, uint64(n) + 1} {
					if failed {
						return
					}
					total++
					if err := checkRecovered(t, fsys.Crash(crashSeed), state, c); err != nil {
						failed = true
						t.Errorf("workload %d, before operation %d (%s %s), crash seed %d: %v\nstart %d, durable %d, end %d, recovery point %d, clean %t, left on disk:\n%s",
							seed, n, op.Kind, op.Name, crashSeed, err, state.start, state.durable, m.end(), state.checkpoint, state.clean,
							listing(fsys.Crash(crashSeed)))
					}
				}
			})
		})
	}
	if total < 1000 && !t.Failed() {
		t.Errorf("only %d crashes", total)
	}
	t.Logf("%d crashes", total)
}

func listing(fsys *vfs.Mem) string {
	entries, err := fsys.ReadDir(testDir)
	text := fmt.Sprintln(err)
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			text += fmt.Sprintln(e.Name(), info.Size())
		}
	}
	return text
}
