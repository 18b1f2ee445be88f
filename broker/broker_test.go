package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/broker/config"
	"gregor/kraft"
	"gregor/kraft/quorum"
	"gregor/protocol"
	"gregor/storage"
	"gregor/storage/vfs"
)

// testNode is a node in this process, with its data in a directory of the test.
type testNode struct {
	t       *testing.T
	dir     string
	port    int
	options []string
	fs      vfs.FS    // vfs.Real when nil
	log     io.Writer // nowhere when nil; may be read when the node has stopped
	release string    // the one to format with, which needs controller.quorum.voters
	broker  *Broker
	stopped bool
}

func newTestNode(t *testing.T, overrides ...string) *testNode {
	t.Helper()
	n := &testNode{t: t, dir: t.TempDir(), port: freePorts(t), options: overrides}
	n.start()
	return n
}

// freePorts returns a port that is free together with the next one. They lie below the range from which systems take the
// ports of outgoing connections, so that none is taken between this call and the start of a broker.
func freePorts(t *testing.T) int {
	t.Helper()
	const lowest, count = 12000, 20000
	for range 1000 {
		port := lowest + rand.IntN(count)
		a, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		b, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+1))
		_ = a.Close()
		if err == nil {
			_ = b.Close()
			return port
		}
	}
	t.Fatal("no two free ports in a row")
	return 0
}

func (n *testNode) config() *config.Config {
	n.t.Helper()
	overrides := append([]string{
		fmt.Sprintf("listeners=PLAINTEXT://127.0.0.1:%d,CONTROLLER://127.0.0.1:%d", n.port, n.port+1),
		"log.dirs=" + filepath.Join(n.dir, "data"), "group.initial.rebalance.delay.ms=0", "offsets.topic.num.partitions=2",
	}, n.options...)
	c, _, err := config.Load(config.Options{Overrides: overrides})
	if err != nil {
		n.t.Fatal(err)
	}
	return c
}

func (n *testNode) open(ctx context.Context) (*Broker, error) {
	c, fsys := n.config(), n.fs
	if fsys == nil {
		fsys = vfs.Real()
	}
	log := slog.New(slog.DiscardHandler)
	if n.log != nil {
		log = slog.New(slog.NewTextHandler(n.log, nil))
	}
	return Start(ctx, Options{
		Config: c, FS: fsys, Logger: log, Version: "test", FormatOutput: io.Discard,
		Format: &kraft.Formatter{
			FS: vfs.Real(), NodeID: c.Node.ID, ClusterID: protocol.RandomUUID().String(), LogDirs: c.Storage.Dirs, MetadataDir: c.Storage.Dirs[0],
			Controller: true, ListenerName: "CONTROLLER", Standalone: n.release == "", HasStaticVoters: n.release != "", Now: time.Now,
			ReleaseVersion:       n.release,
			AdvertisedController: quorum.Endpoint{Name: "CONTROLLER", Host: "127.0.0.1", Port: uint16(n.port + 1)},
		},
	})
}

func (n *testNode) start() {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	b, err := n.open(ctx)
	if err != nil {
		n.t.Fatal(err)
	}
	n.broker, n.stopped = b, false
	n.t.Cleanup(n.stop)
}

func (n *testNode) stop() {
	n.t.Helper()
	if n.stopped {
		return
	}
	n.stopped = true
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := n.broker.Stop(ctx); err != nil {
		n.t.Errorf("stop: %v", err)
	}
}

func (n *testNode) client(opts ...kgo.Opt) *kgo.Client {
	n.t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(fmt.Sprintf("127.0.0.1:%d", n.port)), kgo.RetryTimeout(5 * time.Second)}, opts...)...)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(cl.Close)
	return cl
}

func (n *testNode) createTopic(cl *kgo.Client, topic string, partitions int32, configs map[string]*string) {
	n.t.Helper()
	resp, err := kadm.NewClient(cl).CreateTopic(context.Background(), partitions, 1, configs, topic)
	if err != nil || resp.Err != nil {
		n.t.Fatal(err, resp.Err)
	}
}

