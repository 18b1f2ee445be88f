package assignor

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"gregor/protocol"
)

func id(n byte) protocol.UUID { return protocol.UUID{n} }

func topics(ids ...byte) map[protocol.UUID]struct{} {
	out := make(map[protocol.UUID]struct{})
	for _, n := range ids {
		out[id(n)] = struct{}{}
	}
	return out
}

func assign(t *testing.T, a Assignor, g Group) map[string]Assignment {
	t.Helper()
	out, err := a.Assign(g)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func equal(t *testing.T, got, want any) {
	t.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		t.Errorf("got %s, want %s", g, w)
	}
}

func TestRangeLinesTopicsUp(t *testing.T) {
	g := Group{
		Members:    []Member{{ID: "b", Topics: topics(1, 2)}, {ID: "a", Topics: topics(1, 2)}, {ID: "z", InstanceID: new("i"), Topics: topics(1, 2)}},
		Partitions: map[protocol.UUID]int32{id(1): 7, id(2): 2},
	}
	got := assign(t, Range{}, g)
	equal(t, got["z"], Assignment{id(1): {0, 1, 2}, id(2): {0}})
	equal(t, got["a"], Assignment{id(1): {3, 4}, id(2): {1}})
	equal(t, got["b"], Assignment{id(1): {5, 6}})
}

func TestRangeCountsOnlySubscribers(t *testing.T) {
	g := Group{
		Members:    []Member{{ID: "a", Topics: topics(1)}, {ID: "b", Topics: topics(1, 2)}, {ID: "c", Topics: topics(2)}},
		Partitions: map[protocol.UUID]int32{id(1): 4, id(2): 3},
	}
	got := assign(t, Range{}, g)
	equal(t, got["a"], Assignment{id(1): {0, 1}})
	equal(t, got["b"], Assignment{id(1): {2, 3}, id(2): {0, 1}})
	equal(t, got["c"], Assignment{id(2): {2}})
}

func TestUniformMovesOnlyWhatANewMemberNeeds(t *testing.T) {
	g := Group{
		Members: []Member{
			{ID: "a", Topics: topics(1), Current: Assignment{id(1): {0, 1, 2}}},
			{ID: "b", Topics: topics(1), Current: Assignment{id(1): {3, 4, 5}}},
			{ID: "c", Topics: topics(1)},
		},
		Partitions: map[protocol.UUID]int32{id(1): 6},
	}
	got := assign(t, Uniform{}, g)
	equal(t, got["a"], Assignment{id(1): {0, 1}})
	equal(t, got["b"], Assignment{id(1): {3, 4}})
	equal(t, got["c"], Assignment{id(1): {2, 5}})
}

func TestUniformIsEvenThroughAChainOfMembers(t *testing.T) {
	// a shares only with b, b only with c: both have to hand one on.
	g := Group{
		Members: []Member{
			{ID: "a", Topics: topics(1), Current: Assignment{id(1): {0, 1, 2, 3, 4}}},
			{ID: "b", Topics: topics(1, 2), Current: Assignment{id(2): {0, 1, 2, 3}}},
			{ID: "c", Topics: topics(2, 3), Current: Assignment{id(3): {0, 1, 2}}},
		},
		Partitions: map[protocol.UUID]int32{id(1): 5, id(2): 4, id(3): 3},
	}
	got := assign(t, Uniform{}, g)
	for _, m := range []string{"a", "b", "c"} {
		equal(t, size(got[m]), 4)
	}
}

func size(a Assignment) (n int) {
	for _, partitions := range a {
		n += len(partitions)
	}
	return n
}

func TestUnknownTopicIsAnError(t *testing.T) {
	g := Group{Members: []Member{{ID: "a", Topics: topics(1)}}}
	for _, name := range []string{"range", "uniform"} {
		a, ok := ByName(name)
		if !ok || a.Name() != name {
			t.Fatalf("no assignor %s", name)
		}
		if _, err := a.Assign(g); err == nil {
			t.Errorf("%s assigned an unknown topic", name)
		}
	}
	if _, ok := ByName("sticky"); ok {
		t.Error("there is no assignor sticky")
	}
}

func TestNobodyGetsNothing(t *testing.T) {
	for _, a := range []Assignor{Range{}, Uniform{}} {
		equal(t, len(assign(t, a, Group{})), 0)
		got := assign(t, a, Group{Members: []Member{{ID: "a"}}})
		equal(t, got, map[string]Assignment{"a": {}})
	}
}

// drawGroup makes a group with an arbitrary, possibly contradictory, past.
func drawGroup(t *rapid.T, same bool) Group {
	numTopics := rapid.IntRange(1, 4).Draw(t, "topics")
	g := Group{Partitions: map[protocol.UUID]int32{}}
	for n := range numTopics {
		g.Partitions[id(byte(n+1))] = rapid.Int32Range(1, 8).Draw(t, "partitions")
	}
	numMembers := rapid.IntRange(1, 6).Draw(t, "members")
	for i := range numMembers {
		m := Member{ID: fmt.Sprint("m", i), Topics: map[protocol.UUID]struct{}{}, Current: Assignment{}}
		for n := range numTopics {
			topic := id(byte(n + 1))
			if same || rapid.Bool().Draw(t, "subscribes") {
				m.Topics[topic] = struct{}{}
			}
			for p := range g.Partitions[topic] + 1 {
				if rapid.IntRange(0, numMembers).Draw(t, "has") == 0 {
					m.Current[topic] = append(m.Current[topic], p)
				}
			}
		}
		g.Members = append(g.Members, m)
	}
	return g
}

