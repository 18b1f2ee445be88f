package groups

import (
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/compat-tests/wire"
)

// classic plays a request of the classic protocol.
func (d *driver) classic(g *group) *pending {
	m := d.pick(g)
	n := d.rng.IntN(100)
	switch {
	case m == nil || n < 15 && len(g.members) < 5:
		return d.join(g, d.newMember(g))
	case n < 50 && m.epoch == 0 || n < 30:
		return d.join(g, m)
	case n < 68:
		return d.sync(g, m)
	case n < 88:
		return d.heartbeat(g, m)
	}
	return d.leave(g, m)
}

func (d *driver) newMember(g *group) *member {
	d.members++
	m := &member{name: fmt.Sprintf("member%d!", d.members), group: g.name}
	if d.chance(30) {
		m.instance = new(oneOf(d, "i1", "i2"))
	}
	m.protocols = oneOf(d, []string{"range"}, []string{"range", "roundrobin"}, []string{"roundrobin", "range"}, []string{"range"}, []string{"sticky", "range"})
	if d.chance(4) {
		m.protocols = []string{"other"}
	}
	g.members = append(g.members, m)
	return m
}

// subscription is what a classic consumer says in its join.
func subscription(topics ...string) []byte {
	return (&kmsg.ConsumerMemberMetadata{Version: 1, Topics: topics}).AppendTo(nil)
}

func (d *driver) join(g *group, m *member) *pending {
	version := oneOf[int16](d, 9, 9, 9, 7, 6, 5)
	topics := []string{"t"}
	if g.classic > 60 {
		topics = oneOf(d, []string{"t"}, []string{"t"}, []string{"t", "u"})
	}
	kind, bad := "consumer", ""
	if d.chance(4) {
		kind = "connect"
	}
	if d.chance(5) {
		bad = oneOf(d, "nobody", m.name)
	}
	if d.chance(3) {
		m.protocols = nil
	}
	protocols := slices.Clone(m.protocols)
	what := fmt.Sprintf("join %s instance %s v%d type %s %v %v bad %q", m.name, text(m.instance), version, kind, protocols, topics, bad)
	if len(protocols) == 0 {
		m.protocols = []string{"range"}
	}
	return d.both(what, g, m, func(s *side) kmsg.Request {
		req := wire.At(kmsg.NewPtrJoinGroupRequest(), version)
		req.Group, req.InstanceID, req.ProtocolType = g.name, m.instance, kind
		req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = d.sessionMillis, d.rebalanceMillis
		if id := s.id(m.name); id != m.name {
			req.MemberID = id
		}
		if bad == "nobody" {
			req.MemberID = bad
		}
		for _, p := range protocols {
			req.Protocols = append(req.Protocols, kmsg.JoinGroupRequestProtocol{Name: p, Metadata: subscription(topics...)})
		}
		return req
	})
}

// generation is the member's, or at times another.
func (d *driver) generation(m *member) int32 {
	if d.chance(8) {
		return oneOf(d, m.epoch+1, m.epoch-1, -1, 0)
	}
	return m.epoch
}

func (d *driver) sync(g *group, m *member) *pending {
	generation, version := d.generation(m), oneOf[int16](d, 5, 5, 3, 4)
	protocol, instance := new("range"), m.instance
	if d.chance(3) {
		protocol = new("other")
	}
	if d.chance(4) {
		instance = new("i1")
	}
	what := fmt.Sprintf("sync %s generation %d v%d leader %v %s", m.name, generation, version, m.leader, text(instance))
	return d.both(what, g, m, func(s *side) kmsg.Request {
		req := wire.At(kmsg.NewPtrSyncGroupRequest(), version)
		req.Group, req.MemberID, req.Generation, req.InstanceID = g.name, s.id(m.name), generation, instance
		if d.steps%3 != 0 {
			req.ProtocolType, req.Protocol = new("consumer"), protocol
		}
		for i, name := range m.list {
			a := kmsg.ConsumerMemberAssignment{Version: 1}
			at := kmsg.NewConsumerMemberAssignmentTopic()
			at.Topic = "t"
			for p := int32(i); p < randomTopics["t"]; p += int32(len(m.list)) {
				at.Partitions = append(at.Partitions, p)
			}
			a.Topics = append(a.Topics, at)
			req.GroupAssignment = append(req.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{MemberID: s.id(name), MemberAssignment: a.AppendTo(nil)})
		}
		return req
	})
}

