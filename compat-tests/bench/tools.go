package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// toolset runs Kafka's own tools, each in a JVM of its own as their scripts do.
type toolset struct{ libs string }

// toolJVM are the options of kafka-run-class.sh and kafka-producer-perf-test.sh.
var toolJVM = []string{"-Xmx512M", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35", "-Djava.awt.headless=true"}

// toolTimeout bounds one run of a tool.
const toolTimeout = 10 * time.Minute

func (t toolset) run(ctx context.Context, class string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, toolTimeout)
	defer cancel()
	all := append(append([]string{}, toolJVM...), "-cp", filepath.Join(t.libs, "*"), class)
	out, err := exec.CommandContext(ctx, "java", append(all, args...)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", class, err, out)
	}
	return string(out), nil
}

// Metrics of the tools.
const (
	records     = "records"
	cpuPerGB    = "broker CPU per GB"
	latencyMean = "average"
)

func toolWorkloads(o options) []workload {
	small, large, trips := 1_000_000, 300_000, 2000
	if o.full {
		small, large, trips = 5_000_000, 1_000_000, 10_000
	}
	return []workload{
		producerPerf(small, 100, "acks=1"),
		producerPerf(small, 100, "acks=all"),
		producerPerf(large, 1<<10, "acks=1"),
		producerPerf(large, 1<<10, "acks=all", "compression.type=lz4"),
		consumerPerf(small, 100),
		endToEnd(trips),
	}
}

func perfMetrics() []metric {
	return []metric{{name: records, unit: "1/s", goal: 1}, {name: cpuPerGB, unit: "s", better: lower}}
}

// producerPerf is kafka-producer-perf-test; its own processor time dominates, so that the broker's per gigabyte is told
// too.
func producerPerf(n, size int, properties ...string) workload {
	return workload{
		name:    fmt.Sprintf("kafka-producer-perf-test, %d x %d B, %s", n, size, strings.Join(properties, " ")),
		metrics: append(perfMetrics(), metric{name: latencyMean, unit: "ms", better: lower}),
		shared:  true,
		run: func(ctx context.Context, b *bench, k kind, warmUp bool) (out sample, err error) {
			err = b.onTopic(ctx, k, 1, func(x *broker, topic string) error {
				n := n
				if warmUp {
					n /= 4
				}
				used, text, err := b.tool(ctx, x, "org.apache.kafka.tools.ProducerPerformance", producerArgs(x.addr, topic, n, size, properties)...)
				if err != nil {
					return err
				}
				out, err = parseProducerPerf(text)
				if err == nil {
					out[cpuPerGB] = used.cpu.Seconds() / (float64(n) * float64(size) / 1e9)
				}
				return err
			})
			return out, err
		},
	}
}

func producerArgs(addr, topic string, n, size int, properties []string) []string {
	args := []string{
		"--bootstrap-server", addr, "--topic", topic, "--num-records", strconv.Itoa(n), "--record-size", strconv.Itoa(size),
		"--throughput", "-1", "--command-property",
	}
	return append(args, properties...)
}

// tool runs a tool and tells what the broker used meanwhile.
func (b *bench) tool(ctx context.Context, x *broker, class string, args ...string) (usage, string, error) {
	before, err := usageOf(x.pid())
	if err != nil {
		return usage{}, "", err
	}
	text, err := b.tools.run(ctx, class, args...)
	if err != nil {
		return usage{}, "", err
	}
	after, err := usageOf(x.pid())
	return after.since(before), text, err
}

var producerLine = regexp.MustCompile(`(?m)^\d+ records sent, ([\d.]+) records/sec \([\d.]+ MB/sec\), ([\d.]+) ms avg latency.*th\.`)

// parseProducerPerf reads the last line, which is the sum.
func parseProducerPerf(text string) (sample, error) {
	all := producerLine.FindAllStringSubmatch(text, -1)
	if len(all) == 0 {
		return nil, fmt.Errorf("kafka-producer-perf-test says %q", text)
	}
	last := all[len(all)-1]
	return numbers(map[string]string{records: last[1], latencyMean: last[2]})
}

