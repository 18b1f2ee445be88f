package assignor

import (
	"cmp"
	"slices"
	"unicode/utf16"

	"gregor/groupcoord/javaorder"
	"gregor/protocol"
)

// topic is a subscribed topic; the assignors know it by its number.
type topic struct {
	Topic
	hash int32
}

// subscription is what one or more members subscribe to.
type subscription struct {
	// names are the subscribed names, before the existing of them were looked up.
	names, matches []string
	// count is the number of names, topics those that exist, in Kafka's order.
	count  int
	topics []int
	// has are the topics of a subscription to many.
	has map[int]bool
}

// manyTopics is from when on a set is quicker than a list.
const manyTopics = 16

// subscribes reports whether a topic is among those of s.
func (s *subscription) subscribes(topic int) bool {
	if len(s.topics) < manyTopics {
		return slices.Contains(s.topics, topic)
	}
	if s.has == nil {
		s.has = make(map[int]bool, len(s.topics))
		for _, t := range s.topics {
			s.has[t] = true
		}
	}
	return s.has[topic]
}

// problem is a group with its topics looked up.
type problem struct {
	// members are the indices of the group's members in the order of Kafka's
	// table of them.
	members []int
	group   Group
	topics  []topic
	numbers map[protocol.UUID]int
	// subscribes has the subscription of each member of the group.
	subscribes []*subscription
	// drafts are the assignments that uniform changes, of the members whose do.
	drafts []*draft
	out    []Assignment
}

func newProblem(g Group) *problem {
	p := &problem{
		group: g, members: memberOrder(g.Members), numbers: make(map[protocol.UUID]int),
		subscribes: make([]*subscription, len(g.Members)), out: make([]Assignment, len(g.Members)),
	}
	byName := make(map[string]int)
	var last *subscription
	for i := range g.Members {
		m := &g.Members[i]
		matches := g.Patterns[m.Pattern]
		// Members mostly subscribe to the same as the one before.
		if last == nil || !slices.Equal(last.names, m.Names) || !slices.Equal(last.matches, matches) {
			last = p.subscription(m.Names, matches, byName)
		}
		p.subscribes[i] = last
	}
	return p
}

// memberOrder is that of a HashMap to which the members were added.
func memberOrder(members []Member) []int {
	entries := make([]javaorder.Entry[int], len(members))
	for i := range members {
		entries[i] = javaorder.Entry[int]{Hash: javaorder.String(members[i].ID), Value: i}
	}
	javaorder.Copied(entries, defaultSlots)
	return values(entries)
}

func values[T any](entries []javaorder.Entry[T]) []T {
	out := make([]T, len(entries))
	for i := range entries {
		out[i] = entries[i].Value
	}
	return out
}

// nameSet is the order of a HashSet that is made of a list of names.
func nameSet(names []string) []string {
	if len(names) < 2 {
		return names
	}
	entries := make([]javaorder.Entry[string], len(names))
	for i, name := range names {
		entries[i] = javaorder.Entry[string]{Hash: javaorder.String(name), Value: name}
	}
	javaorder.Copied(entries, javaorder.CopyCapacity(len(names)))
	return values(entries)
}

// subscription looks the topics up. Of names and matches of a pattern the larger
// set comes first.
func (p *problem) subscription(names, matches []string, byName map[string]int) *subscription {
	s := &subscription{names: names, matches: matches}
	all := nameSet(names)
	switch {
	case len(matches) == 0:
	case len(names) > len(matches):
		all = union(all, nameSet(matches))
	default:
		all = union(nameSet(matches), all)
	}
	s.count, s.topics = len(all), make([]int, 0, len(all))
	for _, name := range all {
		number, seen := byName[name]
		if !seen {
			number = p.lookUp(name)
			byName[name] = number
		}
		if number >= 0 {
			s.topics = append(s.topics, number)
		}
	}
	return s
}

func union(large, small []string) []string {
	if len(small) == 0 {
		return large
	}
	has := make(map[string]bool, len(large))
	for _, name := range large {
		has[name] = true
	}
	out := slices.Clip(large)
	for _, name := range small {
		if !has[name] {
			out = append(out, name)
		}
	}
	return out
}

// lookUp numbers a topic, -1 for one that does not exist.
func (p *problem) lookUp(name string) int {
	t, ok := p.group.Topic(name)
	if !ok {
		return -1
	}
	p.numbers[t.ID] = len(p.topics)
	p.topics = append(p.topics, topic{Topic: t, hash: javaorder.UUID(t.ID)})
	return len(p.topics) - 1
}

// number finds a topic that some member subscribes to.
func (p *problem) number(id protocol.UUID) (int, bool) {
	if len(p.topics) == 1 {
		return 0, p.topics[0].ID == id
	}
	n, ok := p.numbers[id]
	return n, ok
}

func (p *problem) member(i int) *Member { return &p.group.Members[i] }

// draft returns a member's assignment, to be changed.
func (p *problem) draft(member int) *draft {
	if p.drafts[member] == nil {
		p.drafts[member] = newDraft(p.member(member).Current)
	}
	return p.drafts[member]
}

// subscribed returns the number of a topic that a member subscribes to.
func (p *problem) subscribed(member int, id protocol.UUID) (topic int, ok bool) {
	topic, ok = p.number(id)
	return topic, ok && p.subscribes[member].subscribes(topic)
}

// compareUTF16 is Java's order of strings.
func compareUTF16(a, b string) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			if a[i] < 0x80 && b[i] < 0x80 {
				return cmp.Compare(a[i], b[i])
			}
			return slices.Compare(utf16.Encode([]rune(a)), utf16.Encode([]rune(b)))
		}
	}
	return cmp.Compare(len(a), len(b))
}
