package quorum

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"gregor/protocol/record"
	"gregor/storage/vfs"
)

const firstSegment = "/00000000000000000000.log"

// edit changes a file of a node that is down.
func (n *testNode) edit(t *testing.T, name string, change func([]byte) []byte) {
	t.Helper()
	b, err := vfs.ReadFile(n.fs, n.opts.Dir+name)
	if err != nil {
		t.Fatal(err)
	}
	if err := vfs.WriteFile(n.fs, n.opts.Dir+name, change(b)); err != nil {
		t.Fatal(err)
	}
}

func TestBytesAfterTheLastBatchAreCutAtTheStart(t *testing.T) {
	for name, garbage := range map[string][]byte{
		"garbage": bytes.Repeat([]byte("x"), 100), "zeros": make([]byte, 5000), "half a batch": batchAt(t, 12, 3, 1)[:50],
	} {
		c, n := epochs(t)
		before := readLog(t, n, 0)
		c.crash(1, vfs.CrashKeepAll)
		n.edit(t, firstSegment, func(b []byte) []byte { return append(b, garbage...) })
		c.must(c.start(1))
		after := readLog(t, n, 0)
		if !bytes.HasPrefix(after, before) || n.board.load().highWatermark != 13 {
			t.Errorf("%s: %d bytes before, %d after, high watermark %d", name, len(before), len(after), n.board.load().highWatermark)
		}
	}
}

// A bad byte in what was synced must not be cut off: the replica would forget what it acknowledged. It does not start.
func TestDamageBelowTheSnapshotIsNoTornWrite(t *testing.T) {
	c, n := epochs(t)
	c.crash(1, vfs.CrashKeepAll)
	whole, err := vfs.ReadFile(n.fs, n.opts.Dir+firstSegment)
	if err != nil {
		t.Fatal(err)
	}
	snapshotEnd := 0
	for b := range record.Validated(whole) {
		if b.BaseOffset() < 8 {
			snapshotEnd += len(b)
		}
	}
	for _, observer := range []bool{false, true} {
		for at := 0; at < len(whole); at += 13 {
			if outsideCRC(whole, at) {
				continue
			}
			n.edit(t, firstSegment, func([]byte) []byte {
				b := slices.Clone(whole)
				b[at] ^= 0x10
				return b
			})
			n.opts.Observer = observer
			disk := n.fs.Clone()
			clear(c.committed) // what is cut as torn was committed, but that cannot be known
			clear(c.leaders)
			err := c.start(1)
			if refused := errors.Is(err, ErrCorrupt); refused != (at < snapshotEnd && !observer) || err != nil && !refused {
				t.Fatalf("observer %v: byte %d of %d (snapshot ends at %d): %v", observer, at, len(whole), snapshotEnd, err)
			}
			n.machine, n.fs = nil, disk
		}
	}
}

func TestDamageFarFromTheEndIsNoTornWrite(t *testing.T) {
	fs := vfs.NewMem()
	if err := fs.MkdirAll("/d"); err != nil {
		t.Fatal(err)
	}
	large := func(offset int64) record.Batch {
		b := record.NewBuilder(record.BuilderOptions{BaseOffset: offset, LeaderEpoch: 1})
		b.Add(1, nil, make([]byte, 300<<10), nil)
		return b.Bytes()
	}
	var log []byte
	for offset := range int64(8) {
		log = append(log, large(offset)...)
	}
	size := len(log) / 8
	for bad, refused := range map[int]bool{0: true, 1: true, 5: false, 7: false} {
		b := slices.Clone(log)
		b[bad*size+500] ^= 1
		if err := vfs.WriteFile(fs, "/d"+firstSegment, b); err != nil {
			t.Fatal(err)
		}
		if err := verifyTail(fs, "/d", SnapshotID{}, 1600<<10); errors.Is(err, ErrCorrupt) != refused || err != nil && !refused {
			t.Errorf("batch %d of 8 is bad: %v", bad, err)
		}
	}
	if err := vfs.WriteFile(fs, "/d"+firstSegment, log); err != nil {
		t.Fatal(err)
	}
	if err := verifyTail(fs, "/d", SnapshotID{}, 1600<<10); err != nil {
		t.Errorf("all is well, but: %v", err)
	}
}

