// Package assignor holds the server-side assignors of consumer groups (KIP-848):
// range and uniform. An assignor is a pure function of the members, what they
// subscribe to and the target assignment they have now, and its results are those
// of Kafka 4.4's assignors of the same names.
//
// The latter include what Kafka leaves to its hash tables: which members come
// first when a partition is left over, in which order topics without an owner are
// handed out, and which partitions of a member that has too many go. All of it
// follows from the hashes of ids and names, from the sizes of the tables and, for
// keys that share a slot, from the order in which they came; see package
// javaorder. Therefore members come in the order in which Kafka visits them, names
// in that of the member's record, and an [Assignment] keeps the order of the
// record that it came from, which is that in which Kafka would write it.
//
// What Gregor cannot know, or does not model, changes a result only in the cases
// that are named here:
//
//   - the Java version: since Java 19 a copy of a set of exactly 12, 24, 48 or so
//     many partitions or names has half the slots. The results are those of Java 17.
//   - slots of more than eight keys, which Java makes into trees.
//   - the order in which a member sent its names, and names that it sent twice,
//     until they are in its record: Kafka keeps those of the heartbeat that makes
//     the assignment. It can only matter for two topics whose names share a slot
//     and whose ids do.
//   - a past that contradicts itself, which Kafka does not write: a partition with
//     two owners, or one that the topic does not have, stays with the first owner,
//     or goes, before the assignment begins. Kafka would give it to both, or fail.
package assignor

import (
	"bytes"
	"cmp"
	"slices"

	"gregor/protocol"
)

// TopicPartitions are partitions of one topic.
type TopicPartitions struct {
	Topic      protocol.UUID
	Partitions []int32
}

// Assignment is the partitions of a member, at most one entry for each topic, in
// the order of Kafka's tables. It is not changed once it was handed out.
type Assignment []TopicPartitions

// Of returns the partitions of a topic.
func (a Assignment) Of(topic protocol.UUID) []int32 {
	for i := range a {
		if a[i].Topic == topic {
			return a[i].Partitions
		}
	}
	return nil
}

// Equal reports whether both assign the same partitions, in whatever order.
func (a Assignment) Equal(b Assignment) bool {
	if len(a) != len(b) {
		return false
	}
	var topics map[protocol.UUID][]int32
	for i := range a {
		other := b[i].Partitions
		if a[i].Topic != b[i].Topic {
			if topics == nil {
				topics = b.byTopic()
			}
			other = topics[a[i].Topic]
		}
		if !sameElements(a[i].Partitions, other) {
			return false
		}
	}
	return true
}

// Sorted returns the assignment with topics and partitions in ascending order.
func (a Assignment) Sorted() Assignment {
	out := make(Assignment, len(a))
	for i := range a {
		out[i] = TopicPartitions{Topic: a[i].Topic, Partitions: slices.Sorted(slices.Values(a[i].Partitions))}
	}
	slices.SortFunc(out, func(a, b TopicPartitions) int { return bytes.Compare(a.Topic[:], b.Topic[:]) })
	return out
}

func (a Assignment) byTopic() map[protocol.UUID][]int32 {
	out := make(map[protocol.UUID][]int32, len(a))
	for i := range a {
		out[a[i].Topic] = a[i].Partitions
	}
	return out
}

// sameElements reports whether both hold the same, in whatever order.
func sameElements[E cmp.Ordered](a, b []E) bool {
	if len(a) != len(b) || len(a) == 0 || &a[0] == &b[0] {
		return len(a) == len(b)
	}
	return slices.Equal(a, b) || slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// Topic is an existing topic.
type Topic struct {
	ID         protocol.UUID
	Partitions int32
}

// Member is what an assignor knows of a member.
type Member struct {
	ID         string
	InstanceID *string
	// Names are the topics that the member names, each once; they need not exist.
	Names []string
	// Pattern is the regular expression that it subscribes to, empty for none.
	Pattern string
	// Current is the target assignment so far.
	Current Assignment
}

// Group is the input of an assignor.
type Group struct {
	// Members in the order in which Kafka visits its table of them.
	Members []Member
	// Topic finds an existing topic.
	Topic func(name string) (Topic, bool)
	// Patterns are the names of topics that match each pattern, where that is
	// known.
	Patterns map[string][]string
}

// Assignor computes target assignments, in the order of the members. Every
// partition of a topic with a subscriber is assigned to exactly one of them. An
// assignment that did not change is returned as it was.
type Assignor interface {
	// Name as in group.consumer.assignors.
	Name() string
	Assign(g Group) []Assignment
}

// ByName returns the assignor of that name.
func ByName(name string) (Assignor, bool) {
	switch name {
	case Range{}.Name():
		return Range{}, true
	case Uniform{}.Name():
		return Uniform{}, true
	}
	return nil, false
}

// Homogeneous reports whether Kafka takes all members as subscribing to the same
// topics. It counts names, also those of topics that do not exist; members that
// share a pattern are alike when none of them names a topic.
func (g Group) Homogeneous() bool {
	if len(g.Members) == 0 {
		return true
	}
	pattern := g.Members[0].Pattern
	for i := range g.Members {
		if g.Members[i].Pattern != pattern {
			return false
		}
	}
	names := g.Members[0].Names
	for i := range g.Members {
		if pattern != "" && len(g.Members[i].Names) > 0 || !sameElements(g.Members[i].Names, names) {
			return false
		}
	}
	return true
}
