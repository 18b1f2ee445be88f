package assignor_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"gregor/groupcoord/assignor"
	"gregor/protocol"
)

func id(n byte) protocol.UUID { return protocol.UUID{n} }

// topic is the topic of a name that is a letter.
func topicOf(name string) protocol.UUID { return id(name[0]) }

// group makes a group of topics, given as their number of partitions by a name of one letter.
func group(partitions map[string]int32, members ...assignor.Member) assignor.Group {
	return assignor.Group{Members: members, Topic: func(name string) (assignor.Topic, bool) {
		n, ok := partitions[name]
		return assignor.Topic{ID: topicOf(name), Partitions: n}, ok
	}}
}

// has is an assignment of one topic.
func has(name string, partitions ...int32) assignor.TopicPartitions {
	return assignor.TopicPartitions{Topic: topicOf(name), Partitions: partitions}
}

// assign returns the assignments by member.
func assign(a assignor.Assignor, g assignor.Group) map[string]assignor.Assignment {
	out := make(map[string]assignor.Assignment)
	for i, got := range a.Assign(g) {
		out[g.Members[i].ID] = got
	}
	return out
}

func check(t *testing.T, got assignor.Assignment, want ...assignor.TopicPartitions) {
	t.Helper()
	if !got.Equal(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestRangeLinesTopicsUp(t *testing.T) {
	both := []string{"s", "t"}
	got := assign(assignor.Range{}, group(map[string]int32{"s": 7, "t": 2},
		assignor.Member{ID: "b", Names: both}, assignor.Member{ID: "a", Names: both}, assignor.Member{ID: "z", InstanceID: new("i"), Names: both}))
	check(t, got["z"], has("s", 0, 1, 2), has("t", 0))
	check(t, got["a"], has("s", 3, 4), has("t", 1))
	check(t, got["b"], has("s", 5, 6))
}

func TestRangeCountsOnlySubscribers(t *testing.T) {
	got := assign(assignor.Range{}, group(map[string]int32{"s": 4, "t": 3},
		assignor.Member{ID: "a", Names: []string{"s"}}, assignor.Member{ID: "b", Names: []string{"s", "t"}}, assignor.Member{ID: "c", Names: []string{"t"}}))
	check(t, got["a"], has("s", 0, 1))
	check(t, got["b"], has("s", 2, 3), has("t", 0, 1))
	check(t, got["c"], has("t", 2))
}

func TestRangeOrdersIDsAsJavaDoes(t *testing.T) {
	// In UTF-16 the surrogates of the second come before the first.
	first, second := "\uff5e", "😀"
	got := assign(assignor.Range{}, group(map[string]int32{"s": 2}, assignor.Member{ID: first, Names: []string{"s"}}, assignor.Member{ID: second, Names: []string{"s"}}))
	check(t, got[second], has("s", 0))
	check(t, got[first], has("s", 1))
}

func TestUniformMovesOnlyWhatANewMemberNeeds(t *testing.T) {
	names := []string{"s"}
	got := assign(assignor.Uniform{}, group(map[string]int32{"s": 6},
		assignor.Member{ID: "a", Names: names, Current: assignor.Assignment{has("s", 0, 1, 2)}},
		assignor.Member{ID: "b", Names: names, Current: assignor.Assignment{has("s", 3, 4, 5)}},
		assignor.Member{ID: "c", Names: names}))
	check(t, got["a"], has("s", 0, 1))
	check(t, got["b"], has("s", 3, 4))
	check(t, got["c"], has("s", 2, 5))
}

func TestTopicsThatDoNotExistAreLeftOut(t *testing.T) {
	for _, a := range []assignor.Assignor{assignor.Range{}, assignor.Uniform{}} {
		got := assign(a, group(map[string]int32{"s": 1}, assignor.Member{ID: "a", Names: []string{"s", "x"}}))
		check(t, got["a"], has("s", 0))
	}
}

func TestMembersAreAlikeByTheirNames(t *testing.T) {
	names := func(n ...string) []string { return n }
	for _, c := range []struct {
		members []assignor.Member
		want    bool
	}{
		{nil, true},
		{[]assignor.Member{{Names: names("s", "t")}, {Names: names("t", "s")}}, true},
		// The names count, whether there are such topics or not.
		{[]assignor.Member{{Names: names("s", "x")}, {Names: names("s")}}, false},
		{[]assignor.Member{{Pattern: "p"}, {Pattern: "p"}}, true},
		{[]assignor.Member{{Pattern: "p"}, {Pattern: "q"}}, false},
		{[]assignor.Member{{Pattern: "p"}, {Names: names("s")}}, false},
		{[]assignor.Member{{Pattern: "p", Names: names("s")}, {Pattern: "p", Names: names("s")}}, false},
	} {
		if got := group(nil, c.members...).Homogeneous(); got != c.want {
			t.Errorf("%v: %v", c.members, got)
		}
	}
}

func size(a assignor.Assignment) (n int) {
	for _, tp := range a {
		n += len(tp.Partitions)
	}
	return n
}

func TestAssignorsHaveNames(t *testing.T) {
	for _, name := range []string{"range", "uniform"} {
		if a, ok := assignor.ByName(name); !ok || a.Name() != name {
			t.Errorf("no assignor %s", name)
		}
	}
	if _, ok := assignor.ByName("sticky"); ok {
		t.Error("there is no assignor sticky")
	}
}

func TestNobodyGetsNothing(t *testing.T) {
	for _, a := range []assignor.Assignor{assignor.Range{}, assignor.Uniform{}} {
		if got := a.Assign(assignor.Group{}); len(got) != 0 {
			t.Errorf("got %v", got)
		}
		check(t, assign(a, group(nil, assignor.Member{ID: "a"}))["a"])
		check(t, assign(a, group(nil, assignor.Member{ID: "a", Current: assignor.Assignment{has("s", 1)}}))["a"])
	}
}

func TestEqualComparesSets(t *testing.T) {
	a := assignor.Assignment{has("s", 1, 0), has("t", 2)}
	for _, c := range []struct {
		b    assignor.Assignment
		want bool
	}{
		{assignor.Assignment{has("t", 2), has("s", 0, 1)}, true},
		{assignor.Assignment{has("s", 1, 0)}, false},
		{assignor.Assignment{has("s", 1, 0), has("t", 3)}, false},
		{assignor.Assignment{has("s", 1, 0), has("u", 2)}, false},
		{assignor.Assignment{has("s", 1), has("t", 2)}, false},
	} {
		if got := a.Equal(c.b); got != c.want {
			t.Errorf("%v: %v", c.b, got)
		}
	}
}

// drawGroup makes a group with an arbitrary, possibly contradictory, past.
func drawGroup(t *rapid.T, same bool) (assignor.Group, map[string]int32) {
	partitions := map[string]int32{}
	for _, name := range []string{"s", "t", "u", "v"}[:rapid.IntRange(1, 4).Draw(t, "topics")] {
		partitions[name] = rapid.Int32Range(1, 8).Draw(t, "partitions")
	}
	var members []assignor.Member
	numMembers := rapid.IntRange(1, 6).Draw(t, "members")
	for i := range numMembers {
		m := assignor.Member{ID: fmt.Sprint("m", i)}
		for _, name := range slices.Sorted(maps.Keys(partitions)) {
			if same || rapid.Bool().Draw(t, "subscribes") {
				m.Names = append(m.Names, name)
			}
			current := has(name)
			for p := range partitions[name] + 1 {
				if rapid.IntRange(0, numMembers).Draw(t, "has") == 0 {
					current.Partitions = append(current.Partitions, p)
				}
			}
			if len(current.Partitions) > 0 {
				m.Current = append(m.Current, current)
			}
		}
		members = append(members, m)
	}
	return group(partitions, members...), partitions
}

// valid checks what every assignment has to satisfy.
func valid(t *rapid.T, g assignor.Group, partitions map[string]int32, got []assignor.Assignment) {
	type partition struct {
		topic protocol.UUID
		index int32
	}
	owner := map[partition]string{}
	for i, m := range g.Members {
		for _, tp := range got[i] {
			name := string(tp.Topic[0])
			if !slices.Contains(m.Names, name) {
				t.Fatalf("%s got topic %s without a subscription", m.ID, name)
			}
			if len(tp.Partitions) == 0 {
				t.Fatalf("%s got %v", m.ID, got[i])
			}
			for _, index := range tp.Partitions {
				p := partition{tp.Topic, index}
				if other, dup := owner[p]; dup {
					t.Fatalf("partition %d has the owners %s and %s", index, other, m.ID)
				}
				if index < 0 || index >= partitions[name] {
					t.Fatalf("partition %d does not exist", index)
				}
				owner[p] = m.ID
			}
		}
	}
	want := 0
	for name, n := range partitions {
		if slices.ContainsFunc(g.Members, func(m assignor.Member) bool { return slices.Contains(m.Names, name) }) {
			want += int(n)
		}
	}
	if len(owner) != want {
		t.Fatalf("%d partitions assigned of %d", len(owner), want)
	}
}

func TestEveryPartitionHasExactlyOneSubscriber(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g, partitions := drawGroup(t, rapid.Bool().Draw(t, "same"))
		for _, a := range []assignor.Assignor{assignor.Range{}, assignor.Uniform{}} {
			before := fmt.Sprint(g.Members)
			got := a.Assign(g)
			valid(t, g, partitions, got)
			if fmt.Sprint(got) != fmt.Sprint(a.Assign(g)) {
				t.Fatalf("%s is not deterministic", a.Name())
			}
			if fmt.Sprint(g.Members) != before {
				t.Fatalf("%s changed its input", a.Name())
			}
		}
	})
}

