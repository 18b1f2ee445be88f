package wire

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/compat-tests/harness"
)

// settleTimeout is how long a node may take to lead a new topic's partitions.
const settleTimeout = 30 * time.Second

// Topic is a topic that a test made.
type Topic struct {
	Name string
	ID   [16]byte
}

// CreateTopic makes a topic and waits until the node leads its partitions. Configs are pairs of key and value.
func CreateTopic(tb testing.TB, n *harness.Node, name string, partitions int32, configs ...string) Topic {
	tb.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version = 7
	req.TimeoutMillis = 30000
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, partitions, 1
	for i := 0; i+1 < len(configs); i += 2 {
		t.Configs = append(t.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: configs[i], Value: &configs[i+1]})
	}
	req.Topics = append(req.Topics, t)
	resp := Do[*kmsg.CreateTopicsResponse](tb, n.Addr, req)
	if err := kerr.ErrorForCode(resp.Topics[0].ErrorCode); err != nil {
		tb.Fatalf("create %s: %v: %s", name, err, text(resp.Topics[0].ErrorMessage))
	}
	AwaitLeaders(tb, n, name, partitions)
	return Topic{Name: name, ID: resp.Topics[0].TopicID}
}

// AwaitLeaders waits until the node leads each partition of a topic.
func AwaitLeaders(tb testing.TB, n *harness.Node, topic string, partitions int32) {
	tb.Helper()
	c := Dial(tb, n.Addr)
	defer func() { _ = c.Close() }()
	harness.Eventually(tb, settleTimeout, "leaders of "+topic, func() bool {
		req := At(kmsg.NewPtrListOffsetsRequest(), 7)
		req.ReplicaID = -1
		t := kmsg.NewListOffsetsRequestTopic()
		t.Topic = topic
		for p := range partitions {
			q := kmsg.NewListOffsetsRequestTopicPartition()
			q.Partition, q.Timestamp = p, -1
			t.Partitions = append(t.Partitions, q)
		}
		req.Topics = append(req.Topics, t)
		resp, ok := c.Request(req).(*kmsg.ListOffsetsResponse)
		if !ok {
			return false
		}
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				if p.ErrorCode != 0 {
					return false
				}
			}
		}
		return true
	})
}

func text(s *string) string {
	if s == nil {
		return "(no message)"
	}
	return *s
}

// ProduceRequest is a request with one batch for one partition, by name up to version 12 and by id from 13.
func ProduceRequest(version int16, t Topic, partition int32, acks int16, records []byte) *kmsg.ProduceRequest {
	req := At(kmsg.NewPtrProduceRequest(), version)
	req.Acks, req.TimeoutMillis = acks, 10000
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic, rt.TopicID = t.Name, t.ID
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Partition, rp.Records = partition, records
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

// Produce sends one batch by acks=all and returns the answer for its partition.
func Produce(tb testing.TB, addr string, version int16, t Topic, partition int32, records []byte) kmsg.ProduceResponseTopicPartition {
	tb.Helper()
	resp := Do[*kmsg.ProduceResponse](tb, addr, ProduceRequest(version, t, partition, -1, records))
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		tb.Fatalf("Produce v%d to one partition answers %+v", version, resp.Topics)
	}
	return resp.Topics[0].Partitions[0]
}

// MustProduce sends one batch and fails the test when it is refused. It returns the batch's base offset.
func MustProduce(tb testing.TB, addr string, t Topic, partition int32, b *Batch) int64 {
	tb.Helper()
	p := Produce(tb, addr, 12, t, partition, b.Encode())
	if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
		tb.Fatalf("produce to %s: %v: %s", t.Name, err, text(p.ErrorMessage))
	}
	return p.BaseOffset
}

// FetchRequest is a request for one partition outside of any session.
func FetchRequest(version int16, t Topic, partition int32, offset int64, maxWaitMillis int32) *kmsg.FetchRequest {
	req := At(kmsg.NewPtrFetchRequest(), version)
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = maxWaitMillis, 1, 50<<20, -1
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.TopicID = t.Name, t.ID
	rt.Partitions = append(rt.Partitions, FetchPartition(partition, offset))
	req.Topics = append(req.Topics, rt)
	return req
}

// FetchPartition is one partition of a FetchRequest.
func FetchPartition(partition int32, offset int64) kmsg.FetchRequestTopicPartition {
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = partition, offset, 10<<20
	return rp
}

// Fetch reads one partition and returns the answer for it.
func Fetch(tb testing.TB, addr string, version int16, t Topic, partition int32, offset int64) kmsg.FetchResponseTopicPartition {
	tb.Helper()
	resp := Do[*kmsg.FetchResponse](tb, addr, FetchRequest(version, t, partition, offset, 0))
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		tb.Fatalf("Fetch v%d of one partition answers %+v", version, resp)
	}
	return resp.Topics[0].Partitions[0]
}

// ReadAll reads a partition from an offset to its end.
func ReadAll(tb testing.TB, addr string, t Topic, partition int32, from int64) []*Batch {
	tb.Helper()
	var all []*Batch
	for {
		p := Fetch(tb, addr, 12, t, partition, from)
		if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
			tb.Fatalf("fetch %s-%d at %d: %v", t.Name, partition, from, err)
		}
		batches, err := ParseBatches(p.RecordBatches)
		if err != nil {
			tb.Fatal(err)
		}
		if len(batches) == 0 {
			return all
		}
		all = append(all, batches...)
		last := batches[len(batches)-1]
		from = last.BaseOffset + int64(*last.LastOffsetDelta) + 1
	}
}

// ListOffset asks for one offset of one partition.
func ListOffset(tb testing.TB, addr string, version int16, t Topic, partition int32, timestamp int64) kmsg.ListOffsetsResponseTopicPartition {
	tb.Helper()
	req := At(kmsg.NewPtrListOffsetsRequest(), version)
	req.ReplicaID = -1
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = t.Name
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Partition, rp.Timestamp = partition, timestamp
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp := Do[*kmsg.ListOffsetsResponse](tb, addr, req)
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		tb.Fatalf("ListOffsets v%d of one partition answers %+v", version, resp)
	}
	return resp.Topics[0].Partitions[0]
}
