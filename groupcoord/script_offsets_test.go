package groupcoord_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// offsetLine is "topic partition offset [epoch=N] [metadata]".
type offsetLine struct {
	topic     string
	partition int32
	offset    int64
	epoch     int32
	metadata  *string
}

func parseOffsets(input string) (out []offsetLine) {
	for line := range strings.Lines(input) {
		f := strings.Fields(line)
		o := offsetLine{topic: f[0], epoch: -1}
		for i, x := range f[1:] {
			switch {
			case i == 0:
				n, _ := strconv.Atoi(x)
				o.partition = int32(n)
			case i == 1:
				o.offset, _ = strconv.ParseInt(x, 10, 64)
			case strings.HasPrefix(x, "epoch="):
				n, _ := strconv.Atoi(x[6:])
				o.epoch = int32(n)
			case strings.HasPrefix(x, "size="):
				n, _ := strconv.Atoi(x[5:])
				m := strings.Repeat("x", n)
				o.metadata = &m
			default:
				o.metadata = &x
			}
		}
		out = append(out, o)
	}
	return out
}

func (s *script) commit(a args) {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.MemberID, req.Generation, req.InstanceID = a.str("g", "g"), s.memberID(a), s.generation(a), a.ptr("instance")
	req.RetentionTimeMillis = int64(a.num("retention", -1))
	for _, o := range parseOffsets(a.d.Input) {
		t := kmsg.NewOffsetCommitRequestTopic()
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = o.partition, o.offset, o.epoch, o.metadata
		t.Topic = o.topic
		t.Partitions = append(t.Partitions, p)
		req.Topics = append(req.Topics, t)
	}
	member := a.str("m", "admin")
	s.send(member, a.num("v", 7), req, func(r kmsg.Response) {
		var out []string
		for _, t := range r.(*kmsg.OffsetCommitResponse).Topics {
			for _, p := range t.Partitions {
				out = append(out, fmt.Sprintf("%s-%d:%s", t.Topic, p.Partition, errorName(p.ErrorCode)))
			}
		}
		s.say("%s: commit %v", member, out)
	})
}

func (s *script) txnCommit(a args) {
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.Group, req.MemberID, req.Generation, req.InstanceID = a.str("g", "g"), s.memberID(a), s.generation(a), a.ptr("instance")
	req.TransactionalID, req.ProducerID = "tx", int64(a.num("producer", 7))
	for _, o := range parseOffsets(a.d.Input) {
		t := kmsg.NewTxnOffsetCommitRequestTopic()
		p := kmsg.NewTxnOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = o.partition, o.offset, o.epoch, o.metadata
		t.Topic = o.topic
		t.Partitions = append(t.Partitions, p)
		req.Topics = append(req.Topics, t)
	}
	member := a.str("m", "admin")
	s.send(member, a.num("v", 3), req, func(r kmsg.Response) {
		var out []string
		for _, t := range r.(*kmsg.TxnOffsetCommitResponse).Topics {
			for _, p := range t.Partitions {
				out = append(out, fmt.Sprintf("%s-%d:%s", t.Topic, p.Partition, errorName(p.ErrorCode)))
			}
		}
		s.say("%s: txn-commit %v", member, out)
	})
}

// fetch: each line of the input is a topic and a partition; without input all
// offsets are asked for.
func (s *script) fetch(a args) {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Group, req.RequireStable = a.str("g", "g"), a.has("stable")
	group := kmsg.NewOffsetFetchRequestGroup()
	group.Group, group.MemberID, group.MemberEpoch = req.Group, a.ptr("id"), int32(a.num("epoch", -1))
	for _, o := range parseOffsets(a.d.Input) {
		t := kmsg.NewOffsetFetchRequestTopic()
		t.Topic, t.Partitions = o.topic, []int32{o.partition}
		req.Topics = append(req.Topics, t)
		gt := kmsg.NewOffsetFetchRequestGroupTopic()
		gt.Topic, gt.Partitions = t.Topic, t.Partitions
		group.Topics = append(group.Topics, gt)
	}
	req.Groups = append(req.Groups, group)
	s.send("admin", a.num("v", 7), req, func(r kmsg.Response) { s.fetched(r.(*kmsg.OffsetFetchResponse)) })
}

func (s *script) fetched(resp *kmsg.OffsetFetchResponse) {
	var out []string
	add := func(topic string, p int32, offset int64, epoch int32, metadata *string, code int16) {
		text := fmt.Sprintf("%s-%d=%d", topic, p, offset)
		if epoch != -1 {
			text += fmt.Sprintf("@%d", epoch)
		}
		if m := deref(metadata); m != "" {
			text += "(" + m + ")"
		}
		if code != 0 {
			text += ":" + errorName(code)
		}
		out = append(out, text)
	}
	code := resp.ErrorCode
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			add(t.Topic, p.Partition, p.Offset, p.LeaderEpoch, p.Metadata, p.ErrorCode)
		}
	}
	for _, g := range resp.Groups {
		code = g.ErrorCode
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				add(t.Topic, p.Partition, p.Offset, p.LeaderEpoch, p.Metadata, p.ErrorCode)
			}
		}
	}
	slices.Sort(out)
	s.say("fetch %s %v", errorName(code), out)
}

func (s *script) deleteOffsets(a args) {
	req := kmsg.NewPtrOffsetDeleteRequest()
	req.Group = a.str("g", "g")
	for _, o := range parseOffsets(a.d.Input) {
		t := kmsg.NewOffsetDeleteRequestTopic()
		p := kmsg.NewOffsetDeleteRequestTopicPartition()
		p.Partition = o.partition
		t.Topic, t.Partitions = o.topic, []kmsg.OffsetDeleteRequestTopicPartition{p}
		req.Topics = append(req.Topics, t)
	}
	s.send("admin", 0, req, func(r kmsg.Response) {
		resp := r.(*kmsg.OffsetDeleteResponse)
		var out []string
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				out = append(out, fmt.Sprintf("%s-%d:%s", t.Topic, p.Partition, errorName(p.ErrorCode)))
			}
		}
		slices.Sort(out)
		s.say("delete-offsets %s %v", errorName(resp.ErrorCode), out)
	})
}
