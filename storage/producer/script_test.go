package producer

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"gregor/protocol/record"
	"gregor/storage/vfs"
)

// script runs the commands of a testdata file against one Manager.
type script struct {
	t    *testing.T
	fs   *vfs.Mem
	m    *Manager
	next int64 // offset of the next batch
	now  int64
}

// TestScripts runs testdata/scripts. Batches get the next offset by themselves; a line of append is one batch:
// data pid=1 epoch=0 seq=0 n=3 [txn], or commit/abort pid=1 epoch=0 coordinator=0.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		s := &script{t: t, fs: vfs.NewMem(), now: 1000}
		s.m = newManager(t, s.fs)
		datadriven.RunTest(t, path, s.run)
	})
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "append":
		return s.append(d)
	case "state":
		return s.state()
	case "verify":
		return s.verify(d)
	case "high-watermark":
		var offset int64
		d.ScanArgs(t, "offset", &offset)
		s.m.OnHighWatermark(offset)
		return s.offsets()
	case "log-start":
		var offset int64
		d.ScanArgs(t, "offset", &offset)
		s.m.OnLogStartIncremented(offset)
		return s.offsets()
	case "snapshot":
		must(t, s.m.TakeSnapshot())
		return s.files()
	case "truncate":
		var start, end int64
		d.ScanArgs(t, "start", &start)
		d.ScanArgs(t, "end", &end)
		must(t, s.m.TruncateAndReload(start, end, s.now))
		s.next = s.m.MapEndOffset()
		return s.offsets() + s.files()
	case "truncate-fully":
		d.ScanArgs(t, "offset", &s.next)
		must(t, s.m.TruncateFullyAndStartAt(s.next))
		return s.offsets() + s.files()
	case "remove-strays":
		var bases []int64
		for _, arg := range d.CmdArgs {
			for _, v := range arg.Vals {
				var base int64
				_, err := fmt.Sscan(v, &base)
				must(t, err)
				bases = append(bases, base)
			}
		}
		must(t, s.m.RemoveStraySnapshots(bases))
		return s.files()
	case "corrupt":
		var offset int64
		d.ScanArgs(t, "offset", &offset)
		f, err := s.fs.OpenReadWrite(testDir + "/" + SnapshotName(offset))
		must(t, err)
		_, err = f.WriteAt([]byte{0xff}, 12)
		must(t, err)
		return ""
	case "reopen":
		m, err := NewManager(Options{FS: s.fs, Dir: testDir})
		must(t, err)
		s.m = m
		return s.files()
	case "time":
		d.ScanArgs(t, "now", &s.now)
		return ""
	case "expire":
		s.m.ExpireBefore(s.now)
		return s.state()
	default:
		d.Fatalf(t, "unknown command %s", d.Cmd)
		return ""
	}
}

func (s *script) append(d *datadriven.TestData) string {
	o := AppendOptions{RequireVerification: d.HasArg("verified")}
	for _, arg := range d.CmdArgs {
		switch arg.Key {
		case "coordinator":
			o.Origin = FromCoordinator
		case "replication":
			o.Origin = FromReplication
		case "tv2":
			o.TransactionVersion = 2
		case "guard":
			d.ScanArgs(s.t, "guard", &o.Guard)
		}
	}
	var batches []record.Batch
	next := s.next
	for line := range strings.Lines(d.Input) {
		fields := strings.Fields(line)
		b := s.batch(fields[0], fields[1:], next)
		if o.Origin == FromClient {
			if dup, ok := s.m.Duplicate(b); ok {
				return fmt.Sprintf("duplicate of %d..%d timestamp %d\n", dup.FirstOffset(), dup.LastOffset, dup.Timestamp)
			}
		}
		batches = append(batches, b)
		next = b.NextOffset()
	}
	completed, err := appendAll(s.m, o, batches...)
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	s.next = next
	var out strings.Builder
	for _, txn := range completed {
		fmt.Fprintf(&out, "completed %+v\n", txn)
	}
	return out.String() + s.offsets()
}

func (s *script) batch(kind string, args []string, offset int64) record.Batch {
	d := data{offset: offset, count: 1, timestamp: s.now}
	coordinatorEpoch := int32(0)
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		var n int64
		if value != "" {
			_, err := fmt.Sscan(value, &n)
			must(s.t, err)
		}
		switch key {
		case "pid":
			d.pid = n
		case "epoch":
			d.epoch = int16(n)
		case "seq":
			d.seq = int32(n)
		case "n":
			d.count = int(n)
		case "ts":
			d.timestamp = n
		case "coordinator":
			coordinatorEpoch = int32(n)
		case "txn":
			d.txn = true
		default:
			s.t.Fatalf("unknown argument %s", arg)
		}
	}
	if kind == "data" {
		return d.batch()
	}
	return marker(offset, d.pid, d.epoch, kind == "commit", coordinatorEpoch, d.timestamp)
}

func (s *script) verify(d *datadriven.TestData) string {
	o := VerificationOptions{NowMillis: s.now, SupportsEpochBump: d.HasArg("tv2")}
	d.ScanArgs(s.t, "pid", &o.ProducerID)
	d.ScanArgs(s.t, "epoch", &o.Epoch)
	d.ScanArgs(s.t, "seq", &o.FirstSequence)
	guard, err := s.m.StartVerification(o)
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	return fmt.Sprintf("guard %d\n", guard)
}

func (s *script) offsets() string {
	unstable := "none"
	if offset, ok := s.m.FirstUnstableOffset(); ok {
		unstable = strconv.FormatInt(offset, 10)
	}
	return fmt.Sprintf("map end %d, first unstable %s\n", s.m.MapEndOffset(), unstable)
}

func (s *script) state() string {
	var out strings.Builder
	for _, st := range s.m.Active() {
		fmt.Fprintf(&out, "%d: epoch %d coordinator %d txn %d timestamp %d batches", st.ProducerID, st.Epoch,
			st.CoordinatorEpoch, st.CurrentTxnFirstOffset, st.LastTimestamp)
		for _, b := range st.Batches() {
			fmt.Fprintf(&out, " [seq %d..%d offset %d..%d]", b.FirstSequence(), b.LastSequence, b.FirstOffset(), b.LastOffset)
		}
		out.WriteByte('\n')
	}
	return out.String() + s.offsets()
}

func (s *script) files() string {
	entries, err := s.fs.ReadDir(testDir)
	must(s.t, err)
	var offsets []int64
	for _, e := range entries {
		offset, ok := ParseSnapshotName(e.Name())
		if !ok {
			s.t.Fatalf("unexpected file %s", e.Name())
		}
		offsets = append(offsets, offset)
	}
	if !slices.Equal(offsets, s.m.Snapshots()) {
		s.t.Fatalf("files %v, known %v", offsets, s.m.Snapshots())
	}
	return fmt.Sprintf("snapshots %v\n", offsets)
}