func timeout(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// consume reads n records of a topic from its start.
func consume(t *testing.T, cl *kgo.Client, n int) []*kgo.Record {
	t.Helper()
	ctx := timeout(t)
	var out []*kgo.Record
	for len(out) < n {
		f := cl.PollFetches(ctx)
		if err := f.Err(); err != nil {
			t.Fatalf("after %d records: %v", len(out), err)
		}
		out = append(out, f.Records()...)
	}
	return out
}

func TestRecordsOfEveryCodecAreReadBackAlsoAfterARestart(t *testing.T) {
	n := newTestNode(t)
	n.createTopic(n.client(), "t", 3, nil)
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	want := map[string]bool{}
	for name, codec := range codecs {
		cl := n.client(kgo.ProducerBatchCompression(codec), kgo.DefaultProduceTopic("t"))
		for i := range 50 {
			value := fmt.Sprintf("%s-%d", name, i)
			want[value] = true
			cl.Produce(timeout(t), &kgo.Record{Key: []byte(value), Value: []byte(value), Headers: []kgo.RecordHeader{{Key: "h", Value: []byte(name)}}}, func(_ *kgo.Record, err error) {
				if err != nil {
					t.Error(err)
				}
			})
		}
		if err := cl.Flush(timeout(t)); err != nil {
			t.Fatal(err)
		}
	}
	for _, phase := range []string{"running", "restarted"} {
		if phase == "restarted" {
			n.stop()
			n.start()
		}
		got := map[string]bool{}
		for _, r := range consume(t, n.client(kgo.ConsumeTopics("t")), len(want)) {
			if string(r.Headers[0].Value) != strings.Split(string(r.Value), "-")[0] {
				t.Errorf("%s: header %q of %q", phase, r.Headers[0].Value, r.Value)
			}
			got[string(r.Value)] = true
		}
		if len(got) != len(want) {
			t.Errorf("%s: %d different records, want %d", phase, len(got), len(want))
		}
	}
}

func TestGroupGoesOnFromItsCommittedOffsetAfterARestart(t *testing.T) {
	n := newTestNode(t)
	producer := n.client(kgo.DefaultProduceTopic("t"), kgo.AllowAutoTopicCreation())
	send := func(value string) {
		if err := producer.ProduceSync(timeout(t), kgo.StringRecord(value)).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	read := func(want string) {
		t.Helper()
		cl := n.client(kgo.ConsumerGroup("g"), kgo.ConsumeTopics("t"), kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		if got := consume(t, cl, 1); string(got[0].Value) != want {
			t.Errorf("read %q, want %q", got[0].Value, want)
		}
		if err := cl.CommitUncommittedOffsets(timeout(t)); err != nil {
			t.Fatal(err)
		}
		cl.Close()
	}
	send("one")
	read("one")
	n.stop()
	n.start()
	send("two")
	read("two")
}

func TestProducerIDsAreNeverGivenTwiceAcrossRestarts(t *testing.T) {
	n := newTestNode(t)
	seen := map[int64]bool{}
	for range 3 {
		for range 5 {
			req := kmsg.NewPtrInitProducerIDRequest()
			req.ProducerID, req.ProducerEpoch = -1, -1
			resp, err := req.RequestWith(timeout(t), n.client())
			if err != nil || resp.ErrorCode != 0 || seen[resp.ProducerID] {
				t.Fatalf("producer id %d, error %d, %v; seen %v", resp.ProducerID, resp.ErrorCode, err, seen)
			}
			seen[resp.ProducerID] = true
		}
		n.stop()
		n.start()
	}
}

func TestDynamicConfigsTakeEffectAndSurvive(t *testing.T) {
	n := newTestNode(t)
	cl := n.client()
	adm := kadm.NewClient(cl)
	n.createTopic(cl, "t", 1, nil)
	small := "200"
	if _, err := adm.AlterTopicConfigs(timeout(t), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &small}}, "t"); err != nil {
		t.Fatal(err)
	}
	refused := func() {
		t.Helper()
		cl := n.client(kgo.ProducerBatchCompression(kgo.NoCompression()))
		big := &kgo.Record{Topic: "t", Value: make([]byte, 1000)}
		var err error
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
			// The alteration is answered when it is committed, which is a moment before it is applied.
			if err = cl.ProduceSync(timeout(t), big).FirstErr(); err != nil {
				break
			}
		}
		if !errors.Is(err, kerr.MessageTooLarge) {
			t.Errorf("a batch above max.message.bytes: %v", err)
		}
	}
	refused()
	n.stop()
	n.start()
	refused()
}

// Retention and the cleaner look at logs as soon as they are open, which is before the replicas are given their configs.
func TestLogsAreOpenedByTheDynamicConfig(t *testing.T) {
	n := newTestNode(t)
	n.createTopic(n.client(), "t", 1, nil)
	forever := "-1"
	answers, err := kadm.NewClient(n.client()).AlterBrokerConfigs(timeout(t), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "log.retention.ms", Value: &forever}})
	if err != nil || len(answers) != 1 || answers[0].Err != nil {
		t.Fatalf("alteration: %+v, %v", answers, err)
	}
	n.stop()
	n.start()
	if got := n.broker.configWhileLoading("t").RetentionMillis; got != storage.Unlimited {
		t.Errorf("logs are opened with a retention of %d ms", got)
	}
}

