package controller

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/kraft/image"
	"gregor/kraft/metadata"
)

// AlterPartitionReassignments decides AlterPartitionReassignments (45) v0-1: starts, changes and cancels moves of
// replicas (KIP-455); v1 can forbid a change of the replication factor (KIP-860).
func (d *Decider) AlterPartitionReassignments(req *kmsg.AlterPartitionAssignmentsRequest) Result {
	resp := req.ResponseKind().(*kmsg.AlterPartitionAssignmentsResponse)
	resp.AllowReplicationFactorChange = req.AllowReplicationFactorChange
	res := Result{Response: resp, Atomic: true}
	if !d.req.allowedOnCluster(opAlter) {
		return Result{Response: Refusal(req, Unauthorized())}
	}
	for _, t := range req.Topics {
		out := kmsg.NewAlterPartitionAssignmentsResponseTopic()
		out.Topic = t.Topic
		for _, p := range t.Partitions {
			record, f := d.reassign(t.Topic, p, req.AllowReplicationFactorChange)
			if record != nil {
				res.Records = append(res.Records, record)
			}
			answer := kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
			answer.Partition = p.Partition
			answer.ErrorCode, answer.ErrorMessage = codeAndMessage(f)
			out.Partitions = append(out.Partitions, answer)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return res
}

func (d *Decider) reassign(
	name string, target kmsg.AlterPartitionAssignmentsRequestTopicPartition, allowFactorChange bool,
) (metadata.Record, *Fault) {
	topic := d.Image.Topics.ByName(name)
	if topic == nil {
		return nil, refuse(codeUnknownTopicOrPartition, "Unable to find a topic named %s.", name)
	}
	p := topic.Partition(target.Partition)
	if p == nil {
		return nil, refuse(codeUnknownTopicOrPartition, "Unable to find partition %s:%d.", name, target.Partition)
	}
	if target.Replicas == nil {
		return d.cancelReassignment(partition{p, topic, target.Partition})
	}
	return d.startReassignment(partition{p, topic, target.Partition}, target.Replicas, allowFactorChange)
}

// startReassignment moves a partition to other replicas: they are added, and when all are in sync the old ones go.
func (d *Decider) startReassignment(
	p partition, target []int32, allowFactorChange bool,
) (metadata.Record, *Fault) {
	if f := d.checkAssignment(target, -1); f != nil {
		return nil, f
	}
	if !allowFactorChange {
		factor := len(p.Replicas)
		if p.Reassigning() {
			all := dedup(append(slices.Clone(p.Replicas), p.AddingReplicas...))
			factor = len(without(all, p.RemovingReplicas...))
		}
		if factor != len(target) {
			return nil, refuse(codeInvalidReplicationFactor, "The replication factor is changed from %d to %d",
				factor, len(target))
		}
	}
	removing, adding := without(p.Replicas, target...), without(target, p.Replicas...)
	slices.Sort(removing)
	slices.Sort(adding)
	c := d.newPartitionChange(p)
	c.replicas = append(slices.Clone(target), removing...)
	if len(removing) > 0 {
		c.removing = removing
	}
	if len(adding) > 0 {
		c.adding = adding
	}
	if r := c.record(); r != nil {
		return r, nil
	}
	return nil, nil
}

// cancelReassignment takes out the replicas that a move was adding.
func (d *Decider) cancelReassignment(p partition) (metadata.Record, *Fault) {
	if !p.Reassigning() {
		return nil, refuseSilent(codeNoReassignment)
	}
	replicas, isr := without(p.Replicas, p.AddingReplicas...), without(p.ISR, p.AddingReplicas...)
	unclean := d.uncleanElectionEnabled(p.topic.Name)
	if len(isr) == 0 {
		// All replicas in sync are new ones. Going back means electing one that may lack data.
		if len(replicas) == 0 {
			return nil, refuse(codeInvalidAssignment, "Invalid replica assignment: addingReplicas contains all replicas.")
		}
		if !unclean {
			return nil, refuse(codeInvalidAssignment, "Unable to revert partition assignment for %s:%d because it would "+
				"require an unclean leader election.", p.topic.Name, p.index)
		}
		isr = []int32{replicas[0]}
	}
	c := d.newPartitionChange(p)
	if unclean {
		c.election = electUnclean
	}
	c.isr, c.replicas, c.removing, c.adding = isr, replicas, nil, nil
	if r := c.record(); r != nil {
		return r, nil
	}
	return nil, nil
}

// ListPartitionReassignments answers ListPartitionReassignments (46) v0 from a committed image.
func (d *Decider) ListPartitionReassignments(req *kmsg.ListPartitionReassignmentsRequest) Result {
	resp := req.ResponseKind().(*kmsg.ListPartitionReassignmentsResponse)
	if !d.req.allowedOnCluster(opDescribe) {
		resp.ErrorCode, resp.ErrorMessage = codeAndMessage(refuseBare(codeClusterAuthorization))
		return Result{Response: resp}
	}
	if req.Topics == nil {
		for t := range d.Image.Topics.All() {
			indexes := make([]int32, 0, t.NumPartitions())
			for i := range t.Partitions() {
				indexes = append(indexes, i)
			}
			listReassignments(resp, t, indexes)
		}
		return Result{Response: resp}
	}
	for _, t := range req.Topics {
		if topic := d.Image.Topics.ByName(t.Topic); topic != nil {
			listReassignments(resp, topic, t.Partitions)
		}
	}
	return Result{Response: resp}
}

func listReassignments(resp *kmsg.ListPartitionReassignmentsResponse, t *image.Topic, indexes []int32) {
	out := kmsg.NewListPartitionReassignmentsResponseTopic()
	out.Topic = t.Name
	for _, i := range indexes {
		p := t.Partition(i)
		if p == nil || !p.Reassigning() {
			continue
		}
		e := kmsg.NewListPartitionReassignmentsResponseTopicPartition()
		e.Partition = i
		e.Replicas = nonNil(p.Replicas)
		e.AddingReplicas, e.RemovingReplicas = nonNil(p.AddingReplicas), nonNil(p.RemovingReplicas)
		out.Partitions = append(out.Partitions, e)
	}
	if len(out.Partitions) > 0 {
		resp.Topics = append(resp.Topics, out)
	}
}
