package api

import (
	"gregor/kraft/image"
	"gregor/protocol"
)

// Names of the topics that the broker keeps its own state in.
const (
	consumerOffsets  = "__consumer_offsets"
	transactionState = "__transaction_state"
	shareGroupState  = "__share_group_state"
)

// isInternal tells whether clients may not write to the topic.
func isInternal(topic string) bool {
	return topic == consumerOffsets || topic == transactionState || topic == shareGroupState
}

// addEndpoint adds the address of a leader to the endpoints of an answer, once (KIP-951).
func addEndpoint(out []protocol.NodeEndpoint, img *image.Image, listener string, id int32) []protocol.NodeEndpoint {
	for _, e := range out {
		if e.NodeID == id {
			return out
		}
	}
	at, ok := img.Cluster.AliveEndpoint(id, listener)
	if !ok {
		return out
	}
	return append(out, protocol.NodeEndpoint{NodeID: id, Host: at.Host, Port: int32(at.Port), Rack: img.Cluster.Broker(id).Rack})
}
