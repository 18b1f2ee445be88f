package differential

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/compat-tests/wire"
)

// awaitGroups waits until both sides coordinate groups.
func awaitGroups(p *pair) {
	p.t.Helper()
	p.eventually("coordinator", func(*side) kmsg.Request {
		req := wire.At(kmsg.NewPtrFindCoordinatorRequest(), 4)
		req.CoordinatorKeys = []string{"g"}
		return req
	}, func(resp kmsg.Response) bool {
		r, _ := resp.(*kmsg.FindCoordinatorResponse)
		return r.Coordinators[0].ErrorCode == 0
	})
	for _, group := range []string{"g", "dg", "h", "i", "j", "k", "l", "m"} {
		p.eventually("loaded", func(*side) kmsg.Request {
			req := wire.At(kmsg.NewPtrOffsetFetchRequest(), 7)
			req.Group = group
			return req
		}, func(resp kmsg.Response) bool {
			r, _ := resp.(*kmsg.OffsetFetchResponse)
			return r.ErrorCode != kerr.CoordinatorLoadInProgress.Code && r.ErrorCode != kerr.NotCoordinator.Code
		})
	}
}

func TestFindCoordinator(t *testing.T) {
	p := newPair(t)
	awaitGroups(p)
	for _, v := range versions(0, 6) {
		for _, key := range []string{"dg", ""} {
			for _, kind := range []int8{0, 3, 9, -1} {
				req := wire.At(kmsg.NewPtrFindCoordinatorRequest(), v)
				req.CoordinatorKey, req.CoordinatorType, req.CoordinatorKeys = key, kind, []string{key, key + "2"}
				p.same(fmt.Sprintf("%q kind %d", key, kind), constant(req))
			}
		}
		none := wire.At(kmsg.NewPtrFindCoordinatorRequest(), v)
		p.same("no keys", constant(none))
	}
}

func TestOffsetCommitAndFetch(t *testing.T) {
	p := newPair(t)
	awaitGroups(p)
	p.create("oc", 2)
	topics := []string{"oc", "oc-missing"}
	for _, v := range versions(2, 10) {
		for _, c := range []struct {
			group, member string
			generation    int32
			topic         string
			partition     int32
			offset        int64
			metadata      *string
		}{
			{"g", "", -1, "oc", 0, 5, new("meta")},
			{"g", "", -1, "oc", 1, 6, nil},
			{"g", "", -1, "oc", 7, 6, nil},
			{"g", "", -1, "oc-missing", 0, 6, nil},
			{"g", "", -1, "oc", 0, -1, nil},
			{"g", "", -1, "oc", 0, -5, nil},
			{"g", "nobody", 3, "oc", 0, 5, nil},
			{"g", "", 3, "oc", 0, 5, nil},
			{"", "", -1, "oc", 0, 5, nil},
			{"h", "nobody", 3, "oc", 0, 5, nil},
			{"g", "", -1, "oc", 0, 5, new(string(make([]byte, 5000)))},
		} {
			p.same(fmt.Sprintf("%+v", c), func(s *side) kmsg.Request {
				req := wire.At(kmsg.NewPtrOffsetCommitRequest(), v)
				req.Group, req.MemberID, req.Generation, req.RetentionTimeMillis = c.group, c.member, c.generation, -1
				rt := kmsg.NewOffsetCommitRequestTopic()
				rt.Topic, rt.TopicID = c.topic, s.topic(c.topic).ID
				rp := kmsg.NewOffsetCommitRequestTopicPartition()
				rp.Partition, rp.Offset, rp.LeaderEpoch, rp.Metadata = c.partition, c.offset, 2, c.metadata
				rt.Partitions = append(rt.Partitions, rp)
				req.Topics = append(req.Topics, rt)
				return req
			})
		}
	}
	for _, v := range versions(1, 10) {
		for _, group := range []string{"g", "h", "never", ""} {
			for _, all := range []bool{false, true} {
				for _, stable := range []bool{false, true} {
					p.same(fmt.Sprintf("%q all %v stable %v", group, all, stable), func(s *side) kmsg.Request {
						req := wire.At(kmsg.NewPtrOffsetFetchRequest(), v)
						req.Group, req.RequireStable = group, stable
						rg := kmsg.NewOffsetFetchRequestGroup()
						rg.Group = group
						for _, name := range topics {
							if all {
								break
							}
							req.Topics = append(req.Topics, kmsg.OffsetFetchRequestTopic{Topic: name, Partitions: []int32{0, 1, 7}})
							rt := kmsg.NewOffsetFetchRequestGroupTopic()
							rt.Topic, rt.TopicID, rt.Partitions = name, s.topic(name).ID, []int32{0, 1, 7}
							rg.Topics = append(rg.Topics, rt)
						}
						req.Groups = append(req.Groups, rg)
						return req
					})
				}
			}
		}
	}
	for what, group := range map[string]string{"there": "g", "missing": "never"} {
		del := kmsg.NewPtrOffsetDeleteRequest()
		del.Group = group
		del.Topics = []kmsg.OffsetDeleteRequestTopic{{Topic: "oc", Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 1}, {Partition: 7}}}, {Topic: "oc-missing", Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 0}}}}
		p.same(what, constant(del))
	}
	for _, v := range versions(0, 3) {
		req := wire.At(kmsg.NewPtrDeleteGroupsRequest(), v)
		req.Groups = []string{"g", "never", ""}
		p.same("some", constant(req))
	}
}

