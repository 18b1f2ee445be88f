package api

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"gregor/broker/network"
	"gregor/broker/replica"
	"gregor/kraft/image"
	"gregor/protocol"
	"gregor/storage"
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

	order uint64 // place in the session's order
	slot  int    // place in the fetch under way; -1: not in it
	// pending says that the partition is to be looked at by the next fetch. Otherwise it is quiet: the last answer said
	// all there was to say, and sub fires when there is more.
	pending bool
	// part is what sub is registered with, or has fired of; nil when it is free.
	part *replica.Partition
	sub  replica.Subscription
}

// unsubscribe ends the subscription if there is one.
func (t *fetchTarget) unsubscribe() {
	if t.part != nil {
		t.part.Unsubscribe(&t.sub)
		t.part = nil
	}
}

type targetKey struct {
	topic string
	id    protocol.UUID
	index int32
}

// fetchSession holds the partitions of an incremental fetch. A fetch costs what has changed: of the quiet partitions
// nothing is looked at, however many there are, since each has a subscription with its replica that fires when there
// is something to say.
type fetchSession struct {
	id       int32
	byID     bool // the client uses topic ids (version 13 and above)
	follower bool // followers' sessions are not evicted for consumers'
	waiter   *replica.Waiter

	// mu is held by a fetch from its start to its answer, also while it waits, and guards what follows. Who wants it
	// takes it by acquire.
	mu        sync.Mutex
	ended     bool
	targets   map[targetKey]*fetchTarget
	pending   []*fetchTarget // those that say so
	fired     []*replica.Subscription
	lastOrder uint64
	bound     storage.Bound // of the last fetch,
	topics    *image.Topics // and what it knew of the cluster

	holder   atomic.Pointer[network.Conn] // of the fetch that took mu last
	arriving atomic.Int32                 // who waits for mu and has its holder answer
	parked   atomic.Pointer[parkedFetch]  // the fetch that has mu, while it waits

	// Guarded by sessions.mu.
	epoch    int32
	lastUsed time.Time
	size     int
}

func newFetchSession(byID, follower bool) *fetchSession {
	return &fetchSession{
		byID: byID, follower: follower, waiter: replica.NewWaiter(),
		targets: map[targetKey]*fetchTarget{},
	}
}

// acquire locks the session for a request of a connection, nil for none. A fetch that waits on another connection
// answers at once: its client may be gone. One of the same connection is waited for. Kafka does not look at a request
// before the one before it on its connection is answered, so that closing a consumer takes what is left of
// fetch.max.wait.ms.
func (f *fetchSession) acquire(conn *network.Conn) {
	defer f.holder.Store(conn)
	if f.mu.TryLock() {
		return
	}
	if conn != nil && f.holder.Load() == conn {
		f.mu.Lock()
		return
	}
	f.arriving.Add(1)
	if p := f.parked.Load(); p != nil {
		p.end()
	}
	f.mu.Lock()
	f.arriving.Add(-1)
}

// end makes the session's subscriptions go, for a request of a connection. Nobody finds the session any more.
func (f *fetchSession) end(conn *network.Conn) {
	f.acquire(conn)
	defer f.mu.Unlock()
	f.ended = true
	for _, t := range f.targets {
		t.unsubscribe()
	}
	f.targets, f.pending = nil, nil
}

// quiet is the number of partitions that have nothing to say.
func (f *fetchSession) quiet() int { return len(f.targets) - len(f.pending) }

// awake makes a quiet partition one to look at.
func (f *fetchSession) awake(t *fetchTarget) {
	if t.pending {
		return
	}
	t.unsubscribe()
	t.pending = true
	f.pending = append(f.pending, t)
}

// observe has every partition looked at when the fetch reads up to another bound than the last one, or when topics have
// changed: what a quiet partition would answer may then be something else without a move of its log.
func (f *fetchSession) observe(b storage.Bound, topics *image.Topics) {
	if f.bound == b && f.topics == topics {
		return
	}
	f.bound, f.topics = b, topics
	for _, t := range f.targets {
		f.awake(t)
	}
}

// takePending returns the partitions to look at in the session's order. They stay pending until settled.
func (f *fetchSession) takePending() []*fetchTarget {
	f.fired = f.waiter.TakeFired(f.fired[:0])
	for _, s := range f.fired {
		t, _ := s.Owner.(*fetchTarget)
		t.part = nil
		f.awake(t)
	}
	clear(f.fired)
	slices.SortFunc(f.pending, func(a, b *fetchTarget) int { return cmp.Compare(a.order, b.order) })
	return f.pending
}

// compact drops from the pending ones those that are not any more.
func (f *fetchSession) compact() {
	f.pending = slices.DeleteFunc(f.pending, func(t *fetchTarget) bool { return !t.pending })
}

