package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/compat-tests/wire"
)

// storageWorkloads are about what a broker does with its disk.
func storageWorkloads(o options) []workload {
	recovered, compacted := int64(256<<20), int64(128<<20)
	if o.full {
		recovered, compacted = 4<<30, 2<<30
	}
	return []workload{
		recovery(recovered, 1), recovery(recovered, 400),
		flushEach(1, 2), flushEach(16, 6), flushEach(64, 20),
		compaction(compacted),
	}
}

// recoveryGoal is how many times faster than Kafka a recovery is aimed to be.
const recoveryGoal = 5

// noCheckpoint keeps the recovery point where it is.
const noCheckpoint = "log.flush.offset.checkpoint.interval.ms=86400000\n"

// recovery kills a broker that has written and not checkpointed, and starts it again, until each partition answers.
func recovery(bytes int64, partitions int) workload {
	const served = "start to the last partition's answer"
	return workload{
		name:    fmt.Sprintf("recovery after kill -9, %d MiB in %d partitions", bytes>>20, partitions),
		metrics: []metric{{name: served, unit: "ms", better: lower, goal: recoveryGoal}},
		once:    true,
		run: func(ctx context.Context, b *bench, k kind, _ bool) (sample, error) {
			x, err := b.filledBroker(ctx, k, bytes, partitions)
			if err != nil {
				return nil, err
			}
			defer x.discard()
			x.kill()
			began := time.Now()
			if _, err := x.start(ctx); err != nil {
				return nil, err
			}
			err = withConn(ctx, x, func(c *conn) error { return c.awaitLeaders(ctx, filledTopic, int32(partitions)) })
			return sample{served: millis(time.Since(began))}, err
		},
	}
}

const filledTopic = "filled"

// filledBroker starts a broker that never checkpoints, and writes into a topic.
func (b *bench) filledBroker(ctx context.Context, k kind, bytes int64, partitions int) (*broker, error) {
	x, err := b.freshBroker(ctx, k)
	if err != nil {
		return nil, err
	}
	if err = x.addProperties(noCheckpoint); err == nil {
		_, err = x.start(ctx)
	}
	if err == nil {
		err = x.createTopic(ctx, filledTopic, int32(partitions))
	}
	if err == nil {
		shape := produceShape{connections: max(partitions, 8), inFlight: 2, acks: 1, recordBytes: 1 << 10, records: 64, partitions: partitions}
		l := produceLoad(x.addr, filledTopic, shape)
		l.maxBytes = bytes
		_, err = l.run(ctx, x.pid(), toolTimeout)
	}
	if err != nil {
		x.discard()
		return nil, err
	}
	return x, nil
}

// addProperties puts more lines into the configuration of a broker that has not started.
func (b *broker) addProperties(text string) error {
	old, err := os.ReadFile(b.config)
	if err != nil {
		return err
	}
	return os.WriteFile(b.config, append(old, text...), 0o600)
}

// flushEach produces with flush.messages=1: each answer has waited for the disk.
func flushEach(producers int, goal float64) workload {
	return workload{
		name: fmt.Sprintf("flush.messages=1, %d producers of 1 KiB into one partition, acks=1", producers),
		metrics: []metric{
			{name: rate, unit: "1/s", goal: goal}, {name: latency50, unit: "us", better: lower}, {name: latency99, unit: "us", better: lower},
		},
		shared: true,
		run: func(ctx context.Context, b *bench, k kind, warmUp bool) (sample, error) {
			x := b.shared(k)
			b.topics++
			topic := fmt.Sprintf("flush-%d", b.topics)
			var out sample
			err := withConn(ctx, x, func(c *conn) error {
				if _, err := c.createTopicWith(ctx, topic, 1, map[string]string{"flush.messages": "1"}); err != nil {
					return err
				}
				l := produceLoad(x.addr, topic, produceShape{connections: producers, inFlight: 1, acks: 1, recordBytes: 1 << 10, records: 1, partitions: 1})
				r, err := l.run(ctx, x.pid(), b.loadTime(warmUp))
				if err != nil {
					return err
				}
				out = sampleOf(r)
				delete(out, rateCore)
				return c.deleteTopic(topic)
			})
			return out, err
		},
	}
}