func joinRequest(v int16, group, member string, protocols ...string) *kmsg.JoinGroupRequest {
	req := wire.At(kmsg.NewPtrJoinGroupRequest(), v)
	req.Group, req.MemberID, req.ProtocolType, req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = group, member, "consumer", 30000, 30000
	for _, name := range protocols {
		req.Protocols = append(req.Protocols, kmsg.JoinGroupRequestProtocol{Name: name, Metadata: []byte{0, 1, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}})
	}
	return req
}

func TestClassicGroup(t *testing.T) {
	p := newPair(t)
	awaitGroups(p)
	for _, v := range versions(0, 9) {
		group := fmt.Sprintf("cg-%d", v)
		p.same("no group", constant(joinRequest(v, "", "", "range")))
		p.same("no protocols", constant(joinRequest(v, group, "")))
		p.same("unknown member", constant(joinRequest(v, group, "nobody", "range")))
		learnMember := func(s *side, resp kmsg.Response) {
			if r, ok := resp.(*kmsg.JoinGroupResponse); ok {
				s.members["one"] = r.MemberID
			}
		}
		for _, s := range p.sides() {
			s.members["one"] = ""
		}
		p.same("join", constant(joinRequest(v, group, "", "range", "roundrobin")), learnMember)
		if v >= 4 {
			p.same("join with the id", func(s *side) kmsg.Request { return joinRequest(v, group, s.members["one"], "range", "roundrobin") }, learnMember)
		}
		p.same("other protocol", constant(joinRequest(v, group, "", "sticky")))
		p.same("other type", constant(func() *kmsg.JoinGroupRequest {
			r := joinRequest(v, group, "", "range")
			r.ProtocolType = "connect"
			return r
		}()))
		describeGroup(p, group)
		syncAndBeat(p, min(v, 5), group)
		describeGroup(p, group)
		for _, lv := range versions(0, 5) {
			req := wire.At(kmsg.NewPtrListGroupsRequest(), lv)
			p.same("list", constant(req), onlyGroup(group))
			req.StatesFilter, req.TypesFilter = []string{"Stable", "nonsense"}, []string{"classic"}
			p.same("list filtered", constant(req), onlyGroup(group))
		}
		for _, dv := range versions(0, 3) {
			req := wire.At(kmsg.NewPtrDeleteGroupsRequest(), dv)
			req.Groups = []string{group}
			p.same("delete a live one", constant(req))
		}
		p.same("leave", func(s *side) kmsg.Request {
			req := wire.At(kmsg.NewPtrLeaveGroupRequest(), min(v, 5))
			req.Group, req.MemberID = group, s.members["one"]
			req.Members = []kmsg.LeaveGroupRequestMember{{MemberID: s.members["one"]}, {MemberID: "nobody"}, {InstanceID: new("nobody")}}
			return req
		})
		describeGroup(p, group)
		p.same("leave again", func(s *side) kmsg.Request {
			req := wire.At(kmsg.NewPtrLeaveGroupRequest(), min(v, 5))
			req.Group, req.MemberID = group, s.members["one"]
			req.Members = []kmsg.LeaveGroupRequestMember{{MemberID: s.members["one"]}}
			return req
		})
	}
	describeGroup(p, "cg-never")
}