func (d *driver) heartbeat(g *group, m *member) *pending {
	generation, version := d.generation(m), oneOf[int16](d, 4, 3, 0)
	name, instance := m.name, m.instance
	if d.chance(5) {
		name = oneOf(d, "", "nobody")
	}
	if d.chance(5) {
		instance = new(oneOf(d, "i1", "i3"))
	}
	return d.both(fmt.Sprintf("heartbeat %s generation %d %s v%d", name, generation, text(instance), version), g, nil, func(s *side) kmsg.Request {
		req := wire.At(kmsg.NewPtrHeartbeatRequest(), version)
		req.Group, req.MemberID, req.Generation, req.InstanceID = g.name, s.id(name), generation, instance
		return req
	})
}

func (d *driver) leave(g *group, m *member) *pending {
	type one struct {
		name     string
		instance *string
	}
	leaving := []one{{m.name, nil}}
	if m.instance != nil {
		leaving[0].instance = oneOf(d, m.instance, nil)
	}
	if d.chance(20) {
		leaving = append(leaving, one{oneOf(d, "nobody", "", m.name), oneOf(d, nil, new("i1"), new("i3"))})
	}
	what := "leave"
	for _, l := range leaving {
		what += fmt.Sprintf(" %q/%s", l.name, text(l.instance))
	}
	version := oneOf[int16](d, 5, 3)
	d.forget(g, m)
	return d.both(what, g, nil, func(s *side) kmsg.Request {
		req := wire.At(kmsg.NewPtrLeaveGroupRequest(), version)
		req.Group = g.name
		for _, l := range leaving {
			req.Members = append(req.Members, kmsg.LeaveGroupRequestMember{MemberID: s.id(l.name), InstanceID: l.instance, Reason: new("why not")})
		}
		return req
	})
}

// query plays a request that changes no member.
func (d *driver) query(g *group) *pending {
	switch d.rng.IntN(8) {
	case 0, 1:
		return d.both("describe", g, nil, func(*side) kmsg.Request {
			req := wire.At(kmsg.NewPtrDescribeGroupsRequest(), 6)
			req.Groups = []string{g.name, "never"}
			return req
		})
	case 2, 3, 4:
		return d.both("describe as a consumer group", g, nil, func(*side) kmsg.Request {
			req := wire.At(kmsg.NewPtrConsumerGroupDescribeRequest(), 1)
			req.Groups = []string{g.name, "never"}
			return req
		})
	case 5:
		states := oneOf(d, nil, []string{"Stable"}, []string{"Empty", "Reconciling"}, []string{"PreparingRebalance"}, []string{"nonsense"})
		kinds := oneOf(d, nil, []string{"classic"}, []string{"consumer"})
		return d.both(fmt.Sprintf("list %v %v", states, kinds), g, nil, func(*side) kmsg.Request {
			req := wire.At(kmsg.NewPtrListGroupsRequest(), 5)
			req.StatesFilter, req.TypesFilter = states, kinds
			return req
		})
	case 6:
		return d.both("delete", g, nil, func(*side) kmsg.Request {
			req := wire.At(kmsg.NewPtrDeleteGroupsRequest(), 2)
			req.Groups = []string{g.name, "never"}
			return req
		})
	}
	partitions := []int32{0, int32(d.rng.IntN(5))}
	topic := oneOf(d, "t", "u", "missing")
	return d.both(fmt.Sprintf("delete offsets of %s %v", topic, partitions), g, nil, func(*side) kmsg.Request {
		req := kmsg.NewPtrOffsetDeleteRequest()
		req.Group = g.name
		t := kmsg.OffsetDeleteRequestTopic{Topic: topic}
		for _, p := range partitions {
			t.Partitions = append(t.Partitions, kmsg.OffsetDeleteRequestTopicPartition{Partition: p})
		}
		req.Topics = append(req.Topics, t)
		return req
	})
}

