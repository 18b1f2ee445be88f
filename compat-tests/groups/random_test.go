package groups

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/compat-tests/harness"
	"gregor/compat-tests/wire"
)

// stepsVariable and seedVariable make the random comparison longer, or repeat one.
const (
	stepsVariable  = "GREGOR_GROUPS_STEPS"
	seedVariable   = "GREGOR_GROUPS_SEED"
	roundsVariable = "GREGOR_GROUPS_ROUNDS"
)

// longTimers keep every timer of the groups out of a random sequence: it compares what requests do.
var longTimers = harness.Properties{
	"group.consumer.max.session.timeout.ms":    "3600000",
	"group.consumer.session.timeout.ms":        "1800000",
	"group.consumer.assignment.interval.ms":    "0",
	"group.consumer.assignor.offload.enable":   "false",
	"group.max.session.timeout.ms":             "3600000",
	"group.consumer.heartbeat.interval.ms":     "5000",
	"group.consumer.max.heartbeat.interval.ms": "15000",
	"group.consumer.migration.policy":          "bidirectional",
	"group.max.size":                           "6",
	"group.consumer.max.size":                  "5",
}

// randomTopics are the topics of the sequence with their partitions.
var randomTopics = map[string]int32{"t": 4, "u": 3, "v": 7}

// driver plays one random sequence on both sides.
type driver struct {
	t     *testing.T
	seed  int64
	rng   *rand.Rand
	sides [2]*side // gregor, kafka
	// topics are the ids, the same on both sides.
	topics map[string][16]byte

	// sessionMillis and rebalanceMillis are the timeouts of all members.
	sessionMillis, rebalanceMillis int32

	steps   int
	names   []string
	groups  map[string]*group
	parked  []*pending
	log     []string
	counts  map[string]int
	splits  int
	members int
}

// group is what the driver knows of a group: only what both sides have answered.
type group struct {
	name    string
	members []*member
	// classic is the share of the classic protocol, in a hundred.
	classic int
	// assignor is the wish of all consumers of the group: which of two that as many members want is taken depends in Kafka
	// on which was there first.
	assignor string
	// patterns holds when consumers subscribe to patterns, too. Such a group lives from the step born on for patternSteps.
	patterns bool
	born     int
	// generated holds when there may be members with generated ids.
	generated bool
}

// member is a member of either protocol. The name stands for the id of each side.
type member struct {
	name      string
	group     string
	instance  *string
	protocols []string
	epoch     int32 // generation or member epoch
	leader    bool
	busy      bool
	list      []string // of the members' names, for a leader
	assigned  []kmsg.ConsumerGroupHeartbeatRequestTopic
}

// twins starts a Kafka with topics, and a Gregor on a copy of its data: even the ids of the topics are the same then.
func twins(t *testing.T, p harness.Properties, topics map[string]int32) (gregor, kafka *harness.Node, ids map[string][16]byte) {
	t.Helper()
	kafka = harness.Start(t, harness.Kafka, harness.Options{Properties: p})
	ids = map[string][16]byte{}
	for name, partitions := range topics {
		ids[name] = wire.CreateTopic(t, kafka, name, partitions).ID
	}
	awaitCoordinator(t, kafka, "a")
	kafka.Stop(t)
	copied := filepath.Join(t.TempDir(), "data")
	if err := os.CopyFS(copied, os.DirFS(kafka.LogDir)); err != nil {
		t.Fatal(err)
	}
	_ = os.Remove(filepath.Join(copied, ".lock"))
	gregor = harness.Start(t, harness.Gregor, harness.Options{Properties: p, LogDir: copied})
	kafka.Start(t)
	for _, n := range []*harness.Node{gregor, kafka} {
		for name, partitions := range topics {
			wire.AwaitLeaders(t, n, name, partitions)
		}
	}
	return gregor, kafka, ids
}

