package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/groupcoord"
)

// The classic group protocol. The state machines are in groupcoord; these handlers hand requests over.
//
//	JoinGroup (key 11), versions 0 to 9: 1 rebalance timeout, 4 MEMBER_ID_REQUIRED (KIP-394), 5 static members
//	(KIP-345), 7 protocol type, 8 reason (KIP-800), 9 skip assignment (KIP-814). Waits for the rebalance.
//	SyncGroup (14), 0 to 5: 3 static members, 5 protocol type and name. Waits for the leader's assignment.
//	Heartbeat (12), 0 to 4: 3 static members.
//	LeaveGroup (13), 0 to 5: 3 several members (KIP-345), 5 reason.
//	ListGroups (16), 0 to 5: 4 states (KIP-518), 5 types (KIP-848).
//	DescribeGroups (15), 0 to 6: 3 authorized operations, 4 static members, 6 error message.
//	DeleteGroups (42), 0 to 3.
//	OffsetDelete (47), 0.
type groups struct {
	coordinator *groupcoord.Coordinator
	node        Node
}

// caller is where a member lives, as it is stored with it.
func caller(c *Call) groupcoord.Caller {
	return groupcoord.Caller{ClientID: c.Header.ClientID, ClientHost: "/" + c.Conn.RemoteAddr().Addr().Unmap().String()}
}

func (h *groups) join(c *Call, reply Reply) {
	req, _ := c.Request.(*kmsg.JoinGroupRequest)
	h.coordinator.JoinGroup(caller(c), req, func(resp *kmsg.JoinGroupResponse) { reply(resp) })
}

func (h *groups) sync(c *Call, reply Reply) {
	req, _ := c.Request.(*kmsg.SyncGroupRequest)
	h.coordinator.SyncGroup(req, func(resp *kmsg.SyncGroupResponse) { reply(resp) })
}

func (h *groups) heartbeat(c *Call, reply Reply) {
	req, _ := c.Request.(*kmsg.HeartbeatRequest)
	h.coordinator.Heartbeat(req, func(resp *kmsg.HeartbeatResponse) { reply(resp) })
}

func (h *groups) leave(c *Call, reply Reply) {
	req, _ := c.Request.(*kmsg.LeaveGroupRequest)
	h.coordinator.LeaveGroup(req, func(resp *kmsg.LeaveGroupResponse) { reply(resp) })
}

func (h *groups) list(ctx context.Context, c *Call) kmsg.Response {
	req, _ := c.Request.(*kmsg.ListGroupsRequest)
	return h.coordinator.ListGroups(ctx, req)
}

func (h *groups) describe(ctx context.Context, c *Call) kmsg.Response {
	req, _ := c.Request.(*kmsg.DescribeGroupsRequest)
	resp := kmsg.NewPtrDescribeGroupsResponse()
	resp.SetVersion(req.Version)
	resp.Groups = h.coordinator.DescribeGroups(ctx, req.Groups, req.Version)
	for i := range resp.Groups {
		resp.Groups[i].AuthorizedOperations = operations(req.IncludeAuthorizedOperations && resp.Groups[i].ErrorCode == 0, groupOperations)
	}
	return resp
}

func (h *groups) remove(ctx context.Context, c *Call) kmsg.Response {
	req, _ := c.Request.(*kmsg.DeleteGroupsRequest)
	resp := kmsg.NewPtrDeleteGroupsResponse()
	resp.SetVersion(req.Version)
	resp.Groups = h.coordinator.DeleteGroups(ctx, req.Groups)
	return resp
}
