package controller

import (
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/internal/configdef"
	"gregor/kraft/metadata"
	"gregor/protocol"
)

// CreateTopics decides CreateTopics (19) v2-7: v4 takes -1 for the broker's defaults, v5 answers with the topic's
// configs, v6 refuses when over the mutation quota, v7 answers with topic ids. Each topic succeeds or fails alone.
func (d *Decider) CreateTopics(req *kmsg.CreateTopicsRequest) Result {
	resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
	names := make([]string, len(req.Topics))
	for i := range req.Topics {
		names[i] = req.Topics[i].Topic
	}
	once, twice := splitDuplicates(names)
	var topics []*kmsg.CreateTopicsRequestTopic
	for i := range req.Topics {
		name := req.Topics[i].Topic
		if slices.Contains(once, name) && name != MetadataTopic && d.mayCreateTopic(name) {
			topics = append(topics, &req.Topics[i])
		}
	}
	var res Result
	if f := d.checkPartitionTotal(topics); f != nil {
		for _, name := range dedup(names) {
			resp.Topics = append(resp.Topics, failedTopic(name, f))
		}
		res.Response = resp
		return res
	}
	for _, t := range topics {
		records, result, f := d.createTopic(t)
		if f != nil {
			result = failedTopic(t.Topic, f)
		}
		resp.Topics = append(resp.Topics, result)
		res.Records = append(res.Records, records...)
	}
	for _, name := range twice {
		resp.Topics = append(resp.Topics, failedTopic(name, refuse(codeInvalidRequest, "Duplicate topic name.")))
	}
	for _, name := range once {
		switch {
		case name == MetadataTopic:
			resp.Topics = append(resp.Topics, failedTopic(name,
				refuse(codeInvalidRequest, "Creation of internal topic %s is prohibited.", MetadataTopic)))
		case !d.mayCreateTopic(name):
			resp.Topics = append(resp.Topics, failedTopic(name,
				refuse(codeTopicAuthorization, "Authorization failed.")))
		}
	}
	if req.ValidateOnly {
		res.Records = nil
	}
	res.Atomic, res.Response = true, resp
	return res
}

func (d *Decider) mayCreateTopic(name string) bool {
	return d.req.allowedOnCluster(opCreate) || d.req.allowed(opCreate, resourceTopic, name)
}

func failedTopic(name string, f *Fault) kmsg.CreateTopicsResponseTopic {
	t := kmsg.NewCreateTopicsResponseTopic()
	t.Topic = name
	t.ErrorCode, t.ErrorMessage = codeAndMessage(f)
	t.Configs = []kmsg.CreateTopicsResponseTopicConfig{}
	return t
}

// checkPartitionTotal bounds what one request may create.
func (d *Decider) checkPartitionTotal(topics []*kmsg.CreateTopicsRequestTopic) *Fault {
	var total int64
	for _, t := range topics {
		switch {
		case len(t.ReplicaAssignment) > 0:
			total += int64(len(t.ReplicaAssignment))
		case t.NumPartitions == -1:
			total += int64(d.cfg.DefaultPartitions)
		case t.NumPartitions > 0:
			total += int64(t.NumPartitions)
		}
		if total > maxPartitionsPerRequest {
			return refuse(codePolicyViolation, "Excessively large number of partitions per request.")
		}
	}
	return nil
}

// createTopic decides one topic: its records and its entry in the response.
func (d *Decider) createTopic(
	t *kmsg.CreateTopicsRequestTopic,
) ([]metadata.Record, kmsg.CreateTopicsResponseTopic, *Fault) {
	none := kmsg.CreateTopicsResponseTopic{}
	if f := d.checkNewTopicName(t.Topic); f != nil {
		return nil, none, f
	}
	configRecords, f := d.creationConfigs(t)
	if f != nil {
		return nil, none, f
	}
	parts, f := d.newPartitions(t)
	if f != nil {
		return nil, none, f
	}
	if f := d.req.charge(len(parts)); f != nil {
		return nil, none, f
	}
	id := d.NewUUID()
	topic := metadata.NewTopicRecord()
	topic.Name, topic.TopicID = t.Topic, id
	records := append([]metadata.Record{topic}, configRecords...)
	for _, p := range parts {
		p.TopicID = id
		records = append(records, p)
	}
	return records, d.createdTopic(t, id, parts), nil
}

