package storage

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gregor/protocol/record"
	"gregor/storage/segment"
	"gregor/storage/vfs"
)

// damagedDir is a log directory with two partitions of two sealed segments and an active one, of which the first is to
// be damaged: by a flipped bit in the second batch of its first segment.
type damagedDir struct {
	t     *testing.T
	fsys  *vfs.Mem
	file  string // the damaged one
	whole []byte // as it was
	at    int64  // position of the damaged batch
	want  string // what the partition holds
	mu    sync.Mutex
	told  []DamagedReplica
	heard chan struct{} // gets something with each
	lines *syncBuffer
}

const damagedBatches = 10

func newDamagedDir(t *testing.T) *damagedDir {
	t.Helper()
	d := &damagedDir{
		t: t, fsys: vfs.NewMem(), file: "/d1/t-0/" + segment.FileName(0, segment.LogSuffix),
		lines: &syncBuffer{}, heard: make(chan struct{}, 10),
	}
	format(t, d.fsys, "/d1")
	m := d.start()
	for i := range int32(2) {
		l := createLog(t, m, "t", i, [16]byte{})
		l.UpdateConfig(compactConfig())
		for range 2 {
			fillCompacted(t, l, damagedBatches)
		}
		fillCompacted(t, l, 1)
	}
	l, _ := m.Log("t", 0)
	d.want = string(contents(t, l, UpToLogEnd))
	must(t, m.Shutdown(1))
	raw, err := vfs.ReadFile(d.fsys, d.file)
	must(t, err)
	d.whole = bytes.Clone(raw)
	d.at = int64(len(raw) / damagedBatches)
	return d
}

func (d *damagedDir) options() ManagerOptions {
	o := managerOptions(d.fsys, "/d1")
	o.Defaults = compactConfig()
	o.Logger = textLogger(d.lines)
	o.ReplicaDamaged = func(r DamagedReplica) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.told = append(d.told, r)
		d.heard <- struct{}{}
	}
	return o
}

func (d *damagedDir) start() *Manager {
	d.t.Helper()
	return startManager(d.t, d.options())
}

// flip damages the file at a position of the batch.
func (d *damagedDir) flip(off int) {
	d.t.Helper()
	raw := bytes.Clone(d.whole)
	raw[d.at+int64(off)] ^= 0x40
	must(d.t, vfs.WriteFile(d.fsys, d.file, raw))
}

func (d *damagedDir) repair() {
	d.t.Helper()
	must(d.t, vfs.WriteFile(d.fsys, d.file, d.whole))
}

// mustBeOffline checks that the replica alone is out of service, and why.
func (d *damagedDir) mustBeOffline(m *Manager) {
	d.t.Helper()
	l, err := m.CreateLog("t", 0, topicIDOf("t"), testConfig(), [16]byte{})
	if err == nil {
		err = l.Err()
	}
	var corrupt *CorruptError
	if !errors.Is(err, ErrStorage) || !errors.As(err, &corrupt) || corrupt.File != d.file || corrupt.Position != d.at {
		d.t.Fatalf("the replica answers %v\n%s", err, d.lines)
	}
	if l, ok := m.Log("t", 0); ok {
		_, readErr := l.ReadBatches(0, nil, 1, UpToLogEnd)
		mustBe(d.t, readErr, ErrStorage, d.file)
		_, appendErr := l.AppendAsLeader(batchOf(1, 1, record.BuilderOptions{}), 0, AppendOptions{LogAppendTimeMillis: -1})
		mustBe(d.t, appendErr, ErrStorage, d.file)
	}
	other, ok := m.Log("t", 1)
	if !ok || m.Dirs()[0].Err != nil {
		d.t.Fatalf("the other replica is %t, its directory says %v", ok, m.Dirs()[0].Err)
	}
	appendBatch(d.t, other, 1, 1)
	if desc := m.Describe()[0]; len(desc.Logs) != 1 || desc.Logs[0] != other || desc.Err != nil {
		d.t.Errorf("described as %+v", desc)
	}
	if text := fmt.Sprintf("%s at byte %d", d.file, d.at); !strings.Contains(d.lines.String(), text) {
		d.t.Errorf("no line of the log has %q:\n%s", text, d.lines)
	}
}

