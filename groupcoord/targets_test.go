package groupcoord_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/groupcoord"
	"gregor/groupcoord/schema"
	"gregor/internal/coordinator"
	"gregor/internal/coordinator/coordinatortest"
	"gregor/kraft/image"
	"gregor/kraft/metadata"
	"gregor/protocol"
	"gregor/protocol/record"
)

// gregor is the coordinator over a log in memory, with one partition.
type gregor struct {
	t     testing.TB
	log   *coordinatortest.Log
	c     *groupcoord.Coordinator
	cfg   groupcoord.Config
	epoch int32
	uuids int
	// partitions of the topics, and the image made of them.
	partitions map[string]int32
	image      atomic.Pointer[image.Image]
}

// topicIDs are the topics of the tests.
var topicIDs = map[string]protocol.UUID{"t": {1}, "u": {2}, "v": {3}, "v2": {4}}

func newGregor(t testing.TB) *gregor {
	cfg := groupcoord.DefaultConfig()
	cfg.Classic.InitialRebalanceDelay = 0
	g := &gregor{t: t, log: coordinatortest.NewLog(true), cfg: cfg, partitions: map[string]int32{"t": 4, "u": 4, "v": 4}}
	g.image.Store(image.Empty())
	g.publish()
	g.start()
	return g
}

func (g *gregor) start() {
	g.c = groupcoord.New(groupcoord.Options{
		Config: g.cfg, Log: g.log, NumPartitions: func() int32 { return 1 },
		Image:   func() *image.Image { return g.image.Load() },
		NewUUID: func() string { g.uuids++; return fmt.Sprintf("%08d", g.uuids) },
	})
	g.epoch++
	g.log.Lead(0, g.epoch)
	g.c.Elect(0, g.epoch)
	synctest.Wait()
}

func (g *gregor) settle() { synctest.Wait() }
func (g *gregor) close()  { g.c.Close() }

func (g *gregor) do(ctx context.Context, member string, req kmsg.Request) (kmsg.Response, error) {
	// Through the wire format, so that a version has only its own fields.
	in := kmsg.RequestForKey(req.Key())
	in.SetVersion(req.GetVersion())
	if err := in.ReadFrom(req.AppendTo(nil)); err != nil {
		return nil, err
	}
	resp := dispatch(ctx, g.c, member, in)
	out := req.ResponseKind()
	out.SetVersion(resp.GetVersion())
	return out, out.ReadFrom(resp.AppendTo(nil))
}

// answerTo starts a request and waits for its answer.
func answerTo[Req, Resp any](start func(req Req, reply func(Resp)), req Req) Resp {
	answers := make(chan Resp, 1)
	start(req, func(resp Resp) { answers <- resp })
	return <-answers
}

// answerOrGone is answerTo for a client that may leave: then there is no answer that it would see.
func answerOrGone[Req, Resp any](ctx context.Context, start func(req Req, reply func(Resp)), req Req, gone Resp) Resp {
	answers := make(chan Resp, 1)
	start(req, func(resp Resp) { answers <- resp })
	select {
	case resp := <-answers:
		return resp
	case <-ctx.Done():
		return gone
	}
}

// dispatch is what the API layer does.
func dispatch(ctx context.Context, c *groupcoord.Coordinator, member string, req kmsg.Request) kmsg.Response {
	switch req := req.(type) {
	case *kmsg.JoinGroupRequest:
		return answerOrGone(ctx, func(req *kmsg.JoinGroupRequest, reply func(*kmsg.JoinGroupResponse)) {
			c.JoinGroup(groupcoord.Caller{ClientID: member, ClientHost: "/127.0.0.1"}, req, reply)
		}, req, &kmsg.JoinGroupResponse{Version: req.Version, ErrorCode: kerr.CoordinatorNotAvailable.Code, Generation: -1})
	case *kmsg.SyncGroupRequest:
		return answerOrGone(ctx, c.SyncGroup, req, &kmsg.SyncGroupResponse{Version: req.Version, ErrorCode: kerr.CoordinatorNotAvailable.Code})
	case *kmsg.ConsumerGroupHeartbeatRequest:
		return answerTo(func(req *kmsg.ConsumerGroupHeartbeatRequest, reply func(*kmsg.ConsumerGroupHeartbeatResponse)) {
			c.ConsumerGroupHeartbeat(groupcoord.Caller{ClientID: member, ClientHost: "/127.0.0.1"}, req, reply)
		}, req)
	case *kmsg.ConsumerGroupDescribeRequest:
		resp := req.ResponseKind().(*kmsg.ConsumerGroupDescribeResponse)
		resp.Groups = c.ConsumerGroupDescribe(ctx, req.Groups)
		return resp
	case *kmsg.HeartbeatRequest:
		return answerTo(c.Heartbeat, req)
	case *kmsg.LeaveGroupRequest:
		return answerTo(c.LeaveGroup, req)
	case *kmsg.ListGroupsRequest:
		return c.ListGroups(ctx, req)
	case *kmsg.DescribeGroupsRequest:
		resp := req.ResponseKind().(*kmsg.DescribeGroupsResponse)
		resp.Groups = c.DescribeGroups(ctx, req.Groups, req.Version)
		return resp
	case *kmsg.DeleteGroupsRequest:
		resp := req.ResponseKind().(*kmsg.DeleteGroupsResponse)
		resp.Groups = c.DeleteGroups(ctx, req.Groups)
		return resp
	case *kmsg.OffsetCommitRequest:
		for i := range req.Topics {
			req.Topics[i].TopicID = topicIDs[req.Topics[i].Topic]
		}
		return answerTo(c.OffsetCommit, req)
	case *kmsg.TxnOffsetCommitRequest:
		for i := range req.Topics {
			req.Topics[i].TopicID = topicIDs[req.Topics[i].Topic]
		}
		return c.TxnOffsetCommit(ctx, req)
	case *kmsg.OffsetFetchRequest:
		return answerTo(c.OffsetFetch, req)
	case *kmsg.OffsetDeleteRequest:
		return c.OffsetDelete(ctx, req)
	}
	panic(fmt.Sprintf("no handler of %T", req))
}

