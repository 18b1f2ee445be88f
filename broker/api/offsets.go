package api

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/groupcoord"
	"gregor/kraft/image"
	"gregor/protocol"
)

// OffsetCommit (key 8), versions 2 to 10.
//
//	3 throttle     5 no retention time     6 leader epoch     7 static members     8 flexible     10 topic ids
//
// UNKNOWN_TOPIC_OR_PARTITION, or UNKNOWN_TOPIC_ID, for what does not exist; the rest is the coordinator's.
func (h *groups) commit(c *Call, reply Reply) {
	req, _ := c.Request.(*kmsg.OffsetCommitRequest)
	img := h.node.Images.Image()
	refused, order := splitCommit(img, req)
	answer := func(resp *kmsg.OffsetCommitResponse) {
		resp.SetVersion(req.Version)
		resp.Topics = mergeCommit(resp.Topics, refused, order)
		reply(resp)
	}
	if len(req.Topics) > 0 || len(order) == 0 {
		// A request without topics goes to the coordinator too: it checks the member.
		h.coordinator.OffsetCommit(req, answer)
		return
	}
	answer(kmsg.NewPtrOffsetCommitResponse())
}

// commitKey names a topic as the request does.
type commitKey struct {
	name string
	id   [16]byte
}

// splitCommit takes partitions that do not exist out of the request and returns their answers, and the order of
// topics in the request; both are empty when all exist. What stays has both name and id, since the id is stored with the
// offset.
func splitCommit(img *image.Image, req *kmsg.OffsetCommitRequest) (refused map[commitKey]kmsg.OffsetCommitResponseTopic, order []commitKey) {
	if resolveCommit(img, req) {
		return nil, nil
	}
	refused = map[commitKey]kmsg.OffsetCommitResponseTopic{}
	kept := req.Topics[:0:0]
	for _, t := range req.Topics {
		topic, missing := commitTopic(img, req, &t), kerr.UnknownTopicOrPartition
		if req.Version >= 10 {
			missing = kerr.UnknownTopicID
		}
		key := commitKey{name: t.Topic, id: t.TopicID}
		out := kmsg.NewOffsetCommitResponseTopic()
		out.Topic, out.TopicID = t.Topic, t.TopicID
		partitions := t.Partitions[:0:0]
		for _, p := range t.Partitions {
			switch {
			case topic == nil:
				out.Partitions = append(out.Partitions, commitError(p.Partition, missing))
			case topic.Partition(p.Partition) == nil:
				out.Partitions = append(out.Partitions, commitError(p.Partition, kerr.UnknownTopicOrPartition))
			default:
				partitions = append(partitions, p)
			}
		}
		if topic != nil {
			key = commitKey{name: topic.Name, id: topic.ID}
			if req.Version < 10 {
				key.id = [16]byte{}
			}
			t.Topic, t.TopicID = topic.Name, topic.ID
		}
		order = append(order, key)
		if len(out.Partitions) > 0 {
			refused[key] = out
		}
		if t.Partitions = partitions; len(partitions) > 0 {
			kept = append(kept, t)
		}
	}
	req.Topics = kept
	return refused, order
}

// resolveCommit sets name and id of each topic when all that the request names exists, as nearly always.
func resolveCommit(img *image.Image, req *kmsg.OffsetCommitRequest) bool {
	for i := range req.Topics {
		topic := commitTopic(img, req, &req.Topics[i])
		if topic == nil || len(req.Topics[i].Partitions) == 0 {
			return false
		}
		for j := range req.Topics[i].Partitions {
			if topic.Partition(req.Topics[i].Partitions[j].Partition) == nil {
				return false
			}
		}
	}
	for i := range req.Topics {
		topic := commitTopic(img, req, &req.Topics[i])
		req.Topics[i].Topic, req.Topics[i].TopicID = topic.Name, topic.ID
	}
	return true
}

// commitTopic is the topic that a part of the request names; nil when it does not exist.
func commitTopic(img *image.Image, req *kmsg.OffsetCommitRequest, t *kmsg.OffsetCommitRequestTopic) *image.Topic {
	if req.Version >= 10 {
		return img.Topics.ByID(t.TopicID)
	}
	return img.Topics.ByName(t.Topic)
}

func commitError(partition int32, err error) kmsg.OffsetCommitResponseTopicPartition {
	p := kmsg.NewOffsetCommitResponseTopicPartition()
	p.Partition, p.ErrorCode = partition, protocol.ErrorCode(err)
	return p
}

// mergeCommit joins the coordinator's answers with those of what it was not asked, in the request's order.
func mergeCommit(answered []kmsg.OffsetCommitResponseTopic, refused map[commitKey]kmsg.OffsetCommitResponseTopic, order []commitKey) []kmsg.OffsetCommitResponseTopic {
	if len(refused) == 0 {
		return answered
	}
	byTopic := map[string]kmsg.OffsetCommitResponseTopic{}
	for _, t := range answered {
		byTopic[t.Topic] = t
	}
	out := make([]kmsg.OffsetCommitResponseTopic, 0, len(order))
	for _, k := range order {
		t, ok := byTopic[k.name]
		if r, bad := refused[k]; bad {
			if !ok {
				t = r
			} else {
				t.Partitions = append(t.Partitions, r.Partitions...)
			}
		}
		out = append(out, t)
	}
	return out
}

