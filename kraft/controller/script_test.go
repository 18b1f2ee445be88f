package controller

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/kraft/metadata"
	"gregor/protocol"
)

// script runs the commands of testdata/*.txt on a world. Each prints the records of the decision, then its response.
type script struct {
	w *world
	t *testing.T
}

func TestDecisions(t *testing.T) {
	datadriven.Walk(t, "testdata/decisions", func(t *testing.T, path string) {
		s := &script{t: t, w: newWorld()}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.t = t
			return s.run(d)
		})
	})
}

// args are the arguments of a command: key=value or key=(a,b).
type args struct{ d *datadriven.TestData }

func (a args) has(key string) bool { return a.d.HasArg(key) }

func (a args) list(key string) []string {
	for _, arg := range a.d.CmdArgs {
		if arg.Key == key {
			return arg.Vals
		}
	}
	return nil
}

func (a args) text(key string) string { return strings.Join(a.list(key), ",") }

func (a args) num(key string, def int64) int64 {
	if !a.has(key) {
		return def
	}
	n, err := strconv.ParseInt(a.text(key), 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func (a args) ids(key string) []int32 {
	var out []int32
	for _, v := range a.list(key) {
		if v == "" {
			continue
		}
		n, err := strconv.ParseInt(v, 10, 32)
		if err != nil {
			panic(err)
		}
		out = append(out, int32(n))
	}
	return out
}

func (s *script) run(d *datadriven.TestData) string {
	a := args{d}
	if out, ok := s.observe(d, a); ok {
		return out
	}
	switch d.Cmd {
	case "new":
		s.w = newWorld(defaultLevels(metadata.MetadataVersion(a.num("level", int64(metadata.LatestMetadataVersion))))...)
		s.w.cfg.DefaultPartitions = int32(a.num("partitions", 1))
		s.w.cfg.DefaultReplicationFactor = int16(a.num("factor", 1))
		return ""
	case "brokers":
		s.w.start(int32(a.num("n", 1)))
		return ""
	case "static":
		for _, arg := range d.CmdArgs {
			s.w.static[arg.Key] = strings.Join(arg.Vals, ",")
		}
		return ""
	case "advance":
		s.w.now = s.w.now.Add(time.Duration(a.num("ms", 0)) * time.Millisecond)
		return ""
	case "state":
		return s.state()
	case "fence-expired":
		res, _, more := s.w.decider().FenceExpired()
		s.w.carryOut(res)
		return text(res.Records) + fmt.Sprintf("more=%v\n", more)
	case "balance":
		res, _ := s.w.decider().BalanceLeaders()
		s.w.carryOut(res)
		return text(res.Records)
	case "unclean":
		res, _ := s.w.decider().ElectUnclean()
		s.w.carryOut(res)
		return text(res.Records)
	}
	req := s.request(d, a)
	res := s.w.do(req)
	out := text(res.Records)
	if res.Atomic && len(res.Records) > 1 {
		out += "(atomic)\n"
	}
	return out + responseText(res.Response)
}

func (s *script) request(d *datadriven.TestData, a args) kmsg.Request {
	switch d.Cmd {
	case "register":
		return s.registerRequest(a)
	case "heartbeat":
		return s.heartbeatRequest(a)
	case "unregister":
		req := kmsg.NewPtrUnregisterBrokerRequest()
		req.BrokerID = int32(a.num("id", 0))
		return req
	case "create":
		return s.createRequest(d, a)
	case "delete":
		return s.deleteRequest(d, a)
	case "grow":
		return s.growRequest(d, a)
	case "alter", "legacy-alter":
		return s.alterRequest(d, a)
	case "isr":
		return s.isrRequest(a)
	case "elect":
		return s.electRequest(a)
	case "reassign":
		return s.reassignRequest(a)
	case "assign-dirs":
		return s.dirsRequest(a)
	case "features":
		return s.featuresRequest(d, a)
	case "quotas":
		return s.quotasRequest(d)
	case "scram":
		return s.scramRequest(d)
	case "producer-ids":
		req := kmsg.NewPtrAllocateProducerIDsRequest()
		req.BrokerID = int32(a.num("id", 1))
		req.BrokerEpoch = a.num("epoch", s.epochOf(req.BrokerID))
		return req
	case "register-controller":
		req := kmsg.NewPtrControllerRegistrationRequest()
		req.ControllerID = int32(a.num("id", 1))
		f := kmsg.NewControllerRegistrationRequestFeature()
		f.Name, f.MinSupportedVersion, f.MaxSupportedVersion = metadata.FeatureGroup, 0, int16(a.num("group", 1))
		req.Features = append(req.Features, f)
		return req
	case "unregister-controller":
		req := kmsg.NewPtrUnregisterControllerRequest()
		req.ControllerID = int32(a.num("id", 1))
		return req
	}
	s.t.Fatalf("unknown command %s", d.Cmd)
	return nil
}

func (s *script) epochOf(broker int32) int64 {
	if b := s.w.img.Cluster.Broker(broker); b != nil {
		return b.Epoch
	}
	return -1
}

func (s *script) registerRequest(a args) kmsg.Request {
	req := registration(int32(a.num("id", 1)), byte(a.num("incarnation", 1)), int(a.num("dirs", 1)))
	req.Version = int16(a.num("v", 4))
	req.PreviousBrokerEpoch = a.num("previous", -1)
	if a.has("cluster") {
		req.ClusterID = a.text("cluster")
	}
	if a.has("rack") {
		rack := a.text("rack")
		req.Rack = &rack
	}
	for _, name := range a.list("without") {
		for i, f := range req.Features {
			if f.Name == name {
				req.Features = append(req.Features[:i], req.Features[i+1:]...)
				break
			}
		}
	}
	if a.has("max") {
		name, level, _ := strings.Cut(a.text("max"), ":")
		n, _ := strconv.Atoi(level)
		for i := range req.Features {
			if req.Features[i].Name == name {
				req.Features[i].MaxSupportedVersion = int16(n)
			}
		}
	}
	if a.has("reserved") {
		req.LogDirs = append(req.LogDirs, protocol.DirectoryLost)
	}
	if a.has("dup-dir") {
		req.LogDirs = append(req.LogDirs, req.LogDirs[0])
	}
	if a.has("dir-of") {
		req.LogDirs = append(req.LogDirs, dirID(int32(a.num("dir-of", 0)), 0))
	}
	return req
}

func (s *script) heartbeatRequest(a args) kmsg.Request {
	req := kmsg.NewPtrBrokerHeartbeatRequest()
	req.Version, req.BrokerID = 2, int32(a.num("id", 1))
	req.BrokerEpoch = a.num("epoch", s.epochOf(req.BrokerID))
	req.CurrentMetadataOffset = a.num("offset", s.w.next-1)
	req.WantFence, req.WantShutdown = a.has("fence"), a.has("shutdown")
	for _, n := range a.ids("offline") {
		req.OfflineLogDirs = append(req.OfflineLogDirs, dirID(req.BrokerID, int(n)))
	}
	if a.has("cordoned") {
		req.CordonedLogDirs = [][16]byte{}
		for _, n := range a.ids("cordoned") {
			req.CordonedLogDirs = append(req.CordonedLogDirs, dirID(req.BrokerID, int(n)))
		}
	}
	return req
}

// createRequest: one topic per line: NAME PARTITIONS FACTOR [key=value|null:key|INDEX:broker,broker ...].
func (s *script) createRequest(d *datadriven.TestData, a args) kmsg.Request {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version, req.ValidateOnly = int16(a.num("v", 7)), a.has("validate")
	for line := range strings.SplitSeq(d.Input, "\n") {
		words := strings.Fields(line)
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic = strings.Trim(words[0], `"`)
		n, _ := strconv.Atoi(words[1])
		f, _ := strconv.Atoi(words[2])
		t.NumPartitions, t.ReplicationFactor = int32(n), int16(f)
		for _, w := range words[3:] {
			if key, ok := strings.CutPrefix(w, "null:"); ok {
				c := kmsg.NewCreateTopicsRequestTopicConfig()
				c.Name = key
				t.Configs = append(t.Configs, c)
			} else if key, value, ok := strings.Cut(w, "="); ok {
				c := kmsg.NewCreateTopicsRequestTopicConfig()
				c.Name, c.Value = key, &value
				t.Configs = append(t.Configs, c)
			} else if index, replicas, ok := strings.Cut(w, ":"); ok {
				e := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
				i, _ := strconv.Atoi(index)
				e.Partition, e.Replicas = int32(i), parseIDs(replicas)
				t.ReplicaAssignment = append(t.ReplicaAssignment, e)
			}
		}
		req.Topics = append(req.Topics, t)
	}
	return req
}

func parseIDs(text string) []int32 {
	out := []int32{}
	for v := range strings.SplitSeq(text, ",") {
		if n, err := strconv.ParseInt(v, 10, 32); err == nil {
			out = append(out, int32(n))
		}
	}
	return out
}

// deleteRequest: one topic per line: NAME, id:NAME, or both:NAME.
func (s *script) deleteRequest(d *datadriven.TestData, a args) kmsg.Request {
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.Version = int16(a.num("v", 6))
	for line := range strings.SplitSeq(d.Input, "\n") {
		kind, name, ok := strings.Cut(line, ":")
		if !ok {
			name = kind
		}
		if req.Version < 6 {
			req.TopicNames = append(req.TopicNames, name)
			continue
		}
		t := kmsg.NewDeleteTopicsRequestTopic()
		if ok {
			t.TopicID = [16]byte{0: 0xa0, 15: 99}
			if topic := s.w.img.Topics.ByName(name); topic != nil {
				t.TopicID = topic.ID
			}
		}
		if kind != "id" {
			t.Topic = &name
		}
		req.Topics = append(req.Topics, t)
	}
	return req
}

// growRequest: one topic per line: NAME COUNT [broker,broker ...].
func (s *script) growRequest(d *datadriven.TestData, a args) kmsg.Request {
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.Version, req.ValidateOnly = 3, a.has("validate")
	for line := range strings.SplitSeq(d.Input, "\n") {
		words := strings.Fields(line)
		t := kmsg.NewCreatePartitionsRequestTopic()
		t.Topic = words[0]
		n, _ := strconv.Atoi(words[1])
		t.Count = int32(n)
		for _, w := range words[2:] {
			e := kmsg.NewCreatePartitionsRequestTopicAssignment()
			e.Replicas = parseIDs(w)
			t.Assignment = append(t.Assignment, e)
		}
		req.Topics = append(req.Topics, t)
	}
	return req
}

// alterRequest: one resource per line: TYPE NAME [OP KEY VALUE]; with several operations divided by ";".
func (s *script) alterRequest(d *datadriven.TestData, a args) kmsg.Request {
	types := map[string]kmsg.ConfigResourceType{"topic": 2, "broker": 4, "logger": 8, "metrics": 16, "group": 32, "what": 7}
	ops := map[string]kmsg.IncrementalAlterConfigOp{"set": 0, "delete": 1, "append": 2, "subtract": 3, "what": 9}
	s.w.req.Forwarded = !a.has("direct")
	inc, legacy := kmsg.NewPtrIncrementalAlterConfigsRequest(), kmsg.NewPtrAlterConfigsRequest()
	inc.Version, inc.ValidateOnly = 1, a.has("validate")
	legacy.Version, legacy.ValidateOnly = 2, a.has("validate")
	for line := range strings.SplitSeq(d.Input, "\n") {
		head, tail, _ := strings.Cut(line, ":")
		words := strings.Fields(head)
		r, l := kmsg.NewIncrementalAlterConfigsRequestResource(), kmsg.NewAlterConfigsRequestResource()
		r.ResourceType, l.ResourceType = types[words[0]], types[words[0]]
		if len(words) > 1 {
			r.ResourceName, l.ResourceName = words[1], words[1]
		}
		for op := range strings.SplitSeq(tail, ";") {
			parts := strings.SplitN(strings.TrimSpace(op), " ", 3)
			if len(parts) < 2 {
				continue
			}
			c, lc := kmsg.NewIncrementalAlterConfigsRequestResourceConfig(), kmsg.NewAlterConfigsRequestResourceConfig()
			c.Op, c.Name, lc.Name = ops[parts[0]], parts[1], parts[1]
			if len(parts) == 3 && parts[2] != "null" {
				value := strings.Trim(parts[2], `"`)
				c.Value, lc.Value = &value, &value
			}
			r.Configs, l.Configs = append(r.Configs, c), append(l.Configs, lc)
		}
		inc.Resources, legacy.Resources = append(inc.Resources, r), append(legacy.Resources, l)
	}
	if d.Cmd == "legacy-alter" {
		return legacy
	}
	return inc
}

func (s *script) isrRequest(a args) kmsg.Request {
	topic := s.w.img.Topics.ByName(a.text("topic"))
	req := kmsg.NewPtrAlterPartitionRequest()
	req.Version = int16(a.num("v", 3))
	t := kmsg.NewAlterPartitionRequestTopic()
	p := kmsg.NewAlterPartitionRequestTopicPartition()
	p.Partition = int32(a.num("p", 0))
	t.TopicID = [16]byte{0: 0xa0, 15: 99}
	req.BrokerID = int32(a.num("by", 1))
	if topic != nil {
		t.TopicID = topic.ID
		if part := topic.Partition(p.Partition); part != nil {
			p.LeaderEpoch, p.PartitionEpoch, p.LeaderRecoveryState = part.LeaderEpoch, part.PartitionEpoch, part.LeaderRecoveryState
			req.BrokerID = int32(a.num("by", int64(part.Leader)))
		}
	}
	req.BrokerEpoch = a.num("broker-epoch", s.epochOf(req.BrokerID))
	p.LeaderEpoch += int32(a.num("leader-epoch", 0))
	p.PartitionEpoch += int32(a.num("partition-epoch", 0))
	p.LeaderRecoveryState = int8(a.num("recovery", int64(p.LeaderRecoveryState)))
	for _, b := range a.ids("isr") {
		m := kmsg.NewAlterPartitionRequestTopicPartitionNewEpochISR()
		m.BrokerID, m.BrokerEpoch = b, s.epochOf(b)
		if a.num("stale", -1) == int64(b) {
			m.BrokerEpoch--
		}
		p.NewEpochISR = append(p.NewEpochISR, m)
		p.NewISR = append(p.NewISR, b)
	}
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

func (s *script) electRequest(a args) kmsg.Request {
	req := kmsg.NewPtrElectLeadersRequest()
	req.Version, req.ElectionType = 2, int8(a.num("type", 0))
	if a.has("topic") {
		t := kmsg.NewElectLeadersRequestTopic()
		t.Topic, t.Partitions = a.text("topic"), a.ids("p")
		req.Topics = append(req.Topics, t)
	}
	return req
}

func (s *script) reassignRequest(a args) kmsg.Request {
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	req.Version, req.AllowReplicationFactorChange = 1, !a.has("keep-factor")
	t := kmsg.NewAlterPartitionAssignmentsRequestTopic()
	t.Topic = a.text("topic")
	p := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
	p.Partition = int32(a.num("p", 0))
	if a.has("to") {
		p.Replicas = append([]int32{}, a.ids("to")...)
	}
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

func (s *script) dirsRequest(a args) kmsg.Request {
	req := kmsg.NewPtrAssignReplicasToDirsRequest()
	req.BrokerID = int32(a.num("id", 1))
	req.BrokerEpoch = a.num("epoch", s.epochOf(req.BrokerID))
	d := kmsg.NewAssignReplicasToDirsRequestDirectory()
	d.ID = dirID(req.BrokerID, int(a.num("dir", 0)))
	t := kmsg.NewAssignReplicasToDirsRequestDirectoryTopic()
	t.TopicID = [16]byte{0: 0xa0, 15: 99}
	if topic := s.w.img.Topics.ByName(a.text("topic")); topic != nil {
		t.TopicID = topic.ID
	}
	for _, i := range a.ids("p") {
		p := kmsg.NewAssignReplicasToDirsRequestDirectoryTopicPartition()
		p.Partition = i
		t.Partitions = append(t.Partitions, p)
	}
	d.Topics = append(d.Topics, t)
	req.Directories = append(req.Directories, d)
	return req
}

// featuresRequest: one update per line: NAME LEVEL UPGRADE-TYPE.
func (s *script) featuresRequest(d *datadriven.TestData, a args) kmsg.Request {
	req := kmsg.NewPtrUpdateFeaturesRequest()
	req.Version, req.ValidateOnly = int16(a.num("v", 2)), a.has("validate")
	for line := range strings.SplitSeq(d.Input, "\n") {
		words := strings.Fields(line)
		u := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
		level, _ := strconv.Atoi(words[1])
		kind, _ := strconv.Atoi(words[2])
		u.Feature, u.MaxVersionLevel, u.UpgradeType, u.AllowDowngrade = words[0], int16(level), int8(kind), kind > 1
		req.FeatureUpdates = append(req.FeatureUpdates, u)
	}
	return req
}

// quotasRequest: one entity per line: TYPE=NAME[,TYPE=NAME]: KEY=VALUE or -KEY, divided by blanks; NAME "-" is null.
func (s *script) quotasRequest(d *datadriven.TestData) kmsg.Request {
	req := kmsg.NewPtrAlterClientQuotasRequest()
	req.Version = 1
	for line := range strings.SplitSeq(d.Input, "\n") {
		entity, ops, _ := strings.Cut(line, ": ")
		e := kmsg.NewAlterClientQuotasRequestEntry()
		for part := range strings.SplitSeq(entity, ",") {
			if part == "none" {
				continue
			}
			p := kmsg.NewAlterClientQuotasRequestEntryEntity()
			kind, name, _ := strings.Cut(part, "=")
			p.Type = kind
			if name != "-" {
				p.Name = &name
			}
			e.Entity = append(e.Entity, p)
		}
		for op := range strings.FieldsSeq(ops) {
			o := kmsg.NewAlterClientQuotasRequestEntryOp()
			if key, ok := strings.CutPrefix(op, "-"); ok {
				o.Key, o.Remove = key, true
			} else {
				key, value, _ := strings.Cut(op, "=")
				o.Key = key
				o.Value, _ = strconv.ParseFloat(value, 64)
			}
			e.Ops = append(e.Ops, o)
		}
		req.Entries = append(req.Entries, e)
	}
	return req
}

// scramRequest: lines "delete NAME MECHANISM" and "set NAME MECHANISM ITERATIONS".
func (s *script) scramRequest(d *datadriven.TestData) kmsg.Request {
	req := kmsg.NewPtrAlterUserSCRAMCredentialsRequest()
	for line := range strings.SplitSeq(d.Input, "\n") {
		words := strings.Fields(line)
		mechanism, _ := strconv.Atoi(words[2])
		name := strings.Trim(words[1], `"`)
		if words[0] == "delete" {
			x := kmsg.NewAlterUserSCRAMCredentialsRequestDeletion()
			x.Name, x.Mechanism = name, int8(mechanism)
			req.Deletions = append(req.Deletions, x)
			continue
		}
		n, _ := strconv.Atoi(words[3])
		x := kmsg.NewAlterUserSCRAMCredentialsRequestUpsertion()
		x.Name, x.Mechanism, x.Iterations = name, int8(mechanism), int32(n)
		x.Salt, x.SaltedPassword = []byte("salt"), []byte("salted")
		req.Upsertions = append(req.Upsertions, x)
	}
	return req
}

// state prints brokers and partitions.
func (s *script) state() string {
	var b strings.Builder
	for br := range s.w.img.Cluster.Brokers() {
		fmt.Fprintf(&b, "broker %d fenced=%v shutdown=%v\n", br.ID, br.Fenced, br.InControlledShutdown)
	}
	for p := range s.w.decider().partitions() {
		fmt.Fprintf(&b, "%s-%d leader=%d epochs=%d/%d replicas=%v isr=%v", p.topic.Name, p.index, p.Leader,
			p.LeaderEpoch, p.PartitionEpoch, p.Replicas, p.ISR)
		if p.Reassigning() {
			fmt.Fprintf(&b, " adding=%v removing=%v", p.AddingReplicas, p.RemovingReplicas)
		}
		if len(p.ELR)+len(p.LastKnownELR) > 0 {
			fmt.Fprintf(&b, " elr=%v last=%v", p.ELR, p.LastKnownELR)
		}
		if p.LeaderRecoveryState != recovered {
			b.WriteString(" recovering")
		}
		b.WriteString("\n")
	}
	return b.String()
}
