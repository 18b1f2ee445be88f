package groupcoord_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/protocol"
)

// target answers requests: the coordinator, or a real Kafka.
type target interface {
	// do sends a request on behalf of a member and waits for the answer.
	do(ctx context.Context, member string, req kmsg.Request) (kmsg.Response, error)
	// settle waits until nothing moves any more.
	settle()
	// local runs a command that only the coordinator knows; false on Kafka.
	local(s *script, d *datadriven.TestData) bool
	// topicName returns the name of a topic.
	topicName(id protocol.UUID) string
	close()
}

// script plays the group protocol. Members have names; the ids that they get
// are shown as these names, with a prime for each further id.
type script struct {
	t      testing.TB
	target target

	mu    sync.Mutex
	ids   map[string]string // by name: the newest id
	names map[string]string // by id
	count map[string]int
	gens  map[string]int32 // by name: the generation or member epoch
	owned map[string][]kmsg.ConsumerGroupHeartbeatResponseAssignmentTopic
	// events are shown when all answers are in: only then are all ids known.
	events []func() string
}

func TestScripts(t *testing.T) {
	// With the address of a real Kafka the same scripts run against it and must
	// give the same output.
	oracle := os.Getenv("GREGOR_ORACLE")
	if oracle == "" {
		datadriven.Walk(t, "testdata/local", func(t *testing.T, path string) {
			synctest.Test(t, func(t *testing.T) { runScript(t, path, newGregor(t)) })
		})
	}
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		if oracle != "" {
			runScript(t, path, newKafka(t, oracle, strings.ReplaceAll(path, "/", ".")))
			return
		}
		synctest.Test(t, func(t *testing.T) { runScript(t, path, newGregor(t)) })
	})
}

func runScript(t *testing.T, path string, on target) {
	s := &script{t: t, target: on, ids: map[string]string{}, names: map[string]string{}, count: map[string]int{}, gens: map[string]int32{}, owned: map[string][]kmsg.ConsumerGroupHeartbeatResponseAssignmentTopic{}}
	t.Cleanup(on.close)
	datadriven.RunTestAny(t, path, func(_ testing.TB, d *datadriven.TestData) string {
		if on.local(s, d) {
			return s.result()
		}
		if _, isKafka := on.(*kafka); isKafka && localCommands[d.Cmd] {
			return d.Expected
		}
		s.run(d)
		return s.result()
	})
}

// localCommands have no counterpart in Kafka.
var localCommands = map[string]bool{
	"elect": true, "resign": true, "crash": true, "log": true, "hw": true, "fail-appends": true, "config": true, "delete-topic": true, "end-txn": true, "hold": true, "topic": true,
}

func (s *script) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, func() string {
		return fmt.Sprintf(format, args...)
	})
}

// lazy is text that is made when it is shown.
type lazy func() string

// String implements fmt.Stringer.
func (l lazy) String() string { return l() }

func (s *script) result() string {
	s.target.settle()
	s.mu.Lock()
	events := s.events
	s.events = nil
	s.mu.Unlock()
	lines := make([]string, len(events))
	for i, event := range events {
		lines[i] = event()
	}
	slices.Sort(lines)
	out := strings.Join(lines, "\n")
	if out == "" {
		out = "ok"
	}
	return out + "\n"
}

// learn gives a member id its name.
func (s *script) learn(name, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id == "" || name == "" {
		return
	}
	s.ids[name] = id
	if _, known := s.names[id]; !known {
		s.names[id] = name + strings.Repeat("'", s.count[name])
		s.count[name]++
	}
}

// name returns a function that shows a member id.
func (s *script) name(id string) lazy { return func() string { return s.nameOf(id) } }

// showAll returns a function that shows lines in order.
func showAll(each []func() string) lazy {
	return func() string {
		out := make([]string, len(each))
		for i, show := range each {
			out[i] = show()
		}
		slices.Sort(out)
		return fmt.Sprint(out)
	}
}

func (s *script) nameOf(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n, ok := s.names[id]; ok {
		return n
	}
	return id
}

type args struct{ d *datadriven.TestData }

func (a args) str(key, def string) string {
	for _, c := range a.d.CmdArgs {
		if c.Key == key && len(c.Vals) > 0 {
			return c.Vals[0]
		}
	}
	return def
}

func (a args) num(key string, def int) int {
	n, err := strconv.Atoi(a.str(key, strconv.Itoa(def)))
	if err != nil {
		a.d.Fatalf(nil, "%s: %v", key, err)
	}
	return n
}

func (a args) has(key string) bool {
	return slices.ContainsFunc(a.d.CmdArgs, func(c datadriven.CmdArg) bool { return c.Key == key })
}

func (a args) ptr(key string) *string {
	if !a.has(key) {
		return nil
	}
	v := a.str(key, "")
	return &v
}

func errorName(code int16) string {
	if code == 0 {
		return "ok"
	}
	return protocol.ErrorName(code)
}

func deref(p *string) string {
	if p == nil {
		return "null"
	}
	return *p
}