// Opening cuts the log at a bad byte and drops the segments after it: they count as what a crash would have torn.
func TestDamageBeforeALaterSegmentIsNoTornWrite(t *testing.T) {
	segments := func(sizes ...int) *vfs.Mem {
		fs := vfs.NewMem()
		if err := fs.MkdirAll("/d"); err != nil {
			t.Fatal(err)
		}
		for i, size := range sizes {
			b := record.NewBuilder(record.BuilderOptions{BaseOffset: int64(2 * i), LeaderEpoch: 1})
			b.Add(1, nil, make([]byte, 100), nil)
			first := slices.Clone(b.Bytes())
			b.Reset(record.BuilderOptions{BaseOffset: int64(2*i + 1), LeaderEpoch: 1})
			b.Add(1, nil, make([]byte, size), nil)
			name := fmt.Sprintf("/d/%020d.log", 2*i)
			if err := vfs.WriteFile(fs, name, append(first, b.Bytes()...)); err != nil {
				t.Fatal(err)
			}
		}
		return fs
	}
	flip := func(fs *vfs.Mem, name string, at int) {
		b, err := vfs.ReadFile(fs, name)
		if err != nil {
			t.Fatal(err)
		}
		b = slices.Clone(b)
		b[at] ^= 1
		if err := vfs.WriteFile(fs, name, b); err != nil {
			t.Fatal(err)
		}
	}
	fs := segments(100, 100_000)
	flip(fs, "/d"+firstSegment, 200)
	if err := verifyTail(fs, "/d", SnapshotID{}, 50_000); !errors.Is(err, ErrCorrupt) {
		t.Errorf("100 KB follow in the next segment, 50 KB may be torn: %v", err)
	}
	// One write may span a roll.
	if err := verifyTail(fs, "/d", SnapshotID{}, 200_000); err != nil {
		t.Errorf("100 KB follow, 200 KB may be torn: %v", err)
	}
	fs = segments(100, 100, 100)
	b, err := vfs.ReadFile(fs, "/d/00000000000000000002.log")
	if err != nil {
		t.Fatal(err)
	}
	// What lies behind the last batch of a segment belongs to nothing, but the segments after it do.
	if err := vfs.WriteFile(fs, "/d/00000000000000000002.log", append(slices.Clone(b), make([]byte, 1000)...)); err != nil {
		t.Fatal(err)
	}
	if err := verifyTail(fs, "/d", SnapshotID{Offset: 2}, 500); err != nil {
		t.Errorf("zeros behind a segment: %v", err)
	}
	flip(fs, "/d/00000000000000000004.log", 10)
	if err := verifyTail(fs, "/d", SnapshotID{Offset: 2}, 100); !errors.Is(err, ErrCorrupt) {
		t.Errorf("damage behind a segment with zeros at its end: %v", err)
	}
}

// Bytes that go bad while the node runs are not sent to others.
func TestBadByteIsNotServed(t *testing.T) {
	c := newCluster(t, 1)
	c.format(1, 2, 3)
	for id := int32(1); id <= 3; id++ {
		c.must(c.start(id))
	}
	c.campaign(1)
	c.stabilize()
	c.crash(3, 0)
	for i := range 5 {
		if _, _, err := c.propose(c.nodes[1], strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
		c.stabilize()
	}
	n := c.nodes[1]
	n.machine.storage.tail.reset()
	f, err := n.fs.OpenReadWrite(n.opts.Dir + firstSegment)
	if err != nil {
		t.Fatal(err)
	}
	size, err := f.Size()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{0xee}, size-10); err != nil {
		t.Fatal(err)
	}
	c.must(c.start(3))
	var failure error
	for range 30 {
		if failure = n.machine.tick(); failure != nil {
			break
		}
		for len(c.queue) > 0 && failure == nil {
			failure = c.deliver(0)
		}
		if failure != nil {
			break
		}
	}
	if !errors.Is(failure, ErrCorrupt) {
		t.Fatalf("the leader sent a damaged batch, or failed otherwise: %v", failure)
	}
	if end := c.nodes[3].machine.storage.endOffset(); end > 3 {
		t.Fatalf("node 3 took a batch at %d", end)
	}
}

func TestLostLogIsAFailureAndNoRetry(t *testing.T) {
	c := newCluster(t, 1)
	c.format(1, 2, 3)
	for id := int32(1); id <= 3; id++ {
		c.must(c.start(id))
	}
	c.campaign(1)
	c.stabilize()
	// The leader has an acknowledgement of node 2 up to index 3; node 2 comes back with less than that.
	msg := &raftpb.Message{Type: raftpb.MsgHeartbeat.Enum(), Term: new(uint64(1)), Commit: new(uint64(1000))}
	env := envelope{clusterID: testClusterID, from: testVoter(1, 0).Key, to: testVoter(2, 0).Key}
	malformed, err := c.nodes[2].machine.receive(appendRaft(encodeEnvelope(env), msg))
	if malformed || !errors.Is(err, ErrLogLost) {
		t.Fatalf("malformed %v, error %v", malformed, err)
	}
}

func TestProgrammerErrorsAreNotSwallowed(t *testing.T) {
	for name, p := range map[string]any{"text": "unexpected", "runtime error": nil} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("the panic was swallowed")
				}
			}()
			_ = guard(func() error {
				if p != nil {
					panic(p)
				}
				var m *machine
				m.applied++ //nolint:govet // the nil is the point
				return nil
			})
		})
	}
	for _, p := range []any{raftPanic("lost"), errors.New("disk")} {
		if err := guard(func() error { panic(p) }); err == nil {
			t.Errorf("%v was swallowed", p)
		}
	}
}

