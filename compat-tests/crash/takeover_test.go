package crash

import (
	"testing"

	"gregor/compat-tests/harness"
	"gregor/compat-tests/wire"
)

// TestDirectoryOfKafkaIsTakenOver has Gregor go on where Kafka stopped, and Kafka where Gregor stopped.
func TestDirectoryOfKafkaIsTakenOver(t *testing.T) {
	kafka := harness.Start(t, harness.Kafka, quick)
	topic := wire.CreateTopic(t, kafka, "taken-over", 2, "retention.ms", "987654321")
	end := int64(0)
	fill := func(n *harness.Node) {
		t.Helper()
		for _, codec := range wire.Codecs {
			if base := wire.MustProduce(t, n.Addr, topic, 0, wire.NewBatch(codec, wire.Record{Timestamp: 1000 + end, Value: []byte("a")}, wire.Record{Timestamp: 1001 + end, Value: []byte("b")})); base != end {
				t.Fatalf("%s appends at %d, want %d", n.Kind, base, end)
			}
			end += 2
		}
	}
	check := func(n *harness.Node) {
		t.Helper()
		wire.AwaitLeaders(t, n, topic.Name, 2)
		offset := int64(0)
		for _, b := range wire.ReadAll(t, n.Addr, topic, 0, 0) {
			for _, r := range b.Records {
				if r.Timestamp < 1000 || b.BaseOffset > offset {
					t.Fatalf("%s at %d: %+v", n.Kind, offset, b)
				}
				offset++
			}
		}
		if offset != end {
			t.Fatalf("%s has %d records, want %d", n.Kind, offset, end)
		}
	}
	fill(kafka)
	kafka.Stop(t)

	gregor := harness.Adopt(t, harness.Gregor, kafka)
	gregor.Start(t)
	check(gregor)
	fill(gregor)
	gregor.Kill(t)
	gregor.Start(t)
	check(gregor)
	gregor.Stop(t)

	kafka.Start(t)
	check(kafka)
	fill(kafka)
	check(kafka)
}
