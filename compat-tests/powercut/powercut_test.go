// Package powercut cuts the power under a broker: its log directory is a file system of its own in a file, which an ioctl
// stops at once, so that what was not synced is lost as in a power cut. Then it is mounted again.
package powercut

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"gregor/compat-tests/harness"
	"gregor/compat-tests/wire"
)

func TestMain(m *testing.M) { harness.Main(m) }

// cuts is how often the power goes.
const cuts = 3

// quick has a node that comes back not wait long for its former self to be forgotten.
var quick = harness.Properties{"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "300"}

// TestPowerCutLosesNothingThatWasSynced produces to a topic of which every append is synced, to one of which every hundredth
// is, and to one that leaves that to the kernel. After a power cut they have what was synced and acknowledged, whatever is
// left is a prefix, and topics that were made are there.
func TestPowerCutLosesNothingThatWasSynced(t *testing.T) {
	for _, kind := range []string{"ext4", "xfs"} {
		t.Run(kind, func(t *testing.T) {
			d := harness.NewDisk(t, kind)
			n := harness.New(t, harness.Gregor, harness.Options{Properties: quick, LogDir: filepath.Join(d.Path, "data")})
			n.Start(t)
			topics := map[string]wire.Topic{
				"synced": wire.CreateTopic(t, n, "synced", 1, "flush.messages", "1"),
				"lazy":   wire.CreateTopic(t, n, "lazy", 1),
				// All but the last 99.
				"hundreds": wire.CreateTopic(t, n, "hundreds", 1, "flush.messages", "100"),
			}
			acked := map[string]int{}
			for cut := range cuts {
				name := fmt.Sprintf("made-before-cut-%d", cut)
				topics[name] = wire.CreateTopic(t, n, name, 2)
				load(t, n, d, acked, cut)
				n.Kill(t)
				d.Unmount()
				d.Mount()
				n.Start(t)
				for name, topic := range topics {
					wire.AwaitLeaders(t, n, name, int32(1+strings.Count(name, "before")))
					stored := records(t, n, topic)
					if name == "synced" && stored < acked[name] {
						t.Errorf("cut %d: %d of %d acknowledged records of a synced topic are left", cut, stored, acked[name])
					}
					if name == "hundreds" && stored <= acked[name]-100 {
						t.Errorf("cut %d: %d of %d acknowledged records are left where each hundred is synced", cut, stored, acked[name])
					}
					if name == "lazy" && stored < acked[name] {
						t.Logf("cut %d: %d of %d acknowledged records were not synced and are gone", cut, acked[name]-stored, acked[name])
					}
					acked[name] = stored
				}
				if acked["synced"] == 0 {
					t.Error("nothing was produced before the cut")
				}
			}
			if status := n.Stop(t); status != 0 {
				t.Errorf("stopped with status %d", status)
			}
		})
	}
}

// load produces to the topics until the power goes, and counts what is acknowledged. Each value is its number, so
// that a hole or a change shows.
func load(t *testing.T, n *harness.Node, d *harness.Disk, acked map[string]int, cut int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, topic := range []string{"synced", "hundreds", "lazy"} {
		cl, err := kgo.NewClient(kgo.SeedBrokers(n.Addr), kgo.DefaultProduceTopic(topic), kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.AllISRAcks()),
			kgo.MaxProduceRequestsInflightPerBroker(1), kgo.RecordRetries(0), kgo.ProducerLinger(0))
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		mu.Lock()
		next := acked[topic]
		mu.Unlock()
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := cl.ProduceSync(ctx, &kgo.Record{Value: fmt.Appendf(nil, "%d %01000d", next, next)}).FirstErr(); err != nil {
					return
				}
				next++
				mu.Lock()
				acked[topic] = next
				mu.Unlock()
			}
		})
	}
	<-time.After(time.Duration(700+300*cut) * time.Millisecond)
	d.Shutdown()
	cancel()
	wg.Wait()
}

// records reads a topic from its start; the values must be the numbers in order.
func records(t *testing.T, n *harness.Node, topic wire.Topic) int {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(n.Addr), kgo.ConsumeTopics(topic.Name), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ends, err := kadm.NewClient(cl).ListEndOffsets(ctx, topic.Name)
	if err != nil || ends.Error() != nil {
		t.Fatalf("end offset of %s: %v, %v", topic.Name, err, ends.Error())
	}
	end, _ := ends.Lookup(topic.Name, 0)
	count := 0
	for int64(count) < end.Offset {
		f := cl.PollFetches(ctx)
		if err := f.Err(); err != nil {
			t.Fatalf("%s after %d of %d records: %v", topic.Name, count, end.Offset, err)
		}
		f.EachRecord(func(r *kgo.Record) {
			if want := fmt.Sprintf("%d %01000d", count, count); string(r.Value) != want || r.Offset != int64(count) {
				t.Fatalf("%s at %d: record %.20q", topic.Name, r.Offset, r.Value)
			}
			count++
		})
	}
	return count
}
