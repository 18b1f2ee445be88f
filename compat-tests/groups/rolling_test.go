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
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.DefaultProduceTopic(rollingTopic), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
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

// live plays the acts of one group and returns who is still there.
func live(t *testing.T, p *place, make start, acts []act) map[string]roller {
	t.Helper()
	began := time.Now()
	members := map[string]roller{}
	for _, a := range acts {
		<-time.After(time.Until(began.Add(a.at)))
		switch a.what {
		case "join":
			members[a.who] = make(p, a.who)
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

func TestNoRecordIsLostAndNoPartitionSharedWhileMembersRoll(t *testing.T) {
	harness.Need(t, "kcat")
	session := "session.timeout.ms=8000"
	classicKcat := []string{"-X", session, "-X", "heartbeat.interval.ms=1000"}
	groups := []struct {
		name  string
		start start
		acts  []act
	}{
		{"franz-go-range", franz(), usualLife},
		{"franz-go-cooperative-sticky", franz(kgo.Balancers(kgo.CooperativeStickyBalancer())), usualLife},
		{"franz-go-consumer-protocol", franz(kgo.ServerSideBalancer()), usualLife},
		{"sarama", saramaMember, usualLife},
		{"kafka-go", segmentio, usualLife},
		{"librdkafka", kcat(classicKcat...), kcatLife},
		{"librdkafka-cooperative", kcat(append(classicKcat, "-X", "partition.assignment.strategy=cooperative-sticky")...), kcatLife},
		{"java-classic", javaConsole(session, "heartbeat.interval.ms=1000"), shortLife},
		{"java-consumer-protocol", javaConsole("group.protocol=consumer"), shortLife},
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
				if g.name[:4] == "java" {
					harness.NeedKafka(t)
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
