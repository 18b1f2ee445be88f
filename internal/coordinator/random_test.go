package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"gregor/internal/coordinator"
	"gregor/internal/coordinator/coordinatortest"
	"gregor/protocol/record"
)

// history is what clients of a random run were told.
type history struct {
	mu      sync.Mutex
	written map[string]bool // answered without error
	refused map[string]bool // failed for sure
}

func TestRandomHistoriesLoseNothingThatWasAnswered(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { randomHistory(t, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

func randomHistory(t *testing.T, rng *rand.Rand) {
	log := coordinatortest.NewLog(false)
	h := &history{written: map[string]bool{}, refused: map[string]bool{}}
	rt := coordinator.NewRuntime(options{Name: "random", Log: log, Codec: pairCodec{}, New: newMachine, WriteTimeout: time.Hour})
	epoch := int32(1)
	log.Lead(0, epoch)
	rt.Elect(0, epoch)
	synctest.Wait()
	for i := range 80 {
		switch rng.IntN(10) {
		case 0:
			if o, err := log.Offsets(0); err == nil {
				log.SetHighWatermark(0, o.HighWatermark+rng.Int64N(o.LogEnd-o.HighWatermark+1))
			}
		case 1:
			log.FailAppends(0, kerr.NotEnoughReplicas)
		case 2:
			log.FailAppends(0, nil)
		case 3:
			rt.Resign(0, -1)
		case 4:
			epoch++
			log.Lead(0, epoch)
			rt.Elect(0, epoch)
		default:
			// The value names the write, so that it is found in the log.
			h.write(t, rt, pair{fmt.Sprint("k", rng.IntN(5)), fmt.Sprint("v", i)})
		}
		if rng.IntN(3) > 0 {
			synctest.Wait()
		}
	}
	log.FailAppends(0, nil)
	epoch++
	log.Lead(0, epoch)
	rt.Elect(0, epoch)
	synctest.Wait()
	o, err := log.Offsets(0)
	if err != nil {
		t.Fatal(err)
	}
	log.SetHighWatermark(0, o.LogEnd)
	synctest.Wait()
	h.check(t, log, rt)
	rt.Close()
}

func (h *history) write(t *testing.T, rt *runtime, p pair) {
	go func() {
		_, err := coordinator.Write(t.Context(), rt, 0, func(*machine) (string, effect, error) {
			return "", effect{Records: []pair{p}}, nil
		})
		h.mu.Lock()
		defer h.mu.Unlock()
		switch {
		case err == nil:
			h.written[p.value] = true
		case errors.Is(err, kerr.NotEnoughReplicas):
			h.refused[p.value] = true
		}
	}()
}

// check compares the state with a plain fold over the log.
func (h *history) check(t *testing.T, log *coordinatortest.Log, rt *runtime) {
	h.mu.Lock()
	defer h.mu.Unlock()
	want, inLog := map[string]string{}, map[string]bool{}
	for _, b := range log.Batches(0) {
		for rec, err := range b.Records(record.Limits{}) {
			if err != nil {
				t.Fatal(err)
			}
			want[string(rec.Key)] = string(rec.Value)
			inLog[string(rec.Value)] = true
		}
	}
	for value := range h.written {
		if !inLog[value] {
			t.Errorf("write %s was answered but is not in the log", value)
		}
	}
	for value := range h.refused {
		if inLog[value] {
			t.Errorf("write %s was refused but is in the log", value)
		}
	}
	got, err := coordinator.Read(t.Context(), rt, 0, func(m *machine) (map[string]string, error) {
		return maps.Collect(m.data.AllCommitted()), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("state %v, log %v", got, want)
	}
}

func TestWriteEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := coordinatortest.NewLog(false)
		rt := coordinator.NewRuntime(options{Log: log, Codec: pairCodec{}, New: newMachine})
		log.Lead(0, 1)
		rt.Elect(0, 1)
		synctest.Wait()
		_, err := coordinator.Read(canceled(t), rt, 0, func(*machine) (string, error) { return "", nil })
		if err != nil && !errors.Is(err, t.Context().Err()) {
			t.Log(err) // either answer is right: the read may be faster
		}
		_, err = coordinator.Write(canceled(t), rt, 0, func(*machine) (string, effect, error) {
			return "", effect{Records: []pair{{"a", "1"}}}, nil
		})
		if err == nil {
			t.Error("a write without a high watermark was answered")
		}
		synctest.Wait()
		if n := len(log.Batches(0)); n != 1 {
			t.Errorf("%d batches: the write ends with its caller", n)
		}
		rt.Close()
		if ps := rt.Partitions(); len(ps) != 0 {
			t.Errorf("partitions %v after close", ps)
		}
		rt.Elect(0, 9)
		if ps := rt.Partitions(); len(ps) != 0 {
			t.Errorf("partitions %v elected after close", ps)
		}
	})
}

func TestFailedVerificationWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := coordinatortest.NewLog(true)
		rt := coordinator.NewRuntime(options{Log: log, Codec: pairCodec{}, New: newMachine})
		defer rt.Close()
		log.Lead(0, 1)
		rt.Elect(0, 1)
		synctest.Wait()
		log.FailVerification(kerr.InvalidTxnState)
		_, err := coordinator.WriteTxn(t.Context(), rt, coordinator.VerifyTxn{}, func(*machine) (string, effect, error) {
			t.Error("the operation ran")
			return "", effect{}, nil
		})
		if !errors.Is(err, kerr.InvalidTxnState) {
			t.Errorf("error %v", err)
		}
	})
}

