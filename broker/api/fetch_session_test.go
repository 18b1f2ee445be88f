package api

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"gregor/protocol"
)

// fetchOf is a Fetch of partitions of topic t in a session.
func fetchOf(version int16, session, epoch int32, partitions ...int32) *protocol.FetchRequest {
	q := &protocol.FetchRequest{Version: version, ReplicaID: -1, SessionID: session, SessionEpoch: epoch}
	if len(partitions) > 0 {
		t := protocol.FetchTopic{Name: "t", ID: protocol.UUID{1}}
		for _, p := range partitions {
			t.Partitions = append(t.Partitions, protocol.FetchPartition{Index: p, FetchOffset: int64(p)})
		}
		q.Topics = append(q.Topics, t)
	}
	return q
}

func topicT(protocol.UUID) string { return "t" }

// open opens a session and gives its lock back.
func open(t *testing.T, s *sessions, q *protocol.FetchRequest, now time.Time) (*fetchSession, bool, error) {
	t.Helper()
	f, incremental, err := s.open(q, topicT, now, nil)
	if f != nil {
		f.mu.Unlock()
	}
	return f, incremental, err
}

// order lists the partitions of a session in its order.
func order(f *fetchSession) string {
	all := slices.SortedFunc(maps.Values(f.targets), func(a, b *fetchTarget) int { return cmp.Compare(a.order, b.order) })
	var out []int32
	for _, t := range all {
		out = append(out, t.want.Index)
	}
	return fmt.Sprint(out)
}

func target(f *fetchSession, index int32) *fetchTarget {
	return f.targets[targetKey{topic: "t", index: index}]
}

func TestSessionKeepsItsPartitionsAndFollowsItsEpoch(t *testing.T) {
	s, now := newSessions(10), time.Unix(0, 0)
	f, incremental, err := open(t, s, fetchOf(12, 0, 0, 1, 2, 3), now)
	if err != nil || f == nil || incremental || f.id == 0 {
		t.Fatalf("first fetch: %+v, %v, %v", f, incremental, err)
	}
	for epoch := int32(1); epoch < 4; epoch++ {
		again, incremental, err := open(t, s, fetchOf(12, f.id, epoch), now)
		if err != nil || again != f || !incremental || order(f) != "[1 2 3]" {
			t.Fatalf("epoch %d: %v, %v, partitions %s", epoch, incremental, err, order(f))
		}
	}
	if _, _, err := open(t, s, fetchOf(12, f.id, 2), now); !errors.Is(err, kerr.InvalidFetchSessionEpoch) {
		t.Errorf("a repeated epoch: %v", err)
	}
	if _, _, err := open(t, s, fetchOf(12, f.id+1, 1), now); !errors.Is(err, kerr.FetchSessionIDNotFound) {
		t.Errorf("an unknown session: %v", err)
	}
	if _, _, err := open(t, s, fetchOf(13, f.id, 4), now); !errors.Is(err, kerr.FetchSessionTopicIDError) {
		t.Errorf("ids in a session of names: %v", err)
	}
}

func TestSessionAddsRenewsAndForgetsPartitions(t *testing.T) {
	s, now := newSessions(10), time.Unix(0, 0)
	f, _, _ := open(t, s, fetchOf(12, 0, 0, 1, 2), now)
	q := fetchOf(12, f.id, 1, 2, 5)
	q.Topics[0].Partitions[0].FetchOffset = 77
	q.Forgotten = []protocol.FetchForgottenTopic{{Name: "t", Partitions: []int32{1}}}
	if _, _, err := open(t, s, q, now); err != nil || order(f) != "[2 5]" || target(f, 2).want.FetchOffset != 77 {
		t.Errorf("partitions %s, offset %d, %v", order(f), target(f, 2).want.FetchOffset, err)
	}
	f.moveToEnd(target(f, 2))
	if order(f) != "[5 2]" {
		t.Errorf("after an answer with data: %s", order(f))
	}
}

