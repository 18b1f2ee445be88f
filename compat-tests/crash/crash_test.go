// Package crash kills brokers in the midst of their work and looks at what they have afterwards.
package crash

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"gregor/compat-tests/harness"
	"gregor/compat-tests/wire"
)

func TestMain(m *testing.M) { harness.Main(m) }

// quick has a node that comes back after a crash wait one second, not nine, for its former self to be forgotten.
var quick = harness.Options{Properties: harness.Properties{"broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "300"}}

// cycles is how often a node is killed under load.
const cycles = 2

// acknowledged is where a record was stored, as its producer was told.
type acknowledged struct {
	value     string
	partition int32
	offset    int64
}

func TestKillUnderLoadLosesNothingAcknowledged(t *testing.T) {
	for _, load := range []load{{acks: "1", clients: 1}, {acks: "all", clients: 1}, {acks: "1", clients: 48}, {acks: "all", clients: 48}} {
		t.Run(fmt.Sprintf("acks=%s/clients=%d", load.acks, load.clients), func(t *testing.T) {
			n := harness.Start(t, harness.Gregor, quick)
			topic := wire.CreateTopic(t, n, "load", 2)
			var acked []acknowledged
			for cycle := range cycles {
				acked = append(acked, load.runAndKill(t, n, cycle)...)
				n.Start(t)
				wire.AwaitLeaders(t, n, "load", 2)
			}
			checkStored(t, n, topic, acked, load.acks == "all")
		})
	}
}

// load is what a node is killed under. One client sends what comes in large batches; many send one record after the other
// each, and the broker appends together what arrives together.
type load struct {
	acks    string
	clients int
}

func (l load) options(n *harness.Node) []kgo.Opt {
	opts := []kgo.Opt{kgo.SeedBrokers(n.Addr), kgo.DefaultProduceTopic("load"), kgo.RecordRetries(3), kgo.RecordDeliveryTimeout(3 * time.Second)}
	if l.acks == "1" {
		opts = append(opts, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	}
	return opts
}

// runAndKill produces until the node has been killed, and returns what it had acknowledged.
func (l load) runAndKill(t *testing.T, n *harness.Node, cycle int) []acknowledged {
	t.Helper()
	results := make(chan acknowledged, 1<<16)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var done sync.WaitGroup
	var clients []*kgo.Client
	for client := range l.clients {
		cl, err := kgo.NewClient(l.options(n)...)
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, cl)
		done.Go(func() {
			for i := 0; ctx.Err() == nil && i < cap(results)/l.clients; i++ {
				value := fmt.Sprintf("%d-%d-%d", cycle, client, i)
				promise := func(r *kgo.Record, err error) {
					if err == nil {
						results <- acknowledged{value, r.Partition, r.Offset}
					}
				}
				record := &kgo.Record{Key: []byte(value), Value: []byte(value)}
				if l.clients == 1 {
					cl.Produce(ctx, record, promise)
				} else {
					r, err := cl.ProduceSync(ctx, record).First()
					promise(r, err)
				}
			}
		})
	}
	enough := 500 * min(l.clients, 20)
	harness.Eventually(t, 30*time.Second, "acknowledgements", func() bool { return len(results) > enough })
	n.Kill(t)
	cancel()
	for _, cl := range clients {
		cl.Close() // or an idempotent record that may have been written waits for ever
	}
	done.Wait()
	var out []acknowledged
	for len(results) > 0 {
		out = append(out, <-results)
	}
	return out
}

// checkStored checks that each acknowledged record is where its producer was told that it is, and, for idempotent
// producers, that no record is there twice.
func checkStored(t *testing.T, n *harness.Node, topic wire.Topic, acked []acknowledged, once bool) {
	t.Helper()
	stored, times := map[acknowledged]bool{}, map[string]int{}
	for p := range int32(2) {
		next := int64(0)
		for _, b := range wire.ReadAll(t, n.Addr, topic, p, 0) {
			if b.BaseOffset != next {
				t.Errorf("partition %d: a batch at %d, want %d", p, b.BaseOffset, next)
			}
			next = b.BaseOffset + int64(*b.LastOffsetDelta) + 1
			for i, r := range b.Records {
				stored[acknowledged{string(r.Value), p, b.BaseOffset + int64(i)}] = true
				times[string(r.Value)]++
			}
		}
	}
	for _, a := range acked {
		if !stored[a] {
			t.Fatalf("%+v was acknowledged and is not there", a)
		}
	}
	for value, count := range times {
		if once && count > 1 {
			t.Errorf("%s is there %d times", value, count)
		}
	}
	t.Logf("%d acknowledged, %d stored", len(acked), len(stored))
}

func TestIdempotentProducerGoesOnAfterACrash(t *testing.T) {
	n := harness.Start(t, harness.Gregor, quick)
	topic := wire.CreateTopic(t, n, "idempotent", 1)
	send := func(sequence int32) (int16, int64) {
		b := wire.NewBatch(wire.None, wire.Record{Timestamp: time.Now().UnixMilli(), Value: []byte{byte(sequence)}}).From(4711, 0, sequence)
		p := wire.Produce(t, n.Addr, 11, topic, 0, b.Encode())
		return p.ErrorCode, p.BaseOffset
	}
	for sequence := range int32(20) {
		if sequence%6 == 5 {
			n.Kill(t)
			n.Start(t)
			wire.AwaitLeaders(t, n, topic.Name, 1)
			if code, offset := send(sequence - 1); code != 0 || offset != int64(sequence-1) {
				t.Errorf("resend of %d after a crash: error %d, offset %d", sequence-1, code, offset)
			}
		}
		if code, offset := send(sequence); code != 0 || offset != int64(sequence) {
			t.Fatalf("sequence %d: error %d, offset %d", sequence, code, offset)
		}
	}
	if code, _ := send(50); code != 45 {
		t.Errorf("a gap after crashes: error %d", code)
	}
}

func TestRestartsKeepTopicsConfigsAndOffsets(t *testing.T) {
	n := harness.Start(t, harness.Gregor, quick)
	topic := wire.CreateTopic(t, n, "kept", 3, "retention.ms", "123456789")
	for i := range 4 {
		wire.MustProduce(t, n.Addr, topic, 1, wire.NewBatch(wire.Codecs[i], wire.Record{Timestamp: 1, Value: []byte("x")}))
		if i%2 == 0 {
			n.Kill(t)
		} else if status := n.Stop(t); status != 0 {
			t.Errorf("exit status %d on SIGTERM", status)
		}
		n.Start(t)
		wire.AwaitLeaders(t, n, "kept", 3)
		if end := wire.ListOffset(t, n.Addr, 8, topic, 1, -1).Offset; end != int64(i+1) {
			t.Fatalf("after restart %d the log ends at %d", i, end)
		}
	}
	if p := wire.Produce(t, n.Addr, 13, topic, 1, wire.NewBatch(wire.None, wire.Record{Value: []byte("by id")}).Encode()); p.ErrorCode != 0 || p.BaseOffset != 4 {
		t.Errorf("produce by the topic's old id: %+v", p)
	}
}
