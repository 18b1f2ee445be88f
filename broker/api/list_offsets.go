package api

import (
	"context"
	"log/slog"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/broker/replica"
	"gregor/kraft/image"
	"gregor/storage"
)

// ListOffsets (key 2), versions 1 to 11.
//
//	1 one offset per partition with its timestamp     7 timestamp -3: of the largest timestamp (KIP-734)
//	2 isolation level                                 8 -4: earliest local (KIP-405)
//	4 leader epochs (KIP-320)                         9 -5: latest tiered (KIP-1005); 11 -6: earliest pending (KIP-1023)
//	5 OFFSET_NOT_AVAILABLE (KIP-207)                  10 timeout
//
// A special timestamp that the version lacks, and any other negative one, gives UNSUPPORTED_VERSION for its
// partition; a partition named twice INVALID_REQUEST. Nothing found is offset -1 without an error.
type listOffsets struct {
	images image.Source
	parts  Replicas
	log    *slog.Logger
}

// debugReplica asks any replica, leader or not (kafka-replica-verification).
const debugReplica int32 = -2

func (h *listOffsets) handle(_ context.Context, c *Call) kmsg.Response {
	req, _ := c.Request.(*kmsg.ListOffsetsRequest)
	resp := kmsg.NewPtrListOffsetsResponse()
	resp.SetVersion(req.Version)
	img := h.images.Image()
	bound := storage.UpToHighWatermark
	switch {
	case req.ReplicaID >= 0 || req.ReplicaID == debugReplica:
		bound = storage.UpToLogEnd
	case req.IsolationLevel == 1:
		bound = storage.UpToLastStable
	}
	twice := duplicatePartitions(req)
	for _, t := range req.Topics {
		out := kmsg.NewListOffsetsResponseTopic()
		out.Topic = t.Topic
		for _, p := range t.Partitions {
			x := kmsg.NewListOffsetsResponseTopicPartition()
			x.Partition = p.Partition
			found := storage.TimestampOffset{Timestamp: -1, Offset: -1, LeaderEpoch: -1}
			var err error
			switch {
			case twice[image.TopicPartition{Topic: t.Topic, Partition: p.Partition}]:
				err = kerr.InvalidRequest
			case !timestampSupported(p.Timestamp, req.Version):
				err = kerr.UnsupportedVersion
			default:
				found, err = h.find(img, t.Topic, p, bound)
			}
			x.ErrorCode = h.code(req.Version, err)
			x.Timestamp, x.Offset, x.LeaderEpoch = found.Timestamp, found.Offset, found.LeaderEpoch
			out.Partitions = append(out.Partitions, x)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

func (h *listOffsets) find(img *image.Image, topic string, p kmsg.ListOffsetsRequestTopicPartition, bound storage.Bound) (storage.TimestampOffset, error) {
	part, err := lookup(img, h.parts, topic, p.Partition)
	if err != nil {
		return storage.TimestampOffset{Timestamp: -1, Offset: -1, LeaderEpoch: -1}, err
	}
	return part.OffsetForTimestamp(p.Timestamp, p.CurrentLeaderEpoch, bound)
}

// code maps an error; before version 5 clients did not know OFFSET_NOT_AVAILABLE.
func (h *listOffsets) code(version int16, err error) int16 {
	c := code(h.log, "ListOffsets", err)
	if c == kerr.OffsetNotAvailable.Code && version < 5 {
		return kerr.LeaderNotAvailable.Code
	}
	return c
}

// lookup finds the replica of a partition on this broker: UNKNOWN_TOPIC_OR_PARTITION when the cluster has no such
// partition, NOT_LEADER_OR_FOLLOWER when it is elsewhere, KAFKA_STORAGE_ERROR when it is offline.
func lookup(img *image.Image, parts Replicas, topic string, partition int32) (*replica.Partition, error) {
	if img.Topics.Partition(topic, partition) == nil {
		return nil, kerr.UnknownTopicOrPartition
	}
	if part := parts.Lookup(topic, partition); part != nil {
		return part, nil
	}
	return nil, parts.Missing(topic, partition)
}

// firstVersionOf is the first version that knows each special timestamp.
var firstVersionOf = map[int64]int16{
	replica.LatestTimestamp: 0, replica.EarliestTimestamp: 0, replica.MaxTimestamp: 7,
	replica.EarliestLocalTimestamp: 8, replica.LatestTieredTimestamp: 9, replica.EarliestPending: 11,
}

func timestampSupported(timestamp int64, version int16) bool {
	if timestamp >= 0 {
		return true
	}
	first, ok := firstVersionOf[timestamp]
	return ok && version >= first
}

// duplicatePartitions are the partitions that a request names more than once.
func duplicatePartitions(req *kmsg.ListOffsetsRequest) map[image.TopicPartition]bool {
	seen := map[image.TopicPartition]bool{}
	twice := map[image.TopicPartition]bool{}
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			k := image.TopicPartition{Topic: t.Topic, Partition: p.Partition}
			twice[k] = twice[k] || seen[k]
			seen[k] = true
		}
	}
	return twice
}

// offsetForLeaderEpoch answers OffsetForLeaderEpoch (key 23), versions 2 to 4: the end of a leader epoch in the
// leader's log, so that a client finds out whether its log was cut (KIP-101, KIP-320).
//
//	2 current leader epoch     3 replica id     4 flexible
//
// FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION per partition; an
// epoch that is not known is epoch -1, offset -1 without an error.
type offsetForLeaderEpoch struct {
	images image.Source
	parts  Replicas
	log    *slog.Logger
}

func (h *offsetForLeaderEpoch) handle(_ context.Context, c *Call) kmsg.Response {
	req, _ := c.Request.(*kmsg.OffsetForLeaderEpochRequest)
	resp := kmsg.NewPtrOffsetForLeaderEpochResponse()
	resp.SetVersion(req.Version)
	img := h.images.Image()
	for _, t := range req.Topics {
		out := kmsg.NewOffsetForLeaderEpochResponseTopic()
		out.Topic = t.Topic
		for _, p := range t.Partitions {
			x := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			x.Partition, x.LeaderEpoch, x.EndOffset = p.Partition, -1, -1
			part, err := lookup(img, h.parts, t.Topic, p.Partition)
			if err == nil {
				x.LeaderEpoch, x.EndOffset, err = part.EndOffsetForEpoch(p.LeaderEpoch, p.CurrentLeaderEpoch)
			}
			x.ErrorCode = code(h.log, "OffsetForLeaderEpoch", err)
			out.Partitions = append(out.Partitions, x)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

// deleteRecords answers DeleteRecords (key 21), versions 0 to 2: the log start offset moves up (KIP-107).
//
// Offset -1 is the high watermark. At or below the start nothing changes and the current start is the answer;
// above the high watermark, and other negative offsets, OFFSET_OUT_OF_RANGE; POLICY_VIOLATION when the topic's
// cleanup policy does not delete; INVALID_TOPIC_EXCEPTION for internal topics.
type deleteRecords struct {
	images image.Source
	parts  Replicas
	log    *slog.Logger
}

func (h *deleteRecords) handle(_ context.Context, c *Call) kmsg.Response {
	req, _ := c.Request.(*kmsg.DeleteRecordsRequest)
	resp := kmsg.NewPtrDeleteRecordsResponse()
	resp.SetVersion(req.Version)
	img := h.images.Image()
	for _, t := range req.Topics {
		out := kmsg.NewDeleteRecordsResponseTopic()
		out.Topic = t.Topic
		for _, p := range t.Partitions {
			x := kmsg.NewDeleteRecordsResponseTopicPartition()
			x.Partition, x.LowWatermark = p.Partition, -1
			low, err := h.deleteOne(img, t.Topic, p)
			if err == nil {
				x.LowWatermark = low
			}
			x.ErrorCode = code(h.log, "DeleteRecords", err)
			out.Partitions = append(out.Partitions, x)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

func (h *deleteRecords) deleteOne(img *image.Image, topic string, p kmsg.DeleteRecordsRequestTopicPartition) (int64, error) {
	part, err := lookup(img, h.parts, topic, p.Partition)
	if err != nil {
		return -1, err
	}
	if isInternal(topic) {
		return -1, kerr.InvalidTopicException
	}
	return part.DeleteRecords(p.Offset)
}

// describeProducers answers DescribeProducers (key 61), version 0 (KIP-664): the producers that a partition knows.
type describeProducers struct {
	images image.Source
	parts  Replicas
	log    *slog.Logger
}

func (h *describeProducers) handle(_ context.Context, c *Call) kmsg.Response {
	req, _ := c.Request.(*kmsg.DescribeProducersRequest)
	resp := kmsg.NewPtrDescribeProducersResponse()
	resp.SetVersion(req.Version)
	img := h.images.Image()
	for _, t := range req.Topics {
		out := kmsg.NewDescribeProducersResponseTopic()
		out.Topic = t.Topic
		for _, index := range t.Partitions {
			x := kmsg.NewDescribeProducersResponseTopicPartition()
			x.Partition = index
			x.ActiveProducers = []kmsg.DescribeProducersResponseTopicPartitionActiveProducer{}
			err := checkTopicName(t.Topic)
			if err == nil && img.Topics.ByName(t.Topic) == nil {
				err = kerr.UnknownTopicOrPartition
			}
			x.ErrorMessage = message(err) // told with faults of the topic, not with those of a partition
			if err == nil {
				err = h.describe(img, t.Topic, &x)
			}
			x.ErrorCode = code(h.log, "DescribeProducers", err)
			out.Partitions = append(out.Partitions, x)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

func (h *describeProducers) describe(img *image.Image, topic string, x *kmsg.DescribeProducersResponseTopicPartition) error {
	part, err := lookup(img, h.parts, topic, x.Partition)
	if err != nil {
		return err
	}
	if _, leading := part.Leading(); !leading {
		return kerr.NotLeaderForPartition
	}
	for _, p := range part.Log().ActiveProducers() {
		a := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
		a.ProducerID, a.ProducerEpoch = p.ProducerID, int32(p.Epoch)
		a.LastSequence, a.LastTimestamp = p.LastSequence(), p.LastTimestamp
		a.CoordinatorEpoch, a.CurrentTxnStartOffset = p.CoordinatorEpoch, p.CurrentTxnFirstOffset
		x.ActiveProducers = append(x.ActiveProducers, a)
	}
	return nil
}
