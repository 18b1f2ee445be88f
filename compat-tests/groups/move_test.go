package groups

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/compat-tests/harness"
	"gregor/compat-tests/wire"
)

// sameAddress makes a node of the other kind on the data, the ports and the settings of n.
func sameAddress(t *testing.T, n *harness.Node, kind harness.Kind) *harness.Node {
	t.Helper()
	p := harness.Properties{}
	text, err := os.ReadFile(n.ConfigFile())
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			p[k] = v
		}
	}
	other := harness.New(t, kind, harness.Options{Properties: p, LogDir: n.LogDir})
	other.Addr, other.ControllerAddr = n.Addr, n.ControllerAddr
	return other
}

// committed are the committed offsets of a group, by partition.
func committed(t *testing.T, n *harness.Node, group string) map[int32]int64 {
	t.Helper()
	out := map[int32]int64{}
	harness.Eventually(t, patience, "offsets of "+group, func() bool {
		req := wire.At(kmsg.NewPtrOffsetFetchRequest(), 9)
		one := kmsg.NewOffsetFetchRequestGroup()
		one.Group = group
		req.Groups = append(req.Groups, one)
		r := wire.Do[*kmsg.OffsetFetchResponse](t, n.Addr, req)
		if len(r.Groups) != 1 || r.Groups[0].ErrorCode != 0 {
			return false
		}
		for _, topic := range r.Groups[0].Topics {
			for _, p := range topic.Partitions {
				out[p.Partition] = p.Offset
			}
		}
		return true
	})
	return out
}

// TestGroupsMoveFromKafkaToGregorAndBack stops one broker and starts the other on the same directory and ports while
// the members of a classic and of a consumer group run: they go on by themselves, from what they had committed.
func TestGroupsMoveFromKafkaToGregorAndBack(t *testing.T) {
	kafka := harness.Start(t, harness.Kafka, harness.Options{Properties: shortSessions, LogDir: filepath.Join(t.TempDir(), "data")})
	wire.CreateTopic(t, kafka, rollingTopic, rollingPartitions)
	groups := map[string]start{"moved-classic": franz(), "moved-consumer": franz(kgo.ServerSideBalancer())}
	places, members := map[string]*place{}, []roller{}
	for name, begin := range groups {
		p := &place{t: t, addr: kafka.Addr, group: name, topic: rollingTopic, l: newLedger()}
		places[name] = p
		members = append(members, begin(p, "one"), begin(p, "two"))
	}
	written := 0
	var before map[string]map[int32]int64
	running := kafka
	for i, kind := range []harness.Kind{harness.Kafka, harness.Gregor, harness.Kafka} {
		if i > 0 {
			running = moveTo(t, running, kind, places)
			for name := range groups {
				for p, offset := range committed(t, running, name) {
					if offset != before[name][p] {
						t.Errorf("%s on %s: offset %d of partition %d, %d before", name, kind, offset, p, before[name][p])
					}
				}
			}
		}
		written = writeSome(t, running.Addr, written, 400)
		before = map[string]map[int32]int64{}
		for name, p := range places {
			harness.Eventually(t, patience, fmt.Sprintf("%s processes all %d records on %s", name, written, kind), func() bool {
				missing, _ := p.l.missing(written)
				return missing == 0
			})
			harness.Eventually(t, patience, name+" commits all", func() bool {
				sum := int64(0)
				before[name] = committed(t, running, name)
				for _, offset := range before[name] {
					sum += offset
				}
				return sum == int64(written)
			})
			state := stateOf(t, running, name)
			t.Logf("%s on %s: %s, %d records, offsets %v", name, kind, state, written, before[name])
			if state != "Stable" {
				t.Errorf("%s on %s is %s", name, kind, state)
			}
		}
	}
	for _, m := range members {
		m.leave()
	}
	for name, p := range places {
		for n, times := range p.l.processed {
			if times > 1 {
				t.Errorf("%s: record %d processed %d times, though all was committed before each move", name, n, times)
			}
		}
	}
}

// moveTo stops what runs and starts the other kind in its place.
func moveTo(t *testing.T, from *harness.Node, kind harness.Kind, places map[string]*place) *harness.Node {
	t.Helper()
	next := sameAddress(t, from, kind)
	for _, p := range places {
		p.l.restart()
	}
	from.Stop(t)
	next.Start(t)
	wire.AwaitLeaders(t, next, rollingTopic, rollingPartitions)
	return next
}

// restart forgets who owns what: the time a move takes may be longer than a session.
func (l *ledger) restart() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owners, l.byGeneration = map[int32]string{}, map[string]string{}
}

func writeSome(t *testing.T, addr string, from, n int) int {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.DefaultProduceTopic(rollingTopic), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var records []*kgo.Record
	for i := range n {
		records = append(records, kgo.StringRecord(strconv.Itoa(from+i)))
	}
	if err := cl.ProduceSync(ctx, records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	return from + n
}

// stateOf waits until a group is stable and returns its state, or the one that it keeps.
func stateOf(t *testing.T, n *harness.Node, group string) string {
	t.Helper()
	var state string
	for end := time.Now().Add(patience / 2); time.Now().Before(end) && state != "Stable"; {
		req := wire.At(kmsg.NewPtrListGroupsRequest(), 5)
		r := wire.Do[*kmsg.ListGroupsResponse](t, n.Addr, req)
		if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
			t.Fatal(err)
		}
		for _, g := range r.Groups {
			if g.Group == group {
				state = g.GroupState
			}
		}
		<-time.After(100 * time.Millisecond)
	}
	return state
}
