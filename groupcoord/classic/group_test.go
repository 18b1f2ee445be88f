package classic

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/groupcoord/schema"
)

func metadata(topics ...string) []byte {
	m := kmsg.NewConsumerMemberMetadata()
	m.Topics = topics
	return m.AppendTo(nil)
}

func member(id string, protocols ...string) *Member {
	m := &Member{ID: id, ProtocolType: ConsumerProtocolType}
	for _, name := range protocols {
		m.Protocols = append(m.Protocols, Protocol{Name: name, Metadata: metadata("t-" + id)})
	}
	return m
}

func TestMostVotesSelectTheProtocol(t *testing.T) {
	g := NewGroup("g")
	g.add(member("a", "range", "sticky"), nil)
	g.add(member("b", "sticky", "range"), nil)
	g.add(member("c", "sticky", "range", "other"), nil)
	if got := g.selectProtocol(); got != "sticky" {
		t.Errorf("selected %s", got)
	}
}

func TestTiesAreDecidedAsByJavasHashMap(t *testing.T) {
	// In a java.util.HashMap of 16 buckets these come in this order:
	// roundrobin (3), range (14), sticky is 5.
	for _, names := range [][]string{{"range", "sticky"}, {"sticky", "range"}} {
		g := NewGroup("g")
		g.add(member("a", names[0], names[1]), nil)
		g.add(member("b", names[1], names[0]), nil)
		want := "range"
		if javaBucket("sticky") < javaBucket("range") {
			want = "sticky"
		}
		if got := g.selectProtocol(); got != want {
			t.Errorf("%v: selected %s, want %s", names, got, want)
		}
	}
	// Java: "range".hashCode() is 108280125, "" is 0.
	if got, want := javaBucket("range"), int((uint32(108280125)^uint32(108280125)>>16)&15); got != want {
		t.Errorf("bucket %d, want %d", got, want)
	}
	if javaBucket("") != 0 {
		t.Error("the empty string is not in bucket 0")
	}
}

func TestSubscribedTopicsAreThoseOfAllMembersOrUnknown(t *testing.T) {
	g := NewGroup("g")
	selected := "range"
	g.add(member("a", "range"), nil)
	g.add(member("b", "range"), nil)
	g.protocol = &selected
	if got := g.subscribedTopics(); len(got) != 2 {
		t.Errorf("topics %v", got)
	}
	for _, bad := range [][]byte{nil, {0}, {0xff, 0xff, 0, 0}, {0, 1, 0xff, 0xff, 0xff, 0xff}, {0, 0, 0x7f, 0xff, 0xff, 0xff}} {
		odd := member("c", "range")
		odd.Protocols[0].Metadata = bad
		g.add(odd, nil)
		g.subscribed = g.subscribedTopics()
		if g.subscribed != nil {
			t.Errorf("metadata %x: topics %v", bad, g.subscribed)
		}
		if !g.Subscribed("anything") {
			t.Error("a group whose topics are unknown has to be taken to read everything")
		}
		g.remove("c")
	}
	g.ProtocolType = "connect"
	if g.subscribed = g.subscribedTopics(); g.Subscribed("anything") {
		t.Error("only consumers read topics")
	}
}

func TestRecordSurvivesARoundTrip(t *testing.T) {
	g := NewGroup("g")
	instance := "i"
	a := member("a", "range")
	a.InstanceID, a.ClientID, a.ClientHost, a.Assignment = &instance, "c", "/h", []byte{1}
	a.RebalanceTimeoutMillis, a.SessionTimeoutMillis = 5, 6
	g.add(a, nil)
	g.nextGenerationForTest()
	value := g.record(nil).Value.(*schema.GroupMetadataValue)
	again := FromRecord("g", value)
	if again.state != Stable || again.Generation != 1 || again.leader != "a" || *again.protocol != "range" || again.static["i"] != "a" {
		t.Errorf("group %+v", again)
	}
	m := again.members["a"]
	if m.ClientID != "c" || m.ClientHost != "/h" || m.RebalanceTimeoutMillis != 5 || m.SessionTimeoutMillis != 6 || len(m.Assignment) != 1 {
		t.Errorf("member %+v", m)
	}
	if !again.Subscribed("t-a") || again.Subscribed("other") {
		t.Error("the subscription is not known after the load")
	}
}

// nextGenerationForTest goes through the states that a rebalance does.
func (g *Group) nextGenerationForTest() {
	g.transition(PreparingRebalance)
	g.nextGeneration()
	g.transition(Stable)
}

func TestContradictoryRecordIsTolerated(t *testing.T) {
	instance, leader, protocol := "i", "nobody", "range"
	value := &schema.GroupMetadataValue{
		ProtocolType: "consumer", Protocol: &protocol, Leader: &leader,
		Members: []schema.GroupMetadataMember{
			{MemberID: "a", GroupInstanceID: &instance, RebalanceTimeout: -1, SessionTimeout: 7},
			{MemberID: "a"},
			{MemberID: "b", GroupInstanceID: &instance},
		},
	}
	g := FromRecord("g", value)
	g.check()
	if len(g.members) != 2 || g.leader != "a" || g.static["i"] != "a" || g.members["b"].InstanceID != nil {
		t.Errorf("group %+v", g)
	}
	if g.members["a"].RebalanceTimeoutMillis != 7 {
		t.Error("without a rebalance timeout the session timeout counts")
	}
}

func TestExpiryRules(t *testing.T) {
	g := NewGroup("g")
	g.stateSince = 42
	if e := g.Expiry(); e.Never || e.SinceMillis != noTimestamp {
		t.Errorf("simple group: %+v", e)
	}
	g.ProtocolType = "connect"
	if e := g.Expiry(); e.Never || e.SinceMillis != 42 {
		t.Errorf("empty group: %+v", e)
	}
	g.add(member("a", "range"), nil)
	g.ProtocolType = ConsumerProtocolType
	g.nextGenerationForTest()
	if e := g.Expiry(); e.Never || e.SinceMillis != noTimestamp {
		t.Errorf("stable consumer group: %+v", e)
	}
	g.transition(PreparingRebalance)
	if e := g.Expiry(); !e.Never {
		t.Errorf("rebalancing group: %+v", e)
	}
}

func FuzzSubscription(f *testing.F) {
	f.Add(metadata("a", "b"))
	f.Add([]byte{0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		topics, ok := subscription(b)
		if !ok && topics != nil {
			t.Fatal("topics of unreadable metadata")
		}
	})
}
