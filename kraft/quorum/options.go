package quorum

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"gregor/protocol"
	"gregor/storage/vfs"
)

// Topic is the name of the metadata topic; it has one partition, 0.
const Topic = "__cluster_metadata"

// TopicID is the id of the metadata topic.
var TopicID = protocol.UUID{15: 1}

// DirName is the name of the log's directory inside the metadata log dir.
const DirName = Topic + "-0"

// Options open a Node. NodeID, ClusterID, FS and Dir are required; a voter needs DirectoryID, and Transport unless
// it stays the only one.
type Options struct {
	NodeID      int32
	DirectoryID protocol.UUID // directory.id of the metadata log dir's meta.properties
	ClusterID   string
	FS          vfs.FS
	Dir         string // the directory `__cluster_metadata-0`; made when missing

	// Observer makes a node without the controller role: it follows the log and never votes.
	Observer bool
	// StaticVoters is controller.quorum.voters. It counts only while the log is of kraft.version 0.
	StaticVoters []Voter

	Transport Transport
	Log       LogOptions
	Timing    Timing
	Logger    *slog.Logger // nil for none
}

// LogOptions are the metadata.log.* and metadata.max.retention.* configs. Zero is Kafka's default.
type LogOptions struct {
	SegmentBytes    int32 // metadata.log.segment.bytes
	SegmentMillis   int64 // metadata.log.segment.ms
	RetentionBytes  int64 // metadata.max.retention.bytes; log and snapshots together, -1 for no limit
	RetentionMillis int64 // metadata.max.retention.ms; -1 for no limit
	// FileDeleteDelayMillis is internal.metadata.delete.delay.millis.
	FileDeleteDelayMillis int64
	// MaxUncommittedBytes bounds what Propose takes before it is committed.
	MaxUncommittedBytes int
}

// Timing is how fast the quorum notices failures. Zero is the default.
type Timing struct {
	// ElectionTimeout is how long a follower waits for its leader before it campaigns, at least; up to twice as
	// long, at random. Kafka's controller.quorum.election.timeout.ms (1 s) and fetch.timeout.ms (2 s) meet in it.
	ElectionTimeout time.Duration
	// TickInterval is the unit in which timeouts are counted. Heartbeats go out every fifth of the election
	// timeout.
	TickInterval time.Duration
}

// Peer is where a message goes.
type Peer struct {
	ID          int32
	DirectoryID protocol.UUID // zero when unknown
	Endpoints   []Endpoint    // empty when unknown: the transport then resolves the id by its own means
}

// Transport carries messages between the controllers. It may lose, delay, duplicate and reorder them.
type Transport interface {
	// Send queues a message and returns at once; it drops the message when the peer's queue is full. The message
	// belongs to the transport.
	Send(to Peer, msg []byte)
}

// Errors of a Node. Those that clients see are mapped to Kafka's codes by kerr.go.
var (
	// ErrClosed says that the node was stopped or has failed.
	ErrClosed = errors.New("metadata quorum is closed")
	// ErrCorrupt marks bytes that are not what was written: a snapshot, the log, or a peer's message.
	ErrCorrupt = errors.New("corrupt metadata log data")
	// ErrTooManyUncommitted says that the proposals that wait for their commit fill their buffer.
	ErrTooManyUncommitted = errors.New("too many uncommitted metadata records")
	// ErrRecordTooLarge says that a proposed record does not fit a batch or a segment.
	ErrRecordTooLarge = errors.New("metadata record too large")
	// ErrSnapshotExists says that the snapshot is there already or older than the newest one.
	ErrSnapshotExists = errors.New("metadata snapshot exists already")
	// ErrSnapshotOffset says that a snapshot cannot end at an offset: it is not committed, not a batch's end, or
	// below the log start.
	ErrSnapshotOffset = errors.New("metadata snapshot offset is not the end of a committed batch")
	// ErrLogLost says that this replica lacks what it had acknowledged; it must not go on (etcd raft's "tocommit
	// is out of range").
	ErrLogLost = errors.New("metadata log of this node lost acknowledged entries")
	// ErrWrongPeer says that a message is for, or from, another cluster, node or directory.
	ErrWrongPeer = errors.New("message of another cluster, node or directory")
)

func (o *Options) setDefaults() error {
	if o.NodeID < 0 || o.FS == nil || o.Dir == "" || o.ClusterID == "" {
		return fmt.Errorf("quorum: node id %d, directory %q and cluster id %q must be set", o.NodeID, o.Dir, o.ClusterID)
	}
	o.Dir = filepath.Clean(o.Dir)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Log.setDefaults()
	if o.Timing.TickInterval <= 0 {
		o.Timing.TickInterval = 100 * time.Millisecond
	}
	if o.Timing.ElectionTimeout <= 0 {
		o.Timing.ElectionTimeout = time.Second
	}
	return nil
}

func (l *LogOptions) setDefaults() {
	if l.SegmentBytes == 0 {
		l.SegmentBytes = 1 << 30
	}
	if l.SegmentMillis == 0 {
		l.SegmentMillis = 7 * 24 * 3600 * 1000
	}
	if l.RetentionBytes == 0 {
		l.RetentionBytes = 100 << 20
	}
	if l.RetentionMillis == 0 {
		l.RetentionMillis = 7 * 24 * 3600 * 1000
	}
	if l.FileDeleteDelayMillis == 0 {
		l.FileDeleteDelayMillis = 60000
	}
	if l.MaxUncommittedBytes == 0 {
		l.MaxUncommittedBytes = 64 << 20
	}
}

// electionTicks is the least number of ticks without a leader before a campaign.
func (t Timing) electionTicks() int {
	return max(5, int((t.ElectionTimeout+t.TickInterval-1)/t.TickInterval))
}

// heartbeatTicks is the number of ticks between two heartbeats of a leader.
func (t Timing) heartbeatTicks() int { return max(1, t.electionTicks()/5) }
