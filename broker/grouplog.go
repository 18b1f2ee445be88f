package broker

import (
	"context"
	"errors"
	"io"

	"github.com/twmb/franz-go/pkg/kerr"

	"gregor/broker/replica"
	"gregor/internal/coordinator"
	"gregor/storage"
)

// topicLog is the coordinator runtime's view of the partitions of one internal topic: coordinator.Log over the
// replicas of this broker.
type topicLog struct {
	topic    string
	replicas *replica.Manager
}

var _ coordinator.Log = (*topicLog)(nil)

// leading returns the replica of a partition that this broker leads.
func (l *topicLog) leading(partition int32) (*replica.Partition, error) {
	p := l.replicas.Lookup(l.topic, partition)
	if p == nil {
		return nil, kerr.NotLeaderForPartition
	}
	if _, ok := p.Leading(); !ok {
		return nil, kerr.NotLeaderForPartition
	}
	return p, nil
}

// Offsets implements coordinator.Log.
func (l *topicLog) Offsets(partition int32) (coordinator.Offsets, error) {
	p, err := l.leading(partition)
	if err != nil {
		return coordinator.Offsets{}, err
	}
	s := p.State()
	return coordinator.Offsets{LogStart: s.LogStartOffset, HighWatermark: s.HighWatermark, LogEnd: s.LogEndOffset}, nil
}

// MaxBatchBytes implements coordinator.Log.
func (l *topicLog) MaxBatchBytes(partition int32) int32 {
	if p := l.replicas.Lookup(l.topic, partition); p != nil {
		return p.LogConfig().MaxMessageBytes
	}
	return storage.DefaultLogConfig().MaxMessageBytes
}

// Append implements coordinator.Log.
func (l *topicLog) Append(_ context.Context, a coordinator.Append) (int64, error) {
	p, err := l.leading(a.Partition)
	if err != nil {
		return -1, err
	}
	info, err := p.AppendAt(a.LeaderEpoch, a.Batch, storage.AppendOptions{Origin: storage.FromCoordinator, LogAppendTimeMillis: -1})
	if err != nil {
		return -1, err
	}
	return info.LastOffset + 1, nil
}

// Read implements coordinator.Log.
func (l *topicLog) Read(_ context.Context, partition int32, offset int64, maxBytes int) ([]byte, error) {
	p, err := l.leading(partition)
	if err != nil {
		return nil, err
	}
	b, err := p.Log().ReadBatches(offset, nil, maxBytes, storage.UpToLogEnd)
	if errors.Is(err, io.EOF) {
		return nil, nil
	}
	return b, err
}

// WatchHighWatermark implements coordinator.Log.
func (l *topicLog) WatchHighWatermark(partition int32, moved func(int64)) (func(), error) {
	p, err := l.leading(partition)
	if err != nil {
		return nil, err
	}
	return p.WatchHighWatermark(moved), nil
}

// VerifyTxn implements coordinator.Log. No transaction can be open: this broker coordinates none, so that a
// transactional commit is refused as belonging to none.
func (l *topicLog) VerifyTxn(context.Context, coordinator.VerifyTxn) (any, error) {
	return nil, kerr.InvalidTxnState
}
