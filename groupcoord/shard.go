package groupcoord

import (
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/groupcoord/classic"
	"gregor/groupcoord/consumer"
	"gregor/groupcoord/offsets"
	"gregor/groupcoord/schema"
	"gregor/internal/coordinator"
	"gregor/internal/timeline"
	"gregor/protocol"
)

type (
	effect = coordinator.Effect[schema.Record]
	handle = coordinator.Handle[schema.Record]
)

// expireKey is the timer that looks for expired offsets.
const expireKey = "expire-group-metadata"

// shard is the machine of one partition of __consumer_offsets.
type shard struct {
	handle
	checkInterval time.Duration
	// groups are the groups of all types by id.
	groups   *timeline.Map[string, group]
	offsets  *offsets.Store
	classic  *classic.Manager
	consumer *consumer.Manager
	// migration says which conversions between the protocols are allowed.
	migration Migration
	topics    func() consumer.Topics
	// classicMaxSize is group.max.size.
	classicMaxSize int
}

func newShard(h handle, opts *Options) *shard {
	cfg := &opts.Config
	s := &shard{
		handle: h, checkInterval: cfg.RetentionCheckInterval,
		groups:    timeline.NewMap[string, group](h.Registry),
		offsets:   offsets.NewStore(h.Registry, cfg.Offsets),
		migration: cfg.Migration, classicMaxSize: cfg.Classic.MaxSize, topics: func() consumer.Topics { return topicsOf(opts.Image()) },
	}
	s.consumer = consumer.NewManager(consumer.Options{
		Config: cfg.Consumer, Groups: s, Timers: h.Timers, Background: h.Background, Downgrader: s, Topics: s.topics,
		GroupConfig: opts.groupConfig, Rebalanced: opts.Events.consumerRebalanced, Logger: h.Logger,
	})
	s.classic = classic.NewManager(classic.ManagerOptions{
		Config: cfg.Classic, Groups: s, Timers: h.Timers, NewID: opts.NewUUID, Logger: h.Logger,
		RebalanceCompleted: opts.Events.rebalanceCompleted,
	})
	return s
}

// Classic implements classic.Groups.
func (s *shard) Classic(id string) *classic.Group {
	if g, ok := s.groups.Get(id); ok {
		if c, ok := g.(classicGroup); ok {
			return c.Group
		}
	}
	return nil
}

// Consumer implements consumer.Groups.
func (s *shard) Consumer(id string) *consumer.Group {
	if g, ok := s.groups.Get(id); ok {
		if c, ok := g.(consumerGroup); ok {
			return c.Group
		}
	}
	return nil
}

// lookup returns the newest group of that id.
func (s *shard) lookup(id string) (group, error) {
	if g, ok := s.groups.Get(id); ok {
		return g, nil
	}
	return nil, groupNotFound(id)
}

func groupNotFound(id string) error {
	return protocol.NewError(kerr.GroupIDNotFound.Code, "Group "+id+" not found.")
}

// newSimple makes a classic group for offsets alone. It is not written: its
// offsets bring it back.
func (s *shard) newSimple(id string) group {
	g := classicGroup{classic.NewGroup(id)}
	s.groups.Set(id, g)
	return g
}

// Replay implements coordinator.Machine. Records may come in any order that
// compaction leaves (R35).
func (s *shard) Replay(offset int64, producer coordinator.Producer, rec schema.Record) error {
	switch key := rec.Key.(type) {
	case *schema.OffsetCommitKey:
		value, _ := rec.Value.(*schema.OffsetCommitValue)
		s.replayOffset(offset, producer.ID, key, value)
	case *schema.LegacyOffsetCommitKey:
		value, _ := rec.Value.(*schema.LegacyOffsetCommitValue)
		s.replayOffset(offset, producer.ID, &schema.OffsetCommitKey{Group: key.Group, Topic: key.Topic, Partition: key.Partition}, modernOffset(value))
	case *schema.GroupMetadataKey:
		value, _ := rec.Value.(*schema.GroupMetadataValue)
		s.replayGroup(key.Group, value)
	default:
		if id, ok := consumer.GroupOf(rec.Key); ok {
			s.replayConsumer(id, rec)
			return nil
		}
		return s.replayForeign(rec)
	}
	return nil
}

// replayConsumer applies a record of a consumer group. A value makes the group
// where there is none, and replaces one of another type; a tombstone without its
// group is left over from a compaction.
func (s *shard) replayConsumer(id string, rec schema.Record) {
	g := s.Consumer(id)
	if g == nil {
		if rec.Value == nil {
			return
		}
		g = consumer.NewGroup(s.Registry, id)
		s.groups.Set(id, consumerGroup{g})
	}
	if g.Replay(rec) {
		s.groups.Delete(id)
	}
}

