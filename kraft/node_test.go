package kraft

import (
	"bytes"
	"context"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/kraft/image"
	"gregor/kraft/metadata"
	"gregor/kraft/quorum"
	"gregor/protocol"
	"gregor/storage/checkpoint"
	"gregor/storage/vfs"
)

// testVoters is controller.quorum.voters of a cluster whose nodes are 1 to n.
func testVoters(n int32) []quorum.Voter {
	var out []quorum.Voter
	for id := int32(1); id <= n; id++ {
		out = append(out, quorum.Voter{
			Key:       quorum.ReplicaKey{ID: id},
			Endpoints: []quorum.Endpoint{{Name: "CONTROLLER", Host: "localhost", Port: uint16(9000 + id)}},
		})
	}
	return out
}

// formatDisk makes the file system of a freshly formatted controller.
func formatDisk(t *testing.T, id int32, extra func(*Formatter)) *vfs.Mem {
	t.Helper()
	fs := vfs.NewMem()
	f := Formatter{
		FS: fs, NodeID: id, ClusterID: testClusterID, LogDirs: []string{"/data"}, MetadataDir: "/data",
		Controller: true, HasStaticVoters: true, ListenerName: "CONTROLLER",
	}
	if extra != nil {
		extra(&f)
	}
	if err := f.Run(&bytes.Buffer{}); err != nil {
		t.Fatal(err)
	}
	return fs
}

// options are those of node id of a cluster of n controllers.
func testOptions(t *testing.T, fs vfs.FS, id, n int32) Options {
	t.Helper()
	props, err := checkpoint.ReadMetaProperties(fs, "/data/"+checkpoint.MetaPropertiesFile)
	if err != nil {
		t.Fatal(err)
	}
	return Options{
		NodeID: id, ClusterID: props.ClusterID, FS: fs, MetadataDir: "/data", DirectoryID: props.DirectoryID,
		Controller: &ControllerOptions{
			Listeners:         []ControllerListener{{Name: "CONTROLLER", Host: "localhost", Port: uint16(9000 + id)}},
			DeleteTopicEnable: true, DefaultPartitions: 2,
		},
		Quorum: QuorumOptions{StaticVoters: testVoters(n), ListenerNames: []string{"CONTROLLER"}},
	}
}

// openNode opens and starts a node and waits until it has loaded the log.
func openNode(t *testing.T, o Options, publishers ...image.Publisher) *Node {
	t.Helper()
	n, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range publishers {
		n.Register(p)
	}
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return n
}

func stopNode(t *testing.T, n *Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := n.Stop(ctx); err != nil {
		t.Error(err)
	}
}

// until waits for a condition, in the fake time of a bubble.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 2000 {
		synctest.Wait()
		if ok() {
			return
		}
		pause(10 * time.Millisecond)
	}
	t.Fatalf("%s did not happen", what)
}

func pause(d time.Duration) { <-time.After(d) }

func anonymous() *RequestContext {
	return &RequestContext{Principal: "User:ANONYMOUS", Listener: "CONTROLLER"}
}

func handle[R kmsg.Response](t *testing.T, n *Node, req kmsg.Request) R {
	t.Helper()
	resp, err := n.Handle(t.Context(), anonymous(), req)
	if err != nil {
		t.Fatal(err)
	}
	out, ok := resp.(R)
	if !ok {
		t.Fatalf("%T answered with %T", req, resp)
	}
	return out
}

func registerRequest(broker int32, incarnation byte) *kmsg.BrokerRegistrationRequest {
	req := kmsg.NewPtrBrokerRegistrationRequest()
	req.Version, req.BrokerID, req.ClusterID = 4, broker, testClusterID
	req.IncarnationID = [16]byte{1: byte(broker), 15: incarnation}
	req.LogDirs = [][16]byte{{0: 0xd0, 1: byte(broker)}}
	for _, f := range metadata.SupportedFeatures() {
		e := kmsg.NewBrokerRegistrationRequestFeature()
		e.Name, e.MinSupportedVersion, e.MaxSupportedVersion = f.Name, f.Min, f.Max
		req.Features = append(req.Features, e)
	}
	return req
}