// local implements target.
func (g *gregor) local(s *script, d *datadriven.TestData) bool {
	a := args{d}
	switch d.Cmd {
	case "config":
		g.configure(a)
	case "crash":
		g.c.Close()
		g.start()
	case "resign":
		g.log.Follow(0)
		g.c.Resign(0, -1)
	case "elect":
		g.epoch++
		g.log.Lead(0, g.epoch)
		g.c.Elect(0, g.epoch)
	case "hold":
		g.log.SetAutoCommit(false)
	case "hw":
		o, _ := g.log.Offsets(0)
		g.log.SetHighWatermark(0, o.LogEnd)
		g.log.SetAutoCommit(true)
	case "fail-appends":
		g.log.FailAppends(0, map[string]error{"": nil, "NOT_ENOUGH_REPLICAS": kerr.NotEnoughReplicas}[strings.TrimSpace(d.Input)])
	case "topic":
		g.partitions[a.str("name", "")] = int32(a.num("partitions", 0))
		g.publish()
	case "delete-topic":
		name := strings.TrimSpace(d.Input)
		id := topicIDs[name]
		if a.has("other") {
			id = protocol.UUID{9}
		}
		g.c.TopicsDeleted([]groupcoord.DeletedTopic{{ID: id, Name: name}})
	case "end-txn":
		go func() {
			err := g.c.EndTxn(g.t.Context(), 0, coordinator.Producer{ID: int64(a.num("producer", 7))}, 1, a.has("commit"))
			s.say("end-txn %v", err)
		}()
	case "log":
		g.dump(s, a.num("from", 0))
	default:
		return false
	}
	return true
}

// publish makes a new image of the topics and shows it to the coordinator.
func (g *gregor) publish() {
	base := g.image.Load()
	delta := image.NewDelta(base)
	replay := func(rec metadata.Record) {
		if err := delta.Replay(rec); err != nil {
			g.t.Fatal(err)
		}
	}
	for name, n := range g.partitions {
		topic := base.Topics.ByName(name)
		switch {
		case topic == nil && n > 0:
			replay(&metadata.TopicRecord{Name: name, TopicID: topicIDs[name]})
		case topic != nil && n == 0:
			replay(&metadata.RemoveTopicRecord{TopicID: topicIDs[name]})
		}
		for p := range n {
			if topic == nil || topic.Partition(p) == nil {
				rec := metadata.NewPartitionRecord()
				rec.PartitionID, rec.TopicID, rec.Replicas, rec.ISR, rec.Leader = p, topicIDs[name], []int32{1}, []int32{1}, 1
				replay(rec)
			}
		}
	}
	next := delta.Apply(image.Provenance{Offset: base.Provenance.Offset + 1})
	g.image.Store(next)
	if g.c != nil {
		g.c.Publish(delta, next, image.Manifest{})
	}
}

// configure starts the coordinator anew with another config.
func (g *gregor) configure(a args) {
	ms := func(key string, to *time.Duration) {
		if a.has(key) {
			*to = time.Duration(a.num(key, 0)) * time.Millisecond
		}
	}
	ms("delay", &g.cfg.Classic.InitialRebalanceDelay)
	ms("check", &g.cfg.RetentionCheckInterval)
	g.cfg.Classic.MaxSize = a.num("size", g.cfg.Classic.MaxSize)
	g.cfg.Offsets.RetentionMillis = int64(a.num("retention", int(g.cfg.Offsets.RetentionMillis)))
	g.c.Close()
	g.start()
}

