package image

import (
	"bytes"
	"cmp"
	"iter"
	"slices"
	"strings"

	"gregor/protocol"
)

// NoLeader is the leader of a partition without one.
const NoLeader int32 = -1

// Values of Partition.LeaderRecoveryState.
const (
	LeaderRecovered  int8 = 0
	LeaderRecovering int8 = 1 // elected uncleanly and not recovered yet
)

// Partition is the registration of a partition. Empty lists are nil.
type Partition struct {
	Replicas            []int32
	Directories         []protocol.UUID // of the replicas, in their order
	ISR                 []int32
	AddingReplicas      []int32
	RemovingReplicas    []int32
	ELR                 []int32 // eligible leader replicas (KIP-966)
	LastKnownELR        []int32
	Leader              int32 // NoLeader for none
	LeaderRecoveryState int8
	LeaderEpoch         int32
	PartitionEpoch      int32
}

// HasReplica reports whether the broker has a replica.
func (p *Partition) HasReplica(broker int32) bool { return slices.Contains(p.Replicas, broker) }

// InISR reports whether the broker is in sync.
func (p *Partition) InISR(broker int32) bool { return slices.Contains(p.ISR, broker) }

// PreferredLeader returns the first replica, NoLeader if there is none.
func (p *Partition) PreferredLeader() int32 {
	if len(p.Replicas) == 0 {
		return NoLeader
	}
	return p.Replicas[0]
}

// HasPreferredLeader reports whether the first replica leads.
func (p *Partition) HasPreferredLeader() bool { return p.Leader == p.PreferredLeader() }

// Reassigning reports whether replicas are being added or removed.
func (p *Partition) Reassigning() bool {
	return len(p.AddingReplicas) > 0 || len(p.RemovingReplicas) > 0
}

// Directory returns the log directory of a broker's replica, ok false if it has none.
func (p *Partition) Directory(broker int32) (dir protocol.UUID, ok bool) {
	i := slices.Index(p.Replicas, broker)
	if i < 0 || i >= len(p.Directories) {
		return dir, false
	}
	return p.Directories[i], true
}

func (p *Partition) equal(o *Partition) bool {
	return p == o || slices.Equal(p.Replicas, o.Replicas) && slices.Equal(p.Directories, o.Directories) &&
		slices.Equal(p.ISR, o.ISR) && slices.Equal(p.AddingReplicas, o.AddingReplicas) &&
		slices.Equal(p.RemovingReplicas, o.RemovingReplicas) && slices.Equal(p.ELR, o.ELR) &&
		slices.Equal(p.LastKnownELR, o.LastKnownELR) && p.Leader == o.Leader &&
		p.LeaderRecoveryState == o.LeaderRecoveryState && p.LeaderEpoch == o.LeaderEpoch &&
		p.PartitionEpoch == o.PartitionEpoch
}

// Topic is a topic with its partitions.
type Topic struct {
	Name       string
	ID         protocol.UUID
	partitions tree[int32, *Partition]
	owner      *edit // of the delta that may change the topic in place
}

// Partition returns a partition, nil if there is none.
func (t *Topic) Partition(id int32) *Partition {
	p, _ := t.partitions.get(id)
	return p
}

// NumPartitions returns the number of partitions.
func (t *Topic) NumPartitions() int { return t.partitions.len() }

// Partitions iterates over the partitions by id.
func (t *Topic) Partitions() iter.Seq2[int32, *Partition] { return t.partitions.all() }

// PartitionsFrom iterates over the partitions from an id on.
func (t *Topic) PartitionsFrom(id int32) iter.Seq2[int32, *Partition] { return t.partitions.from(id) }

func (t *Topic) equal(o *Topic) bool {
	return t == o || t.Name == o.Name && t.ID == o.ID &&
		equalTrees(&t.partitions, &o.partitions, (*Partition).equal)
}

// TopicCounts are numbers that are kept while the topics change.
type TopicCounts struct {
	Topics     int
	Partitions int
	// Offline partitions have no leader.
	Offline int
	// NotPreferred partitions are led by another than their first replica, or by none.
	NotPreferred int
}

// Topics holds the topics by name and by id.
type Topics struct {
	byName tree[string, *Topic]
	byID   tree[protocol.UUID, *Topic]
	counts TopicCounts
}

func emptyTopics() *Topics {
	return &Topics{byName: newTree[string, *Topic](strings.Compare), byID: newTree[protocol.UUID, *Topic](compareIDs)}
}

func compareIDs(a, b protocol.UUID) int { return bytes.Compare(a[:], b[:]) }

// ByName returns a topic, nil if there is none.
func (t *Topics) ByName(name string) *Topic {
	topic, _ := t.byName.get(name)
	return topic
}

// ByID returns a topic, nil if there is none.
func (t *Topics) ByID(id protocol.UUID) *Topic {
	topic, _ := t.byID.get(id)
	return topic
}

// Partition returns a partition of a topic, nil if there is none.
func (t *Topics) Partition(topic string, partition int32) *Partition {
	if found, ok := t.byName.get(topic); ok {
		return found.Partition(partition)
	}
	return nil
}

// All iterates over the topics by name.
func (t *Topics) All() iter.Seq[*Topic] { return values(&t.byName) }

// From iterates over the topics by name, from the given name on.
func (t *Topics) From(name string) iter.Seq[*Topic] {
	return func(yield func(*Topic) bool) {
		for _, topic := range t.byName.from(name) {
			if !yield(topic) {
				return
			}
		}
	}
}

// Counts returns the numbers of topics and partitions.
func (t *Topics) Counts() TopicCounts { return t.counts }

func (t *Topics) equal(o *Topics) bool { return equalTrees(&t.byName, &o.byName, (*Topic).equal) }

// count adds a partition to the counts, or takes it away with sign -1.
func (c *TopicCounts) count(p *Partition, sign int) {
	c.Partitions += sign
	if p.Leader == NoLeader {
		c.Offline += sign
	}
	if !p.HasPreferredLeader() {
		c.NotPreferred += sign
	}
}

// TopicPartition names a partition.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// Compare orders by topic, then partition.
func (a TopicPartition) Compare(b TopicPartition) int {
	return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}
