// Package config turns a server.properties file, KAFKA_* environment variables and command line overrides
// into one typed, validated Config with Kafka 4.4's names, defaults and rules.
//
// Every key of Kafka is known (internal/configdef). A value that is not valid is an error that names file,
// line, key and what is valid. A key that Gregor does not act on is a warning, or an error where ignoring
// it would be unsafe (status.tsv); a key that nobody knows is a warning with the nearest known name.
// A Config is immutable; WithDynamic derives the one that holds after an IncrementalAlterConfigs (KIP-226).
package config

import (
	"fmt"
	"time"
)

// Config is what one node runs with.
type Config struct {
	Node        Node
	Listeners   Listeners
	Sockets     Sockets
	Quorum      Quorum
	Metadata    Metadata
	Storage     Storage
	Cleaner     Cleaner
	Topics      Topics
	Replication Replication
	Offsets     Offsets
	Groups      Groups
	Producers   Producers

	values *values
}

// Node says who this node is.
type Node struct {
	ID                     int32    `kafka:"node.id"`
	BrokerID               int32    `kafka:"broker.id"`
	Roles                  []string `kafka:"process.roles"`
	Rack                   string   `kafka:"broker.rack"`
	Broker, Controller     bool
	HeartbeatMillis        int32 `kafka:"broker.heartbeat.interval.ms"`
	SessionTimeoutMillis   int32 `kafka:"broker.session.timeout.ms"`
	RegistrationMillis     int32 `kafka:"initial.broker.registration.timeout.ms"`
	ControlledShutdown     bool  `kafka:"controlled.shutdown.enable"`
	ControllerSocketMillis int32 `kafka:"controller.socket.timeout.ms"`
	RequestTimeoutMillis   int32 `kafka:"request.timeout.ms"`
	UnstableAPIVersions    bool  `kafka:"unstable.api.versions.enable"`
	UnstableFeatures       bool  `kafka:"unstable.feature.versions.enable"`
}

// Sockets holds the limits of the network layer.
type Sockets struct {
	RequestMaxBytes          int32  `kafka:"socket.request.max.bytes"`
	SendBufferBytes          int32  `kafka:"socket.send.buffer.bytes"`
	ReceiveBufferBytes       int32  `kafka:"socket.receive.buffer.bytes"`
	ListenBacklog            int32  `kafka:"socket.listen.backlog.size"`
	IdleMaxMillis            int64  `kafka:"connections.max.idle.ms"`
	MaxConnections           int32  `kafka:"max.connections"`
	MaxConnectionsPerIP      int32  `kafka:"max.connections.per.ip"`
	PerIPOverrides           string `kafka:"max.connections.per.ip.overrides"`
	MaxCreationRate          int32  `kafka:"max.connection.creation.rate"`
	QueuedMaxBytes           int64  `kafka:"queued.max.request.bytes"`
	QueuedMaxRequests        int32  `kafka:"queued.max.requests"`
	FetchSessionSlots        int32  `kafka:"max.incremental.fetch.session.cache.slots"`
	FetchMaxBytes            int32  `kafka:"fetch.max.bytes"`
	DescribePartitionsLimit  int32  `kafka:"max.request.partition.size.limit"`
	FailedAuthDelayMillis    int32  `kafka:"connection.failed.authentication.delay.ms"`
	SASLMaxReceiveBytes      int32  `kafka:"sasl.server.max.receive.size"`
	ConnectionSetupMillis    int64  `kafka:"socket.connection.setup.timeout.ms"`
	ConnectionSetupMaxMillis int64  `kafka:"socket.connection.setup.timeout.max.ms"`
	// ConnectionsPerHost is the parsed max.connections.per.ip.overrides.
	ConnectionsPerHost map[string]int
}

// Quorum holds the settings of the metadata quorum.
type Quorum struct {
	VoterSpecs               []string `kafka:"controller.quorum.voters"`
	BootstrapServers         []string `kafka:"controller.quorum.bootstrap.servers"`
	ElectionTimeoutMillis    int32    `kafka:"controller.quorum.election.timeout.ms"`
	ElectionBackoffMaxMillis int32    `kafka:"controller.quorum.election.backoff.max.ms"`
	FetchTimeoutMillis       int32    `kafka:"controller.quorum.fetch.timeout.ms"`
	RequestTimeoutMillis     int32    `kafka:"controller.quorum.request.timeout.ms"`
	RetryBackoffMillis       int32    `kafka:"controller.quorum.retry.backoff.ms"`
	AppendLingerMillis       int32    `kafka:"controller.quorum.append.linger.ms"`
	AutoJoin                 bool     `kafka:"controller.quorum.auto.join.enable"`
	FetchMaxBytes            int32    `kafka:"controller.quorum.fetch.max.bytes"`
	FetchSnapshotMaxBytes    int32    `kafka:"controller.quorum.fetch.snapshot.max.bytes"`
	// Voters is the parsed controller.quorum.voters; empty for a dynamic quorum.
	Voters []Voter
	// Bootstrap is the parsed controller.quorum.bootstrap.servers.
	Bootstrap []Address
}

