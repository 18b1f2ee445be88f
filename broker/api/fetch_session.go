package api

import (
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"gregor/protocol"
)

// Session epochs with a meaning of their own (KIP-227).
const (
	initialSessionEpoch int32 = 0
	finalSessionEpoch   int32 = -1
	noSession           int32 = 0
)

// sessionEvictionAge is how long a session must have been idle before a new one may take its slot
// (Kafka's min.incremental.fetch.session.eviction.ms, which cannot be configured either).
const sessionEvictionAge = 2 * time.Minute

// fetchTarget is one partition of a fetch, with what the last answer of its session said of it.
type fetchTarget struct {
	topic string // "" when the topic id was unknown so far
	id    protocol.UUID
	want  protocol.FetchPartition

	// What the session's last answer said; -1 before the first.
	sentHighWatermark, sentLogStart int64

	prev, next *fetchTarget // order within the session
}

type targetKey struct {
	topic string
	id    protocol.UUID
	index int32
}

func (t *fetchTarget) key(byID bool) targetKey {
	if byID {
		return targetKey{id: t.id, index: t.want.Index}
	}
	return targetKey{topic: t.topic, index: t.want.Index}
}

// fetchSession holds the partitions of an incremental fetch. Everything but id is guarded by mu: one fetch of a
// session runs at a time, since its epoch must be the next one.
type fetchSession struct {
	id       int32
	byID     bool // the client uses topic ids (version 13 and above)
	follower bool // followers' sessions are not evicted for consumers'

	mu         sync.Mutex
	epoch      int32
	targets    map[targetKey]*fetchTarget
	head, tail *fetchTarget // least recently answered first, so that no partition starves

	// Guarded by sessions.mu.
	lastUsed time.Time
	size     int
}

// sessions is the cache of fetch sessions.
type sessions struct {
	mu    sync.Mutex
	slots int
	byID  map[int32]*fetchSession
}

func newSessions(slots int) *sessions {
	return &sessions{slots: slots, byID: map[int32]*fetchSession{}}
}

// lookup returns a session and notes that it is used.
func (s *sessions) lookup(id int32, now time.Time) *fetchSession {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.byID[id]
	if f != nil {
		f.lastUsed = now
	}
	return f
}

func (s *sessions) remove(id int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byID, id)
}

// count is the number of sessions.
func (s *sessions) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.byID)
}

// create puts f into the cache under a new id, when there is a slot or one can be taken from a session that is
// idle or, for a follower, from a consumer's. It returns whether it did.
func (s *sessions) create(f *fetchSession, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.byID) >= s.slots && !s.evict(f, now) {
		return false
	}
	for f.id == noSession || s.byID[f.id] != nil {
		f.id = rand.Int32N(1<<31-2) + 1
	}
	f.lastUsed, f.size, f.epoch = now, len(f.targets), initialSessionEpoch+1
	s.byID[f.id] = f
	return true
}

// evict frees a slot for f: the session that was idle longest, if long enough; else, for a larger fetch or for a
// follower, the smallest session of lower standing. The caller holds mu.
func (s *sessions) evict(f *fetchSession, now time.Time) bool {
	var victim *fetchSession
	for _, x := range s.byID {
		if victim == nil || x.lastUsed.Before(victim.lastUsed) {
			victim = x
		}
	}
	if victim == nil {
		return false // no slots at all
	}
	if now.Sub(victim.lastUsed) < sessionEvictionAge {
		victim = nil
		for _, x := range s.byID {
			lower := f.follower && !x.follower || f.follower == x.follower && x.size < len(f.targets) && now.Sub(x.lastUsed) >= sessionEvictionAge
			if lower && (victim == nil || x.size < victim.size) {
				victim = x
			}
		}
	}
	if victim == nil {
		return false
	}
	delete(s.byID, victim.id)
	return true
}

// push adds a target at the end of the order.
func (f *fetchSession) push(t *fetchTarget) {
	t.prev, t.next = f.tail, nil
	if f.tail != nil {
		f.tail.next = t
	} else {
		f.head = t
	}
	f.tail = t
}

func (f *fetchSession) unlink(t *fetchTarget) {
	if t.prev != nil {
		t.prev.next = t.next
	} else {
		f.head = t.next
	}
	if t.next != nil {
		t.next.prev = t.prev
	} else {
		f.tail = t.prev
	}
	t.prev, t.next = nil, nil
}

