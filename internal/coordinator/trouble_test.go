package coordinator

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// noMachine is a machine that is never asked.
type noMachine struct{ Machine[int] }

func TestTimersThatGoOnFailingAreToldSeldomAndTheirEndOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		p := &partition[int, noMachine]{logger: slog.New(slog.NewTextHandler(&log, nil))}
		for range 20 * time.Minute / retryBackoff {
			p.timerDone(&timer[int]{key: "expire"}, errors.New("no space"))
			time.Sleep(retryBackoff)
		}
		if n := strings.Count(log.String(), "timer operation failed"); n < 10 || n > 30 {
			t.Errorf("%d lines in 20 minutes", n)
		}
		log.Reset()
		p.timerDone(&timer[int]{key: "expire"}, nil)
		p.timerDone(&timer[int]{key: "expire"}, nil)
		p.timerDone(&timer[int]{key: "expire"}, ErrNotCoordinator)
		if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "timer operations work again") || !strings.Contains(got, "after=20m0s") {
			t.Errorf("at the end: %s", got)
		}
	})
}
