package quorum

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"gregor/protocol"
)

const (
	// observerExpiry is how long an observer that does not fetch is still listed.
	observerExpiry = 5 * time.Minute
	// caughtUpExpiry is how long ago a replica may have been at the log end to become a voter.
	caughtUpExpiry = time.Hour
	// maxObservers is how many observers are remembered: whoever fetches names itself.
	maxObservers = 10_000
)

// progress is how far a replica is, as seen by the leader.
type progress struct {
	logEndOffset int64 // -1 when unknown
	lastFetch    time.Time
	lastCaughtUp time.Time
	// leaderEnd is the leader's log end at lastFetch: a replica that reaches it later was caught up then.
	leaderEnd int64
}

func (p *progress) update(logEndOffset, leaderEnd int64, now time.Time) {
	switch {
	case logEndOffset >= leaderEnd:
		p.lastCaughtUp = now
	case p.leaderEnd > 0 && logEndOffset >= p.leaderEnd && p.lastFetch.After(p.lastCaughtUp):
		p.lastCaughtUp = p.lastFetch
	}
	p.logEndOffset, p.lastFetch, p.leaderEnd = logEndOffset, now, leaderEnd
}

// replicaTracker notes for DescribeQuorum, and for adding voters, how far the others are. Voters are known by their
// raft responses, observers by their fetches.
type replicaTracker struct {
	mu          sync.Mutex
	voters      map[int32]*progress
	observers   map[ReplicaKey]*progress
	directories map[int32]protocol.UUID // what peers said of themselves
	updates     map[int32]Voter         // what UpdateVoter said under kraft.version 0
}

func newReplicaTracker() *replicaTracker {
	return &replicaTracker{
		voters: map[int32]*progress{}, observers: map[ReplicaKey]*progress{}, directories: map[int32]protocol.UUID{},
		updates: map[int32]Voter{},
	}
}

// reset forgets the progress: another epoch begins.
func (t *replicaTracker) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.voters)
	clear(t.observers)
}

func (t *replicaTracker) noteDirectory(k ReplicaKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !k.DirectoryID.IsZero() {
		t.directories[k.ID] = k.DirectoryID
	}
}

func (t *replicaTracker) directory(id int32) protocol.UUID {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.directories[id]
}

// noteVoter keeps what a voter said of itself.
func (t *replicaTracker) noteVoter(v Voter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.updates[v.Key.ID] = v
	if !v.Key.DirectoryID.IsZero() {
		t.directories[v.Key.ID] = v.Key.DirectoryID
	}
}

// knownVoter completes a static voter: by what it said in UpdateVoter, or by the directory id of its messages, which
// only nodes that know kraft.version 1 send.
func (t *replicaTracker) knownVoter(v Voter) (Voter, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if u, ok := t.updates[v.Key.ID]; ok {
		return u, true
	}
	id, ok := t.directories[v.Key.ID]
	v.Key.DirectoryID, v.MaxKRaftVersion = id, max(v.MaxKRaftVersion, 1)
	return v, ok
}

// voter notes the response of a voter; logEndOffset is -1 when it does not say.
func (t *replicaTracker) voter(id int32, logEndOffset, leaderEnd int64, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.voters[id]
	if p == nil {
		p = &progress{logEndOffset: -1}
		t.voters[id] = p
	}
	p.update(max(logEndOffset, p.logEndOffset), leaderEnd, now)
}

// observer notes the fetch of an observer.
func (t *replicaTracker) observer(k ReplicaKey, fetchOffset, leaderEnd int64, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.observers[k]
	if p == nil {
		if len(t.observers) >= maxObservers {
			t.expire(now)
		}
		if len(t.observers) >= maxObservers {
			return
		}
		p = &progress{}
		t.observers[k] = p
	}
	p.update(fetchOffset, leaderEnd, now)
}

// expire forgets the observers that have not fetched for long. The caller holds mu.
func (t *replicaTracker) expire(now time.Time) {
	maps.DeleteFunc(t.observers, func(_ ReplicaKey, p *progress) bool { return now.Sub(p.lastFetch) >= observerExpiry })
}

// caughtUp tells whether an observer was at the log end not long ago.
func (t *replicaTracker) caughtUp(k ReplicaKey, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.observers[k]
	return p != nil && !p.lastCaughtUp.IsZero() && now.Sub(p.lastFetch) < observerExpiry && now.Sub(p.lastCaughtUp) < caughtUpExpiry
}

// ReplicaState is a line of DescribeQuorum. Timestamps are milliseconds, -1 when unknown.
type ReplicaState struct {
	Key                         ReplicaKey
	LogEndOffset                int64
	LastFetchTimestampMillis    int64
	LastCaughtUpTimestampMillis int64
}

// Description is what DescribeQuorum answers.
type Description struct {
	Leader        LeaderAndEpoch
	HighWatermark int64 // -1 while the leader has committed nothing of its epoch
	Voters        []ReplicaState
	Observers     []ReplicaState
	VoterSet      VoterSet
}

func (p *progress) state(k ReplicaKey) ReplicaState {
	s := ReplicaState{Key: k, LogEndOffset: -1, LastFetchTimestampMillis: -1, LastCaughtUpTimestampMillis: -1}
	if p == nil {
		return s
	}
	s.LogEndOffset = p.logEndOffset
	if !p.lastFetch.IsZero() {
		s.LastFetchTimestampMillis = p.lastFetch.UnixMilli()
	}
	if !p.lastCaughtUp.IsZero() {
		s.LastCaughtUpTimestampMillis = p.lastCaughtUp.UnixMilli()
	}
	return s
}

// describe lists the replicas as leader self sees them.
func (t *replicaTracker) describe(voters VoterSet, self int32, leaderEnd int64, now time.Time) (vs, observers []ReplicaState) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, v := range voters.All() {
		if v.Key.ID == self {
			vs = append(vs, ReplicaState{v.Key, leaderEnd, now.UnixMilli(), now.UnixMilli()})
			continue
		}
		vs = append(vs, t.voters[v.Key.ID].state(v.Key))
	}
	t.expire(now)
	for k, p := range t.observers {
		if !voters.Contains(k) {
			observers = append(observers, p.state(k))
		}
	}
	slices.SortFunc(observers, func(a, b ReplicaState) int {
		return cmp.Or(cmp.Compare(a.Key.ID, b.Key.ID), slices.Compare(a.Key.DirectoryID[:], b.Key.DirectoryID[:]))
	})
	return vs, observers
}

// noteProgress notes what a response tells the leader about a voter.
func (m *machine) noteProgress(msg *raftpb.Message) {
	if m.seen.role != raft.StateLeader || msg.GetTerm() != m.seen.term {
		return
	}
	end := int64(-1)
	switch msg.GetType() {
	case raftpb.MsgHeartbeatResp:
	case raftpb.MsgAppResp:
		if !msg.GetReject() {
			end = offsetOf(msg.GetIndex()) + 1
		}
		if u := m.uploads[msg.GetFrom()]; u != nil && end >= u.id.Offset {
			delete(m.uploads, msg.GetFrom())
		}
	default:
		return
	}
	m.replica.voter(nodeID(msg.GetFrom()), end, m.storage.endOffset(), time.Now())
}
