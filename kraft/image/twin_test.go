package image

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"gregor/kraft/metadata"
	"gregor/protocol"
)

// twin is an image without any cleverness: maps that change in place.
type twin struct {
	features map[string]int16
	brokers  map[int32]*metadata.RegisterBrokerRecord
	topics   map[protocol.UUID]*twinTopic
	configs  map[string]string // resource and name to value
	quotas   map[string]float64
	acls     map[protocol.UUID]string
	scram    map[string]string
	tokens   map[string]string
	next     int64
}

type twinTopic struct {
	name       string
	partitions map[int32]*metadata.PartitionRecord
}

func newTwin() *twin {
	return &twin{
		features: map[string]int16{}, brokers: map[int32]*metadata.RegisterBrokerRecord{},
		topics: map[protocol.UUID]*twinTopic{}, configs: map[string]string{}, quotas: map[string]float64{},
		acls: map[protocol.UUID]string{}, scram: map[string]string{}, tokens: map[string]string{}, next: -1,
	}
}

// replay returns false if the record does not fit.
func (w *twin) replay(rec metadata.Record) bool {
	switch r := rec.(type) {
	case *metadata.FeatureLevelRecord:
		w.features[r.Name] = r.FeatureLevel
		if r.FeatureLevel == 0 {
			delete(w.features, r.Name)
		}
	case *metadata.RegisterBrokerRecord:
		c := *r
		w.brokers[r.BrokerID] = &c
	case *metadata.UnregisterBrokerRecord:
		delete(w.brokers, r.BrokerID)
	case *metadata.BrokerRegistrationChangeRecord:
		b := w.brokers[r.BrokerID]
		if b == nil || b.BrokerEpoch != r.BrokerEpoch {
			return false
		}
		b.Fenced = b.Fenced && r.Fenced == 0 || r.Fenced == 1
		b.InControlledShutdown = b.InControlledShutdown || r.InControlledShutdown == 1
	case *metadata.ConfigRecord:
		key := fmt.Sprintf("%d %s %s", r.ResourceType, r.ResourceName, r.Name)
		if r.Value == nil {
			delete(w.configs, key)
		} else {
			w.configs[key] = *r.Value
		}
	case *metadata.TopicRecord, *metadata.PartitionRecord, *metadata.PartitionChangeRecord, *metadata.RemoveTopicRecord:
		return w.replayTopic(rec)
	default:
		return w.replaySecurity(rec)
	}
	return true
}

func (w *twin) replayTopic(rec metadata.Record) bool {
	switch r := rec.(type) {
	case *metadata.TopicRecord:
		for id, t := range w.topics {
			if id == r.TopicID || t.name == r.Name {
				return false
			}
		}
		w.topics[r.TopicID] = &twinTopic{r.Name, map[int32]*metadata.PartitionRecord{}}
	case *metadata.PartitionRecord:
		t := w.topics[r.TopicID]
		if t == nil {
			return false
		}
		c := *r
		t.partitions[r.PartitionID] = &c
	case *metadata.PartitionChangeRecord:
		return w.changePartition(r)
	case *metadata.RemoveTopicRecord:
		t := w.topics[r.TopicID]
		if t == nil {
			return false
		}
		delete(w.topics, r.TopicID)
		maps.DeleteFunc(w.configs, func(k, _ string) bool { return strings.HasPrefix(k, "2 "+t.name+" ") })
	}
	return true
}

func (w *twin) replaySecurity(rec metadata.Record) bool {
	switch r := rec.(type) {
	case *metadata.ClientQuotaRecord:
		key := fmt.Sprintf("%s=%s %s", r.Entity[0].EntityType, *r.Entity[0].EntityName, r.Key)
		w.quotas[key] = r.Value
		if r.Remove {
			delete(w.quotas, key)
		}
	case *metadata.ProducerIdsRecord:
		w.next = r.NextProducerID
	case *metadata.AccessControlEntryRecord:
		w.acls[r.ID] = r.Principal
	case *metadata.RemoveAccessControlEntryRecord:
		_, ok := w.acls[r.ID]
		delete(w.acls, r.ID)
		return ok
	case *metadata.UserScramCredentialRecord:
		w.scram[fmt.Sprintf("%d %s", r.Mechanism, r.Name)] = strconv.Itoa(int(r.Iterations))
	case *metadata.RemoveUserScramCredentialRecord:
		delete(w.scram, fmt.Sprintf("%d %s", r.Mechanism, r.Name))
	case *metadata.DelegationTokenRecord:
		w.tokens[r.TokenID] = strconv.FormatInt(r.ExpirationTimestamp, 10)
	case *metadata.RemoveDelegationTokenRecord:
		delete(w.tokens, r.TokenID)
	}
	return true
}

