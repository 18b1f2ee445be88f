package groups

import (
	"context"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"gregor/compat-tests/harness"
	"gregor/compat-tests/wire"
)

// rollingTopic has the records that all groups read.
const rollingTopic = "numbered"

const rollingPartitions = 8

// rollOnKafkaVariable lets the members roll on a real Kafka, to see whether a fault is the client's.
const rollOnKafkaVariable = "GREGOR_GROUPS_ROLL_ON_KAFKA"

// shortSessions let a paused member of a consumer group be missed soon.
var shortSessions = harness.Properties{
	"group.consumer.min.session.timeout.ms": "6000", "group.consumer.session.timeout.ms": "8000",
	"group.consumer.min.heartbeat.interval.ms": "500", "group.consumer.heartbeat.interval.ms": "1000",
	"group.consumer.assignment.interval.ms": "0",
}

// writer writes numbered records until it is stopped.
type writer struct {
	cl      *kgo.Client
	written atomic.Int64
	cancel  context.CancelFunc
	done    chan struct{}
	err     error
}

func startWriter(t *testing.T, addr string, from int) *writer {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.DefaultProduceTopic(rollingTopic), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()),
		kgo.ProducerBatchCompression(kgo.GzipCompression())) // the codec that every client has built in
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := &writer{cl: cl, cancel: cancel, done: make(chan struct{})}
	w.written.Store(int64(from))
	go func() {
		defer close(w.done)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			<-tick.C
			var records []*kgo.Record
			for i := range 16 {
				records = append(records, kgo.StringRecord(strconv.Itoa(int(w.written.Load())+i)))
			}
			if w.err = cl.ProduceSync(context.Background(), records...).FirstErr(); w.err != nil {
				return
			}
			w.written.Add(int64(len(records)))
		}
	}()
	return w
}

// stop returns how many records there are.
func (w *writer) stop(t *testing.T) int {
	t.Helper()
	w.cancel()
	<-w.done
	w.cl.Close()
	if w.err != nil {
		t.Fatal(w.err)
	}
	return int(w.written.Load())
}

// act is a moment of a group's life.
type act struct {
	at   time.Duration
	what string
	who  string
}

// usualLife has members that join, leave, are killed, and sleep longer than their session.
var usualLife = []act{
	{0, "join", "a"},
	{0, "join", "b"},
	{3 * time.Second, "join", "c"},
	{6 * time.Second, "leave", "a"},
	{8 * time.Second, "join", "d"},
	{11 * time.Second, "kill", "b"},
	{12 * time.Second, "join", "e"},
	{21 * time.Second, "pause", "c"},
	{32 * time.Second, "resume", "c"},
	{34 * time.Second, "leave", "d"},
}

// kcatLife has no member that leaves in order while records come: kcat drops the records that it has polled when it is
// told to end, and commits their offsets all the same.
var kcatLife = []act{
	{0, "join", "a"},
	{0, "join", "b"},
	{3 * time.Second, "join", "c"},
	{6 * time.Second, "kill", "a"},
	{8 * time.Second, "join", "d"},
	{11 * time.Second, "kill", "b"},
	{12 * time.Second, "join", "e"},
	{21 * time.Second, "pause", "c"},
	{32 * time.Second, "resume", "c"},
	{34 * time.Second, "kill", "d"},
}

// shortLife is for members that take long to start.
var shortLife = []act{
	{0, "join", "a"},
	{0, "join", "b"},
	{20 * time.Second, "kill", "a"},
	{21 * time.Second, "join", "c"},
	{34 * time.Second, "leave", "b"},
}

// staticLife has static members that come back within their session and after it. One that leaves in order says nothing
// to the classic protocol, and to the consumer protocol that it will come back.
var staticLife = []act{
	{0, "join", "a"},
	{0, "join", "b"},
	{3 * time.Second, "join", "c"},
	{6 * time.Second, "kill", "a"},
	{8 * time.Second, "join", "a"},
	{17 * time.Second, "leave", "b"},
	{19 * time.Second, "join", "b"},
	{21 * time.Second, "pause", "c"},
	{32 * time.Second, "resume", "c"},
	{34 * time.Second, "kill", "a"},
}

// staticKcatLife is for kcat, which must not leave in order, as above.
var staticKcatLife = []act{
	{0, "join", "a"},
	{0, "join", "b"},
	{6 * time.Second, "kill", "a"},
	{8 * time.Second, "join", "a"},
	{21 * time.Second, "pause", "b"},
	{32 * time.Second, "resume", "b"},
	{34 * time.Second, "kill", "a"},
}

// shortStaticLife is for static members that take long to start.
var shortStaticLife = []act{
	{0, "join", "a"},
	{0, "join", "b"},
	{15 * time.Second, "kill", "a"},
	{17 * time.Second, "join", "a"},
	{34 * time.Second, "leave", "b"},
}

