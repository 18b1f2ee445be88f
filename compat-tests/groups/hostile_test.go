package groups

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/compat-tests/harness"
	"gregor/compat-tests/wire"
)

// stormMembers is how many members join at once.
const stormMembers = 300

// maxSize is group.max.size.
const maxSize = 20

// maxGrowthMB bounds what all the bad input may cost a broker in resident memory.
const maxGrowthMB = 160

// rssMB is the resident memory of a process.
func rssMB(tb testing.TB, n *harness.Node) int {
	tb.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.Pid()))
	if err != nil {
		harness.Unavailable(tb, "resident memory is read from /proc: "+err.Error())
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				tb.Fatal(err)
			}
			return kb / 1024
		}
	}
	tb.Fatal("no VmRSS")
	return 0
}

// badInput is a request and the code that it must get.
type badInput struct {
	name string
	req  func(t wire.Topic) kmsg.Request
	want *kerr.Error // nil: none
	// kafka is what Kafka answers where it differs.
	kafka *int16
}

func code(resp kmsg.Response) int16 {
	switch r := resp.(type) {
	case *kmsg.JoinGroupResponse:
		return r.ErrorCode
	case *kmsg.SyncGroupResponse:
		return r.ErrorCode
	case *kmsg.HeartbeatResponse:
		return r.ErrorCode
	case *kmsg.LeaveGroupResponse:
		if r.ErrorCode == 0 && len(r.Members) > 0 {
			return r.Members[0].ErrorCode
		}
		return r.ErrorCode
	case *kmsg.OffsetCommitResponse:
		return r.Topics[0].Partitions[0].ErrorCode
	case *kmsg.OffsetFetchResponse:
		return r.Groups[0].ErrorCode
	case *kmsg.OffsetDeleteResponse:
		return r.ErrorCode
	case *kmsg.DeleteGroupsResponse:
		return r.Groups[0].ErrorCode
	case *kmsg.DescribeGroupsResponse:
		return r.Groups[0].ErrorCode
	case *kmsg.ConsumerGroupDescribeResponse:
		return r.Groups[0].ErrorCode
	case *kmsg.ConsumerGroupHeartbeatResponse:
		return r.ErrorCode
	}
	return -99
}

func joinAs(group, member string, metadata []byte) *kmsg.JoinGroupRequest {
	req := wire.At(kmsg.NewPtrJoinGroupRequest(), 3) // before MEMBER_ID_REQUIRED
	req.Group, req.MemberID, req.ProtocolType, req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = group, member, "consumer", 10000, 10000
	req.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: metadata}}
	return req
}

func beatAs(group, member string, edit func(r *kmsg.ConsumerGroupHeartbeatRequest)) *kmsg.ConsumerGroupHeartbeatRequest {
	req := wire.At(kmsg.NewPtrConsumerGroupHeartbeatRequest(), 1)
	req.Group, req.MemberID, req.MemberEpoch, req.RebalanceTimeoutMillis = group, member, 0, 10000
	req.SubscribedTopicNames, req.Topics = []string{"bad"}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	edit(req)
	return req
}

func commitAs(t wire.Topic, group, member string, generation int32, metadata string) *kmsg.OffsetCommitRequest {
	req := wire.At(kmsg.NewPtrOffsetCommitRequest(), 9)
	req.Group, req.MemberID, req.Generation = group, member, generation
	rt := kmsg.NewOffsetCommitRequestTopic()
	rt.Topic, rt.TopicID = t.Name, t.ID
	rp := kmsg.NewOffsetCommitRequestTopicPartition()
	rp.Offset, rp.Metadata = 1, &metadata
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

// manyTopics is a subscription to topics that are not there.
func manyTopics(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("a-topic-that-nobody-ever-made-%d", i))
	}
	return out
}