// offsets plays a commit or a fetch of offsets.
func (d *driver) offsets(g *group) *pending {
	name, epoch := "", int32(-1)
	var instance *string
	if m := d.pick(g); m != nil && d.chance(75) {
		name, epoch, instance = m.name, d.generation(m), m.instance
	}
	if d.chance(5) {
		name = "nobody"
	}
	topic := oneOf(d, "t", "t", "u", "v", "missing")
	partitions := []int32{int32(d.rng.IntN(6)), 0}
	if partitions[0] == 0 {
		partitions = partitions[:1]
	}
	if d.chance(55) {
		version, offset := oneOf[int16](d, 9, 8, 7, 10), int64(d.rng.IntN(100))
		return d.both(fmt.Sprintf("commit %s-%v=%d %s %s epoch %d v%d", topic, partitions, offset, name, text(instance), epoch, version), g, nil, func(s *side) kmsg.Request {
			req := wire.At(kmsg.NewPtrOffsetCommitRequest(), version)
			req.Group, req.MemberID, req.Generation, req.InstanceID = g.name, s.id(name), epoch, instance
			t := kmsg.OffsetCommitRequestTopic{Topic: topic, TopicID: d.topics[topic]}
			for _, p := range partitions {
				q := kmsg.NewOffsetCommitRequestTopicPartition()
				q.Partition, q.Offset, q.LeaderEpoch, q.Metadata = p, offset, 1, new("note")
				t.Partitions = append(t.Partitions, q)
			}
			req.Topics = append(req.Topics, t)
			return req
		})
	}
	all, stable, version := d.chance(40), d.chance(30), oneOf[int16](d, 9, 8, 10)
	if version == 8 {
		name, epoch = "", -1
	}
	return d.both(fmt.Sprintf("fetch offsets of %s, all %v, %s epoch %d v%d", topic, all, name, epoch, version), g, nil, func(s *side) kmsg.Request {
		req := wire.At(kmsg.NewPtrOffsetFetchRequest(), version)
		req.RequireStable = stable
		one := kmsg.NewOffsetFetchRequestGroup()
		one.Group, one.MemberEpoch = g.name, epoch
		if name != "" {
			one.MemberID = new(s.id(name))
		}
		if !all {
			t := kmsg.NewOffsetFetchRequestGroupTopic()
			t.Topic, t.TopicID, t.Partitions = topic, d.topics[topic], partitions
			one.Topics = append(one.Topics, t)
		}
		req.Groups = append(req.Groups, one)
		return req
	})
}

// heartbeat848 plays a heartbeat of the consumer protocol.
func (d *driver) heartbeat848(g *group) *pending {
	m := d.pick(g)
	if m == nil || d.chance(18) && len(g.members) < 6 {
		m = d.newMember(g)
		m.epoch = 0
	}
	epoch := m.epoch
	if m.epoch > 0 && d.chance(12) {
		epoch = -1
		if m.instance != nil {
			epoch = oneOf[int32](d, -1, -2)
		}
	} else if d.chance(6) {
		epoch = oneOf(d, m.epoch+1, m.epoch-1, 0, -2, -3)
	}
	full := epoch == 0 || d.chance(15)
	var topics []string
	if full {
		topics = oneOf(d, []string{"t"}, []string{"t", "u"}, []string{"t", "u", "v"}, []string{"v"}, []string{"missing", "t"})
		if d.chance(3) {
			topics = nil
		}
	}
	var pattern *string
	if full && g.patterns && d.chance(70) {
		pattern = new(oneOf(d, "t", "t|u", "[tuv]", "u.*", "nothing", "(?i)V", "", "("))
		topics = oneOf(d, topics, nil, []string{})
	}
	var assignor *string
	if full && g.assignor != "" {
		assignor = &g.assignor
	}
	if full && d.chance(4) {
		assignor = new("none")
	}
	owned := d.chance(60) && epoch != 0
	what := fmt.Sprintf("heartbeat of %s instance %s epoch %d full %v %v pattern %s assignor %s owned %v", m.name, text(m.instance), epoch, full, topics, text(pattern), text(assignor), owned)
	return d.both(what, g, m, func(s *side) kmsg.Request {
		req := wire.At(kmsg.NewPtrConsumerGroupHeartbeatRequest(), 1)
		req.Group, req.MemberID, req.MemberEpoch, req.RebalanceTimeoutMillis = g.name, s.id(m.name), epoch, -1
		req.ServerAssignor, req.InstanceID = assignor, nil
		if full || epoch < 0 {
			req.InstanceID = m.instance
		}
		if full {
			req.SubscribedTopicNames, req.SubscribedTopicRegex, req.RebalanceTimeoutMillis = topics, pattern, d.rebalanceMillis
			req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		}
		if owned {
			req.Topics = append([]kmsg.ConsumerGroupHeartbeatRequestTopic{}, m.assigned...)
		}
		return req
	})
}

// text shows what may be null.
func text(s *string) string {
	if s == nil {
		return "-"
	}
	return *s
}
