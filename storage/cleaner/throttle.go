package cleaner

import (
	"context"
	"sync"
	"time"
)

// burst is how far reads and writes may run ahead of the rate.
const burst = 300 * time.Millisecond

// throttle bounds the bytes per second of all goroutines of a Pool together.
type throttle struct {
	mu    sync.Mutex
	rate  float64 // bytes per second
	spent time.Time
}

func (t *throttle) setRate(bytesPerSecond float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rate = max(bytesPerSecond, 1)
	t.spent = time.Time{}
}

// wait accounts for bytes and blocks until the rate allows them; it ends early, with an error, when ctx does.
func (t *throttle) wait(ctx context.Context, bytes int) error {
	t.mu.Lock()
	now := time.Now()
	if t.spent.Before(now) {
		t.spent = now
	}
	const longest = 1e9 // seconds; a Duration holds nine of them
	t.spent = t.spent.Add(time.Duration(min(float64(bytes)/t.rate, longest) * float64(time.Second)))
	ahead := t.spent.Sub(now)
	t.mu.Unlock()
	if ahead <= burst {
		return ctx.Err()
	}
	timer := time.NewTimer(ahead - burst)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
