package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fetchVersion is the newest that names topics.
const fetchVersion = 12

// fetchRequest asks for one partition outside of a session.
func fetchRequest(topic string, partition int32, offset int64, maxBytes int32) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = fetchVersion, 500, 1, maxBytes, -1
	t := kmsg.NewFetchRequestTopic()
	t.Topic = topic
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = partition, offset, maxBytes
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

// tailFetch reads the newest record of a partition again and again, one record for each request.
func tailFetch(connections, inFlight int) workload {
	const partitions = 16
	return workload{
		name:    fmt.Sprintf("fetch one record of 1 KiB, %d connections x %d in flight", connections, inFlight),
		metrics: loadMetrics(coreGoal), shared: true,
		run: func(ctx context.Context, b *bench, k kind, warmUp bool) (out sample, err error) {
			err = b.onTopic(ctx, k, partitions, func(x *broker, topic string) error {
				fill := produceLoad(x.addr, topic, produceShape{connections: partitions, inFlight: 1, acks: 1, recordBytes: 1 << 10, records: 1, partitions: partitions})
				fill.maxBytes = 10 << 20
				if _, err := fill.run(ctx, x.pid(), time.Minute); err != nil {
					return err
				}
				ends, err := endsOf(ctx, x, topic, partitions)
				if err != nil {
					return err
				}
				l := &load{
					addr: x.addr, connections: connections, inFlight: inFlight, check: checkFetched,
					frame: func(i int) []byte {
						p := int32(i % partitions)
						return frame(fetchRequest(topic, p, ends[p]-1, 1<<20))
					},
				}
				r, err := l.run(ctx, x.pid(), b.loadTime(warmUp))
				if err == nil {
					out = sampleOf(r)
				}
				return err
			})
			return out, err
		},
	}
}

func endsOf(ctx context.Context, x *broker, topic string, partitions int32) (ends map[int32]int64, err error) {
	err = withConn(ctx, x, func(c *conn) error {
		ends, err = c.endOffsets(topic, partitions)
		return err
	})
	return ends, err
}

// checkFetched wants an answer without an error and with a record in it.
func checkFetched(answer []byte) error {
	const code = 4 + 1 + 4 // after the correlation id, the tags of the header and the throttle time
	if len(answer) < code+2 {
		return fmt.Errorf("answer to Fetch: % x", answer)
	}
	if err := kerr.ErrorForCode(int16(binary.BigEndian.Uint16(answer[code:]))); err != nil {
		return err
	}
	if len(answer) < 1<<10 {
		return fmt.Errorf("answer to Fetch of %d bytes, without the record", len(answer))
	}
	return nil
}

// Metrics of the long poll.
const (
	cpuPerMessage = "broker CPU per message"
	latency999    = "p99.9"
)

// longPollInterval is the time between two messages.
const longPollInterval = time.Millisecond

// longPoll sends a message every millisecond to a consumer that waits for it, and measures from the moment at which it
// was due to its arrival.
func longPoll() workload {
	return workload{
		name: "end to end, 1 KiB every ms, one waiting consumer",
		metrics: []metric{
			{name: latency50, unit: "us", better: lower},
			{name: latency99, unit: "us", better: lower},
			{name: latency999, unit: "us", better: lower},
			{name: cpuPerMessage, unit: "us", better: lower, goal: coreGoal},
		},
		shared: true,
		run: func(ctx context.Context, b *bench, k kind, warmUp bool) (out sample, err error) {
			err = b.onTopic(ctx, k, 1, func(x *broker, topic string) error {
				out, err = pollTail(ctx, x, topic, int(b.loadTime(warmUp)/longPollInterval))
				return err
			})
			return out, err
		},
	}
}

// pollTail produces messages at their times on one connection, and waits for each on another.
func pollTail(ctx context.Context, x *broker, topic string, messages int) (sample, error) {
	before, err := usageOf(x.pid())
	if err != nil {
		return nil, err
	}
	began := time.Now().Add(10 * time.Millisecond)
	var wg sync.WaitGroup
	var latencies []time.Duration
	var produceErr, consumeErr error
	wg.Go(func() {
		produceErr = withConn(ctx, x, func(c *conn) error { return produceAt(c, topic, began, messages) })
	})
	wg.Go(func() {
		consumeErr = withConn(ctx, x, func(c *conn) error {
			latencies, err = consumeTail(c, topic, began, messages)
			return err
		})
	})
	wg.Wait()
	for _, err := range []error{produceErr, consumeErr} {
		if err != nil {
			return nil, err
		}
	}
	after, err := usageOf(x.pid())
	if err != nil {
		return nil, err
	}
	slices.Sort(latencies)
	r := result{latencies: latencies}
	return sample{
		latency50: micros(r.percentile(0.5)), latency99: micros(r.percentile(0.99)), latency999: micros(r.percentile(0.999)),
		cpuPerMessage: micros(after.since(before).cpu) / float64(messages),
	}, nil
}

func produceAt(c *conn, topic string, began time.Time, messages int) error {
	f := frame(produceRequest(topic, 0, produceShape{acks: 1, recordBytes: 1 << 10, records: 1}))
	var answer []byte
	for i := range messages {
		if wait := time.Until(began.Add(time.Duration(i) * longPollInterval)); wait > 0 {
			<-time.After(wait)
		}
		_, err := c.Write(f)
		if err == nil {
			answer, err = c.receive(answer)
		}
		if err == nil {
			err = checkProduced(answer)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// consumeTail fetches from the end on and notes for each message how long after its time it arrived.
func consumeTail(c *conn, topic string, began time.Time, messages int) ([]time.Duration, error) {
	latencies := make([]time.Duration, 0, messages)
	f := frame(fetchRequest(topic, 0, 0, 1<<20))
	at := len(f) - fetchOffsetFromEnd
	var answer []byte
	for len(latencies) < messages {
		binary.BigEndian.PutUint64(f[at:], uint64(len(latencies)))
		_, err := c.Write(f)
		if err == nil {
			answer, err = c.receive(answer)
		}
		if err != nil {
			return nil, err
		}
		now := time.Now()
		for range recordsIn(answer) {
			due := began.Add(time.Duration(len(latencies)) * longPollInterval)
			latencies = append(latencies, now.Sub(due))
		}
	}
	return latencies, nil
}

// fetchOffsetFromEnd is how far the offset lies before the end of a frame with one partition of version 12: the offset,
// the last fetched epoch, the log start offset, the partition's maximum, its tags, the topic's, no forgotten topics, no
// rack, and the request's tags.
const fetchOffsetFromEnd = 8 + 4 + 8 + 4 + 1 + 1 + 1 + 1 + 1

// messageBytes is what one message of 1 KiB takes in the log, at least.
const messageBytes = 61 + 1<<10

// recordsIn is the number of messages in an answer with one partition; batches have one record each.
func recordsIn(answer []byte) int { return len(answer) / messageBytes }