func TestUniformDiffersByOneAtMostWhenAllSubscribeToTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g, _ := drawGroup(t, true)
		least, most := 1<<30, 0
		for _, a := range (assignor.Uniform{}).Assign(g) {
			least, most = min(least, size(a)), max(most, size(a))
		}
		if most-least > 1 {
			t.Fatalf("between %d and %d partitions", least, most)
		}
	})
}

// Kafka's assignor evens the subscribers of each topic out, not chains of members who share topics pairwise.
func TestUniformEvensTheSubscribersOfEachTopicOut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g, partitions := drawGroup(t, false)
		got := assignor.Uniform{}.Assign(g)
		for name := range partitions {
			least, most := 1<<30, 0
			for i, m := range g.Members {
				if !slices.Contains(m.Names, name) {
					continue
				}
				least = min(least, size(got[i]))
				if len(got[i].Of(topicOf(name))) > 0 {
					most = max(most, size(got[i]))
				}
			}
			if most-least > 1 {
				t.Fatalf("topic %s could move from a member with %d to one with %d partitions: %v", name, most, least, got)
			}
		}
	})
}

func TestUniformMovesNothingWhenItIsRunAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g, _ := drawGroup(t, rapid.Bool().Draw(t, "same"))
		first := assignor.Uniform{}.Assign(g)
		for i := range g.Members {
			g.Members[i].Current = first[i]
		}
		second := assignor.Uniform{}.Assign(g)
		for i := range first {
			if !first[i].Equal(second[i]) {
				t.Fatalf("%s had %v and got %v", g.Members[i].ID, first[i], second[i])
			}
		}
	})
}

func BenchmarkUniformOf500MembersAnd2000Partitions(b *testing.B) {
	var members []assignor.Member
	for i := range 500 {
		members = append(members, assignor.Member{ID: fmt.Sprint("m", i), Names: []string{"s"}})
	}
	g := group(map[string]int32{"s": 2000}, members...)
	for b.Loop() {
		assignor.Uniform{}.Assign(g)
	}
}

// The member that joins last gets its partitions from the others.
func BenchmarkUniformOfOneMoreOf500Members(b *testing.B) {
	var members []assignor.Member
	for i := range 500 {
		members = append(members, assignor.Member{ID: fmt.Sprintf("01234567-89ab-cdef-%d", i), Names: []string{"s"}})
	}
	g := group(map[string]int32{"s": 500}, members[:499]...)
	for i, a := range (assignor.Uniform{}).Assign(g) {
		members[i].Current = a
	}
	g.Members = members
	for b.Loop() {
		assignor.Uniform{}.Assign(g)
	}
}