// consumerPerf is kafka-consumer-perf-test over records that the producer's tool wrote.
func consumerPerf(n, size int) workload {
	return workload{
		name:    fmt.Sprintf("kafka-consumer-perf-test, %d x %d B", n, size),
		metrics: perfMetrics(), shared: true,
		run: func(ctx context.Context, b *bench, k kind, warmUp bool) (out sample, err error) {
			err = b.onTopic(ctx, k, 1, func(x *broker, topic string) error {
				n := n
				if warmUp {
					n /= 4
				}
				if _, _, err := b.tool(ctx, x, "org.apache.kafka.tools.ProducerPerformance", producerArgs(x.addr, topic, n, size, []string{"acks=1"})...); err != nil {
					return err
				}
				used, text, err := b.tool(ctx, x, "org.apache.kafka.tools.ConsumerPerformance",
					"--bootstrap-server", x.addr, "--topic", topic, "--num-records", strconv.Itoa(n), "--timeout", "60000")
				if err != nil {
					return err
				}
				out, err = parseConsumerPerf(text)
				if err == nil {
					out[cpuPerGB] = used.cpu.Seconds() / (float64(n) * float64(size) / 1e9)
				}
				return err
			})
			return out, err
		},
	}
}

// parseConsumerPerf reads the column of the rate without the time of the rebalance.
func parseConsumerPerf(text string) (sample, error) {
	var head []string
	for line := range strings.Lines(text) {
		fields := strings.Split(strings.TrimSpace(line), ", ")
		switch {
		case strings.HasPrefix(line, "start.time"):
			head = fields
		case head != nil && len(fields) == len(head):
			for i, name := range head {
				if strings.EqualFold(name, "fetch.nMsg.sec") {
					return numbers(map[string]string{records: fields[i]})
				}
			}
		}
	}
	return nil, fmt.Errorf("kafka-consumer-perf-test says %q", text)
}

// endToEnd is kafka-e2e-latency: one record at a time, there and back.
func endToEnd(n int) workload {
	return workload{
		name: fmt.Sprintf("kafka-e2e-latency, %d x 100 B, acks=1", n),
		metrics: []metric{
			{name: latencyMean, unit: "ms", better: lower},
			{name: latency50, unit: "ms", better: lower},
			{name: latency99, unit: "ms", better: lower},
			{name: latency999, unit: "ms", better: lower},
		},
		shared: true,
		run: func(ctx context.Context, b *bench, k kind, _ bool) (out sample, err error) {
			err = b.onTopic(ctx, k, 1, func(x *broker, topic string) error {
				_, text, err := b.tool(ctx, x, "org.apache.kafka.tools.EndToEndLatency", x.addr, topic, strconv.Itoa(n), "1", "100")
				if err == nil {
					out, err = parseEndToEnd(text)
				}
				return err
			})
			return out, err
		},
	}
}

var (
	meanLine        = regexp.MustCompile(`Avg latency: ([\d.]+) ms`)
	percentilesLine = regexp.MustCompile(`Percentiles: 50th = ([\d.]+), 99th = ([\d.]+), 99.9th = ([\d.]+)`)
)

func parseEndToEnd(text string) (sample, error) {
	mean, p := meanLine.FindStringSubmatch(text), percentilesLine.FindStringSubmatch(text)
	if mean == nil || p == nil {
		return nil, fmt.Errorf("kafka-e2e-latency says %q", text)
	}
	return numbers(map[string]string{latencyMean: mean[1], latency50: p[1], latency99: p[2], latency999: p[3]})
}

func numbers(texts map[string]string) (sample, error) {
	s := sample{}
	for name, text := range texts {
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		s[name] = v
	}
	return s, nil
}