func heartbeatRequest(n *Node, broker int32, epoch int64) *kmsg.BrokerHeartbeatRequest {
	req := kmsg.NewPtrBrokerHeartbeatRequest()
	req.Version, req.BrokerID, req.BrokerEpoch = 2, broker, epoch
	req.CurrentMetadataOffset = n.Image().Provenance.Offset
	return req
}

// joinBroker registers and unfences a broker and returns its epoch.
func joinBroker(t *testing.T, n *Node, broker int32) int64 {
	t.Helper()
	reg := handle[*kmsg.BrokerRegistrationResponse](t, n, registerRequest(broker, 1))
	if reg.ErrorCode != 0 {
		t.Fatalf("registration: %s", protocol.ErrorName(reg.ErrorCode))
	}
	synctest.Wait()
	hb := handle[*kmsg.BrokerHeartbeatResponse](t, n, heartbeatRequest(n, broker, reg.BrokerEpoch))
	if hb.ErrorCode != 0 || hb.IsFenced {
		t.Fatalf("heartbeat: %+v", hb)
	}
	return reg.BrokerEpoch
}

func createRequest(name string, partitions int32, factor int16) *kmsg.CreateTopicsRequest {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version = 7
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, partitions, factor
	req.Topics = append(req.Topics, topic)
	return req
}

func createTopic(t *testing.T, n *Node, name string, partitions int32) {
	t.Helper()
	resp := handle[*kmsg.CreateTopicsResponse](t, n, createRequest(name, partitions, 1))
	if code := resp.Topics[0].ErrorCode; code != 0 {
		t.Fatalf("topic %s: %s", name, protocol.ErrorName(code))
	}
}

// recorder is a publisher that keeps what it was told.
type recorder struct {
	name   string
	order  *[]string
	images []*image.Image
	deltas []*image.Delta
}

func (r *recorder) Name() string { return r.name }

func (r *recorder) Publish(delta *image.Delta, img *image.Image, _ image.Manifest) {
	r.images = append(r.images, img)
	r.deltas = append(r.deltas, delta)
	if r.order != nil {
		*r.order = append(*r.order, r.name)
	}
}

func TestNewClusterWritesItsBootstrapRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testOptions(t, formatDisk(t, 1, func(f *Formatter) {
			f.Scram = []string{"SCRAM-SHA-256=[name=admin,password=x]"}
		}), 1, 1))
		defer stopNode(t, n)
		<-n.Loaded()
		until(t, "activation", func() bool { return n.Image().MetadataVersion() == metadata.LatestMetadataVersion })
		img := n.Image()
		if img.Scram.Len() != 1 || img.Configs.BrokerDefault()["min.insync.replicas"] != "1" || !img.Features.ELREnabled() {
			t.Errorf("features %v, %d credentials, configs %v", img.Features.MetadataVersion(), img.Scram.Len(), img.Configs.BrokerDefault())
		}
		until(t, "registration of the controller", func() bool { return n.Image().Cluster.Controller(1) != nil })
		e, ok := n.LeaderEndpoint()
		if !ok || e != (Endpoint{NodeID: 1, Host: "localhost", Port: 9001}) {
			t.Errorf("leader at %+v, %v", e, ok)
		}
	})
}

func TestRequestsAreCommittedBeforeTheyAreAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testOptions(t, formatDisk(t, 1, nil), 1, 1))
		defer stopNode(t, n)
		until(t, "activation", func() bool { return n.Image().MetadataVersion() != 0 })
		joinBroker(t, n, 1)
		createTopic(t, n, "orders", 3)
		if hw := n.HighWatermark(); n.server.committed.next > hw {
			t.Errorf("state up to %d with a high watermark of %d", n.server.committed.next, hw)
		}
		synctest.Wait()
		if topic := n.Image().Topics.ByName("orders"); topic == nil || topic.NumPartitions() != 3 {
			t.Fatalf("topic %v", topic)
		}
	})
}

