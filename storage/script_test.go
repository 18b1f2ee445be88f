package storage

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"gregor/protocol/record"
	"gregor/storage/producer"
	"gregor/storage/vfs"
)

// script drives one log by the commands of testdata/log.
type script struct {
	fsys *vfs.Mem
	o    LogOptions
	l    *Log
}

// TestLogScripts runs testdata/log; -rewrite renews the expected output.
func TestLogScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/log", func(t *testing.T, path string) {
		s := &script{fsys: vfs.NewMem()}
		s.o = testOptions(s.fsys)
		defer func() {
			if s.l != nil {
				s.l.CloseUnclean()
			}
		}()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out, err := s.run(t, d)
			if s.l != nil {
				s.l.bg.wait()
			}
			if err != nil {
				return "error: " + err.Error() + "\n"
			}
			return out
		})
	})
}

func arg(t *testing.T, d *datadriven.TestData, name string, fallback int64) int64 {
	t.Helper()
	v := fallback
	d.MaybeScanArgs(t, name, &v)
	return v
}

func (s *script) run(t *testing.T, d *datadriven.TestData) (string, error) {
	t.Helper()
	switch d.Cmd {
	case "config":
		overrides := map[string]string{}
		for _, a := range d.CmdArgs {
			overrides[a.Key] = strings.Join(a.Vals, ",")
		}
		c, err := s.o.Config.With(overrides)
		if err == nil {
			s.o.Config = c
			if s.l != nil {
				s.l.UpdateConfig(c)
			}
		}
		return "", err
	case "open":
		if s.l != nil {
			st := s.l.State()
			s.o.LogStartOffset, s.o.RecoveryPoint = st.LogStartOffset, st.RecoveryPoint
		}
		s.o.HadCleanShutdown = d.HasArg("clean")
		l, err := OpenLog(s.o)
		if err != nil {
			return "", err
		}
		s.l = l
		return s.state(), nil
	case "append", "follow":
		return s.append(t, d)
	case "marker":
		return s.marker(t, d)
	case "verify":
		s.l.opts.verifyTransactions = true
		guard, err := s.l.StartVerification(producer.VerificationOptions{
			ProducerID: arg(t, d, "pid", 1), Epoch: int16(arg(t, d, "epoch", 0)), FirstSequence: int32(arg(t, d, "seq", 0)),
		})
		return fmt.Sprintf("guard %d\n", guard), err
	case "files":
		return s.files()
	}
	return s.change(t, d)
}

func (s *script) change(t *testing.T, d *datadriven.TestData) (string, error) {
	t.Helper()
	at := arg(t, d, "at", 0)
	switch d.Cmd {
	case "hw":
		_, err := s.l.UpdateHighWatermark(at)
		return s.state(), err
	case "start":
		_, err := s.l.IncrementLogStartOffset(at)
		return s.state(), err
	case "truncate":
		err := s.l.TruncateTo(at)
		return s.state(), err
	case "restart":
		err := s.l.TruncateFullyAndStartAt(at)
		return s.state(), err
	case "roll":
		err := s.l.Roll()
		return s.state(), err
	case "flush":
		err := s.l.Flush(s.l.State().LogEndOffset)
		s.l.bg.wait()
		return s.state(), err
	case "retention":
		n, err := s.l.DeleteOldSegments(time.UnixMilli(at))
		return fmt.Sprintf("%d deleted\n%s", n, s.state()), err
	case "epoch":
		err := s.l.AssignEpochStart(int32(arg(t, d, "is", 0)), at)
		return s.epochs(), err
	case "close":
		return "", s.l.Close()
	case "kill":
		s.l.CloseUnclean()
		return "", nil
	}
	return s.query(t, d)
}

func (s *script) query(t *testing.T, d *datadriven.TestData) (string, error) {
	t.Helper()
	switch d.Cmd {
	case "state":
		return s.state(), nil
	case "epochs":
		return s.epochs(), nil
	case "end-offset":
		epoch, end := s.l.EndOffsetForEpoch(int32(arg(t, d, "epoch", 0)))
		return fmt.Sprintf("epoch %d ends at %d\n", epoch, end), nil
	case "producers":
		return s.producers(), nil
	case "find":
		found, err := s.l.OffsetForTimestamp(arg(t, d, "ts", 0), boundOf(t, d))
		return fmt.Sprintf("%+v\n", found), err
	case "read":
		return s.read(arg(t, d, "at", 0), int(arg(t, d, "max", 1<<20)), boundOf(t, d))
	}
	return "", errors.New("unknown command " + d.Cmd)
}

func boundOf(t *testing.T, d *datadriven.TestData) Bound {
	t.Helper()
	name := "end"
	d.MaybeScanArgs(t, "to", &name)
	return map[string]Bound{"end": UpToLogEnd, "hw": UpToHighWatermark, "stable": UpToLastStable}[name]
}

