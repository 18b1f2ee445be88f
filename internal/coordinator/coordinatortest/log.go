// Package coordinatortest is an environment for tests of coordinators: an
// in-memory log whose leadership, high watermark and failures the test scripts.
package coordinatortest

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"

	"gregor/internal/coordinator"
	"gregor/protocol/record"
)

// Log is a [coordinator.Log] in memory. The zero value is not usable.
type Log struct {
	mu         sync.Mutex
	partitions map[int32]*partition
	maxBatch   int32
	autoCommit bool
	verifyErr  error
	verified   []coordinator.VerifyTxn
}

type partition struct {
	epoch    int32
	leading  bool
	offsets  coordinator.Offsets
	batches  []record.Batch
	appendOp func() error
	watchers map[int]func(int64)
	nextID   int
	readGate chan struct{}
	discard  bool
}

// NewLog returns a log without partitions. With autoCommit the high watermark
// follows each append, as in a cluster of one.
func NewLog(autoCommit bool) *Log {
	return &Log{partitions: make(map[int32]*partition), maxBatch: 1 << 20, autoCommit: autoCommit}
}

func (l *Log) get(id int32) *partition {
	p := l.partitions[id]
	if p == nil {
		p = &partition{watchers: make(map[int]func(int64))}
		l.partitions[id] = p
	}
	return p
}

// Lead makes this broker the leader of a partition.
func (l *Log) Lead(id, epoch int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.get(id)
	p.epoch, p.leading = epoch, true
}

// Follow takes the leadership away.
func (l *Log) Follow(id int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.get(id).leading = false
}

// FailAppends makes appends to a partition fail with err until it is nil.
func (l *Log) FailAppends(id int32, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.get(id).appendOp = func() error { return err }
}

// FailVerification makes VerifyTxn fail with err until it is nil.
func (l *Log) FailVerification(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.verifyErr = err
}

// Discard drops what is appended to a partition, for benchmarks.
func (l *Log) Discard(id int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.get(id).discard = true
}

// SetAutoCommit changes whether the high watermark follows each append.
func (l *Log) SetAutoCommit(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.autoCommit = on
}

// SetMaxBatchBytes sets max.message.bytes.
func (l *Log) SetMaxBatchBytes(n int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.maxBatch = n
}

// HoldReads makes reads of a partition wait until the function is called.
func (l *Log) HoldReads(id int32) (release func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	gate := make(chan struct{})
	l.get(id).readGate = gate
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.get(id).readGate = nil
		close(gate)
	}
}

// Put appends a batch as it is, as if another leader had written it.
func (l *Log) Put(id int32, b record.Batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.get(id)
	p.batches = append(p.batches, slices.Clone(b))
	p.offsets.LogEnd = b.NextOffset()
}

// Batches returns what a partition holds.
func (l *Log) Batches(id int32) []record.Batch {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.get(id).batches)
}

// Replace swaps the batches of a partition, as the cleaner does.
func (l *Log) Replace(id int32, batches []record.Batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.get(id).batches = batches
}

// Truncate drops the batches from offset on.
func (l *Log) Truncate(id int32, offset int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.get(id)
	p.batches = slices.DeleteFunc(p.batches, func(b record.Batch) bool { return b.LastOffset() >= offset })
	p.offsets.LogEnd = min(p.offsets.LogEnd, offset)
	p.offsets.HighWatermark = min(p.offsets.HighWatermark, offset)
}

// SetHighWatermark moves the high watermark and tells the watchers.
func (l *Log) SetHighWatermark(id int32, offset int64) {
	l.mu.Lock()
	p := l.get(id)
	p.offsets.HighWatermark = offset
	watchers := slices.Collect(maps.Values(p.watchers))
	l.mu.Unlock()
	for _, moved := range watchers {
		moved(offset)
	}
}

// Verified returns the transactions that were verified.
func (l *Log) Verified() []coordinator.VerifyTxn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.verified)
}

// Offsets implements coordinator.Log.
func (l *Log) Offsets(id int32) (coordinator.Offsets, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.get(id)
	if !p.leading {
		return coordinator.Offsets{}, kerr.NotLeaderForPartition
	}
	return p.offsets, nil
}

// MaxBatchBytes implements coordinator.Log.
func (l *Log) MaxBatchBytes(int32) int32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.maxBatch
}

// Append implements coordinator.Log.
func (l *Log) Append(_ context.Context, a coordinator.Append) (int64, error) {
	l.mu.Lock()
	p := l.get(a.Partition)
	if !p.leading || a.LeaderEpoch != p.epoch {
		l.mu.Unlock()
		return 0, kerr.NotLeaderForPartition
	}
	if p.appendOp != nil {
		if err := p.appendOp(); err != nil {
			l.mu.Unlock()
			return 0, err
		}
	}
	b := slices.Clone(a.Batch)
	b.SetBaseOffset(p.offsets.LogEnd)
	b.SetLeaderEpoch(p.epoch)
	if !p.discard {
		p.batches = append(p.batches, b)
	}
	p.offsets.LogEnd = b.NextOffset()
	end, autoCommit := p.offsets.LogEnd, l.autoCommit
	l.mu.Unlock()
	if autoCommit {
		l.SetHighWatermark(a.Partition, end)
	}
	return end, nil
}

// Read implements coordinator.Log.
func (l *Log) Read(ctx context.Context, id int32, offset int64, maxBytes int) ([]byte, error) {
	l.mu.Lock()
	gate := l.get(id).readGate
	l.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.get(id)
	if !p.leading {
		return nil, kerr.NotLeaderForPartition
	}
	var out []byte
	for _, b := range p.batches {
		if b.LastOffset() < offset {
			continue
		}
		if len(out) > 0 && len(out)+len(b) > maxBytes {
			break
		}
		out = append(out, b...)
	}
	return out, nil
}

// WatchHighWatermark implements coordinator.Log.
func (l *Log) WatchHighWatermark(id int32, moved func(int64)) (func(), error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.get(id)
	if !p.leading {
		return nil, kerr.NotLeaderForPartition
	}
	key := p.nextID
	p.nextID++
	p.watchers[key] = moved
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(p.watchers, key)
	}, nil
}

// VerifyTxn implements coordinator.Log.
func (l *Log) VerifyTxn(_ context.Context, v coordinator.VerifyTxn) (any, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.verifyErr != nil {
		return nil, l.verifyErr
	}
	l.verified = append(l.verified, v)
	return len(l.verified), nil
}