// Voter is one entry of controller.quorum.voters: id@host:port.
type Voter struct {
	ID   int32
	Host string
	Port uint16
}

// Metadata holds the settings of the metadata log and its snapshots.
type Metadata struct {
	Dir                 string `kafka:"metadata.log.dir"`
	SegmentBytes        int32  `kafka:"metadata.log.segment.bytes"`
	InternalSegment     int32  `kafka:"internal.metadata.log.segment.bytes"`
	SegmentMillis       int64  `kafka:"metadata.log.segment.ms"`
	RetentionBytes      int64  `kafka:"metadata.max.retention.bytes"`
	RetentionMillis     int64  `kafka:"metadata.max.retention.ms"`
	SnapshotBytes       int64  `kafka:"metadata.log.max.record.bytes.between.snapshots"`
	SnapshotMillis      int64  `kafka:"metadata.log.max.snapshot.interval.ms"`
	MaxIdleMillis       int32  `kafka:"metadata.max.idle.interval.ms"`
	DeleteDelayMillis   int64  `kafka:"internal.metadata.delete.delay.millis"`
	LeaderImbalanceSecs int64  `kafka:"leader.imbalance.check.interval.seconds"`
	AutoRebalance       bool   `kafka:"auto.leader.rebalance.enable"`
	UncleanMillis       int64  `kafka:"unclean.leader.election.interval.ms"`
}

// Storage holds the settings of the log directories.
type Storage struct {
	Dir                       []string `kafka:"log.dir"`
	DirsKey                   []string `kafka:"log.dirs"`
	RecoveryThreads           int32    `kafka:"num.recovery.threads.per.data.dir"`
	FlushSchedulerMillis      int64    `kafka:"log.flush.scheduler.interval.ms"`
	RecoveryCheckpointMillis  int32    `kafka:"log.flush.offset.checkpoint.interval.ms"`
	StartCheckpointMillis     int32    `kafka:"log.flush.start.offset.checkpoint.interval.ms"`
	RetentionCheckMillis      int64    `kafka:"log.retention.check.interval.ms"`
	InitialTaskDelayMillis    int64    `kafka:"log.initial.task.delay.ms"`
	DirFailureTimeoutMillis   int64    `kafka:"log.dir.failure.timeout.ms"`
	CordonedDirs              []string `kafka:"cordoned.log.dirs"`
	HighWatermarkCheckpointMs int64    `kafka:"replica.high.watermark.checkpoint.interval.ms"`
	// Dirs are the log directories: log.dirs, or log.dir where that is not set.
	Dirs []string
}

// Cleaner holds the settings of log compaction.
type Cleaner struct {
	Enable           bool    `kafka:"log.cleaner.enable"`
	Threads          int32   `kafka:"log.cleaner.threads"`
	DedupeBytes      int64   `kafka:"log.cleaner.dedupe.buffer.size"`
	IOBufferBytes    int32   `kafka:"log.cleaner.io.buffer.size"`
	LoadFactor       float64 `kafka:"log.cleaner.io.buffer.load.factor"`
	MaxBytesPerSec   float64 `kafka:"log.cleaner.io.max.bytes.per.second"`
	BackoffMillis    int64   `kafka:"log.cleaner.backoff.ms"`
	DeleteRetentionM int64   `kafka:"log.cleaner.delete.retention.ms"`
}

// Topics holds what new topics get.
type Topics struct {
	AutoCreate         bool  `kafka:"auto.create.topics.enable"`
	Partitions         int32 `kafka:"num.partitions"`
	ReplicationFactor  int32 `kafka:"default.replication.factor"`
	DeleteEnable       bool  `kafka:"delete.topic.enable"`
	MinInsyncReplicas  int32 `kafka:"min.insync.replicas"`
	UncleanElection    bool  `kafka:"unclean.leader.election.enable"`
	MessageMaxBytes    int32 `kafka:"message.max.bytes"`
	TxnStatePartitions int32 `kafka:"transaction.state.log.num.partitions"`
	TxnStateFactor     int16 `kafka:"transaction.state.log.replication.factor"`
	TxnStateMinISR     int32 `kafka:"transaction.state.log.min.isr"`
	TxnStateSegment    int32 `kafka:"transaction.state.log.segment.bytes"`
	SharePartitions    int32 `kafka:"share.coordinator.state.topic.num.partitions"`
	ShareFactor        int16 `kafka:"share.coordinator.state.topic.replication.factor"`
	ShareMinISR        int16 `kafka:"share.coordinator.state.topic.min.isr"`
	ShareSegment       int32 `kafka:"share.coordinator.state.topic.segment.bytes"`
}

