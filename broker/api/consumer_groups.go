package api

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/kraft/metadata"
)

// consumerProtocol tells whether groups of the consumer protocol (KIP-848) are switched on: by the finalized feature
// group.version and by group.coordinator.rebalance.protocols.
func (h *groups) consumerProtocol() bool {
	return h.node.Images.Image().Features.Level(metadata.FeatureGroup) >= 1 &&
		slices.Contains(h.node.Config().Groups.Protocols, "consumer")
}

// consumerHeartbeat answers ConsumerGroupHeartbeat (key 68), versions 0 and 1.
//
//	1 regular expressions as subscriptions, member ids made by the client
//
// UNSUPPORTED_VERSION while the protocol is off; the rest is the coordinator's.
func (h *groups) consumerHeartbeat(c *Call, reply Reply) {
	req, _ := c.Request.(*kmsg.ConsumerGroupHeartbeatRequest)
	if h.consumerProtocol() {
		h.coordinator.ConsumerGroupHeartbeat(caller(c), req, func(resp *kmsg.ConsumerGroupHeartbeatResponse) { reply(resp) })
		return
	}
	resp := kmsg.NewPtrConsumerGroupHeartbeatResponse()
	resp.SetVersion(req.Version)
	resp.ErrorCode = kerr.UnsupportedVersion.Code // without a message, as Kafka
	reply(resp)
}

// consumerDescribe answers ConsumerGroupDescribe (key 69), versions 0 and 1.
//
//	1 member types
//
// UNSUPPORTED_VERSION per group while the protocol is off, GROUP_ID_NOT_FOUND for a group of another type.
func (h *groups) consumerDescribe(ctx context.Context, c *Call) kmsg.Response {
	req, _ := c.Request.(*kmsg.ConsumerGroupDescribeRequest)
	resp := kmsg.NewPtrConsumerGroupDescribeResponse()
	resp.SetVersion(req.Version)
	if !h.consumerProtocol() {
		for _, id := range req.Groups {
			g := kmsg.NewConsumerGroupDescribeResponseGroup()
			g.Group, g.ErrorCode = id, kerr.UnsupportedVersion.Code
			resp.Groups = append(resp.Groups, g)
		}
		return resp
	}
	resp.Groups = h.coordinator.ConsumerGroupDescribe(ctx, req.Groups)
	for i := range resp.Groups {
		resp.Groups[i].AuthorizedOperations = operations(req.IncludeAuthorizedOperations && resp.Groups[i].ErrorCode == 0, groupOperations)
	}
	return resp
}
