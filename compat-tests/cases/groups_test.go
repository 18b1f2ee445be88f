package cases

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/compat-tests/harness"
	"gregor/compat-tests/wire"
)

// retriable tells whether a coordinator may still be on its way.
func retriable(code int16) bool {
	return code == kerr.CoordinatorNotAvailable.Code || code == kerr.CoordinatorLoadInProgress.Code || code == kerr.NotCoordinator.Code
}

// awaitCoordinator waits until the group has a coordinator; the first one who asks makes the topic.
func awaitCoordinator(t *testing.T, n *harness.Node, group string) {
	t.Helper()
	harness.Eventually(t, waitTimeout, "a coordinator for "+group, func() bool {
		req := wire.At(kmsg.NewPtrFindCoordinatorRequest(), 4)
		req.CoordinatorKeys = []string{group}
		found := wire.Do[*kmsg.FindCoordinatorResponse](t, n.Addr, req).Coordinators[0]
		if found.ErrorCode != 0 {
			return false
		}
		want(t, "coordinator", found.NodeID, 1)
		return !retriable(fetchOffsets(t, n, 7, group).ErrorCode)
	})
}

type topicPartition struct {
	topic     string
	partition int32
}

// commitRequest commits one offset outside of any membership.
func commitRequest(version int16, group string, tp topicPartition, offset int64) *kmsg.OffsetCommitRequest {
	req := wire.At(kmsg.NewPtrOffsetCommitRequest(), version)
	req.Group, req.Generation, req.RetentionTimeMillis = group, -1, -1
	rt := kmsg.NewOffsetCommitRequestTopic()
	rt.Topic = tp.topic
	rp := kmsg.NewOffsetCommitRequestTopicPartition()
	rp.Partition, rp.Offset, rp.LeaderEpoch, rp.Metadata = tp.partition, offset, -1, new("")
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

func commit(t *testing.T, n *harness.Node, version int16, group string, tp topicPartition, offset int64) {
	t.Helper()
	awaitCoordinator(t, n, group)
	r := wire.Do[*kmsg.OffsetCommitResponse](t, n.Addr, commitRequest(version, group, tp, offset))
	wantCode(t, "commit", r.Topics[0].Partitions[0].ErrorCode, nil)
}

// fetchOffsets asks for the offsets of a group up to version 7; no partitions means all of them.
func fetchOffsets(t *testing.T, n *harness.Node, version int16, group string, tps ...topicPartition) *kmsg.OffsetFetchResponse {
	t.Helper()
	req := wire.At(kmsg.NewPtrOffsetFetchRequest(), version)
	req.Group = group
	for _, tp := range tps {
		req.Topics = append(req.Topics, kmsg.OffsetFetchRequestTopic{Topic: tp.topic, Partitions: []int32{tp.partition}})
	}
	return wire.Do[*kmsg.OffsetFetchResponse](t, n.Addr, req)
}

// joinRequest asks to join with one protocol.
func joinRequest(version int16, group, member string) *kmsg.JoinGroupRequest {
	req := wire.At(kmsg.NewPtrJoinGroupRequest(), version)
	req.Group, req.MemberID, req.ProtocolType = group, member, "consumer"
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = 10000, 10000
	req.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte{0, 1, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}}}
	return req
}

// member is one member of a classic group, with a connection of its own.
type member struct {
	t     *testing.T
	c     *wire.Conn
	group string
	id    string
}

func newMember(t *testing.T, n *harness.Node, group string) *member {
	t.Helper()
	return &member{t: t, c: wire.Dial(t, n.Addr), group: group}
}

// startJoin sends a join; the answer is for finishJoin. A member without an id gets one first, where the version wants that.
func (m *member) startJoin(req *kmsg.JoinGroupRequest) func() *kmsg.JoinGroupResponse {
	m.t.Helper()
	if req.MemberID = m.id; m.id == "" && req.Version >= 4 && req.InstanceID == nil {
		r, _ := m.c.Request(req).(*kmsg.JoinGroupResponse)
		wantCode(m.t, "join without an id", r.ErrorCode, kerr.MemberIDRequired)
		req.MemberID = r.MemberID
	}
	correlation := m.c.Send(req)
	return func() *kmsg.JoinGroupResponse {
		m.t.Helper()
		r, _ := m.c.Receive(req, correlation).(*kmsg.JoinGroupResponse)
		m.id = r.MemberID
		return r
	}
}

func (m *member) join(req *kmsg.JoinGroupRequest) *kmsg.JoinGroupResponse {
	m.t.Helper()
	return m.startJoin(req)()
}

