package differential

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/compat-tests/wire"
)

// consumerBeat is a heartbeat of the member "one" of a consumer group.
func consumerBeat(v int16, group string, epoch int32, edit func(s *side, r *kmsg.ConsumerGroupHeartbeatRequest)) func(*side) kmsg.Request {
	return func(s *side) kmsg.Request {
		req := wire.At(kmsg.NewPtrConsumerGroupHeartbeatRequest(), v)
		req.Group, req.MemberID, req.MemberEpoch, req.RebalanceTimeoutMillis = group, s.members["one"], epoch, -1
		if epoch == 0 {
			req.RebalanceTimeoutMillis = 45000
			req.SubscribedTopicNames, req.Topics = []string{"cgh"}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		}
		edit(s, req)
		return req
	}
}

// TestConsumerGroup plays the life of a consumer group of one member at every version, with what may go wrong on the way.
func TestConsumerGroup(t *testing.T) {
	p := newPair(t)
	awaitGroups(p)
	p.create("cgh", 3)
	p.create("cgh-other", 2)
	// Version 0 may leave the id to the coordinator, later ones bring their own.
	p.same("an id is made", consumerBeat(0, "g-generated", 0, func(*side, *kmsg.ConsumerGroupHeartbeatRequest) {}), func(s *side, resp kmsg.Response) {
		if r, ok := resp.(*kmsg.ConsumerGroupHeartbeatResponse); ok && r.MemberID != nil {
			s.members["generated"] = *r.MemberID
		}
	})
	for _, v := range versions(0, 1) {
		group := fmt.Sprintf("cgh-%d", v)
		p.eventually("loaded", constant(offsetFetch7(group)), func(resp kmsg.Response) bool {
			r, _ := resp.(*kmsg.OffsetFetchResponse)
			return r.ErrorCode == 0
		})
		learnMember := func(s *side, resp kmsg.Response) {
			if r, ok := resp.(*kmsg.ConsumerGroupHeartbeatResponse); ok && r.MemberID != nil {
				s.members["one"] = *r.MemberID
			}
		}
		for _, s := range p.sides() {
			s.members["one"] = "the-first-member-of-it"
		}
		beat := func(what string, epoch int32, edit func(s *side, r *kmsg.ConsumerGroupHeartbeatRequest), learns ...learn) {
			t.Helper()
			p.same(what, consumerBeat(v, group, epoch, edit), learns...)
		}
		as := func(edit func(r *kmsg.ConsumerGroupHeartbeatRequest)) func(*side, *kmsg.ConsumerGroupHeartbeatRequest) {
			return func(_ *side, r *kmsg.ConsumerGroupHeartbeatRequest) { edit(r) }
		}
		nothing := as(func(*kmsg.ConsumerGroupHeartbeatRequest) {})

		describeConsumerGroup(p, group)
		badJoins(beat, as, v)
		beat("join", 0, nothing, learnMember)
		describeConsumerGroup(p, group)
		badBeats(beat, as)
		beat("beat", 2, nothing)
		beat("beat with what it owns", 2, func(s *side, r *kmsg.ConsumerGroupHeartbeatRequest) {
			r.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{{TopicID: s.topic("cgh").ID, Partitions: []int32{0, 1, 2}}}
		})
		beat("whole", 2, as(func(r *kmsg.ConsumerGroupHeartbeatRequest) {
			r.RebalanceTimeoutMillis, r.SubscribedTopicNames, r.Topics = 45000, []string{"cgh"}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		}))
		beat("other topics", 2, as(func(r *kmsg.ConsumerGroupHeartbeatRequest) {
			r.SubscribedTopicNames = []string{"cgh-other", "cgh-missing"}
		}))
		describeConsumerGroup(p, group)
		beat("gives up what it owned", 2, as(func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{} }))
		describeConsumerGroup(p, group)
		liveOffsets(p, v, group)
		describeGroup(p, group)
		p.same("an old client joins", constant(joinRequest(5, group, "", "range")), func(_ *side, resp kmsg.Response) {
			if r, ok := resp.(*kmsg.JoinGroupResponse); ok {
				r.MemberID = "" // generated
			}
		})
		beat("leave", -1, nothing)
		describeConsumerGroup(p, group)
		beat("leave again", -1, nothing)
		p.same("delete", constant(func() kmsg.Request {
			req := wire.At(kmsg.NewPtrDeleteGroupsRequest(), 2)
			req.Groups = []string{group}
			return req
		}()))
		describeConsumerGroup(p, group)
	}
}

type (
	// beatFunc compares a heartbeat.
	beatFunc func(what string, epoch int32, edit func(s *side, r *kmsg.ConsumerGroupHeartbeatRequest), learns ...learn)
	// asFunc makes an edit of what changes a request in the same way on both sides.
	asFunc func(edit func(r *kmsg.ConsumerGroupHeartbeatRequest)) func(*side, *kmsg.ConsumerGroupHeartbeatRequest)
)

