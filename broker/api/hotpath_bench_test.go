package api

import (
	"fmt"
	"testing"

	"gregor/storage/vfs"
)

// BenchmarkProduceEndToEnd is a Produce from the client's socket to the file and back, client included.
func BenchmarkProduceEndToEnd(b *testing.B) {
	for _, c := range []struct {
		records, valueBytes int
		acks                int16
	}{{1, 1 << 10, 1}, {1, 1 << 10, -1}, {160, 100, 1}, {1000, 1 << 10, 1}} {
		b.Run(fmt.Sprintf("records=%dx%d/acks=%d", c.records, c.valueBytes, c.acks), func(b *testing.B) {
			n := newHotNode(b, vfs.Real(), b.TempDir(), 1)
			client := n.dial(b)
			frame := hotFrame(hotProduce(0, c.acks, hotBatch(c.records, c.valueBytes)))
			b.SetBytes(int64(len(frame)))
			b.ReportAllocs()
			for b.Loop() {
				client.roundTrip(frame)
			}
			if end := n.replicas.Lookup(hotTopic, 0).State().HighWatermark; end != int64(b.N*c.records) {
				b.Errorf("%d records of %d arrived", end, b.N*c.records)
			}
		})
	}
}

// BenchmarkFetchEndToEnd is a Fetch of one record at the end of a partition, client included.
func BenchmarkFetchEndToEnd(b *testing.B) {
	n := newHotNode(b, vfs.Real(), b.TempDir(), 1)
	client := n.dial(b)
	produce := hotFrame(hotProduce(0, 1, hotBatch(1, 1<<10)))
	for range 100 {
		client.roundTrip(produce)
	}
	frame := hotFrame(at(hotFetch(0, -1, 500), 0, 99))
	b.ReportAllocs()
	for b.Loop() {
		client.roundTrip(frame)
	}
	if resp := client.fetched(at(hotFetch(0, -1, 500), 0, 99)); len(resp.Topics) != 1 || len(resp.Topics[0].Partitions[0].RecordBatches) < 1<<10 {
		b.Errorf("a fetch at the end finds %+v", resp)
	}
}

// BenchmarkFetchSession produces to one partition of a session and fetches it, while all others are idle.
func BenchmarkFetchSession(b *testing.B) {
	for _, partitions := range []int32{1, 100, 10_000} {
		b.Run(fmt.Sprintf("partitions=%d", partitions), func(b *testing.B) {
			n := newHotNode(b, vfs.NewMem(), "/d", partitions)
			client := n.dial(b)
			first := hotFetch(0, 0, 0)
			for p := range partitions {
				at(first, p, 0)
			}
			session := client.fetched(first).SessionID
			produce := hotFrame(hotProduce(partitions/2, 1, hotBatch(1, 1<<10)))
			consumer := n.dial(b)
			epoch := int32(1)
			b.ReportAllocs()
			for b.Loop() {
				client.roundTrip(produce)
				resp := consumer.fetched(at(hotFetch(session, epoch, 500), partitions/2, int64(epoch-1)))
				if resp.ErrorCode != 0 || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
					b.Fatalf("epoch %d answers %+v", epoch, resp)
				}
				epoch++
			}
		})
	}
}
