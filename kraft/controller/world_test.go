package controller

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/kraft/image"
	"gregor/kraft/metadata"
	"gregor/protocol"
)

// world is a controller without log, clock or network: it applies each decision at once.
type world struct {
	cfg        Config
	static     map[string]string
	img        *image.Image
	sessions   *Sessions
	registered map[int32]int64
	now        time.Time
	next       int64
	uuids      byte
	rand       *rand.Rand
	req        Request
}

func newWorld(levels ...metadata.Record) *world {
	w := &world{
		static: map[string]string{}, img: image.Empty(), registered: map[int32]int64{},
		sessions: NewSessions(9 * time.Second), now: time.UnixMilli(1_700_000_000_000),
		rand: rand.New(rand.NewPCG(1, 2)),
	}
	w.cfg = Config{
		NodeID: 9, ClusterID: "cluster", DefaultPartitions: 1, DefaultReplicationFactor: 1, DeleteTopicEnable: true,
		SessionTimeout: 9 * time.Second,
		Static:         func(key string) (string, bool) { v, ok := w.static[key]; return v, ok },
		Supported:      map[string]Range{},
	}
	for _, f := range metadata.SupportedFeatures() {
		w.cfg.Supported[f.Name] = Range{f.Min, f.Max}
	}
	if levels == nil {
		levels = defaultLevels(metadata.LatestMetadataVersion)
	}
	w.apply(levels...)
	return w
}

// defaultLevels are the features of a cluster formatted at a metadata.version, as the first controller writes them.
func defaultLevels(v metadata.MetadataVersion) []metadata.Record {
	out := []metadata.Record{&metadata.FeatureLevelRecord{Name: metadata.FeatureMetadataVersion, FeatureLevel: int16(v)}}
	for _, f := range metadata.Features() {
		if level := f.DefaultLevel(v); level > 0 && f.Name != metadata.FeatureKRaftVersion {
			out = append(out, &metadata.FeatureLevelRecord{Name: f.Name, FeatureLevel: level})
		}
	}
	value := "1"
	return append(out, configRecord(configResource{configBroker, ""}, minISRKey, &value))
}

func (w *world) decider() *Decider {
	return New(&w.cfg, View{
		Image: w.img, Sessions: w.sessions, Now: w.now, NextOffset: w.next, Rand: w.rand,
		RegistrationOffset: func(b int32) (int64, bool) { o, ok := w.registered[b]; return o, ok },
		NewUUID: func() protocol.UUID {
			w.uuids++
			return protocol.UUID{0: 0xa0, 15: w.uuids}
		},
	}, &w.req)
}

// apply appends records and replays them, as the server does.
func (w *world) apply(records ...metadata.Record) {
	delta := image.NewDelta(w.img)
	for _, rec := range records {
		if err := delta.Replay(rec); err != nil {
			panic(err)
		}
	}
	base := w.next
	w.next += int64(len(records))
	w.img = delta.Apply(image.Provenance{Offset: w.next - 1})
	for i, rec := range records {
		broker := int32(-1)
		switch r := rec.(type) {
		case *metadata.RegisterBrokerRecord:
			w.registered[r.BrokerID], broker = base+int64(i), r.BrokerID
		case *metadata.BrokerRegistrationChangeRecord:
			broker = r.BrokerID
		case *metadata.UnregisterBrokerRecord:
			delete(w.registered, r.BrokerID)
			w.sessions.Unregister(r.BrokerID)
		}
		if b := w.img.Cluster.Broker(broker); b != nil {
			w.sessions.Register(b.ID, b.Epoch, b.Fenced, w.now)
		}
	}
}

func (w *world) carryOut(res Result) {
	w.apply(res.Records...)
	if res.Applied != nil {
		res.Applied(w.next - 1)
	}
}

// do decides a request and carries it out.
func (w *world) do(req kmsg.Request) Result {
	if hb, ok := req.(*kmsg.BrokerHeartbeatRequest); ok {
		w.sessions.Contact(hb.BrokerID, hb.BrokerEpoch, w.now)
	}
	res, ok := w.decider().Decide(req)
	if !ok {
		panic(fmt.Sprintf("%T is not decided", req))
	}
	w.carryOut(res)
	return res
}

// dirID is the id of log directory n of a broker.
func dirID(broker int32, n int) protocol.UUID {
	return protocol.UUID{0: 0xd0, 1: byte(broker), 2: byte(n + 1)}
}

// registration makes the request of a broker with directories; an incarnation is a number.
func registration(broker int32, incarnation byte, dirs int) *kmsg.BrokerRegistrationRequest {
	req := kmsg.NewPtrBrokerRegistrationRequest()
	req.Version, req.BrokerID, req.ClusterID = 4, broker, "cluster"
	req.IncarnationID = [16]byte{0: 0xb0, 1: byte(broker), 15: incarnation}
	l := kmsg.NewBrokerRegistrationRequestListener()
	l.Name, l.Host, l.Port = "PLAINTEXT", fmt.Sprintf("host%d", broker), 9092
	req.Listeners = append(req.Listeners, l)
	for _, f := range metadata.SupportedFeatures() {
		e := kmsg.NewBrokerRegistrationRequestFeature()
		e.Name, e.MinSupportedVersion, e.MaxSupportedVersion = f.Name, f.Min, f.Max
		req.Features = append(req.Features, e)
	}
	for i := range dirs {
		req.LogDirs = append(req.LogDirs, dirID(broker, i))
	}
	return req
}

