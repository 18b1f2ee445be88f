package image

import (
	"cmp"
	"fmt"
	"slices"

	"gregor/kraft/metadata"
	"gregor/protocol"
)

func (d *Delta) replayTopics(rec metadata.Record) error {
	switch r := rec.(type) {
	case *metadata.TopicRecord:
		return d.replayTopic(r)
	case *metadata.PartitionRecord:
		t, err := d.topic(r.TopicID)
		if err != nil {
			return err
		}
		p, err := partitionOf(r)
		if err != nil {
			return fmt.Errorf("%w: %s-%d: %w", ErrInconsistent, t.Name, r.PartitionID, err)
		}
		if old := t.Partition(r.PartitionID); old != nil {
			d.countElection(old, r.Leader, r.LeaderRecoveryState)
		}
		d.setPartition(t, r.PartitionID, p)
	case *metadata.PartitionChangeRecord:
		t, err := d.topic(r.TopicID)
		if err != nil {
			return err
		}
		old := t.Partition(r.PartitionID)
		if old == nil {
			return fmt.Errorf("%w: %s has no partition %d", ErrInconsistent, t.Name, r.PartitionID)
		}
		p, err := old.Merge(r)
		if err != nil {
			return fmt.Errorf("%w: %s-%d: %w", ErrInconsistent, t.Name, r.PartitionID, err)
		}
		d.countElection(old, r.Leader, r.LeaderRecoveryState)
		d.setPartition(t, r.PartitionID, p)
	case *metadata.RemoveTopicRecord:
		return d.removeTopic(r.TopicID)
	case *metadata.ClearElrRecord:
		return d.clearELR(r.TopicName)
	}
	return nil
}

// replayTopic makes an empty topic.
func (d *Delta) replayTopic(r *metadata.TopicRecord) error {
	if old := d.next.Topics.ByName(r.Name); old != nil && old.ID != r.TopicID {
		return fmt.Errorf("%w: topic %s exists with id %s", ErrInconsistent, r.Name, old.ID)
	}
	if old := d.next.Topics.ByID(r.TopicID); old != nil {
		return fmt.Errorf("%w: topic id %s belongs to %s", ErrInconsistent, r.TopicID, old.Name)
	}
	t := owned(&d.next.Topics, &d.own.topics)
	topic := &Topic{
		Name: r.Name, ID: r.TopicID, partitions: newTree[int32, *Partition](cmp.Compare[int32]), owner: d.edit,
	}
	t.byName.set(d.edit, r.Name, topic)
	t.byID.set(d.edit, r.TopicID, topic)
	t.counts.Topics++
	d.markTopic(r.TopicID)
	return nil
}

// topic returns the topic, which must exist.
func (d *Delta) topic(id protocol.UUID) (*Topic, error) {
	t := d.next.Topics.ByID(id)
	if t == nil {
		return nil, fmt.Errorf("%w: no topic with id %s", ErrInconsistent, id)
	}
	return t, nil
}

// ownedTopic returns the topic as the delta's own copy.
func (d *Delta) ownedTopic(topic *Topic) *Topic {
	if topic.owner == d.edit {
		return topic
	}
	c := *topic
	c.owner = d.edit
	t := owned(&d.next.Topics, &d.own.topics)
	t.byName.set(d.edit, c.Name, &c)
	t.byID.set(d.edit, c.ID, &c)
	return &c
}

func (d *Delta) setPartition(topic *Topic, id int32, p *Partition) {
	topic = d.ownedTopic(topic)
	t := owned(&d.next.Topics, &d.own.topics)
	if old := topic.Partition(id); old != nil {
		t.counts.count(old, -1)
	}
	t.counts.count(p, 1)
	topic.partitions.set(d.edit, id, p)
	mark(d.markTopic(topic.ID), id)
}

// removeTopic removes the topic with its partitions and configs.
func (d *Delta) removeTopic(id protocol.UUID) error {
	topic, err := d.topic(id)
	if err != nil {
		return err
	}
	t := owned(&d.next.Topics, &d.own.topics)
	for _, p := range topic.Partitions() {
		t.counts.count(p, -1)
	}
	t.counts.Topics--
	t.byName.remove(d.edit, topic.Name)
	t.byID.remove(d.edit, id)
	d.markTopic(id)
	resource := ConfigResource{Type: ResourceTopic, Name: topic.Name}
	if d.next.Configs.Get(resource) != nil {
		owned(&d.next.Configs, &d.own.configs).resources.remove(d.edit, resource)
		mark(&d.configs, resource)
	}
	return nil
}

