package offsets

import "gregor/groupcoord/schema"

// noProducer is the producer id of a record outside of transactions.
const noProducer int64 = -1

// Replay applies a record. A nil value is a tombstone; it also takes back what
// open transactions wrote for the partition.
func (s *Store) Replay(recordOffset, producerID int64, key *schema.OffsetCommitKey, value *schema.OffsetCommitValue) {
	switch {
	case value == nil:
		s.replayTombstone(key)
	case producerID == noProducer:
		s.committed.put(key.Group, key.Topic, key.Partition, fromValue(recordOffset, value))
	default:
		pending, ok := s.pending.Get(producerID)
		if !ok {
			pending = newTable(s.registry)
			s.pending.Set(producerID, pending)
		}
		pending.put(key.Group, key.Topic, key.Partition, fromValue(recordOffset, value))
		s.open.add(key.Group, key.Topic, key.Partition, producerID)
	}
}

func (s *Store) replayTombstone(key *schema.OffsetCommitKey) {
	s.committed.remove(key.Group, key.Topic, key.Partition)
	ids := s.open.producers(key.Group, key.Topic, key.Partition)
	if ids == nil {
		return
	}
	for id := range ids.All() {
		if pending, ok := s.pending.Get(id); ok {
			pending.remove(key.Group, key.Topic, key.Partition)
		}
	}
	s.open.clear(key.Group, key.Topic, key.Partition)
}

// ReplayEndTxn applies the end of a producer's transaction. Committed offsets
// replace older ones, but not those that a later record wrote meanwhile: the
// log's order counts, not that of the markers. It returns the groups that got
// offsets.
func (s *Store) ReplayEndTxn(producerID int64, committed bool) (groups []string) {
	pending, ok := s.pending.Get(producerID)
	if !ok {
		return nil
	}
	s.pending.Delete(producerID)
	for group := range pending.groups.All() {
		pending.each(group, func(topic string, partition int32, o *Offset) {
			s.open.remove(group, topic, partition, producerID)
			if !committed {
				return
			}
			if old := s.committed.get(group, topic, partition); old == nil || o.RecordOffset > old.RecordOffset {
				s.committed.put(group, topic, partition, o)
			}
		})
		groups = append(groups, group)
	}
	return groups
}
