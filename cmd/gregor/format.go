package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gregor/broker/config"
	"gregor/kraft"
	"gregor/kraft/quorum"
	"gregor/protocol"
	"gregor/storage/vfs"
)

// formatFlags are those of kafka-storage.sh format.
type formatFlags struct {
	clusterID, config    string
	ignoreFormatted      bool
	releaseVersion       string
	features, scram      []string
	standalone           bool
	initialControllers   string
	noInitialControllers bool
}

func (f *formatFlags) add(fs *pflag.FlagSet) {
	fs.StringVarP(&f.clusterID, "cluster-id", "t", "", "the cluster id (see gregor random-uuid)")
	fs.StringVarP(&f.config, "config", "c", "", "the server.properties file; none for the defaults of gregor start")
	fs.BoolVarP(&f.ignoreFormatted, "ignore-formatted", "g", false, "pass over directories that are formatted already")
	fs.StringVarP(&f.releaseVersion, "release-version", "r", "", "the release whose features are used, such as 4.4 or 4.4-IV2")
	fs.StringArrayVarP(&f.features, "feature", "f", nil, "`NAME=LEVEL` of a feature (repeatable)")
	fs.StringArrayVarP(&f.scram, "add-scram", "S", nil, "SCRAM `credential`, 'SCRAM-SHA-256=[name=alice,password=...]' (repeatable)")
	fs.BoolVarP(&f.standalone, "standalone", "s", false, "this node is the only controller of a dynamic quorum")
	fs.StringVarP(&f.initialControllers, "initial-controllers", "I", "", "the `voters` of a dynamic quorum, id@host:port:directory-id,...")
	fs.BoolVarP(&f.noInitialControllers, "no-initial-controllers", "N", false, "join a dynamic quorum that exists")
}

func newFormat() *cobra.Command {
	var f formatFlags
	c := &cobra.Command{
		Use:   "format",
		Short: "Prepare the log directories of a new node, as kafka-storage.sh format does",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, _, err := loadConfig(f.config, nil, false)
			if err != nil {
				return err
			}
			return newFormatter(cfg, &f).Run(cmd.OutOrStdout())
		},
	}
	f.add(c.Flags())
	_ = c.MarkFlagRequired("cluster-id") // the flag exists
	c.MarkFlagsMutuallyExclusive("standalone", "initial-controllers", "no-initial-controllers")
	return c
}

func newRandomUUID() *cobra.Command {
	return &cobra.Command{
		Use:   "random-uuid",
		Short: "Print a new cluster id",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), protocol.RandomUUID())
			return err
		},
	}
}

// newFormatter makes a formatter of a node's config and the command's flags.
func newFormatter(cfg *config.Config, f *formatFlags) *kraft.Formatter {
	metadataDir := cfg.Metadata.Dir
	if metadataDir == "" {
		metadataDir = cfg.Storage.Dirs[0]
	}
	out := &kraft.Formatter{
		FS: vfs.Real(), NodeID: cfg.Node.ID, ClusterID: f.clusterID, LogDirs: cfg.Storage.Dirs, MetadataDir: metadataDir,
		Controller: cfg.Node.Controller, HasStaticVoters: len(cfg.Quorum.Voters) > 0, ListenerName: cfg.Listeners.ControllerNames[0],
		IgnoreFormatted: f.ignoreFormatted, ReleaseVersion: f.releaseVersion, Features: f.features, Scram: f.scram,
		Standalone: f.standalone, InitialControllers: f.initialControllers, NoInitialControllers: f.noInitialControllers,
		Now: time.Now,
	}
	if l, ok := cfg.Listeners.Find(out.ListenerName); ok {
		host := l.Host
		if host == "" {
			host = "localhost"
		}
		out.AdvertisedController = quorum.Endpoint{Name: l.Name, Host: host, Port: l.Port}
	}
	return out
}

// selfFormatter prepares empty directories at the start. The cluster id and options come from the environment, as
// Kafka's container image has them. A controller of a dynamic quorum without further word is its only voter.
func selfFormatter(cfg *config.Config) (*kraft.Formatter, error) {
	var f formatFlags
	fs := pflag.NewFlagSet("KAFKA_FORMAT_ARGS", pflag.ContinueOnError)
	f.add(fs)
	if err := fs.Parse(strings.Fields(os.Getenv("KAFKA_FORMAT_ARGS"))); err != nil {
		return nil, fmt.Errorf("environment variable KAFKA_FORMAT_ARGS: %w", err)
	}
	for _, name := range []string{"CLUSTER_ID", "KAFKA_CLUSTER_ID"} {
		if id := os.Getenv(name); id != "" && f.clusterID == "" {
			f.clusterID = id
		}
	}
	if f.clusterID == "" {
		f.clusterID = protocol.RandomUUID().String()
	}
	dynamic := len(cfg.Quorum.Voters) == 0
	if dynamic && cfg.Node.Controller && !f.standalone && f.initialControllers == "" && !f.noInitialControllers {
		f.standalone = true
	}
	return newFormatter(cfg, &f), nil
}