// liveShare is how many records of a compacted topic have a key of their own: one of so many.
const liveShare = 10

// compaction writes a topic of which nine records of ten are superseded, and lets the cleaner go.
func compaction(bytes int64) workload {
	const took = "until the cleaner's checkpoint"
	return workload{
		name:    fmt.Sprintf("compaction of %d MiB, 10%% live keys", bytes>>20),
		metrics: []metric{{name: took, unit: "ms", better: lower, goal: 2}},
		once:    true,
		run: func(ctx context.Context, b *bench, k kind, _ bool) (sample, error) {
			x, err := b.freshBroker(ctx, k)
			if err != nil {
				return nil, err
			}
			defer x.discard()
			// The poll below and the cleaner's pause between two looks are small beside the work.
			if err := x.addProperties("log.cleaner.backoff.ms=100\n"); err != nil {
				return nil, err
			}
			if _, err := x.start(ctx); err != nil {
				return nil, err
			}
			var s sample
			err = withConn(ctx, x, func(c *conn) error {
				if _, err := c.createTopicWith(ctx, filledTopic, 1, map[string]string{"segment.bytes": "16777216", "min.cleanable.dirty.ratio": "0"}); err != nil {
					return err
				}
				if err := c.fillKeyed(filledTopic, bytes); err != nil {
					return err
				}
				if err := c.alterTopic(filledTopic, "cleanup.policy", "compact"); err != nil {
					return err
				}
				began := time.Now()
				err := x.awaitCleaned(ctx)
				s = sample{took: millis(time.Since(began))}
				return err
			})
			return s, err
		},
	}
}

// fillKeyed writes records of 1 KiB whose keys come round.
func (c *conn) fillKeyed(topic string, bytes int64) error {
	const perBatch, recordBytes = 500, 1 << 10
	records := int(bytes / recordBytes)
	keys := max(records/liveShare, 1)
	req := produceRequest(topic, 0, produceShape{acks: 1, recordBytes: 1, records: 1})
	for at := 0; at < records; at += perBatch {
		list := make([]wire.Record, perBatch)
		for i := range list {
			list[i] = wire.Record{Timestamp: time.Now().UnixMilli(), Key: binary.BigEndian.AppendUint64(nil, uint64((at+i)%keys)), Value: make([]byte, recordBytes-8)}
			binary.BigEndian.PutUint64(list[i].Value, uint64(at+i))
		}
		req.Topics[0].Partitions[0].Records = wire.NewBatch(wire.None, list...).Encode()
		r, err := ask[*kmsg.ProduceResponse](c, req)
		if err != nil {
			return err
		}
		if err := kerr.ErrorForCode(r.Topics[0].Partitions[0].ErrorCode); err != nil {
			return err
		}
	}
	return nil
}

// alterTopic sets a config of a topic.
func (c *conn) alterTopic(topic, key, value string) error {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Version = 1
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	x := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	x.Name, x.Value = key, &value
	r.Configs = append(r.Configs, x)
	req.Resources = append(req.Resources, r)
	a, err := ask[*kmsg.IncrementalAlterConfigsResponse](c, req)
	if err != nil {
		return err
	}
	if len(a.Resources) != 1 {
		return errors.New("the answer to IncrementalAlterConfigs is empty")
	}
	return kerr.ErrorForCode(a.Resources[0].ErrorCode)
}

// awaitCleaned waits until cleaner-offset-checkpoint, which both brokers write at the end of a round, has the topic.
func (b *broker) awaitCleaned(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, toolTimeout)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		text, err := os.ReadFile(filepath.Join(b.dir, dataDir, "cleaner-offset-checkpoint"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		for line := range strings.Lines(string(text)) {
			var partition, offset int64
			if n, _ := fmt.Sscanf(line, filledTopic+" %d %d", &partition, &offset); n == 2 && offset > 0 {
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s has not cleaned: %w", b.kind, ctx.Err())
		}
	}
}
