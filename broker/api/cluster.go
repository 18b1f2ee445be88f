package api

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Kinds of endpoints in DescribeCluster (KIP-919).
const (
	endpointBrokers     int8 = 1
	endpointControllers int8 = 2
)

// describeCluster answers DescribeCluster (key 60), versions 0 to 2, on the broker's listeners.
//
//	1 endpoint type (KIP-919)     2 fenced brokers (KIP-1073)
//
// MISMATCHED_ENDPOINT_TYPE when controllers are asked for here; UNSUPPORTED_ENDPOINT_TYPE for other types.
type describeCluster struct{ node Node }

func (h *describeCluster) handle(_ context.Context, c *Call) kmsg.Response {
	req, _ := c.Request.(*kmsg.DescribeClusterRequest)
	resp := kmsg.NewPtrDescribeClusterResponse()
	resp.SetVersion(req.Version)
	resp.EndpointType = endpointBrokers
	if req.Version >= 1 && req.EndpointType != endpointBrokers {
		err := kerr.UnsupportedEndpointType
		text := fmt.Sprintf("Unsupported endpoint type %d", req.EndpointType)
		if req.EndpointType == endpointControllers {
			err, text = kerr.MismatchedEndpointType, "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
		}
		resp.ErrorCode, resp.ErrorMessage, resp.ControllerID = err.Code, &text, -1
		resp.ClusterAuthorizedOperations = notAsked
		return resp
	}
	img := h.node.Images.Image()
	resp.ClusterID = h.node.ClusterID
	resp.ControllerID = anyAliveBroker(img)
	resp.ClusterAuthorizedOperations = operations(req.IncludeClusterAuthorizedOperations, clusterOperations)
	for b := range img.Cluster.Brokers() {
		at, ok := b.Endpoint(c.Conn.ListenerName())
		if !ok || b.Fenced && (req.Version < 2 || !req.IncludeFencedBrokers) {
			continue
		}
		resp.Brokers = append(resp.Brokers, kmsg.DescribeClusterResponseBroker{NodeID: b.ID, Host: at.Host, Port: int32(at.Port), Rack: b.Rack, IsFenced: b.Fenced})
	}
	return resp
}

// forwarded answers what only the active controller can, by asking it: the answer passes through unchanged.
type forwarded struct{ controllers Controllers }

func (h *forwarded) handle(ctx context.Context, c *Call) kmsg.Response {
	return h.controllers.Forward(ctx, c)
}