func TestRandomRequestsGetKafkasAnswers(t *testing.T) {
	gregor, kafka, ids := twins(t, longTimers, randomTopics)
	for _, seed := range seeds(t) {
		t.Run(fmt.Sprintf("seed%d", seed), func(t *testing.T) {
			playRandom(t, seed, ids, gregor, kafka)
		})
	}
}

// fixedSeed is part of every default run; what it finds can be found again without a log.
const fixedSeed = 2001

// seeds are those asked for, or the fixed one and some that nobody has seen. What gates a commit is the same for the commit
// each time: in CI the others follow the fixed one.
func seeds(t *testing.T) (out []int64) {
	t.Helper()
	rounds := setting(t, roundsVariable, 3)
	first := setting(t, seedVariable, 0)
	if first == 0 {
		out = append(out, fixedSeed)
		rounds--
		first = fixedSeed + 1
		if os.Getenv("CI") != "true" {
			first = 10_000 + rand.Int64N(1_000_000)
			t.Logf("%s=%d finds these again", seedVariable, first)
		}
	}
	for i := range rounds {
		out = append(out, first+i)
	}
	return out
}

func playRandom(t *testing.T, seed int64, ids map[string][16]byte, nodes ...*harness.Node) {
	t.Helper()
	steps := setting(t, stepsVariable, 150)
	d := newDriver(t, seed, ids, nodes...)
	d.sessionMillis, d.rebalanceMillis = 1_800_000, 1_800_000
	for d.steps = range int(steps) {
		d.must(d.step())
	}
	d.report()
}

// newDriver makes a driver with groups of its own, which are empty again after the test.
func newDriver(t *testing.T, seed int64, ids map[string][16]byte, nodes ...*harness.Node) *driver {
	t.Helper()
	d := &driver{t: t, seed: seed, rng: rand.New(rand.NewPCG(uint64(seed), 1)), topics: ids, groups: map[string]*group{}, counts: map[string]int{}}
	for i, n := range nodes {
		d.sides[i] = &side{t: t, node: n, ids: map[string]string{}}
	}
	for _, kind := range slices.Sorted(maps.Keys(classicShare)) {
		name := fmt.Sprintf("%s-%d", kind, seed)
		for _, n := range nodes {
			awaitCoordinator(t, n, name)
		}
		d.names = append(d.names, name)
		d.groups[name] = &group{
			name: name, classic: classicShare[kind], assignor: map[string]string{"x": "range", "r": "range"}[kind], patterns: kind == "r",
		}
	}
	t.Cleanup(func() {
		for _, n := range slices.Clone(d.names) {
			if err := d.clear(d.groups[n]); err != nil {
				t.Error(err)
			}
		}
	})
	return d
}

// must ends the test where the sides differ, and shows how they came there.
func (d *driver) must(err error) {
	d.t.Helper()
	if err != nil {
		from := max(0, len(d.log)-60)
		d.t.Fatalf("%s=%d, step %d: %v\nthe steps before:\n%s", seedVariable, d.seed, d.steps, err, strings.Join(d.log[from:], "\n"))
	}
}

func (d *driver) report() {
	d.t.Logf("%s=%d: %d steps, answers compared: %v, ties (of leaders and of generated ids): %d", seedVariable, d.seed, d.steps, d.counts, d.splits)
}

// patternSteps is how long a group with patterns lives: not the ten seconds after which patterns are resolved again, at a
// moment that is not quite the same on both sides.
const patternSteps = 80

// classicShare says how many of a hundred requests to a group are of the classic protocol.
var classicShare = map[string]int{"a": 97, "b": 92, "r": 0, "x": 0, "y": 0, "z": 50}

