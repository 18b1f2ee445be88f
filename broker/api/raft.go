package api

import (
	"context"

	"gregor/broker/network"
	"gregor/protocol"
)

// raftMessages carries raft messages between controllers, under Gregor's own API that ApiVersions never lists. A
// message that the quorum refuses closes the connection: its sender is no voter, or not the one it says.
func raftMessages(peer func(ctx context.Context, msg []byte) ([]byte, error)) Entry {
	e := entry(protocol.RaftMessageKey)
	e.RawController = func(_ context.Context, r *network.Request) {
		r.Block(func(ctx context.Context) {
			answer, err := peer(ctx, r.Body)
			if err != nil {
				r.Fail(err)
				return
			}
			r.Reply(network.BytesResponse(protocol.AppendOpaqueResponse(nil, &r.Header, answer)))
		})
	}
	return e
}
