package offsets

import (
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/groupcoord/schema"
	"gregor/protocol"
)

// Delete handles an OffsetDelete (KIP-496) of a group that exists.
func (s *Store) Delete(group Group, req *kmsg.OffsetDeleteRequest) (*kmsg.OffsetDeleteResponse, []schema.Record, error) {
	if err := group.ValidateOffsetDelete(); err != nil {
		return nil, nil, err
	}
	resp := req.ResponseKind().(*kmsg.OffsetDeleteResponse)
	var records []schema.Record
	for _, topic := range req.Topics {
		out := kmsg.NewOffsetDeleteResponseTopic()
		out.Topic = topic.Topic
		subscribed := group.Subscribed(topic.Topic)
		for _, p := range topic.Partitions {
			answer := kmsg.NewOffsetDeleteResponseTopicPartition()
			answer.Partition = p.Partition
			switch {
			case subscribed:
				answer.ErrorCode = kerr.GroupSubscribedToTopic.Code
			case s.Get(req.Group, topic.Topic, p.Partition) != nil || s.hasPending(req.Group, topic.Topic, p.Partition):
				records = append(records, tombstone(req.Group, topic.Topic, p.Partition))
			}
			out.Partitions = append(out.Partitions, answer)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp, records, nil
}

// DeleteAll returns the tombstones of all offsets of a group, pending ones too.
func (s *Store) DeleteAll(group string) (records []schema.Record) {
	s.committed.each(group, func(topic string, partition int32, _ *Offset) {
		records = append(records, tombstone(group, topic, partition))
	})
	open, ok := s.open.groups.Get(group)
	if !ok {
		return records
	}
	for _, topic := range slices.Sorted(maps.Keys(maps.Collect(open.All()))) {
		byPartition, _ := open.Get(topic)
		for _, partition := range slices.Sorted(maps.Keys(maps.Collect(byPartition.All()))) {
			if s.Get(group, topic, partition) == nil {
				records = append(records, tombstone(group, topic, partition))
			}
		}
	}
	return records
}

// DeletedTopic is a topic that exists no more.
type DeletedTopic struct {
	ID   protocol.UUID
	Name string
}

// TopicsDeleted returns the tombstones of all offsets of the topics. An offset
// whose topic id is another one belongs to a new topic of the name and stays.
func (s *Store) TopicsDeleted(deleted []DeletedTopic) (records []schema.Record) {
	clean := func(t table) {
		for group := range t.groups.All() {
			for _, topic := range deleted {
				byTopic, _ := t.groups.Get(group)
				offsets, ok := byTopic.Get(topic.Name)
				if !ok {
					continue
				}
				all := maps.Collect(offsets.All())
				for _, partition := range sortedKeys(all) {
					if o := all[partition]; o.TopicID.IsZero() || o.TopicID == topic.ID {
						records = append(records, tombstone(group, topic.Name, partition))
					}
				}
			}
		}
	}
	clean(s.committed)
	for _, pending := range s.pending.All() {
		clean(pending)
	}
	return records
}

// Expire returns the tombstones of a group's expired offsets, and whether the
// group has no offsets left then, committed or pending (R37).
func (s *Store) Expire(groupID string, group Group) (records []schema.Record, empty bool) {
	if !s.committed.groups.Has(groupID) {
		return nil, !s.open.groups.Has(groupID)
	}
	base, expires := group.ExpiryBase()
	if !expires {
		return nil, false
	}
	now := time.Now().UnixMilli()
	empty = true
	s.committed.each(groupID, func(topic string, partition int32, o *Offset) {
		if !group.Subscribed(topic) && s.expired(o, base, now) && !s.hasPending(groupID, topic, partition) {
			records = append(records, tombstone(groupID, topic, partition))
			return
		}
		empty = false
	})
	return records, empty && !s.open.groups.Has(groupID)
}

func (s *Store) expired(o *Offset, base func(*Offset) int64, nowMillis int64) bool {
	if o.ExpireMillis != noExpiry {
		return nowMillis >= o.ExpireMillis
	}
	return nowMillis-base(o) >= s.cfg.RetentionMillis
}
