package replica

import (
	"sync"
	"testing"
	"time"

	"gregor/storage"
)

// fired returns how often each subscription has fired since the last call, and checks that the waiter was told.
func fired(t *testing.T, w *Waiter) map[*Subscription]int {
	t.Helper()
	told := false
	select {
	case <-w.C:
		told = true
	default:
	}
	out := map[*Subscription]int{}
	for _, s := range w.TakeFired(nil) {
		out[s]++
	}
	if len(out) > 0 && !told {
		t.Error("subscriptions fired and the waiter was not told")
	}
	return out
}

func subscribe(p *Partition, w *Waiter, s *Subscription) { p.Subscribe(w, s, p.watch.turns.Load()) }

func checkFired(t *testing.T, w *Waiter, what string, want ...*Subscription) {
	t.Helper()
	got := fired(t, w)
	for _, s := range want {
		if got[s] != 1 {
			t.Errorf("%s: a subscription fired %d times, want once", what, got[s])
		}
		delete(got, s)
	}
	if len(got) > 0 {
		t.Errorf("%s: %d others fired too", what, len(got))
	}
}

func TestSubscriptionFiresWhenItsOffsetIsReached(t *testing.T) {
	p := newTestPartition(t, nil)
	mustApply(t, p, Assignment{Leader: 1, Replicas: []int32{1, 2}, ISR: []int32{1, 2}})
	w := NewWaiter()
	end, hw, far := &Subscription{Bound: storage.UpToLogEnd}, &Subscription{Bound: storage.UpToHighWatermark}, &Subscription{Bound: storage.UpToLogEnd, Offset: 5}
	for _, s := range []*Subscription{end, hw, far} {
		subscribe(p, w, s)
	}
	checkFired(t, w, "before any append")
	appendOne(t, p, false, "a")
	checkFired(t, w, "after an append", end)
	if err := p.FollowerFetched(2, 1, 0, time.Now()); err != nil {
		t.Fatal(err)
	}
	checkFired(t, w, "after the follower's fetch", hw)
	appendOne(t, p, false, "b")
	checkFired(t, w, "below the offset of the last one")
	p.Unsubscribe(far)
	if n := p.Waiting(); n != 0 {
		t.Errorf("%d registrations left", n)
	}
}

func TestSubscriptionFiresAtOnceWhenItIsDueAlready(t *testing.T) {
	p := newTestPartition(t, nil)
	mustApply(t, p, alone(0))
	turn := p.watch.turns.Load()
	appendOne(t, p, false, "a")
	w := NewWaiter()
	s := &Subscription{Bound: storage.UpToHighWatermark}
	p.Subscribe(w, s, turn)
	checkFired(t, w, "an offset below the end", s)
	mustApply(t, p, alone(1))
	s.Offset = 1
	p.Subscribe(w, s, turn)
	checkFired(t, w, "a turn that is over", s)
	subscribe(p, w, s)
	checkFired(t, w, "at the end")
	if n := p.Waiting(); n != 1 {
		t.Errorf("%d registrations, want 1", n)
	}
}

func TestSubscriptionToMovesFiresOnEachOffsetThatIsTold(t *testing.T) {
	p := newTestPartition(t, nil)
	mustApply(t, p, alone(0))
	for range 4 {
		appendOne(t, p, false, "a")
	}
	w := NewWaiter()
	moves := func() *Subscription {
		s := p.State()
		return &Subscription{Bound: storage.UpToHighWatermark, Offset: 100, Moves: true, HighWatermark: s.HighWatermark, LogStartOffset: s.LogStartOffset}
	}
	s := moves()
	subscribe(p, w, s)
	checkFired(t, w, "nothing moved")
	if _, err := p.DeleteRecords(2); err != nil {
		t.Fatal(err)
	}
	checkFired(t, w, "the log start moved", s)
	s = moves()
	subscribe(p, w, s)
	appendOne(t, p, false, "a")
	checkFired(t, w, "the high watermark moved", s)
}

func TestRoleChangeFiresEverything(t *testing.T) {
	p := newTestPartition(t, nil)
	mustApply(t, p, alone(0))
	w := NewWaiter()
	var all []*Subscription
	for range 3 {
		s := &Subscription{Bound: storage.UpToLogEnd, Offset: 9}
		subscribe(p, w, s)
		all = append(all, s)
	}
	next := alone(1)
	next.Leader = 2
	mustApply(t, p, next)
	checkFired(t, w, "after a role change", all...)
	if n := p.Waiting(); n != 0 {
		t.Errorf("%d registrations left", n)
	}
}

func TestUnsubscribedOnesAreNotTold(t *testing.T) {
	p := newTestPartition(t, nil)
	mustApply(t, p, alone(0))
	w := NewWaiter()
	var all []*Subscription
	for range 5 {
		s := &Subscription{Bound: storage.UpToLogEnd}
		subscribe(p, w, s)
		all = append(all, s)
	}
	p.Unsubscribe(all[1])
	appendOne(t, p, false, "a")
	p.Unsubscribe(all[3])
	p.Unsubscribe(all[4])
	p.Unsubscribe(all[4]) // a second time does nothing
	checkFired(t, w, "of five, of which one left before and two after the append", all[0], all[2])
	p.Unsubscribe(&Subscription{}) // nor does one that never was
}

// TestNothingIsMissedBetweenLookingAndSubscribing has readers that wait for each record while a writer appends: a
// missed wake-up would leave a reader waiting for ever.
func TestNothingIsMissedBetweenLookingAndSubscribing(t *testing.T) {
	const records = 300
	p := newTestPartition(t, nil)
	mustApply(t, p, alone(0))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			w, s := NewWaiter(), &Subscription{Bound: storage.UpToHighWatermark}
			for next := range int64(records) {
				for {
					turn := p.watch.turns.Load()
					if p.State().HighWatermark > next {
						break
					}
					s.Offset = next
					p.Subscribe(w, s, turn)
					<-w.C
					p.Unsubscribe(s)
				}
			}
		})
	}
	for i := range int32(records) {
		appendOne(t, p, false, "a")
		if i%50 == 0 {
			mustApply(t, p, alone(i+1))
		}
	}
	wg.Wait()
	if n := p.Waiting(); n != 0 {
		t.Errorf("%d registrations left", n)
	}
}
