package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"gregor/broker"
	"gregor/broker/config"
	"gregor/storage/vfs"
)

type startFlags struct {
	overrides []string
	strict    bool
	logLevel  string
}

func newStart() *cobra.Command {
	var f startFlags
	c := &cobra.Command{
		Use:   "start [server.properties]",
		Short: "Run a broker, a controller or both until SIGTERM",
		Long: `Runs a node in the foreground by a Kafka server.properties file.

Without a file it is broker and controller on localhost:9092, with its data in
./gregor-data. A node none of whose log directories is formatted formats them; the
cluster id is then that of CLUSTER_ID or KAFKA_CLUSTER_ID, or a random one, and
KAFKA_FORMAT_ARGS may hold further options of "gregor format". When some are
formatted and others are not, it does not start: a disk may not be mounted.

SIGTERM, SIGINT and SIGHUP stop it cleanly; a second one ends it at once.

Environment variables like KAFKA_NUM_PARTITIONS=3 override the file as in Kafka's
container image, and --override overrides both.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			file := ""
			if len(args) == 1 {
				file = args[0]
			}
			return start(cmd.Context(), file, f)
		},
	}
	c.Flags().StringArrayVar(&f.overrides, "override", nil, "`key=value` that wins over file and environment (repeatable)")
	c.Flags().BoolVar(&f.strict, "strict", false, "refuse to start with keys that nobody knows")
	c.Flags().StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	return c
}

// loadConfig reads the file, the environment and the overrides.
func loadConfig(file string, overrides []string, strict bool) (*config.Config, []config.Warning, error) {
	o := config.Options{FileName: file, Environ: os.Environ(), Overrides: overrides, Strict: strict}
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, nil, fmt.Errorf("cannot read the configuration: %w", err)
		}
		o.File = text
	}
	return config.Load(o)
}

func newLogHandler(w io.Writer, level string) (slog.Handler, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("--log-level: %q is not debug, info, warn or error", level)
	}
	return slog.NewTextHandler(w, &slog.HandlerOptions{Level: l}), nil
}

// shutdownTimeout bounds a controlled stop; what is not done by then is cut off.
const shutdownTimeout = 30 * time.Second

func start(parent context.Context, file string, f startFlags) error {
	tuning := tuneStart()
	defer tuning.Stop()
	handler, err := newLogHandler(os.Stderr, f.logLevel)
	if err != nil {
		return err
	}
	held := newHeldLog(handler)
	defer held.release(nil) // a start that fails early says what it had to say
	log := slog.New(held)
	began := time.Now()
	cfg, warnings, err := loadConfig(file, f.overrides, f.strict)
	for _, w := range warnings {
		log.Warn(w.String()) //nolint:sloglint // a sentence of its own, for an operator
	}
	if err != nil {
		return err
	}
	formatter, err := selfFormatter(cfg)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(parent, stopSignals(signal.Ignored(syscall.SIGHUP))...)
	defer stop()
	b, err := broker.Start(ctx, broker.Options{
		Config: cfg, FS: vfs.Real(), Logger: log, Version: version(), Format: formatter, FormatOutput: lineLogger{log},
		Introduce: held.release,
	})
	if err != nil {
		if ctx.Err() != nil {
			log.Info("stopped before it served")
			return nil
		}
		return err
	}
	log.Info("serving", "after", time.Since(began).Round(time.Millisecond).String())
	tuning.Reset(settleDelay)
	select {
	case <-ctx.Done():
	case err = <-b.Failed():
		log.Error("cannot go on", "error", err)
	}
	stop() // a second signal ends the process at once
	log.Info("stopping", "cause", stopCause(ctx, err))
	limit, cancel := context.WithTimeout(context.WithoutCancel(parent), shutdownTimeout)
	defer cancel()
	if stopErr := b.Stop(limit); stopErr != nil {
		return fmt.Errorf("stopped, but not cleanly: %w", stopErr)
	}
	log.Info("stopped")
	if err != nil {
		return errSilent
	}
	return nil
}

// stopSignals are those that end the node cleanly. A terminal that goes away sends SIGHUP, which a JVM takes as Kafka's
// end too, unless nohup had it ignored.
func stopSignals(hangupIgnored bool) []os.Signal {
	out := []os.Signal{syscall.SIGTERM, syscall.SIGINT}
	if !hangupIgnored {
		out = append(out, syscall.SIGHUP)
	}
	return out
}

// stopCause says why the node stops: a signal, or what failed.
func stopCause(ctx context.Context, failed error) string {
	if failed != nil {
		return "failure"
	}
	return context.Cause(ctx).Error()
}

// lineLogger logs what the format command prints.
type lineLogger struct{ log *slog.Logger }

// Write implements io.Writer.
func (l lineLogger) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		switch line = strings.TrimSpace(line); {
		case strings.HasPrefix(line, "Bootstrap metadata"): // long, and with the keys of --add-scram
			l.log.Debug(line) //nolint:sloglint // what the command would have printed
		case line != "":
			l.log.Info(line) //nolint:sloglint // what the command would have printed
		}
	}
	return len(p), nil
}

// ballastBytes are counted as live by the collector and never touched, so that they take address space and no memory. A
// broker's heap is a few megabytes: without them the collector would run for every megabyte of garbage, dozens of times
// a second under load.
const ballastBytes = 32 << 20

var ballast []byte //nolint:unused // holding it is its use

// startGCPercent lets the heap of a start grow to a few megabytes before the first collection: most starts are over by
// then.
const startGCPercent = 400

// longStart is from when on a start is treated as the long run: it recovers logs, or waits for other nodes.
const longStart = time.Second

// settleDelay is when the runtime is tuned for the long run: the first clients, who have waited for the start, come
// before the two collections that it takes.
const settleDelay = 300 * time.Millisecond

// tunesItself says that the operator has left the collector to us.
func tunesItself() bool { return os.Getenv("GOGC") == "" }

// tuneStart tunes the runtime for a start. The timer, which fires when the start takes long, tunes it for the long run.
func tuneStart() *time.Timer {
	if os.Getenv("GOMAXPROCS") == "" {
		// The network's workers wait in system calls, in which each keeps a processor of the scheduler for a while. With
		// one more than the machine has, what else runs always finds one.
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1)
	}
	if tunesItself() {
		debug.SetGCPercent(startGCPercent)
	}
	return time.AfterFunc(longStart, tuneRuntime)
}

// tuneRuntime makes the heap small rather than the collector idle, unless the operator said otherwise: a broker
// allocates little per request, and its memory is the page cache's to use. What only the start needed is given back. A
// long start is tuned for twice: while it lasts, and when it is over.
func tuneRuntime() {
	if tunesItself() {
		tuneCollector()
	}
	debug.FreeOSMemory()
}

var tuneCollector = sync.OnceFunc(func() {
	debug.SetGCPercent(50)
	ballast = make([]byte, ballastBytes)
})