// onlyGroup leaves the groups of other tests out of a list.
func onlyGroup(group string) learn {
	return func(_ *side, resp kmsg.Response) {
		r, _ := resp.(*kmsg.ListGroupsResponse)
		kept := []kmsg.ListGroupsResponseGroup{}
		for _, g := range r.Groups {
			if g.Group == group {
				kept = append(kept, g)
			}
		}
		r.Groups = kept
	}
}

func describeGroup(p *pair, group string) {
	p.t.Helper()
	for _, v := range versions(0, 6) {
		req := wire.At(kmsg.NewPtrDescribeGroupsRequest(), v)
		req.Groups = []string{group, "", group}
		req.IncludeAuthorizedOperations = v >= 4
		p.same("describe "+group, constant(req))
	}
}

// syncAndBeat sends what a member sends between its joins, right and wrong.
func syncAndBeat(p *pair, v int16, group string) {
	p.t.Helper()
	sync := func(what string, generation int32, edit func(s *side, r *kmsg.SyncGroupRequest)) {
		p.t.Helper()
		p.same("sync: "+what, func(s *side) kmsg.Request {
			req := wire.At(kmsg.NewPtrSyncGroupRequest(), v)
			req.Group, req.Generation, req.MemberID = group, generation, s.members["one"]
			req.ProtocolType, req.Protocol = new("consumer"), new("range")
			req.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: s.members["one"], MemberAssignment: []byte("mine")}}
			edit(s, req)
			return req
		})
	}
	beat := func(what string, generation int32, edit func(r *kmsg.HeartbeatRequest)) {
		p.t.Helper()
		p.same("heartbeat: "+what, func(s *side) kmsg.Request {
			req := wire.At(kmsg.NewPtrHeartbeatRequest(), min(v, 4))
			req.Group, req.Generation, req.MemberID = group, generation, s.members["one"]
			edit(req)
			return req
		})
	}
	for _, when := range []string{"before", "after"} {
		beat(when, 1, func(*kmsg.HeartbeatRequest) {})
		beat("generation", 5, func(*kmsg.HeartbeatRequest) {})
		beat("negative generation", -1, func(*kmsg.HeartbeatRequest) {})
		beat("member", 1, func(r *kmsg.HeartbeatRequest) { r.MemberID = "nobody" })
		beat("no member", 1, func(r *kmsg.HeartbeatRequest) { r.MemberID = "" })
		beat("no group", 1, func(r *kmsg.HeartbeatRequest) { r.Group = "" })
		beat("unknown group", 1, func(r *kmsg.HeartbeatRequest) { r.Group = "cg-never" })
		if v >= 3 {
			beat("instance", 1, func(r *kmsg.HeartbeatRequest) { r.InstanceID = new("nobody") })
		}
		sync("generation", 5, func(*side, *kmsg.SyncGroupRequest) {})
		sync("member", 1, func(_ *side, r *kmsg.SyncGroupRequest) { r.MemberID = "nobody" })
		sync("no group", 1, func(_ *side, r *kmsg.SyncGroupRequest) { r.Group = "" })
		sync("unknown group", 1, func(_ *side, r *kmsg.SyncGroupRequest) { r.Group = "cg-never" })
		if v >= 5 {
			sync("protocol", 1, func(_ *side, r *kmsg.SyncGroupRequest) { r.Protocol = new("sticky") })
			sync("type", 1, func(_ *side, r *kmsg.SyncGroupRequest) { r.ProtocolType = new("connect") })
			sync("null type", 1, func(_ *side, r *kmsg.SyncGroupRequest) { r.ProtocolType, r.Protocol = nil, nil })
		}
		sync(when, 1, func(*side, *kmsg.SyncGroupRequest) {})
	}
}