func (w *twin) changePartition(r *metadata.PartitionChangeRecord) bool {
	t := w.topics[r.TopicID]
	if t == nil || t.partitions[r.PartitionID] == nil {
		return false
	}
	p := t.partitions[r.PartitionID]
	if r.ISR != nil {
		p.ISR = r.ISR
	}
	if r.EligibleLeaderReplicas != nil {
		p.EligibleLeaderReplicas = r.EligibleLeaderReplicas
	}
	if r.Leader != -2 {
		p.Leader = r.Leader
		p.LeaderEpoch++
	}
	p.PartitionEpoch++
	return true
}

func partitionLine(leader, leaderEpoch, epoch int32, replicas, isr, elr []int32) string {
	return fmt.Sprint("leader ", leader, leaderEpoch, epoch, replicas, isr, elr)
}

// flat is the state as lines by name.
func (w *twin) flat() map[string]string {
	m := map[string]string{"next": strconv.FormatInt(w.next, 10)}
	for n, l := range w.features {
		m["feature "+n] = strconv.Itoa(int(l))
	}
	for id, b := range w.brokers {
		m[fmt.Sprint("broker ", id)] = fmt.Sprint(b.BrokerEpoch, b.Fenced, b.InControlledShutdown)
	}
	for id, t := range w.topics {
		m["topic "+t.name] = id.String()
		for i, p := range t.partitions {
			m[fmt.Sprint("partition ", id, i)] = partitionLine(p.Leader, p.LeaderEpoch, p.PartitionEpoch, p.Replicas, p.ISR, p.EligibleLeaderReplicas)
		}
	}
	for k, v := range w.configs {
		m["config "+k] = v
	}
	for k, v := range w.quotas {
		m["quota "+k] = fmt.Sprint(v)
	}
	for k, v := range w.acls {
		m["acl "+k.String()] = v
	}
	for k, v := range w.scram {
		m["scram "+k] = v
	}
	for k, v := range w.tokens {
		m["token "+k] = v
	}
	return m
}

// flatImage is flat of an image, by its accessors.
func flatImage(t *rapid.T, img *Image) map[string]string {
	m := map[string]string{"next": "-1"}
	if img.ProducerIDs.Allocated {
		m["next"] = strconv.FormatInt(img.ProducerIDs.Next, 10)
	}
	for n, l := range img.Features.All() {
		if img.Features.Level(n) != l {
			t.Fatalf("level of %s", n)
		}
		m["feature "+n] = strconv.Itoa(int(l))
	}
	fenced := 0
	for b := range img.Cluster.Brokers() {
		if img.Cluster.Broker(b.ID) != b || img.Cluster.Alive(b.ID) == b.Fenced {
			t.Fatalf("broker %d", b.ID)
		}
		if b.Fenced {
			fenced++
		}
		m[fmt.Sprint("broker ", b.ID)] = fmt.Sprint(b.Epoch, b.Fenced, b.InControlledShutdown)
	}
	if n, f := img.Cluster.NumBrokers(); f != fenced || n-f != len(slices.Collect(img.Cluster.AliveBrokers())) {
		t.Fatalf("%d of %d brokers fenced, counted %d", f, n, fenced)
	}
	flatTopics(t, img.Topics, m)
	for r, configs := range img.Configs.All() {
		for n, v := range configs {
			m[fmt.Sprintf("config %d %s %s", r.Type, r.Name, n)] = v
		}
	}
	for e, quotas := range img.ClientQuotas.All() {
		for k, v := range quotas {
			m[fmt.Sprintf("quota %s %s", e, k)] = fmt.Sprint(v)
		}
	}
	for a := range img.ACLs.All() {
		m["acl "+a.ID.String()] = img.ACLs.Get(a.ID).Principal
	}
	for u, c := range img.Scram.All() {
		m[fmt.Sprintf("scram %d %s", u.Mechanism, u.Name)] = strconv.Itoa(int(c.Iterations))
	}
	for k := range img.DelegationTokens.All() {
		m["token "+k.ID] = strconv.FormatInt(k.ExpirationMillis, 10)
	}
	return m
}

