package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kerr"

	"gregor/internal/coordinator"
	"gregor/internal/coordinator/coordinatortest"
	"gregor/internal/invariants"
	"gregor/protocol/record"
)

// script runs a runtime over a scripted log. Every command waits until nothing
// moves any more, and prints what happened.
type script struct {
	t   *testing.T
	log *coordinatortest.Log
	rt  *runtime

	mu     sync.Mutex
	events []string
	// ordered keeps the order of the events of this command.
	ordered bool

	release func()
}

func (s *script) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, fmt.Sprintf(format, args...))
}

// settle waits and returns what was said meanwhile.
func (s *script) settle() string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ordered {
		// Answers reach their goroutines in any order.
		slices.Sort(s.events)
	}
	out := strings.Join(s.events, "\n")
	s.events, s.ordered = nil, false
	if out == "" {
		return "ok"
	}
	return out
}

func newScript(t *testing.T) *script {
	s := &script{t: t, log: coordinatortest.NewLog(false)}
	s.start()
	return s
}

func (s *script) start() {
	s.rt = coordinator.NewRuntime(options{
		Name: "test", Log: s.log, Codec: pairCodec{}, New: newMachine, WriteTimeout: 10 * time.Second,
		Events: coordinator.Events{
			Loaded:     func(l coordinator.LoadSummary) { s.say("loaded partition %d: %d records", l.Partition, l.Records) },
			LoadFailed: func(p int32, err error) { s.say("load of partition %d failed: %v", p, err) },
			Flushed: func(f coordinator.FlushSummary) {
				if f.Err != nil {
					s.say("append of %d records failed: %v", f.Records, f.Err)
				} else {
					s.say("appended %d records", f.Records)
				}
			},
		},
	})
}

func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if invariants.Enabled && strings.HasSuffix(path, "panic") {
			t.Skip("with the tag invariants a panic is not caught")
		}
		synctest.Test(t, func(t *testing.T) {
			s := newScript(t)
			datadriven.RunTestAny(t, path, func(_ testing.TB, d *datadriven.TestData) string {
				s.run(d)
				return s.settle() + "\n"
			})
			s.rt.Close()
		})
	})
}

// arg returns a named integer, or def.
func arg(d *datadriven.TestData, name string, def int) int {
	for _, a := range d.CmdArgs {
		if a.Key == name {
			n := 0
			_, _ = fmt.Sscan(a.Vals[0], &n)
			return n
		}
	}
	return def
}

func has(d *datadriven.TestData, name string) bool {
	for _, a := range d.CmdArgs {
		if a.Key == name {
			return true
		}
	}
	return false
}

var namedErrors = map[string]error{
	"":                    nil,
	"NOT_ENOUGH_REPLICAS": kerr.NotEnoughReplicas,
	"NOT_LEADER":          kerr.NotLeaderForPartition,
}

func (s *script) run(d *datadriven.TestData) {
	p := int32(arg(d, "p", 0))
	switch d.Cmd {
	case "elect":
		epoch := int32(arg(d, "epoch", 1))
		s.log.Lead(p, epoch)
		s.rt.Elect(p, epoch)
	case "resign":
		s.log.Follow(p)
		s.rt.Resign(p, int32(arg(d, "epoch", -1)))
	case "lose-leadership":
		s.log.Follow(p)
	case "crash":
		s.rt.Close()
		s.start()
	case "write":
		s.write(p, d.Input)
	case "txn":
		s.txn(p, int64(arg(d, "producer", 7)), d.Input)
	case "end":
		s.end(p, int64(arg(d, "producer", 7)), has(d, "commit"))
	case "read":
		s.read(p)
	case "newest":
		s.newest(p)
	case "hw":
		offset := int64(arg(d, "offset", -1))
		if offset < 0 {
			o, _ := s.log.Offsets(p)
			offset = o.LogEnd
		}
		s.log.SetHighWatermark(p, offset)
	case "fail-appends":
		s.log.FailAppends(p, namedErrors[strings.TrimSpace(d.Input)])
	case "hold-reads":
		s.release = s.log.HoldReads(p)
	case "release-reads":
		s.release()
	case "put":
		s.put(p, d.Input)
	case "timer":
		s.timer(p, time.Duration(arg(d, "ms", 1000))*time.Millisecond, d.Input)
	case "sleep":
		time.Sleep(time.Duration(arg(d, "ms", 1000)) * time.Millisecond)
	case "max-batch":
		s.log.SetMaxBatchBytes(int32(arg(d, "bytes", 1<<20)))
	case "log":
		s.ordered = true
		s.dump(p)
	case "metrics":
		m := s.rt.Metrics()
		s.say("loading=%d active=%d failed=%d batches=%d records=%d failures=%d", m.Loading, m.Active, m.Failed, m.Batches, m.Records, m.Failures)
	default:
		s.t.Errorf("unknown command %s", d.Cmd)
	}
}

