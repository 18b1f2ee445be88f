package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/kraft/image"
	"gregor/protocol"
)

// Coordinator types of FindCoordinator.
const (
	coordinatesGroups       int8 = 0
	coordinatesTransactions int8 = 1
	coordinatesShare        int8 = 2
)

// FindCoordinator (key 10), versions 0 to 6.
//
//	1 coordinator type     3 flexible     4 several keys at once (KIP-699)     5 KIP-890     6 share groups (KIP-932)
//
// The coordinator of a group leads the partition of __consumer_offsets that the group's name hashes to. While that
// topic does not exist it is created, and the answer is COORDINATOR_NOT_AVAILABLE, as when the partition has no
// leader. Types that this broker does not coordinate are INVALID_REQUEST.
type findCoordinator struct {
	node        Node
	controllers Controllers
	// partition maps a group to its partition of __consumer_offsets.
	partition func(group string, partitions int32) int32
}

func (h *findCoordinator) handle(_ context.Context, c *Call) kmsg.Response {
	req, _ := c.Request.(*kmsg.FindCoordinatorRequest)
	resp := kmsg.NewPtrFindCoordinatorResponse()
	resp.SetVersion(req.Version)
	img := h.node.Images.Image()
	if req.Version < 4 {
		x := h.find(img, c.Conn.ListenerName(), req, req.CoordinatorKey)
		resp.ErrorCode, resp.ErrorMessage = x.ErrorCode, x.ErrorMessage
		if resp.ErrorMessage == nil {
			none := protocol.ErrorMessage(0)
			resp.ErrorMessage = &none
		}
		resp.NodeID, resp.Host, resp.Port = x.NodeID, x.Host, x.Port
		return resp
	}
	for _, key := range req.CoordinatorKeys {
		x := h.find(img, c.Conn.ListenerName(), req, key)
		if x.ErrorMessage == nil {
			x.ErrorMessage = new(string) // empty, not null, as in Kafka
		}
		resp.Coordinators = append(resp.Coordinators, x)
	}
	return resp
}

func (h *findCoordinator) find(img *image.Image, listener string, req *kmsg.FindCoordinatorRequest, key string) kmsg.FindCoordinatorResponseCoordinator {
	out := kmsg.NewFindCoordinatorResponseCoordinator()
	out.Key, out.NodeID, out.Port = key, -1, -1
	at, id, err := h.locate(img, listener, req, key)
	if err != nil {
		out.ErrorCode, out.ErrorMessage = protocol.ErrorCode(err), message(err)
		return out
	}
	out.NodeID, out.Host, out.Port = id, at.Host, int32(at.Port)
	return out
}

func (h *findCoordinator) locate(img *image.Image, listener string, req *kmsg.FindCoordinatorRequest, key string) (image.Endpoint, int32, error) {
	switch {
	case req.CoordinatorType == coordinatesTransactions:
		return image.Endpoint{}, -1, protocol.NewError(kerr.InvalidRequest.Code, "This broker does not coordinate transactions.")
	case req.CoordinatorType == coordinatesShare && req.Version >= 6:
		return image.Endpoint{}, -1, protocol.NewError(kerr.InvalidRequest.Code, "This broker does not coordinate share groups.")
	case req.CoordinatorType != coordinatesGroups:
		return image.Endpoint{}, -1, kerr.InvalidRequest
	}
	topic := img.Topics.ByName(consumerOffsets)
	if topic == nil {
		h.controllers.AutoCreate([]string{consumerOffsets})
		return image.Endpoint{}, -1, kerr.CoordinatorNotAvailable
	}
	p := topic.Partition(h.partition(key, int32(topic.NumPartitions())))
	if p == nil || p.Leader < 0 {
		return image.Endpoint{}, -1, kerr.CoordinatorNotAvailable
	}
	at, ok := img.Cluster.AliveEndpoint(p.Leader, listener)
	if !ok {
		return image.Endpoint{}, -1, kerr.CoordinatorNotAvailable
	}
	return at, p.Leader, nil
}
