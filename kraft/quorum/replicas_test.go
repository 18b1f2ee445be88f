package quorum

import (
	"testing"
	"time"
)

// As KRaft: a replica is caught up when it reaches the leader's log end, or the end that the leader had at its fetch
// before.
func TestCaughtUpIsMeasuredAsKRaftDoes(t *testing.T) {
	start := time.UnixMilli(1000000)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	var p progress
	p.update(0, 10, at(0))
	if !p.lastCaughtUp.IsZero() {
		t.Fatal("a replica at 0 of 10 is not caught up")
	}
	p.update(10, 12, at(1)) // reached what the leader had at second 0
	if p.lastCaughtUp != at(0) {
		t.Fatalf("caught up at %v", p.lastCaughtUp)
	}
	p.update(11, 13, at(2)) // 12 was the end at second 1
	if p.lastCaughtUp != at(0) {
		t.Fatalf("caught up at %v", p.lastCaughtUp)
	}
	p.update(13, 13, at(3))
	if p.lastCaughtUp != at(3) || p.lastFetch != at(3) {
		t.Fatalf("caught up at %v", p.lastCaughtUp)
	}
}

func TestObserversThatDoNotFetchAreForgotten(t *testing.T) {
	tr := newReplicaTracker()
	now := time.UnixMilli(1000000)
	a, b := ReplicaKey{ID: 7}, testVoter(8, 0).Key
	tr.observer(b, 5, 5, now)
	tr.observer(a, 3, 5, now.Add(time.Minute))
	voters := set(t, 1, 2)
	vs, obs := tr.describe(voters, 1, 5, now.Add(2*time.Minute))
	if len(vs) != 2 || vs[0].LogEndOffset != 5 || vs[1].LogEndOffset != -1 || vs[1].LastFetchTimestampMillis != -1 {
		t.Fatalf("voters %+v", vs)
	}
	if len(obs) != 2 || obs[0].Key != a || obs[1].Key != b || obs[0].LastCaughtUpTimestampMillis != -1 {
		t.Fatalf("observers %+v", obs)
	}
	if _, obs = tr.describe(voters, 1, 5, now.Add(5*time.Minute)); len(obs) != 1 || obs[0].Key != a {
		t.Fatalf("five minutes later: %+v", obs)
	}
	if !tr.caughtUp(a, now) == tr.caughtUp(a, now) || tr.caughtUp(a, now.Add(time.Minute)) {
		t.Error("an observer at 3 of 5 counts as caught up")
	}
	tr.observer(a, 5, 5, now)
	if !tr.caughtUp(a, now.Add(time.Minute)) || tr.caughtUp(a, now.Add(6*time.Minute)) || tr.caughtUp(b, now) {
		t.Error("caught up: recently at the end, and fetching")
	}
	// A new leader starts from nothing, and a voter is no observer.
	tr.observer(testVoter(2, 0).Key, 5, 5, now)
	if _, obs = tr.describe(voters, 1, 5, now); len(obs) != 1 {
		t.Errorf("observers %+v", obs)
	}
	tr.reset()
	if _, obs = tr.describe(voters, 1, 5, now); len(obs) != 0 {
		t.Errorf("observers after a change of leader %+v", obs)
	}
}

func TestObserversThatNameThemselvesDoNotFillTheMemory(t *testing.T) {
	tr := newReplicaTracker()
	now := time.UnixMilli(1000000)
	for id := range int32(maxObservers + 100) {
		tr.observer(ReplicaKey{ID: id}, 5, 5, now)
	}
	if len(tr.observers) != maxObservers {
		t.Errorf("%d observers are remembered", len(tr.observers))
	}
	late := ReplicaKey{ID: 1 << 20}
	if tr.observer(late, 5, 5, now.Add(observerExpiry)); len(tr.observers) != 1 || tr.observers[late] == nil {
		t.Errorf("%d observers after those before have expired", len(tr.observers))
	}
}