// run starts a request; its answer is said when it comes.
func (s *script) run(d *datadriven.TestData) {
	a := args{d}
	switch d.Cmd {
	case "join":
		s.join(a)
	case "sync":
		s.sync(a)
	case "heartbeat":
		s.heartbeat(a)
	case "leave":
		s.leave(a)
	case "commit":
		s.commit(a)
	case "txn-commit":
		s.txnCommit(a)
	case "fetch":
		s.fetch(a)
	case "delete-offsets":
		s.deleteOffsets(a)
	case "delete-groups":
		s.deleteGroups(a)
	case "list":
		s.list(a)
	case "describe":
		s.describe(a)
	case "hb":
		s.consumerHeartbeat(a)
	case "describe-consumer":
		s.describeConsumer(a)
	case "sleep":
		time.Sleep(time.Duration(a.num("ms", 0)) * time.Millisecond)
	default:
		s.t.Fatalf("unknown command %s", d.Cmd)
	}
}

// send sends req in the background.
func (s *script) send(member string, version int, req kmsg.Request, answer func(kmsg.Response)) {
	req.SetVersion(int16(version))
	go func() {
		resp, err := s.target.do(s.t.Context(), member, req)
		if err != nil {
			s.say("%s: %v", member, err)
			return
		}
		answer(resp)
	}()
}

