// Package assignors asks Gregor's server-side assignors of consumer groups and Kafka's the same.
package assignors

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"gregor/compat-tests/harness"
	"gregor/groupcoord/assignor"
	"gregor/groupcoord/assignor/assignortest"
	"gregor/protocol"
)

var (
	seed    = flag.Uint64("seed", 0, "the first seed; 0 takes the time")
	chains  = flag.Int("chains", 300, "how many random groups to follow")
	rewrite = flag.Bool("rewrite", false, "write the goldens of groupcoord/assignor/assignortest")
)

// golden has questions and Kafka's answers, for tests without Java.
const golden = "../../groupcoord/assignor/assignortest/testdata/kafka.txt"

func TestMain(m *testing.M) { harness.Main(m) }

// life is a group that changes.
type life struct {
	*rand.Rand
	members []assignor.Member
	topics  []assignortest.Topic
	// all members subscribe to the same.
	same bool
	// patterned groups have members with patterns.
	patterned bool
	largest   int
	// joined and made count members and topics.
	joined, made int
}

func newLife(seed uint64) *life {
	l := &life{Rand: rand.New(rand.NewPCG(seed, 0))}
	l.same, l.patterned = l.IntN(2) == 0, l.IntN(6) == 0
	l.largest = []int{3, 12, 60, 400}[l.IntN(4)]
	for range 1 + l.IntN(1+l.IntN(24)) {
		l.addTopic()
	}
	for range 1 + l.IntN([]int{2, 5, 12, 40}[l.IntN(4)]) {
		l.join()
	}
	return l
}

func (l *life) addTopic() {
	var id protocol.UUID
	for i := range id {
		id[i] = byte(l.Uint32())
	}
	if l.IntN(4) == 0 {
		// Ids that share slots.
		id = protocol.UUID{3: byte(l.IntN(4)), 7: byte(16 * l.IntN(8)), 15: byte(l.made)}
	}
	l.made++
	l.topics = append(l.topics, assignortest.Topic{
		Name:  fmt.Sprintf("%s-%d", []string{"orders", "t", "größe", "a.b_c"}[l.IntN(4)], l.made),
		Topic: assignor.Topic{ID: id, Partitions: 1 + l.Int32N(int32(l.largest))},
	})
}

// names draws topics, rarely one that does not exist.
func (l *life) names() []string {
	if l.same && len(l.members) > 0 {
		return l.members[0].Names
	}
	var out []string
	chance := 1 + l.IntN(4)
	for _, t := range l.topics {
		if l.IntN(4) < chance {
			out = append(out, t.Name)
		}
	}
	if l.IntN(8) == 0 {
		out = append(out, "nowhere")
	}
	slices.Sort(out)
	return out
}

func (l *life) join() {
	l.joined++
	id := fmt.Sprintf("consumer-%d", l.joined)
	if l.IntN(2) == 0 {
		id = fmt.Sprintf("%016x-%08x", l.Uint64(), l.Uint32())
	}
	m := assignor.Member{ID: id, Names: l.names()}
	if l.IntN(4) == 0 {
		instance := fmt.Sprintf("i-%d-%s", l.IntN(1000)*1000+l.joined, []string{"x", "é", "\uff5e", "😀"}[l.IntN(4)])
		m.InstanceID = &instance
	}
	if l.patterned && (l.same || l.IntN(2) == 0) {
		m.Pattern = []string{"p.*", "q.*"}[l.IntN(2)]
		if l.same {
			m.Pattern = "p.*"
		}
		if l.IntN(4) > 0 {
			m.Names = nil
		}
	}
	l.members = append(l.members, m)
}

// rename is a static member that comes back: it has another id and is the last to come.
func (l *life) rename() {
	i := l.IntN(len(l.members))
	m := l.members[i]
	if m.InstanceID == nil {
		return
	}
	l.joined++
	m.ID = fmt.Sprintf("again-%d", l.joined)
	l.members = append(slices.Delete(l.members, i, i+1), m)
}