// sync sends a SyncGroup with an assignment for the members named.
func (m *member) sync(generation int32, members ...string) *kmsg.SyncGroupResponse {
	m.t.Helper()
	req := wire.At(kmsg.NewPtrSyncGroupRequest(), 5)
	req.Group, req.Generation, req.MemberID = m.group, generation, m.id
	req.ProtocolType, req.Protocol = new("consumer"), new("range")
	for _, id := range members {
		req.GroupAssignment = append(req.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{MemberID: id, MemberAssignment: []byte(id)})
	}
	r, _ := m.c.Request(req).(*kmsg.SyncGroupResponse)
	return r
}

func (m *member) heartbeat(generation int32) int16 {
	m.t.Helper()
	req := wire.At(kmsg.NewPtrHeartbeatRequest(), 4)
	req.Group, req.Generation, req.MemberID = m.group, generation, m.id
	r, _ := m.c.Request(req).(*kmsg.HeartbeatResponse)
	return r.ErrorCode
}

func TestJoinWithoutRebalanceTimeout(t *testing.T) {
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		awaitCoordinator(t, n, "join-v0")
		a, b := newMember(t, n, "join-v0"), newMember(t, n, "join-v0")
		first := a.join(joinRequest(0, "join-v0", ""))
		wantCode(t, "first", first.ErrorCode, nil)
		a.sync(first.Generation, a.id)
		second := b.startJoin(joinRequest(0, "join-v0", ""))
		harness.Eventually(t, waitTimeout, "a rebalance", func() bool { return a.heartbeat(first.Generation) == kerr.RebalanceInProgress.Code })
		third := a.join(joinRequest(0, "join-v0", a.id))
		other := second()
		want(t, "generation", third.Generation, other.Generation)
		wantCode(t, "rejoin", third.ErrorCode, nil)
	})
}

func TestMemberIDHandedOutButNeverUsed(t *testing.T) {
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		awaitCoordinator(t, n, "unused-id")
		a, b := newMember(t, n, "unused-id"), newMember(t, n, "unused-id")
		first := a.join(joinRequest(5, "unused-id", ""))
		a.sync(first.Generation, a.id)
		unused := joinRequest(5, "unused-id", "")
		unused.SessionTimeoutMillis = 6000
		r := wire.Do[*kmsg.JoinGroupResponse](t, n.Addr, unused)
		wantCode(t, "first", r.ErrorCode, kerr.MemberIDRequired)
		if r.MemberID == "" || r.Generation != -1 {
			t.Errorf("%+v", r)
		}
		began := time.Now()
		slow := func() *kmsg.JoinGroupRequest {
			req := joinRequest(5, "unused-id", "")
			req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = 60000, 60000
			return req
		}
		finishB := b.startJoin(slow())
		harness.Eventually(t, waitTimeout, "a rebalance", func() bool { return a.heartbeat(first.Generation) == kerr.RebalanceInProgress.Code })
		finishA := a.startJoin(slow())
		wantCode(t, "a", finishA().ErrorCode, nil)
		wantCode(t, "b", finishB().ErrorCode, nil)
		if d := time.Since(began); d < 5*time.Second || d > 20*time.Second {
			t.Errorf("completed after %v, want about the 6 s of the unused id", d)
		}
	})
}

func TestSessionTimeoutOutOfBounds(t *testing.T) {
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		awaitCoordinator(t, n, "session-bounds")
		for v := range int16(10) {
			for timeout, expected := range map[int32]*kerr.Error{5999: kerr.InvalidSessionTimeout, 1800001: kerr.InvalidSessionTimeout} {
				req := joinRequest(v, "session-bounds", "")
				req.SessionTimeoutMillis = timeout
				wantCode(t, fmt.Sprintf("v%d %d ms", v, timeout), wire.Do[*kmsg.JoinGroupResponse](t, n.Addr, req).ErrorCode, expected)
				req.Group = ""
				wantCode(t, fmt.Sprintf("v%d no group", v), wire.Do[*kmsg.JoinGroupResponse](t, n.Addr, req).ErrorCode, kerr.InvalidGroupID)
			}
		}
		for _, timeout := range []int32{6000, 1800000} {
			req := joinRequest(5, "session-bounds-ok", "")
			req.SessionTimeoutMillis = timeout
			wantCode(t, strconv.Itoa(int(timeout)), wire.Do[*kmsg.JoinGroupResponse](t, n.Addr, req).ErrorCode, kerr.MemberIDRequired)
		}
	})
}

