// Package offsets keeps the committed offsets of the groups of one partition of
// __consumer_offsets.
//
// It is a pure state machine: requests become records and responses, records
// become state. Offsets that were committed in a transaction wait as pending
// ones until the transaction ends (KIP-98, KIP-447). Which group may commit,
// read or delete is the business of the [Group].
package offsets

import (
	"unicode/utf16"

	"gregor/groupcoord/schema"
	"gregor/internal/timeline"
	"gregor/protocol"
)

// NoOffset is the offset given for a partition without a commit.
const NoOffset int64 = -1

// noExpiry marks an offset without an expiry of its own.
const noExpiry int64 = -1

// Offset is a committed offset. It is never changed.
type Offset struct {
	Offset      int64
	LeaderEpoch int32 // -1 when the client gave none
	Metadata    string
	// CommitMillis is when it was committed. ExpireMillis is when it expires if
	// the client said so (OffsetCommit v2 to v4), else -1.
	CommitMillis, ExpireMillis int64
	// RecordOffset is where the record is in the log.
	RecordOffset int64
	TopicID      protocol.UUID
}

// Commit names who commits; the fields of an OffsetCommit or TxnOffsetCommit
// request that decide whether it may.
type Commit struct {
	MemberID      string
	InstanceID    *string
	Generation    int32 // or member epoch
	Transactional bool
	Version       int16
}

// Group is what this package needs to know of a group.
type Group interface {
	// ValidateCommit says whether the commit is allowed. The function it
	// returns, when not nil, judges each partition.
	ValidateCommit(c Commit) (func(topic string, topicID protocol.UUID, partition int32) error, error)
	// ValidateFetch says whether a member may read the offsets. A group that
	// has none answers kerr.GroupIDNotFound.
	ValidateFetch(memberID *string, memberEpoch int32, committed bool) error
	// ValidateOffsetDelete says whether single offsets may be deleted.
	ValidateOffsetDelete() error
	// Subscribed says whether the group, or what is known of it, reads topic.
	Subscribed(topic string) bool
	// ExpiryBase returns the time from which the retention of an offset counts;
	// false when no offset of the group expires now.
	ExpiryBase() (func(*Offset) int64, bool)
}

// Config of the offsets.
type Config struct {
	// MetadataMaxBytes is offset.metadata.max.bytes; Kafka counts UTF-16 units.
	MetadataMaxBytes int
	// RetentionMillis is offsets.retention.minutes.
	RetentionMillis int64
}

// Store holds the offsets of all groups of a partition.
type Store struct {
	cfg      Config
	registry *timeline.Registry
	// committed offsets.
	committed table
	// pending offsets by the producer whose transaction is open.
	pending *timeline.Map[int64, table]
	// open producers by group, topic and partition: the reverse of pending.
	open openTxns
}

// NewStore returns an empty store.
func NewStore(registry *timeline.Registry, cfg Config) *Store {
	return &Store{
		cfg: cfg, registry: registry,
		committed: newTable(registry),
		pending:   timeline.NewMap[int64, table](registry),
		open:      newOpenTxns(registry),
	}
}

// Get returns the newest committed offset, nil when there is none.
func (s *Store) Get(group, topic string, partition int32) *Offset {
	return s.committed.get(group, topic, partition)
}

// HasOffsets reports whether the group has committed or pending offsets.
func (s *Store) HasOffsets(group string) bool {
	return s.committed.groups.Has(group) || s.open.groups.Has(group)
}

// hasPending reports whether an open transaction commits the partition.
func (s *Store) hasPending(group, topic string, partition int32) bool {
	return s.open.producers(group, topic, partition) != nil
}

// utf16Len is the length of a Java string.
func utf16Len(s string) int {
	n := 0
	for _, r := range s {
		n += max(utf16.RuneLen(r), 1)
	}
	return n
}

// tombstone deletes the offset of a partition.
func tombstone(group, topic string, partition int32) schema.Record {
	return schema.Tombstone(&schema.OffsetCommitKey{Group: group, Topic: topic, Partition: partition})
}

// commitRecord writes an offset. The format without an expiry has no room for
// the topic id in Kafka's old version 1, so that one is lost there, as in Kafka.
func commitRecord(group, topic string, partition int32, o Offset) schema.Record {
	key := &schema.OffsetCommitKey{Group: group, Topic: topic, Partition: partition}
	value := schema.NewOffsetCommitValue()
	value.Offset, value.Metadata, value.CommitTimestamp = o.Offset, o.Metadata, o.CommitMillis
	if o.ExpireMillis != noExpiry {
		value.ExpireTimestamp = o.ExpireMillis
		return schema.Record{Key: key, Value: value, Version: 1}
	}
	value.LeaderEpoch, value.TopicID = o.LeaderEpoch, o.TopicID
	return schema.Record{Key: key, Value: value, Version: 4}
}

// fromValue is the offset of a record.
func fromValue(recordOffset int64, v *schema.OffsetCommitValue) *Offset {
	return &Offset{
		Offset: v.Offset, LeaderEpoch: v.LeaderEpoch, Metadata: v.Metadata,
		CommitMillis: v.CommitTimestamp, ExpireMillis: v.ExpireTimestamp, RecordOffset: recordOffset, TopicID: v.TopicID,
	}
}
