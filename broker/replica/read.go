package replica

import (
	"github.com/twmb/franz-go/pkg/kerr"

	"gregor/storage"
)

// ReadRequest is what a Fetch asks of one partition.
type ReadRequest struct {
	Offset int64
	// LeaderEpoch is the client's view of the current epoch; NoEpoch when it has none.
	LeaderEpoch int32
	// LastFetchedEpoch is the epoch of the record before Offset in the client's log; NoEpoch when not known.
	// With it the answer tells where the logs part (KIP-595).
	LastFetchedEpoch int32
	MaxBytes         int
	Bound            storage.Bound
	// AtLeastOne returns the first batch whole even when it is larger than MaxBytes (KIP-74).
	AtLeastOne bool
}

// Diverging says where the log of a fetcher parts from the leader's: the largest common epoch and its end.
type Diverging struct {
	Epoch     int32
	EndOffset int64
}

// ReadResult is the answer to a ReadRequest. The caller releases Fetched.Range when it is not nil.
type ReadResult struct {
	Fetched   storage.Fetched
	State     *storage.State
	Diverging *Diverging
	// Turn names the role that the read was done in, for Subscribe.
	Turn uint64
}

// Read reads from the leader's log. Its errors carry Kafka's codes; with OFFSET_OUT_OF_RANGE the State tells the
// range that there is.
func (p *Partition) Read(q ReadRequest) (ReadResult, error) {
	turn := p.watch.turns.Load() // before the role is looked at
	if _, err := p.leader(q.LeaderEpoch); err != nil {
		return ReadResult{}, err
	}
	res := ReadResult{State: p.log.State(), Turn: turn}
	if q.LastFetchedEpoch != NoEpoch {
		epoch, end := p.log.EndOffsetForEpoch(q.LastFetchedEpoch)
		if end < 0 || epoch < 0 {
			return res, kerr.OffsetOutOfRange
		}
		if epoch < q.LastFetchedEpoch || end < q.Offset {
			res.Diverging = &Diverging{Epoch: epoch, EndOffset: end}
			return res, nil
		}
	}
	if q.Offset < res.State.LogStartOffset || q.Offset > res.State.LogEndOffset {
		return res, kerr.OffsetOutOfRange
	}
	if q.Offset >= res.State.End(q.Bound) {
		return res, nil
	}
	f, err := p.log.Read(q.Offset, q.MaxBytes, q.Bound, q.AtLeastOne)
	if err != nil {
		return res, mapped(err)
	}
	res.Fetched = f
	if f.State != nil {
		res.State = f.State
	}
	return res, nil
}

// Subscribe has the waiter told when s is due, see Subscription. turn is that of the read that found nothing: when the
// role has changed since, s fires at once, and so it does when it is due already.
func (p *Partition) Subscribe(w *Waiter, s *Subscription, turn uint64) {
	p.watch.subscribe(w, s, turn, p.log.State)
}

// Unsubscribe takes s back, whether it has fired or not.
func (p *Partition) Unsubscribe(s *Subscription) { p.watch.unsubscribe(s) }

// Waiting is the number of subscriptions that have not fired.
func (p *Partition) Waiting() int { return int(p.watch.count.Load()) }

// Offsets asked for by ListOffsets with negative timestamps.
const (
	LatestTimestamp        int64 = -1
	EarliestTimestamp      int64 = -2
	MaxTimestamp           int64 = -3 // KIP-734
	EarliestLocalTimestamp int64 = -4 // KIP-405
	LatestTieredTimestamp  int64 = -5 // KIP-1005
	EarliestPending        int64 = -6 // KIP-1023
)

// OffsetForTimestamp answers ListOffsets on the leader: one of the special timestamps above, or the first record
// at or after a time. Nothing found is offset -1, timestamp -1, epoch -1 without an error.
//
// While the high watermark is below the start of the leader's own epoch the latest offset is not known: it could
// be lower than what a client saw from the former leader (KIP-207): OFFSET_NOT_AVAILABLE.
func (p *Partition) OffsetForTimestamp(timestamp int64, clientEpoch int32, bound storage.Bound) (storage.TimestampOffset, error) {
	none := storage.TimestampOffset{Timestamp: -1, Offset: -1, LeaderEpoch: -1}
	r, err := p.leader(clientEpoch)
	if err != nil {
		return none, err
	}
	s := p.log.State()
	behind := bound != storage.UpToLogEnd && s.HighWatermark < r.epochStart
	switch timestamp {
	case LatestTimestamp:
		if behind {
			return none, kerr.OffsetNotAvailable
		}
		return storage.TimestampOffset{Timestamp: -1, Offset: s.End(bound), LeaderEpoch: r.LeaderEpoch}, nil
	case EarliestTimestamp, EarliestLocalTimestamp:
		found := storage.TimestampOffset{Timestamp: -1, Offset: s.LogStartOffset, LeaderEpoch: -1}
		if epoch, ok := p.log.EpochForOffset(s.LogStartOffset); ok {
			found.LeaderEpoch = epoch
		}
		return found, nil
	case LatestTieredTimestamp, EarliestPending:
		return none, nil // nothing is tiered
	}
	found, err := p.log.OffsetForTimestamp(timestamp, bound)
	if err != nil {
		return none, mapped(err)
	}
	if found.Offset < 0 {
		if behind {
			return none, kerr.OffsetNotAvailable
		}
		return none, nil
	}
	return found, nil
}

// EndOffsetForEpoch answers OffsetForLeaderEpoch: the largest epoch not above the wanted one and where it ends.
// Both are -1 when the log does not know (KIP-101, KIP-279).
func (p *Partition) EndOffsetForEpoch(epoch, clientEpoch int32) (int32, int64, error) {
	if _, err := p.leader(clientEpoch); err != nil {
		return -1, -1, err
	}
	found, end := p.log.EndOffsetForEpoch(epoch)
	return found, end, nil
}

// DeleteRecords moves the log start offset on the leader: -1 means up to the high watermark. It returns the new
// low watermark: the smallest log start offset of the live replicas. An offset at or below the start changes
// nothing.
func (p *Partition) DeleteRecords(offset int64) (int64, error) {
	r, err := p.leader(NoEpoch)
	if err != nil {
		return -1, err
	}
	if !p.log.Config().CleanupDelete {
		return -1, kerr.PolicyViolation
	}
	s := p.log.State()
	if offset == -1 {
		offset = s.HighWatermark
	}
	if offset < 0 || offset > s.HighWatermark {
		return -1, kerr.OffsetOutOfRange
	}
	if _, err := p.log.IncrementLogStartOffset(offset); err != nil {
		return -1, mapped(err)
	}
	return p.lowWatermark(r), nil
}

// lowWatermark is the smallest log start offset of the replicas that are in sync.
func (p *Partition) lowWatermark(r *role) int64 {
	low := p.log.State().LogStartOffset
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range r.ISR {
		if f := p.followers[id]; f != nil {
			low = min(low, f.logStartOffset)
		}
	}
	return low
}