// dump shows the records of the log from an offset on.
func (g *gregor) dump(s *script, from int) {
	for _, b := range g.log.Batches(0) {
		for rec, err := range b.Records(record.Limits{}) {
			if err != nil {
				g.t.Fatal(err)
			}
			if rec.Offset < int64(from) {
				continue
			}
			s.say("%s", s.showRecord(b, rec))
		}
	}
}

func (s *script) showRecord(b record.Batch, rec record.Record) string {
	if b.IsControl() {
		kind, _ := record.ParseControlKey(rec.Key)
		return fmt.Sprintf("%02d %s", rec.Offset, kind)
	}
	key, err := schema.DecodeOffsetsKey(rec.Key)
	if err != nil {
		return err.Error()
	}
	value, err := schema.DecodeOffsetsValue(key.RecordType(), rec.Value)
	if err != nil {
		return err.Error()
	}
	version := -1
	if rec.Value != nil {
		version = int(binary.BigEndian.Uint16(rec.Value))
	}
	switch k := key.(type) {
	case *schema.OffsetCommitKey:
		text := fmt.Sprintf("%02d offset %s %s-%d", rec.Offset, k.Group, k.Topic, k.Partition)
		if v, ok := value.(*schema.OffsetCommitValue); ok {
			return fmt.Sprintf("%s v%d = %d epoch %d metadata %q expires %v id %v", text, version, v.Offset, v.LeaderEpoch, v.Metadata, v.ExpireTimestamp != -1, !v.TopicID.IsZero())
		}
		return text + " deleted"
	case *schema.GroupMetadataKey:
		text := fmt.Sprintf("%02d group %s", rec.Offset, k.Group)
		v, ok := value.(*schema.GroupMetadataValue)
		if !ok {
			return text + " deleted"
		}
		var members []string
		for _, m := range v.Members {
			members = append(members, fmt.Sprintf("%s/%s=%q", s.nameOf(m.MemberID), deref(m.GroupInstanceID), m.Assignment))
		}
		leader := deref(v.Leader)
		return fmt.Sprintf("%s v%d type=%q gen=%d protocol=%s leader=%s %v", text, version, v.ProtocolType, v.Generation, deref(v.Protocol), s.nameOf(leader), members)
	}
	return fmt.Sprintf("%02d %s", rec.Offset, key.MessageName())
}

// kafka is a real broker.
type kafka struct {
	t     testing.TB
	addr  string
	group string

	// busy counts the requests under way that never wait.
	busy atomic.Int32

	mu     sync.Mutex
	conns  map[string]*kafkaConn
	topics map[protocol.UUID]string
}

type kafkaConn struct {
	mu   sync.Mutex
	conn net.Conn
	id   int32
}

// newKafka connects to a broker at addr. The groups of the script get a prefix
// that is new, so that scripts do not meet.
func newKafka(t testing.TB, addr, script string) *kafka {
	k := &kafka{t: t, addr: addr, conns: map[string]*kafkaConn{}, group: fmt.Sprintf("%s.%d.", script, time.Now().UnixNano())}
	create := kmsg.NewPtrCreateTopicsRequest()
	for _, name := range []string{"t", "u", "v"} {
		topic := kmsg.NewCreateTopicsRequestTopic()
		topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, 4, 1
		create.Topics = append(create.Topics, topic)
	}
	create.TimeoutMillis = 10000
	create.Version = 5
	if _, err := k.do(t.Context(), "admin", create); err != nil {
		t.Fatal(err)
	}
	if err := k.learnTopics(); err != nil {
		t.Fatal(err)
	}
	// The coordinator's topic is made when it is asked for.
	for range 100 {
		find := kmsg.NewPtrFindCoordinatorRequest()
		find.CoordinatorKey, find.Version = "x", 2
		resp, err := k.do(t.Context(), "admin", find)
		if err != nil {
			t.Fatal(err)
		}
		if resp.(*kmsg.FindCoordinatorResponse).ErrorCode == 0 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	return k
}

func (k *kafka) local(*script, *datadriven.TestData) bool { return false }

// settle gives the broker time for what can be answered now: as long as it takes
// for requests that never wait, and a moment for the others.
func (k *kafka) settle() {
	for range 50 {
		time.Sleep(100 * time.Millisecond)
		if k.busy.Load() == 0 {
			break
		}
	}
	time.Sleep(400 * time.Millisecond)
}

func (k *kafka) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range k.conns {
		_ = c.conn.Close()
	}
}

