package groupcoord_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/groupcoord/schema"
	"gregor/protocol"
	"gregor/protocol/record"
)

// world watches a group from the outside while random members do what members
// do, and sometimes what they should not.
type world struct {
	t   *testing.T
	g   *gregor
	rng *rand.Rand

	mu      sync.Mutex
	leaders map[string]string // generation and run > leader and protocol
	// acked and tried are the offsets committed and sent per partition.
	acked, tried map[int32][]int64
}

// actor is a client.
type actor struct {
	name, id string
	instance *string
	gen      int32
	leads    bool
	members  []string
	joining  bool
}

func TestRandomMembersNeverSplitTheGroupOrLoseACommit(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGregor(t)
				g.cfg.Classic.MaxSize = 4
				g.c.Close()
				g.start()
				w := &world{t: t, g: g, rng: rand.New(rand.NewPCG(seed, 7)), leaders: map[string]string{}, acked: map[int32][]int64{}, tried: map[int32][]int64{}}
				w.play()
				g.close()
			})
		})
	}
}

func (w *world) play() {
	actors := make([]*actor, 6)
	for i := range actors {
		actors[i] = &actor{name: fmt.Sprint("m", i), gen: -1}
		if i%3 == 0 {
			instance := fmt.Sprint("i", i)
			actors[i].instance = &instance
		}
	}
	for step := range 150 {
		a := actors[w.rng.IntN(len(actors))]
		switch w.rng.IntN(14) {
		case 0:
			w.g.c.Close()
			w.g.start()
		case 1:
			w.g.log.FailAppends(0, kerr.NotEnoughReplicas)
		case 2:
			w.leave(a)
		case 3:
			time.Sleep(time.Duration(w.rng.IntN(12000)) * time.Millisecond)
		case 4, 5:
			w.commit(a, int64(step))
		case 6, 7:
			w.heartbeat(a)
		case 8, 9, 10:
			w.sync(a)
		default:
			w.join(a)
		}
		if w.rng.IntN(4) > 0 {
			w.g.log.FailAppends(0, nil)
		}
		if w.rng.IntN(5) > 0 {
			synctest.Wait()
		}
	}
	w.g.log.FailAppends(0, nil)
	synctest.Wait()
	w.g.c.Close()
	w.g.start()
	w.checkOffsets()
}

func (w *world) join(a *actor) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if a.joining {
		return
	}
	a.joining = true
	req := kmsg.NewPtrJoinGroupRequest()
	req.Version, req.Group, req.MemberID, req.InstanceID = int16(5+w.rng.IntN(5)), "g", a.id, a.instance
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis, req.ProtocolType = 6000, 4000, "consumer"
	for _, name := range []string{"range", "sticky"}[w.rng.IntN(2):] {
		req.Protocols = append(req.Protocols, kmsg.JoinGroupRequestProtocol{Name: name, Metadata: subscription([]string{"t", "u"}[w.rng.IntN(2)])})
	}
	run := w.g.epoch
	c := w.g.c
	go func() {
		resp := dispatch(w.t.Context(), c, a.name, req).(*kmsg.JoinGroupResponse)
		w.joined(a, run, resp)
	}()
}

func (w *world) joined(a *actor, run int32, resp *kmsg.JoinGroupResponse) {
	w.mu.Lock()
	defer w.mu.Unlock()
	a.joining = false
	switch protocol.ErrorName(resp.ErrorCode) {
	case "NONE":
		a.id, a.gen, a.leads = resp.MemberID, resp.Generation, resp.LeaderID == resp.MemberID
		a.members = nil
		for _, m := range resp.Members {
			a.members = append(a.members, m.MemberID)
		}
		if len(a.members) > 0 && !slices.Contains(a.members, a.id) {
			w.t.Errorf("generation %d: the leader is not among its members", resp.Generation)
		}
		if len(a.members) > 4 {
			w.t.Errorf("generation %d has %d members, the limit is 4", resp.Generation, len(a.members))
		}
		// One generation has one protocol. (Old clients of static members are
		// told an old leader, so that is not compared.)
		key := fmt.Sprint(run, "/", resp.Generation)
		if old, ok := w.leaders[key]; ok && old != *resp.Protocol {
			w.t.Errorf("generation %s has protocols %s and %s", key, old, *resp.Protocol)
		}
		w.leaders[key] = *resp.Protocol
	case "MEMBER_ID_REQUIRED":
		a.id = resp.MemberID
	case "UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID", "GROUP_MAX_SIZE_REACHED":
		a.id, a.gen = "", -1
	case "NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS", "INCONSISTENT_GROUP_PROTOCOL":
	default:
		w.t.Errorf("join: %s", protocol.ErrorName(resp.ErrorCode))
	}
}