func TestLogErrorsBecomeCoordinatorErrors(t *testing.T) {
	for from, to := range map[error]error{
		kerr.NotLeaderForPartition:                   kerr.NotCoordinator,
		kerr.KafkaStorageError:                       kerr.NotCoordinator,
		kerr.NotEnoughReplicas:                       kerr.CoordinatorNotAvailable,
		kerr.UnknownTopicOrPartition:                 kerr.CoordinatorNotAvailable,
		coordinator.ErrTimedOut:                      kerr.CoordinatorNotAvailable,
		kerr.NetworkException:                        kerr.CoordinatorLoadInProgress,
		coordinator.ErrTooLargeToWrite:               kerr.UnknownServerError,
		kerr.IllegalGeneration:                       kerr.IllegalGeneration,
		fmt.Errorf("x: %w", kerr.RecordListTooLarge): kerr.UnknownServerError,
	} {
		if got := coordinator.ClientError(from); !errors.Is(got, to) {
			t.Errorf("%v becomes %v, want %v", from, got, to)
		}
	}
}

func canceled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// failingOnce fails the first append.
type failingOnce struct {
	*coordinatortest.Log
	failed atomic.Bool
}

func (l *failingOnce) Append(ctx context.Context, a coordinator.Append) (int64, error) {
	if !l.failed.Swap(true) {
		return -1, kerr.NotEnoughReplicas
	}
	return l.Log.Append(ctx, a)
}

// An operation whose records do not fit the open batch has seen what the batch did. When the append of the batch fails
// that never happened, and what follows from it must not be written either.
func TestOperationFailsWithTheBatchThatItWasDecidedOn(t *testing.T) {
	for _, splittable := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			log := &failingOnce{Log: coordinatortest.NewLog(true)}
			log.SetMaxBatchBytes(record.HeaderSizeBytes + 100)
			rt := coordinator.NewRuntime(options{Name: "test", Log: log, Codec: pairCodec{}, New: newMachine})
			defer rt.Close()
			log.Lead(0, 1)
			rt.Elect(0, 1)
			synctest.Wait()
			gate, errs := make(chan struct{}), make(chan error, 2)
			go func() {
				_, _ = coordinator.Read(t.Context(), rt, 0, func(*machine) (string, error) {
					<-gate
					return "", nil
				})
			}()
			for _, key := range []string{"first", "second"} {
				synctest.Wait()
				go func() {
					_, err := coordinator.Write(t.Context(), rt, 0, func(m *machine) (string, effect, error) {
						if _, seen := m.data.Get("first"); key == "second" && !seen {
							t.Error("the second operation does not see the first")
						}
						return "", effect{Records: []pair{{key, strings.Repeat("x", 40)}}, Splittable: splittable}, nil
					})
					errs <- err
				}()
			}
			synctest.Wait()
			close(gate)
			for range 2 {
				if err := <-errs; !errors.Is(err, kerr.NotEnoughReplicas) {
					t.Errorf("splittable %v: an operation ends with %v", splittable, err)
				}
			}
			if n := len(log.Batches(0)); n > 0 {
				t.Errorf("splittable %v: %d batches are in the log", splittable, n)
			}
		})
	}
}
