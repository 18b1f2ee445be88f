package api

import (
	"context"
	"log/slog"

	"gregor/groupcoord"
	"gregor/protocol"
)

// Deps are what the handlers of a node work with. ControllerHandle is nil on a node that is no controller, Groups
// and what else only brokers have on one that is no broker.
type Deps struct {
	Node        Node
	Replicas    Replicas
	LogDirs     LogDirs
	ProducerIDs ProducerIDs
	Controllers Controllers
	Groups      *groupcoord.Coordinator
	// ControllerHandle answers on controller listeners for the keys that ControllerKeys lists.
	ControllerHandle Handler
	ControllerKeys   []int16
	// Peer exchanges raft messages with other controllers, under Gregor's own API.
	Peer   func(ctx context.Context, msg []byte) ([]byte, error)
	Broker bool
	Logger *slog.Logger
}

// NewTable lists what the node serves.
func NewTable(d Deps) *Table {
	var t *Table
	versions := &apiVersions{node: d.Node, table: func() *Table { return t }}
	v := on(protocol.KeyApiVersions, versions.onBroker)
	entries := []Entry{}
	if d.Broker {
		entries = append(entries, brokerEntries(d)...)
	}
	if d.ControllerHandle != nil {
		v.Controller = versions.onController
		entries = addController(entries, d)
		entries = append(entries, raftMessages(d.Peer))
	}
	t = newTable(append(entries, v))
	return t
}

// addController puts the controller's handler into the entries of its keys.
func addController(entries []Entry, d Deps) []Entry {
	for _, key := range d.ControllerKeys {
		found := false
		for i := range entries {
			if entries[i].Key == key {
				entries[i].Controller, found = d.ControllerHandle, true
			}
		}
		if !found {
			e := entry(key)
			e.Controller, e.Blocks = d.ControllerHandle, true
			entries = append(entries, e)
		}
	}
	return entries
}

// brokerEntries lists what brokers serve to clients and to each other.
func brokerEntries(d Deps) []Entry {
	cfg := d.Node.Config()
	p := newProduce(d.Node.Images, d.Replicas, d.Logger)
	f := newFetch(d.Node.Images, d.Replicas, int(cfg.Sockets.FetchSessionSlots), cfg.Sockets.FetchMaxBytes, d.Logger)
	g := &groups{coordinator: d.Groups, node: d.Node}
	fwd := &forwarded{controllers: d.Controllers}
	entries := []Entry{
		raw(protocol.KeyProduce, p.serve),
		raw(protocol.KeyFetch, f.serve),
		on(protocol.KeyListOffsets, (&listOffsets{images: d.Node.Images, parts: d.Replicas, log: d.Logger}).handle),
		on(protocol.KeyMetadata, (&metadataAPI{node: d.Node, controllers: d.Controllers}).handle),
		starting(protocol.KeyOffsetCommit, g.commit),
		starting(protocol.KeyOffsetFetch, g.fetch),
		on(protocol.KeyFindCoordinator, (&findCoordinator{node: d.Node, controllers: d.Controllers, partition: groupcoord.PartitionFor}).handle),
		parking(protocol.KeyJoinGroup, g.join),
		starting(protocol.KeyHeartbeat, g.heartbeat),
		starting(protocol.KeyLeaveGroup, g.leave),
		parking(protocol.KeySyncGroup, g.sync),
		waiting(protocol.KeyDescribeGroups, g.describe),
		waiting(protocol.KeyListGroups, g.list),
		waiting(protocol.KeyDeleteGroups, g.remove),
		waiting(protocol.KeyOffsetDelete, g.deleteOffsets),
		starting(protocol.KeyConsumerGroupHeartbeat, g.consumerHeartbeat),
		waiting(protocol.KeyConsumerGroupDescribe, g.consumerDescribe),
		on(protocol.KeyDeleteRecords, (&deleteRecords{images: d.Node.Images, parts: d.Replicas, log: d.Logger}).handle),
		waiting(protocol.KeyInitProducerId, (&initProducerID{ids: d.ProducerIDs, log: d.Logger}).handle),
		on(protocol.KeyOffsetForLeaderEpoch, (&offsetForLeaderEpoch{images: d.Node.Images, parts: d.Replicas, log: d.Logger}).handle),
		on(protocol.KeyDescribeConfigs, (&describeConfigs{node: d.Node}).handle),
		waiting(protocol.KeyAlterConfigs, (&alterConfigs{node: d.Node, controllers: d.Controllers}).legacy),
		waiting(protocol.KeyIncrementalAlterConfigs, (&alterConfigs{node: d.Node, controllers: d.Controllers}).incremental),
		on(protocol.KeyListConfigResources, (&listConfigResources{node: d.Node}).handle),
		on(protocol.KeyDescribeLogDirs, (&describeLogDirs{dirs: d.LogDirs, log: d.Logger}).handle),
		on(protocol.KeyDescribeCluster, (&describeCluster{node: d.Node}).handle),
		on(protocol.KeyDescribeProducers, (&describeProducers{images: d.Node.Images, parts: d.Replicas, log: d.Logger}).handle),
		on(protocol.KeyDescribeTopicPartitions, (&describeTopicPartitions{node: d.Node}).handle),
	}
	for _, key := range forwardedKeys {
		entries = append(entries, waiting(key, fwd.handle))
	}
	return entries
}

// forwardedKeys are answered by the active controller.
var forwardedKeys = []int16{
	protocol.KeyCreateTopics, protocol.KeyDeleteTopics, protocol.KeyCreatePartitions, protocol.KeyElectLeaders,
	protocol.KeyAlterPartitionReassignments, protocol.KeyListPartitionReassignments, protocol.KeyDescribeQuorum,
	protocol.KeyUpdateFeatures, protocol.KeyUnregisterBroker,
}
