package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/compat-tests/wire"
)

// produceShape is a produce workload of the raw client.
type produceShape struct {
	connections, inFlight int
	acks                  int16
	recordBytes, records  int // of one batch
	partitions            int
}

func (s produceShape) name() string {
	acks := strconv.Itoa(int(s.acks))
	if s.acks == -1 {
		acks = "all"
	}
	size := fmt.Sprintf("%d B", s.recordBytes*s.records)
	if n := s.recordBytes * s.records >> 10; n > 0 {
		size = fmt.Sprintf("%d KiB", n)
	}
	return fmt.Sprintf("produce %s, %d connections x %d in flight, acks=%s", size, s.connections, s.inFlight, acks)
}

// maxRunBytes keeps what one repeat writes within what the page cache takes without throttling the writer.
const maxRunBytes = 1 << 30

// coreGoal is how many times Kafka's single-record requests per core are aimed at.
const coreGoal = 3

func produceWorkloads(o options) []workload {
	one := func(connections, inFlight int, acks int16) produceShape {
		return produceShape{connections: connections, inFlight: inFlight, acks: acks, recordBytes: 1 << 10, records: 1, partitions: 16}
	}
	shapes := []produceShape{one(1, 1, 1), one(16, 5, 1), one(16, 5, -1), one(256, 1, 1)}
	if o.full {
		shapes = nil
		for _, connections := range []int{1, 16, 256} {
			for _, inFlight := range []int{1, 5} {
				shapes = append(shapes, one(connections, inFlight, 1), one(connections, inFlight, -1))
			}
		}
	}
	shapes = append(shapes,
		produceShape{connections: 16, inFlight: 5, acks: 1, recordBytes: 100, records: 160, partitions: 16},
		produceShape{connections: 4, inFlight: 2, acks: 1, recordBytes: 1 << 10, records: 1000, partitions: 16})
	var all []workload
	for _, s := range shapes {
		goal := 0.0
		if s.records == 1 {
			goal = coreGoal
		}
		all = append(all, workload{
			name: s.name(), metrics: loadMetrics(goal), shared: true,
			run: func(ctx context.Context, b *bench, k kind, warmUp bool) (out sample, err error) {
				err = b.onTopic(ctx, k, int32(s.partitions), func(x *broker, topic string) error {
					l := produceLoad(x.addr, topic, s)
					l.maxBytes = maxRunBytes
					r, err := l.run(ctx, x.pid(), b.loadTime(warmUp))
					if err == nil {
						out = sampleOf(r)
					}
					return err
				})
				return out, err
			},
		})
	}
	return all
}

// produceVersion is the newest that names topics: clients of both kinds still send it most.
const produceVersion = 12

func produceLoad(addr, topic string, s produceShape) *load {
	return &load{
		addr: addr, connections: s.connections, inFlight: s.inFlight, check: checkProduced,
		frame: func(connection int) []byte { return frame(produceRequest(topic, int32(connection%s.partitions), s)) },
	}
}

func produceRequest(topic string, partition int32, s produceShape) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = produceVersion, s.acks, 30000
	t := kmsg.NewProduceRequestTopic()
	t.Topic = topic
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = partition, batchOf(s.records, s.recordBytes)
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

// batchOf makes a batch of records that say nothing twice.
func batchOf(records, recordBytes int) []byte {
	now := time.Now().UnixMilli()
	list := make([]wire.Record, records)
	for i := range list {
		value := make([]byte, recordBytes)
		state := uint64(i + 1)
		for j := 0; j+8 <= len(value); j += 8 {
			state = state*6364136223846793005 + 1442695040888963407
			binary.LittleEndian.PutUint64(value[j:], state)
		}
		list[i] = wire.Record{Timestamp: now, Value: value}
	}
	return wire.NewBatch(wire.None, list...).Encode()
}

// checkProduced looks for the error code of the only partition: after the correlation id, the tags of the header, the
// number of topics, the name, the number of partitions and the partition's index.
func checkProduced(answer []byte) error {
	const topics = 4 + 1
	if len(answer) < topics+2 {
		return fmt.Errorf("answer to Produce: % x", answer)
	}
	name := int(answer[topics+1]) - 1 // short enough for a length of one byte
	code := topics + 2 + name + 1 + 4
	if len(answer) < code+2 {
		return fmt.Errorf("answer to Produce: % x", answer)
	}
	return kerr.ErrorForCode(int16(binary.BigEndian.Uint16(answer[code:])))
}
