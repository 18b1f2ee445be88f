package broker

import (
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"gregor/broker/config"
	"gregor/broker/network"
	"gregor/groupcoord"
	"gregor/groupcoord/consumer"
	"gregor/kraft"
	"gregor/kraft/quorum"
	"gregor/protocol/record"
	"gregor/storage"
	"gregor/storage/cleaner"
	"gregor/storage/vfs"
)

// Options start a node.
type Options struct {
	Config *config.Config
	FS     vfs.FS
	Logger *slog.Logger
	// Version is shown at the start.
	Version string
	// Format prepares directories that are not formatted; nil refuses to start with them.
	Format *kraft.Formatter
	// Introduce, if set, is called once with what writes the node's first line, before anything lengthy.
	Introduce func(firstLine func())
	// FormatOutput gets what the formatting says.
	FormatOutput io.Writer
}

func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// topicConfig resolves topic configs on the broker's defaults.
func topicConfig(c *config.Config, overrides map[string]string) (storage.LogConfig, error) {
	d := newestDefaults.Load()
	if d == nil || d.of != c {
		base, err := storage.DefaultLogConfig().With(c.TopicDefaults())
		if err != nil {
			return storage.LogConfig{}, err
		}
		d = &topicDefaults{of: c, base: base}
		newestDefaults.Store(d)
	}
	if len(overrides) == 0 {
		return d.base, nil
	}
	return d.base.With(overrides)
}

// topicDefaults is what topics without overrides have by a broker config, which is immutable.
type topicDefaults struct {
	of   *config.Config
	base storage.LogConfig
}

// newestDefaults saves resolving the same fallbacks for each of ten thousand partitions.
var newestDefaults atomic.Pointer[topicDefaults]

func managerOptions(o *Options, failed func(storage.DirInfo), damaged func(storage.DamagedReplica)) (storage.ManagerOptions, error) {
	c := o.Config
	defaults, err := topicConfig(c, nil)
	if err != nil {
		return storage.ManagerOptions{}, err
	}
	var cleaning *cleaner.Config
	if c.Cleaner.Enable {
		cleaning = new(cleanerConfig(c))
	}
	return storage.ManagerOptions{
		Cleaner: cleaning,
		FS:      o.FS, LogDirs: c.Storage.Dirs, MetadataDir: c.Metadata.Dir, ControllerOnly: !c.Node.Broker,
		NodeID: c.Node.ID, Defaults: defaults, RecoveryThreads: int(c.Storage.RecoveryThreads),
		Intervals: storage.Intervals{
			RetentionCheckMillis: c.Storage.RetentionCheckMillis, RecoveryPointMillis: int64(c.Storage.RecoveryCheckpointMillis),
			LogStartOffsetMillis: int64(c.Storage.StartCheckpointMillis), HighWatermarkMillis: c.Storage.HighWatermarkCheckpointMs,
			ProducerExpiryMillis: int64(c.Producers.IDExpirationCheckMillis), InitialRetentionMillis: c.Storage.InitialTaskDelayMillis,
		},
		ProducerExpirationMillis: int64(c.Producers.IDExpirationMillis), VerifyTransactions: true, MaxOpenFiles: maxOpenFiles(),
		DirFailed: failed, ReplicaDamaged: damaged, Logger: o.Logger,
	}, nil
}

// maxOpenFiles is how many descriptors the logs may keep: half of what the process has, so that connections find some too.
func maxOpenFiles() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return storage.DefaultMaxOpenFiles
	}
	return int(min(limit.Cur/2, storage.DefaultMaxOpenFiles))
}

// cleanerConfig is the log cleaner's part of the config.
func cleanerConfig(c *config.Config) cleaner.Config {
	return cleaner.Config{
		Threads: int(c.Cleaner.Threads), DedupeBytes: c.Cleaner.DedupeBytes, LoadFactor: c.Cleaner.LoadFactor,
		IOBufferBytes: int(c.Cleaner.IOBufferBytes), MaxBytesPerSecond: c.Cleaner.MaxBytesPerSec, BackoffMillis: c.Cleaner.BackoffMillis,
	}
}

