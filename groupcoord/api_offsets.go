package groupcoord

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/groupcoord/offsets"
	"gregor/internal/coordinator"
)

// OffsetCommit handles OffsetCommit v2 to v10 for topics that exist and that the
// caller may read. Both the name and the id of each topic are set, whatever the
// version.
func (c *Coordinator) OffsetCommit(req *kmsg.OffsetCommitRequest, reply func(*kmsg.OffsetCommitResponse)) {
	startWrite(c, req.Group, func(s *shard) (*kmsg.OffsetCommitResponse, effect, error) { return s.commitOffsets(req) },
		func(resp *kmsg.OffsetCommitResponse, err error) {
			if err != nil {
				reply(commitsFailed(req, c.code("commit offsets", err)))
				return
			}
			c.committed(resp.Topics)
			reply(resp)
		})
}

// commitsFailed gives each partition of a commit the same error.
func commitsFailed(req *kmsg.OffsetCommitRequest, code int16) *kmsg.OffsetCommitResponse {
	resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
	for _, topic := range req.Topics {
		out := kmsg.NewOffsetCommitResponseTopic()
		out.Topic, out.TopicID = topic.Topic, topic.TopicID
		for _, p := range topic.Partitions {
			answer := kmsg.NewOffsetCommitResponseTopicPartition()
			answer.Partition, answer.ErrorCode = p.Partition, code
			out.Partitions = append(out.Partitions, answer)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

func (c *Coordinator) committed(topics []kmsg.OffsetCommitResponseTopic) {
	if c.opts.Events.OffsetsCommitted == nil {
		return
	}
	n := 0
	for _, topic := range topics {
		for _, p := range topic.Partitions {
			if p.ErrorCode == 0 {
				n++
			}
		}
	}
	c.opts.Events.OffsetsCommitted(n)
}

// TxnOffsetCommit handles TxnOffsetCommit v0 to v6 for topics that exist and
// that the caller may read. The offsets count when the transaction is committed.
func (c *Coordinator) TxnOffsetCommit(ctx context.Context, req *kmsg.TxnOffsetCommitRequest) *kmsg.TxnOffsetCommitResponse {
	resp, err := c.txnOffsetCommit(ctx, req)
	if err == nil {
		return resp
	}
	code := c.code("commit offsets in a transaction", err)
	resp = req.ResponseKind().(*kmsg.TxnOffsetCommitResponse)
	for _, topic := range req.Topics {
		out := kmsg.NewTxnOffsetCommitResponseTopic()
		out.Topic, out.TopicID = topic.Topic, topic.TopicID
		for _, p := range topic.Partitions {
			answer := kmsg.NewTxnOffsetCommitResponseTopicPartition()
			answer.Partition, answer.ErrorCode = p.Partition, code
			out.Partitions = append(out.Partitions, answer)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

func (c *Coordinator) txnOffsetCommit(ctx context.Context, req *kmsg.TxnOffsetCommitRequest) (*kmsg.TxnOffsetCommitResponse, error) {
	if req.Group == "" {
		return nil, kerr.InvalidGroupID
	}
	p, err := c.partition(req.Group)
	if err != nil {
		return nil, err
	}
	return coordinator.WriteTxn(ctx, c.rt, coordinator.VerifyTxn{
		Partition: p, TransactionalID: req.TransactionalID, APIVersion: req.Version,
		Producer: coordinator.Producer{ID: req.ProducerID, Epoch: req.ProducerEpoch},
	}, func(s *shard) (*kmsg.TxnOffsetCommitResponse, effect, error) { return s.commitTxnOffsets(req) })
}

// EndTxn writes a transaction's marker to a partition of __consumer_offsets for
// WriteTxnMarkers, and waits until it is committed. The error is for the client.
func (c *Coordinator) EndTxn(ctx context.Context, partition int32, producer coordinator.Producer, coordinatorEpoch int32, commit bool) error {
	return coordinator.ClientError(coordinator.EndTxn(ctx, c.rt, partition, producer, coordinatorEpoch, commit))
}

// OffsetFetchGroup handles one group of an OffsetFetch. The topics carry names,
// and ids where the request has them; nil topics mean all that are committed, in
// which case the answer has names and the caller has yet to be authorized for
// each. With requireStable a partition that an open transaction commits gets
// UNSTABLE_OFFSET_COMMIT.
func (c *Coordinator) OffsetFetchGroup(req *kmsg.OffsetFetchRequestGroup, requireStable bool, reply func(kmsg.OffsetFetchResponseGroup)) {
	done := func(resp kmsg.OffsetFetchResponseGroup, err error) {
		if err != nil {
			resp = kmsg.NewOffsetFetchResponseGroup()
			resp.Group, resp.ErrorCode = req.Group, c.code("fetch offsets", err)
		}
		reply(resp)
	}
	if !requireStable {
		startRead(c, req.Group, func(s *shard) (kmsg.OffsetFetchResponseGroup, error) { return s.fetchOffsets(offsets.Committed, req) }, done)
		return
	}
	// Like a write it sees the newest state and waits until that is committed.
	startWrite(c, req.Group, func(s *shard) (kmsg.OffsetFetchResponseGroup, effect, error) {
		resp, err := s.fetchOffsets(offsets.Newest, req)
		return resp, effect{}, err
	}, func(resp kmsg.OffsetFetchResponseGroup, err error) {
		if errors.Is(err, coordinator.ErrTimedOut) || errors.Is(err, kerr.NotEnoughReplicas) {
			err = kerr.NotCoordinator
		}
		done(resp, err)
	})
}

// OffsetFetch handles OffsetFetch v1 to v10 for topics that the caller may
// describe; see [Coordinator.OffsetFetchGroup] for what the topics carry. Before
// version 8 there is one group, in fields of its own.
func (c *Coordinator) OffsetFetch(req *kmsg.OffsetFetchRequest, reply func(*kmsg.OffsetFetchResponse)) {
	const groupsVersion = 8
	resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
	if req.Version >= groupsVersion {
		ForEach(len(req.Groups), func(i int, done func(kmsg.OffsetFetchResponseGroup)) {
			c.OffsetFetchGroup(&req.Groups[i], req.RequireStable, done)
		}, func(groups []kmsg.OffsetFetchResponseGroup) {
			resp.Groups = groups
			reply(resp)
		})
		return
	}
	group := kmsg.NewOffsetFetchRequestGroup()
	group.Group = req.Group
	if req.Topics != nil {
		group.Topics = make([]kmsg.OffsetFetchRequestGroupTopic, 0, len(req.Topics))
	}
	for _, topic := range req.Topics {
		t := kmsg.NewOffsetFetchRequestGroupTopic()
		t.Topic, t.Partitions = topic.Topic, topic.Partitions
		group.Topics = append(group.Topics, t)
	}
	c.OffsetFetchGroup(&group, req.RequireStable, func(got kmsg.OffsetFetchResponseGroup) {
		flattenFetch(&group, got, resp)
		reply(resp)
	})
}

// ForEach starts n requests and calls done with all their answers, in the order
// of the requests, when the last of them has come.
func ForEach[T any](n int, start func(i int, done func(T)), done func([]T)) {
	answers := make([]T, n)
	var missing atomic.Int64
	missing.Store(int64(n) + 1)
	arrived := func() {
		if missing.Add(-1) == 0 {
			done(answers)
		}
	}
	for i := range answers {
		start(i, func(answer T) {
			answers[i] = answer
			arrived()
		})
	}
	arrived()
}

// flattenFetch puts the answer of one group into the fields of the versions
// before 8. Version 1 has no error but those of the partitions.
func flattenFetch(req *kmsg.OffsetFetchRequestGroup, in kmsg.OffsetFetchResponseGroup, resp *kmsg.OffsetFetchResponse) {
	resp.ErrorCode = in.ErrorCode
	resp.Topics = []kmsg.OffsetFetchResponseTopic{}
	if in.ErrorCode != 0 && resp.Version < 2 {
		for _, topic := range req.Topics {
			out := kmsg.NewOffsetFetchResponseTopic()
			out.Topic = topic.Topic
			for _, p := range topic.Partitions {
				answer := kmsg.NewOffsetFetchResponseTopicPartition()
				empty := ""
				answer.Partition, answer.Offset, answer.Metadata, answer.ErrorCode = p, offsets.NoOffset, &empty, in.ErrorCode
				out.Partitions = append(out.Partitions, answer)
			}
			resp.Topics = append(resp.Topics, out)
		}
		return
	}
	for _, topic := range in.Topics {
		out := kmsg.NewOffsetFetchResponseTopic()
		out.Topic = topic.Topic
		for _, p := range topic.Partitions {
			answer := kmsg.NewOffsetFetchResponseTopicPartition()
			answer.Partition, answer.Offset, answer.LeaderEpoch, answer.Metadata, answer.ErrorCode = p.Partition, p.Offset, p.LeaderEpoch, p.Metadata, p.ErrorCode
			out.Partitions = append(out.Partitions, answer)
		}
		resp.Topics = append(resp.Topics, out)
	}
}

// OffsetDelete handles OffsetDelete v0 for topics that exist and that the caller
// may read.
func (c *Coordinator) OffsetDelete(ctx context.Context, req *kmsg.OffsetDeleteRequest) *kmsg.OffsetDeleteResponse {
	resp := req.ResponseKind().(*kmsg.OffsetDeleteResponse)
	if req.Group == "" {
		resp.ErrorCode = kerr.InvalidGroupID.Code
		return resp
	}
	got, err := write(ctx, c, req.Group, func(s *shard) (*kmsg.OffsetDeleteResponse, effect, error) { return s.deleteOffsets(req) })
	if err != nil {
		resp.ErrorCode = c.code("delete offsets", err)
		return resp
	}
	if c.opts.Events.OffsetsDeleted != nil {
		n := 0
		for _, topic := range got.Topics {
			n += len(topic.Partitions)
		}
		c.opts.Events.OffsetsDeleted(n)
	}
	return got
}