func (s *script) state() string {
	s.l.bg.wait()
	st := s.l.State()
	text := fmt.Sprintf("start %d stable %d hw %d end %d recovery %d epoch %d segments", st.LogStartOffset, st.LastStableOffset,
		st.HighWatermark, st.LogEndOffset, st.RecoveryPoint, st.LatestEpoch)
	for i, seg := range st.segments {
		text += fmt.Sprintf(" %d:%d", seg.Base(), st.bytesOf(i))
	}
	return text + "\n"
}

func (s *script) epochs() string {
	text := ""
	for _, e := range s.l.EpochEntries() {
		text += fmt.Sprintf("%d from %d\n", e.Epoch, e.StartOffset)
	}
	return text
}

func (s *script) producers() string {
	text := ""
	for _, p := range s.l.ActiveProducers() {
		text += fmt.Sprintf("%d epoch %d sequence %d offset %d txn %d\n", p.ProducerID, p.Epoch, p.LastSequence(), p.LastOffset(), p.CurrentTxnFirstOffset)
	}
	return text
}

func (s *script) files() (string, error) {
	entries, err := s.fsys.ReadDir(testDir)
	text := ""
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return "", err
		}
		text += fmt.Sprintf("%s %d\n", e.Name(), info.Size())
	}
	return text, err
}

func (s *script) builder(t *testing.T, d *datadriven.TestData) record.BuilderOptions {
	t.Helper()
	o := record.BuilderOptions{BaseOffset: arg(t, d, "at", 0), LeaderEpoch: int32(arg(t, d, "leader", 0))}
	if pid := arg(t, d, "pid", -1); pid >= 0 {
		o.HasProducer, o.ProducerID = true, pid
		o.ProducerEpoch, o.BaseSequence = int16(arg(t, d, "epoch", 0)), int32(arg(t, d, "seq", 0))
		o.Transactional = d.HasArg("txn")
	}
	return o
}

func (s *script) append(t *testing.T, d *datadriven.TestData) (string, error) {
	t.Helper()
	b := record.NewBuilder(s.builder(t, d))
	for i := range arg(t, d, "n", 1) {
		b.Add(arg(t, d, "ts", 0)+i, nil, make([]byte, arg(t, d, "bytes", 10)), nil)
	}
	if d.Cmd == "follow" {
		_, err := s.l.AppendAsFollower(b.Bytes(), int32(arg(t, d, "own", 100)))
		return s.state(), err
	}
	info, err := s.l.AppendAsLeader(b.Bytes(), int32(arg(t, d, "leader", 0)), AppendOptions{
		AloneInSync: d.HasArg("alone"), Guard: uint64(arg(t, d, "guard", 0)), LogAppendTimeMillis: -1,
	})
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf("%d-%d", info.FirstOffset, info.LastOffset)
	if info.Duplicate {
		text += fmt.Sprintf(" duplicate of %d", info.LogAppendTimeMillis)
	}
	return text + "\n" + s.state(), nil
}

func (s *script) marker(t *testing.T, d *datadriven.TestData) (string, error) {
	t.Helper()
	b := record.BuildEndTxnMarker(record.EndTxnOptions{
		TimestampMillis: arg(t, d, "ts", 0), ProducerID: arg(t, d, "pid", 0), ProducerEpoch: int16(arg(t, d, "epoch", 0)),
		Commit: d.HasArg("commit"), CoordinatorEpoch: int32(arg(t, d, "coordinator", 0)),
	})
	_, err := s.l.AppendAsLeader(b, int32(arg(t, d, "leader", 0)), AppendOptions{
		Origin: FromCoordinator, TransactionVersion: int8(arg(t, d, "version", 1)), LogAppendTimeMillis: -1,
	})
	return s.state(), err
}

func (s *script) read(at int64, maxBytes int, to Bound) (string, error) {
	f, err := s.l.Read(at, maxBytes, to, true)
	if err != nil || f.Range == nil {
		return "nothing\n", err
	}
	defer f.Range.Release()
	buf := make([]byte, f.Range.Len())
	if _, err := f.Range.ReadAt(buf, 0); err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	text := fmt.Sprintf("%d bytes:", len(buf))
	for b, err := range record.Batches(buf) {
		if err != nil {
			text += " cut"
			break
		}
		text += fmt.Sprintf(" %d-%d", b.BaseOffset(), b.LastOffset())
		if b.IsControl() {
			text += "c"
		}
	}
	for _, a := range f.AbortedTxns {
		text += fmt.Sprintf(" aborted %d@%d", a.ProducerID, a.FirstOffset)
	}
	return text + "\n", nil
}