// badJoins are first heartbeats that are refused.
func badJoins(beat beatFunc, as asFunc, v int16) {
	beat("no group", 0, as(func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.Group = "" }))
	beat("blank group", 0, as(func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.Group = "  " }))
	beat("no rebalance timeout", 0, as(func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.RebalanceTimeoutMillis = -1 }))
	beat("no topics", 0, as(func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.SubscribedTopicNames = nil }))
	beat("empty topics", 0, as(func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.SubscribedTopicNames = []string{} }))
	beat("owned is null", 0, as(func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.Topics = nil }))
	beat("owned is not empty", 0, as(func(r *kmsg.ConsumerGroupHeartbeatRequest) {
		r.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{{Partitions: []int32{1}}}
	}))
	beat("empty instance", 0, as(func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.InstanceID = new("") }))
	beat("empty rack", 0, as(func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.RackID = new("") }))
	beat("unknown assignor", 0, as(func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.ServerAssignor = new("nonsense") }))
	beat("stranger", 5, as(func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberID = "a-stranger-to-the-group" }))
	beat("stranger leaves", -1, as(func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberID = "a-stranger-to-the-group" }))
	beat("dynamic member leaves as a static one", -2, as(func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberID = "a-stranger-to-the-group" }))
	beat("epoch -3", -3, as(func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberID = "a-stranger-to-the-group" }))
	if v >= 1 {
		beat("no member id", 0, as(func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberID = "" }))
		beat("bad pattern", 0, as(func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.SubscribedTopicRegex = new("a)(b") }))
		beat("empty pattern alone", 0, as(func(r *kmsg.ConsumerGroupHeartbeatRequest) {
			r.SubscribedTopicNames, r.SubscribedTopicRegex = nil, new("")
		}))
	}
}

// badBeats are heartbeats that a group with a member in epoch 2 refuses.
func badBeats(beat beatFunc, as asFunc) {
	nothing := as(func(*kmsg.ConsumerGroupHeartbeatRequest) {})
	beat("an epoch of the future", 7, nothing)
	beat("an epoch of the past", 1, nothing)
	beat("somebody else", 2, as(func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberID = "a-stranger-to-the-group" }))
	beat("with an instance", 2, as(func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.InstanceID = new("nobody") }))
	beat("leaves as a static one", -2, nothing)
	beat("leaves with an instance", -2, as(func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.InstanceID = new("nobody") }))
	beat("unknown assignor", 2, as(func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.ServerAssignor = new("nonsense") }))
}

func describeConsumerGroup(p *pair, group string) {
	p.t.Helper()
	for _, v := range versions(0, 1) {
		for _, operations := range []bool{false, true} {
			req := wire.At(kmsg.NewPtrConsumerGroupDescribeRequest(), v)
			req.Groups, req.IncludeAuthorizedOperations = []string{group}, operations
			p.same("describe "+group, constant(req))
		}
		odd := wire.At(kmsg.NewPtrConsumerGroupDescribeRequest(), v)
		odd.Groups = []string{"", "g"}
		p.same("describe none and a classic one", constant(odd))
	}
}

func offsetFetch7(group string) *kmsg.OffsetFetchRequest {
	req := wire.At(kmsg.NewPtrOffsetFetchRequest(), 7)
	req.Group = group
	return req
}

// liveOffsets commits and deletes offsets of a consumer group whose member reads cgh-other.
func liveOffsets(p *pair, v int16, group string) {
	p.t.Helper()
	for _, cv := range versions(2, 10) {
		for _, c := range []struct {
			what   string
			member bool
			epoch  int32
			topic  string
		}{
			{"member", true, 3, "cgh-other"},
			{"member, unsubscribed", true, 3, "cgh"},
			{"old epoch", true, 2, "cgh-other"},
			{"epoch of the future", true, 9, "cgh-other"},
			{"nobody", false, -1, "cgh-other"},
		} {
			p.same(fmt.Sprintf("commit of %s (%d)", c.what, v), func(s *side) kmsg.Request {
				req := wire.At(kmsg.NewPtrOffsetCommitRequest(), cv)
				req.Group, req.Generation, req.RetentionTimeMillis = group, c.epoch, -1
				if c.member {
					req.MemberID = s.members["one"]
				}
				rt := kmsg.NewOffsetCommitRequestTopic()
				rt.Topic, rt.TopicID = c.topic, s.topic(c.topic).ID
				rp := kmsg.NewOffsetCommitRequestTopicPartition()
				rp.Offset = int64(cv)
				rt.Partitions = append(rt.Partitions, rp)
				req.Topics = append(req.Topics, rt)
				return req
			})
		}
	}
	deleteOffsets(p, group, "cgh", "cgh-other")
}

// deleteOffsets deletes offsets of topics that are read, were read, and are not there.
func deleteOffsets(p *pair, group, was, reads string) {
	p.t.Helper()
	for _, topics := range [][]string{{reads}, {was}, {was}, {"od-missing"}, {reads, was, "od-missing"}, {}} {
		req := kmsg.NewPtrOffsetDeleteRequest()
		req.Group = group
		for _, name := range topics {
			req.Topics = append(req.Topics, kmsg.OffsetDeleteRequestTopic{
				Topic: name, Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 0}, {Partition: 9}},
			})
		}
		p.same(fmt.Sprintf("delete offsets of %v in %s", topics, group), constant(req))
	}
	p.same("offsets left", constant(offsetFetch7(group)))
}