// badInputs are requests that a group's coordinator refuses, or must be able to bear.
func badInputs() []badInput {
	heartbeat := func(group, member string, generation int32) kmsg.Request {
		req := wire.At(kmsg.NewPtrHeartbeatRequest(), 4)
		req.Group, req.MemberID, req.Generation = group, member, generation
		return req
	}
	sync := func(group, member string, generation int32) kmsg.Request {
		req := wire.At(kmsg.NewPtrSyncGroupRequest(), 4)
		req.Group, req.MemberID, req.Generation = group, member, generation
		return req
	}
	leave := func(group, member string) kmsg.Request {
		req := wire.At(kmsg.NewPtrLeaveGroupRequest(), 4)
		req.Group, req.Members = group, []kmsg.LeaveGroupRequestMember{{MemberID: member}}
		return req
	}
	return []badInput{
		{"heartbeat of no group", constant(heartbeat("", "m", 1)), kerr.InvalidGroupID, nil},
		{"heartbeat of no member", constant(heartbeat("bad", "", 1)), kerr.UnknownMemberID, nil},
		{"heartbeat of a stranger", constant(heartbeat("bad", "m", 1)), kerr.UnknownMemberID, nil},
		{"sync of a stranger", constant(sync("bad", "m", 7)), kerr.UnknownMemberID, nil},
		{"sync of no group", constant(sync("", "m", 7)), kerr.InvalidGroupID, nil},
		{"leave of a stranger", constant(leave("bad", "m")), kerr.UnknownMemberID, nil},
		{"join of no group", constant(joinAs("", "", subscription("bad"))), kerr.InvalidGroupID, nil},
		{"join of a stranger", constant(joinAs("bad", "m", subscription("bad"))), kerr.UnknownMemberID, nil},
		{"join with a session too short", constant(func() kmsg.Request {
			r := joinAs("bad", "", nil)
			r.SessionTimeoutMillis = 1
			return r
		}()), kerr.InvalidSessionTimeout, nil},
		{"join without protocols", constant(func() kmsg.Request {
			r := joinAs("bad", "", nil)
			r.Protocols = nil
			return r
		}()), kerr.InconsistentGroupProtocol, nil},
		{"commit of a stranger", func(t wire.Topic) kmsg.Request { return commitAs(t, "bad", "m", 3, "") }, kerr.UnknownMemberID, nil},
		{"commit of no group", func(t wire.Topic) kmsg.Request { return commitAs(t, "", "", -1, "") }, nil, nil},
		{"commit with much metadata", func(t wire.Topic) kmsg.Request { return commitAs(t, "bad", "", -1, strings.Repeat("x", 30000)) }, kerr.OffsetMetadataTooLarge, nil},
		{"commit with as much metadata as may be", func(t wire.Topic) kmsg.Request { return commitAs(t, "bad-full", "", -1, strings.Repeat("x", 4096)) }, nil, nil},
		{"10,000 topics in a classic subscription", constant(joinAs("bad-many-classic", "", subscription(manyTopics(10_000)...))), nil, nil},
		{"metadata that is no subscription", constant(joinAs("bad-metadata", "", []byte{0xff, 0xff, 0xff, 0xff, 0x7f})), nil, nil},
		{"a megabyte of metadata", constant(joinAs("bad-large", "", make([]byte, 900_000))), nil, nil},
		{"more metadata than a batch may hold", constant(joinAs("bad-huge", "", make([]byte, 8_000_000))), nil, nil},
	}
}

// constant is a request that needs no topic.
func constant(req kmsg.Request) func(wire.Topic) kmsg.Request {
	return func(wire.Topic) kmsg.Request { return req }
}

// badConsumerInputs are those of the consumer protocol.
func badConsumerInputs() []badInput {
	regex := func(pattern string) kmsg.Request {
		return beatAs("bad-regex", "member-of-a-regex", func(r *kmsg.ConsumerGroupHeartbeatRequest) {
			r.SubscribedTopicNames, r.SubscribedTopicRegex = nil, &pattern
		})
	}
	edited := func(edit func(r *kmsg.ConsumerGroupHeartbeatRequest)) kmsg.Request {
		return beatAs("bad-848", "some-member", edit)
	}
	return []badInput{
		{"consumer heartbeat of no group", constant(beatAs("", "m", func(*kmsg.ConsumerGroupHeartbeatRequest) {})), kerr.InvalidRequest, nil},
		{"consumer heartbeat of no member", constant(edited(func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberID = "" })), kerr.InvalidRequest, nil},
		{"consumer heartbeat of a stranger", constant(edited(func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberEpoch = 5 })), kerr.GroupIDNotFound, nil},
		{"consumer heartbeat with epoch -9", constant(edited(func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberEpoch = -9 })), kerr.InvalidRequest, nil},
		{"consumer heartbeat with owned partitions at first", constant(edited(func(r *kmsg.ConsumerGroupHeartbeatRequest) {
			r.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{{Partitions: []int32{1}}}
		})), kerr.InvalidRequest, nil},
		{"consumer heartbeat with an unknown assignor", constant(edited(func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.ServerAssignor = new("nonsense") })), kerr.UnsupportedAssignor, nil},
		{"consumer heartbeat with an empty instance", constant(edited(func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.InstanceID = new("") })), kerr.InvalidRequest, nil},
		{"a regex that does not parse", constant(regex("a(b")), kerr.InvalidRegularExpression, nil},
		{"a regex with a look-around", constant(regex("(?=a)b")), kerr.InvalidRegularExpression, nil},
		{"a regex with a back reference", constant(regex(`(a)\1`)), kerr.InvalidRegularExpression, nil},
		{"a regex with nested repeats", constant(regex(strings.Repeat("(", 30) + "a" + strings.Repeat("*)", 30))), nil, nil},
		// Gregor compiles no pattern of a million states.
		{"a regex with too large a repeat", constant(regex("(a{1000}){1000}")), kerr.InvalidRegularExpression, new(int16(0))},
		// Kafka's stack overflows.
		{"a regex nested deeply", constant(regex(strings.Repeat("(", 5000) + strings.Repeat(")", 5000))), kerr.InvalidRegularExpression, new(int16(-1))},
		{"10,000 topics in a consumer's subscription", constant(beatAs("bad-many", "member-of-many", func(r *kmsg.ConsumerGroupHeartbeatRequest) {
			r.SubscribedTopicNames = manyTopics(10_000)
		})), nil, nil},
	}
}