// valid checks what every assignment has to satisfy.
func valid(t *rapid.T, g Group, got map[string]Assignment) {
	owner := map[partition]string{}
	for _, m := range g.Members {
		for topic, partitions := range got[m.ID] {
			if _, ok := m.Topics[topic]; !ok {
				t.Fatalf("%s got topic %s without a subscription", m.ID, topic)
			}
			if !slices.IsSorted(partitions) || len(partitions) == 0 {
				t.Fatalf("%s got %v", m.ID, partitions)
			}
			for _, index := range partitions {
				if other, dup := owner[partition{topic, index}]; dup {
					t.Fatalf("partition %d has the owners %s and %s", index, other, m.ID)
				}
				if index < 0 || index >= g.Partitions[topic] {
					t.Fatalf("partition %d does not exist", index)
				}
				owner[partition{topic, index}] = m.ID
			}
		}
	}
	want := 0
	for topic, n := range g.Partitions {
		for _, m := range g.Members {
			if _, ok := m.Topics[topic]; ok {
				want += int(n)
				break
			}
		}
	}
	if len(owner) != want {
		t.Fatalf("%d partitions assigned of %d", len(owner), want)
	}
}

func TestEveryPartitionHasExactlyOneSubscriber(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawGroup(t, rapid.Bool().Draw(t, "same"))
		for _, a := range []Assignor{Range{}, Uniform{}} {
			got, err := a.Assign(g)
			if err != nil {
				t.Fatal(err)
			}
			valid(t, g, got)
			again, _ := a.Assign(g)
			if fmt.Sprint(got) != fmt.Sprint(again) {
				t.Fatalf("%s is not deterministic", a.Name())
			}
		}
	})
}

func TestUniformDiffersByOneAtMostWhenAllSubscribeToTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawGroup(t, true)
		got, _ := Uniform{}.Assign(g)
		least, most := 1<<30, 0
		for _, m := range g.Members {
			least, most = min(least, size(got[m.ID])), max(most, size(got[m.ID]))
		}
		if most-least > 1 {
			t.Fatalf("between %d and %d partitions", least, most)
		}
	})
}

// evenness is the sum of the squares of the members' loads: the smaller the more
// even.
func evenness(loads []int) (sum int) {
	for _, n := range loads {
		sum += n * n
	}
	return sum
}

// mostEven tries all assignments.
func mostEven(subscribers [][]int, loads []int) int {
	if len(subscribers) == 0 {
		return evenness(loads)
	}
	best := 1 << 30
	for _, m := range subscribers[0] {
		loads[m]++
		best = min(best, mostEven(subscribers[1:], loads))
		loads[m]--
	}
	return best
}

func TestUniformIsAsEvenAsTheBestOfAllAssignments(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawGroup(t, false)
		var subscribers [][]int
		for topic, n := range g.Partitions {
			var who []int
			for i, m := range g.Members {
				if _, ok := m.Topics[topic]; ok {
					who = append(who, i)
				}
			}
			for range n {
				if len(who) > 0 {
					subscribers = append(subscribers, who)
				}
			}
		}
		tries := 1
		for _, who := range subscribers {
			if tries *= len(who); tries > 200_000 {
				t.Skip("too many assignments to try")
			}
		}
		got, _ := Uniform{}.Assign(g)
		loads := make([]int, len(g.Members))
		for i, m := range g.Members {
			loads[i] = size(got[m.ID])
		}
		if best := mostEven(subscribers, make([]int, len(g.Members))); evenness(loads) != best {
			t.Fatalf("loads %v have %d, the best is %d", loads, evenness(loads), best)
		}
	})
}

func TestUniformMovesNothingWhenItIsRunAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawGroup(t, rapid.Bool().Draw(t, "same"))
		first, _ := Uniform{}.Assign(g)
		for i := range g.Members {
			g.Members[i].Current = first[g.Members[i].ID]
		}
		second, _ := Uniform{}.Assign(g)
		for m, a := range first {
			if !a.Equal(second[m]) {
				t.Fatalf("%s had %v and got %v", m, a, second[m])
			}
		}
	})
}

func BenchmarkUniformOf500MembersAnd2000Partitions(b *testing.B) {
	g := Group{Partitions: map[protocol.UUID]int32{id(1): 2000}}
	for i := range 500 {
		g.Members = append(g.Members, Member{ID: fmt.Sprint("m", i), Topics: topics(1)})
	}
	for b.Loop() {
		if _, err := (Uniform{}).Assign(g); err != nil {
			b.Fatal(err)
		}
	}
}