// step plays one request and looks at what else it has set free.
func (d *driver) step() error {
	g := d.groups[d.names[d.rng.IntN(len(d.names))]]
	if g.patterns && d.steps-g.born > patternSteps {
		return d.clear(g)
	}
	n := d.rng.IntN(100)
	var p *pending
	switch {
	case n < 22:
		p = d.query(g)
	case n < 36:
		p = d.offsets(g)
	case d.rng.IntN(100) < g.classic:
		p = d.classic(g)
	default:
		p = d.heartbeat848(g)
	}
	return d.play(p)
}

// both sends a request that build makes for each side.
func (d *driver) both(what string, g *group, m *member, build func(s *side) kmsg.Request) *pending {
	p := &pending{what: fmt.Sprintf("%d: %s %s", d.steps, g.name, what), group: g.name, member: m}
	d.log = append(d.log, p.what)
	for i, s := range d.sides {
		p.calls[i] = s.start(build(s))
	}
	return p
}

// play waits for a request's answers or parks it, and then for those of the parked ones that it has set free.
func (d *driver) play(p *pending) error {
	ok, err := settle(p, d.sides)
	if err != nil {
		return err
	}
	if !ok {
		d.log = append(d.log, "   waits")
		if p.member != nil {
			p.member.busy = true
		}
		d.parked = append(d.parked, p)
		return nil
	}
	if _, ok := p.calls[0].resp.(*kmsg.LeaveGroupResponse); ok {
		d.awaitSameState(p.group)
	}
	if r, ok := p.calls[1].resp.(*kmsg.ConsumerGroupHeartbeatResponse); ok && r.ErrorCode == 0 && d.groups[p.group].patterns {
		d.awaitResolved(p.group)
	}
	return d.compareFreed(p)
}

// compareFreed compares the answers of some requests and of those of the parked ones that were set free.
func (d *driver) compareFreed(freed ...*pending) error {
	for _, q := range d.parked {
		ok, err := q.bothOrNone()
		if err != nil {
			return err
		}
		if ok {
			freed = append(freed, q)
		}
	}
	d.parked = slices.DeleteFunc(d.parked, func(q *pending) bool { return slices.Contains(freed, q) })
	return d.compare(freed)
}

func (d *driver) compare(all []*pending) error {
	split := ""
	for _, p := range all {
		if p.member != nil {
			p.member.busy = false
		}
		for i, c := range p.calls {
			if c.err != nil {
				return fmt.Errorf("%s: %s: %w", p.what, d.sides[i].node.Kind, c.err)
			}
		}
		// Ids are learnt from the answers to the requests that generate them. A leader's answer shows ids of other members,
		// whose own answers come in the same round and perhaps after it.
		d.learn(p)
	}
	for _, p := range all {
		a, b := p.calls[0].resp, p.calls[1].resp
		d.counts[kmsg.NameForKey(a.Key())]++
		if d.leadersDiffer(a, b) {
			split = p.group
			continue
		}
		d.onlyOwn(a, b)
		x, y := d.sides[0].show(a), d.sides[1].show(b)
		if x != y && d.untied(p, a, b) {
			split = p.group
			continue
		}
		if x != y {
			return fmt.Errorf("%s:\n  gregor %s\n  kafka  %s", p.what, x, y)
		}
		d.log = append(d.log, "   = "+p.what[:min(len(p.what), 12)]+" "+x[:min(len(x), 300)])
		d.apply(p, a)
	}
	if split != "" {
		return d.clear(d.groups[split])
	}
	return nil
}

