package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// better says which way a number should go.
type better int

const (
	higher better = iota
	lower
)

// metric is one number of a workload.
type metric struct {
	name   string
	unit   string
	better better
	// goal, if not 0, is the ratio that is aimed at; limit, if not 0, the value of Gregor's that is.
	goal, limit float64
}

// sample are the values of a workload's metrics in one repeat, by the metrics' names.
type sample map[string]float64

// String lists the values in the order of their names.
func (s sample) String() string {
	var parts []string
	for name, v := range s {
		parts = append(parts, name+" "+number(v))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// row is one line of the table.
type row struct {
	workload      string
	metric        metric
	gregor, kafka summary
}

// summary is the median of some repeats, and their extremes.
type summary struct {
	median, low, high float64
	n                 int
}

func summarize(values []float64) summary {
	if len(values) == 0 {
		return summary{}
	}
	v := slices.Sorted(slices.Values(values))
	s := summary{low: v[0], high: v[len(v)-1], n: len(v), median: v[len(v)/2]}
	if len(v)%2 == 0 {
		s.median = (v[len(v)/2-1] + v[len(v)/2]) / 2
	}
	return s
}

// String is the median and the extremes.
func (s summary) String() string {
	if s.n == 0 {
		return "-"
	}
	return fmt.Sprintf("%s (%s - %s)", number(s.median), number(s.low), number(s.high))
}

// number writes a value with three digits that matter.
func number(v float64) string {
	switch {
	case v >= 100 || v == 0:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// ratio is above 1 where Gregor does better; 0 when it is not known.
func (r *row) ratio() float64 {
	a, b := r.gregor.median, r.kafka.median
	if r.metric.better == lower {
		a, b = b, a
	}
	if b == 0 || r.kafka.n == 0 {
		return 0
	}
	return a / b
}

// verdict tells the goal and whether it is met.
func (r *row) verdict(compared bool) string {
	m := &r.metric
	met := map[bool]string{true: "met", false: "not met"}
	switch {
	case m.limit != 0:
		return fmt.Sprintf("at most %s %s: %s", number(m.limit), m.unit, met[r.gregor.median <= m.limit])
	case m.goal != 0 && compared:
		return fmt.Sprintf("%sx: %s", number(m.goal), met[r.ratio() >= m.goal])
	}
	return ""
}

// rowsOf sums up the samples of a workload.
func rowsOf(w workload, samples map[kind][]sample) []row {
	values := func(k kind, name string) []float64 {
		var out []float64
		for _, s := range samples[k] {
			if v, ok := s[name]; ok {
				out = append(out, v)
			}
		}
		return out
	}
	var rows []row
	for _, m := range w.metrics {
		rows = append(rows, row{workload: w.name, metric: m, gregor: summarize(values(gregor, m.name)), kafka: summarize(values(kafka, m.name))})
	}
	return rows
}

// markdown is the table.
func markdown(rows []row, compared bool) string {
	var b strings.Builder
	b.WriteString("| workload | measure | unit | Gregor | Apache Kafka | ratio | goal |\n|---|---|---|---:|---:|---:|---|\n")
	last := ""
	for i := range rows {
		r := &rows[i]
		name := r.workload
		if name == last {
			name = ""
		}
		last = r.workload
		ratio := "-"
		if x := r.ratio(); x != 0 {
			ratio = number(x)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", name, r.metric.name, r.metric.unit, r.gregor, r.kafka, ratio, r.verdict(compared))
	}
	return b.String()
}

// document puts the table into a page of its own.
func document(machine string, o options, table string) string {
	var b strings.Builder
	b.WriteString("# Benchmarks\n\nMade by `make bench`; do not edit. Gregor and Apache Kafka 4.4.0 ran side by side on one machine, the client too, and were\n" +
		"driven in turn in the order A B B A after a warm-up. A cell is the median of the repeats with their extremes; a ratio above 1\n" +
		"is in Gregor's favor, whatever the unit. Ratios carry over to other machines better than absolute numbers do.\n\n")
	fmt.Fprintf(&b, "%s; %d repeats, raw clients %v each.\n\n", machine, o.runs, o.load.Round(time.Millisecond))
	b.WriteString(table)
	return b.String()
}
