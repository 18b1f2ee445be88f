package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"gregor/internal/invariants"
	"gregor/protocol"
	"gregor/protocol/record"
	"gregor/storage"
)

// NoEpoch is the leader epoch of a request that does not know one: the check is left out (KIP-320).
const NoEpoch int32 = -1

// Assignment is what the cluster image says of a partition, as far as its replica on this broker acts on it.
type Assignment struct {
	Leader         int32 // -1: none
	LeaderEpoch    int32
	PartitionEpoch int32
	Replicas       []int32
	ISR            []int32
}

// role is the immutable state of a partition in one leader epoch and partition epoch.
type role struct {
	Assignment
	leading bool
	// epochStart is the log end offset when this leader epoch began here; the high watermark may be below it
	// until the in-sync followers have caught up (R5).
	epochStart int64
}

// Partition is the replica of one partition on this broker.
type Partition struct {
	topic string
	index int32
	name  string
	self  int32
	log   *storage.Log
	watch watch

	config atomic.Pointer[Config]
	role   atomic.Pointer[role]
	// mu guards changes of the role and of followers; appends and reads do not take it.
	mu        sync.Mutex
	followers map[int32]*follower // nil before the first
}

// follower is how far another replica has fetched.
type follower struct {
	logEndOffset   int64
	logStartOffset int64
	lastFetch      time.Time
	lastCaughtUp   time.Time
}

func newPartition(self int32, log *storage.Log) *Partition {
	p := &Partition{
		topic: log.Topic(), index: log.Partition(), name: partitionName(log.Topic(), log.Partition()),
		self: self, log: log,
	}
	p.config.Store(newConfig(log.Config()))
	p.role.Store(&role{Assignment: Assignment{Leader: -1, LeaderEpoch: -1, PartitionEpoch: -1}})
	return p
}

// Topic is the name of the partition's topic.
func (p *Partition) Topic() string { return p.topic }

// Index is the number of the partition in its topic.
func (p *Partition) Index() int32 { return p.index }

// TopicID is the id of the partition's topic.
func (p *Partition) TopicID() protocol.UUID { return p.log.TopicID() }

// Log is the partition's log, for what needs no role: sizes, configs, deletion.
func (p *Partition) Log() *storage.Log { return p.log }

// State is the published view of the log.
func (p *Partition) State() *storage.State { return p.log.State() }

// Assignment is the state of the partition in the image that was applied last. Its slices must not be changed.
func (p *Partition) Assignment() Assignment { return p.role.Load().Assignment }

// Leading tells whether this broker leads the partition, and in which epoch.
func (p *Partition) Leading() (leaderEpoch int32, leading bool) {
	r := p.role.Load()
	return r.LeaderEpoch, r.leading
}

// apply moves the partition to the role that a newer image gives it. A leader epoch that begins is recorded in
// the log before anything is served in it (R5).
func (p *Partition) apply(a Assignment) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.role.Load()
	if a.LeaderEpoch < old.LeaderEpoch || a.LeaderEpoch == old.LeaderEpoch && a.PartitionEpoch < old.PartitionEpoch {
		return nil // an older image
	}
	next := &role{Assignment: a, leading: a.Leader == p.self, epochStart: old.epochStart}
	newEpoch := a.LeaderEpoch > old.LeaderEpoch || next.leading != old.leading
	if newEpoch {
		clear(p.followers)
	}
	if next.leading {
		if newEpoch {
			next.epochStart = p.log.State().LogEndOffset
			if err := p.log.AssignEpochStart(a.LeaderEpoch, next.epochStart); err != nil {
				return mapped(err)
			}
		}
		p.trackFollowers(a.Replicas)
	} else if newEpoch {
		p.log.Follow(a.LeaderEpoch)
	}
	p.role.Store(next)
	if newEpoch {
		p.watch.turned()
	}
	if next.leading {
		return p.advance(next)
	}
	return nil
}

