// Package differential sends the same request frames to Gregor and to Apache Kafka and compares the answers field by
// field. What may differ is listed in differences_test.go; everything else must be equal, error messages included.
package differential

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/compat-tests/harness"
	"gregor/compat-tests/wire"
)

func TestMain(m *testing.M) { harness.Main(m) }

// side is one of the two brokers with what it gave out: ids differ between them, so that requests name things and each
// side puts in its own.
type side struct {
	t    *testing.T
	node *harness.Node
	conn *wire.Conn

	topics    map[string][16]byte
	producers map[string]int64
	members   map[string]string
	session   int32
}

func newSide(t *testing.T, kind harness.Kind) *side {
	t.Helper()
	s := &side{t: t, node: harness.Shared(t, kind), topics: map[string][16]byte{}, producers: map[string]int64{}, members: map[string]string{}}
	s.conn = wire.Dial(t, s.node.Addr)
	return s
}

// topic is a topic under its name with this side's id. A name that was never made has an id that nobody has.
func (s *side) topic(name string) wire.Topic {
	id, ok := s.topics[name]
	if !ok {
		id = [16]byte{0xff, 15: 1}
	}
	return wire.Topic{Name: name, ID: id}
}

// pair is both sides of a test.
type pair struct {
	t             *testing.T
	gregor, kafka *side
}

func newPair(t *testing.T) *pair {
	t.Helper()
	return &pair{t: t, gregor: newSide(t, harness.Gregor), kafka: newSide(t, harness.Kafka)}
}

func (p *pair) sides() []*side { return []*side{p.gregor, p.kafka} }

// create makes a topic on both sides.
func (p *pair) create(name string, partitions int32, configs ...string) {
	p.t.Helper()
	for _, s := range p.sides() {
		s.topics[name] = wire.CreateTopic(p.t, s.node, name, partitions, configs...).ID
	}
}

// learn takes what an answer gave out: it is called on each side before the answers are compared.
type learn func(s *side, resp kmsg.Response)

// slow is how long an answer may take before the log says so.
const slow = 2 * time.Second

// same sends a request to both sides and compares the answers.
func (p *pair) same(what string, build func(s *side) kmsg.Request, learns ...learn) {
	p.t.Helper()
	var answers [2]any
	var req kmsg.Request
	for i, s := range p.sides() {
		req = build(s)
		began := time.Now()
		answers[i] = s.ask(req, learns)
		if d := time.Since(began); d > slow {
			p.t.Logf("%s v%d %s: %s took %v", kmsg.NameForKey(req.Key()), req.GetVersion(), what, s.node.Kind, d)
		}
	}
	name := kmsg.NameForKey(req.Key())
	label := fmt.Sprintf("%s v%d %s", name, req.GetVersion(), what)
	if diff := compare(name, answers[0], answers[1]); len(diff) > 0 {
		p.t.Errorf("%s:\n  %s", label, strings.Join(diff, "\n  "))
	}
}

// settles compares like same, but allows for brokers that answer an alteration before they act on it.
func (p *pair) settles(what string, build func(s *side) kmsg.Request) {
	p.t.Helper()
	var diff []string
	equal := func() bool {
		var answers [2]any
		var req kmsg.Request
		for i, s := range p.sides() {
			req = build(s)
			answers[i] = s.ask(req, nil)
		}
		diff = compare(kmsg.NameForKey(req.Key()), answers[0], answers[1])
		return len(diff) == 0
	}
	if !harness.Within(10*time.Second, equal) {
		p.t.Errorf("%s:\n  %s", what, strings.Join(diff, "\n  "))
	}
}

// constant is a request that is the same on both sides.
func constant(req kmsg.Request) func(*side) kmsg.Request {
	return func(*side) kmsg.Request { return req }
}

// ask is the answer to a request as a tree, or "closed".
func (s *side) ask(req kmsg.Request, learns []learn) any {
	s.t.Helper()
	if k, ok := req.(*kmsg.ProduceRequest); ok && k.Acks == 0 {
		s.conn.Send(req)
		if _, closed := s.conn.Try(kmsg.NewPtrApiVersionsRequest()); closed { // in order: the first has been handled
			s.conn = wire.Dial(s.t, s.node.Addr)
			return "closed"
		}
		return "no answer"
	}
	resp, closed := s.conn.Try(req)
	if closed {
		s.conn = wire.Dial(s.t, s.node.Addr)
		return "closed"
	}
	for _, l := range learns {
		l(s, resp)
	}
	return s.tree(resp)
}

// eventually repeats a request on both sides until it is answered as wanted; for what happens in the background.
func (p *pair) eventually(what string, build func(s *side) kmsg.Request, ok func(resp kmsg.Response) bool) {
	p.t.Helper()
	for _, s := range p.sides() {
		harness.Eventually(p.t, 30*time.Second, string(s.node.Kind)+": "+what, func() bool {
			resp, closed := s.conn.Try(build(s))
			return !closed && ok(resp)
		})
	}
}

// versions are those that Kafka advertises of an API.
func versions(first, last int16) (out []int16) {
	for v := first; v <= last; v++ {
		out = append(out, v)
	}
	return out
}