func TestStaticMemberRestarts(t *testing.T) {
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		awaitCoordinator(t, n, "static")
		join := func(m *member, version int16) *kmsg.JoinGroupResponse {
			req := joinRequest(version, "static", "")
			req.InstanceID = new("a")
			req.Protocols = append(req.Protocols, kmsg.JoinGroupRequestProtocol{Name: "roundrobin", Metadata: req.Protocols[0].Metadata})
			return m.join(req)
		}
		m := newMember(t, n, "static")
		first := join(m, 9)
		wantCode(t, "first", first.ErrorCode, nil)
		wantCode(t, "sync", m.sync(first.Generation, m.id).ErrorCode, nil)
		old := m.id

		restarted := newMember(t, n, "static")
		again := join(restarted, 9)
		wantCode(t, "restarted", again.ErrorCode, nil)
		want(t, "generation", again.Generation, first.Generation)
		want(t, "skip assignment", again.SkipAssignment, true)
		if again.MemberID == old {
			t.Error("the same member id")
		}
		hb := wire.At(kmsg.NewPtrHeartbeatRequest(), 4)
		hb.Group, hb.Generation, hb.MemberID, hb.InstanceID = "static", again.Generation, old, new("a")
		wantCode(t, "the old id", wire.Do[*kmsg.HeartbeatResponse](t, n.Addr, hb).ErrorCode, kerr.FencedInstanceID)
		got := restarted.sync(again.Generation)
		want(t, "assignment kept", string(got.MemberAssignment), old)

		changed := newMember(t, n, "static")
		req := joinRequest(9, "static", "")
		req.InstanceID, req.Protocols[0].Name = new("a"), "roundrobin"
		other := changed.join(req)
		wantCode(t, "other protocol", other.ErrorCode, nil)
		if other.Generation <= again.Generation {
			t.Errorf("generation %d after %d", other.Generation, again.Generation)
		}
		inBetween := newMember(t, n, "static") // CompletingRebalance: forces a rebalance
		req.MemberID = ""
		forced := inBetween.join(req)
		wantCode(t, "while completing", forced.ErrorCode, nil)
		if forced.Generation <= other.Generation {
			t.Errorf("generation %d after %d", forced.Generation, other.Generation)
		}
	})
}

func TestMemberThatNeverSyncs(t *testing.T) {
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		awaitCoordinator(t, n, "never-syncs")
		request := func() *kmsg.JoinGroupRequest {
			req := joinRequest(9, "never-syncs", "")
			req.RebalanceTimeoutMillis, req.SessionTimeoutMillis = 2000, 30000
			return req
		}
		a, b := newMember(t, n, "never-syncs"), newMember(t, n, "never-syncs")
		first := a.join(request())
		a.sync(first.Generation, a.id)
		joining := b.startJoin(request())
		harness.Eventually(t, waitTimeout, "a rebalance", func() bool { return a.heartbeat(first.Generation) == kerr.RebalanceInProgress.Code })
		second := a.join(request())
		joined := joining()
		want(t, "generation", joined.Generation, second.Generation)
		leader, lazy := a, b
		if second.LeaderID == b.id {
			leader, lazy = b, a
		}
		wantCode(t, "leader's sync", leader.sync(second.Generation, a.id, b.id).ErrorCode, nil)
		wantCode(t, "heartbeat before", lazy.heartbeat(second.Generation), nil)
		harness.Eventually(t, waitTimeout, "the lazy member is removed", func() bool { return lazy.heartbeat(second.Generation) == kerr.UnknownMemberID.Code })
		wantCode(t, "the other rebalances", leader.heartbeat(second.Generation), kerr.RebalanceInProgress)
	})
}

func TestPartitionsWithoutACommit(t *testing.T) {
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		wire.CreateTopic(t, n, "no-commit", 2)
		commit(t, n, 7, "no-commit-group", topicPartition{"no-commit", 0}, 42)
		for v := int16(1); v <= 7; v++ {
			for _, group := range []string{"no-commit-group", "no-such-group"} {
				r := fetchOffsets(t, n, v, group, topicPartition{"no-commit", 1})
				p := r.Topics[0].Partitions[0]
				if r.ErrorCode != 0 || p.ErrorCode != 0 || p.Offset != -1 || p.LeaderEpoch != -1 || p.Metadata == nil || *p.Metadata != "" {
					t.Errorf("v%d %s: %+v", v, group, r)
				}
			}
			if v < 2 {
				continue
			}
			all := fetchOffsets(t, n, v, "no-commit-group")
			if len(all.Topics) != 1 || len(all.Topics[0].Partitions) != 1 || all.Topics[0].Partitions[0].Offset != 42 {
				t.Errorf("v%d, all: %+v", v, all)
			}
			want(t, "all of an unknown group", len(fetchOffsets(t, n, v, "no-such-group").Topics), 0)
		}
		for v := int16(8); v <= 9; v++ {
			req := wire.At(kmsg.NewPtrOffsetFetchRequest(), v)
			for _, group := range []string{"no-commit-group", "no-such-group"} {
				rg := kmsg.NewOffsetFetchRequestGroup()
				rg.Group = group
				req.Groups = append(req.Groups, rg)
			}
			r := wire.Do[*kmsg.OffsetFetchResponse](t, n.Addr, req)
			want(t, "groups", len(r.Groups), 2)
			want(t, "topics of the first", len(r.Groups[0].Topics), 1)
			want(t, "topics of the second", len(r.Groups[1].Topics), 0)
		}
	})
}

