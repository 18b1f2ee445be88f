package coordinator_test

import (
	"errors"
	"fmt"
	"strconv"
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

// elected returns a runtime that serves partition 0 of the log.
func elected(log coordinator.Log, timeout time.Duration) *runtime {
	rt := coordinator.NewRuntime(options{Name: "test", Log: log, Codec: pairCodec{}, New: newMachine, WriteTimeout: timeout})
	log.(interface{ Lead(int32, int32) }).Lead(0, 1)
	rt.Elect(0, 1)
	synctest.Wait()
	return rt
}

// put writes a pair.
func put(p pair) func(*machine) (struct{}, effect, error) {
	return func(*machine) (struct{}, effect, error) { return struct{}{}, effect{Records: []pair{p}}, nil }
}

func TestAnOperationOfAnIdlePartitionRunsOnItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := elected(coordinatortest.NewLog(true), time.Second)
		defer rt.Close()
		answered := false // no lock: it is all one goroutine
		coordinator.StartWrite(rt, 0, put(pair{"a", "1"}), func(_ struct{}, err error) {
			if err != nil {
				t.Error(err)
			}
			answered = true
		})
		if !answered {
			t.Error("the answer of a write without followers comes later")
		}
		answered = false
		coordinator.StartRead(rt, 0, func(m *machine) (string, error) {
			v, _ := m.data.GetCommitted("a")
			return v, nil
		}, func(v string, err error) {
			answered = v == "1" && err == nil
		})
		if !answered {
			t.Error("the answer of a read comes later, or is wrong")
		}
	})
}

func TestAnswersThatWaitForTheHighWatermarkTimeOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := coordinatortest.NewLog(false)
		rt := elected(log, 10*time.Second)
		defer rt.Close()
		start := time.Now()
		type end struct {
			after time.Duration
			err   error
		}
		ends := make(chan end, 3)
		write := func(p pair) {
			coordinator.StartWrite(rt, 0, put(p), func(_ struct{}, err error) { ends <- end{time.Since(start), err} })
		}
		write(pair{"a", "1"})
		time.Sleep(4 * time.Second)
		write(pair{"b", "2"})
		time.Sleep(5 * time.Second)
		write(pair{"c", "3"})
		for _, want := range []time.Duration{10 * time.Second, 14 * time.Second} {
			if e := <-ends; e.after != want || !errors.Is(e.err, coordinator.ErrTimedOut) {
				t.Errorf("after %v: %v, want a timeout after %v", e.after, e.err, want)
			}
		}
		log.SetHighWatermark(0, 3)
		if e := <-ends; e.after != 14*time.Second || e.err != nil {
			t.Errorf("after %v: %v, want an answer at once", e.after, e.err)
		}
	})
}

// One caller runs what others have submitted, but not for ever.
func TestACallerIsNotKeptByTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := elected(coordinatortest.NewLog(true), time.Second)
		defer rt.Close()
		read := func(wait <-chan struct{}) {
			coordinator.StartRead(rt, 0, func(*machine) (string, error) {
				if wait != nil {
					<-wait
				}
				return "", nil
			}, func(string, error) {})
		}
		first, later := make(chan struct{}), make(chan struct{})
		returned := make(chan struct{})
		go func() {
			read(first)
			close(returned)
		}()
		synctest.Wait()
		for range 200 {
			read(nil) // returns at once: somebody is at the partition
		}
		read(later)
		close(first)
		synctest.Wait()
		select {
		case <-returned:
		default:
			t.Error("the first caller runs everything")
		}
		close(later)
		synctest.Wait()
	})
}

// Something long holds up neither who submitted before it, nor who would otherwise return at once.
func TestACallerThatCannotWaitRunsNothingLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := elected(coordinatortest.NewLog(true), time.Second)
		defer rt.Close()
		first, long := make(chan struct{}), make(chan struct{})
		returned, ended, timer := make(chan struct{}), make(chan struct{}), make(chan struct{})
		go func() {
			coordinator.StartRead(rt, 0, func(m *machine) (string, error) {
				m.h.Timers.Schedule("due at once", 0, false, func() (effect, error) {
					close(timer)
					return effect{}, nil
				})
				<-first
				return "", nil
			}, func(string, error) {})
			close(returned)
		}()
		synctest.Wait()
		go func() {
			_, _ = coordinator.Read(t.Context(), rt, 0, func(*machine) (string, error) {
				<-long
				return "", nil
			})
			close(ended)
		}()
		synctest.Wait()
		close(first)
		synctest.Wait()
		select {
		case <-returned:
		default:
			t.Error("who cannot wait runs what is long")
		}
		close(long)
		<-ended
		<-timer
	})
}

