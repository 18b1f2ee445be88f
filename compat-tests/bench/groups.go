package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// groupGoal is how many times Kafka's speed is aimed at for everything that groups do.
const groupGoal = 5

// Metrics of the workloads of groups.
const (
	untilStable = "start to stable"
	loadTime    = "start to the first answer of the coordinator"
	brokerCPU   = "broker CPU meanwhile"
	brokerRSS   = "broker RSS afterwards"
)

func groupWorkloads(o options) []workload {
	records := 200_000
	if o.full {
		records = 1_000_000
	}
	return []workload{
		offsetCommits(1), offsetCommits(64), joiningGroups(1000), largeGroup(500, 2000, false), largeGroup(500, 2000, true), coordinatorLoad(records),
	}
}

// commitRequest commits one offset of each of so many partitions, outside of any generation.
func commitRequest(group, topic string, partitions int32) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.Generation = 8, group, -1
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic = topic
	for p := range partitions {
		q := kmsg.NewOffsetCommitRequestTopicPartition()
		q.Partition, q.Offset, q.LeaderEpoch, q.Metadata = p, 1, -1, new(string)
		t.Partitions = append(t.Partitions, q)
	}
	req.Topics = append(req.Topics, t)
	return req
}

// checkCommit refuses an answer in which a commit failed.
func checkCommit(answer []byte) error {
	r := kmsg.NewPtrOffsetCommitResponse()
	r.Version = 8
	if err := r.ReadFrom(answer[5:]); err != nil { // after the correlation id and the empty tag section
		return err
	}
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return err
			}
		}
	}
	return nil
}

// offsetCommits lets so many committers, each with a group and a connection of its own, commit one offset at a time.
func offsetCommits(committers int) workload {
	return workload{
		name:    fmt.Sprintf("offset commits, %d committers", committers),
		metrics: []metric{{name: rate, unit: "1/s", goal: groupGoal}, {name: rateCore, unit: "1/s"}, {name: latency50, unit: "us", better: lower}, {name: latency99, unit: "us", better: lower}},
		shared:  true,
		run: func(ctx context.Context, b *bench, k kind, _ bool) (s sample, err error) {
			err = b.onTopic(ctx, k, 1, func(x *broker, topic string) error {
				if err := awaitGroups(ctx, x); err != nil {
					return err
				}
				l := load{addr: x.addr, connections: committers, inFlight: 1, check: checkCommit, frame: func(i int) []byte {
					return frame(commitRequest(fmt.Sprintf("committer-%d", i), topic, 1))
				}}
				r, err := l.run(ctx, x.pid(), b.o.load)
				if err == nil {
					s = sampleOf(r)
				}
				return err
			})
			return s, err
		},
	}
}