func (w *world) heartbeat(broker int32, set func(*kmsg.BrokerHeartbeatRequest)) Result {
	req := kmsg.NewPtrBrokerHeartbeatRequest()
	req.Version, req.BrokerID, req.CurrentMetadataOffset = 2, broker, w.next-1
	if b := w.img.Cluster.Broker(broker); b != nil {
		req.BrokerEpoch = b.Epoch
	}
	if set != nil {
		set(req)
	}
	return w.do(req)
}

// start registers and unfences brokers 1 to n, each with one directory.
func (w *world) start(n int32) {
	for b := int32(1); b <= n; b++ {
		w.do(registration(b, 1, 1))
		w.heartbeat(b, nil)
	}
}

func createTopic(name string, partitions int32, factor int16, configs ...string) *kmsg.CreateTopicsRequest {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version = 7
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, partitions, factor
	for _, c := range configs {
		k, v, _ := strings.Cut(c, "=")
		cfg := kmsg.NewCreateTopicsRequestTopicConfig()
		cfg.Name, cfg.Value = k, &v
		t.Configs = append(t.Configs, cfg)
	}
	req.Topics = append(req.Topics, t)
	return req
}

// assigned makes a topic with given replicas.
func (w *world) assigned(name string, replicas ...[]int32) {
	req := createTopic(name, -1, -1)
	for i, r := range replicas {
		a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		a.Partition, a.Replicas = int32(i), r
		req.Topics[0].ReplicaAssignment = append(req.Topics[0].ReplicaAssignment, a)
	}
	res := w.do(req)
	if code := res.Response.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode; code != 0 {
		panic(fmt.Sprintf("topic %s: %d", name, code))
	}
}

// text prints records without what every record has.
func text(records []metadata.Record) string {
	var b strings.Builder
	for _, rec := range records {
		b.WriteString(strings.TrimSuffix(rec.MessageName(), "Record"))
		v := reflect.ValueOf(rec).Elem()
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			if name == "Extra" || skipField(rec, name, v.Field(i)) {
				continue
			}
			fmt.Fprintf(&b, " %s=%s", name, fieldText(v.Field(i)))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// skipField leaves out fields that have the value "no change" or nothing.
func skipField(rec metadata.Record, name string, v reflect.Value) bool {
	if _, ok := rec.(*metadata.PartitionChangeRecord); ok {
		switch name {
		case "Leader":
			return v.Int() == int64(noLeaderChange)
		case "LeaderRecoveryState":
			return v.Int() == int64(noRecoveryChange)
		case "PartitionID":
			return false
		}
		return v.Kind() == reflect.Slice && v.IsNil()
	}
	if _, ok := rec.(*metadata.RegisterBrokerRecord); ok && (name == "Features" || name == "EndPoints") {
		return true
	}
	switch v.Kind() {
	case reflect.Slice:
		return v.IsNil() || v.Len() == 0 && name != "CordonedLogDirs"
	case reflect.Pointer:
		return v.IsNil()
	case reflect.Bool:
		return !v.Bool()
	case reflect.Int8:
		return v.Int() == 0
	}
	return false
}

func fieldText(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case protocol.UUID:
		return shortID(x)
	case []protocol.UUID:
		parts := make([]string, len(x))
		for i, id := range x {
			parts[i] = shortID(id)
		}
		return "[" + strings.Join(parts, " ") + "]"
	case *string:
		if x == nil {
			return "null"
		}
		return fmt.Sprintf("%q", *x)
	case string:
		return fmt.Sprintf("%q", x)
	}
	if v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct {
		var parts []string
		for i := range v.Len() {
			e := v.Index(i)
			var fields []string
			for _, field := range e.Fields() {
				fields = append(fields, fieldText(field))
			}
			parts = append(parts, "{"+strings.Join(fields, " ")+"}")
		}
		return "[" + strings.Join(parts, " ") + "]"
	}
	return fmt.Sprint(v.Interface())
}

// shortID names the ids that the world makes.
func shortID(id protocol.UUID) string {
	switch {
	case id[0] == 0xa0:
		return fmt.Sprintf("topic%d", id[15])
	case id[0] == 0xd0:
		return fmt.Sprintf("dir%d.%d", id[1], id[2]-1)
	case id[0] == 0xb0:
		return fmt.Sprintf("incarnation%d", id[15])
	case id == protocol.DirectoryUnassigned:
		return "UNASSIGNED"
	case id == protocol.DirectoryMigrating:
		return "MIGRATING"
	case id == protocol.DirectoryLost:
		return "LOST"
	}
	return id.String()
}

func mustCode(t *testing.T, got, want int16) {
	t.Helper()
	if got != want {
		t.Fatalf("error code %s, want %s", protocol.ErrorName(got), protocol.ErrorName(want))
	}
}
