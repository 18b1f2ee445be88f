package controller

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/kraft/metadata"
)

// Election types of ElectLeaders.
const (
	electionPreferred int8 = 0
	electionUnclean   int8 = 1
)

// ElectLeaders decides ElectLeaders (43) v0-2: preferred leaders (v0) or any live replica (v1).
func (d *Decider) ElectLeaders(req *kmsg.ElectLeadersRequest) Result {
	resp := req.ResponseKind().(*kmsg.ElectLeadersResponse)
	res := Result{Response: resp}
	if !d.req.allowedOnCluster(opAlter) {
		return Result{Response: Refusal(req, Unauthorized())}
	}
	if req.ElectionType != electionPreferred && req.ElectionType != electionUnclean {
		resp.ErrorCode = codeInvalidRequest
		return res
	}
	topics := req.Topics
	all := topics == nil
	if all {
		topics = d.everyPartition()
	}
	for _, t := range topics {
		out := kmsg.NewElectLeadersResponseTopic()
		out.Topic = t.Topic
		for _, index := range t.Partitions {
			record, f := d.electLeader(t.Topic, index, req.ElectionType)
			if all && f != nil && f.Code == codeElectionNotNeeded {
				continue
			}
			if record != nil {
				res.Records = append(res.Records, record)
			}
			p := kmsg.NewElectLeadersResponseTopicPartition()
			p.Partition = index
			p.ErrorCode, p.ErrorMessage = codeAndMessage(f)
			out.Partitions = append(out.Partitions, p)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return res
}

// everyPartition names all partitions; clients ask for them with null.
func (d *Decider) everyPartition() []kmsg.ElectLeadersRequestTopic {
	out := []kmsg.ElectLeadersRequestTopic{}
	for t := range d.Image.Topics.All() {
		e := kmsg.NewElectLeadersRequestTopic()
		e.Topic = t.Name
		for i := range t.Partitions() {
			e.Partitions = append(e.Partitions, i)
		}
		out = append(out, e)
	}
	return out
}

// electLeader elects the leader of one partition.
func (d *Decider) electLeader(name string, index int32, kind int8) (metadata.Record, *Fault) {
	topic := d.Image.Topics.ByName(name)
	if topic == nil {
		return nil, refuse(codeUnknownTopicOrPartition, "No such topic as %s", name)
	}
	p := topic.Partition(index)
	if p == nil {
		return nil, refuse(codeUnknownTopicOrPartition, "No such partition as %s-%d", name, index)
	}
	if kind == electionPreferred && p.HasPreferredLeader() || kind == electionUnclean && p.Leader != noLeader {
		return nil, refuseBare(codeElectionNotNeeded)
	}
	c := d.newPartitionChange(partition{p, topic, index})
	c.election = electPreferred
	if kind == electionUnclean {
		c.election = electUnclean
	}
	r := c.record()
	switch {
	case r != nil:
		return r, nil
	case kind == electionPreferred:
		return nil, refuseBare(codePreferredLeaderNotAvail)
	}
	return nil, refuseBare(codeEligibleLeadersNotAvail)
}

// BalanceLeaders is the periodic preferred leader election (auto.leader.rebalance.enable). more is set when the round
// was cut short.
func (d *Decider) BalanceLeaders() (res Result, more bool) {
	if d.Image.Topics.Counts().NotPreferred == 0 {
		return res, false
	}
	for p := range d.partitions() {
		if p.HasPreferredLeader() {
			continue
		}
		if len(res.Records) >= maxElectionsPerRound {
			return res, true
		}
		c := d.newPartitionChange(p)
		c.election = electPreferred
		if r := c.record(); r != nil {
			res.Records = append(res.Records, r)
		}
	}
	return res, false
}

// ElectUnclean is the periodic election of any live replica for leaderless partitions of topics that allow it
// (unclean.leader.election.enable).
func (d *Decider) ElectUnclean() (res Result, more bool) {
	if d.Image.Topics.Counts().Offline == 0 {
		return res, false
	}
	for p := range d.partitions() {
		if p.Leader != noLeader || !d.uncleanElectionEnabled(p.topic.Name) {
			continue
		}
		if len(res.Records) >= maxElectionsPerRound {
			return res, true
		}
		c := d.newPartitionChange(p)
		c.election = electUnclean
		if r := c.record(); r != nil {
			res.Records = append(res.Records, r)
		}
	}
	return res, false
}

// FenceExpired fences one broker whose session has run out. One at a time, so that the next decision sees the
// effect; more is set while there may be others.
func (d *Decider) FenceExpired() (res Result, broker int32, more bool) {
	id, ok := d.Sessions.expired(d.Now)
	if !ok {
		return Result{}, noLeader, false
	}
	sessions := d.Sessions
	if d.Image.Cluster.Broker(id) == nil {
		return Result{Applied: func(int64) { sessions.Unregister(id) }}, noLeader, true
	}
	return Result{
		Records: d.fenceBroker(nil, id),
		Applied: func(int64) { sessions.heartbeat(id, true, -1) },
	}, id, true
}
