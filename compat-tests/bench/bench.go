package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// bench is one run of the command.
type bench struct {
	o     options
	log   io.Writer
	dir   string
	tools toolset
	// brokers that stay up for the workloads; Gregor first.
	brokers []*broker
	launch  launcher
	topics  int // made so far, for their names
	fresh   int // brokers of their own so far, for their directories
}

func newBench(ctx context.Context, o options, log io.Writer) (*bench, error) {
	b := &bench{o: o, log: log}
	var err error
	if b.dir, err = os.MkdirTemp(o.dir, "gregor-bench"); err != nil {
		return nil, err
	}
	if b.launch, err = newLauncher(ctx, o, b.dir); err != nil {
		b.close()
		return nil, err
	}
	b.tools = toolset{libs: b.launch.kafkaLibs}
	return b, nil
}

// close ends what runs and removes the data.
func (b *bench) close() {
	for _, x := range b.brokers {
		x.kill()
	}
	_ = os.RemoveAll(b.dir)
}

func (b *bench) kinds() []kind {
	if b.o.noKafka {
		return []kind{gregor}
	}
	return []kind{gregor, kafka}
}

// run measures every workload that is asked for. When one fails, the rows of those before it are returned too.
func (b *bench) run(ctx context.Context) ([]row, error) {
	var rows []row
	for _, w := range workloads(b.o) {
		if !b.o.only.MatchString(w.name) {
			continue
		}
		b.say("%s", w.name)
		more, err := b.measure(ctx, w)
		rows = append(rows, more...)
		if err != nil {
			return rows, fmt.Errorf("%s: %w", w.name, err)
		}
	}
	return rows, nil
}

// measure runs one workload: the warm-up of each broker, then the repeats in the order A B B A.
func (b *bench) measure(ctx context.Context, w workload) ([]row, error) {
	samples := map[kind][]sample{}
	if w.shared {
		if err := b.startShared(ctx); err != nil {
			return nil, err
		}
	}
	for i := -1; i < b.o.runs; i++ {
		if i < 0 && w.once {
			continue
		}
		kinds := alternate(b.kinds(), i)
		if w.gregorOnly {
			kinds = []kind{gregor}
		}
		for _, k := range kinds {
			s, err := w.run(ctx, b, k, i < 0)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", k, err)
			}
			if i >= 0 {
				samples[k] = append(samples[k], s)
			}
			b.say("  %-6s %s", k, s)
		}
	}
	return rowsOf(w, samples), nil
}

// warmUpFactor is how much longer than a repeat a warm-up is: a JVM compiles for some seconds.
const warmUpFactor = 3

// loadTime is how long a raw client drives a broker.
func (b *bench) loadTime(warmUp bool) time.Duration {
	if warmUp {
		return warmUpFactor * b.o.load
	}
	return b.o.load
}

// alternate turns the order round in every other repeat.
func alternate(kinds []kind, repeat int) []kind {
	if repeat%2 == 0 || len(kinds) < 2 {
		return kinds
	}
	return []kind{kinds[1], kinds[0]}
}

// startShared starts the brokers that the workloads share, on their first use.
func (b *bench) startShared(ctx context.Context) error {
	if b.brokers != nil {
		return nil
	}
	for _, k := range b.kinds() {
		x, err := b.launch.prepare(ctx, k, filepath.Join(b.dir, string(k)))
		if err != nil {
			return err
		}
		b.brokers = append(b.brokers, x)
		took, err := x.start(ctx)
		if err != nil {
			return err
		}
		b.say("  %s serves after %v", k, took.Round(time.Millisecond))
	}
	return nil
}

// freshBroker prepares a broker of its own for one repeat.
func (b *bench) freshBroker(ctx context.Context, k kind) (*broker, error) {
	b.fresh++
	return b.launch.prepare(ctx, k, filepath.Join(b.dir, fmt.Sprintf("%s-%d", k, b.fresh)))
}

// onFresh runs f with a broker of its own that has been started.
func (b *bench) onFresh(ctx context.Context, k kind, f func(x *broker) (sample, error)) (sample, error) {
	x, err := b.freshBroker(ctx, k)
	if err != nil {
		return nil, err
	}
	defer x.discard()
	if _, err := x.start(ctx); err != nil {
		return nil, err
	}
	return f(x)
}

func (b *bench) shared(k kind) *broker {
	for _, x := range b.brokers {
		if x.kind == k {
			return x
		}
	}
	panic("bench: no broker of that kind runs")
}

func (b *bench) say(format string, args ...any) {
	_, _ = fmt.Fprintf(b.log, format+"\n", args...)
}

// machine says what the numbers were taken on.
func (b *bench) machine() string {
	model := "unknown processor"
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	return fmt.Sprintf("%d x %s, %s, %s", runtime.NumCPU(), model, runtime.Version(), time.Now().UTC().Format(time.DateOnly))
}