// awaitGroups waits until every partition of the offsets topic has a coordinator: groups hash to all of them.
func awaitGroups(ctx context.Context, x *broker) error {
	return withConn(ctx, x, func(c *conn) error {
		find := kmsg.NewPtrFindCoordinatorRequest()
		find.Version, find.CoordinatorKeys = 4, []string{"any"}
		for i := 0; i < 400; {
			if _, err := c.request(find); err != nil {
				return err
			}
			code, err := c.offsetFetch(fmt.Sprintf("probe-%d", i))
			if err != nil {
				return err
			}
			if code == 0 {
				i++
				continue
			}
			select {
			case <-time.After(5 * time.Millisecond):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
}

// offsetFetch asks for all offsets of a group and returns the code.
func (c *conn) offsetFetch(group string) (int16, error) {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Version, req.Group = 7, group
	r, err := ask[*kmsg.OffsetFetchResponse](c, req)
	if err != nil {
		return 0, err
	}
	return r.ErrorCode, nil
}

// measured runs f and returns how long it took and what the broker used.
func measured(x *broker, f func() error) (sample, error) {
	before, err := usageOf(x.pid())
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := f(); err != nil {
		return nil, err
	}
	took := time.Since(began)
	after, err := usageOf(x.pid())
	return sample{untilStable: millis(took), brokerCPU: millis(after.since(before).cpu), brokerRSS: megabytes(after.rssBytes)}, err
}

func stableMetrics() []metric {
	return []metric{
		{name: untilStable, unit: "ms", better: lower, goal: groupGoal},
		{name: brokerCPU, unit: "ms", better: lower},
		{name: brokerRSS, unit: "MB", better: lower},
	}
}

// connections opens so many connections, closes them after f, and runs f for each at the same time.
func connections(ctx context.Context, x *broker, n int, f func(i int, c *conn) error) func() error {
	conns := make([]*conn, n)
	errs := make([]error, n)
	for i := range conns {
		conns[i], errs[i] = dial(ctx, x.addr)
	}
	return func() error {
		var wg sync.WaitGroup
		for i, c := range conns {
			if errs[i] == nil {
				wg.Go(func() {
					defer c.close()
					errs[i] = f(i, c)
				})
			}
		}
		wg.Wait()
		return errors.Join(errs...)
	}
}

// groupMember is a member of the classic protocol.
type groupMember struct {
	c          *conn
	group, id  string
	generation int32
}

func (m *groupMember) join() (*kmsg.JoinGroupResponse, error) {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Version, req.Group, req.MemberID, req.ProtocolType = 3, m.group, m.id, "consumer"
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = 45000, 300000
	req.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte("\x00\x01\x00\x00\x00\x00\xff\xff\xff\xff\x00\x00\x00\x00")}}
	r, err := ask[*kmsg.JoinGroupResponse](m.c, req)
	if err != nil {
		return nil, err
	}
	m.id, m.generation = r.MemberID, r.Generation
	return r, kerr.ErrorForCode(r.ErrorCode)
}

// sync gives each member of a leader's list some assignment; 27 means that the next rebalance has begun.
func (m *groupMember) sync(list []kmsg.JoinGroupResponseMember, assignment []byte) (int16, error) {
	req := kmsg.NewPtrSyncGroupRequest()
	req.Version, req.Group, req.MemberID, req.Generation = 3, m.group, m.id, m.generation
	for _, x := range list {
		req.GroupAssignment = append(req.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{MemberID: x.MemberID, MemberAssignment: assignment})
	}
	r, err := ask[*kmsg.SyncGroupResponse](m.c, req)
	if err != nil {
		return 0, err
	}
	return r.ErrorCode, nil
}

func (m *groupMember) heartbeat() (int16, error) {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Version, req.Group, req.MemberID, req.Generation = 3, m.group, m.id, m.generation
	r, err := ask[*kmsg.HeartbeatResponse](m.c, req)
	if err != nil {
		return 0, err
	}
	return r.ErrorCode, nil
}

// freshGroup is a name that no workload used before.
func (b *bench) freshGroup() string {
	b.topics++
	return fmt.Sprintf("group-%d", b.topics)
}

// joiningGroups lets the only member of each of so many groups join and sync, all at once.
func joiningGroups(n int) workload {
	return workload{
		name: fmt.Sprintf("%d groups of one member join at once", n), metrics: stableMetrics(), shared: true,
		run: func(ctx context.Context, b *bench, k kind, _ bool) (sample, error) {
			x, prefix := b.shared(k), b.freshGroup()
			if err := awaitGroups(ctx, x); err != nil {
				return nil, err
			}
			return measured(x, connections(ctx, x, n, func(i int, c *conn) error {
				m := groupMember{c: c, group: fmt.Sprintf("%s-%d", prefix, i)}
				r, err := m.join()
				if err != nil {
					return err
				}
				code, err := m.sync(r.Members, []byte("all"))
				return errors.Join(err, kerr.ErrorForCode(code))
			}))
		},
	}
}

// beatEvery is how often the members of a large group look for a rebalance: much more often than clients do, so that it is
// not this which is measured.
const beatEvery = 20 * time.Millisecond

// largeGroup lets one group of many members form.
func largeGroup(members int, partitions int32, consumerProtocol bool) workload {
	protocol := "classic"
	if consumerProtocol {
		protocol = "consumer"
	}
	return workload{
		name: fmt.Sprintf("%s group of %d members, %d partitions", protocol, members, partitions), metrics: stableMetrics(), once: true,
		run: func(ctx context.Context, b *bench, k kind, _ bool) (sample, error) {
			return b.onFresh(ctx, k, func(x *broker) (sample, error) {
				g := &forming{members: members, partitions: int(partitions), group: b.freshGroup(), topic: "large", synced: map[int32]int{}, owned: make([]int, members)}
				if err := x.createTopic(ctx, g.topic, partitions); err != nil {
					return nil, err
				}
				if err := awaitGroups(ctx, x); err != nil {
					return nil, err
				}
				play := g.classic
				if consumerProtocol {
					play = g.consumer
				}
				return measured(x, connections(ctx, x, members, play))
			})
		},
	}
}

// forming is a group that is not stable yet.
type forming struct {
	members, partitions int
	group, topic        string

	stable atomic.Bool
	mu     sync.Mutex
	synced map[int32]int // members by generation
	owned  []int         // partitions by member
}

// classic is one member: it joins until the whole group has synced in one generation.
func (g *forming) classic(_ int, c *conn) error {
	m := groupMember{c: c, group: g.group}
	for !g.stable.Load() {
		r, err := m.join()
		if err != nil {
			return err
		}
		code, err := m.sync(r.Members, make([]byte, 64))
		if err != nil {
			return err
		}
		if code == 0 {
			g.mu.Lock()
			if g.synced[m.generation]++; g.synced[m.generation] == g.members {
				g.stable.Store(true)
			}
			g.mu.Unlock()
		}
		for code == 0 && !g.stable.Load() {
			<-time.After(beatEvery)
			if code, err = m.heartbeat(); err != nil {
				return err
			}
		}
		if err := kerr.ErrorForCode(code); err != nil && !errors.Is(err, kerr.RebalanceInProgress) {
			return err
		}
	}
	return nil
}

// consumer is one member of a consumer group: it owns at once what it is told to, until all partitions are owned and
// nobody has more than its share. Like the clients it says only once what does not change: who says everything is told its
// whole assignment each time.
func (g *forming) consumer(i int, c *conn) error {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Version, req.Group, req.MemberID, req.RebalanceTimeoutMillis = 1, g.group, fmt.Sprintf("member-%d", i), 300000
	req.SubscribedTopicNames, req.Topics = []string{g.topic}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	for !g.stable.Load() {
		r, err := ask[*kmsg.ConsumerGroupHeartbeatResponse](c, req)
		if err != nil {
			return err
		}
		if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
			return err
		}
		req.MemberEpoch, req.RebalanceTimeoutMillis, req.SubscribedTopicNames, req.Topics = r.MemberEpoch, -1, nil, nil
		if r.Assignment != nil {
			g.own(i, r.Assignment, req)
			continue // say so at once
		}
		<-time.After(beatEvery)
	}
	return nil
}

// own takes an assignment.
func (g *forming) own(i int, a *kmsg.ConsumerGroupHeartbeatResponseAssignment, req *kmsg.ConsumerGroupHeartbeatRequest) {
	req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	n := 0
	for _, t := range a.Topics {
		n += len(t.Partitions)
		req.Topics = append(req.Topics, kmsg.ConsumerGroupHeartbeatRequestTopic{TopicID: t.TopicID, Partitions: t.Partitions})
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.owned[i] = n
	sum, most := 0, 0
	for _, n := range g.owned {
		sum, most = sum+n, max(most, n)
	}
	if sum == g.partitions && most <= (g.partitions+g.members-1)/g.members {
		g.stable.Store(true)
	}
}

// coordinatorLoad starts a broker whose offsets topic has many records in one partition.
func coordinatorLoad(records int) workload {
	const perRequest, connectionsOfLoad = 100, 8
	return workload{
		name:    fmt.Sprintf("coordinator loads %d offset records", records),
		metrics: []metric{{name: loadTime, unit: "ms", better: lower, goal: groupGoal}, {name: brokerCPU, unit: "ms", better: lower}, {name: brokerRSS, unit: "MB", better: lower}},
		once:    true,
		run: func(ctx context.Context, b *bench, k kind, _ bool) (sample, error) {
			return b.onFresh(ctx, k, func(x *broker) (sample, error) {
				if err := x.createTopic(ctx, "committed", perRequest); err != nil {
					return nil, err
				}
				if err := awaitGroups(ctx, x); err != nil {
					return nil, err
				}
				commit := func(_ int, c *conn) error {
					f := frame(commitRequest("loaded", "committed", perRequest))
					for i := range records / perRequest / connectionsOfLoad {
						binary.BigEndian.PutUint32(f[correlationAt:], uint32(i))
						if _, err := c.Write(f); err != nil {
							return err
						}
						answer, err := c.receive(nil)
						if err != nil {
							return err
						}
						if err := checkCommit(answer); err != nil {
							return err
						}
					}
					return nil
				}
				if err := connections(ctx, x, connectionsOfLoad, commit)(); err != nil {
					return nil, err
				}
				return x.loaded(ctx, "loaded")
			})
		},
	}
}

// loaded restarts the broker and waits for the group's coordinator.
func (b *broker) loaded(ctx context.Context, group string) (sample, error) {
	if err := b.stop(); err != nil {
		return nil, err
	}
	began := time.Now()
	if _, err := b.start(ctx); err != nil {
		return nil, err
	}
	err := withConn(ctx, b, func(c *conn) error {
		for {
			code, err := c.offsetFetch(group)
			if err != nil || code == 0 {
				return err
			}
			select {
			case <-time.After(time.Millisecond):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	if err != nil {
		return nil, err
	}
	took := time.Since(began)
	u, err := usageOf(b.pid())
	return sample{loadTime: millis(took), brokerCPU: millis(u.cpu), brokerRSS: megabytes(u.rssBytes)}, err
}