func TestAnswersMaySubmit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := coordinatortest.NewLog(true)
		rt := elected(log, time.Second)
		defer rt.Close()
		ended := make(chan error, 1)
		var next func(n int)
		next = func(n int) {
			coordinator.StartWrite(rt, 0, put(pair{"n", strconv.Itoa(n)}), func(_ struct{}, err error) {
				if err != nil || n == 0 {
					ended <- err
					return
				}
				next(n - 1)
			})
		}
		next(1000)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if n := len(log.Batches(0)); n != 1001 {
			t.Errorf("%d batches", n)
		}
	})
}

func TestAPartitionUnderLoadIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := elected(coordinatortest.NewLog(true), time.Second)
		var callers sync.WaitGroup
		for range 4 {
			callers.Go(func() {
				for {
					_, err := coordinator.Read(t.Context(), rt, 0, func(*machine) (string, error) {
						time.Sleep(time.Millisecond)
						return "", nil
					})
					if err != nil {
						if !errors.Is(err, coordinator.ErrNotCoordinator) {
							t.Error(err)
						}
						return
					}
				}
			})
		}
		time.Sleep(time.Second)
		start := time.Now()
		rt.Close()
		callers.Wait()
		if took := time.Since(start); took > 100*time.Millisecond {
			t.Errorf("given up after %v", took)
		}
	})
}

func TestAPartitionIsGivenUpWhenTheOperationThatRunsHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := elected(coordinatortest.NewLog(true), time.Second)
		gate, closed := make(chan struct{}), make(chan struct{})
		go func() {
			_, _ = coordinator.Read(t.Context(), rt, 0, func(*machine) (string, error) {
				<-gate
				return "", nil
			})
		}()
		synctest.Wait()
		go func() {
			rt.Close()
			close(closed)
		}()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("given up while an operation runs")
		default:
		}
		close(gate)
		<-closed
	})
}

// Whoever has the turn changes all the time here; the race detector sees whether two have it at once.
func TestManyCallersGetOneAnswerEach(t *testing.T) {
	const callers, each = 8, 300
	log := coordinatortest.NewLog(false)
	rt := coordinator.NewRuntime(options{Name: "test", Log: log, Codec: pairCodec{}, New: newMachine, WriteTimeout: time.Hour})
	log.Lead(0, 1)
	rt.Elect(0, 1)
	stop := make(chan struct{})
	var helpers sync.WaitGroup
	helpers.Go(func() { // the followers
		for {
			select {
			case <-stop:
				return
			default:
			}
			if o, err := log.Offsets(0); err == nil && o.LogEnd > o.HighWatermark {
				log.SetHighWatermark(0, o.LogEnd)
			}
			time.Sleep(50 * time.Microsecond)
		}
	})
	helpers.Go(func() { // the controller and the disk
		for epoch := int32(2); ; epoch++ {
			select {
			case <-stop:
				return
			case <-time.After(3 * time.Millisecond):
			}
			switch epoch % 3 {
			case 0:
				log.FailAppends(0, kerr.NotEnoughReplicas)
			case 1:
				log.FailAppends(0, nil)
			default:
				log.Lead(0, epoch)
				rt.Elect(0, epoch)
			}
		}
	})
	var answers [callers * each]atomic.Int32
	var written sync.Map
	var pending sync.WaitGroup
	for c := range callers {
		pending.Go(func() {
			for i := range each {
				n := c*each + i
				pending.Add(1)
				coordinator.StartWrite(rt, 0, put(pair{fmt.Sprint("k", n), fmt.Sprint("v", n)}), func(_ struct{}, err error) {
					if answers[n].Add(1) > 1 {
						t.Errorf("write %d is answered again", n)
						return
					}
					if err == nil {
						written.Store(fmt.Sprint("v", n), true)
					}
					pending.Done()
				})
				if i%10 == 0 {
					time.Sleep(100 * time.Microsecond)
				}
			}
		})
	}
	pending.Wait()
	close(stop)
	helpers.Wait()
	rt.Close()
	inLog := map[string]bool{}
	for _, b := range log.Batches(0) {
		for rec, err := range b.Records(record.Limits{}) {
			if err != nil {
				t.Fatal(err)
			}
			inLog[string(rec.Value)] = true
		}
	}
	n := 0
	for value := range written.Range {
		n++
		if !inLog[value.(string)] {
			t.Errorf("%v was answered but is not in the log", value)
		}
	}
	if n == 0 {
		t.Error("no write got through")
	}
}
