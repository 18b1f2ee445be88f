package groupcoord

import (
	"context"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/groupcoord/javaorder"
	"gregor/internal/coordinator"
)

// stepped is a request whose answer has two parts: the write of its step, and
// the answer itself, which the step or a later one gives. What is called is
// called by whoever has the turn of the group's partition.
type stepped[T any] struct {
	reply  func(T)
	answer T
	// answered and written say what has come, replied that the client has it.
	answered, written, replied bool
}

// give takes the answer; later ones are dropped.
func (s *stepped[T]) give(answer T) {
	if s.answered {
		return
	}
	s.answer, s.answered = answer, true
	s.settle()
}

// wrote takes note of the end of the write. When that failed and the step has not
// answered before, failed is the answer.
func (s *stepped[T]) wrote(err error, failed func(error) T) {
	s.written = true
	if err != nil && !s.answered {
		s.answer, s.answered = failed(err), true
	}
	s.settle()
}

func (s *stepped[T]) settle() {
	if s.answered && s.written && !s.replied {
		s.replied = true
		s.reply(s.answer)
	}
}

// JoinGroup handles JoinGroup v0 to v9. The answer comes when the rebalance ends.
func (c *Coordinator) JoinGroup(caller Caller, req *kmsg.JoinGroupRequest, reply func(*kmsg.JoinGroupResponse)) {
	failed := func(memberID string, code int16) *kmsg.JoinGroupResponse {
		return &kmsg.JoinGroupResponse{Generation: -1, MemberID: memberID, ErrorCode: code}
	}
	if req.Group == "" {
		reply(finishJoin(req, failed(req.MemberID, kerr.InvalidGroupID.Code)))
		return
	}
	if limits := c.opts.Config.Classic; req.SessionTimeoutMillis < limits.MinSessionTimeoutMillis || req.SessionTimeoutMillis > limits.MaxSessionTimeoutMillis {
		reply(finishJoin(req, failed(req.MemberID, kerr.InvalidSessionTimeout.Code)))
		return
	}
	w := &stepped[*kmsg.JoinGroupResponse]{reply: func(resp *kmsg.JoinGroupResponse) { reply(finishJoin(req, resp)) }}
	startWrite(c, req.Group, func(s *shard) (struct{}, effect, error) {
		e, err := s.join(caller, req, w.give)
		return struct{}{}, e, err
	}, func(_ struct{}, err error) {
		w.wrote(err, func(err error) *kmsg.JoinGroupResponse { return failed("", c.code("join group", err)) })
	})
}

// finishJoin gives the answer the request's version. Before version 7 the name
// of the protocol cannot be null.
func finishJoin(req *kmsg.JoinGroupRequest, resp *kmsg.JoinGroupResponse) *kmsg.JoinGroupResponse {
	out := *resp
	out.Version = req.Version
	if out.Protocol == nil && req.Version < 7 {
		empty := ""
		out.Protocol = &empty
	}
	if out.Members == nil {
		out.Members = []kmsg.JoinGroupResponseMember{}
	}
	return &out
}

// syncProtocolVersion is the first SyncGroup that has to name the protocol.
const syncProtocolVersion = 5

// SyncGroup handles SyncGroup v0 to v5. The answer comes with the leader's
// assignment.
func (c *Coordinator) SyncGroup(req *kmsg.SyncGroupRequest, reply func(*kmsg.SyncGroupResponse)) {
	w := &stepped[*kmsg.SyncGroupResponse]{reply: func(resp *kmsg.SyncGroupResponse) { reply(finishSync(req, resp)) }}
	if req.Version >= syncProtocolVersion && (req.ProtocolType == nil || req.Protocol == nil) {
		w.reply(&kmsg.SyncGroupResponse{ErrorCode: kerr.InconsistentGroupProtocol.Code})
		return
	}
	if req.Group == "" {
		w.reply(&kmsg.SyncGroupResponse{ErrorCode: kerr.InvalidGroupID.Code})
		return
	}
	startWrite(c, req.Group, func(s *shard) (struct{}, effect, error) {
		e, err := s.sync(req, w.give)
		return struct{}{}, e, err
	}, func(_ struct{}, err error) {
		w.wrote(err, func(err error) *kmsg.SyncGroupResponse {
			return &kmsg.SyncGroupResponse{ErrorCode: c.code("sync group", err)}
		})
	})
}