func (k *kafka) connect(member string) (*kafkaConn, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if c := k.conns[member]; c != nil {
		return c, nil
	}
	conn, err := (&net.Dialer{}).DialContext(k.t.Context(), "tcp", k.addr)
	if err != nil {
		return nil, err
	}
	c := &kafkaConn{conn: conn}
	k.conns[member] = c
	return c, nil
}

func (k *kafka) do(_ context.Context, member string, req kmsg.Request) (kmsg.Response, error) {
	switch req.(type) {
	case *kmsg.JoinGroupRequest, *kmsg.SyncGroupRequest:
	default:
		k.busy.Add(1)
		defer k.busy.Add(-1)
	}
	k.rename(req, func(g string) string { return k.group + g })
	// Waiting requests block a connection, so each kind has its own.
	c, err := k.connect(fmt.Sprintf("%s/%d", member, req.Key()))
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.id++
	frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID(member)).AppendRequest(nil, req, c.id)
	if _, err := c.conn.Write(frame); err != nil {
		return nil, err
	}
	size := make([]byte, 4)
	if _, err := io.ReadFull(c.conn, size); err != nil {
		return nil, err
	}
	body := make([]byte, binary.BigEndian.Uint32(size))
	if _, err := io.ReadFull(c.conn, body); err != nil {
		return nil, err
	}
	body = body[4:]
	if req.IsFlexible() {
		body = body[1:]
	}
	resp := req.ResponseKind()
	if err := resp.ReadFrom(body); err != nil {
		return nil, err
	}
	k.renameBack(resp)
	return resp, nil
}

// rename puts the prefix before the group ids of a request.
func (k *kafka) rename(req kmsg.Request, f func(string) string) {
	one := func(g *string) {
		if *g != "" {
			*g = f(*g)
		}
	}
	switch req := req.(type) {
	case *kmsg.JoinGroupRequest:
		one(&req.Group)
	case *kmsg.SyncGroupRequest:
		one(&req.Group)
	case *kmsg.HeartbeatRequest:
		one(&req.Group)
	case *kmsg.ConsumerGroupHeartbeatRequest:
		one(&req.Group)
	case *kmsg.ConsumerGroupDescribeRequest:
		for i := range req.Groups {
			one(&req.Groups[i])
		}
	case *kmsg.LeaveGroupRequest:
		one(&req.Group)
	case *kmsg.OffsetCommitRequest:
		one(&req.Group)
	case *kmsg.TxnOffsetCommitRequest:
		one(&req.Group)
	case *kmsg.OffsetDeleteRequest:
		one(&req.Group)
	case *kmsg.OffsetFetchRequest:
		one(&req.Group)
		for i := range req.Groups {
			one(&req.Groups[i].Group)
		}
	case *kmsg.DescribeGroupsRequest:
		for i := range req.Groups {
			one(&req.Groups[i])
		}
	case *kmsg.DeleteGroupsRequest:
		for i := range req.Groups {
			one(&req.Groups[i])
		}
	}
}

// renameBack takes the prefix away, and the groups of other scripts.
func (k *kafka) renameBack(resp kmsg.Response) {
	switch resp := resp.(type) {
	case *kmsg.ListGroupsResponse:
		var own []kmsg.ListGroupsResponseGroup
		for _, g := range resp.Groups {
			if name, ok := strings.CutPrefix(g.Group, k.group); ok {
				g.Group = name
				own = append(own, g)
			}
		}
		resp.Groups = own
	case *kmsg.DescribeGroupsResponse:
		for i := range resp.Groups {
			resp.Groups[i].Group = strings.TrimPrefix(resp.Groups[i].Group, k.group)
			if m := resp.Groups[i].ErrorMessage; m != nil {
				text := strings.ReplaceAll(*m, k.group, "")
				resp.Groups[i].ErrorMessage = &text
			}
		}
	case *kmsg.ConsumerGroupDescribeResponse:
		for i := range resp.Groups {
			resp.Groups[i].Group = strings.TrimPrefix(resp.Groups[i].Group, k.group)
			if m := resp.Groups[i].ErrorMessage; m != nil {
				text := strings.ReplaceAll(*m, k.group, "")
				resp.Groups[i].ErrorMessage = &text
			}
		}
	case *kmsg.ConsumerGroupHeartbeatResponse:
		if m := resp.ErrorMessage; m != nil {
			text := strings.ReplaceAll(*m, k.group, "")
			resp.ErrorMessage = &text
		}
	case *kmsg.DeleteGroupsResponse:
		for i := range resp.Groups {
			resp.Groups[i].Group = strings.TrimPrefix(resp.Groups[i].Group, k.group)
		}
	}
}