// fetch answers OffsetFetch (key 9), versions 1 to 10.
//
//	2 null topics = all     5 leader epoch     6 flexible     7 require stable (KIP-447)     8 several groups (KIP-709)
//	9 member id and epoch (KIP-848)     10 topic ids
//
// What was never committed has offset -1 and no error. From version 10 on, UNKNOWN_TOPIC_ID for an id that is not
// known.
func (h *groups) fetch(c *Call, reply Reply) {
	req, _ := c.Request.(*kmsg.OffsetFetchRequest)
	if req.Version < 10 {
		h.coordinator.OffsetFetch(req, func(resp *kmsg.OffsetFetchResponse) { reply(resp) })
		return
	}
	img := h.node.Images.Image()
	groupcoord.ForEach(len(req.Groups), func(i int, done func(kmsg.OffsetFetchResponseGroup)) {
		h.fetchByID(img, &req.Groups[i], req.RequireStable, done)
	}, func(groups []kmsg.OffsetFetchResponseGroup) {
		resp := kmsg.NewPtrOffsetFetchResponse()
		resp.SetVersion(req.Version)
		resp.Groups = groups
		reply(resp)
	})
}

// fetchByID answers for one group whose topics are given by id.
func (h *groups) fetchByID(img *image.Image, g *kmsg.OffsetFetchRequestGroup, requireStable bool, reply func(kmsg.OffsetFetchResponseGroup)) {
	all := g.Topics == nil
	var unknown []kmsg.OffsetFetchResponseGroupTopic
	kept := g.Topics[:0:0]
	for _, t := range g.Topics {
		topic := img.Topics.ByID(t.TopicID)
		if topic == nil {
			unknown = append(unknown, unknownTopicOffsets(t))
			continue
		}
		t.Topic = topic.Name
		kept = append(kept, t)
	}
	g.Topics = kept
	if !all && g.Topics == nil {
		g.Topics = []kmsg.OffsetFetchRequestGroupTopic{}
	}
	if all {
		g.Topics = nil
	}
	h.coordinator.OffsetFetchGroup(g, requireStable, func(out kmsg.OffsetFetchResponseGroup) {
		if out.ErrorCode == 0 {
			out.Topics = slices.Concat(withIDs(img, out.Topics), unknown)
		}
		reply(out)
	})
}

// withIDs sets the ids of the topics. An offset of a topic that is gone has no id to be told by, and is left out.
func withIDs(img *image.Image, topics []kmsg.OffsetFetchResponseGroupTopic) []kmsg.OffsetFetchResponseGroupTopic {
	known := topics[:0]
	for _, t := range topics {
		if topic := img.Topics.ByName(t.Topic); topic != nil {
			t.TopicID = topic.ID
			known = append(known, t)
		}
	}
	return known
}

func unknownTopicOffsets(t kmsg.OffsetFetchRequestGroupTopic) kmsg.OffsetFetchResponseGroupTopic {
	out := kmsg.NewOffsetFetchResponseGroupTopic()
	out.TopicID = t.TopicID
	for _, id := range t.Partitions {
		p := kmsg.NewOffsetFetchResponseGroupTopicPartition()
		empty := ""
		p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = id, -1, -1, &empty
		p.ErrorCode = kerr.UnknownTopicID.Code
		out.Partitions = append(out.Partitions, p)
	}
	return out
}

// deleteOffsets answers OffsetDelete (key 47), version 0: UNKNOWN_TOPIC_OR_PARTITION for what does not exist, the
// rest is the coordinator's.
func (h *groups) deleteOffsets(ctx context.Context, c *Call) kmsg.Response {
	req, _ := c.Request.(*kmsg.OffsetDeleteRequest)
	img := h.node.Images.Image()
	var refused []kmsg.OffsetDeleteResponseTopic
	kept := req.Topics[:0:0]
	for _, t := range req.Topics {
		bad := kmsg.NewOffsetDeleteResponseTopic()
		bad.Topic = t.Topic
		partitions := t.Partitions[:0:0]
		for _, p := range t.Partitions {
			if img.Topics.Partition(t.Topic, p.Partition) != nil {
				partitions = append(partitions, p)
				continue
			}
			x := kmsg.NewOffsetDeleteResponseTopicPartition()
			x.Partition, x.ErrorCode = p.Partition, kerr.UnknownTopicOrPartition.Code
			bad.Partitions = append(bad.Partitions, x)
		}
		if len(bad.Partitions) > 0 {
			refused = append(refused, bad)
		}
		if t.Partitions = partitions; len(partitions) > 0 {
			kept = append(kept, t)
		}
	}
	req.Topics = kept
	resp := h.coordinator.OffsetDelete(ctx, req)
	if resp.ErrorCode == 0 {
		resp.Topics = mergeDeleted(resp.Topics, refused)
	}
	return resp
}

// mergeDeleted puts the partitions that were refused beside those of the same topic that were not.
func mergeDeleted(topics, refused []kmsg.OffsetDeleteResponseTopic) []kmsg.OffsetDeleteResponseTopic {
	for _, bad := range refused {
		i := slices.IndexFunc(topics, func(t kmsg.OffsetDeleteResponseTopic) bool { return t.Topic == bad.Topic })
		if i < 0 {
			topics = append(topics, bad)
			continue
		}
		topics[i].Partitions = append(topics[i].Partitions, bad.Partitions...)
	}
	return topics
}
