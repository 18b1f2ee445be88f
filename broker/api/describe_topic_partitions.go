package api

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/kraft/image"
	"gregor/protocol"
)

// DescribeTopicPartitions (key 75), version 0 (KIP-966): Metadata in pages, with eligible leader replicas.
//
// Topics come in the order of their names, from the cursor on; an empty list asks for all. The answer holds at
// most the smaller of the request's limit and max.request.partition.size.limit partitions, and says where to go
// on. INVALID_REQUEST for each topic when the cursor is not among the topics asked for.
type describeTopicPartitions struct{ node Node }

func (h *describeTopicPartitions) handle(_ context.Context, c *Call) kmsg.Response {
	req, _ := c.Request.(*kmsg.DescribeTopicPartitionsRequest)
	resp := kmsg.NewPtrDescribeTopicPartitionsResponse()
	resp.SetVersion(req.Version)
	img := h.node.Images.Image()
	names, err := requestedTopics(req)
	if err != nil {
		for _, t := range req.Topics {
			resp.Topics = append(resp.Topics, describeTopicError(t.Topic, err))
		}
		return resp
	}
	d := pager{
		topicView: topicView{img: img, listener: c.Conn.ListenerName(), version: 13, operations: true},
		left:      int(max(min(h.node.Config().Sockets.DescribePartitionsLimit, req.ResponsePartitionLimit), 1)),
		resp:      resp,
	}
	if req.Cursor != nil {
		d.cursor, d.first = req.Cursor.Topic, req.Cursor.Partition
	}
	if names == nil {
		for t := range img.Topics.From(d.cursor) {
			if !d.add(t) {
				break
			}
		}
		return resp
	}
	for _, name := range names {
		t := img.Topics.ByName(name)
		if t == nil {
			e := error(kerr.UnknownTopicOrPartition)
			if checkTopicName(name) != nil {
				e = kerr.InvalidTopicException
			}
			x := describeTopicError(name, e)
			x.AuthorizedOperations = topicOperations
			resp.Topics = append(resp.Topics, x)
			continue
		}
		if !d.add(t) {
			break
		}
	}
	return resp
}

// requestedTopics are the names asked for from the cursor on, sorted; nil for all.
func requestedTopics(req *kmsg.DescribeTopicPartitionsRequest) ([]string, error) {
	cursor := ""
	if req.Cursor != nil {
		cursor = req.Cursor.Topic
		if req.Cursor.Partition < 0 {
			return nil, protocol.NewError(kerr.InvalidRequest.Code, fmt.Sprintf("the cursor's partition %d is not valid", req.Cursor.Partition))
		}
	}
	if len(req.Topics) == 0 {
		return nil, nil
	}
	names := []string{}
	for _, t := range req.Topics {
		if t.Topic >= cursor {
			names = append(names, t.Topic)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if req.Cursor != nil && !slices.Contains(names, cursor) {
		return nil, protocol.NewError(kerr.InvalidRequest.Code, "the topics must contain the cursor's topic "+cursor)
	}
	return names, nil
}

// pager fills an answer until it holds enough partitions.
type pager struct {
	topicView
	cursor string
	first  int32 // of the cursor's topic
	left   int
	resp   *kmsg.DescribeTopicPartitionsResponse
}

// add describes a topic from the cursor on. It returns false when the page is full; the answer then says where
// the next one begins.
func (d *pager) add(t *image.Topic) bool {
	from := int32(0)
	if t.Name == d.cursor {
		from = d.first
	}
	if d.left == 0 {
		d.next(t.Name, from)
		return false
	}
	out := kmsg.NewDescribeTopicPartitionsResponseTopic()
	name := t.Name
	out.Topic, out.TopicID, out.IsInternal = &name, t.ID, isInternal(name)
	out.AuthorizedOperations = topicOperations
	next, stop := iter.Pull2(t.PartitionsFrom(from))
	defer stop()
	for {
		id, p, ok := next()
		if !ok {
			d.resp.Topics = append(d.resp.Topics, out)
			return true
		}
		if d.left == 0 {
			d.resp.Topics = append(d.resp.Topics, out)
			d.next(name, id)
			return false
		}
		d.left--
		out.Partitions = append(out.Partitions, d.partition(id, p))
	}
}

func (d *pager) next(topic string, partition int32) {
	c := kmsg.NewDescribeTopicPartitionsResponseNextCursor()
	c.Topic, c.Partition = topic, partition
	d.resp.NextCursor = &c
}

func (d *pager) partition(id int32, p *image.Partition) kmsg.DescribeTopicPartitionsResponseTopicPartition {
	x := kmsg.NewDescribeTopicPartitionsResponseTopicPartition()
	x.Partition, x.LeaderEpoch = id, p.LeaderEpoch
	x.Replicas, x.ISR, x.OfflineReplicas = p.Replicas, p.ISR, d.offline(p)
	x.EligibleLeaderReplicas, x.LastKnownELR = orEmpty(p.ELR), orEmpty(p.LastKnownELR)
	x.ErrorCode, x.LeaderID = d.leader(p)
	return x
}

// orEmpty turns nil, which would be written as null, into the empty list.
func orEmpty(ids []int32) []int32 {
	if ids == nil {
		return []int32{}
	}
	return ids
}

func describeTopicError(name string, err error) kmsg.DescribeTopicPartitionsResponseTopic {
	t := kmsg.NewDescribeTopicPartitionsResponseTopic()
	t.ErrorCode, t.Topic, t.IsInternal = protocol.ErrorCode(err), &name, isInternal(name)
	t.AuthorizedOperations = notAsked
	return t
}