// mustHaveBeenTold checks what the owner heard, after the manager has stopped.
func (d *damagedDir) mustHaveBeenTold(times int) {
	d.t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.told) != times || d.told[0].Topic != "t" || d.told[0].Partition != 0 || d.told[0].TopicID != topicIDOf("t") || !errors.Is(d.told[0].Err, ErrCorrupt) {
		d.t.Fatalf("told %+v", d.told)
	}
}

// mustBeWhole checks that nothing but the flipped bit differs from before.
func (d *damagedDir) mustBeWhole() {
	d.t.Helper()
	raw, err := vfs.ReadFile(d.fsys, d.file)
	must(d.t, err)
	if len(raw) != len(d.whole) {
		d.t.Fatalf("%d bytes are left of %d", len(raw), len(d.whole))
	}
}

// mustBeBack repairs the file and checks that the next start serves everything.
func (d *damagedDir) mustBeBack() {
	d.t.Helper()
	d.repair()
	m := d.start()
	l, ok := m.Log("t", 0)
	if !ok || l.Err() != nil {
		d.t.Fatalf("after the repair: %t, %v", ok, l.Err())
	}
	if got := string(contents(d.t, l, UpToLogEnd)); got != d.want {
		d.t.Error("other records after the repair")
	}
	appendBatch(d.t, l, 1, 1)
	must(d.t, m.Shutdown(9))
}

// A batch's length, which a read meets, and a byte of its records, which only a checksum tells.
const (
	flipLength = 9
	flipRecord = record.HeaderSizeBytes + 3
)

func TestDamageThatAReadMeetsTakesOnlyThatReplicaOffline(t *testing.T) {
	for _, crash := range []bool{false, true} {
		t.Run(fmt.Sprintf("crash %t", crash), func(t *testing.T) {
			d := newDamagedDir(t)
			d.flip(flipLength)
			m := d.start()
			l, _ := m.Log("t", 0)
			_, err := l.ReadBatches(damagedBatches/2, nil, 1, UpToLogEnd)
			mustBe(t, err, ErrStorage, d.file)
			d.mustBeOffline(m)
			if crash {
				<-d.heard
				m.Kill()
			} else {
				must(t, m.Shutdown(2))
				if !exists(t, d.fsys, "/d1/.kafka_cleanshutdown") {
					t.Error("no proof of the clean stop")
				}
			}
			d.mustHaveBeenTold(1)
			// A start without a repair does not make it worse.
			m = d.start()
			d.mustBeWhole()
			must(t, m.Shutdown(3))
			d.mustBeWhole()
			d.mustBeBack()
		})
	}
}

func TestDamageThatTheCleanerMeetsTakesOnlyThatReplicaOffline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDamagedDir(t)
		d.flip(flipRecord)
		o := d.options()
		o.Cleaner = new(cleanerConfig())
		m := startManager(t, o)
		time.Sleep(time.Minute)
		synctest.Wait()
		d.mustBeOffline(m)
		if other, _ := m.Log("t", 1); other.State().CleanedTo == 0 {
			t.Error("the other replica has not been cleaned")
		}
		must(t, m.Shutdown(2))
		d.mustHaveBeenTold(1)
		d.mustBeWhole()
		d.mustBeBack()
	})
}

