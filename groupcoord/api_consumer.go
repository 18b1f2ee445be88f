package groupcoord

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/groupcoord/consumer"
	"gregor/internal/coordinator"
	"gregor/protocol"
)

// ConsumerGroupHeartbeat handles ConsumerGroupHeartbeat v0 and v1. The caller may
// read the group and describe the topics that the request names; the feature
// group.version is on.
func (c *Coordinator) ConsumerGroupHeartbeat(caller Caller, req *kmsg.ConsumerGroupHeartbeatRequest, reply func(*kmsg.ConsumerGroupHeartbeatResponse)) {
	done := func(resp *kmsg.ConsumerGroupHeartbeatResponse, err error) {
		if err != nil {
			resp = req.ResponseKind().(*kmsg.ConsumerGroupHeartbeatResponse)
			resp.ErrorCode = c.code("consumer group heartbeat", err)
			if resp.ErrorCode != kerr.UnknownServerError.Code {
				message := protocol.ErrorMessageOf(coordinator.ClientError(err))
				resp.ErrorMessage = &message
			}
		}
		reply(resp)
	}
	if err := consumer.Validate(req, c.opts.Config.Consumer.Assignors); err != nil {
		done(nil, err)
		return
	}
	startWrite(c, req.Group, func(s *shard) (*kmsg.ConsumerGroupHeartbeatResponse, effect, error) {
		return s.consumerHeartbeat(caller, req)
	}, done)
}

// ConsumerGroupDescribe handles ConsumerGroupDescribe v0 and v1 for groups that
// the caller may describe, in the order of the request but for empty ids, which
// come first. The topics of the members have yet to be authorized.
func (c *Coordinator) ConsumerGroupDescribe(ctx context.Context, ids []string) []kmsg.ConsumerGroupDescribeResponseGroup {
	fail := func(id string, err error) kmsg.ConsumerGroupDescribeResponseGroup {
		out := kmsg.NewConsumerGroupDescribeResponseGroup()
		out.Group, out.ErrorCode = id, c.code("describe consumer groups", err)
		return out
	}
	out := make([]kmsg.ConsumerGroupDescribeResponseGroup, 0, len(ids))
	named := make([]string, 0, len(ids))
	for _, id := range ids {
		if id == "" {
			out = append(out, fail(id, kerr.InvalidGroupID))
		} else {
			named = append(named, id)
		}
	}
	return append(out, perGroup(c, named, func(ids []string) ([]kmsg.ConsumerGroupDescribeResponseGroup, error) {
		return read(ctx, c, ids[0], func(s *shard) ([]kmsg.ConsumerGroupDescribeResponseGroup, error) { return s.consumerDescribe(ids) })
	}, fail)...)
}