// settle ends a partition's part in a fetch: it is quiet when all there is has been said.
func (f *fetchSession) settle(t *fetchTarget, x *fetchRead, b storage.Bound) {
	if x.part == nil || x.err != nil || x.res.Diverging != nil || x.res.State.End(b) > t.want.FetchOffset {
		return
	}
	t.pending, t.part = false, x.part
	t.sub = replica.Subscription{
		Owner: t, Bound: b, Offset: t.want.FetchOffset,
		Moves: true, HighWatermark: t.sentHighWatermark, LogStartOffset: t.sentLogStart,
	}
	x.part.Subscribe(f.waiter, &t.sub, x.res.Turn)
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

// next finds the session of an incremental fetch and moves its epoch on. The caller acquires it.
func (s *sessions) next(q *protocol.FetchRequest, now time.Time) (*fetchSession, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.byID[q.SessionID]
	switch {
	case f == nil:
		return nil, kerr.FetchSessionIDNotFound
	case f.epoch != q.SessionEpoch:
		f.lastUsed = now
		return nil, kerr.InvalidFetchSessionEpoch
	case f.byID != (q.Version >= 13):
		f.lastUsed = now
		return nil, kerr.FetchSessionTopicIDError
	}
	f.lastUsed, f.epoch = now, nextEpoch(f.epoch)
	return f, nil
}

// remove ends a session, if there is one of that id.
func (s *sessions) remove(id int32, conn *network.Conn) {
	s.mu.Lock()
	f := s.byID[id]
	delete(s.byID, id)
	s.mu.Unlock()
	if f != nil {
		f.end(conn)
	}
}

// busy tells whether a fetch of the session is under way.
func (s *sessions) busy(id int32) bool {
	if id == noSession {
		return false
	}
	s.mu.Lock()
	f := s.byID[id]
	s.mu.Unlock()
	if f == nil {
		return false
	}
	if !f.mu.TryLock() {
		return true
	}
	f.mu.Unlock()
	return false
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
	var victim *fetchSession
	if len(s.byID) >= s.slots {
		if victim = s.victim(f, now); victim == nil {
			s.mu.Unlock()
			return false
		}
		delete(s.byID, victim.id)
	}
	for f.id == noSession || s.byID[f.id] != nil {
		f.id = rand.Int32N(1<<31-2) + 1
	}
	f.lastUsed, f.size, f.epoch = now, len(f.targets), initialSessionEpoch+1
	s.byID[f.id] = f
	s.mu.Unlock()
	if victim != nil {
		victim.end(nil)
	}
	return true
}

// victim is whose slot f may have: the session that was idle longest, if long enough; else, for a larger fetch or for
// a follower, the smallest session of lower standing. The caller holds mu.
func (s *sessions) victim(f *fetchSession, now time.Time) *fetchSession {
	var victim *fetchSession
	for _, x := range s.byID {
		if victim == nil || x.lastUsed.Before(victim.lastUsed) {
			victim = x
		}
	}
	if victim == nil || now.Sub(victim.lastUsed) >= sessionEvictionAge {
		return victim // nil: no slots at all
	}
	victim = nil
	for _, x := range s.byID {
		lower := f.follower && !x.follower || f.follower == x.follower && x.size < len(f.targets) && now.Sub(x.lastUsed) >= sessionEvictionAge
		if lower && (victim == nil || x.size < victim.size) {
			victim = x
		}
	}
	return victim
}

// moveToEnd lets the other partitions go first next time.
func (f *fetchSession) moveToEnd(t *fetchTarget) {
	f.lastOrder++
	t.order = f.lastOrder
}

// set adds the partitions of a request, or renews what is wanted of those that are there. Names are copied, since
// the request's alias its frame.
func (f *fetchSession) set(q *protocol.FetchRequest, name func(protocol.UUID) string) {
	for i := range q.Topics {
		t := &q.Topics[i]
		topic := t.Name
		if f.byID {
			topic = name(t.ID)
		}
		owned := f.byID
		for _, p := range t.Partitions {
			if old := f.targets[f.key(topic, t.ID, p.Index)]; old != nil {
				f.awake(old)
				old.want = p
				continue
			}
			if !owned {
				topic, owned = strings.Clone(topic), true
			}
			n := &fetchTarget{topic: topic, id: t.ID, want: p, sentHighWatermark: -1, sentLogStart: -1, slot: -1, pending: true}
			f.moveToEnd(n)
			f.targets[f.key(topic, t.ID, p.Index)] = n
			f.pending = append(f.pending, n)
		}
	}
}

func (f *fetchSession) key(topic string, id protocol.UUID, index int32) targetKey {
	if f.byID {
		return targetKey{id: id, index: index}
	}
	return targetKey{topic: topic, index: index}
}

// forget removes the partitions that the client no longer wants.
func (f *fetchSession) forget(q *protocol.FetchRequest) {
	for _, t := range q.Forgotten {
		for _, index := range t.Partitions {
			k := f.key(t.Name, t.ID, index)
			if old := f.targets[k]; old != nil {
				old.unsubscribe()
				old.pending = false
				delete(f.targets, k)
			}
		}
	}
	if len(q.Forgotten) > 0 {
		f.compact()
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
func (s *sessions) open(q *protocol.FetchRequest, name func(protocol.UUID) string, now time.Time, conn *network.Conn) (f *fetchSession, incremental bool, err error) {
	if q.SessionEpoch == initialSessionEpoch || q.SessionEpoch == finalSessionEpoch {
		if q.SessionID != noSession {
			s.remove(q.SessionID, conn)
		}
		if q.SessionEpoch == finalSessionEpoch || q.Version < 7 {
			return nil, false, nil
		}
		f = newFetchSession(q.Version >= 13, q.ReplicaID >= 0)
		f.set(q, name)
		f.acquire(conn)
		if len(f.targets) == 0 || !s.create(f, now) {
			return nil, false, nil
		}
		return f, false, nil
	}
	if f, err = s.next(q, now); err != nil {
		return nil, false, err
	}
	f.acquire(conn)
	if f.ended {
		f.mu.Unlock()
		return nil, false, kerr.FetchSessionIDNotFound
	}
	f.set(q, name)
	f.forget(q)
	if len(f.targets) == 0 {
		s.drop(f)
	} else {
		s.resize(f)
	}
	return f, true, nil
}

// drop takes a session without partitions out of the cache.
func (s *sessions) drop(f *fetchSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byID[f.id] == f {
		delete(s.byID, f.id)
	}
}

// resize notes how many partitions a session has, for eviction.
func (s *sessions) resize(f *fetchSession) {
	s.mu.Lock()
	f.size = len(f.targets)
	s.mu.Unlock()
}