// untied tells whether the sides may part here. A member that joined by the classic protocol has a generated id, so that
// the order of the members of a consumer group is not the same on both sides, and who gets which partition neither. All
// else of the answers must agree even then. And Kafka's coordinator throws when a classic group becomes a consumer group while
// a member that waits in its rebalance lacks the protocol of the generation before: there is nothing to agree on.
func (d *driver) untied(p *pending, a, b kmsg.Response) bool {
	if r, ok := b.(*kmsg.ConsumerGroupHeartbeatResponse); ok && r.ErrorCode == -1 {
		d.counts["(Kafka failed)"]++
		return true
	}
	// Whether all members of a group read the same topics Kafka notes when a member changes, and not when a pattern is
	// resolved: until the next change it may give partitions to members that do not read the topic, who then do not get
	// them, and nobody does. Gregor looks at the topics.
	if g := d.groups[p.group]; !g.generated && !g.patterns {
		return false
	}
	strip := func(resp kmsg.Response) {
		switch r := resp.(type) {
		case *kmsg.ConsumerGroupHeartbeatResponse:
			r.Assignment, r.MemberEpoch = nil, 0
		case *kmsg.SyncGroupResponse:
			r.MemberAssignment = nil
		case *kmsg.DescribeGroupsResponse:
			// A consumer group that became a classic one keeps its assignment.
			for i := range r.Groups {
				for j := range r.Groups[i].Members {
					r.Groups[i].Members[j].MemberAssignment = nil
				}
			}
		case *kmsg.ConsumerGroupDescribeResponse:
			for i := range r.Groups {
				r.Groups[i].State = ""
				for j := range r.Groups[i].Members {
					m := &r.Groups[i].Members[j]
					m.MemberEpoch, m.Assignment.TopicPartitions, m.TargetAssignment.TopicPartitions = 0, nil, nil
				}
			}
		}
	}
	strip(a)
	strip(b)
	return d.sides[0].show(a) == d.sides[1].show(b)
}

// onlyOwn leaves the groups of other sequences out of a list.
func (d *driver) onlyOwn(answers ...kmsg.Response) {
	for _, resp := range answers {
		if r, ok := resp.(*kmsg.ListGroupsResponse); ok {
			r.Groups = slices.DeleteFunc(r.Groups, func(g kmsg.ListGroupsResponseGroup) bool { return d.groups[g.Group] == nil })
			if len(r.Groups) == 0 {
				r.Groups = nil
			}
		}
	}
}

// learn takes the member ids of an answer.
func (d *driver) learn(p *pending) {
	if p.member == nil {
		return
	}
	for i, c := range p.calls {
		r, ok := c.resp.(*kmsg.JoinGroupResponse)
		if ok && d.sides[i].name(r.MemberID) == r.MemberID && r.MemberID != "" {
			d.sides[i].learn(p.member.name, r.MemberID)
			d.groups[p.group].generated = true
		}
	}
}

// leadersDiffer tells whether the sides chose different leaders: Kafka takes any member.
func (d *driver) leadersDiffer(a, b kmsg.Response) bool {
	x, ok := a.(*kmsg.JoinGroupResponse)
	y, also := b.(*kmsg.JoinGroupResponse)
	return ok && also && d.sides[0].name(x.LeaderID) != d.sides[1].name(y.LeaderID)
}

// clear removes all members of a group whose leaders differ.
func (d *driver) clear(g *group) error {
	d.splits++
	d.log = append(d.log, "   the sides part: a new group takes the place of "+g.name)
	for i := range d.sides {
		if err := d.clearOn(i, g); err != nil {
			return err
		}
	}
	d.parked = slices.DeleteFunc(d.parked, func(p *pending) bool {
		if p.group != g.name {
			return false
		}
		for _, c := range p.calls {
			<-c.done
		}
		return true
	})
	// What is left of a group depends on the order in which its members went: a new one takes its place.
	delete(d.groups, g.name)
	d.names = slices.DeleteFunc(d.names, func(name string) bool { return name == g.name })
	name := fmt.Sprintf("%s.%d", g.name, d.splits)
	d.groups[name] = &group{name: name, classic: g.classic, assignor: g.assignor, patterns: g.patterns, born: d.steps}
	d.names = append(d.names, name)
	return nil
}

