package groups

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/compat-tests/harness"
	"gregor/compat-tests/wire"
)

// side is one of the two brokers. Ids that it generates are shown as names that both sides share.
type side struct {
	t    *testing.T
	node *harness.Node

	mu    sync.Mutex
	ids   map[string]string // by name
	pairs []string          // id, name, ... for a strings.Replacer
}

// call is a request under way.
type call struct {
	done chan struct{}
	resp kmsg.Response
	err  error
}

func (c *call) isDone() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// start sends a request on a connection of its own, so that one that is parked holds up no other.
func (s *side) start(req kmsg.Request) *call {
	c := &call{done: make(chan struct{})}
	conn, err := net.Dial("tcp", s.node.Addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	if _, err := conn.Write(wire.Frame(req, 1)); err != nil {
		s.t.Fatal(err)
	}
	go func() {
		defer close(c.done)
		defer func() { _ = conn.Close() }()
		c.resp, c.err = read(conn, req)
	}()
	return c
}

func read(conn net.Conn, req kmsg.Request) (kmsg.Response, error) {
	var size [4]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return nil, err
	}
	frame := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(conn, frame); err != nil {
		return nil, err
	}
	return wire.Decode(req, 1, frame)
}

// id is what this side calls a member; a name that stands for nothing is an id by itself.
func (s *side) id(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id, ok := s.ids[name]; ok {
		return id
	}
	return name
}

// name is the member that an id stands for here.
func (s *side) name(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, known := range s.ids {
		if known == id {
			return name
		}
	}
	return id
}

// learn gives a generated id a name, unless it has one.
func (s *side) learn(name, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(id) < 20 {
		return
	}
	for _, known := range s.ids {
		if known == id {
			return
		}
	}
	s.ids[name] = id
	s.pairs = append(s.pairs, id, name)
}

// generated is the id of a member whose join is not answered yet.
var generated = regexp.MustCompile(`(i1|i2|compat)-[0-9a-f]{8}-[0-9a-f-]{27}`)

// show is an answer as text that both sides share: names for ids, arrays in order.
func (s *side) show(resp kmsg.Response) string {
	text, err := json.Marshal(resp)
	if err != nil {
		s.t.Fatal(err)
	}
	s.mu.Lock()
	named := generated.ReplaceAllString(strings.NewReplacer(s.pairs...).Replace(string(text)), "new")
	s.mu.Unlock()
	var tree any
	if err := json.Unmarshal([]byte(named), &tree); err != nil {
		s.t.Fatal(err)
	}
	out, err := json.Marshal(inOrder(tree))
	if err != nil {
		s.t.Fatal(err)
	}
	return string(out)
}

// inOrder sorts every array: members and topics come in the order of hash maps. Zeros, nulls and tags are left out, so
// that a text can be read.
func inOrder(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			if k == "UnknownTags" || slices.Contains([]any{nil, "", float64(0), false}, x) {
				delete(v, k)
				continue
			}
			v[k] = inOrder(x)
		}
		return v
	case []any:
		for i := range v {
			v[i] = inOrder(v[i])
		}
		slices.SortFunc(v, func(a, b any) int {
			x, _ := json.Marshal(a)
			y, _ := json.Marshal(b)
			return strings.Compare(string(x), string(y))
		})
		return v
	}
	return v
}

// barrier waits until the broker has answered what comes after what was sent before.
func (s *side) barrier(group string) {
	req := wire.At(kmsg.NewPtrDescribeGroupsRequest(), 5)
	req.Groups = []string{group}
	c := s.start(req)
	select {
	case <-c.done:
	case <-time.After(patience):
		s.t.Fatalf("%s does not answer", s.node.Kind)
	}
}

// state is the state of a classic group.
func (s *side) state(group string) string {
	req := wire.At(kmsg.NewPtrDescribeGroupsRequest(), 5)
	req.Groups = []string{group}
	c := s.start(req)
	<-c.done
	if r, ok := c.resp.(*kmsg.DescribeGroupsResponse); ok {
		return r.Groups[0].State
	}
	return ""
}

// epoch is the epoch of a consumer group.
func (s *side) epoch(group string) int32 {
	req := wire.At(kmsg.NewPtrConsumerGroupDescribeRequest(), 1)
	req.Groups = []string{group}
	c := s.start(req)
	<-c.done
	if r, ok := c.resp.(*kmsg.ConsumerGroupDescribeResponse); ok {
		return r.Groups[0].Epoch
	}
	return 0
}

// parkedAfter is how long a request is given before it is taken as one that waits.
const parkedAfter = 120 * time.Millisecond

// settle waits for both answers; false when neither comes.
func settle(p *pending, sides [2]*side) (bool, error) {
	timer := time.NewTimer(parkedAfter)
	defer timer.Stop()
	for _, c := range p.calls {
		select {
		case <-c.done:
		case <-timer.C:
			for _, s := range sides {
				s.barrier(p.group)
			}
			return p.bothOrNone()
		}
	}
	return true, nil
}

// pending is a request on both sides.
type pending struct {
	what   string
	group  string
	member *member
	calls  [2]*call
}

// bothOrNone tells whether both sides have answered. When only one has, the other gets time to.
func (p *pending) bothOrNone() (bool, error) {
	a, b := p.calls[0], p.calls[1]
	if !a.isDone() && !b.isDone() {
		return false, nil
	}
	for _, c := range p.calls {
		select {
		case <-c.done:
		case <-time.After(10 * time.Second):
			if a.isDone() {
				return false, fmt.Errorf("%s: only gregor answers: %+v", p.what, a.resp)
			}
			return false, fmt.Errorf("%s: only kafka answers: %+v", p.what, b.resp)
		}
	}
	return true, nil
}
