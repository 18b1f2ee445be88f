package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/broker/config"
	"gregor/kraft/image"
)

// Node is what handlers need to know of the node that they run on.
type Node struct {
	ID        int32
	ClusterID string
	// Config is the config in force; it changes with dynamic configs.
	Config func() *config.Config
	Images image.Source
	// KRaftVersion is the finalized kraft.version, which the quorum keeps and not the image.
	KRaftVersion func() int16
	// BrokerEpoch is the epoch of the broker's registration, -1 before it.
	BrokerEpoch func() int64
}

// Controllers sends requests to the active controller.
type Controllers interface {
	// Forward executes a client's request on the controller on the client's behalf (Envelope, KIP-590) and returns
	// its answer; the request's own kind of answer with an error when no controller could be reached in time.
	Forward(ctx context.Context, c *Call) kmsg.Response
	// AutoCreate has topics created that clients asked for, in the background, with the broker's defaults (internal
	// topics with theirs). Topics whose creation is under way are passed over.
	AutoCreate(topics []string)
}

// Bits of authorized-operations fields (KIP-430), by operation code. Without an authorizer all that a resource
// knows are allowed.
const (
	clusterOperations int32 = 1<<5 | 1<<7 | 1<<8 | 1<<9 | 1<<10 | 1<<11 | 1<<12
	topicOperations   int32 = 1<<3 | 1<<4 | 1<<5 | 1<<6 | 1<<7 | 1<<8 | 1<<10 | 1<<11
	groupOperations   int32 = 1<<3 | 1<<6 | 1<<8 | 1<<10 | 1<<11
	// notAsked is the value of the field when the request did not ask for it.
	notAsked int32 = -1 << 31
)

// operations is the value of an authorized-operations field.
func operations(asked bool, all int32) int32 {
	if asked {
		return all
	}
	return notAsked
}