func flatTopics(t *rapid.T, topics *Topics, m map[string]string) {
	var counts TopicCounts
	for topic := range topics.All() {
		counts.Topics++
		if topics.ByName(topic.Name) != topic || topics.ByID(topic.ID) != topic {
			t.Fatalf("topic %s differs by name and id", topic.Name)
		}
		m["topic "+topic.Name] = topic.ID.String()
		for i, p := range topic.Partitions() {
			counts.Partitions++
			if p.Leader == NoLeader {
				counts.Offline++
			}
			if p.Leader != p.Replicas[0] {
				counts.NotPreferred++
			}
			if topics.Partition(topic.Name, i) != p {
				t.Fatalf("partition %s-%d", topic.Name, i)
			}
			m[fmt.Sprint("partition ", topic.ID, i)] = partitionLine(p.Leader, p.LeaderEpoch, p.PartitionEpoch, p.Replicas, p.ISR, p.ELR)
		}
	}
	if counts != topics.Counts() {
		t.Fatalf("counts %+v, counted %+v", topics.Counts(), counts)
	}
}

// drawRecord draws a record that touches few names, so that many fit.
func drawRecord(t *rapid.T) metadata.Record {
	small := func(label string, n int) int { return rapid.IntRange(0, n-1).Draw(t, label) }
	name := func() string { return string(rune('a' + small("name", 4))) }
	id := func() protocol.UUID { return protocol.UUID{0: 9, 15: byte(small("id", 6))} }
	switch small("kind", 16) {
	case 0:
		return &metadata.FeatureLevelRecord{Name: metadata.FeatureShare, FeatureLevel: int16(small("level", 3))}
	case 1:
		return &metadata.RegisterBrokerRecord{BrokerID: int32(small("broker", 3)), BrokerEpoch: int64(small("epoch", 3)), Fenced: small("fenced", 2) == 0}
	case 2:
		return &metadata.UnregisterBrokerRecord{BrokerID: int32(small("broker", 3))}
	case 3:
		return &metadata.BrokerRegistrationChangeRecord{
			BrokerID: int32(small("broker", 3)), BrokerEpoch: int64(small("epoch", 3)), Fenced: int8(small("fenced", 3) - 1),
			InControlledShutdown: int8(small("shutdown", 2)),
		}
	case 4:
		r := &metadata.ConfigRecord{ResourceType: 2, ResourceName: name(), Name: name()}
		if v := name(); v != "a" {
			r.Value = &v
		}
		return r
	case 5:
		entity := name()
		return &metadata.ClientQuotaRecord{
			Entity: []metadata.ClientQuotaEntityData{{EntityType: "user", EntityName: &entity}}, Key: name(),
			Value: float64(small("value", 9)), Remove: small("remove", 3) == 0,
		}
	case 6:
		return &metadata.ProducerIdsRecord{NextProducerID: int64(small("next", 9)) * 1000}
	case 7, 8, 9, 10, 11, 12, 13:
		return drawTopic(small, name, id)
	case 14:
		return drawSecurity(small, name, id)
	default:
		return &metadata.NoOpRecord{}
	}
}

