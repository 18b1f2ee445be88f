package broker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/kraft/image"
	"gregor/protocol"
)

// assignments tells the controller in which log directory this broker has put its replicas, where the cluster does
// not know it yet (KIP-858): with several directories a new partition is created with its directory unassigned.
type assignments struct {
	controllers *controllers
	nodeID      int32
	epoch       func() int64
	log         *slog.Logger

	// told is called after each answer of the controller.
	told func()

	mu      sync.Mutex
	pending map[replicaID]protocol.UUID
	sending bool // some have been taken from pending and are not answered yet
	kick    chan struct{}
}

// replicaID names a partition by its topic's id: the name could come to mean another topic.
type replicaID struct {
	topic     protocol.UUID
	partition int32
}

func newAssignments(c *controllers, nodeID int32, epoch func() int64, log *slog.Logger) *assignments {
	return &assignments{controllers: c, nodeID: nodeID, epoch: epoch, log: log, pending: map[replicaID]protocol.UUID{}, kick: make(chan struct{}, 1)}
}

// placed notes where a replica is.
func (a *assignments) placed(topic protocol.UUID, tp image.TopicPartition, dir protocol.UUID) {
	a.mu.Lock()
	a.pending[replicaID{topic: topic, partition: tp.Partition}] = dir
	a.mu.Unlock()
	select {
	case a.kick <- struct{}{}:
	default:
	}
}

// idle tells whether the controller knows all that there is to tell.
func (a *assignments) idle() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.pending) == 0 && !a.sending
}

// run tells the controller until ctx ends. What arrives while a request is under way goes with the next. Before the
// registration there is nothing that the controller would take.
func (a *assignments) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.kick:
		}
		for again := true; again; {
			if a.epoch() < 0 {
				if !pause(ctx, retryBackoff) {
					return
				}
				continue
			}
			again = a.send(ctx)
		}
	}
}

// pause waits; false when ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// maxAssignments bounds the replicas of one request, as Kafka does.
const maxAssignments = 2250

// take removes a request's worth of assignments.
func (a *assignments) take() map[replicaID]protocol.UUID {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := map[replicaID]protocol.UUID{}
	for id, dir := range a.pending {
		if len(out) == maxAssignments {
			break
		}
		out[id] = dir
		delete(a.pending, id)
	}
	a.sending = len(out) > 0
	return out
}

// answered takes back what a stale registration did not get through, unless something newer is known.
func (a *assignments) answered(batch map[replicaID]protocol.UUID, again bool) {
	a.mu.Lock()
	a.sending = false
	if again {
		for id, dir := range batch {
			if _, newer := a.pending[id]; !newer {
				a.pending[id] = dir
			}
		}
	}
	a.mu.Unlock()
	if a.told != nil {
		a.told()
	}
}

// send tells the controller some of what is pending and returns whether there was something. A refusal is logged: the
// controller refuses what is out of date, and the image that comes next says what holds.
func (a *assignments) send(ctx context.Context) bool {
	batch := a.take()
	if len(batch) == 0 {
		return false
	}
	req := kmsg.NewPtrAssignReplicasToDirsRequest()
	req.BrokerID, req.BrokerEpoch = a.nodeID, a.epoch()
	req.Directories = groupByDirectory(batch)
	resp, err := a.controllers.do(ctx, req, func(r kmsg.Response) bool {
		x, ok := r.(*kmsg.AssignReplicasToDirsResponse)
		return ok && x.ErrorCode == kerr.NotController.Code
	})
	if err != nil {
		a.answered(batch, true)
		return false // ctx ended
	}
	x, _ := resp.(*kmsg.AssignReplicasToDirsResponse)
	stale := x.ErrorCode == kerr.StaleBrokerEpoch.Code || x.ErrorCode == kerr.BrokerIDNotRegistered.Code
	a.answered(batch, stale)
	if stale {
		return pause(ctx, retryBackoff) // the lifecycle registers again
	}
	if err := kerr.ErrorForCode(x.ErrorCode); err != nil {
		a.log.Warn("controller refuses the directories of replicas", "replicas", len(batch), "error", err)
	}
	return true
}

func groupByDirectory(batch map[replicaID]protocol.UUID) []kmsg.AssignReplicasToDirsRequestDirectory {
	type group struct{ dir, topic protocol.UUID }
	partitions := map[group][]kmsg.AssignReplicasToDirsRequestDirectoryTopicPartition{}
	for id, dir := range batch {
		p := kmsg.NewAssignReplicasToDirsRequestDirectoryTopicPartition()
		p.Partition = id.partition
		g := group{dir: dir, topic: id.topic}
		partitions[g] = append(partitions[g], p)
	}
	at := map[protocol.UUID]int{}
	var out []kmsg.AssignReplicasToDirsRequestDirectory
	for g, ps := range partitions {
		i, ok := at[g.dir]
		if !ok {
			i = len(out)
			at[g.dir] = i
			d := kmsg.NewAssignReplicasToDirsRequestDirectory()
			d.ID = g.dir
			out = append(out, d)
		}
		t := kmsg.NewAssignReplicasToDirsRequestDirectoryTopic()
		t.TopicID, t.Partitions = g.topic, ps
		out[i].Topics = append(out[i].Topics, t)
	}
	return out
}