func parse(line string) (op string, records []pair) {
	fields := strings.Fields(line)
	for _, f := range fields[1:] {
		k, v, _ := strings.Cut(f, "=")
		records = append(records, pair{k, v})
	}
	return fields[0], records
}

// write starts one write per line: its name, flags and records. All of them are
// in the queue before the first one runs.
func (s *script) write(p int32, input string) {
	gate := make(chan struct{})
	go func() {
		_, _ = coordinator.Read(s.t.Context(), s.rt, p, func(*machine) (string, error) {
			<-gate
			return "", nil
		})
	}()
	for line := range strings.Lines(input) {
		synctest.Wait()
		name, records := parse(line)
		go func() {
			resp, err := coordinator.Write(s.t.Context(), s.rt, p, func(m *machine) (string, effect, error) { return s.op(m, name, records) })
			s.done(name, resp, err)
		}()
	}
	synctest.Wait()
	close(gate)
}

func (s *script) op(m *machine, name string, records []pair) (string, effect, error) {
	e := effect{}
	for _, r := range records {
		switch r.key {
		case "applied":
			e.Applied = true
			m.soft = append(m.soft, name)
		case "splittable":
			e.Splittable = true
		case "done":
			e.Done = func(err error) { s.say("%s: hook %v", name, err) }
		case "refused":
			return "", effect{}, errors.New("refused")
		case "panic":
			panic("as asked")
		default:
			e.Records = append(e.Records, r)
		}
	}
	return fmt.Sprintf("saw %d keys", m.data.Len()), e, nil
}

func (s *script) done(name, resp string, err error) {
	if err != nil {
		s.say("%s: %v", name, err)
		return
	}
	s.say("%s: %s", name, resp)
}

func (s *script) txn(p int32, producer int64, input string) {
	name, records := parse(input)
	go func() {
		resp, err := coordinator.WriteTxn(s.t.Context(), s.rt, coordinator.VerifyTxn{Partition: p, TransactionalID: "tx", Producer: coordinator.Producer{ID: producer}},
			func(m *machine) (string, effect, error) { return s.op(m, name, records) })
		s.done(name, resp, err)
	}()
}

func (s *script) end(p int32, producer int64, commit bool) {
	go func() {
		err := coordinator.EndTxn(s.t.Context(), s.rt, p, coordinator.Producer{ID: producer}, 3, commit)
		s.done("end", "ended", err)
	}()
}

func (s *script) read(p int32) {
	go func() {
		resp, err := coordinator.Read(s.t.Context(), s.rt, p, func(m *machine) (string, error) {
			return show(maps.Collect(m.data.AllCommitted())), nil
		})
		s.done("read", resp, err)
	}()
}

// newest shows uncommitted state, which takes a write that waits; so it looks
// at it on the way.
func (s *script) newest(p int32) {
	go func() {
		ctx, cancel := context.WithCancel(s.t.Context())
		defer cancel()
		_, _ = coordinator.Write(ctx, s.rt, p, func(m *machine) (string, effect, error) {
			s.say("newest: %s soft %v", show(maps.Collect(m.data.All())), m.soft)
			cancel()
			return "", effect{}, nil
		})
	}()
}

// put writes records to the log behind the runtime's back.
func (s *script) put(p int32, input string) {
	_, records := parse("x " + input)
	o, _ := s.log.Offsets(p)
	b := record.NewBuilder(record.BuilderOptions{BaseOffset: o.LogEnd})
	for _, r := range records {
		var value []byte
		if r.value != "" {
			value = []byte(r.value)
		}
		b.Add(0, []byte(r.key), value, nil)
	}
	s.log.Put(p, b.Bytes())
}

func (s *script) timer(p int32, after time.Duration, input string) {
	name, records := parse(input)
	go func() {
		_, _ = coordinator.Read(s.t.Context(), s.rt, p, func(m *machine) (string, error) {
			if len(records) == 0 {
				m.h.Timers.Cancel(name)
				return "", nil
			}
			m.h.Timers.Schedule(name, after, true, func() (effect, error) {
				s.say("timer %s", name)
				_, e, err := s.op(m, name, records)
				return e, err
			})
			return "", nil
		})
	}()
}

func (s *script) dump(p int32) {
	for _, b := range s.log.Batches(p) {
		var out []string
		for rec, err := range b.Records(record.Limits{}) {
			if err != nil {
				s.t.Error(err)
				return
			}
			if b.IsControl() {
				kind, _ := record.ParseControlKey(rec.Key)
				out = append(out, kind.String())
				continue
			}
			out = append(out, string(rec.Key)+"="+string(rec.Value))
		}
		s.say("%d-%d epoch %d producer %d: %s", b.BaseOffset(), b.LastOffset(), b.LeaderEpoch(), b.ProducerID(), strings.Join(out, " "))
	}
}