// clearELR empties the eligible leader replicas of a topic, of all topics if name is empty.
func (d *Delta) clearELR(name string) error {
	var topics []*Topic
	if name == "" {
		topics = slices.Collect(d.next.Topics.All())
	} else {
		t := d.next.Topics.ByName(name)
		if t == nil {
			return fmt.Errorf("%w: no topic %q", ErrInconsistent, name)
		}
		topics = []*Topic{t}
	}
	for _, t := range topics {
		var ids []int32 // collected first: the topic changes below
		for id, p := range t.Partitions() {
			if len(p.ELR) > 0 || len(p.LastKnownELR) > 0 {
				ids = append(ids, id)
			}
		}
		for _, id := range ids {
			t = d.next.Topics.ByID(t.ID)
			c := *t.Partition(id)
			c.ELR, c.LastKnownELR = nil, nil
			c.PartitionEpoch++
			d.setPartition(t, id, &c)
		}
	}
	return nil
}

func partitionOf(r *metadata.PartitionRecord) (*Partition, error) {
	p := &Partition{
		Replicas: orNil(r.Replicas), Directories: orNil(r.Directories), ISR: orNil(r.ISR),
		AddingReplicas: orNil(r.AddingReplicas), RemovingReplicas: orNil(r.RemovingReplicas),
		ELR: orNil(r.EligibleLeaderReplicas), LastKnownELR: orNil(r.LastKnownELR), Leader: r.Leader,
		LeaderRecoveryState: r.LeaderRecoveryState, LeaderEpoch: r.LeaderEpoch, PartitionEpoch: r.PartitionEpoch,
	}
	return p, p.settle()
}

// Merge returns the partition after a change, as Kafka's PartitionRegistration does it: lists that are null stay, a
// leader that is set raises the leader epoch (even if it is the same), and every change raises the partition epoch.
// Directories that are all unknown follow the number of replicas. Errors say what does not fit.
func (p *Partition) Merge(r *metadata.PartitionChangeRecord) (*Partition, error) {
	n := *p
	replace(&n.Replicas, r.Replicas)
	replace(&n.Directories, r.Directories)
	replace(&n.ISR, r.ISR)
	replace(&n.AddingReplicas, r.AddingReplicas)
	replace(&n.RemovingReplicas, r.RemovingReplicas)
	replace(&n.ELR, r.EligibleLeaderReplicas)
	replace(&n.LastKnownELR, r.LastKnownELR)
	if r.Leader != metadata.NoLeaderChange {
		n.Leader = r.Leader
		n.LeaderEpoch++
	}
	if r.LeaderRecoveryState != metadata.NoLeaderRecoveryStateChange {
		n.LeaderRecoveryState = r.LeaderRecoveryState
	}
	n.PartitionEpoch++
	return &n, n.settle()
}

// settle gives replicas without known directories the directory MIGRATING and checks what must hold.
func (p *Partition) settle() error {
	if !slices.ContainsFunc(p.Directories, knownDirectory) && len(p.Directories) != len(p.Replicas) {
		p.Directories = orNil(make([]protocol.UUID, len(p.Replicas)))
	}
	if len(p.Directories) != len(p.Replicas) {
		return fmt.Errorf("%d directories for %d replicas", len(p.Directories), len(p.Replicas))
	}
	if p.LeaderRecoveryState != LeaderRecovered && p.LeaderRecoveryState != LeaderRecovering {
		return fmt.Errorf("leader recovery state %d", p.LeaderRecoveryState)
	}
	return nil
}

// knownDirectory is false for the directory of a replica that nobody assigned yet, not even as unassigned.
func knownDirectory(d protocol.UUID) bool { return d != protocol.DirectoryMigrating }

// replace sets a list unless the new one is null.
func replace[T any](list *[]T, by []T) {
	if by != nil {
		*list = orNil(by)
	}
}

// orNil makes an empty list nil.
func orNil[T any](list []T) []T {
	if len(list) == 0 {
		return nil
	}
	return list
}