// modernOffset is the offset of a record as Kafka wrote it before 0.8.2.
func modernOffset(v *schema.LegacyOffsetCommitValue) *schema.OffsetCommitValue {
	if v == nil {
		return nil
	}
	out := schema.NewOffsetCommitValue()
	out.Offset, out.Metadata, out.CommitTimestamp = v.Offset, v.Metadata, v.CommitTimestamp
	return out
}

func (s *shard) replayOffset(offset, producerID int64, key *schema.OffsetCommitKey, value *schema.OffsetCommitValue) {
	if value != nil && !s.groups.Has(key.Group) {
		s.newSimple(key.Group)
	}
	s.offsets.Replay(offset, producerID, key, value)
}

// replayGroup applies the record of a classic group. Its tombstone does not
// concern a group of another type that has the id now.
func (s *shard) replayGroup(id string, value *schema.GroupMetadataValue) {
	if value != nil {
		s.groups.Set(id, classicGroup{classic.FromRecord(id, value)})
		return
	}
	if s.Classic(id) != nil {
		s.groups.Delete(id)
	}
}

// replayForeign applies a record of a group of another type.
func (s *shard) replayForeign(rec schema.Record) error {
	id, memberID, t := foreignKey(rec.Key)
	if t == TypeUnknown {
		s.Logger.Warn("record of an unknown kind of group ignored", "record", rec.Key.MessageName())
		return nil
	}
	current, _ := s.groups.Get(id)
	g, ok := current.(*foreignGroup)
	if !ok || g.groupType != t {
		if rec.Value == nil {
			return nil
		}
		g = newForeignGroup(s.Registry, id, t)
		s.groups.Set(id, g)
	}
	left, err := g.replay(rec, memberID)
	if err == nil && !left {
		s.groups.Delete(id)
	}
	return err
}

// ReplayEndTxn implements coordinator.Machine.
func (s *shard) ReplayEndTxn(producer coordinator.Producer, committed bool) {
	s.offsets.ReplayEndTxn(producer.ID, committed)
}

// Loaded implements coordinator.Machine.
func (s *shard) Loaded() {
	for _, id := range slices.Sorted(maps.Keys(maps.Collect(s.groups.All()))) {
		switch g, _ := s.groups.Get(id); g := g.(type) {
		case classicGroup:
			s.classic.Loaded(g.Group)
		case consumerGroup:
			s.consumer.Loaded(g.Group)
		}
	}
	s.scheduleExpiry()
}

// Unloaded implements coordinator.Machine.
func (s *shard) Unloaded(err error) {
	for _, g := range s.groups.All() {
		if c, ok := g.(classicGroup); ok {
			s.classic.Unloaded(c.Group, err)
		}
	}
}

func (s *shard) scheduleExpiry() {
	s.Timers.Schedule(expireKey, s.checkInterval, true, func() (effect, error) {
		s.scheduleExpiry()
		return s.expire(), nil
	})
}

// expire deletes the expired offsets, and the groups that have neither members
// nor offsets then.
func (s *shard) expire() effect {
	var records []schema.Record
	for _, id := range slices.Sorted(maps.Keys(maps.Collect(s.groups.All()))) {
		g, _ := s.groups.Get(id)
		if g.kind() == TypeShare {
			// Share groups keep their state until they are deleted.
			continue
		}
		expired, empty := s.offsets.Expire(id, g)
		records = append(records, expired...)
		if empty && g.isEmpty() {
			records = append(records, s.deleteGroup(g)...)
		}
	}
	if len(records) > 0 {
		s.Logger.Info("expired offsets and empty groups", "tombstones", len(records))
	}
	return effect{Records: records, Splittable: true}
}

// deleteGroup returns the tombstones of a group and forgets its timers.
func (s *shard) deleteGroup(g group) []schema.Record {
	switch g := g.(type) {
	case classicGroup:
		s.classic.Deleted(g.Group)
	case consumerGroup:
		s.consumer.Deleted(g.Group)
	}
	return g.tombstones()
}

// deleteGroups handles DeleteGroups for the groups of this partition.
func (s *shard) deleteGroups(ids []string) ([]kmsg.DeleteGroupsResponseGroup, effect, error) {
	out := make([]kmsg.DeleteGroupsResponseGroup, 0, len(ids))
	var records []schema.Record
	for _, id := range ids {
		result := kmsg.NewDeleteGroupsResponseGroup()
		result.Group = id
		g, err := s.lookup(id)
		if err == nil {
			err = g.validateDelete()
		}
		if err != nil {
			result.ErrorCode = protocol.ErrorCode(err)
		} else {
			records = append(records, s.offsets.DeleteAll(id)...)
			records = append(records, s.deleteGroup(g)...)
		}
		out = append(out, result)
	}
	return out, effect{Records: records}, nil
}

// topicsDeleted handles the deletion of topics.
func (s *shard) topicsDeleted(deleted []offsets.DeletedTopic) (struct{}, effect, error) {
	return struct{}{}, effect{Records: s.offsets.TopicsDeleted(deleted), Splittable: true}, nil
}
