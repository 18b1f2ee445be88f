package controller

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/kraft/image"
	"gregor/kraft/metadata"
	"gregor/protocol"
)

// AssignReplicasToDirs decides AssignReplicasToDirs (73) v0: a broker says in which log directory a replica is
// (KIP-858). A directory that is offline costs the replica its leadership.
func (d *Decider) AssignReplicasToDirs(req *kmsg.AssignReplicasToDirsRequest) Result {
	resp := req.ResponseKind().(*kmsg.AssignReplicasToDirsResponse)
	res := Result{Response: resp}
	if !d.features.directoryAssignment() {
		resp.ErrorCode = codeUnsupportedVersion
		return res
	}
	if f := d.checkBrokerEpoch(req.BrokerID, req.BrokerEpoch); f != nil {
		resp.ErrorCode = f.Code
		return res
	}
	var offline []*image.Partition
	for _, dir := range req.Directories {
		outDir := kmsg.NewAssignReplicasToDirsResponseDirectory()
		outDir.ID = dir.ID
		online := d.hasOnlineDir(req.BrokerID, protocol.UUID(dir.ID))
		for _, t := range dir.Topics {
			outTopic := kmsg.NewAssignReplicasToDirsResponseDirectoryTopic()
			outTopic.TopicID = t.TopicID
			for _, p := range t.Partitions {
				outPart := kmsg.NewAssignReplicasToDirsResponseDirectoryTopicPartition()
				outPart.Partition = p.Partition
				record, part, code := d.assignDir(req.BrokerID, dir.ID, t.TopicID, p.Partition)
				outPart.ErrorCode = code
				if record != nil {
					res.Records = append(res.Records, record)
				}
				if part != nil && !online {
					offline = append(offline, part)
				}
				outTopic.Partitions = append(outTopic.Partitions, outPart)
			}
			outDir.Topics = append(outDir.Topics, outTopic)
		}
		resp.Directories = append(resp.Directories, outDir)
	}
	if len(offline) > 0 {
		res.Records = d.updatePartitions(res.Records,
			partitionUpdate{remove: req.BrokerID, add: noLeader, unclean: noLeader},
			func(p partition) bool { return slices.Contains(offline, p.Partition) })
	}
	return res
}

// assignDir decides one replica.
func (d *Decider) assignDir(
	broker int32, dir, topicID [16]byte, index int32,
) (metadata.Record, *image.Partition, int16) {
	topic := d.Image.Topics.ByID(protocol.UUID(topicID))
	if topic == nil {
		return nil, nil, codeUnknownTopicID
	}
	p := topic.Partition(index)
	switch {
	case p == nil:
		return nil, nil, codeUnknownTopicOrPartition
	case !p.HasReplica(broker):
		return nil, nil, codeNotLeaderOrFollower
	}
	c := d.newPartitionChange(partition{p, topic, index})
	c.dirs[broker] = dir
	if r := c.record(); r != nil {
		return r, p, codeNone
	}
	return nil, p, codeNone
}
