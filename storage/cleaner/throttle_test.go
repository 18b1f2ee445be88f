package cleaner

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestThrottleKeepsTheRateOverAllGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var th throttle
		th.setRate(1000)
		began := time.Now()
		done := make(chan struct{})
		for range 4 {
			go func() {
				for range 25 {
					if err := th.wait(t.Context(), 100); err != nil {
						t.Error(err)
					}
				}
				done <- struct{}{}
			}()
		}
		for range 4 {
			<-done
		}
		if took := time.Since(began); took < 10*time.Second-burst || took > 10*time.Second {
			t.Errorf("10000 bytes at 1000 per second took %v", took)
		}
		// Idle time is not saved up.
		time.Sleep(time.Hour)
		began = time.Now()
		for range 50 {
			if err := th.wait(t.Context(), 100); err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(began); took < 5*time.Second-burst {
			t.Errorf("5000 bytes after a pause took %v", took)
		}
	})
}

func TestThrottleEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var th throttle
		th.setRate(0) // as slow as it gets
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		began := time.Now()
		if err := th.wait(ctx, 1<<30); !errors.Is(err, context.Canceled) || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

func TestWithoutALimitNothingWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var th throttle
		th.setRate(DefaultConfig().MaxBytesPerSecond)
		began := time.Now()
		for range 1000 {
			if err := th.wait(t.Context(), 1<<30); err != nil {
				t.Fatal(err)
			}
		}
		if time.Since(began) != 0 {
			t.Errorf("waited for %v", time.Since(began))
		}
	})
}