// finishSync gives the answer the request's version.
func finishSync(req *kmsg.SyncGroupRequest, resp *kmsg.SyncGroupResponse) *kmsg.SyncGroupResponse {
	out := *resp
	out.Version = req.Version
	if out.MemberAssignment == nil {
		out.MemberAssignment = []byte{}
	}
	return &out
}

// Heartbeat handles Heartbeat v0 to v4. While the group is loaded members are
// told that all is well: they would gain nothing from another answer.
func (c *Coordinator) Heartbeat(req *kmsg.HeartbeatRequest, reply func(*kmsg.HeartbeatResponse)) {
	resp := req.ResponseKind().(*kmsg.HeartbeatResponse)
	if req.Group == "" {
		resp.ErrorCode = kerr.InvalidGroupID.Code
		reply(resp)
		return
	}
	startWrite(c, req.Group, func(s *shard) (struct{}, effect, error) { return s.heartbeat(req) }, func(_ struct{}, err error) {
		if resp.ErrorCode = c.code("heartbeat", err); resp.ErrorCode == kerr.CoordinatorLoadInProgress.Code {
			resp.ErrorCode = 0
		}
		reply(resp)
	})
}

// LeaveGroup handles LeaveGroup v0 to v5. Before version 3 there is one member,
// and its error is that of the answer.
func (c *Coordinator) LeaveGroup(req *kmsg.LeaveGroupRequest, reply func(*kmsg.LeaveGroupResponse)) {
	const membersVersion = 3
	resp := req.ResponseKind().(*kmsg.LeaveGroupResponse)
	if req.Group == "" {
		resp.ErrorCode = kerr.InvalidGroupID.Code
		reply(resp)
		return
	}
	members := req.Members
	if req.Version < membersVersion {
		members = []kmsg.LeaveGroupRequestMember{{MemberID: req.MemberID}}
	}
	startWrite(c, req.Group, func(s *shard) ([]kmsg.LeaveGroupResponseMember, effect, error) { return s.leave(req.Group, members) },
		func(out []kmsg.LeaveGroupResponseMember, err error) {
			if code := c.code("leave group", err); code == kerr.UnknownMemberID.Code {
				// There is no such group, so none of them is a member.
				for _, m := range members {
					answer := kmsg.NewLeaveGroupResponseMember()
					answer.MemberID, answer.InstanceID, answer.ErrorCode = m.MemberID, m.InstanceID, code
					out = append(out, answer)
				}
			} else {
				resp.ErrorCode = code
			}
			if req.Version >= membersVersion {
				resp.Members = out
			} else if resp.ErrorCode == 0 && len(out) > 0 {
				resp.ErrorCode = out[0].ErrorCode
			}
			reply(resp)
		})
}

// ListGroups handles ListGroups v0 to v5: the groups of all partitions that this
// broker leads. One that is still being loaded fails the request, because its
// groups would be missing.
func (c *Coordinator) ListGroups(ctx context.Context, req *kmsg.ListGroupsRequest) *kmsg.ListGroupsResponse {
	states := make(map[string]bool, len(req.StatesFilter))
	for _, state := range req.StatesFilter {
		states[strings.TrimSpace(strings.ToLower(state))] = true
	}
	types := make(map[GroupType]bool, len(req.TypesFilter))
	for _, name := range req.TypesFilter {
		types[ParseGroupType(name)] = true
	}
	resp := req.ResponseKind().(*kmsg.ListGroupsResponse)
	resp.Groups = []kmsg.ListGroupsResponseGroup{}
	for _, p := range c.partitionsInOrder() {
		groups, err := coordinator.Read(ctx, c.rt, p, func(s *shard) ([]kmsg.ListGroupsResponseGroup, error) { return s.list(states, types) })
		switch code := c.code("list groups", err); code {
		case 0:
			resp.Groups = append(resp.Groups, groups...)
		case kerr.NotCoordinator.Code:
			// It was given up meanwhile; another broker lists its groups.
		default:
			resp.ErrorCode, resp.Groups = code, []kmsg.ListGroupsResponseGroup{}
			return resp
		}
	}
	return resp
}