func (s *script) memberID(a args) string {
	if a.has("id") {
		return a.str("id", "")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ids[a.str("m", "")]
}

func (s *script) generation(a args) int32 {
	if a.has("gen") {
		return int32(a.num("gen", 0))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if g, ok := s.gens[a.str("m", "")]; ok {
		return g
	}
	return -1
}

// subscription is the metadata of a consumer that reads topics.
func subscription(topics string) []byte {
	m := kmsg.NewConsumerMemberMetadata()
	if topics == "garbage" {
		return []byte{0xff}
	}
	if topics != "" {
		m.Topics = strings.Split(topics, ",")
	}
	return m.AppendTo(nil)
}

// join: each line of the input is a protocol and the topics for it.
func (s *script) join(a args) {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Group = a.str("g", "g")
	req.SessionTimeoutMillis = int32(a.num("session", 10000))
	req.RebalanceTimeoutMillis = int32(a.num("rebalance", 60000))
	if !a.has("new") {
		req.MemberID = s.memberID(a)
	}
	req.InstanceID = a.ptr("instance")
	req.ProtocolType = a.str("type", "consumer")
	for line := range strings.Lines(a.d.Input) {
		name, topics, _ := strings.Cut(strings.TrimSpace(line), " ")
		p := kmsg.NewJoinGroupRequestProtocol()
		p.Name, p.Metadata = name, subscription(topics)
		req.Protocols = append(req.Protocols, p)
	}
	member := a.str("m", "")
	s.send(member, a.num("v", 5), req, func(r kmsg.Response) {
		resp := r.(*kmsg.JoinGroupResponse)
		s.learn(member, resp.MemberID)
		if resp.ErrorCode == 0 {
			s.mu.Lock()
			s.gens[member] = resp.Generation
			s.mu.Unlock()
		}
		var members []func() string
		for _, m := range resp.Members {
			members = append(members, func() string {
				if m.InstanceID != nil {
					return s.nameOf(m.MemberID) + "/" + *m.InstanceID
				}
				return s.nameOf(m.MemberID)
			})
		}
		s.say("%s: join %s gen=%d type=%s protocol=%s leader=%s skip=%v id=%s members=%s", member, errorName(resp.ErrorCode), resp.Generation,
			deref(resp.ProtocolType), deref(resp.Protocol), s.name(resp.LeaderID), resp.SkipAssignment, s.name(resp.MemberID), showAll(members))
	})
}

// assignmentBytes is an assignment as text, or "@topic:partition,..." in the form
// of the consumer protocol.
func assignmentBytes(text string) []byte {
	topic, partitions, ok := strings.Cut(strings.TrimPrefix(text, "@"), ":")
	if !ok {
		return []byte(text)
	}
	partitions, userData, hasUserData := strings.Cut(partitions, ";")
	t := kmsg.NewConsumerMemberAssignmentTopic()
	t.Topic = topic
	for p := range strings.SplitSeq(partitions, ",") {
		n, _ := strconv.Atoi(p)
		t.Partitions = append(t.Partitions, int32(n))
	}
	a := kmsg.NewConsumerMemberAssignment()
	a.Topics = append(a.Topics, t)
	if hasUserData {
		a.UserData = []byte(userData)
	}
	return a.AppendTo(nil)
}

// assignmentText shows an assignment.
func assignmentText(b []byte) string {
	a := kmsg.NewConsumerMemberAssignment()
	if len(b) == 0 || a.ReadFrom(b) != nil {
		return strconv.Quote(string(b))
	}
	text := ""
	for _, t := range a.Topics {
		slices.Sort(t.Partitions)
		text += fmt.Sprintf("%s%v", t.Topic, t.Partitions)
	}
	return text
}

// sync: each line of the input is a member and its assignment.
func (s *script) sync(a args) {
	req := kmsg.NewPtrSyncGroupRequest()
	req.Group, req.MemberID, req.Generation = a.str("g", "g"), s.memberID(a), s.generation(a)
	req.InstanceID, req.ProtocolType, req.Protocol = a.ptr("instance"), a.ptr("type"), a.ptr("protocol")
	for line := range strings.Lines(a.d.Input) {
		name, assignment, _ := strings.Cut(strings.TrimSpace(line), " ")
		x := kmsg.NewSyncGroupRequestGroupAssignment()
		s.mu.Lock()
		x.MemberID, x.MemberAssignment = s.ids[name], assignmentBytes(assignment)
		s.mu.Unlock()
		req.GroupAssignment = append(req.GroupAssignment, x)
	}
	member := a.str("m", "")
	s.send(member, a.num("v", 3), req, func(r kmsg.Response) {
		resp := r.(*kmsg.SyncGroupResponse)
		s.say("%s: sync %s type=%s protocol=%s assignment=%s", member, errorName(resp.ErrorCode), deref(resp.ProtocolType), deref(resp.Protocol), assignmentText(resp.MemberAssignment))
	})
}

func (s *script) heartbeat(a args) {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID, req.Generation, req.InstanceID = a.str("g", "g"), s.memberID(a), s.generation(a), a.ptr("instance")
	member := a.str("m", "")
	s.send(member, a.num("v", 3), req, func(r kmsg.Response) {
		s.say("%s: heartbeat %s", member, errorName(r.(*kmsg.HeartbeatResponse).ErrorCode))
	})
}

// leave: each line of the input is a member's name or "id=ID", and perhaps an
// instance id.
func (s *script) leave(a args) {
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group, req.MemberID = a.str("g", "g"), s.memberID(a)
	for line := range strings.Lines(a.d.Input) {
		name, instance, has := strings.Cut(strings.TrimSpace(line), " ")
		m := kmsg.NewLeaveGroupRequestMember()
		s.mu.Lock()
		m.MemberID = s.ids[name]
		s.mu.Unlock()
		if id, ok := strings.CutPrefix(name, "id="); ok {
			m.MemberID = id
		}
		if has {
			m.InstanceID = &instance
		}
		req.Members = append(req.Members, m)
	}
	s.send("admin", a.num("v", 3), req, func(r kmsg.Response) {
		resp := r.(*kmsg.LeaveGroupResponse)
		var members []func() string
		for _, m := range resp.Members {
			members = append(members, func() string {
				return fmt.Sprintf("%s/%s:%s", s.nameOf(m.MemberID), deref(m.InstanceID), errorName(m.ErrorCode))
			})
		}
		s.say("leave %s %s", errorName(resp.ErrorCode), showAll(members))
	})
}

func (s *script) deleteGroups(a args) {
	req := kmsg.NewPtrDeleteGroupsRequest()
	req.Groups = strings.Fields(a.d.Input)
	s.send("admin", a.num("v", 2), req, func(r kmsg.Response) {
		var out []string
		for _, g := range r.(*kmsg.DeleteGroupsResponse).Groups {
			out = append(out, g.Group+":"+errorName(g.ErrorCode))
		}
		slices.Sort(out)
		s.say("delete-groups %v", out)
	})
}

func (s *script) list(a args) {
	req := kmsg.NewPtrListGroupsRequest()
	if a.has("states") {
		req.StatesFilter = strings.Split(a.str("states", ""), "+")
	}
	if a.has("types") {
		req.TypesFilter = strings.Split(a.str("types", ""), "+")
	}
	s.send("admin", a.num("v", 5), req, func(r kmsg.Response) {
		resp := r.(*kmsg.ListGroupsResponse)
		var out []string
		for _, g := range resp.Groups {
			out = append(out, fmt.Sprintf("%s:%s:%s:%s", g.Group, g.ProtocolType, g.GroupState, g.GroupType))
		}
		slices.Sort(out)
		s.say("list %s %v", errorName(resp.ErrorCode), out)
	})
}

func (s *script) describe(a args) {
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups = strings.Fields(a.d.Input)
	s.send("admin", a.num("v", 6), req, func(r kmsg.Response) {
		for _, g := range r.(*kmsg.DescribeGroupsResponse).Groups {
			var members []func() string
			for _, m := range g.Members {
				members = append(members, func() string {
					return fmt.Sprintf("%s/%s meta=%d assignment=%s", s.nameOf(m.MemberID), deref(m.InstanceID), len(m.ProtocolMetadata), assignmentText(m.MemberAssignment))
				})
			}
			s.say("describe %s %s message=%s state=%s type=%s protocol=%s %s", g.Group, errorName(g.ErrorCode), deref(g.ErrorMessage), g.State, g.ProtocolType, g.Protocol, showAll(members))
		}
	})
}