// TestBadInputGetsKafkasCodesAndCostsNoMemory plays the same bad requests on both: what the test wants is checked on
// Kafka too.
func TestBadInputGetsKafkasCodesAndCostsNoMemory(t *testing.T) {
	for _, kind := range []harness.Kind{harness.Gregor, harness.Kafka} {
		t.Run(string(kind), func(t *testing.T) {
			n := harness.Start(t, kind, harness.Options{Properties: harness.Properties{"group.max.size": strconv.Itoa(maxSize)}})
			topic := wire.CreateTopic(t, n, "bad", 4)
			inputs := append(badInputs(), badConsumerInputs()...)
			for _, b := range inputs {
				if r, ok := b.req(topic).(*kmsg.JoinGroupRequest); ok && r.Group != "" {
					awaitCoordinator(t, n, r.Group)
				}
			}
			awaitCoordinator(t, n, "bad-full", "bad-848", "bad-regex", "bad-many", "storm", "storm-new")
			before := rssMB(t, n)
			s := &side{t: t, node: n, ids: map[string]string{}}
			for _, b := range inputs {
				c := s.start(b.req(topic))
				select {
				case <-c.done:
				case <-time.After(patience):
					t.Fatalf("%s: no answer", b.name)
				}
				if c.err != nil {
					t.Errorf("%s: %v", b.name, c.err)
					continue
				}
				var want int16
				switch {
				case kind == harness.Kafka && b.kafka != nil:
					want = *b.kafka
				case b.want != nil:
					want = b.want.Code
				}
				if got := code(c.resp); got != want {
					t.Errorf("%s: %v, want %v", b.name, kerr.ErrorForCode(got), kerr.ErrorForCode(want))
				}
			}
			joinStorm(t, s)
			after := rssMB(t, n)
			t.Logf("%s: resident memory %d MB before, %d MB after", kind, before, after)
			if kind == harness.Gregor && after-before > maxGrowthMB {
				t.Errorf("resident memory grew from %d to %d MB", before, after)
			}
		})
	}
}

// joinStorm lets far more members join at once than a group may have: a group that has a member already, and a new one.
func joinStorm(t *testing.T, s *side) {
	t.Helper()
	first := s.start(joinAs("storm", "", nil))
	<-first.done
	if first.err != nil || code(first.resp) != 0 {
		t.Fatalf("the first join of the storm: %v, %+v", first.err, first.resp)
	}
	// The first member does not join again, so that the rebalance lasts as long as it may: all others fall into it.
	let, refused := storm(t, s, "storm")
	if len(let) != 1 || let[2] != maxSize || refused != stormMembers-maxSize {
		t.Errorf("by generation %v joined, %d were refused; %d may join generation 2", let, refused, maxSize)
	}
	// The first rebalance of a group without a delay ends as soon as a timer of no time fires: how many joins come before
	// that is chance. The others find a group in a generation, and begin another rebalance, in which those count that
	// wait and not those that have not joined again. So each generation has its own bound.
	let, refused = storm(t, s, "storm-new")
	joined := 0
	for generation, n := range let {
		joined += n
		if n > maxSize {
			t.Errorf("%d joined generation %d, %d may", n, generation, maxSize)
		}
	}
	if joined < maxSize || joined+refused != stormMembers {
		t.Errorf("by generation %v joined, %d were refused", let, refused)
	}
}

// storm tells how many of a storm got into which generation, and how many were refused.
func storm(t *testing.T, s *side, group string) (let map[int32]int, refused int) {
	t.Helper()
	calls := make([]*call, stormMembers)
	for i := range calls {
		calls[i] = s.start(joinAs(group, "", make([]byte, 10_000)))
	}
	let = map[int32]int{}
	for _, c := range calls {
		select {
		case <-c.done:
		case <-time.After(patience):
			t.Fatal("a join of the storm is not answered")
		}
		if c.err != nil {
			t.Fatal(c.err)
		}
		switch r := c.resp.(*kmsg.JoinGroupResponse); r.ErrorCode {
		case kerr.GroupMaxSizeReached.Code:
			refused++
		case 0:
			let[r.Generation]++
		default:
			t.Errorf("a join of the storm: %v", kerr.ErrorForCode(r.ErrorCode))
		}
	}
	t.Logf("%s: by generation %v joined, %d refused", group, let, refused)
	return let, refused
}