// checkNewTopicName refuses names that are not valid, that exist, or that metrics could not tell from another.
func (d *Decider) checkNewTopicName(name string) *Fault {
	if why := protocol.TopicNameProblem(name); why != "" {
		return refuse(codeInvalidTopic, "Topic name is invalid: %s", why)
	}
	if d.Image.Topics.ByName(name) != nil {
		return refuse(codeTopicExists, "Topic '%s' already exists.", name)
	}
	if other, ok := d.collidingTopic(name); ok {
		return refuse(codeInvalidTopic, "Topic '%s' collides with existing topic: %s", name, other)
	}
	return nil
}

func (d *Decider) collidingTopic(name string) (string, bool) {
	if !hasCollisionChars(name) {
		return "", false
	}
	if variants, ok := collisionVariants(name); ok {
		for _, v := range variants {
			if d.Image.Topics.ByName(v) != nil {
				return v, true
			}
		}
		return "", false
	}
	unified := unifyCollisionChars(name)
	for t := range d.Image.Topics.All() {
		if len(t.Name) == len(name) && unifyCollisionChars(t.Name) == unified {
			return t.Name, true
		}
	}
	return "", false
}

// creationConfigs validates the configs of a new topic and makes their records.
func (d *Decider) creationConfigs(t *kmsg.CreateTopicsRequestTopic) ([]metadata.Record, *Fault) {
	var nulls []string
	var ops configOps
	for _, c := range t.Configs {
		if c.Value == nil {
			nulls = append(nulls, c.Name)
			continue
		}
		ops.put(configOp{name: c.Name, kind: opSet, value: c.Value})
	}
	if len(nulls) > 0 {
		return nil, refuse(codeInvalidConfig, "Null value not supported for topic configs: %s", strings.Join(nulls, ","))
	}
	if len(ops) == 0 {
		return nil, nil
	}
	records, f := d.alterResource(configResource{configTopic, t.Topic}, ops, true)
	if f != nil {
		return nil, f
	}
	return append(records, d.clearELR(records)...), nil
}

// newPartitions gives the partition records of a new topic, without its id.
func (d *Decider) newPartitions(t *kmsg.CreateTopicsRequestTopic) ([]*metadata.PartitionRecord, *Fault) {
	if len(t.ReplicaAssignment) > 0 {
		return d.assignedPartitions(t)
	}
	if t.ReplicationFactor < -1 || t.ReplicationFactor == 0 {
		return nil, refuse(codeInvalidReplicationFactor,
			"Replication factor must be larger than 0, or -1 to use the default value.")
	}
	if t.NumPartitions < -1 || t.NumPartitions == 0 {
		return nil, refuse(codeInvalidPartitions, "Number of partitions was set to an invalid non-positive value.")
	}
	n, factor := t.NumPartitions, t.ReplicationFactor
	if n == -1 {
		n = d.cfg.DefaultPartitions
	}
	if factor == -1 {
		factor = d.cfg.DefaultReplicationFactor
	}
	placed, f := newPlacer(d.Rand, d.usableBrokers()).place(int(n), factor)
	if f != nil {
		return nil, refuse(codeInvalidReplicationFactor, "Unable to replicate the partition %d time(s): %s", factor, f)
	}
	out := make([]*metadata.PartitionRecord, 0, len(placed))
	for i, replicas := range placed {
		p := d.newPartition(int32(i), replicas)
		if p == nil {
			return nil, refuse(codeInvalidReplicationFactor, "Unable to replicate the partition %d time(s): "+
				"All brokers are currently fenced or in controlled shutdown.", factor)
		}
		out = append(out, p)
	}
	return out, nil
}

// assignedPartitions gives the partitions of a topic whose replicas the request names.
func (d *Decider) assignedPartitions(t *kmsg.CreateTopicsRequestTopic) ([]*metadata.PartitionRecord, *Fault) {
	if t.ReplicationFactor != -1 {
		return nil, refuse(codeInvalidRequest,
			"A manual partition assignment was specified, but replication factor was not set to -1.")
	}
	if t.NumPartitions != -1 {
		return nil, refuse(codeInvalidRequest,
			"A manual partition assignment was specified, but numPartitions was not set to -1.")
	}
	byIndex := make(map[int32]*metadata.PartitionRecord, len(t.ReplicaAssignment))
	factor := -1
	for _, a := range t.ReplicaAssignment {
		if byIndex[a.Partition] != nil {
			return nil, refuse(codeInvalidAssignment,
				"Found multiple manual partition assignments for partition %d", a.Partition)
		}
		if f := d.checkAssignment(a.Replicas, factor); f != nil {
			return nil, f
		}
		factor = len(a.Replicas)
		p := d.newPartition(a.Partition, a.Replicas)
		if p == nil {
			return nil, allReplicasInactive(a.Partition)
		}
		byIndex[a.Partition] = p
	}
	out := make([]*metadata.PartitionRecord, len(byIndex))
	for i := range out {
		if out[i] = byIndex[int32(i)]; out[i] == nil {
			return nil, refuse(codeInvalidAssignment, "partitions should be a consecutive 0-based integer sequence")
		}
	}
	return out, nil
}