func TestRestartFindsTheSameImage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := formatDisk(t, 1, nil)
		n := openNode(t, testOptions(t, fs, 1, 1))
		until(t, "activation", func() bool { return n.Image().MetadataVersion() != 0 })
		epoch := joinBroker(t, n, 1)
		createTopic(t, n, "a", 2)
		createTopic(t, n, "b", 1)
		synctest.Wait()
		before := n.Image()
		stopNode(t, n)

		n = openNode(t, testOptions(t, fs, 1, 1))
		defer stopNode(t, n)
		<-n.Loaded()
		synctest.Wait()
		for _, name := range []string{"a", "b"} {
			if got, want := n.Image().Topics.ByName(name), before.Topics.ByName(name); got == nil || got.ID != want.ID {
				t.Errorf("topic %s: %v after the restart", name, got)
			}
		}
		until(t, "takeover", func() bool {
			resp := handle[*kmsg.BrokerHeartbeatResponse](t, n, heartbeatRequest(n, 1, epoch))
			return resp.ErrorCode == 0 && !resp.IsFenced
		})
	})
}

func TestAtomicChangesAreTransactionsInTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := formatDisk(t, 1, nil)
		n := openNode(t, testOptions(t, fs, 1, 1))
		until(t, "activation", func() bool { return n.Image().MetadataVersion() != 0 })
		joinBroker(t, n, 1)
		createTopic(t, n, "a", 2)
		synctest.Wait()
		stopNode(t, n)
		var names []string
		for _, rec := range readLog(t, fs) {
			names = append(names, rec.MessageName())
		}
		want := []string{"BeginTransactionRecord", "TopicRecord", "PartitionRecord", "PartitionRecord", "EndTransactionRecord"}
		if !containsRun(names, want) {
			t.Errorf("log %v lacks %v", names, want)
		}
	})
}

func TestPublishersAreCalledInOrderAndSeeEachImageOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []string
		a, b := &recorder{name: "a", order: &order}, &recorder{name: "b", order: &order}
		n := openNode(t, testOptions(t, formatDisk(t, 1, nil), 1, 1), a, b)
		until(t, "activation", func() bool { return n.Image().MetadataVersion() != 0 })
		joinBroker(t, n, 1)
		createTopic(t, n, "a", 1)
		synctest.Wait()
		stopNode(t, n)
		for i, name := range order {
			if want := []string{"a", "b"}[i%2]; name != want {
				t.Fatalf("call %d went to %s: %v", i, name, order)
			}
		}
		for i, d := range a.deltas {
			previous := image.Empty()
			if i > 0 {
				previous = a.images[i-1]
			}
			if d.Base() != previous {
				t.Fatalf("delta %d does not start at the image before it", i)
			}
			if i > 0 && a.images[i].Provenance.Offset < previous.Provenance.Offset {
				t.Fatalf("image %d is older than the one before", i)
			}
		}
	})
}

func TestBrokerWithoutHeartbeatsIsFencedAfterItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testOptions(t, formatDisk(t, 1, nil), 1, 1))
		defer stopNode(t, n)
		until(t, "activation", func() bool { return n.Image().MetadataVersion() != 0 })
		epoch := joinBroker(t, n, 1)
		createTopic(t, n, "a", 1)
		for range 10 {
			pause(5 * time.Second)
			handle[*kmsg.BrokerHeartbeatResponse](t, n, heartbeatRequest(n, 1, epoch))
		}
		synctest.Wait()
		if n.Image().Cluster.Broker(1).Fenced {
			t.Fatal("fenced although it sends heartbeats")
		}
		last := time.Now()
		until(t, "fencing", func() bool { return n.Image().Cluster.Broker(1).Fenced })
		if silent := time.Since(last); silent < 9*time.Second || silent > 11*time.Second {
			t.Errorf("fenced after %v of silence, with a session timeout of 9 s", silent)
		}
		if p := n.Image().Topics.Partition("a", 0); p.Leader != image.NoLeader {
			t.Errorf("partition is still led by %d", p.Leader)
		}
	})
}

