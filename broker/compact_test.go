package broker

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// readBack reads a partition from its start to its end.
func readBack(t *testing.T, n *testNode, topic string) []*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	cl := n.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))
	ends, err := kadm.NewClient(cl).ListEndOffsets(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	end, _ := ends.Lookup(topic, 0)
	var all []*kgo.Record
	for len(all) == 0 || all[len(all)-1].Offset+1 < end.Offset {
		f := cl.PollFetches(ctx)
		if err := f.Err(); err != nil {
			t.Fatal(err)
		}
		all = append(all, f.Records()...)
	}
	return all
}

// eventually polls a condition.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for !holds() {
		select {
		case <-ctx.Done():
			t.Fatalf("never: %s", what)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func TestCompactedTopicKeepsTheLatestValues(t *testing.T) {
	n := newTestNode(t, "log.cleaner.backoff.ms=20")
	cl := n.client()
	admin := kadm.NewClient(cl)
	value := func(s string) *string { return &s }
	_, err := admin.CreateTopic(t.Context(), 1, 1, map[string]*string{
		"cleanup.policy": value("compact"), "segment.ms": value("1000"), "min.cleanable.dirty.ratio": value("0"), "delete.retention.ms": value("0"),
	}, "compacted")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"roll": "the last one"}
	began := time.Now().Add(-time.Hour)
	for i := range 40 {
		r := &kgo.Record{Topic: "compacted", Key: fmt.Append(nil, "k", i%7), Value: fmt.Append(nil, "v", i), Timestamp: began.Add(time.Duration(i) * 300 * time.Millisecond)}
		want[string(r.Key)] = string(r.Value)
		if i == 39 {
			r.Value = nil
			delete(want, string(r.Key))
		}
		if err := cl.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	last := &kgo.Record{Topic: "compacted", Key: []byte("roll"), Value: []byte("the last one"), Timestamp: began.Add(time.Minute)}
	if err := cl.ProduceSync(t.Context(), last).FirstErr(); err != nil {
		t.Fatal(err)
	}
	state := map[string]string{}
	eventually(t, "one record of each key", func() bool {
		records := readBack(t, n, "compacted")
		clear(state)
		for _, r := range records {
			if r.Value == nil {
				delete(state, string(r.Key))
			} else {
				state[string(r.Key)] = string(r.Value)
			}
		}
		return len(records) <= len(want)+1 // the tombstone may stay for a round
	})
	if !maps.Equal(state, want) {
		t.Errorf("found %v, want %v", state, want)
	}
	// A restart finds the same.
	n.stop()
	n.start()
	clear(state)
	for _, r := range readBack(t, n, "compacted") {
		if r.Value != nil {
			state[string(r.Key)] = string(r.Value)
		}
	}
	if !maps.Equal(state, want) {
		t.Errorf("after a restart: found %v, want %v", state, want)
	}
}

func TestCommittedOffsetsAreCompacted(t *testing.T) {
	n := newTestNode(t, "log.cleaner.backoff.ms=20", "offsets.topic.num.partitions=1")
	cl := n.client()
	admin := kadm.NewClient(cl)
	if _, err := admin.CreateTopic(t.Context(), 1, 1, nil, "data"); err != nil {
		t.Fatal(err)
	}
	commit := func(at int64) {
		t.Helper()
		var offsets kadm.Offsets
		offsets.AddOffset("data", 0, at, -1)
		if err := admin.CommitAllOffsets(t.Context(), "g", offsets); err != nil {
			t.Fatal(err)
		}
	}
	commit(1)
	value := func(s string) *string { return &s }
	_, err := admin.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{
		{Name: "segment.ms", Value: value("1")}, {Name: "min.cleanable.dirty.ratio", Value: value("0")},
	}, consumerOffsets)
	if err != nil {
		t.Fatal(err)
	}
	at := int64(1)
	eventually(t, "old commits go", func() bool {
		at++
		commit(at)
		return at > 10 && int64(len(readBack(t, n, consumerOffsets))) < at/2
	})
	n.stop()
	n.start()
	got, err := kadm.NewClient(n.client()).FetchOffsets(t.Context(), "g")
	if err != nil {
		t.Fatal(err)
	}
	if o, _ := got.Lookup("data", 0); o.At != at {
		t.Errorf("committed %d, found %d", at, o.At)
	}
}
