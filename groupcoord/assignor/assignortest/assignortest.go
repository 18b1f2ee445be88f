// Package assignortest has the text form in which tests ask Gregor's assignors and
// Kafka's, and in which they answer.
//
// A question is a name, "assign uniform" or "assign range", and lines of the group
// up to "end":
//
//	topic NAME ID PARTITIONS
//	pattern PATTERN NAME,...
//	member ID INSTANCE NAME,... PATTERN
//	current MEMBER TOPIC:PARTITION,... ...
//
// where "-" is for nothing. Members come in the order in which Kafka visits its
// table. The answer has one line for each member, in the same order: its id, "new"
// when a record has to be written, else "same", and the assignment like that of
// "current", all in the order of the record; and the line "end".
package assignortest

import (
	"bufio"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"gregor/groupcoord/assignor"
	"gregor/protocol"
)

// Topic is a topic with its name.
type Topic struct {
	Name string
	assignor.Topic
}

// Question is what an assignor is asked.
type Question struct {
	Assignor string
	Topics   []Topic
	Patterns []Pattern
	Members  []assignor.Member
}

// Pattern is a regular expression with the topics that match it.
type Pattern struct {
	Pattern string
	Names   []string
}

// Group is the input of the assignor.
func (q Question) Group() assignor.Group {
	topics := make(map[string]assignor.Topic, len(q.Topics))
	for _, t := range q.Topics {
		topics[t.Name] = t.Topic
	}
	patterns := make(map[string][]string, len(q.Patterns))
	for _, p := range q.Patterns {
		patterns[p.Pattern] = p.Names
	}
	return assignor.Group{Members: q.Members, Patterns: patterns, Topic: func(name string) (assignor.Topic, bool) {
		t, ok := topics[name]
		return t, ok
	}}
}

// Answer is Gregor's answer.
func (q Question) Answer() (string, error) {
	a, ok := assignor.ByName(q.Assignor)
	if !ok {
		return "", fmt.Errorf("there is no assignor %q", q.Assignor)
	}
	return q.Format(a.Assign(q.Group())), nil
}

// Format is the text of an answer.
func (q Question) Format(answer []assignor.Assignment) string {
	var out strings.Builder
	for i, m := range q.Members {
		change := "same"
		if !answer[i].Equal(m.Current) {
			change = "new"
		}
		fmt.Fprintf(&out, "%s %s%s\n", m.ID, change, assignment(answer[i]))
	}
	return out.String() + "end\n"
}

// String is the text of the question.
func (q Question) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, "assign %s\n", q.Assignor)
	for _, t := range q.Topics {
		fmt.Fprintf(&out, "topic %s %s %d\n", t.Name, t.ID, t.Partitions)
	}
	for _, p := range q.Patterns {
		fmt.Fprintf(&out, "pattern %s %s\n", p.Pattern, list(p.Names))
	}
	for _, m := range q.Members {
		instance := "-"
		if m.InstanceID != nil {
			instance = *m.InstanceID
		}
		fmt.Fprintf(&out, "member %s %s %s %s\n", m.ID, instance, list(m.Names), orDash(m.Pattern))
		if m.Current != nil {
			fmt.Fprintf(&out, "current %s%s\n", m.ID, assignment(m.Current))
		}
	}
	return out.String() + "end\n"
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func list(names []string) string { return orDash(strings.Join(names, ",")) }

func assignment(a assignor.Assignment) string {
	var out strings.Builder
	for _, tp := range a {
		parts := make([]string, len(tp.Partitions))
		for i, p := range tp.Partitions {
			parts[i] = strconv.Itoa(int(p))
		}
		fmt.Fprintf(&out, " %s:%s", tp.Topic, strings.Join(parts, ","))
	}
	return out.String()
}

// Parse reads a question.
func Parse(text string) (Question, error) {
	var q Question
	lines := bufio.NewScanner(strings.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if err := q.parseLine(strings.Fields(lines.Text())); err != nil {
			return Question{}, fmt.Errorf("line %q: %w", lines.Text(), err)
		}
	}
	return q, lines.Err()
}

func (q *Question) parseLine(f []string) error {
	switch {
	case len(f) == 1 && f[0] == "end":
	case len(f) == 2 && f[0] == "assign":
		q.Assignor = f[1]
	case len(f) == 4 && f[0] == "topic":
		return q.parseTopic(f)
	case len(f) == 3 && f[0] == "pattern":
		q.Patterns = append(q.Patterns, Pattern{Pattern: f[1], Names: parseList(f[2])})
	case len(f) == 5 && f[0] == "member":
		q.parseMember(f)
	case len(f) >= 2 && f[0] == "current" && len(q.Members) > 0 && q.Members[len(q.Members)-1].ID == f[1]:
		a, err := ParseAssignment(f[2:])
		q.Members[len(q.Members)-1].Current = a
		return err
	default:
		return errors.New("not understood")
	}
	return nil
}

func (q *Question) parseTopic(f []string) error {
	id, err := protocol.ParseUUID(f[2])
	if err != nil {
		return err
	}
	n, err := strconv.ParseInt(f[3], 10, 32)
	q.Topics = append(q.Topics, Topic{Name: f[1], Topic: assignor.Topic{ID: id, Partitions: int32(n)}})
	return err
}

func (q *Question) parseMember(f []string) {
	m := assignor.Member{ID: f[1], Names: parseList(f[3])}
	if f[2] != "-" {
		m.InstanceID = &f[2]
	}
	if f[4] != "-" {
		m.Pattern = f[4]
	}
	q.Members = append(q.Members, m)
}

func parseList(text string) []string {
	if text == "-" {
		return nil
	}
	return strings.Split(text, ",")
}

// ParseAssignment reads an assignment of topics with their partitions.
func ParseAssignment(fields []string) (assignor.Assignment, error) {
	out := assignor.Assignment{}
	for _, f := range fields {
		topic, partitions, _ := strings.Cut(f, ":")
		id, err := protocol.ParseUUID(topic)
		if err != nil {
			return nil, err
		}
		tp := assignor.TopicPartitions{Topic: id}
		for p := range strings.SplitSeq(partitions, ",") {
			n, err := strconv.ParseInt(p, 10, 32)
			if err != nil {
				return nil, err
			}
			tp.Partitions = append(tp.Partitions, int32(n))
		}
		out = append(out, tp)
	}
	return out, nil
}

// ParseAnswer reads the assignments of an answer, by member.
func ParseAnswer(text string) (map[string]assignor.Assignment, error) {
	out := make(map[string]assignor.Assignment)
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 2 {
			break
		}
		a, err := ParseAssignment(f[2:])
		if err != nil {
			return nil, fmt.Errorf("answer %q: %w", line, err)
		}
		out[f[0]] = a
	}
	return out, nil
}

// Golden is a question with Kafka's answer.
type Golden struct {
	Question Question
	Answer   string
}

// ParseGoldens reads questions and answers one after the other.
func ParseGoldens(text string) ([]Golden, error) {
	var out []Golden
	parts := strings.SplitAfter(text, "\nend\n")
	for i := 0; i+1 < len(parts); i += 2 {
		q, err := Parse(parts[i])
		if err != nil {
			return nil, fmt.Errorf("question %d: %w", i/2, err)
		}
		out = append(out, Golden{Question: q, Answer: parts[i+1]})
	}
	return out, nil
}