// clearOn lets all members leave on one side, whichever protocol they speak.
func (d *driver) clearOn(i int, g *group) error {
	s := d.sides[i]
	ask := func(req kmsg.Request) (kmsg.Response, error) {
		c := s.start(req)
		<-c.done
		return c.resp, c.err
	}
	leave := wire.At(kmsg.NewPtrLeaveGroupRequest(), 5)
	leave.Group = g.name
	consumers := wire.At(kmsg.NewPtrConsumerGroupDescribeRequest(), 1)
	consumers.Groups = []string{g.name}
	resp, err := ask(consumers)
	if err != nil {
		return err
	}
	if r, ok := resp.(*kmsg.ConsumerGroupDescribeResponse); ok && r.Groups[0].ErrorCode == 0 {
		for _, m := range r.Groups[0].Members {
			leave.Members = append(leave.Members, kmsg.LeaveGroupRequestMember{MemberID: m.MemberID})
			end := wire.At(kmsg.NewPtrConsumerGroupHeartbeatRequest(), 1)
			end.Group, end.MemberID, end.MemberEpoch, end.InstanceID = g.name, m.MemberID, -1, m.InstanceID
			if _, err := ask(end); err != nil {
				return err
			}
		}
	}
	describe := wire.At(kmsg.NewPtrDescribeGroupsRequest(), 5)
	describe.Groups = []string{g.name}
	if resp, err = ask(describe); err != nil {
		return err
	}
	if r, ok := resp.(*kmsg.DescribeGroupsResponse); ok {
		for _, m := range r.Groups[0].Members {
			leave.Members = append(leave.Members, kmsg.LeaveGroupRequestMember{MemberID: m.MemberID})
		}
	}
	for _, m := range g.members {
		leave.Members = append(leave.Members, kmsg.LeaveGroupRequestMember{MemberID: s.id(m.name)})
	}
	_, err = ask(leave)
	return err
}

// apply keeps what an answer says, the same on both sides.
func (d *driver) apply(p *pending, resp kmsg.Response) {
	m := p.member
	if m == nil {
		return
	}
	g := d.groups[p.group]
	switch r := resp.(type) {
	case *kmsg.JoinGroupResponse:
		switch r.ErrorCode {
		case 0:
			m.epoch, m.leader, m.list = r.Generation, r.LeaderID == r.MemberID, nil
			for _, x := range r.Members {
				m.list = append(m.list, d.sides[0].name(x.MemberID))
			}
			slices.Sort(m.list)
		case 79:
			m.epoch = 0
		default:
			d.forget(g, m)
		}
	case *kmsg.SyncGroupResponse:
		if r.ErrorCode == 25 {
			d.forget(g, m)
		}
	case *kmsg.ConsumerGroupHeartbeatResponse:
		if r.ErrorCode != 0 {
			if r.ErrorCode == 25 || r.ErrorCode == 110 && d.rng.IntN(2) == 0 {
				d.forget(g, m)
			}
			return
		}
		m.epoch = r.MemberEpoch
		if r.Assignment != nil {
			m.assigned = nil
			for _, t := range r.Assignment.Topics {
				m.assigned = append(m.assigned, kmsg.ConsumerGroupHeartbeatRequestTopic{TopicID: t.TopicID, Partitions: t.Partitions})
			}
		}
		if m.epoch == -1 {
			d.forget(g, m)
		}
	}
}

func (d *driver) forget(g *group, m *member) {
	g.members = slices.DeleteFunc(g.members, func(x *member) bool { return x == m })
}

// pick is a member that waits for nothing, or nil.
func (d *driver) pick(g *group) *member {
	var free []*member
	for _, m := range g.members {
		if !m.busy {
			free = append(free, m)
		}
	}
	if len(free) == 0 {
		return nil
	}
	return free[d.rng.IntN(len(free))]
}

// oneOf is any of some values.
func oneOf[V any](d *driver, values ...V) V { return values[d.rng.IntN(len(values))] }

// chance holds in so many of a hundred cases.
func (d *driver) chance(percent int) bool { return d.rng.IntN(100) < percent }