// partitionsInOrder are the partitions that are coordinated here, in the order in
// which Kafka asks its own.
func (c *Coordinator) partitionsInOrder() []int32 {
	partitions := c.rt.Partitions()
	entries := make([]javaorder.Entry[int32], len(partitions))
	for i, p := range partitions {
		entries[i] = javaorder.Entry[int32]{Hash: javaorder.TopicPartition("__consumer_offsets", p), Value: p}
	}
	javaorder.ConcurrentHashMap(entries, len(entries))
	for i, e := range entries {
		partitions[i] = e.Value
	}
	return partitions
}

// DescribeGroups handles DescribeGroups v0 to v6 for groups that the caller may
// see. The groups come in the order of the request.
func (c *Coordinator) DescribeGroups(ctx context.Context, ids []string, version int16) []kmsg.DescribeGroupsResponseGroup {
	return perGroup(c, ids, func(ids []string) ([]kmsg.DescribeGroupsResponseGroup, error) {
		return read(ctx, c, ids[0], func(s *shard) ([]kmsg.DescribeGroupsResponseGroup, error) { return s.describe(ids, version) })
	}, func(id string, err error) kmsg.DescribeGroupsResponseGroup {
		out := kmsg.NewDescribeGroupsResponseGroup()
		out.Group, out.ErrorCode = id, c.code("describe groups", err)
		return out
	})
}

// DeleteGroups handles DeleteGroups v0 to v3 for groups that the caller may
// delete. The results come in the order of the request; an id that is there
// twice counts once.
func (c *Coordinator) DeleteGroups(ctx context.Context, ids []string) []kmsg.DeleteGroupsResponseGroup {
	ids = unique(ids)
	return perGroup(c, ids, func(ids []string) ([]kmsg.DeleteGroupsResponseGroup, error) {
		return write(ctx, c, ids[0], func(s *shard) ([]kmsg.DeleteGroupsResponseGroup, effect, error) { return s.deleteGroups(ids) })
	}, func(id string, err error) kmsg.DeleteGroupsResponseGroup {
		out := kmsg.NewDeleteGroupsResponseGroup()
		out.Group, out.ErrorCode = id, c.code("delete groups", err)
		return out
	})
}

// perGroup runs an operation once per partition with the groups of it, and puts
// the results into the order of ids. An operation that fails gives each of its
// groups the error.
func perGroup[T any](c *Coordinator, ids []string, run func(ids []string) ([]T, error), fail func(id string, err error) T) []T {
	out := make([]T, len(ids))
	byPartition := make(map[int32][]int)
	for i, id := range ids {
		p, err := c.partition(id)
		if err != nil {
			out[i] = fail(id, err)
			continue
		}
		byPartition[p] = append(byPartition[p], i)
	}
	partitions := make([]int32, 0, len(byPartition))
	for p := range byPartition {
		partitions = append(partitions, p)
	}
	slices.Sort(partitions)
	for _, p := range partitions {
		positions := byPartition[p]
		group := make([]string, len(positions))
		for i, pos := range positions {
			group[i] = ids[pos]
		}
		results, err := run(group)
		for i, pos := range positions {
			if err != nil {
				out[pos] = fail(ids[pos], err)
			} else {
				out[pos] = results[i]
			}
		}
	}
	return out
}

// unique returns ids without repetitions, in order.
func unique(ids []string) []string {
	out := make([]string, 0, len(ids))
	seen := make(map[string]struct{}, len(ids))
	for _, id := range ids {
		if _, dup := seen[id]; !dup {
			seen[id] = struct{}{}
			out = append(out, id)
		}
	}
	return out
}
