package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
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
	go giveBackWhenQuiet(ctx)
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