// trackFollowers keeps progress of exactly the other replicas. The caller holds mu.
func (p *Partition) trackFollowers(replicas []int32) {
	for id := range p.followers {
		if !slices.Contains(replicas, id) {
			delete(p.followers, id)
		}
	}
	for _, id := range replicas {
		if id != p.self && p.followers[id] == nil {
			if p.followers == nil {
				p.followers = map[int32]*follower{}
			}
			p.followers[id] = &follower{logEndOffset: -1, logStartOffset: -1}
		}
	}
}

// advance moves the high watermark to the smallest log end offset of the in-sync replicas, unless they are fewer than
// min.insync.replicas: what is committed must survive the loss of all but that many (R6, KIP-966). The caller holds mu.
func (p *Partition) advance(r *role) error {
	if !r.leading || len(r.ISR) < p.minInSync(r) {
		return nil
	}
	hw := p.log.State().LogEndOffset
	for _, id := range r.ISR {
		if id == p.self {
			continue
		}
		f := p.followers[id]
		if f == nil {
			return nil // not one of the replicas: nothing is known of it
		}
		hw = min(hw, f.logEndOffset)
	}
	if hw <= p.log.State().HighWatermark {
		return nil
	}
	if _, err := p.log.UpdateHighWatermark(hw); err != nil {
		return mapped(err)
	}
	return nil
}

// leader returns the role if this broker leads the partition and the client's epoch is the current one. A replica that
// is offline (its directory failed, or a file of it is damaged) is KAFKA_STORAGE_ERROR whatever its role.
func (p *Partition) leader(clientEpoch int32) (*role, error) {
	if err := p.log.Err(); err != nil {
		return nil, mapped(err)
	}
	r := p.role.Load()
	if err := checkEpoch(r, clientEpoch); err != nil {
		return nil, err
	}
	if !r.leading {
		return nil, kerr.NotLeaderForPartition
	}
	return r, nil
}

// checkEpoch compares the epoch of a request with ours (R4).
func checkEpoch(r *role, clientEpoch int32) error {
	switch {
	case clientEpoch == NoEpoch || clientEpoch == r.LeaderEpoch:
		return nil
	case clientEpoch < r.LeaderEpoch:
		return kerr.FencedLeaderEpoch
	}
	return kerr.UnknownLeaderEpoch
}

// AppendAsLeader appends one validated batch, or several with o.Joined, and moves the high watermark as far as the in-sync replicas allow.
// With allInSync (acks=all) it refuses, before it appends, when fewer replicas than min.insync.replicas are in
// sync (R7); WaitReplicated then waits for them. Errors carry Kafka's codes.
func (p *Partition) AppendAsLeader(batches []byte, allInSync bool, o storage.AppendOptions) (storage.AppendInfo, error) {
	for {
		r := p.role.Load()
		info, err := p.appendIn(r, batches, allInSync, o)
		if !errors.Is(err, storage.ErrOldLeaderEpoch) {
			return info, err
		}
		// A newer epoch is beginning, which this broker may lead as well.
		p.mu.Lock()
		now := p.role.Load()
		p.mu.Unlock()
		if now == r {
			return info, err
		}
	}
}

