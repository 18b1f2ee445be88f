package controller

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/kraft/image"
	"gregor/kraft/metadata"
	"gregor/protocol"
)

// AlterPartition decides AlterPartition (56) v2-3: a leader asks for another ISR. v3 names the broker epoch of each
// member, so that a replica that restarted meanwhile does not slip in (KIP-903).
func (d *Decider) AlterPartition(req *kmsg.AlterPartitionRequest) Result {
	resp := req.ResponseKind().(*kmsg.AlterPartitionResponse)
	res := Result{Response: resp}
	if f := d.checkBrokerEpoch(req.BrokerID, req.BrokerEpoch); f != nil {
		resp.ErrorCode = f.Code
		return res
	}
	// A partition that the request names twice is decided against its state after the first change.
	for i := range req.Topics {
		t := &req.Topics[i]
		out := kmsg.NewAlterPartitionResponseTopic()
		out.TopidID = t.TopicID
		topic := d.Image.Topics.ByID(protocol.UUID(t.TopicID))
		for j := range t.Partitions {
			p := &t.Partitions[j]
			if topic == nil {
				out.Partitions = append(out.Partitions, isrRefused(p.Partition, codeUnknownTopicID))
				continue
			}
			record, answer := d.alterISR(req, topic, p)
			if record != nil {
				res.Records = append(res.Records, record)
			}
			out.Partitions = append(out.Partitions, answer)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return res
}

func isrRefused(partition int32, code int16) kmsg.AlterPartitionResponseTopicPartition {
	p := kmsg.NewAlterPartitionResponseTopicPartition()
	p.Partition, p.ErrorCode = partition, code
	return p
}

// isrMember is a member of a wanted ISR; epoch -1 skips the check of its broker epoch.
type isrMember struct {
	broker int32
	epoch  int64
}

func wantedISR(version int16, p *kmsg.AlterPartitionRequestTopicPartition) []isrMember {
	var out []isrMember
	if version < 3 {
		for _, b := range p.NewISR {
			out = append(out, isrMember{broker: b, epoch: -1})
		}
		return out
	}
	for _, b := range p.NewEpochISR {
		out = append(out, isrMember{broker: b.BrokerID, epoch: b.BrokerEpoch})
	}
	return out
}

// alterISR decides one partition.
func (d *Decider) alterISR(
	req *kmsg.AlterPartitionRequest, topic *image.Topic, p *kmsg.AlterPartitionRequestTopicPartition,
) (metadata.Record, kmsg.AlterPartitionResponseTopicPartition) {
	part := topic.Partition(p.Partition)
	if part == nil {
		return nil, isrRefused(p.Partition, codeUnknownTopicOrPartition)
	}
	wanted := wantedISR(req.Version, p)
	if code := d.checkISR(req.BrokerID, part, p, wanted); code != codeNone {
		return nil, isrRefused(p.Partition, code)
	}
	c := d.newPartitionChange(partition{part, topic, p.Partition})
	if d.uncleanElectionEnabled(topic.Name) {
		c.election = electUnclean
	}
	c.isr = make([]int32, len(wanted))
	for i, m := range wanted {
		c.isr[i] = m.broker
	}
	c.leaderRecovery, c.hasLeaderRecovery = p.LeaderRecoveryState, true
	r := c.record()
	if r != nil {
		part = merged(part, r)
		if r.Leader != req.BrokerID && r.Leader != noLeaderChange {
			// The new ISR completed a reassignment that removes this very leader: it must look at the metadata again.
			return r, isrRefused(p.Partition, codeNewLeaderElected)
		}
	}
	answer := kmsg.NewAlterPartitionResponseTopicPartition()
	answer.Partition, answer.LeaderID, answer.LeaderEpoch = p.Partition, part.Leader, part.LeaderEpoch
	answer.ISR = nonNil(part.ISR)
	answer.LeaderRecoveryState, answer.PartitionEpoch = part.LeaderRecoveryState, part.PartitionEpoch
	if r == nil {
		return nil, answer
	}
	return r, answer
}

// checkISR checks the caller's view of the partition and who shall be in the ISR.
func (d *Decider) checkISR(
	leader int32, part *image.Partition, p *kmsg.AlterPartitionRequestTopicPartition, wanted []isrMember,
) int16 {
	switch {
	case p.LeaderEpoch > part.LeaderEpoch, p.PartitionEpoch > part.PartitionEpoch:
		// The caller knows more than we do: we are probably not the active controller any more.
		return codeNotController
	case p.LeaderEpoch < part.LeaderEpoch:
		return codeFencedLeaderEpoch
	case leader != part.Leader:
		return codeInvalidRequest
	case p.PartitionEpoch < part.PartitionEpoch:
		return codeInvalidUpdateVersion
	}
	hasLeader := false
	for i, m := range wanted {
		hasLeader = hasLeader || m.broker == leader
		if !slices.Contains(part.Replicas, m.broker) ||
			slices.ContainsFunc(wanted[:i], func(x isrMember) bool { return x.broker == m.broker }) {
			return codeInvalidRequest
		}
	}
	switch {
	case !hasLeader:
		return codeInvalidRequest
	case p.LeaderRecoveryState == recovering && len(wanted) > 1:
		return codeInvalidRequest
	case p.LeaderRecoveryState == recovering && part.LeaderRecoveryState == recovered:
		return codeInvalidRequest
	case slices.ContainsFunc(wanted, d.ineligible):
		return codeIneligibleReplica
	}
	return codeNone
}

// ineligible says whether a broker may not be in any ISR.
func (d *Decider) ineligible(m isrMember) bool {
	b := d.Image.Cluster.Broker(m.broker)
	return b == nil || b.InControlledShutdown || b.Fenced || m.epoch != -1 && b.Epoch != m.epoch
}

// merged is a partition after a change of its leader or ISR.
func merged(p *image.Partition, r *metadata.PartitionChangeRecord) *image.Partition {
	next := *p
	next.PartitionEpoch++
	if r.ISR != nil {
		next.ISR = r.ISR
	}
	if r.Leader != noLeaderChange {
		next.Leader = r.Leader
		next.LeaderEpoch++
	}
	if r.LeaderRecoveryState != noRecoveryChange {
		next.LeaderRecoveryState = r.LeaderRecoveryState
	}
	return &next
}