// live plays the acts of one group and returns who is still there.
func live(t *testing.T, p *place, begin start, acts []act) map[string]roller {
	t.Helper()
	began := time.Now()
	members := map[string]roller{}
	for _, a := range acts {
		<-time.After(time.Until(began.Add(a.at)))
		switch a.what {
		case "join":
			members[a.who] = begin(p, a.who)
		case "leave":
			members[a.who].leave()
			delete(members, a.who)
		case "kill":
			members[a.who].kill()
			delete(members, a.who)
		case "pause":
			members[a.who].pause()
		case "resume":
			members[a.who].resume()
		}
	}
	return members
}

// awaitAll waits until each record is processed.
func awaitAll(t *testing.T, p *place, written int) {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		missing, first := p.l.missing(written)
		if missing == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d of %d records are not processed, the first is %d", missing, written, first)
		}
		<-time.After(50 * time.Millisecond)
	}
}

// rollingGroup is a group of members of one client.
type rollingGroup struct {
	name  string
	start start
	acts  []act
	// need skips the test when the client is not here; nil for those in this process.
	need func(tb testing.TB)
}

func rollingGroups() []rollingGroup {
	session, beat := "session.timeout.ms=8000", "heartbeat.interval.ms=1000"
	rdkafka := func(more ...string) start { return kcat(append([]string{"-X", session, "-X", beat}, more...)...) }
	needKcat := func(tb testing.TB) { harness.Need(tb, "kcat") }
	needJava := func(tb testing.TB) {
		harness.NeedKafka(tb)
		if _, err := harness.KafkaLibs(); err != nil {
			tb.Fatal(err)
		}
	}
	needAIOKafka := func(tb testing.TB) { harness.AIOKafka(tb) }
	needKafkaJS := func(tb testing.TB) { harness.KafkaJS(tb) }
	return []rollingGroup{
		{"franz-go-range", franz(), usualLife, nil},
		{"franz-go-cooperative-sticky", franz(kgo.Balancers(kgo.CooperativeStickyBalancer())), usualLife, nil},
		{"franz-go-consumer-protocol", franz(kgo.ServerSideBalancer()), usualLife, nil},
		{"franz-go-static", static(func(id string) start { return franz(kgo.InstanceID(id)) }), staticLife, nil},
		{"franz-go-consumer-protocol-static", static(func(id string) start { return franz(kgo.ServerSideBalancer(), kgo.InstanceID(id)) }), staticLife, nil},
		{"sarama", saramaMember, usualLife, nil},
		{"kafka-go", segmentio, usualLife, nil},
		{"librdkafka", rdkafka(), kcatLife, needKcat},
		{"librdkafka-cooperative", rdkafka("-X", "partition.assignment.strategy=cooperative-sticky"), kcatLife, needKcat},
		{"librdkafka-static", static(func(id string) start { return rdkafka("-X", "group.instance.id="+id) }), staticKcatLife, needKcat},
		{"java-classic", javaConsole(session, beat), shortLife, needJava},
		{"java-static", static(func(id string) start { return javaConsole(session, beat, "group.instance.id="+id) }), shortStaticLife, needJava},
		{"java-consumer-protocol", javaConsole("group.protocol=consumer"), shortLife, needJava},
		{"aiokafka", aiokafkaMember, usualLife, needAIOKafka},
		{"kafkajs", kafkajsMember, usualLife, needKafkaJS},
	}
}

func TestNoRecordIsLostAndNoPartitionSharedWhileMembersRoll(t *testing.T) {
	groups := rollingGroups()
	for _, g := range groups {
		if g.need != nil { // first, since what is fetched takes its time
			t.Run("need/"+g.name, func(t *testing.T) { g.need(t) })
		}
	}
	kind := harness.Gregor
	if os.Getenv(rollOnKafkaVariable) != "" {
		kind = harness.Kafka
	}
	n := harness.Start(t, kind, harness.Options{Properties: shortSessions})
	wire.CreateTopic(t, n, rollingTopic, rollingPartitions)
	w := startWriter(t, n.Addr, 0)
	var total atomic.Int64
	lastAct := usualLife[len(usualLife)-1].at
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-time.After(lastAct + time.Second)
		total.Store(int64(w.stop(t)))
	}()
	t.Run("groups", func(t *testing.T) {
		for _, g := range groups {
			t.Run(g.name, func(t *testing.T) {
				t.Parallel()
				if g.need != nil {
					g.need(t)
				}
				p := &place{t: t, addr: n.Addr, group: g.name, topic: rollingTopic, l: newLedger()}
				members := live(t, p, g.start, g.acts)
				<-stopped
				written := int(total.Load())
				awaitAll(t, p, written)
				for _, m := range members {
					m.leave()
				}
				p.l.report(t, written)
			})
		}
	})
}
