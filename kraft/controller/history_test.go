package controller

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"gregor/kraft/image"
	"gregor/kraft/metadata"
	"gregor/protocol"
)

// history drives a world with random requests and keeps all records.
type history struct {
	*world

	log         []metadata.Record
	incarnation map[int32]byte
	topics      int
}

const historyBrokers = 5

func newHistory(level metadata.MetadataVersion) *history {
	h := &history{world: newWorld(defaultLevels(level)...), incarnation: map[int32]byte{}}
	h.log = defaultLevels(level)
	h.cfg.DefaultReplicationFactor = 3
	return h
}

// step does one random thing and checks what must hold between the images before and after it.
func (h *history) step(t *rapid.T) {
	before := h.img
	var res Result
	switch rapid.IntRange(0, 11).Draw(t, "what") {
	case 0, 1:
		res = h.register(t)
	case 2, 3, 4:
		res = h.beat(t)
	case 5:
		h.now = h.now.Add(time.Duration(rapid.IntRange(1, 6).Draw(t, "seconds")) * time.Second)
		r, _, _ := h.decider().FenceExpired()
		h.carryOut(r)
		res = r
	case 6:
		res = h.create(t)
	case 7, 8:
		res = h.alterISR(t)
	case 9:
		res = h.reassign(t)
	case 10:
		res, _ = h.decider().BalanceLeaders()
		h.carryOut(res)
	case 11:
		res = h.configure(t)
	}
	h.log = append(h.log, res.Records...)
	checkImage(t, h.world)
	checkStep(t, before, h.img, res.Records)
}

func (h *history) broker(t *rapid.T) int32 {
	return int32(rapid.IntRange(1, historyBrokers).Draw(t, "broker"))
}

func (h *history) register(t *rapid.T) Result {
	b := h.broker(t)
	if rapid.Bool().Draw(t, "restarted") || h.incarnation[b] == 0 {
		h.incarnation[b]++
	}
	req := registration(b, h.incarnation[b], rapid.IntRange(1, 2).Draw(t, "dirs"))
	if reg := h.img.Cluster.Broker(b); reg != nil && rapid.Bool().Draw(t, "clean") {
		req.PreviousBrokerEpoch = reg.Epoch
	}
	return h.do(req)
}

func (h *history) beat(t *rapid.T) Result {
	b := h.broker(t)
	want := rapid.IntRange(0, 9).Draw(t, "want")
	offline := rapid.IntRange(0, 19).Draw(t, "offline")
	if reg := h.img.Cluster.Broker(b); reg != nil && reg.Fenced && reg.InControlledShutdown {
		return Result{} // its process has ended
	}
	return h.heartbeat(b, func(req *kmsg.BrokerHeartbeatRequest) {
		req.WantFence, req.WantShutdown = want == 8, want == 9
		if offline == 0 {
			req.OfflineLogDirs = append(req.OfflineLogDirs, dirID(b, 1))
		}
	})
}

func (h *history) create(t *rapid.T) Result {
	h.topics++
	factor := rapid.IntRange(1, 3).Draw(t, "factor")
	minISR := rapid.IntRange(1, 2).Draw(t, "minISR")
	return h.do(createTopic(fmt.Sprintf("t%d", h.topics), 2, int16(factor), fmt.Sprintf("min.insync.replicas=%d", minISR)))
}

// pick chooses a partition, if there is any.
func (h *history) pick(t *rapid.T) (partition, bool) {
	all := slices.Collect(h.decider().partitions())
	if len(all) == 0 {
		return partition{}, false
	}
	return all[rapid.IntRange(0, len(all)-1).Draw(t, "partition")], true
}

