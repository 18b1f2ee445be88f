package controller

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/kraft/metadata"
)

// CreatePartitions decides CreatePartitions (37) v0-3: more partitions for existing topics, each topic alone; v3
// refuses when over the mutation quota.
func (d *Decider) CreatePartitions(req *kmsg.CreatePartitionsRequest) Result {
	resp := req.ResponseKind().(*kmsg.CreatePartitionsResponse)
	res := Result{Response: resp, Atomic: true}
	names := make([]string, len(req.Topics))
	for i := range req.Topics {
		names[i] = req.Topics[i].Topic
	}
	once, twice := splitDuplicates(names)
	for _, name := range twice {
		resp.Topics = append(resp.Topics, grownTopic(name, refuse(codeInvalidRequest, "Duplicate topic name.")))
	}
	var topics []*kmsg.CreatePartitionsRequestTopic
	for _, name := range once {
		if !d.req.allowed(opAlter, resourceTopic, name) {
			resp.Topics = append(resp.Topics, grownTopic(name, refuseSilent(codeTopicAuthorization)))
			continue
		}
		for i := range req.Topics {
			if req.Topics[i].Topic == name {
				topics = append(topics, &req.Topics[i])
			}
		}
	}
	total := d.checkAddedTotal(topics)
	for _, t := range topics {
		f := total
		if f == nil {
			var records []metadata.Record
			if records, f = d.growTopic(t); f == nil {
				res.Records = append(res.Records, records...)
			}
		}
		resp.Topics = append(resp.Topics, grownTopic(t.Topic, f))
	}
	if req.ValidateOnly {
		res.Records = nil
	}
	return res
}

func grownTopic(name string, f *Fault) kmsg.CreatePartitionsResponseTopic {
	t := kmsg.NewCreatePartitionsResponseTopic()
	t.Topic = name
	t.ErrorCode, t.ErrorMessage = codeAndMessage(f)
	return t
}

// checkAddedTotal bounds what one request may add.
func (d *Decider) checkAddedTotal(topics []*kmsg.CreatePartitionsRequestTopic) *Fault {
	var total int64
	for _, t := range topics {
		existing := d.Image.Topics.ByName(t.Topic)
		if existing == nil {
			continue
		}
		total += max(0, int64(t.Count)-int64(existing.NumPartitions()))
		if total > maxPartitionsPerRequest {
			return refuse(codePolicyViolation, "Excessively large number of additional partitions per request.")
		}
	}
	return nil
}

// growTopic gives the records of a topic's new partitions.
func (d *Decider) growTopic(t *kmsg.CreatePartitionsRequestTopic) ([]metadata.Record, *Fault) {
	topic := d.Image.Topics.ByName(t.Topic)
	if topic == nil {
		return nil, refuseSilent(codeUnknownTopicOrPartition)
	}
	have := int32(topic.NumPartitions())
	switch {
	case t.Count == have:
		return nil, refuse(codeInvalidPartitions, "Topic already has %d partition(s).", have)
	case t.Count < have:
		return nil, refuse(codeInvalidPartitions,
			"The topic %s currently has %d partition(s); %d would not be an increase.", t.Topic, have, t.Count)
	}
	added := int(t.Count - have)
	if t.Assignment != nil && len(t.Assignment) != added {
		return nil, refuse(codeInvalidAssignment, "Attempted to add %d additional partition(s), but only %d "+
			"assignment(s) were specified.", added, len(t.Assignment))
	}
	if f := d.req.charge(added); f != nil {
		return nil, f
	}
	factor := len(topic.Partition(0).Replicas)
	placed, f := d.placeAdded(t, have, added, factor)
	if f != nil {
		return nil, f
	}
	out := make([]metadata.Record, 0, added)
	for i, replicas := range placed {
		p := d.newPartition(have+int32(i), replicas)
		if p == nil {
			return nil, refuse(codeInvalidReplicationFactor, "Unable to replicate the partition %d time(s): "+
				"All brokers are currently fenced or in controlled shutdown.", factor)
		}
		p.TopicID = topic.ID
		out = append(out, p)
	}
	return out, nil
}

// placeAdded gives the replicas of added partitions: as the request says, else chosen.
func (d *Decider) placeAdded(
	t *kmsg.CreatePartitionsRequestTopic, have int32, added, factor int,
) ([][]int32, *Fault) {
	if t.Assignment == nil {
		return newPlacer(d.Rand, d.usableBrokers()).place(added, int16(factor))
	}
	placed := make([][]int32, added)
	for i, a := range t.Assignment {
		if f := d.checkAssignment(a.Replicas, factor); f != nil {
			return nil, f
		}
		if d.newPartition(have+int32(i), a.Replicas) == nil {
			return nil, allReplicasInactive(have + int32(i))
		}
		placed[i] = a.Replicas
	}
	return placed, nil
}
