package image

import (
	"iter"
	"maps"
	"slices"
	"strings"

	"gregor/protocol"
)

// TopicsDelta is the changes of topics and partitions between two images.
type TopicsDelta struct {
	base, topics *Topics // before and after
	// changed holds the topics that were created, changed or deleted, with the partitions that were set.
	changed map[protocol.UUID]*map[int32]struct{}
	stats   ElectionStats
}

// ElectionStats counts elections among the changes.
type ElectionStats struct {
	// Unclean elections chose a leader that was not in sync.
	Unclean int
	// FromELR elections chose an eligible leader replica.
	FromELR int
}

// markTopic notes a changed topic and returns its set of changed partitions.
func (d *Delta) markTopic(id protocol.UUID) *map[int32]struct{} {
	if d.topics == nil {
		d.topics = &TopicsDelta{base: d.base.Topics, changed: map[protocol.UUID]*map[int32]struct{}{}}
	}
	d.topics.topics = d.next.Topics
	set := d.topics.changed[id]
	if set == nil {
		set = new(map[int32]struct{})
		d.topics.changed[id] = set
	}
	return set
}

func (d *Delta) countElection(old *Partition, leader int32, recoveryState int8) {
	if recoveryState != LeaderRecovering && !slices.Contains(old.ELR, leader) {
		return
	}
	if d.topics == nil {
		d.topics = &TopicsDelta{base: d.base.Topics, changed: map[protocol.UUID]*map[int32]struct{}{}}
	}
	if recoveryState == LeaderRecovering {
		d.topics.stats.Unclean++
	}
	if slices.Contains(old.ELR, leader) {
		d.topics.stats.FromELR++
	}
}

func (d *Delta) betweenTopics() {
	base, next := d.base.Topics, d.next.Topics
	var ids []protocol.UUID
	differences(&base.byID, &next.byID, (*Topic).equal, func(id protocol.UUID) { ids = append(ids, id) })
	none := newTree[int32, *Partition](func(a, b int32) int { return int(a) - int(b) })
	for _, id := range ids {
		set := d.markTopic(id)
		before := &none
		if t := base.ByID(id); t != nil {
			before = &t.partitions
		}
		t := next.ByID(id)
		if t == nil {
			continue
		}
		differences(before, &t.partitions, (*Partition).equal, func(p int32) { mark(set, p) })
	}
}

// Elections returns the numbers of elections that deserve attention.
func (d *TopicsDelta) Elections() ElectionStats { return d.stats }

// TopicDelta is the change of one topic.
type TopicDelta struct {
	// Old is the topic before, nil if it is new.
	Old *Topic
	// New is the topic after.
	New     *Topic
	changed map[int32]struct{}
}

// PartitionDelta is the change of one partition.
type PartitionDelta struct {
	ID int32
	// Old is the partition before, nil if it is new; New is the partition after, nil if it is gone.
	Old, New *Partition
}

// Partitions iterates over the partitions that were created or changed, by id.
func (d *TopicDelta) Partitions() iter.Seq[PartitionDelta] {
	return func(yield func(PartitionDelta) bool) {
		for _, id := range slices.Sorted(maps.Keys(d.changed)) {
			p := PartitionDelta{ID: id, New: d.New.Partition(id)}
			if d.Old != nil {
				p.Old = d.Old.Partition(id)
			}
			if !yield(p) {
				return
			}
		}
	}
}

// Changed returns the topics that were created or changed, by name.
func (d *TopicsDelta) Changed() []TopicDelta {
	var out []TopicDelta
	for id, partitions := range d.changed {
		if t := d.topics.ByID(id); t != nil {
			out = append(out, TopicDelta{Old: d.base.ByID(id), New: t, changed: *partitions})
		}
	}
	slices.SortFunc(out, func(a, b TopicDelta) int { return strings.Compare(a.New.Name, b.New.Name) })
	return out
}

// Created returns the topics that are new, by name.
func (d *TopicsDelta) Created() []*Topic {
	return d.collect(func(id protocol.UUID) *Topic {
		if d.base.ByID(id) != nil {
			return nil
		}
		return d.topics.ByID(id)
	})
}

// Deleted returns the topics that are gone, as they were, by name. One of the same name may have been created.
func (d *TopicsDelta) Deleted() []*Topic {
	return d.collect(func(id protocol.UUID) *Topic {
		if d.topics.ByID(id) != nil {
			return nil
		}
		return d.base.ByID(id)
	})
}

func (d *TopicsDelta) collect(pick func(id protocol.UUID) *Topic) []*Topic {
	var out []*Topic
	for id := range d.changed {
		if t := pick(id); t != nil {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b *Topic) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// LocalReplica is a partition of which a broker has a replica.
type LocalReplica struct {
	TopicPartition
	TopicID protocol.UUID
	// State is the partition as it is now.
	State *Partition
	// NewLeaderEpoch says that the leader epoch changed, or that the replica is new.
	NewLeaderEpoch bool
}

// LocalDelete is a replica that a broker must delete.
type LocalDelete struct {
	TopicPartition
	TopicID protocol.UUID
	// TopicDeleted says that the whole topic is gone, not only this broker's replica.
	TopicDeleted bool
}

// LocalDirectory is a directory that the image gives to a broker's replica.
type LocalDirectory struct {
	TopicPartition
	TopicID   protocol.UUID
	Directory protocol.UUID
}

// LocalChanges is what a broker has to do about its replicas; each list is by topic and partition. Apply deletes
// first: a topic may have been deleted and created again.
type LocalChanges struct {
	Deletes   []LocalDelete
	Leaders   []LocalReplica
	Followers []LocalReplica
	// Directories are those that differ from before.
	Directories []LocalDirectory
}

// LocalChanges returns the changes that concern a broker.
func (d *TopicsDelta) LocalChanges(broker int32) LocalChanges {
	var out LocalChanges
	for _, t := range d.Deleted() {
		for id, p := range t.Partitions() {
			if p.HasReplica(broker) {
				out.Deletes = append(out.Deletes,
					LocalDelete{TopicPartition: TopicPartition{t.Name, id}, TopicID: t.ID, TopicDeleted: true})
			}
		}
	}
	for _, t := range d.Changed() {
		for p := range t.Partitions() {
			out.add(broker, t.New, p)
		}
	}
	slices.SortStableFunc(out.Deletes, func(a, b LocalDelete) int { return a.Compare(b.TopicPartition) })
	return out
}

func (c *LocalChanges) add(broker int32, t *Topic, p PartitionDelta) {
	tp := TopicPartition{Topic: t.Name, Partition: p.ID}
	had := p.Old != nil && p.Old.HasReplica(broker)
	if p.New == nil || !p.New.HasReplica(broker) {
		if had {
			c.Deletes = append(c.Deletes, LocalDelete{TopicPartition: tp, TopicID: t.ID})
		}
		return
	}
	if dir, ok := p.New.Directory(broker); ok {
		var before protocol.UUID
		if had {
			before, _ = p.Old.Directory(broker)
		}
		if !had || before != dir {
			c.Directories = append(c.Directories, LocalDirectory{TopicPartition: tp, TopicID: t.ID, Directory: dir})
		}
	}
	if p.Old != nil && p.Old.PartitionEpoch == p.New.PartitionEpoch {
		return
	}
	r := LocalReplica{TopicPartition: tp, TopicID: t.ID, State: p.New}
	r.NewLeaderEpoch = !had || p.Old.LeaderEpoch != p.New.LeaderEpoch
	if p.New.Leader == broker {
		c.Leaders = append(c.Leaders, r)
	} else {
		c.Followers = append(c.Followers, r)
	}
}