func TestFinalEpochAndNewSessionsEndTheOldOne(t *testing.T) {
	s, now := newSessions(10), time.Unix(0, 0)
	f, _, _ := open(t, s, fetchOf(12, 0, 0, 1), now)
	if g, incremental, err := open(t, s, fetchOf(12, f.id, finalSessionEpoch, 1), now); g != nil || incremental || err != nil {
		t.Errorf("final epoch: %v, %v, %v", g, incremental, err)
	}
	if s.count() != 0 {
		t.Errorf("%d sessions after the final epoch", s.count())
	}
	f, _, _ = open(t, s, fetchOf(12, 0, 0, 1), now)
	if g, _, _ := open(t, s, fetchOf(12, f.id, 0, 1), now); g == nil || g.id == f.id || s.count() != 1 {
		t.Errorf("a new session in place of the old: %v of %d", g, s.count())
	}
	if g, _, err := open(t, s, fetchOf(6, 0, 0, 1), now); g != nil || err != nil {
		t.Errorf("version 6 has no sessions: %v, %v", g, err)
	}
	if g, _, err := open(t, s, fetchOf(12, 0, 0), now); g != nil || err != nil {
		t.Errorf("a fetch of nothing opens no session: %v, %v", g, err)
	}
}

func TestFullCacheEvictsIdleSessionsAndConsumersForFollowers(t *testing.T) {
	s, now := newSessions(2), time.Unix(0, 0)
	first, _, _ := open(t, s, fetchOf(12, 0, 0, 1), now)
	second, _, _ := open(t, s, fetchOf(12, 0, 0, 1), now)
	if f, _, err := open(t, s, fetchOf(12, 0, 0, 1, 2), now); f != nil || err != nil {
		t.Errorf("with busy sessions only: %v, %v", f, err)
	}
	follower := fetchOf(12, 0, 0, 1)
	follower.ReplicaID = 2
	if f, _, _ := open(t, s, follower, now); f == nil {
		t.Error("a follower got no slot from a consumer")
	}
	later := now.Add(sessionEvictionAge)
	for _, old := range []*fetchSession{first, second} {
		if s.byID[old.id] != nil {
			old.lastUsed = later
		}
	}
	if f, _, _ := open(t, s, fetchOf(12, 0, 0, 1), later.Add(sessionEvictionAge)); f == nil || s.count() != 2 {
		t.Errorf("idle sessions were not evicted: %v, %d sessions", f, s.count())
	}
	none := newSessions(0)
	if f, _, err := open(t, none, fetchOf(12, 0, 0, 1), now); f != nil || err != nil {
		t.Errorf("a cache without slots: %v, %v", f, err)
	}
}

func TestIncrementalAnswersMentionWhatChanged(t *testing.T) {
	x := &fetchTarget{sentHighWatermark: -1, sentLogStart: -1}
	say := func(p protocol.FetchPartitionResponse) bool {
		p.PreferredReadReplica = -1
		return x.changed(&p)
	}
	for i, c := range []struct {
		p    protocol.FetchPartitionResponse
		want bool
	}{
		{protocol.FetchPartitionResponse{HighWatermark: 5}, true},
		{protocol.FetchPartitionResponse{HighWatermark: 5}, false},
		{protocol.FetchPartitionResponse{HighWatermark: 6}, true},
		{protocol.FetchPartitionResponse{HighWatermark: 6, LogStartOffset: 1}, true},
		{protocol.FetchPartitionResponse{HighWatermark: 6, LogStartOffset: 1, SplicedBytes: 9}, true},
		{protocol.FetchPartitionResponse{HighWatermark: 6, LogStartOffset: 1}, false},
		{protocol.FetchPartitionResponse{ErrorCode: 3}, true},
		{protocol.FetchPartitionResponse{ErrorCode: 3}, true},
		{protocol.FetchPartitionResponse{HighWatermark: 6, LogStartOffset: 1}, true},
		{protocol.FetchPartitionResponse{HighWatermark: 6, LogStartOffset: 1, DivergingEpoch: &protocol.EpochEndOffset{}}, true},
	} {
		if got := say(c.p); got != c.want {
			t.Errorf("answer %d mentioned %v, want %v", i, got, c.want)
		}
	}
}

func TestSessionEpochWrapsPastTheOnesWithAMeaning(t *testing.T) {
	if got := nextEpoch(1<<31 - 1); got != 1 {
		t.Errorf("after the largest epoch comes %d", got)
	}
}
