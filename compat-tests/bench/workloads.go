package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"
)

// workload is something that both brokers are made to do.
type workload struct {
	name    string
	metrics []metric
	// shared workloads drive the brokers that stay up; the others start their own.
	shared bool
	// once leaves out the warm-up.
	once bool
	// gregorOnly leaves Kafka out.
	gregorOnly bool
	run        func(ctx context.Context, b *bench, k kind, warmUp bool) (sample, error)
}

// Names of metrics that several workloads have.
const (
	rate      = "requests"
	rateCore  = "requests per broker core"
	latency50 = "p50"
	latency99 = "p99"
)

// workloads are those of this run, in order.
func workloads(o options) []workload {
	all := []workload{startUp(), restart()}
	all = append(all, produceWorkloads(o)...)
	all = append(all, tailFetch(16, 1), tailFetch(16, 5), longPoll())
	all = append(all, storageWorkloads(o)...)
	all = append(all, groupWorkloads(o)...)
	all = append(all, toolWorkloads(o)...)
	all = append(all, partitionWorkloads(o)...)
	return append(all, loadedMemory())
}

func loadMetrics(coreGoal float64) []metric {
	return []metric{
		{name: rate, unit: "1/s"},
		{name: rateCore, unit: "1/s", goal: coreGoal},
		{name: latency50, unit: "us", better: lower},
		{name: latency99, unit: "us", better: lower},
	}
}

// sampleOf are the numbers of a load.
func sampleOf(r *result) sample {
	return sample{
		rate:      r.perSecond(),
		rateCore:  1 / max(r.cpuPerRequest(), 1).Seconds(),
		latency50: micros(r.percentile(0.5)),
		latency99: micros(r.percentile(0.99)),
	}
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// idleTime is how long a broker is left alone before its memory and processor time are looked at.
const idleTime = 5 * time.Second

// Metrics of a start.
const (
	firstMetadata = "start to first Metadata"
	idleRSS       = "RSS when idle"
	idleCPU       = "CPU when idle"
)

// startUp starts a broker on an empty directory: formatted for Kafka, not even there for Gregor.
func startUp() workload {
	return workload{
		name: "start, empty",
		metrics: []metric{
			{name: firstMetadata, unit: "ms", better: lower, limit: 40},
			{name: idleRSS, unit: "MB", better: lower, limit: 20},
			{name: idleCPU, unit: "% of a core", better: lower},
		},
		run: func(ctx context.Context, b *bench, k kind, warmUp bool) (sample, error) {
			x, err := b.freshBroker(ctx, k)
			if err != nil {
				return nil, err
			}
			defer x.discard()
			took, err := x.start(ctx)
			if err != nil {
				return nil, err
			}
			s := sample{firstMetadata: millis(took)}
			if warmUp {
				return s, nil
			}
			return s, x.addIdle(ctx, s)
		},
	}
}

// restart starts a broker again that was stopped in order and has 100 partitions.
func restart() workload {
	return workload{
		name:    "start, 100 partitions after a clean stop",
		metrics: []metric{{name: firstMetadata, unit: "ms", better: lower}, {name: idleRSS, unit: "MB", better: lower}},
		once:    true,
		run: func(ctx context.Context, b *bench, k kind, _ bool) (sample, error) {
			return b.onFresh(ctx, k, func(x *broker) (sample, error) {
				if err := fillTopic(ctx, x, 100); err != nil {
					return nil, err
				}
				if err := x.stop(); err != nil {
					return nil, err
				}
				took, err := x.start(ctx)
				if err != nil {
					return nil, err
				}
				s := sample{firstMetadata: millis(took)}
				return s, x.addIdle(ctx, s)
			})
		},
	}
}

// createTopic makes a topic on a connection of its own.
func (b *broker) createTopic(ctx context.Context, name string, partitions int32) error {
	return withConn(ctx, b, func(c *conn) error {
		_, err := c.createTopic(ctx, name, partitions)
		return err
	})
}

// fillTopic makes a topic and writes into each of its partitions.
func fillTopic(ctx context.Context, x *broker, partitions int) error {
	const topic = "filled"
	if err := x.createTopic(ctx, topic, int32(partitions)); err != nil {
		return err
	}
	l := produceLoad(x.addr, topic, produceShape{connections: partitions, inFlight: 1, acks: -1, recordBytes: 1 << 10, records: 1, partitions: partitions})
	l.maxBytes = 1 // one request each
	_, err := l.run(ctx, x.pid(), time.Minute)
	return err
}

func millis(d time.Duration) float64 { return micros(d) / 1e3 }

// addIdle leaves the broker alone and then notes what it has used.
func (b *broker) addIdle(ctx context.Context, s sample) error {
	before, err := usageOf(b.pid())
	if err != nil {
		return err
	}
	timer := time.NewTimer(idleTime)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	after, err := usageOf(b.pid())
	if err != nil {
		return err
	}
	s[idleRSS] = megabytes(after.rssBytes)
	s[idleCPU] = 100 * after.since(before).cpu.Seconds() / idleTime.Seconds()
	return nil
}

func megabytes(n int64) float64 { return float64(n) / 1e6 }

// loadedMemory looks at the brokers after everything else.
func loadedMemory() workload {
	const rss = "RSS after the workloads above"
	return workload{
		name:    "memory after load",
		metrics: []metric{{name: rss, unit: "MB", better: lower}},
		shared:  true, once: true,
		run: func(_ context.Context, b *bench, k kind, _ bool) (sample, error) {
			u, err := usageOf(b.shared(k).pid())
			return sample{rss: megabytes(u.rssBytes)}, err
		},
	}
}

// withConn runs f on a connection of its own.
func withConn(ctx context.Context, x *broker, f func(c *conn) error) error {
	c, err := dial(ctx, x.addr)
	if err != nil {
		return err
	}
	defer c.close()
	return f(c)
}

// onTopic runs f with a fresh topic and removes the topic afterwards, so that the next workload finds the disk and the
// page cache free.
func (b *bench) onTopic(ctx context.Context, k kind, partitions int32, f func(x *broker, topic string) error) error {
	x := b.shared(k)
	b.topics++
	topic := fmt.Sprintf("bench-%d", b.topics)
	return withConn(ctx, x, func(c *conn) error {
		if _, err := c.createTopic(ctx, topic, partitions); err != nil {
			return err
		}
		if err := f(x, topic); err != nil {
			return err
		}
		if err := withConn(ctx, x, func(c *conn) error { return c.deleteTopic(topic) }); err != nil {
			return err
		}
		return x.awaitRemoved(ctx, topic)
	})
}

// awaitRemoved waits until the files of a deleted topic are gone: removing gigabytes takes processor time, which is not the
// next run's.
func (b *broker) awaitRemoved(ctx context.Context, topic string) error {
	const limit = time.Minute // Kafka begins to delete 30 s after its start
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		left, err := filepath.Glob(filepath.Join(b.dir, dataDir, topic+"-*"))
		if err != nil || len(left) == 0 {
			return err
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%s is still there: %w", left[0], ctx.Err())
		}
	}
}