func TestLeaderEpochOfACommit(t *testing.T) {
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		wire.CreateTopic(t, n, "commit-epoch", 1)
		for v := int16(6); v <= 9; v++ {
			group := fmt.Sprintf("commit-epoch-%d", v)
			awaitCoordinator(t, n, group)
			req := commitRequest(v, group, topicPartition{"commit-epoch", 0}, 3)
			req.Topics[0].Partitions[0].LeaderEpoch = 7
			wantCode(t, "commit", wire.Do[*kmsg.OffsetCommitResponse](t, n.Addr, req).Topics[0].Partitions[0].ErrorCode, nil)
			for fv := int16(5); fv <= 7; fv++ {
				want(t, "named", fetchOffsets(t, n, fv, group, topicPartition{"commit-epoch", 0}).Topics[0].Partitions[0].LeaderEpoch, 7)
				want(t, "all", fetchOffsets(t, n, fv, group).Topics[0].Partitions[0].LeaderEpoch, 7)
			}
		}
		commit(t, n, 6, "commit-epoch-none", topicPartition{"commit-epoch", 0}, 3)
		want(t, "none given", fetchOffsets(t, n, 7, "commit-epoch-none").Topics[0].Partitions[0].LeaderEpoch, -1)
	})
}

func TestRetentionSentWithTheCommit(t *testing.T) {
	test := func(t *testing.T, kind harness.Kind) {
		n := harness.Start(t, kind, harness.Options{Properties: harness.Properties{"offsets.retention.check.interval.ms": "300"}})
		wire.CreateTopic(t, n, "retention", 1)
		awaitCoordinator(t, n, "retention-short")
		short := commitRequest(4, "retention-short", topicPartition{"retention", 0}, 5)
		short.RetentionTimeMillis = 1000
		wantCode(t, "commit", wire.Do[*kmsg.OffsetCommitResponse](t, n.Addr, short).Topics[0].Partitions[0].ErrorCode, nil)
		commit(t, n, 4, "retention-default", topicPartition{"retention", 0}, 6)
		harness.Eventually(t, waitTimeout, "the commit expires", func() bool {
			return fetchOffsets(t, n, 7, "retention-short", topicPartition{"retention", 0}).Topics[0].Partitions[0].Offset == -1
		})
		want(t, "default retention", fetchOffsets(t, n, 7, "retention-default", topicPartition{"retention", 0}).Topics[0].Partitions[0].Offset, 6)
	}
	t.Run("gregor", func(t *testing.T) { test(t, harness.Gregor) })
	t.Run("kafka", func(t *testing.T) { test(t, harness.Kafka) })
}

func TestFiltersInListGroups(t *testing.T) {
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		awaitCoordinator(t, n, "listed")
		m := newMember(t, n, "listed")
		joined := m.join(joinRequest(9, "listed", ""))
		m.sync(joined.Generation, m.id)
		list := func(version int16, states, types []string) (found bool, state, kind string) {
			req := wire.At(kmsg.NewPtrListGroupsRequest(), version)
			req.StatesFilter, req.TypesFilter = states, types
			r := wire.Do[*kmsg.ListGroupsResponse](t, n.Addr, req)
			wantCode(t, "ListGroups", r.ErrorCode, nil)
			i := slices.IndexFunc(r.Groups, func(g kmsg.ListGroupsResponseGroup) bool { return g.Group == "listed" })
			if i < 0 {
				return false, "", ""
			}
			want(t, "protocol type", r.Groups[i].ProtocolType, "consumer")
			return true, r.Groups[i].GroupState, r.Groups[i].GroupType
		}
		for v := range int16(6) {
			if found, _, _ := list(v, nil, nil); !found {
				t.Errorf("v%d, no filter: not listed", v)
			}
		}
		for v := int16(4); v <= 5; v++ {
			for filter, expected := range map[string]bool{"Stable": true, "stable": true, "Empty": false, "nope": false} {
				found, state, _ := list(v, []string{filter}, nil)
				want(t, fmt.Sprintf("v%d %s", v, filter), found, expected)
				if found {
					want(t, "state", state, "Stable")
				}
			}
		}
		for filter, expected := range map[string]bool{"classic": true, "Classic": true, "consumer": false, "nope": false} {
			found, _, kind := list(5, nil, []string{filter})
			want(t, "type "+filter, found, expected)
			if found {
				want(t, "type", kind, "classic")
			}
		}
	})
}