// appendIn appends in a role, which may be over: the log refuses an epoch that is.
func (p *Partition) appendIn(r *role, batches []byte, allInSync bool, o storage.AppendOptions) (storage.AppendInfo, error) {
	if err := p.log.Err(); err != nil {
		return storage.AppendInfo{}, mapped(err)
	}
	if !r.leading {
		return storage.AppendInfo{}, kerr.NotLeaderForPartition
	}
	minISR := p.minInSync(r)
	if allInSync && len(r.ISR) < minISR {
		return storage.AppendInfo{}, fmt.Errorf("%w: %s-%d has %d in-sync replicas and needs %d", kerr.NotEnoughReplicas, p.topic, p.index, len(r.ISR), minISR)
	}
	// Alone in the in-sync set no follower's progress matters: the log moves the high watermark together with its
	// end. A role change that grows the set at this moment is harmless: those replicas were caught up to join it.
	o.AloneInSync = len(r.ISR) == 1 && r.ISR[0] == p.self && minISR <= 1
	info, err := p.log.AppendAsLeader(batches, r.LeaderEpoch, o)
	if err != nil {
		return info, mapped(err)
	}
	if o.AloneInSync || info.Unsynced {
		return info, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return info, p.advance(p.role.Load())
}

// SyncAppendedThen is SyncAppended for who cannot wait: done is called with its result, from another goroutine, and must
// not wait.
func (p *Partition) SyncAppendedThen(info storage.AppendInfo, done func(error)) {
	p.log.SyncAppendedThen(info, func(err error) { done(p.synced(info, err)) })
}

// Syncing tells whether a sync of the log is under way.
func (p *Partition) Syncing() bool { return p.log.Syncing() }

// SyncAppended ends an append with SyncLater that returned Unsynced. It waits for the disk.
func (p *Partition) SyncAppended(info storage.AppendInfo) error {
	return p.synced(info, p.log.SyncAppended(info))
}

// synced goes on after the sync.
func (p *Partition) synced(info storage.AppendInfo, err error) error {
	if err != nil || info.AloneInSync {
		return mapped(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.advance(p.role.Load())
}

// minInSync is min.insync.replicas, never more than the number of replicas.
func (p *Partition) minInSync(r *role) int {
	return min(int(p.log.Config().MinInSyncReplicas), max(len(r.Replicas), 1))
}

// WaitReplicated waits until the offset (exclusive) is below the high watermark, so that all in-sync replicas
// have it. It returns NOT_LEADER_OR_FOLLOWER when the leadership that appended it is lost, REQUEST_TIMED_OUT at
// the context's deadline, and NOT_ENOUGH_REPLICAS_AFTER_APPEND when the in-sync set shrank meanwhile (R7).
func (p *Partition) WaitReplicated(ctx context.Context, offset int64, leaderEpoch int32) error {
	w, reached := NewWaiter(), &Subscription{Bound: storage.UpToHighWatermark, Offset: offset - 1}
	defer p.watch.unsubscribe(reached)
	for {
		turn := p.watch.turns.Load()
		// Before the role: still leading afterwards, this high watermark is not that of another leader's records.
		highWatermark := p.log.State().HighWatermark
		r := p.role.Load()
		if !r.leading || r.LeaderEpoch != leaderEpoch {
			return kerr.NotLeaderForPartition
		}
		if highWatermark >= offset {
			if len(r.ISR) < p.minInSync(r) {
				return kerr.NotEnoughReplicasAfterAppend
			}
			return nil
		}
		p.Subscribe(w, reached, turn)
		select {
		case <-w.C:
		case <-ctx.Done():
			return kerr.RequestTimedOut
		}
		p.watch.unsubscribe(reached)
	}
}

// FollowerFetched notes that a follower has everything below offset, and moves the high watermark. It returns
// whether the replica belongs to the partition.
func (p *Partition) FollowerFetched(id int32, offset, logStartOffset int64, now time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.role.Load()
	if !r.leading {
		return kerr.NotLeaderForPartition
	}
	f := p.followers[id]
	if f == nil {
		return kerr.UnknownTopicOrPartition
	}
	end := p.log.State().LogEndOffset
	invariants.Assertf(offset <= end, "follower %d of %s-%d fetched %d beyond the log end %d", id, p.topic, p.index, offset, end)
	f.logEndOffset, f.logStartOffset, f.lastFetch = offset, logStartOffset, now
	if offset >= end {
		f.lastCaughtUp = now
	}
	return p.advance(r)
}

// WatchHighWatermark has moved called with every new high watermark until cancel is called. moved must not block
// and not call the partition: it may run within an append.
func (p *Partition) WatchHighWatermark(moved func(highWatermark int64)) (cancel func()) {
	return p.watch.listen(moved)
}

// AppendAt is AppendAsLeader for a coordinator, which appends only in the epoch that it was elected in.
func (p *Partition) AppendAt(leaderEpoch int32, batch record.Batch, o storage.AppendOptions) (storage.AppendInfo, error) {
	r := p.role.Load()
	if r.LeaderEpoch != leaderEpoch {
		return storage.AppendInfo{}, kerr.NotLeaderForPartition
	}
	return p.appendIn(r, batch, true, o)
}
