// Command bench measures Gregor and a real Apache Kafka side by side on this machine.
//
//	go run ./bench                     every workload, short
//	go run ./bench -only produce       those whose name matches
//	go run ./bench -full               longer, more repeats, all combinations
//	go run ./bench -write FILE         and write the table, in Markdown, to a file
//	go run ./bench -no-kafka           Gregor alone, for work on it
//
// Both brokers run at the same time and one of them is driven at a time, in the order A B B A, after a warm-up of each
// that is not counted: neither then has the quieter half of the run, and neither pays for fresh memory or cold code.
// What is told is the median of the repeats, their spread, and the ratio; a ratio above 1 is in Gregor's favor
// whatever the unit. Absolute numbers depend on the machine and on what else it does; ratios much less.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"
)

// options are what the command line says.
type options struct {
	full    bool
	noKafka bool
	runs    int
	only    *regexp.Regexp
	write   string
	dir     string
	gregor  string
	// load is how long a raw client drives a broker in one repeat.
	load time.Duration
}

func parseOptions(args []string, stderr io.Writer) (options, error) {
	var o options
	var only string
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.BoolVar(&o.full, "full", false, "all combinations, longer, at least 5 repeats")
	f.BoolVar(&o.noKafka, "no-kafka", false, "measure Gregor only")
	f.IntVar(&o.runs, "runs", 0, "repeats of each workload on each broker (default 3, with -full 5)")
	f.DurationVar(&o.load, "load", 0, "how long a raw client drives a broker in one repeat (default 2s, with -full 5s)")
	f.StringVar(&only, "only", "", "`regexp` that the names of workloads must match")
	f.StringVar(&o.write, "write", "", "`file` for the table, in Markdown")
	f.StringVar(&o.dir, "dir", "", "`directory` for the data (default: the system's temporary one)")
	f.StringVar(&o.gregor, "gregor", "", "a gregor `binary` (default: built from the sources)")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if o.runs <= 0 {
		o.runs = 3
		if o.full {
			o.runs = 5
		}
	}
	if o.load <= 0 {
		o.load = 2 * time.Second
		if o.full {
			o.load = 5 * time.Second
		}
	}
	var err error
	o.only, err = regexp.Compile(only)
	return o, err
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		_, _ = fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parseOptions(args, stderr)
	if err != nil {
		return err
	}
	b, err := newBench(ctx, o, stderr)
	if err != nil {
		return err
	}
	defer b.close()
	rows, err := b.run(ctx)
	if len(rows) > 0 {
		table := markdown(rows, !o.noKafka)
		_, _ = io.WriteString(stdout, table)
		if err == nil && o.write != "" {
			err = os.WriteFile(o.write, []byte(document(b.machine(), o, table)), 0o644)
		}
	}
	return err
}