// step changes something.
func (l *life) step() {
	switch n := l.IntN(10); {
	case n < 3:
		for range 1 + l.IntN(4) {
			l.join()
		}
	case n < 6 && len(l.members) > 1:
		for range 1 + l.IntN(len(l.members)) {
			if len(l.members) > 1 {
				i := l.IntN(len(l.members))
				l.members = slices.Delete(l.members, i, i+1)
			}
		}
	case n == 6:
		l.addTopic()
		l.resubscribe()
	case n == 7:
		t := &l.topics[l.IntN(len(l.topics))]
		t.Partitions += 1 + l.Int32N(int32(l.largest))
	case n == 8 && len(l.members) > 0:
		l.rename()
	default:
		l.resubscribe()
	}
}

// resubscribe gives all members, or one, other topics, and may take a topic away.
func (l *life) resubscribe() {
	if len(l.topics) > 1 && l.IntN(3) == 0 {
		i := l.IntN(len(l.topics))
		l.topics = slices.Delete(l.topics, i, i+1)
	}
	if !l.same {
		l.members[l.IntN(len(l.members))].Names = l.names()
		return
	}
	l.same = false
	names := l.names()
	l.same = true
	for i := range l.members {
		if len(l.members[i].Names) > 0 {
			l.members[i].Names = names
		}
	}
}

func (l *life) question() assignortest.Question {
	q := assignortest.Question{Assignor: "uniform", Members: slices.Clone(l.members), Topics: slices.Clone(l.topics)}
	if l.IntN(5) == 0 {
		q.Assignor = "range"
	}
	used := map[string]bool{}
	for _, m := range l.members {
		used[m.Pattern] = true
	}
	for i, p := range []string{"p.*", "q.*"} {
		if !used[p] {
			continue
		}
		pattern := assignortest.Pattern{Pattern: p}
		for j, t := range l.topics {
			if (i+j)%3 != 0 {
				pattern.Names = append(pattern.Names, t.Name)
			}
		}
		slices.Sort(pattern.Names)
		q.Patterns = append(q.Patterns, pattern)
	}
	return q
}

// take makes Kafka's answer the members' target assignments.
func (l *life) take(tb testing.TB, answer string) {
	tb.Helper()
	got, err := assignortest.ParseAnswer(answer)
	if err != nil {
		tb.Fatal(err)
	}
	for i := range l.members {
		l.members[i].Current = got[l.members[i].ID]
	}
}

// rounds is how often a group changes.
const rounds = 12

func TestAssignmentsAreKafkas(t *testing.T) {
	kafka := harness.StartJava(t, "Assignors.java")
	first := *seed
	if first == 0 {
		first = uint64(time.Now().UnixNano())
	}
	t.Logf("seeds %d to %d: go test ./assignors -seed %d -chains %d", first, first+uint64(*chains)-1, first, *chains)
	for s := first; s < first+uint64(*chains); s++ {
		l := newLife(s)
		for round := range rounds {
			q := l.question()
			want := kafka.Ask(t, q.String())
			got, err := q.Answer()
			if err != nil {
				t.Fatal(err)
			}
			if got != want {
				t.Fatalf("seed %d, round %d:\n%s%s", s, round, q, differences(got, want))
			}
			l.take(t, want)
			l.step()
		}
	}
}

// differences shows the lines that are not the same.
func differences(got, want string) string {
	var out strings.Builder
	wants := strings.Split(want, "\n")
	for i, line := range strings.Split(got, "\n") {
		if i < len(wants) && line != wants[i] {
			fmt.Fprintf(&out, "gregor: %s\nkafka:  %s\n", line, wants[i])
		}
	}
	return out.String()
}

// The goldens are the questions of so many groups that are not longer than that.
const (
	goldenSeeds = 60
	goldenBytes = 2500
)

func TestGoldensAreKafkas(t *testing.T) {
	kafka := harness.StartJava(t, "Assignors.java")
	var text strings.Builder
	if *rewrite {
		for s := range uint64(goldenSeeds) {
			l := newLife(s)
			for range 4 {
				q := l.question()
				answer := kafka.Ask(t, q.String())
				if len(q.String())+len(answer) < goldenBytes {
					text.WriteString(q.String() + answer)
				}
				l.take(t, answer)
				l.step()
			}
		}
		if err := os.WriteFile(golden, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	goldens, err := assignortest.ParseGoldens(string(want))
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range goldens {
		if answer := kafka.Ask(t, g.Question.String()); answer != g.Answer {
			t.Errorf("%s\n%s", g.Question, differences(g.Answer, answer))
		}
	}
}
