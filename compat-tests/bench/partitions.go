package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// Metrics of a node with many partitions.
const (
	createAll  = "create"
	produceAny = "produce 1 KiB to random partitions"
	stopTime   = "clean stop"
	serveAll   = "restart until every partition is led"
	manyRSS    = "RSS when idle"
	manyCPU    = "CPU when idle"
)

// manyPartitions is a node with so many partitions.
type manyPartitions struct {
	topics, perTopic int32
	// descriptors, if not 0, is the limit of open files that the broker is started with.
	descriptors int
	// gregorOnly leaves Kafka out: with the default vm.max_map_count it ends somewhere above 30,000.
	gregorOnly bool
}

func (m manyPartitions) count() int32 { return m.topics * m.perTopic }

func (m manyPartitions) topic(i int32) string { return fmt.Sprintf("many-%d", i) }

// partitionWorkloads are those of nodes with many partitions; the larger ones take minutes, and are run when they are
// asked for.
func partitionWorkloads(o options) []workload {
	sizes := []manyPartitions{{topics: 10, perTopic: 100}}
	if o.full || o.only.String() != "" {
		sizes = append(sizes, manyPartitions{topics: 10, perTopic: 1000},
			manyPartitions{topics: 50, perTopic: 1000, descriptors: 20000, gregorOnly: true})
	}
	var all []workload
	for _, m := range sizes {
		all = append(all, m.workload())
	}
	return all
}

func (m manyPartitions) workload() workload {
	const createGoal, restartGoal, memoryGoal = 5, 10, 10
	name := fmt.Sprintf("%d partitions", m.count())
	if m.descriptors > 0 {
		name += fmt.Sprintf(", %d descriptors", m.descriptors)
	}
	return workload{
		name: name,
		metrics: []metric{
			{name: createAll, unit: "ms", better: lower, goal: createGoal},
			{name: produceAny, unit: "1/s"},
			{name: manyRSS, unit: "MB", better: lower, goal: memoryGoal},
			{name: manyCPU, unit: "% of a core", better: lower},
			{name: stopTime, unit: "ms", better: lower},
			{name: serveAll, unit: "ms", better: lower, goal: restartGoal},
		},
		once: true, gregorOnly: m.gregorOnly,
		run: func(ctx context.Context, b *bench, k kind, _ bool) (sample, error) {
			x, err := b.freshBroker(ctx, k)
			if err != nil {
				return nil, err
			}
			defer x.discard()
			x.descriptors = m.descriptors
			return m.run(ctx, x)
		},
	}
}

// run takes a broker through its life: partitions are created, written to, left alone, stopped and started again.
func (m manyPartitions) run(ctx context.Context, x *broker) (sample, error) {
	if _, err := x.start(ctx); err != nil {
		return nil, err
	}
	began := time.Now()
	for i := range m.topics {
		if err := x.createTopic(ctx, m.topic(i), m.perTopic); err != nil {
			return nil, err
		}
	}
	s := sample{createAll: millis(time.Since(began))}
	var err error
	if s[produceAny], err = m.produce(ctx, x); err != nil {
		return nil, err
	}
	idle := sample{}
	if err := x.addIdle(ctx, idle); err != nil {
		return nil, err
	}
	s[manyRSS], s[manyCPU] = idle[idleRSS], idle[idleCPU]
	began = time.Now()
	if err := x.stop(); err != nil {
		return nil, err
	}
	s[stopTime] = millis(time.Since(began))
	began = time.Now()
	if _, err := x.start(ctx); err != nil {
		return nil, err
	}
	for i := range m.topics {
		if err := withConn(ctx, x, func(c *conn) error { return c.awaitLeaders(ctx, m.topic(i), m.perTopic) }); err != nil {
			return nil, err
		}
	}
	s[serveAll] = millis(time.Since(began))
	return s, nil
}

// produce writes single records into partitions drawn by lot, one after the other, and returns how many a second.
func (m manyPartitions) produce(ctx context.Context, x *broker) (perSecond float64, err error) {
	const records, recordBytes = 5000, 1 << 10
	dice := rand.New(rand.NewPCG(1, 1))
	shape := produceShape{acks: -1, recordBytes: recordBytes, records: 1}
	var took time.Duration
	err = withConn(ctx, x, func(c *conn) error {
		began := time.Now()
		var answer []byte
		for range records {
			if _, err := c.Write(frame(produceRequest(m.topic(dice.Int32N(m.topics)), dice.Int32N(m.perTopic), shape))); err != nil {
				return err
			}
			if answer, err = c.receive(answer); err != nil {
				return err
			}
			if err := checkProduced(answer); err != nil {
				return err
			}
		}
		took = time.Since(began)
		return nil
	})
	return records / took.Seconds(), err
}