func TestLogThatBeginsAfterTheNewestSnapshotIsCorrupt(t *testing.T) {
	c, n := epochs(t)
	c.must(n.machine.storage.deleteBefore(SnapshotID{8, 2}, time.Now()))
	if _, err := c.snapshot(n); err != nil {
		t.Fatal(err)
	}
	c.must(n.machine.storage.install(SnapshotID{12, 3}, n.machine.storage.history.last().config))
	if _, _, err := c.propose(n, "x"); err == nil {
		c.close(1)
	}
	for _, name := range []string{SnapshotID{12, 3}.fileName()} {
		if err := n.fs.Remove(n.opts.Dir + "/" + name); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.start(1); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("started: %v", err)
	}
}

func TestBootstrapRecordsAreFoundWhereverKafkaPutsThem(t *testing.T) {
	c := newCluster(t, 1)
	c.format(1)
	n := c.nodes[1]
	whole, err := vfs.ReadFile(n.fs, n.opts.Dir+"/"+SnapshotID{}.fileName())
	if err != nil {
		t.Fatal(err)
	}
	for _, place := range []string{n.opts.Dir + "/" + bootstrapFile, "/n1/" + bootstrapFile, ""} {
		fs := vfs.NewMem()
		if err := fs.MkdirAll(n.opts.Dir); err != nil {
			t.Fatal(err)
		}
		if place != "" {
			if err := vfs.WriteFile(fs, place, whole); err != nil {
				t.Fatal(err)
			}
		}
		store, err := openSnapshots(fs, n.opts.Dir, 0)
		if err != nil {
			t.Fatal(err)
		}
		records, ok, err := bootstrapRecords(&Options{FS: fs, Dir: n.opts.Dir}, store)
		if err != nil || ok != (place != "") || ok && len(records) != 1 {
			t.Errorf("%q: %d records, %v, %v", place, len(records), ok, err)
		}
	}
	if err := WriteBootstrap(n.fs, n.opts.Dir, BootstrapOptions{}); !errors.Is(err, ErrSnapshotExists) {
		t.Errorf("formatted twice: %v", err)
	}
}

func TestFormatWithoutVotersWritesKafkasHeader(t *testing.T) {
	fs := vfs.NewMem()
	if err := fs.MkdirAll("/n1"); err != nil {
		t.Fatal(err)
	}
	if err := WriteBootstrap(fs, "/n1/"+DirName, BootstrapOptions{KRaftVersion: 1, NowMillis: 5}); err != nil {
		t.Fatal(err)
	}
	store, err := openSnapshots(fs, "/n1/"+DirName, 0)
	if err != nil {
		t.Fatal(err)
	}
	r, err := store.openSnapshot(SnapshotID{})
	if err != nil {
		t.Fatal(err)
	}
	if r.header.level == nil || *r.header.level != 1 || r.header.voters != nil || r.LastContainedLogTimestampMillis() != 5 {
		t.Fatalf("header %+v", r.header)
	}
	if c := r.config(config{voters: set(t, 1)}); c.level != 1 || c.voters.Len() != 0 {
		t.Fatalf("config %+v", c)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestEveryFailedFileOperationFailsTheMachineOrNothing(t *testing.T) {
	for operation := range 40 {
		c := newCluster(t, 1)
		c.format(1)
		n := c.nodes[1]
		left := operation
		broken := errors.New("no such disk")
		c.must(c.start(1))
		m := n.machine
		// From here on the n-th operation fails, and everything after it, as with a dead disk.
		fs := vfs.NewErr(n.fs, vfs.InjectorFunc(func(op vfs.Op) error {
			if op.Kind == vfs.OpRead {
				return nil
			}
			if left--; left < 0 {
				return broken
			}
			return nil
		}))
		m.states.fs, m.storage.snapshots.fs = fs, fs
		var err error
		if _, err = c.snapshot(n); err == nil {
			err = m.startRaft()
		}
		if err == nil {
			err = m.maintain(time.Now())
		}
		if err != nil && !errors.Is(err, broken) {
			t.Fatalf("operation %d: %v", operation, err)
		}
		after := n.fs.Crash(0)
		n.fs, n.machine = after, nil
		c.must(c.start(1))
		if slices.ContainsFunc(n.machine.storage.snapshots.list(), func(id SnapshotID) bool {
			r, err := n.machine.storage.snapshots.openSnapshot(id)
			return err != nil || errors.Join(r.verify(), r.Close()) != nil
		}) {
			t.Fatalf("operation %d: a snapshot that cannot be read", operation)
		}
	}
}