// staticVoters are the entries of controller.quorum.voters.
func staticVoters(c *config.Config) []quorum.Voter {
	var out []quorum.Voter
	for _, v := range c.Quorum.Voters {
		out = append(out, quorum.Voter{
			Key:       quorum.ReplicaKey{ID: v.ID},
			Endpoints: []quorum.Endpoint{{Name: c.Listeners.ControllerNames[0], Host: v.Host, Port: v.Port}},
		})
	}
	return out
}

// bootstrapServers are the entries of controller.quorum.bootstrap.servers.
func bootstrapServers(c *config.Config) []kraft.Endpoint {
	var out []kraft.Endpoint
	for _, a := range c.Quorum.Bootstrap {
		out = append(out, kraft.Endpoint{NodeID: -1, Host: a.Host, Port: a.Port})
	}
	return out
}

// securityCodes are the codes of security protocols in registrations.
var securityCodes = map[string]int16{"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}

// kraftOptions are the quorum's part of the config.
func kraftOptions(o *Options, m *storage.Manager, client kraft.Client, sockets []socket) kraft.Options {
	c := o.Config
	segment := c.Metadata.SegmentBytes
	if c.Metadata.InternalSegment > 0 {
		segment = c.Metadata.InternalSegment
	}
	snapshotInterval := millis(c.Metadata.SnapshotMillis)
	if c.Metadata.SnapshotMillis == 0 {
		snapshotInterval = -1 // never by time
	}
	dir := m.MetadataDir()
	out := kraft.Options{
		NodeID: c.Node.ID, ClusterID: m.ClusterID(), FS: o.FS, MetadataDir: dir.Path, DirectoryID: dir.ID,
		Quorum: kraft.QuorumOptions{
			StaticVoters: staticVoters(c), BootstrapServers: bootstrapServers(c), ListenerNames: c.Listeners.ControllerNames,
			RequestTimeout: millis(int64(c.Quorum.RequestTimeoutMillis)), RetryBackoff: millis(int64(c.Quorum.RetryBackoffMillis)),
			Log: quorum.LogOptions{
				SegmentBytes: segment, SegmentMillis: c.Metadata.SegmentMillis, RetentionBytes: c.Metadata.RetentionBytes,
				RetentionMillis: c.Metadata.RetentionMillis, FileDeleteDelayMillis: c.Metadata.DeleteDelayMillis,
			},
			Timing: quorum.Timing{ElectionTimeout: millis(int64(c.Quorum.ElectionTimeoutMillis))},
		},
		Snapshots: kraft.SnapshotOptions{MaxNewRecordBytes: c.Metadata.SnapshotBytes, MaxInterval: snapshotInterval},
		Client:    client, Logger: o.Logger,
	}
	if c.Node.Controller {
		out.Controller = controllerOptions(c)
		out.Controller.Listeners = controllerListeners(c, sockets)
	}
	return out
}

func controllerOptions(c *config.Config) *kraft.ControllerOptions {
	balance := time.Duration(c.Metadata.LeaderImbalanceSecs) * time.Second
	if !c.Metadata.AutoRebalance {
		balance = -1
	}
	idle := millis(int64(c.Metadata.MaxIdleMillis))
	if idle == 0 {
		idle = -1
	}
	return &kraft.ControllerOptions{
		DefaultPartitions: c.Topics.Partitions, DefaultReplicationFactor: int16(c.Topics.ReplicationFactor), DeleteTopicEnable: c.Topics.DeleteEnable,
		Static: c.Static, SessionTimeout: millis(int64(c.Node.SessionTimeoutMillis)), MaxIdle: idle, LeaderBalance: balance,
		UncleanElection: millis(c.Metadata.UncleanMillis),
	}
}

// groupConfig is the group coordinator's part of the config.
func groupConfig(c *config.Config) groupcoord.Config {
	out := groupcoord.DefaultConfig()
	out.Classic.MaxSize = int(c.Groups.MaxSize)
	out.Classic.InitialRebalanceDelay = millis(int64(c.Groups.InitialRebalanceMillis))
	out.Classic.MinSessionTimeoutMillis, out.Classic.MaxSessionTimeoutMillis = c.Groups.MinSessionMillis, c.Groups.MaxSessionMillis
	setConsumerGroups(&out, c.Groups)
	out.Offsets.MetadataMaxBytes = int(c.Offsets.MetadataMaxBytes)
	out.Offsets.RetentionMillis = c.Offsets.OffsetsRetention().Milliseconds()
	out.RetentionCheckInterval = millis(c.Offsets.RetentionCheckMs)
	out.CommitTimeout = millis(int64(c.Offsets.CommitTimeoutMillis))
	out.LoadBufferBytes = int(c.Offsets.LoadBufferBytes)
	out.Compression = record.Codec(c.Offsets.TopicCodec)
	return out
}

// setConsumerGroups sets what is about groups of the consumer protocol (KIP-848).
func setConsumerGroups(out *groupcoord.Config, g config.Groups) {
	times := func(session, heartbeat, assignment int32) consumer.GroupConfig {
		return consumer.GroupConfig{
			SessionTimeout: millis(int64(session)), HeartbeatInterval: millis(int64(heartbeat)), AssignmentInterval: millis(int64(assignment)),
		}
	}
	out.Consumer.Assignors, out.Consumer.MaxSize = g.ConsumerAssignors, int(g.ConsumerMaxSize)
	out.Consumer.RegexRefreshInterval = millis(int64(g.ConsumerRegexRefreshMillis))
	out.Consumer.Defaults = times(g.ConsumerSessionMillis, g.ConsumerHeartbeatMillis, g.ConsumerAssignmentMillis)
	out.ConsumerBounds.Min = times(g.ConsumerMinSessionMillis, g.ConsumerMinHeartbeatMillis, g.ConsumerMinAssignmentMillis)
	out.ConsumerBounds.Max = times(g.ConsumerMaxSessionMillis, g.ConsumerMaxHeartbeatMillis, g.ConsumerMaxAssignmentMillis)
	policy := strings.ToLower(g.ConsumerMigrationPolicy)
	out.Migration.Upgrade = policy == "upgrade" || policy == "bidirectional"
	out.Migration.Downgrade = policy == "downgrade" || policy == "bidirectional"
}

// networkOptions are the limits of the network layer.
func networkOptions(o *Options) network.Options {
	s := o.Config.Sockets
	return network.Options{
		Logger: o.Logger, MaxRequestBytes: s.RequestMaxBytes, MaxQueuedBytes: s.QueuedMaxBytes, IdleTimeout: millis(s.IdleMaxMillis),
		SendBufferBytes: int(s.SendBufferBytes), ReceiveBufferBytes: int(s.ReceiveBufferBytes), Limits: connectionLimits(o.Config, o.Logger),
	}
}

// connectionLimits are the bounds of connections. A host of max.connections.per.ip.overrides whose name is not known has
// the limit of all others, and is warned of.
func connectionLimits(c *config.Config, log *slog.Logger) network.Limits {
	s := c.Sockets
	l := network.Limits{MaxConnections: int(s.MaxConnections), MaxConnectionsPerIP: int(s.MaxConnectionsPerIP), MaxConnectionsPerSecond: int(s.MaxCreationRate)}
	l.MaxConnectionsPerIPOverrides = map[netip.Addr]int{}
	for host, n := range s.ConnectionsPerHost {
		found, err := net.LookupHost(host) // an address is its own
		if err != nil {
			log.Warn("the limit of connections of a host is not kept", "key", "max.connections.per.ip.overrides", "host", host, "error", err)
			continue
		}
		for _, a := range found {
			if addr, err := netip.ParseAddr(a); err == nil {
				l.MaxConnectionsPerIPOverrides[addr] = n
			}
		}
	}
	return l
}