func TestDamageBelowTheRecoveryPointIsNotCutAtAStart(t *testing.T) {
	for _, kind := range []struct {
		name    string
		prepare func(d *damagedDir)
		again   bool // also at the start after a clean stop
	}{
		{"index missing after a clean stop", func(d *damagedDir) {
			must(t, d.fsys.Remove("/d1/t-0/"+segment.FileName(0, segment.IndexSuffix)))
		}, true},
		{"index missing after a crash", func(d *damagedDir) {
			must(t, d.fsys.Remove("/d1/t-0/"+segment.FileName(0, segment.IndexSuffix)))
			must(t, d.fsys.Remove("/d1/.kafka_cleanshutdown"))
		}, true},
		{"in the segment of the recovery point", func(d *damagedDir) {
			must(t, d.fsys.Remove("/d1/.kafka_cleanshutdown"))
			must(t, vfs.WriteFile(d.fsys, "/d1/recovery-point-offset-checkpoint", []byte("0\n2\nt 0 5\nt 1 21\n")))
		}, false},
	} {
		t.Run(kind.name, func(t *testing.T) {
			d := newDamagedDir(t)
			d.flip(flipRecord)
			kind.prepare(d)
			before := offsetsOf(t, d.fsys, "/d1/recovery-point-offset-checkpoint")
			m := d.start()
			d.mustBeOffline(m)
			mustBe(t, m.checkWritten("t", 0, before), nil, "same")
			must(t, m.Shutdown(2))
			d.mustHaveBeenTold(1)
			d.mustBeWhole()
			m = d.start()
			if kind.again {
				d.mustBeOffline(m)
			}
			m.Kill()
			d.mustBeWhole()
			d.mustBeBack()
		})
	}
}

// checkWritten compares a partition's recovery point on disk with what it was.
func (m *Manager) checkWritten(topic string, partition int32, before string) error {
	m.checkpoints(recoveryPointsIn)()
	p := TopicPartition{Topic: topic, Partition: partition}
	got, ok := m.dirs[0].written[recoveryPointsIn.file][p]
	if text := fmt.Sprintf("%v:%d", p, got); !ok || !strings.Contains(before, text) {
		return fmt.Errorf("recovery point %s, was one of %s", text, before)
	}
	return errors.New("same")
}

func TestDamagedReplicaCanBeDeleted(t *testing.T) {
	for _, opened := range []bool{false, true} {
		d := newDamagedDir(t)
		d.flip(flipLength)
		if !opened {
			must(t, d.fsys.Remove("/d1/t-0/"+segment.FileName(0, segment.IndexSuffix)))
		}
		m := d.start()
		if l, ok := m.Log("t", 0); ok != opened {
			t.Fatalf("opened %t", ok)
		} else if opened {
			_, err := l.ReadBatches(damagedBatches/2, nil, 1, UpToLogEnd)
			mustBe(t, err, ErrStorage, d.file)
		}
		must(t, m.DeleteLog("t", 0))
		l := createLog(t, m, "t", 0, [16]byte{})
		if s := l.State(); l.Err() != nil || s.LogEndOffset != 0 {
			t.Errorf("the new replica: %v, end %d", l.Err(), s.LogEndOffset)
		}
		nameLike(t, d.fsys, "/d1", "t-0.", "-delete")
		must(t, m.Shutdown(2))
	}
}

func TestDamagedStrayIsSetAside(t *testing.T) {
	d := newDamagedDir(t)
	d.flip(flipRecord)
	must(t, d.fsys.Remove("/d1/t-0/"+segment.FileName(0, segment.IndexSuffix)))
	m, err := OpenManager(d.options())
	must(t, err)
	defer m.Kill()
	must(t, m.Load(LoadOptions{IsStray: func(p TopicPartition, _ [16]byte) bool { return p.Partition == 0 }}))
	name := nameLike(t, d.fsys, "/d1", "t-0.", "-stray")
	raw, err := vfs.ReadFile(d.fsys, path.Join("/d1", name, segment.FileName(0, segment.LogSuffix)))
	must(t, err)
	if len(raw) != len(d.whole) {
		t.Errorf("%d bytes are left of %d", len(raw), len(d.whole))
	}
}
