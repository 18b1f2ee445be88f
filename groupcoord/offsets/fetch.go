package offsets

import (
	"errors"
	"maps"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/internal/timeline"
	"gregor/protocol"
)

// View is a state to read from.
type View bool

// The views: the committed state answers at once; a fetch that requires stable
// offsets looks at the newest one and waits like a write.
const (
	Committed View = true
	Newest    View = false
)

// lookup reads a key in the view.
func lookup[K comparable, V any](view View, m *timeline.Map[K, V], key K) (V, bool) {
	switch {
	case m == nil:
		var zero V
		return zero, false
	case view == Committed:
		return m.GetCommitted(key)
	default:
		return m.Get(key)
	}
}

// collect copies the map as the view sees it.
func collect[K comparable, V any](view View, m *timeline.Map[K, V]) map[K]V {
	if view == Committed {
		return maps.Collect(m.AllCommitted())
	}
	return maps.Collect(m.All())
}

// Fetch handles one group of an OffsetFetch; null topics mean all. group is nil
// when there is no such group, which is not an error: its partitions have no
// offsets. In the newest view a partition that an open transaction commits gets
// UNSTABLE_OFFSET_COMMIT (requireStable).
func (s *Store) Fetch(view View, group Group, req *kmsg.OffsetFetchRequestGroup) (kmsg.OffsetFetchResponseGroup, error) {
	resp := kmsg.NewOffsetFetchResponseGroup()
	resp.Group = req.Group
	exists := group != nil
	if exists {
		err := group.ValidateFetch(req.MemberID, req.MemberEpoch, view == Committed)
		if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
			return resp, err
		}
		exists = err == nil
	}
	f := fetcher{view: view}
	if exists {
		f.offsets, _ = lookup(view, s.committed.groups, req.Group)
	}
	if view == Newest {
		f.open, _ = s.open.groups.Get(req.Group)
	}
	if req.Topics == nil {
		if exists && f.offsets != nil {
			resp.Topics = f.all()
		}
		return resp, nil
	}
	resp.Topics = make([]kmsg.OffsetFetchResponseGroupTopic, 0, len(req.Topics))
	for i := range req.Topics {
		resp.Topics = append(resp.Topics, f.topic(&req.Topics[i]))
	}
	return resp, nil
}

// fetcher reads the offsets of one group.
type fetcher struct {
	view    View
	offsets topics
	open    *timeline.Map[string, *timeline.Map[int32, producers]]
}

func (f fetcher) topic(req *kmsg.OffsetFetchRequestGroupTopic) kmsg.OffsetFetchResponseGroupTopic {
	out := kmsg.NewOffsetFetchResponseGroupTopic()
	out.Topic, out.TopicID = req.Topic, req.TopicID
	offsets, _ := lookup(f.view, f.offsets, req.Topic)
	out.Partitions = make([]kmsg.OffsetFetchResponseGroupTopicPartition, 0, len(req.Partitions))
	for _, partition := range req.Partitions {
		o, _ := lookup(f.view, offsets, partition)
		if o != nil && otherTopic(o.TopicID, req.TopicID) {
			// The offset is of an earlier topic of that name.
			o = nil
		}
		out.Partitions = append(out.Partitions, f.partition(req.Topic, partition, o))
	}
	return out
}

// otherTopic reports whether both ids are known and differ.
func otherTopic(stored, asked protocol.UUID) bool {
	return !stored.IsZero() && !asked.IsZero() && stored != asked
}

// all answers null topics: everything that is committed.
func (f fetcher) all() []kmsg.OffsetFetchResponseGroupTopic {
	var out []kmsg.OffsetFetchResponseGroupTopic
	byTopic := collect(f.view, f.offsets)
	for _, name := range sortedKeys(byTopic) {
		topic := kmsg.NewOffsetFetchResponseGroupTopic()
		topic.Topic = name
		byPartition := collect(f.view, byTopic[name])
		for _, partition := range sortedKeys(byPartition) {
			topic.Partitions = append(topic.Partitions, f.partition(name, partition, byPartition[partition]))
		}
		out = append(out, topic)
	}
	return out
}

func (f fetcher) partition(topic string, partition int32, o *Offset) kmsg.OffsetFetchResponseGroupTopicPartition {
	out := kmsg.NewOffsetFetchResponseGroupTopicPartition()
	out.Partition, out.Offset, out.LeaderEpoch = partition, NoOffset, -1
	empty := ""
	out.Metadata = &empty
	switch {
	case f.unstable(topic, partition):
		out.ErrorCode = kerr.UnstableOffsetCommit.Code
	case o != nil:
		out.Offset, out.LeaderEpoch, out.Metadata = o.Offset, o.LeaderEpoch, &o.Metadata
	}
	return out
}

func (f fetcher) unstable(topic string, partition int32) bool {
	if f.open == nil {
		return false
	}
	byPartition, ok := f.open.Get(topic)
	return ok && byPartition.Has(partition)
}
