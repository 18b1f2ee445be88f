package offsets

import (
	"cmp"
	"maps"
	"slices"

	"gregor/internal/timeline"
)

// table maps group, topic and partition to an offset. An empty inner map is
// taken out, so that a group without offsets is not in it.
type table struct {
	registry *timeline.Registry
	groups   *timeline.Map[string, topics]
}

type (
	topics     = *timeline.Map[string, partitions]
	partitions = *timeline.Map[int32, *Offset]
)

func newTable(registry *timeline.Registry) table {
	return table{registry: registry, groups: timeline.NewMap[string, topics](registry)}
}

func (t table) get(group, topic string, partition int32) *Offset {
	if ts, ok := t.groups.Get(group); ok {
		if ps, ok := ts.Get(topic); ok {
			o, _ := ps.Get(partition)
			return o
		}
	}
	return nil
}

func (t table) put(group, topic string, partition int32, o *Offset) {
	ts, ok := t.groups.Get(group)
	if !ok {
		ts = timeline.NewMap[string, partitions](t.registry)
		t.groups.Set(group, ts)
	}
	ps, ok := ts.Get(topic)
	if !ok {
		ps = timeline.NewMap[int32, *Offset](t.registry)
		ts.Set(topic, ps)
	}
	ps.Set(partition, o)
}

func (t table) remove(group, topic string, partition int32) {
	ts, ok := t.groups.Get(group)
	if !ok {
		return
	}
	ps, ok := ts.Get(topic)
	if !ok {
		return
	}
	ps.Delete(partition)
	if ps.Len() == 0 {
		ts.Delete(topic)
	}
	if ts.Len() == 0 {
		t.groups.Delete(group)
	}
}

// each visits the offsets of a group in order of topic and partition, so that
// what is written and answered does not depend on chance.
func (t table) each(group string, visit func(topic string, partition int32, o *Offset)) {
	ts, ok := t.groups.Get(group)
	if !ok {
		return
	}
	for _, topic := range sortedKeys(maps.Collect(ts.All())) {
		ps, _ := ts.Get(topic)
		for _, partition := range sortedKeys(maps.Collect(ps.All())) {
			o, _ := ps.Get(partition)
			visit(topic, partition, o)
		}
	}
}

// openTxns maps group, topic and partition to the producers whose open
// transactions commit it.
type openTxns struct {
	registry *timeline.Registry
	groups   *timeline.Map[string, *timeline.Map[string, *timeline.Map[int32, producers]]]
}

type producers = *timeline.Map[int64, struct{}]

func newOpenTxns(registry *timeline.Registry) openTxns {
	return openTxns{registry: registry, groups: timeline.NewMap[string, *timeline.Map[string, *timeline.Map[int32, producers]]](registry)}
}

func (t openTxns) producers(group, topic string, partition int32) producers {
	if ts, ok := t.groups.Get(group); ok {
		if ps, ok := ts.Get(topic); ok {
			ids, _ := ps.Get(partition)
			return ids
		}
	}
	return nil
}

func (t openTxns) add(group, topic string, partition int32, producerID int64) {
	ts, ok := t.groups.Get(group)
	if !ok {
		ts = timeline.NewMap[string, *timeline.Map[int32, producers]](t.registry)
		t.groups.Set(group, ts)
	}
	ps, ok := ts.Get(topic)
	if !ok {
		ps = timeline.NewMap[int32, producers](t.registry)
		ts.Set(topic, ps)
	}
	ids, ok := ps.Get(partition)
	if !ok {
		ids = timeline.NewMap[int64, struct{}](t.registry)
		ps.Set(partition, ids)
	}
	ids.Set(producerID, struct{}{})
}

func (t openTxns) remove(group, topic string, partition int32, producerID int64) {
	ids := t.producers(group, topic, partition)
	if ids == nil {
		return
	}
	ids.Delete(producerID)
	if ids.Len() == 0 {
		t.clear(group, topic, partition)
	}
}

// clear forgets all producers of a partition.
func (t openTxns) clear(group, topic string, partition int32) {
	ts, ok := t.groups.Get(group)
	if !ok {
		return
	}
	ps, ok := ts.Get(topic)
	if !ok {
		return
	}
	ps.Delete(partition)
	if ps.Len() == 0 {
		ts.Delete(topic)
	}
	if ts.Len() == 0 {
		t.groups.Delete(group)
	}
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