func TestDeletedTopicIsGoneAndCanBeMadeAgain(t *testing.T) {
	n := newTestNode(t)
	cl := n.client()
	adm := kadm.NewClient(cl)
	for range 3 {
		n.createTopic(cl, "t", 2, nil)
		if err := n.client().ProduceSync(timeout(t), &kgo.Record{Topic: "t", Partition: 0, Value: []byte("x")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		ends, err := adm.ListEndOffsets(timeout(t), "t")
		if err != nil || ends.Error() != nil {
			t.Fatal(err, ends.Error())
		}
		total := int64(0)
		ends.Each(func(o kadm.ListedOffset) { total += o.Offset })
		if total != 1 {
			t.Errorf("a new topic ends at %d after one record", total)
		}
		if resp, err := adm.DeleteTopic(timeout(t), "t"); err != nil || resp.Err != nil {
			t.Fatal(err, resp.Err)
		}
	}
}

func TestSecondInstanceOnTheSameDirectoryIsRefused(t *testing.T) {
	n := newTestNode(t)
	second := &testNode{t: t, dir: n.dir, port: freePorts(t)}
	b, err := second.open(timeout(t))
	if err == nil {
		_ = b.Stop(timeout(t))
		t.Fatal("the second instance started")
	}
	if !strings.Contains(err.Error(), ".lock") && !strings.Contains(err.Error(), "lock") {
		t.Errorf("error does not speak of the lock: %v", err)
	}
	n.createTopic(n.client(), "still-alive", 1, nil)
}

func TestPortInUseIsSaid(t *testing.T) {
	n := newTestNode(t)
	second := &testNode{t: t, dir: t.TempDir(), port: n.port}
	if _, err := second.open(timeout(t)); err == nil || !strings.Contains(err.Error(), "cannot listen on PLAINTEXT://127.0.0.1") {
		t.Errorf("error %v", err)
	}
}

// Before metadata.version 3.7-IV2 the cluster keeps no directories, and refuses to be told of them.
func TestDirectoriesAreNotToldToAClusterThatDoesNotKnowThem(t *testing.T) {
	var log strings.Builder
	n := &testNode{t: t, dir: t.TempDir(), port: freePorts(t), log: &log, release: "3.6"}
	n.options = []string{
		"log.dirs=" + filepath.Join(n.dir, "a") + "," + filepath.Join(n.dir, "b"), fmt.Sprintf("controller.quorum.voters=1@127.0.0.1:%d", n.port+1),
	}
	n.start()
	n.createTopic(n.client(), "t", 6, nil)
	for i := range int32(6) {
		if err := n.client(kgo.RecordPartitioner(kgo.ManualPartitioner())).ProduceSync(timeout(t), &kgo.Record{Topic: "t", Partition: i, Value: []byte("x")}).FirstErr(); err != nil {
			t.Error(err)
		}
	}
	n.stop()
	if got := log.String(); strings.Contains(got, "level=WARN") || !strings.Contains(got, "Gregor starts") {
		t.Errorf("the log:\n%s", got)
	}
}

func TestReplicasOnSeveralDirectoriesAreAssignedWhereTheyAre(t *testing.T) {
	n := newTestNode(t)
	n.stop()
	n.options = append(n.options, "log.dirs="+filepath.Join(n.dir, "a")+","+filepath.Join(n.dir, "b"))
	n.start()
	n.createTopic(n.client(), "t", 6, nil)
	dirs := map[protocol.UUID]int{}
	deadline := time.Now().Add(5 * time.Second)
	for len(dirs) < 2 || dirs[protocol.DirectoryUnassigned] > 0 {
		if time.Now().After(deadline) {
			t.Fatalf("directories of the replicas: %v", dirs)
		}
		clear(dirs)
		for _, p := range n.broker.node.Image().Topics.ByName("t").Partitions() {
			d, _ := p.Directory(1)
			dirs[d]++
		}
		time.Sleep(5 * time.Millisecond)
	}
	if err := n.client().ProduceSync(timeout(t), &kgo.Record{Topic: "t", Value: []byte("x")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func TestLongPollWakesWhenARecordArrives(t *testing.T) {
	n := newTestNode(t)
	cl := n.client()
	n.createTopic(cl, "t", 1, nil)
	consumer := n.client(kgo.ConsumeTopics("t"), kgo.FetchMaxWait(10*time.Second))
	got := make(chan time.Time, 1)
	go func() {
		f := consumer.PollFetches(context.Background())
		if f.NumRecords() > 0 {
			got <- time.Now()
		}
	}()
	time.Sleep(300 * time.Millisecond)
	sent := time.Now()
	if err := cl.ProduceSync(timeout(t), &kgo.Record{Topic: "t", Value: []byte("x")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	select {
	case at := <-got:
		if at.Sub(sent) > 2*time.Second {
			t.Errorf("the record arrived after %v", at.Sub(sent))
		}
	case <-time.After(5 * time.Second):
		t.Error("the parked fetch was not woken")
	}
}

func TestTopicMadeForAClientHasTheDefaultsOfTheBrokersFile(t *testing.T) {
	for _, c := range []struct {
		overrides          []string
		partitions, factor int32
	}{
		{nil, -1, -1},
		{[]string{"num.partitions=5"}, 5, -1},
		{[]string{"default.replication.factor=2"}, -1, 2},
		{[]string{"num.partitions=1", "default.replication.factor=1"}, 1, 1},
	} {
		cfg, _, err := config.Load(config.Options{Overrides: c.overrides})
		if err != nil {
			t.Fatal(err)
		}
		if got := newTopic(cfg, "t"); got.NumPartitions != c.partitions || int32(got.ReplicationFactor) != c.factor {
			t.Errorf("%v: %d partitions, factor %d; want %d, %d", c.overrides, got.NumPartitions, got.ReplicationFactor, c.partitions, c.factor)
		}
	}
}

// textLog is a log that may be read while it is written.
type textLog struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *textLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *textLog) has(s string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), s)
}

func TestKeyOfAReplicationFactorThatCannotBeMetIsNamed(t *testing.T) {
	log := &textLog{}
	n := &testNode{t: t, dir: t.TempDir(), port: freePorts(t), log: log, options: []string{"offsets.topic.replication.factor=3", "default.replication.factor=2"}}
	n.start()
	cl, ctx := n.client(), timeout(t)
	for _, key := range []string{"offsets.topic.replication.factor", "default.replication.factor"} {
		for !log.has("It is set by " + key + ".") {
			find := kmsg.NewPtrFindCoordinatorRequest()
			find.CoordinatorKey, find.CoordinatorKeys = "g", []string{"g"}
			if _, err := find.RequestWith(ctx, cl); err != nil {
				t.Fatal(err)
			}
			metadata, topic := kmsg.NewPtrMetadataRequest(), kmsg.NewMetadataRequestTopic()
			topic.Topic, metadata.AllowAutoTopicCreation = new("made-when-asked-for"), true
			metadata.Topics = append(metadata.Topics, topic)
			if _, err := metadata.RequestWith(ctx, cl); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestControllerIsListedOnItsOwnListener(t *testing.T) {
	n := newTestNode(t)
	cl, err := kgo.NewClient(kgo.SeedBrokers(fmt.Sprintf("127.0.0.1:%d", n.port+1)))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	req := kmsg.NewPtrDescribeClusterRequest()
	req.EndpointType = 2
	for ctx := timeout(t); ; {
		resp, err := req.RequestWith(ctx, cl)
		if err != nil {
			t.Fatal(err)
		}
		if len(resp.Brokers) == 0 {
			continue // the controller registers when the node already serves
		}
		if b := resp.Brokers[0]; len(resp.Brokers) != 1 || b.NodeID != 1 || b.Host != "127.0.0.1" || b.Port != int32(n.port+1) || resp.ControllerID != 1 {
			t.Errorf("controllers %+v, active %d", resp.Brokers, resp.ControllerID)
		}
		return
	}
}

func TestTopicIsThereAndGoneAtOnceForWhoeverAsked(t *testing.T) {
	n := newTestNode(t)
	cl := n.client()
	exists := func() bool {
		req := kmsg.NewPtrMetadataRequest()
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = new("t")
		req.Topics = append(req.Topics, topic)
		resp, err := req.RequestWith(timeout(t), cl)
		if err != nil {
			t.Fatal(err)
		}
		return resp.Topics[0].ErrorCode == 0
	}
	for range 50 {
		n.createTopic(cl, "t", 3, nil)
		if !exists() {
			t.Fatal("created, and not there")
		}
		offsets := kmsg.NewPtrListOffsetsRequest()
		topic := kmsg.NewListOffsetsRequestTopic()
		topic.Topic = "t"
		for i := range int32(3) {
			p := kmsg.NewListOffsetsRequestTopicPartition()
			p.Partition, p.Timestamp = i, -1
			topic.Partitions = append(topic.Partitions, p)
		}
		offsets.Topics = append(offsets.Topics, topic)
		resp, err := cl.Broker(1).Request(timeout(t), offsets)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range resp.(*kmsg.ListOffsetsResponse).Topics[0].Partitions {
			if p.ErrorCode != 0 {
				t.Fatalf("created, and partition %d answers %d", p.Partition, p.ErrorCode)
			}
		}
		if resp, err := kadm.NewClient(cl).DeleteTopic(timeout(t), "t"); err != nil || resp.Err != nil {
			t.Fatal(err, resp.Err)
		}
		if exists() {
			t.Fatal("deleted, and still there")
		}
	}
}