func drawTopic(small func(string, int) int, name func() string, id func() protocol.UUID) metadata.Record {
	brokers := func() []int32 {
		return [][]int32{{}, {1}, {1, 2}, {2, 1, 3}, {3, 2}}[small("brokers", 5)]
	}
	switch small("topic", 7) {
	case 0, 1:
		return &metadata.TopicRecord{Name: name(), TopicID: id()}
	case 2, 3:
		replicas := append([]int32{1}, brokers()...)
		return &metadata.PartitionRecord{
			PartitionID: int32(small("partition", 3)), TopicID: id(), Replicas: replicas, ISR: brokers(),
			Leader: int32(small("leader", 4) - 1), LeaderEpoch: 1, PartitionEpoch: 1,
		}
	case 4, 5:
		r := metadata.NewPartitionChangeRecord()
		r.PartitionID, r.TopicID, r.Leader = int32(small("partition", 3)), id(), int32(small("leader", 5)-2)
		if small("isr", 2) == 0 {
			r.ISR = brokers()
		}
		if small("elr", 2) == 0 {
			r.EligibleLeaderReplicas = brokers()
		}
		return r
	default:
		return &metadata.RemoveTopicRecord{TopicID: id()}
	}
}

func drawSecurity(small func(string, int) int, name func() string, id func() protocol.UUID) metadata.Record {
	switch small("security", 6) {
	case 0:
		return &metadata.AccessControlEntryRecord{ID: id(), Principal: name()}
	case 1:
		return &metadata.RemoveAccessControlEntryRecord{ID: id()}
	case 2:
		return &metadata.UserScramCredentialRecord{Name: name(), Mechanism: int8(small("mechanism", 2) + 1), Iterations: int32(small("iterations", 9))}
	case 3:
		return &metadata.RemoveUserScramCredentialRecord{Name: name(), Mechanism: int8(small("mechanism", 2) + 1)}
	case 4:
		return &metadata.DelegationTokenRecord{TokenID: name(), ExpirationTimestamp: int64(small("expiration", 9))}
	default:
		return &metadata.RemoveDelegationTokenRecord{TokenID: name()}
	}
}

// Random records in random deltas: the image agrees with its twin, older images do not change, the difference between
// images leads from one to the other, and a snapshot gives the image again.
func TestDeltasAgreeWithADumbTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newTwin()
		level := &metadata.FeatureLevelRecord{Name: metadata.FeatureMetadataVersion, FeatureLevel: 33}
		elr := &metadata.FeatureLevelRecord{Name: metadata.FeatureELR, FeatureLevel: 1}
		img := Empty()
		var images []*Image
		var states []map[string]string
		pending := []metadata.Record{level, elr}
		for range rapid.IntRange(1, 12).Draw(t, "deltas") {
			d := NewDelta(img)
			for range rapid.IntRange(0, 12).Draw(t, "records") {
				pending = append(pending, drawRecord(t))
			}
			for _, rec := range pending {
				err := d.Replay(rec)
				if fits := w.replay(rec); fits != (err == nil) || err != nil && !errors.Is(err, ErrInconsistent) {
					t.Fatalf("%s %+v fits the twin: %t, but %v", rec.MessageName(), rec, fits, err)
				}
				if rapid.IntRange(0, 9).Draw(t, "apply") == 0 {
					d.Apply(Provenance{}) // may be done in between
				}
			}
			pending = nil
			next := d.Apply(Provenance{Offset: 1})
			if !Between(img, next).Apply(Provenance{}).Equal(next) {
				t.Fatal("Between leads elsewhere")
			}
			img = next
			images, states = append(images, img), append(states, w.flat())
		}
		for i, img := range images {
			if got := flatImage(t, img); !maps.Equal(got, states[i]) {
				t.Fatalf("image %d of %d:\n got %v\nwant %v", i, len(images), got, states[i])
			}
			for j := range images {
				if images[j].Equal(img) != maps.Equal(states[i], states[j]) {
					t.Fatalf("images %d and %d: Equal is %t", i, j, images[j].Equal(img))
				}
			}
		}
		d := NewDelta(Empty())
		for rec := range img.Records(RecordsOptions{MetadataVersion: img.MetadataVersion()}) {
			if err := d.Replay(rec); err != nil {
				t.Fatal(err)
			}
		}
		if again := d.Apply(Provenance{}); !again.Equal(img) || !maps.Equal(flatImage(t, again), states[len(states)-1]) {
			t.Fatalf("snapshot:\n got %v\nwant %v", flatImage(t, again), states[len(states)-1])
		}
	})
}