// Replication holds the settings of leaders and followers.
type Replication struct {
	LagTimeMaxMillis      int64  `kafka:"replica.lag.time.max.ms"`
	FetchMaxBytes         int32  `kafka:"replica.fetch.max.bytes"`
	FetchWaitMaxMillis    int32  `kafka:"replica.fetch.wait.max.ms"`
	FetchMinBytes         int32  `kafka:"replica.fetch.min.bytes"`
	FetchResponseMaxBytes int32  `kafka:"replica.fetch.response.max.bytes"`
	FetchBackoffMillis    int32  `kafka:"replica.fetch.backoff.ms"`
	SocketTimeoutMillis   int32  `kafka:"replica.socket.timeout.ms"`
	SocketReceiveBytes    int32  `kafka:"replica.socket.receive.buffer.bytes"`
	Fetchers              int32  `kafka:"num.replica.fetchers"`
	SelectorClass         string `kafka:"replica.selector.class"`
}

// Offsets holds the settings of __consumer_offsets and of committed offsets.
type Offsets struct {
	TopicPartitions     int32 `kafka:"offsets.topic.num.partitions"`
	TopicFactor         int16 `kafka:"offsets.topic.replication.factor"`
	TopicSegmentBytes   int32 `kafka:"offsets.topic.segment.bytes"`
	TopicCodec          int32 `kafka:"offsets.topic.compression.codec"`
	MetadataMaxBytes    int32 `kafka:"offset.metadata.max.bytes"`
	LoadBufferBytes     int32 `kafka:"offsets.load.buffer.size"`
	RetentionMinutes    int32 `kafka:"offsets.retention.minutes"`
	RetentionCheckMs    int64 `kafka:"offsets.retention.check.interval.ms"`
	CommitTimeoutMillis int32 `kafka:"offsets.commit.timeout.ms"`
}

// Groups holds the settings of the group coordinator (classic and KIP-848 protocols).
type Groups struct {
	Protocols                   []string `kafka:"group.coordinator.rebalance.protocols"`
	MinSessionMillis            int32    `kafka:"group.min.session.timeout.ms"`
	MaxSessionMillis            int32    `kafka:"group.max.session.timeout.ms"`
	InitialRebalanceMillis      int32    `kafka:"group.initial.rebalance.delay.ms"`
	MaxSize                     int32    `kafka:"group.max.size"`
	ConsumerSessionMillis       int32    `kafka:"group.consumer.session.timeout.ms"`
	ConsumerMinSessionMillis    int32    `kafka:"group.consumer.min.session.timeout.ms"`
	ConsumerMaxSessionMillis    int32    `kafka:"group.consumer.max.session.timeout.ms"`
	ConsumerHeartbeatMillis     int32    `kafka:"group.consumer.heartbeat.interval.ms"`
	ConsumerMinHeartbeatMillis  int32    `kafka:"group.consumer.min.heartbeat.interval.ms"`
	ConsumerMaxHeartbeatMillis  int32    `kafka:"group.consumer.max.heartbeat.interval.ms"`
	ConsumerMaxSize             int32    `kafka:"group.consumer.max.size"`
	ConsumerAssignors           []string `kafka:"group.consumer.assignors"`
	ConsumerMigrationPolicy     string   `kafka:"group.consumer.migration.policy"`
	ConsumerRegexRefreshMillis  int32    `kafka:"group.consumer.regex.refresh.interval.ms"`
	ConsumerAssignmentMillis    int32    `kafka:"group.consumer.assignment.interval.ms"`
	ConsumerMinAssignmentMillis int32    `kafka:"group.consumer.min.assignment.interval.ms"`
	ConsumerMaxAssignmentMillis int32    `kafka:"group.consumer.max.assignment.interval.ms"`
}

// Producers holds the settings of producer ids and transactions.
type Producers struct {
	IDExpirationMillis      int32 `kafka:"producer.id.expiration.ms"`
	IDExpirationCheckMillis int32 `kafka:"producer.id.expiration.check.interval.ms"`
	TxnMaxTimeoutMillis     int32 `kafka:"transaction.max.timeout.ms"`
	TxnIDExpirationMillis   int32 `kafka:"transactional.id.expiration.ms"`
}

// Warning is something that the operator should know but that does not stop the start.
type Warning struct {
	// Where is "file:line", "environment NAME" or "--override".
	Where, Key, Message string
}

func (w Warning) String() string { return fmt.Sprintf("%s: %s: %s", w.Where, w.Key, w.Message) }

// Error is a config that the node cannot run with.
type Error struct {
	Where, Key, Message string
}

func (e *Error) Error() string {
	switch {
	case e.Where == "":
		return e.Key + ": " + e.Message
	case e.Key == "":
		return e.Where + ": " + e.Message
	}
	return fmt.Sprintf("%s: %s: %s", e.Where, e.Key, e.Message)
}

// OffsetsRetention is offsets.retention.minutes as a duration.
func (o Offsets) OffsetsRetention() time.Duration {
	return time.Duration(o.RetentionMinutes) * time.Minute
}