func allReplicasInactive(partition int32) *Fault {
	return refuse(codeInvalidAssignment, "All brokers specified in the manual partition assignment for partition %d "+
		"are fenced or in controlled shutdown.", partition)
}

// newPartition makes the record of a new partition; nil when none of its replicas can lead.
func (d *Decider) newPartition(index int32, replicas []int32) *metadata.PartitionRecord {
	p := metadata.NewPartitionRecord()
	p.PartitionID, p.Replicas = index, slices.Clone(replicas)
	p.RemovingReplicas, p.AddingReplicas = []int32{}, []int32{}
	for _, r := range replicas {
		if d.isActive(r) {
			p.ISR = append(p.ISR, r)
		}
	}
	if len(p.ISR) == 0 {
		return nil
	}
	p.Leader, p.LeaderEpoch, p.PartitionEpoch = p.ISR[0], 0, 0
	if d.features.directoryAssignment() {
		p.Directories = make([]protocol.UUID, len(replicas))
		for i, r := range replicas {
			p.Directories[i] = d.defaultDir(r)
		}
	}
	return p
}

// checkAssignment checks a list of replicas that a client named; factor -1 means any number of them.
func (d *Decider) checkAssignment(replicas []int32, factor int) *Fault {
	if len(replicas) == 0 {
		return refuse(codeInvalidAssignment, "The manual partition assignment includes an empty replica list.")
	}
	sorted := slices.Sorted(slices.Values(replicas))
	for i, id := range sorted {
		b := d.Image.Cluster.Broker(id)
		switch {
		case b == nil:
			return refuse(codeInvalidAssignment,
				"The manual partition assignment includes broker %d, but no such broker is registered.", id)
		case !hasUncordonedDir(b):
			return refuse(codeInvalidAssignment,
				"The manual partition assignment includes broker %d, but all its log directories are cordoned.", id)
		case i > 0 && sorted[i-1] == id:
			return refuse(codeInvalidAssignment,
				"The manual partition assignment includes the broker %d more than once.", id)
		}
	}
	if factor >= 0 && len(replicas) != factor {
		return refuse(codeInvalidAssignment, "The manual partition assignment includes a partition with %d replica(s), "+
			"but this is not consistent with previous partitions, which have %d replica(s).", len(replicas), factor)
	}
	return nil
}

// createdTopic makes the response of a created topic; its configs only for those who may see them.
func (d *Decider) createdTopic(
	t *kmsg.CreateTopicsRequestTopic, id protocol.UUID, parts []*metadata.PartitionRecord,
) kmsg.CreateTopicsResponseTopic {
	out := kmsg.NewCreateTopicsResponseTopic()
	out.Topic, out.TopicID = t.Topic, id
	out.Configs = []kmsg.CreateTopicsResponseTopicConfig{}
	if !d.req.allowed(opDescribeConfigs, resourceTopic, t.Topic) {
		out.ConfigErrorCode = codeTopicAuthorization
		return out
	}
	out.NumPartitions = int32(len(parts))
	out.ReplicationFactor = int16(len(parts[0].Replicas))
	own := make(map[string]string, len(t.Configs))
	for _, c := range t.Configs {
		own[c.Name] = *c.Value
	}
	for key := range configdef.Topic().All() {
		entry := d.inheritedTopicConfig(key)
		if v, ok := own[key.Name]; ok {
			entry = configEntry{value: &v, source: sourceTopic}
		} else if key.Internal {
			continue
		}
		c := kmsg.NewCreateTopicsResponseTopicConfig()
		c.Name, c.Source, c.IsSensitive = key.Name, entry.source, key.Sensitive
		if !key.Sensitive {
			c.Value = entry.value
		}
		out.Configs = append(out.Configs, c)
	}
	return out
}