// alterISR asks for a random ISR as the leader would.
func (h *history) alterISR(t *rapid.T) Result {
	p, ok := h.pick(t)
	if !ok || p.Leader == noLeader {
		return Result{}
	}
	req := kmsg.NewPtrAlterPartitionRequest()
	req.Version, req.BrokerID, req.BrokerEpoch = 3, p.Leader, h.img.Cluster.Broker(p.Leader).Epoch
	topic := kmsg.NewAlterPartitionRequestTopic()
	topic.TopicID = p.topic.ID
	part := kmsg.NewAlterPartitionRequestTopicPartition()
	part.Partition, part.LeaderEpoch, part.PartitionEpoch = p.index, p.LeaderEpoch, p.PartitionEpoch
	for _, r := range p.Replicas {
		if r != p.Leader && !rapid.Bool().Draw(t, "inSync") {
			continue
		}
		m := kmsg.NewAlterPartitionRequestTopicPartitionNewEpochISR()
		m.BrokerID, m.BrokerEpoch = r, -1
		part.NewEpochISR = append(part.NewEpochISR, m)
	}
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	return h.do(req)
}

func (h *history) reassign(t *rapid.T) Result {
	p, ok := h.pick(t)
	if !ok {
		return Result{}
	}
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	topic := kmsg.NewAlterPartitionAssignmentsRequestTopic()
	topic.Topic = p.topic.Name
	part := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
	part.Partition = p.index
	if rapid.IntRange(0, 3).Draw(t, "cancel") > 0 {
		part.Replicas = rapid.SliceOfNDistinct(rapid.Int32Range(1, historyBrokers), 1, 3, rapid.ID[int32]).Draw(t, "to")
	}
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	return h.do(req)
}

func (h *history) configure(t *rapid.T) Result {
	p, ok := h.pick(t)
	if !ok {
		return Result{}
	}
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, p.topic.Name
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	value := strconv.Itoa(rapid.IntRange(1, 3).Draw(t, "value"))
	c.Name, c.Value = minISRKey, &value
	r.Configs = append(r.Configs, c)
	req.Resources = append(req.Resources, r)
	return h.do(req)
}

// checkImage checks what holds of every partition at any time.
func checkImage(t rapid.TB, w *world) {
	d := w.decider()
	for p := range d.partitions() {
		name := fmt.Sprintf("%s-%d", p.topic.Name, p.index)
		if p.Leader != noLeader {
			if !slices.Contains(p.ISR, p.Leader) {
				t.Fatalf("%s: leader %d is not in ISR %v", name, p.Leader, p.ISR)
			}
			if !d.isActive(p.Leader) {
				t.Fatalf("%s: leader %d is fenced or shutting down", name, p.Leader)
			}
		}
		for _, r := range slices.Concat(p.ISR, p.ELR) {
			if !slices.Contains(p.Replicas, r) {
				t.Fatalf("%s: %d is in ISR %v or ELR %v but no replica of %v", name, r, p.ISR, p.ELR, p.Replicas)
			}
		}
		for _, r := range p.ISR {
			if slices.Contains(p.ELR, r) {
				t.Fatalf("%s: %d is in ISR and ELR", name, r)
			}
		}
		if len(dedup(p.Replicas)) != len(p.Replicas) || len(p.Replicas) == 0 || len(p.Directories) != len(p.Replicas) {
			t.Fatalf("%s: replicas %v in %d directories", name, p.Replicas, len(p.Directories))
		}
		if !d.features.elr() && len(p.ISR) == 0 {
			t.Fatalf("%s: empty ISR without ELR", name)
		}
		if !d.features.elr() && len(p.ELR) > 0 {
			t.Fatalf("%s: ELR %v without the feature", name, p.ELR)
		}
	}
}

