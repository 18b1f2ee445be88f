// Package roundtrip passes one log directory from Kafka to Gregor and back, and compares what is in it at each step.
package roundtrip

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"gregor/compat-tests/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// properties make the brokers note quickly what a kill must not lose, and let a killed one come back soon.
var properties = harness.Options{Properties: harness.Properties{
	"broker.session.timeout.ms": "6000", "broker.heartbeat.interval.ms": "500",
	"log.flush.start.offset.checkpoint.interval.ms": "200", "log.initial.task.delay.ms": "200", "log.cleaner.backoff.ms": "500",
	"log.retention.check.interval.ms": "1000", "offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "3",
}}

// stepTimeout bounds what one broker does in one step.
const stepTimeout = 90 * time.Second

// traveler is the directory on its way.
type traveler struct {
	t    *testing.T
	node *harness.Node
	step int
	// began is a day ago: the timestamps of records count from it.
	began time.Time
	// alive are the topics that must be there, with their partitions.
	alive map[string]int32
}

func TestDirectoryGoesFromKafkaToGregorAndBack(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(*traveler)
	}{
		{"stopped cleanly", (*traveler).stop},
		{"killed", (*traveler).kill},
	} {
		t.Run(c.name, func(t *testing.T) {
			kafka := harness.New(t, harness.Kafka, properties)
			gregor := harness.Adopt(t, harness.Gregor, kafka)
			w := &traveler{t: t, alive: map[string]int32{}, began: time.Now().Add(-24 * time.Hour)}
			var before map[string]string
			for _, n := range []*harness.Node{kafka, gregor, kafka, gregor} {
				w.node = n
				w.step++
				n.Start(t)
				w.awaitLeaders()
				w.same(before)
				w.change()
				before = w.contents()
				c.end(w)
			}
		})
	}
}

func (w *traveler) stop() {
	if status := w.node.Stop(w.t); status != 0 && w.node.Kind == harness.Gregor {
		w.t.Errorf("step %d: %s stopped with status %d", w.step, w.node.Kind, status)
	}
}

func (w *traveler) kill() {
	<-time.After(time.Second) // the log start offset is on disk some 200 ms after it moved, in Kafka too
	w.node.Kill(w.t)
}

func (w *traveler) client(opts ...kgo.Opt) *kgo.Client {
	w.t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(w.node.Addr), kgo.RetryTimeout(stepTimeout), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(100 * time.Millisecond),
	}, opts...)...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(cl.Close)
	return cl
}

func (w *traveler) context() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), stepTimeout)
	w.t.Cleanup(cancel)
	return ctx
}

func (w *traveler) must(what string, err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatalf("step %d, %s: %s: %v\n%s", w.step, w.node.Kind, what, err, w.node.LogTail(40))
	}
}

// awaitLeaders waits until the broker leads all partitions again.
func (w *traveler) awaitLeaders() {
	w.t.Helper()
	adm := kadm.NewClient(w.client())
	harness.Eventually(w.t, stepTimeout, fmt.Sprintf("step %d: %s leads all partitions", w.step, w.node.Kind), func() bool {
		topics, err := adm.ListTopics(w.context(), slices.Collect(maps.Keys(w.alive))...)
		if err != nil {
			return false
		}
		for name, partitions := range w.alive {
			d := topics[name]
			if d.Err != nil || len(d.Partitions) != int(partitions) {
				return false
			}
			for _, p := range d.Partitions {
				if p.Leader != 1 {
					return false
				}
			}
		}
		return true
	})
}

// same compares with what the broker before had.
func (w *traveler) same(before map[string]string) {
	w.t.Helper()
	if before == nil {
		return
	}
	now := w.contents()
	for _, key := range slices.Sorted(maps.Keys(before)) {
		if now[key] != before[key] {
			w.t.Errorf("step %d: %s has %s\n%s\nbefore it was\n%s", w.step, w.node.Kind, key, now[key], before[key])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(now)) {
		if _, ok := before[key]; !ok {
			w.t.Errorf("step %d: %s has %s, which was not there: %s", w.step, w.node.Kind, key, now[key])
		}
	}
}
