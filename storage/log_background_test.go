package storage

import (
	"slices"
	"testing"
	"testing/synctest"
)

func TestNobodyWaitsForWorkAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b background
		var done []string
		hold := make(chan struct{})
		b.runAside(func() {
			<-hold
			done = append(done, "aside 1")
		})
		synctest.Wait()
		b.waitSettled()
		if !b.isSettled() || b.isIdle() {
			t.Error("work aside is waited for, or not seen")
		}
		b.runAside(func() { done = append(done, "aside 2") })
		b.run(func() { done = append(done, "work") })
		if b.isSettled() {
			t.Error("settled with work in the queue")
		}
		close(hold)
		b.waitSettled()
		b.wait()
		if !b.isSettled() || !b.isIdle() || !slices.Equal(done, []string{"aside 1", "work", "aside 2"}) {
			t.Errorf("done: %v", done)
		}
	})
}
