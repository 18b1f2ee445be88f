package groupcoord_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// consumerActor is a client of the consumer protocol. It owns what it was
// assigned until it says that it gave it up, or until its session may be over.
type consumerActor struct {
	id       string
	epoch    int32
	joined   bool
	instance *string
	owned    map[string]bool
	assigned []kmsg.ConsumerGroupHeartbeatResponseAssignmentTopic
	// heard is when the last heartbeat was answered.
	heard time.Time
}

// TestRandomConsumersNeverShareAPartition plays well-behaved consumers under
// failures: at no time do two of them own the same partition.
func TestRandomConsumersNeverShareAPartition(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &consumerWorld{t: t, g: newGregor(t), rng: rand.New(rand.NewPCG(seed, 3))}
				defer w.g.close()
				w.play()
			})
		})
	}
}

type consumerWorld struct {
	t      *testing.T
	g      *gregor
	rng    *rand.Rand
	actors []*consumerActor
	// calm: nobody changes its mind any more.
	calm bool
}

func (w *consumerWorld) play() {
	for i := range 5 {
		a := &consumerActor{id: fmt.Sprint("c", i), owned: map[string]bool{}}
		if i == 0 {
			instance := "static"
			a.instance = &instance
		}
		w.actors = append(w.actors, a)
	}
	for range 200 {
		a := w.actors[w.rng.IntN(len(w.actors))]
		switch w.rng.IntN(16) {
		case 0:
			w.g.c.Close()
			w.g.start()
		case 1:
			w.g.log.FailAppends(0, kerr.NotEnoughReplicas)
		case 2:
			w.leave(a)
		case 3:
			w.g.partitions["t"] = min(w.g.partitions["t"]+1, 9)
			w.g.publish()
		case 4, 5:
			time.Sleep(time.Duration(w.rng.IntN(9000)) * time.Millisecond)
		default:
			w.heartbeat(a)
		}
		if w.rng.IntN(3) > 0 {
			w.g.log.FailAppends(0, nil)
		}
		synctest.Wait()
		w.check()
	}
	w.converge()
}

func (w *consumerWorld) heartbeat(a *consumerActor) {
	// A client whose session may be over has to give everything up.
	if a.joined && time.Since(a.heard) > 44*time.Second {
		w.drop(a)
	}
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Version, req.Group, req.MemberID, req.MemberEpoch, req.InstanceID = 1, "g", a.id, a.epoch, a.instance
	if !a.joined {
		req.MemberEpoch, req.RebalanceTimeoutMillis = 0, 300_000
		req.SubscribedTopicNames, req.Topics = [][]string{{"t"}, {"t", "u"}, {"u", "v"}}[w.rng.IntN(3)], []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	} else {
		req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		for _, t := range a.assigned {
			req.Topics = append(req.Topics, kmsg.ConsumerGroupHeartbeatRequestTopic{TopicID: t.TopicID, Partitions: t.Partitions})
		}
		if !w.calm && w.rng.IntN(6) == 0 {
			req.SubscribedTopicNames = [][]string{{"t"}, {"u"}, {"t", "v"}}[w.rng.IntN(3)]
		}
	}
	resp := dispatch(w.t.Context(), w.g.c, a.id, req).(*kmsg.ConsumerGroupHeartbeatResponse)
	switch resp.ErrorCode {
	case 0:
		a.joined, a.epoch, a.heard = true, resp.MemberEpoch, time.Now()
		if resp.Assignment != nil {
			a.assigned, a.owned = resp.Assignment.Topics, map[string]bool{}
			for _, t := range resp.Assignment.Topics {
				for _, p := range t.Partitions {
					a.owned[fmt.Sprintf("%s-%d", w.g.topicName(t.TopicID), p)] = true
				}
			}
		}
	case kerr.UnknownMemberID.Code, kerr.FencedMemberEpoch.Code, kerr.FencedInstanceID.Code, kerr.UnreleasedInstanceID.Code:
		w.drop(a)
	case kerr.CoordinatorNotAvailable.Code, kerr.NotCoordinator.Code, kerr.CoordinatorLoadInProgress.Code:
	default:
		w.t.Errorf("%s: %s", a.id, errorName(resp.ErrorCode))
	}
}

func (w *consumerWorld) drop(a *consumerActor) {
	a.joined, a.epoch, a.owned, a.assigned = false, 0, map[string]bool{}, nil
}

func (w *consumerWorld) leave(a *consumerActor) {
	if !a.joined {
		return
	}
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Version, req.Group, req.MemberID, req.MemberEpoch, req.InstanceID = 1, "g", a.id, -1, a.instance
	if a.instance != nil {
		req.MemberEpoch = -2
	}
	// It stops consuming before it says so.
	w.drop(a)
	dispatch(w.t.Context(), w.g.c, a.id, req)
}

func (w *consumerWorld) check() {
	owner := map[string]string{}
	for _, a := range w.actors {
		if !a.joined || time.Since(a.heard) > 44*time.Second {
			continue
		}
		for p := range a.owned {
			if other, dup := owner[p]; dup {
				w.t.Fatalf("partition %s is owned by %s and %s", p, other, a.id)
			}
			owner[p] = a.id
		}
	}
}

// converge lets everybody have heartbeats until nothing changes any more: the
// group is stable then, and each partition of what is subscribed has an owner.
func (w *consumerWorld) converge() {
	w.g.log.FailAppends(0, nil)
	w.calm = true
	for range 60 {
		for _, a := range w.actors {
			w.heartbeat(a)
			synctest.Wait()
			w.check()
		}
		time.Sleep(2 * time.Second)
	}
	group := w.g.c.ConsumerGroupDescribe(w.t.Context(), []string{"g"})[0]
	if group.State != "Stable" {
		w.t.Errorf("the group is %s in the end", group.State)
	}
	want := map[string]bool{}
	for _, m := range group.Members {
		for _, topic := range m.SubscribedTopics {
			for p := range w.g.partitions[topic] {
				want[fmt.Sprintf("%s-%d", topic, p)] = true
			}
		}
	}
	owned := 0
	for _, a := range w.actors {
		owned += len(a.owned)
	}
	if owned != len(want) {
		w.t.Errorf("%d partitions are owned of %d", owned, len(want))
	}
}