func (w *world) sync(a *actor) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if a.gen < 0 {
		return
	}
	req := kmsg.NewPtrSyncGroupRequest()
	req.Version, req.Group, req.MemberID, req.InstanceID, req.Generation = 3, "g", a.id, a.instance, a.gen
	if a.leads {
		for _, id := range a.members {
			req.GroupAssignment = append(req.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{MemberID: id, MemberAssignment: []byte(id)})
		}
	}
	c := w.g.c
	go func() {
		resp := dispatch(w.t.Context(), c, a.name, req).(*kmsg.SyncGroupResponse)
		// What a member gets is what the leader gave to its id, or nothing.
		if got := string(resp.MemberAssignment); resp.ErrorCode == 0 && got != "" && got != req.MemberID && a.instance == nil {
			w.t.Errorf("member %s got the assignment of %s", req.MemberID, got)
		}
	}()
}

func (w *world) heartbeat(a *actor) {
	w.mu.Lock()
	defer w.mu.Unlock()
	req := kmsg.NewPtrHeartbeatRequest()
	req.Version, req.Group, req.MemberID, req.InstanceID, req.Generation = 3, "g", a.id, a.instance, a.gen
	c := w.g.c
	go func() { dispatch(w.t.Context(), c, a.name, req) }()
}

func (w *world) leave(a *actor) {
	w.mu.Lock()
	defer w.mu.Unlock()
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Version, req.Group = 3, "g"
	req.Members = []kmsg.LeaveGroupRequestMember{{MemberID: a.id, InstanceID: a.instance}}
	c := w.g.c
	go func() { dispatch(w.t.Context(), c, a.name, req) }()
}

func (w *world) commit(a *actor, offset int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := int32(w.rng.IntN(3))
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.MemberID, req.InstanceID, req.Generation = 8, "g", a.id, a.instance, a.gen
	if w.rng.IntN(3) == 0 {
		req.Group, req.MemberID, req.InstanceID, req.Generation = "simple", "", nil, -1
		p += 10
	}
	req.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "t", Partitions: []kmsg.OffsetCommitRequestTopicPartition{{Partition: p, Offset: offset}}}}
	w.tried[p] = append(w.tried[p], offset)
	c := w.g.c
	go func() {
		resp := dispatch(w.t.Context(), c, a.name, req).(*kmsg.OffsetCommitResponse)
		w.mu.Lock()
		defer w.mu.Unlock()
		if resp.Topics[0].Partitions[0].ErrorCode == 0 {
			w.acked[p] = append(w.acked[p], offset)
		}
	}()
}

// checkOffsets: every commit that was answered is in the log, and the last one in
// the log is what is fetched.
func (w *world) checkOffsets() {
	w.mu.Lock()
	defer w.mu.Unlock()
	inLog := map[int32][]int64{}
	for _, b := range w.g.log.Batches(0) {
		for rec, err := range b.Records(record.Limits{}) {
			if err != nil {
				w.t.Fatal(err)
			}
			key, _ := schema.DecodeOffsetsKey(rec.Key)
			if k, ok := key.(*schema.OffsetCommitKey); ok {
				value, _ := schema.DecodeOffsetsValue(key.RecordType(), rec.Value)
				inLog[k.Partition] = append(inLog[k.Partition], value.(*schema.OffsetCommitValue).Offset)
			}
		}
	}
	for p := range w.tried {
		group := "g"
		if p >= 10 {
			group = "simple"
		}
		for _, offset := range w.acked[p] {
			if !slices.Contains(inLog[p], offset) {
				w.t.Errorf("partition %d: offset %d was acknowledged and is lost", p, offset)
			}
		}
		want := int64(-1)
		if n := len(inLog[p]); n > 0 {
			want = inLog[p][n-1]
		}
		req := kmsg.NewOffsetFetchRequestGroup()
		req.Group, req.MemberEpoch = group, -1
		req.Topics = []kmsg.OffsetFetchRequestGroupTopic{{Topic: "t", Partitions: []int32{p}}}
		fetch := func(req *kmsg.OffsetFetchRequestGroup, reply func(kmsg.OffsetFetchResponseGroup)) {
			w.g.c.OffsetFetchGroup(req, true, reply)
		}
		if got := answerTo(fetch, &req).Topics[0].Partitions[0].Offset; got != want {
			w.t.Errorf("partition %d: offset %d, the log has %d", p, got, want)
		}
	}
}