func TestIdleControllerWritesNoOps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testOptions(t, formatDisk(t, 1, nil), 1, 1))
		defer stopNode(t, n)
		until(t, "registration", func() bool { return n.Image().Cluster.Controller(1) != nil })
		from := n.Image().Provenance.Offset
		pause(10 * time.Second)
		synctest.Wait()
		if n := n.Image().Provenance.Offset - from; n < 18 || n > 22 {
			t.Errorf("%d records in 10 s, want one every 500 ms", n)
		}
	})
}

func TestSnapshotAndLogGiveTheSameImage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := formatDisk(t, 1, nil)
		o := testOptions(t, fs, 1, 1)
		o.Snapshots.MaxNewRecordBytes = 2000
		n := openNode(t, o)
		until(t, "activation", func() bool { return n.Image().MetadataVersion() != 0 })
		joinBroker(t, n, 1)
		for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
			createTopic(t, n, name, 3)
			synctest.Wait()
		}
		pause(2 * time.Second)
		synctest.Wait()
		before := n.Image()
		stopNode(t, n)
		if countSnapshots(t, fs) < 2 {
			t.Fatal("no snapshot was written")
		}
		o.FS = fs
		n = openNode(t, o)
		defer stopNode(t, n)
		<-n.Loaded()
		synctest.Wait()
		if got := n.Image().Topics; got.Counts().Topics != before.Topics.Counts().Topics {
			t.Fatalf("%+v after the restart, %+v before", got.Counts(), before.Topics.Counts())
		}
		for topic := range before.Topics.All() {
			if got := n.Image().Topics.ByName(topic.Name); got == nil || got.ID != topic.ID || got.NumPartitions() != topic.NumPartitions() {
				t.Errorf("topic %s differs", topic.Name)
			}
		}
	})
}

func TestForwardedRequestsComeInEnvelopes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []RequestContext
		o := testOptions(t, formatDisk(t, 1, nil), 1, 1)
		o.Controller.Access = func(rc *RequestContext, _, _ int16) { seen = append(seen, *rc) }
		n := openNode(t, o)
		defer stopNode(t, n)
		until(t, "activation", func() bool { return n.Image().MetadataVersion() != 0 })
		joinBroker(t, n, 1)
		inner := createRequest("forwarded", 1, 1)
		env := kmsg.NewPtrEnvelopeRequest()
		env.RequestData = append([]byte{0, 19, 0, 7, 0, 0, 0, 5, 0, 2, 'm', 'e', 0}, inner.AppendTo(nil)...)
		env.RequestPrincipal = []byte{0, 0, 5, 'U', 's', 'e', 'r', 6, 'a', 'l', 'i', 'c', 'e', 0, 0}
		env.ClientHostAddress = []byte{10, 0, 0, 7}
		resp := handle[*kmsg.EnvelopeResponse](t, n, env)
		if resp.ErrorCode != 0 {
			t.Fatal(protocol.ErrorName(resp.ErrorCode))
		}
		answer := kmsg.NewPtrCreateTopicsResponse()
		answer.Version = 7
		if err := answer.ReadFrom(resp.ResponseData[5:]); err != nil || answer.Topics[0].ErrorCode != 0 {
			t.Fatalf("%+v, %v", answer, err)
		}
		if len(seen) != 1 || seen[0].Principal != "User:alice" || seen[0].ClientID != "me" || !seen[0].Forwarded ||
			seen[0].ClientAddr != netip.MustParseAddr("10.0.0.7") {
			t.Errorf("context %+v", seen)
		}
	})
}

func TestBadEnvelopesAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testOptions(t, formatDisk(t, 1, nil), 1, 1))
		defer stopNode(t, n)
		good := append([]byte{0, 19, 0, 7, 0, 0, 0, 5, 0, 2, 'm', 'e', 0}, createRequest("x", 1, 1).AppendTo(nil)...)
		principal := []byte{0, 0, 5, 'U', 's', 'e', 'r', 2, 'a', 0, 0}
		tests := []struct {
			name            string
			data, principal []byte
			addr            []byte
			want            string
		}{
			{"empty", nil, principal, []byte{1, 2, 3, 4}, "INVALID_REQUEST"},
			{"not forwardable", []byte{0, 3, 0, 12, 0, 0, 0, 5, 0, 0, 0}, principal, []byte{1, 2, 3, 4}, "INVALID_REQUEST"},
			{"cut short", good[:len(good)-9], principal, []byte{1, 2, 3, 4}, "INVALID_REQUEST"},
			{"no principal", good, nil, []byte{1, 2, 3, 4}, "PRINCIPAL_DESERIALIZATION_FAILURE"},
			{"principal of another version", good, []byte{0, 1, 0}, []byte{1, 2, 3, 4}, "PRINCIPAL_DESERIALIZATION_FAILURE"},
			{"no address", good, principal, []byte{1}, "INVALID_REQUEST"},
			{"unknown version", append([]byte{0, 19, 0, 99}, good[4:]...), principal, []byte{1, 2, 3, 4}, "UNSUPPORTED_VERSION"},
		}
		for _, tt := range tests {
			env := kmsg.NewPtrEnvelopeRequest()
			env.RequestData, env.RequestPrincipal, env.ClientHostAddress = tt.data, tt.principal, tt.addr
			resp := handle[*kmsg.EnvelopeResponse](t, n, env)
			if got := protocol.ErrorName(resp.ErrorCode); got != tt.want {
				t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
			}
		}
	})
}

func TestDescribeQuorumTellsTheLeaderAndItsVoters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testOptions(t, formatDisk(t, 1, nil), 1, 1))
		defer stopNode(t, n)
		until(t, "activation", func() bool { return n.Image().MetadataVersion() != 0 })
		req := kmsg.NewPtrDescribeQuorumRequest()
		req.Version = 2
		topic := kmsg.NewDescribeQuorumRequestTopic()
		topic.Topic = quorum.Topic
		topic.Partitions = append(topic.Partitions, kmsg.NewDescribeQuorumRequestTopicPartition())
		req.Topics = append(req.Topics, topic)
		resp := handle[*kmsg.DescribeQuorumResponse](t, n, req)
		p := resp.Topics[0].Partitions[0]
		if p.ErrorCode != 0 || p.LeaderID != 1 || p.LeaderEpoch != n.Leader().Epoch || p.HighWatermark <= 0 ||
			len(p.CurrentVoters) != 1 || p.CurrentVoters[0].ReplicaID != 1 {
			t.Errorf("%+v", p)
		}
		req.Topics[0].Topic = "other"
		if got := handle[*kmsg.DescribeQuorumResponse](t, n, req).Topics[0].Partitions[0].ErrorCode; got != 3 {
			t.Errorf("another topic: %d", got)
		}
	})
}

func TestEveryHandledAPIRefusesUnderAnotherController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// One of three voters, alone: it never leads.
		n := openNode(t, testOptions(t, formatDisk(t, 1, nil), 1, 3))
		defer stopNode(t, n)
		for key := range int16(kmsg.MaxKey + 1) {
			if !Supported(key) || key == 1 || key == 59 || key == 60 || key == 58 {
				continue
			}
			req := kmsg.RequestForKey(key)
			req.SetVersion(req.MaxVersion())
			if resp := handle[kmsg.Response](t, n, req); resp.Key() != key {
				t.Errorf("key %d answered with %T", key, resp)
			}
		}
		hb := handle[*kmsg.BrokerHeartbeatResponse](t, n, kmsg.NewPtrBrokerHeartbeatRequest())
		if hb.ErrorCode != 41 {
			t.Errorf("heartbeat: %s", protocol.ErrorName(hb.ErrorCode))
		}
		resp := handle[*kmsg.CreateTopicsResponse](t, n, createRequest("x", 1, 1))
		if resp.Topics[0].ErrorCode != 41 {
			t.Errorf("create: %s", protocol.ErrorName(resp.Topics[0].ErrorCode))
		}
		if _, ok := n.LeaderEndpoint(); ok {
			t.Error("a leader is known although there is none")
		}
	})
}
