package broker

import (
	"gregor/groupcoord"
	"gregor/kraft/image"
)

// elections tells the group coordinator which partitions of its topic this broker leads. It is a publisher that runs
// after the replicas': by then the partitions are led, or not.
type elections struct {
	nodeID int32
	groups *groupcoord.Coordinator
}

// Name implements image.Publisher.
func (e *elections) Name() string { return "group coordinator elections" }

// Publish implements image.Publisher.
func (e *elections) Publish(delta *image.Delta, img *image.Image, m image.Manifest) {
	if topics := delta.Topics(); topics != nil {
		local := topics.LocalChanges(e.nodeID)
		for _, d := range local.Deletes {
			if d.Topic == consumerOffsets {
				e.groups.Resign(d.Partition, -1)
			}
		}
		for _, r := range local.Leaders {
			if r.Topic == consumerOffsets && r.NewLeaderEpoch {
				e.groups.Elect(r.Partition, r.State.LeaderEpoch)
			}
		}
		for _, r := range local.Followers {
			if r.Topic == consumerOffsets && r.NewLeaderEpoch {
				e.groups.Resign(r.Partition, r.State.LeaderEpoch)
			}
		}
	}
	e.groups.Publish(delta, img, m)
}