// checkStep checks what holds between two images.
func checkStep(t *rapid.T, before, after *image.Image, records []metadata.Record) {
	cleared := slices.ContainsFunc(records, func(r metadata.Record) bool { return r.APIKey() == (&metadata.ClearElrRecord{}).APIKey() })
	for topic := range after.Topics.All() {
		old := before.Topics.ByID(topic.ID)
		if old == nil {
			continue
		}
		for i, p := range topic.Partitions() {
			o := old.Partition(i)
			if o == nil || o == p {
				continue
			}
			name := fmt.Sprintf("%s-%d", topic.Name, i)
			if p.LeaderEpoch < o.LeaderEpoch || p.PartitionEpoch < o.PartitionEpoch {
				t.Fatalf("%s: epochs went back from %d/%d to %d/%d", name, o.LeaderEpoch, o.PartitionEpoch, p.LeaderEpoch, p.PartitionEpoch)
			}
			if p.Leader != o.Leader && p.LeaderEpoch == o.LeaderEpoch {
				t.Fatalf("%s: leader changed from %d to %d in epoch %d", name, o.Leader, p.Leader, p.LeaderEpoch)
			}
			checkNoLoss(t, name, o, p)
			if !cleared && len(p.ELR) > 0 && len(o.ISR)+len(o.ELR) == 0 {
				t.Fatalf("%s: ELR %v out of nothing", name, p.ELR)
			}
		}
	}
}

// checkNoLoss checks that a leader holds all committed data, unless the log says that it may not.
func checkNoLoss(t *rapid.T, name string, o, p *image.Partition) {
	if p.Leader == noLeader || p.Leader == o.Leader {
		return
	}
	// A reassignment that ends hands over to a replica that the leader has just taken into the ISR.
	moved := o.Reassigning() && !p.Reassigning() && slices.Contains(p.ISR, p.Leader)
	holds := slices.Contains(o.ISR, p.Leader) || slices.Contains(o.ELR, p.Leader) || moved
	if !holds && p.LeaderRecoveryState != recovering {
		t.Fatalf("%s: leader %d was neither in ISR %v nor in ELR %v, and no recovery is noted", name, p.Leader, o.ISR, o.ELR)
	}
	if !holds && !slices.Equal(o.LastKnownELR, []int32{p.Leader}) {
		t.Fatalf("%s: unclean leader %d although unclean elections are off and %v led last", name, p.Leader, o.LastKnownELR)
	}
}

// checkReplay checks that the log, and a snapshot of the end, give the state that the decisions were made on.
func checkReplay(t *rapid.T, h *history) {
	replay := func(records []metadata.Record) *image.Image {
		d := image.NewDelta(image.Empty())
		for _, r := range records {
			level := h.img.MetadataVersion()
			b, err := metadata.Append(nil, r, metadata.RecordVersion(r, level))
			if err != nil {
				t.Fatalf("%s does not encode: %v", r.MessageName(), err)
			}
			decoded, err := metadata.Decode(b)
			if err != nil {
				t.Fatal(err)
			}
			if err := d.Replay(decoded); err != nil {
				t.Fatal(err)
			}
		}
		return d.Apply(image.Provenance{})
	}
	if !replay(h.log).Equal(h.img) {
		t.Fatal("the log does not give the image that the controller decided on")
	}
	options := image.RecordsOptions{MetadataVersion: h.img.MetadataVersion()}
	if !replay(slices.Collect(h.img.Records(options))).Equal(h.img) {
		t.Fatal("a snapshot does not give the image that it was made from")
	}
}

func TestRandomHistoriesKeepLeadersInSync(t *testing.T) {
	for _, level := range []metadata.MetadataVersion{metadata.LatestMetadataVersion, metadata.MetadataVersion4_0IV0} {
		t.Run(level.String(), func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				h := newHistory(level)
				for range rapid.IntRange(1, 80).Draw(rt, "steps") {
					h.step(rt)
				}
				checkReplay(rt, h)
			})
		})
	}
}

func TestUnrelatedIDsDoNotMeetReservedDirectories(t *testing.T) {
	for _, id := range []protocol.UUID{protocol.DirectoryMigrating, protocol.DirectoryLost, protocol.DirectoryUnassigned} {
		if !id.IsReservedDirectory() {
			t.Errorf("%s is not reserved", id)
		}
	}
	if protocol.RandomUUID().IsReservedDirectory() {
		t.Error("a random id is reserved")
	}
}