// TestOffsetDeleteOfALiveClassicGroup deletes offsets in every state of a classic group.
func TestOffsetDeleteOfALiveClassicGroup(t *testing.T) {
	p := newPair(t)
	awaitGroups(p)
	p.create("odl", 3)
	p.create("odl-other", 2)
	for _, kind := range []string{"consumer", "connect"} {
		group := "od-" + kind
		p.eventually("loaded", constant(offsetFetch7(group)), func(resp kmsg.Response) bool {
			r, _ := resp.(*kmsg.OffsetFetchResponse)
			return r.ErrorCode == 0
		})
		for _, topic := range []string{"odl", "odl-other"} {
			req := wire.At(kmsg.NewPtrOffsetCommitRequest(), 8)
			req.Group, req.Generation = group, -1
			req.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: topic, Partitions: []kmsg.OffsetCommitRequestTopicPartition{{Offset: 4, LeaderEpoch: -1}}}}
			p.same("commit", constant(req))
		}
		for _, s := range p.sides() {
			s.members["one"] = ""
		}
		p.same("join", constant(func() kmsg.Request {
			req := joinRequest(3, group, "")
			req.ProtocolType = kind
			meta := &kmsg.ConsumerMemberMetadata{Version: 1, Topics: []string{"odl-other"}}
			req.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: meta.AppendTo(nil)}}
			return req
		}()), func(s *side, resp kmsg.Response) {
			if r, ok := resp.(*kmsg.JoinGroupResponse); ok {
				s.members["one"] = r.MemberID
			}
		})
		deleteOffsets(p, group, "odl", "odl-other")
		p.same("sync", func(s *side) kmsg.Request {
			req := wire.At(kmsg.NewPtrSyncGroupRequest(), 3)
			req.Group, req.Generation, req.MemberID = group, 1, s.members["one"]
			return req
		})
		deleteOffsets(p, group, "odl", "odl-other")
		p.same("leave", func(s *side) kmsg.Request {
			req := wire.At(kmsg.NewPtrLeaveGroupRequest(), 3)
			req.Group, req.Members = group, []kmsg.LeaveGroupRequestMember{{MemberID: s.members["one"]}}
			return req
		})
		deleteOffsets(p, group, "odl", "odl-other")
	}
}

// TestGroupsAndMembersComeInKafkasOrder lists many groups, and describes groups of many members: Kafka gives them in the
// order of its hash tables.
func TestGroupsAndMembersComeInKafkasOrder(t *testing.T) {
	p := newPair(t)
	awaitGroups(p)
	p.create("ord", 3)
	for i := range 60 {
		group := fmt.Sprintf("%s-of-order-%d", []string{"group", "consumers", "x"}[i%3], i)
		p.eventually("loaded", constant(offsetFetch7(group)), func(resp kmsg.Response) bool {
			r, _ := resp.(*kmsg.OffsetFetchResponse)
			return r.ErrorCode == 0
		})
		req := wire.At(kmsg.NewPtrOffsetCommitRequest(), 8)
		req.Group, req.Generation = group, -1
		req.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "ord", Partitions: []kmsg.OffsetCommitRequestTopicPartition{{Offset: 4, LeaderEpoch: -1}}}}
		p.same("commit", constant(req))
		if i%10 == 9 {
			p.same("list", constant(wire.At(kmsg.NewPtrListGroupsRequest(), 5)))
		}
		if i%7 == 6 {
			del := wire.At(kmsg.NewPtrDeleteGroupsRequest(), 2)
			del.Groups = []string{group}
			p.same("delete", constant(del))
			p.same("commit again", constant(req))
		}
	}
	p.same("list all", constant(wire.At(kmsg.NewPtrListGroupsRequest(), 5)))
	p.eventually("loaded", constant(offsetFetch7("ord-members")), func(resp kmsg.Response) bool {
		r, _ := resp.(*kmsg.OffsetFetchResponse)
		return r.ErrorCode == 0
	})
	for i := range 20 {
		for _, s := range p.sides() {
			s.members["one"] = fmt.Sprintf("member-of-order-%d", i*i)
		}
		p.same("join", consumerBeat(1, "ord-members", 0, func(_ *side, r *kmsg.ConsumerGroupHeartbeatRequest) {
			r.SubscribedTopicNames = []string{"ord-missing"}
		}))
		if i%4 == 3 {
			p.same("leave", consumerBeat(1, "ord-members", -1, func(*side, *kmsg.ConsumerGroupHeartbeatRequest) {}))
		}
		describe := wire.At(kmsg.NewPtrConsumerGroupDescribeRequest(), 1)
		describe.Groups = []string{"ord-members"}
		p.same("describe", constant(describe))
	}
	for _, s := range p.sides() {
		s.members["one"] = ""
	}
}
