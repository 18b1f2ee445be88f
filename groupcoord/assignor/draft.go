package assignor

import (
	"cmp"
	"slices"

	"gregor/groupcoord/javaorder"
	"gregor/protocol"
)

// defaultSlots are those of a table that is made without a size.
const defaultSlots = 16

// draft is an assignment that is being changed: Kafka's HashMap of HashSets.
type draft struct {
	table  *javaorder.Table[*draftTopic]
	topics map[protocol.UUID]*draftTopic
}

// draftTopic is a HashSet of partitions: its slots, and the partitions in the
// order in which they came.
type draftTopic struct {
	id         protocol.UUID
	slots      int
	partitions []int32
}

// topicOrder returns the topics of an assignment in the order of the table that
// is made of its record.
func topicOrder(a Assignment) Assignment {
	if len(a) < 2 {
		return a
	}
	entries := make([]javaorder.Entry[TopicPartitions], len(a))
	for i := range a {
		entries[i] = javaorder.Entry[TopicPartitions]{Hash: javaorder.UUID(a[i].Topic), Value: a[i]}
	}
	javaorder.Copied(entries, defaultSlots)
	return values(entries)
}

// copyOrder returns partitions in the order of the set that is made of a list of
// them.
func copyOrder(partitions []int32) []int32 {
	return setOrder(partitions, copySlots(partitions))
}

// copySlots is the number of slots of that set. The hash of a partition is its
// number.
func copySlots(partitions []int32) int {
	return javaorder.PutAll(javaorder.CopyCapacity(len(partitions)), partitions)
}

// setOrder returns partitions in the order of a HashSet with that many slots.
func setOrder(partitions []int32, slots int) []int32 {
	bySlot := func(a, b int32) int {
		return cmp.Compare(javaorder.Slot(a, slots), javaorder.Slot(b, slots))
	}
	if slices.IsSortedFunc(partitions, bySlot) {
		return partitions
	}
	out := slices.Clone(partitions)
	slices.SortStableFunc(out, bySlot)
	return out
}

// newDraft copies an assignment.
func newDraft(a Assignment) *draft {
	d := &draft{
		table:  javaorder.NewTable[*draftTopic](javaorder.Capacity(len(a))),
		topics: make(map[protocol.UUID]*draftTopic, len(a)),
	}
	for _, tp := range topicOrder(a) {
		partitions := copyOrder(tp.Partitions)
		t := &draftTopic{id: tp.Topic, slots: copySlots(partitions), partitions: slices.Clone(partitions)}
		d.topics[tp.Topic] = t
		d.table.Put(javaorder.UUID(tp.Topic), t)
	}
	return d
}

func (d *draft) drop(id protocol.UUID) {
	delete(d.topics, id)
	d.table.Delete(func(t *draftTopic) bool { return t.id == id })
}

// add gives a partition. slots are those of the set when it is the first of its
// topic.
func (d *draft) add(t topic, index int32, slots int) {
	d.table.Touch()
	set := d.topics[t.ID]
	if set == nil {
		set = &draftTopic{id: t.ID, slots: slots}
		d.topics[t.ID] = set
		d.table.Compute(t.hash, set)
	}
	set.partitions = append(set.partitions, index)
	set.slots = javaorder.Put(set.slots, set.partitions)
}

// keep takes all but some partitions of a topic away. They are in order of the
// set.
func (d *draft) keep(id protocol.UUID, kept []int32) {
	if len(kept) == 0 {
		d.drop(id)
		return
	}
	d.topics[id].partitions = slices.Clone(kept)
}

// remove takes a partition away.
func (d *draft) remove(id protocol.UUID, index int32) {
	set := d.topics[id]
	for i, p := range slices.Backward(set.partitions) {
		if p == index {
			set.partitions = slices.Delete(set.partitions, i, i+1)
			break
		}
	}
	if len(set.partitions) == 0 {
		d.drop(id)
	}
}

// assignment returns what became of the draft.
func (d *draft) assignment() Assignment {
	entries := d.table.Entries()
	out := make(Assignment, len(entries))
	for i, e := range entries {
		out[i] = TopicPartitions{Topic: e.Value.id, Partitions: setOrder(e.Value.partitions, e.Value.slots)}
	}
	return out
}