// moveToEnd lets the other partitions go first next time.
func (f *fetchSession) moveToEnd(t *fetchTarget) {
	if f.tail != t {
		f.unlink(t)
		f.push(t)
	}
}

// set adds the partitions of a request, or renews what is wanted of those that are there. Names are copied, since
// the request's alias its frame.
func (f *fetchSession) set(q *protocol.FetchRequest, name func(protocol.UUID) string) {
	for i := range q.Topics {
		t := &q.Topics[i]
		topic := ""
		if f.byID {
			topic = name(t.ID)
		} else {
			topic = strings.Clone(t.Name)
		}
		for _, p := range t.Partitions {
			k := targetKey{topic: topic, index: p.Index}
			if f.byID {
				k = targetKey{id: t.ID, index: p.Index}
			}
			if old := f.targets[k]; old != nil {
				old.want = p
				continue
			}
			n := &fetchTarget{topic: topic, id: t.ID, want: p, sentHighWatermark: -1, sentLogStart: -1}
			f.targets[k] = n
			f.push(n)
		}
	}
}

// forget removes the partitions that the client no longer wants.
func (f *fetchSession) forget(q *protocol.FetchRequest) {
	for _, t := range q.Forgotten {
		for _, index := range t.Partitions {
			k := targetKey{topic: t.Name, index: index}
			if f.byID {
				k = targetKey{id: t.ID, index: index}
			}
			if old := f.targets[k]; old != nil {
				delete(f.targets, k)
				f.unlink(old)
			}
		}
	}
}

// changed tells whether an incremental answer has to mention the partition, and notes what it says: data, an
// error, a diverging epoch, or offsets that moved.
func (t *fetchTarget) changed(p *protocol.FetchPartitionResponse) bool {
	mention := len(p.Records) > 0 || p.SplicedBytes > 0 || p.ErrorCode != 0 || p.DivergingEpoch != nil || p.PreferredReadReplica >= 0 ||
		p.HighWatermark != t.sentHighWatermark || p.LogStartOffset != t.sentLogStart
	if p.ErrorCode != 0 {
		// So that the partition is mentioned again once the error is gone.
		t.sentHighWatermark, t.sentLogStart = -1, -1
		return true
	}
	t.sentHighWatermark, t.sentLogStart = p.HighWatermark, p.LogStartOffset
	return mention
}

// nextEpoch is the epoch after e; it wraps past the ones with a meaning.
func nextEpoch(e int32) int32 {
	if e == 1<<31-1 {
		return initialSessionEpoch + 1
	}
	return e + 1
}

// open returns the session that a request runs in; nil with a nil error means that it runs without one. A session
// that is returned is locked; the caller unlocks it when the answer is complete.
//
// A request of epoch 0 asks for a new session (and ends the one that it names), epoch -1 ends it, any other goes
// on with it: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH and FETCH_SESSION_TOPIC_ID_ERROR are errors
// of the whole request.
func (s *sessions) open(q *protocol.FetchRequest, name func(protocol.UUID) string, now time.Time) (f *fetchSession, incremental bool, err error) {
	byID := q.Version >= 13
	if q.SessionEpoch == initialSessionEpoch || q.SessionEpoch == finalSessionEpoch {
		if q.SessionID != noSession {
			s.remove(q.SessionID)
		}
		if q.SessionEpoch == finalSessionEpoch || q.Version < 7 {
			return nil, false, nil
		}
		f = &fetchSession{byID: byID, follower: q.ReplicaID >= 0, targets: map[targetKey]*fetchTarget{}}
		f.set(q, name)
		if len(f.targets) == 0 || !s.create(f, now) {
			return nil, false, nil
		}
		f.mu.Lock()
		return f, false, nil
	}
	f = s.lookup(q.SessionID, now)
	if f == nil {
		return nil, false, kerr.FetchSessionIDNotFound
	}
	f.mu.Lock()
	switch {
	case f.epoch != q.SessionEpoch:
		err = kerr.InvalidFetchSessionEpoch
	case f.byID != byID:
		err = kerr.FetchSessionTopicIDError
	}
	if err != nil {
		f.mu.Unlock()
		return nil, false, err
	}
	f.epoch = nextEpoch(f.epoch)
	f.set(q, name)
	f.forget(q)
	if len(f.targets) == 0 {
		s.remove(f.id)
	}
	s.resize(f)
	return f, true, nil
}

// resize notes how many partitions a session has, for eviction.
func (s *sessions) resize(f *fetchSession) {
	s.mu.Lock()
	f.size = len(f.targets)
	s.mu.Unlock()
}
