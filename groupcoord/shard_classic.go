package groupcoord

import (
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/groupcoord/classic"
	"gregor/groupcoord/javaorder"
	"gregor/groupcoord/schema"
)

// describeErrorVersion is the first DescribeGroups that says why a group is
// dead (KIP-1043).
const describeErrorVersion = 6

// join handles JoinGroup. The group is made for a member that has no id yet.
func (s *shard) join(caller Caller, req *kmsg.JoinGroupRequest, reply func(*kmsg.JoinGroupResponse)) (effect, error) {
	g, exists := s.groups.Get(req.Group)
	if c, ok := g.(consumerGroup); ok && !g.isEmpty() {
		if !s.migration.Upgrade && !s.migration.Downgrade {
			return effect{}, kerr.InconsistentGroupProtocol
		}
		return s.consumer.ClassicJoin(c.Group, caller.consumer(), req, reply)
	}
	var taken []schema.Record
	if exists && g.kind() != TypeClassic {
		if g.kind() == TypeShare || !g.isEmpty() {
			reply(&kmsg.JoinGroupResponse{Generation: -1, ErrorCode: kerr.InconsistentGroupProtocol.Code})
			return effect{}, nil
		}
		// An empty group of another protocol gives its id away.
		taken = s.deleteGroup(g)
		s.groups.Delete(req.Group)
		exists = false
	}
	if !exists && req.MemberID != "" {
		reply(&kmsg.JoinGroupResponse{Generation: -1, MemberID: req.MemberID, ErrorCode: kerr.UnknownMemberID.Code})
		return effect{}, nil
	}
	if !exists {
		s.newSimple(req.Group)
	}
	e := s.classic.Join(s.Classic(req.Group), !exists, caller.classic(), req, reply)
	e.Records = append(taken, e.Records...)
	return e, nil
}

// sync handles SyncGroup.
func (s *shard) sync(req *kmsg.SyncGroupRequest, reply func(*kmsg.SyncGroupResponse)) (effect, error) {
	if g := s.Consumer(req.Group); g != nil && !g.IsEmpty() {
		return s.consumer.ClassicSync(g, req, reply)
	}
	g := s.Classic(req.Group)
	if g == nil || g.IsEmpty() {
		reply(&kmsg.SyncGroupResponse{ErrorCode: kerr.UnknownMemberID.Code})
		return effect{}, nil
	}
	return s.classic.Sync(g, req, reply), nil
}

// heartbeat handles Heartbeat.
func (s *shard) heartbeat(req *kmsg.HeartbeatRequest) (struct{}, effect, error) {
	if g := s.Consumer(req.Group); g != nil {
		return struct{}{}, effect{}, s.consumer.ClassicHeartbeat(g, req)
	}
	g := s.Classic(req.Group)
	if g == nil {
		return struct{}{}, effect{}, kerr.UnknownMemberID
	}
	return struct{}{}, effect{}, s.classic.Heartbeat(g, req)
}

// leave handles LeaveGroup.
func (s *shard) leave(id string, members []kmsg.LeaveGroupRequestMember) ([]kmsg.LeaveGroupResponseMember, effect, error) {
	if g := s.Consumer(id); g != nil {
		return s.consumer.ClassicLeave(g, members)
	}
	g := s.Classic(id)
	if g == nil {
		return nil, effect{}, kerr.UnknownMemberID
	}
	out, e := s.classic.Leave(g, members)
	return out, e, nil
}

// list handles ListGroups: the committed groups in the states and of the types
// asked for, in Kafka's order; empty filters let all through.
func (s *shard) list(states map[string]bool, types map[GroupType]bool) ([]kmsg.ListGroupsResponseGroup, error) {
	var all []javaorder.Entry[group]
	for id, g := range s.groups.AllCommitted() {
		all = append(all, javaorder.Entry[group]{Hash: javaorder.String(id), Arrival: s.groups.Arrival(id), Value: g})
	}
	javaorder.Timeline(all, s.groups.Room())
	var out []kmsg.ListGroupsResponseGroup
	for _, e := range all {
		g := e.Value
		if len(types) > 0 && !types[g.kind()] {
			continue
		}
		listed := g.listed()
		if len(states) > 0 && !states[strings.ToLower(listed.GroupState)] {
			continue
		}
		out = append(out, listed)
	}
	return out, nil
}

// describe handles DescribeGroups, which knows classic groups only.
func (s *shard) describe(ids []string, version int16) ([]kmsg.DescribeGroupsResponseGroup, error) {
	out := make([]kmsg.DescribeGroupsResponseGroup, 0, len(ids))
	for _, id := range ids {
		g, ok := s.groups.GetCommitted(id)
		if c, isClassic := g.(classicGroup); ok && isClassic {
			out = append(out, c.Describe())
			continue
		}
		dead := kmsg.NewDescribeGroupsResponseGroup()
		dead.Group, dead.State = id, classic.Dead.String()
		if version >= describeErrorVersion {
			dead.ErrorCode = kerr.GroupIDNotFound.Code
			message := "Group " + id + " not found."
			if ok {
				message = "Group " + id + " is not a classic group."
			}
			dead.ErrorMessage = &message
		}
		out = append(out, dead)
	}
	return out, nil
}
