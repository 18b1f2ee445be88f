package groupcoord

import (
	"crypto/rand"
	"fmt"
	"log/slog"
	"math"
	"time"

	"gregor/groupcoord/classic"
	"gregor/groupcoord/consumer"
	"gregor/groupcoord/offsets"
	"gregor/internal/coordinator"
	"gregor/kraft/image"
	"gregor/protocol/record"
)

// Caller is where a request comes from.
type Caller struct {
	// ClientID of the request's header, and the client's address with a slash
	// before it, as Kafka stores it.
	ClientID, ClientHost string
	// MayDescribe returns those of the topics that the client may describe, for
	// patterns; nil means all. It may be called long after the request.
	MayDescribe func(topics []string) []string
}

func (c Caller) classic() classic.Caller {
	return classic.Caller{ClientID: c.ClientID, ClientHost: c.ClientHost}
}

func (c Caller) consumer() consumer.Caller {
	return consumer.Caller{ClientID: c.ClientID, ClientHost: c.ClientHost, MayDescribe: c.MayDescribe}
}

// Migration is group.consumer.migration.policy: which conversions between the
// classic and the consumer protocol are allowed while a group has members.
type Migration struct{ Upgrade, Downgrade bool }

// DeletedTopic is a topic that exists no more.
type DeletedTopic = offsets.DeletedTopic

// Config of the coordinator, by the broker config that it comes from.
type Config struct {
	// Classic groups: group.max.size, group.initial.rebalance.delay.ms,
	// group.min.session.timeout.ms, group.max.session.timeout.ms.
	Classic classic.Config
	// Consumer groups: group.consumer.assignors, group.consumer.max.size,
	// group.consumer.regex.refresh.interval.ms, and the defaults of the groups'
	// own configs: group.consumer.session.timeout.ms,
	// group.consumer.heartbeat.interval.ms, group.consumer.assignment.interval.ms.
	Consumer  consumer.Config
	Migration Migration
	// Bounds of the groups' own configs.
	ConsumerBounds ConsumerBounds
	// Offsets: offset.metadata.max.bytes, offsets.retention.minutes.
	Offsets offsets.Config
	// RetentionCheckInterval is offsets.retention.check.interval.ms.
	RetentionCheckInterval time.Duration
	// CommitTimeout is offsets.commit.timeout.ms: how long a write waits for the
	// replicas.
	CommitTimeout time.Duration
	// LoadBufferBytes is offsets.load.buffer.size.
	LoadBufferBytes int
	// Compression is offsets.topic.compression.codec.
	Compression record.Codec
}

// ConsumerBounds are group.consumer.min.* and group.consumer.max.*.
type ConsumerBounds struct{ Min, Max consumer.GroupConfig }

// DefaultConfig returns Kafka's defaults.
func DefaultConfig() Config {
	return Config{
		Classic: classic.Config{
			MaxSize: math.MaxInt32, InitialRebalanceDelay: 3 * time.Second, NewMemberJoinTimeout: 5 * time.Minute,
			MinSessionTimeoutMillis: 6000, MaxSessionTimeoutMillis: 1_800_000,
		},
		Consumer: consumer.Config{
			Assignors: []string{"uniform", "range"}, MaxSize: math.MaxInt32, RegexRefreshInterval: 10 * time.Minute,
			Defaults: consumer.GroupConfig{SessionTimeout: 45 * time.Second, HeartbeatInterval: 5 * time.Second, AssignmentInterval: time.Second},
		},
		ConsumerBounds: ConsumerBounds{
			Min: consumer.GroupConfig{SessionTimeout: 45 * time.Second, HeartbeatInterval: 5 * time.Second},
			Max: consumer.GroupConfig{SessionTimeout: time.Minute, HeartbeatInterval: 15 * time.Second, AssignmentInterval: 15 * time.Second},
		},
		Migration:              Migration{Upgrade: true, Downgrade: true},
		Offsets:                offsets.Config{MetadataMaxBytes: 4096, RetentionMillis: 10080 * 60_000},
		RetentionCheckInterval: 10 * time.Minute,
		CommitTimeout:          5 * time.Second,
		LoadBufferBytes:        5 << 20,
	}
}

// Options of a [Coordinator].
type Options struct {
	Config Config
	// Log gives access to the partitions of __consumer_offsets.
	Log coordinator.Log
	// NumPartitions returns how many partitions __consumer_offsets has, or will
	// have when it is created.
	NumPartitions func() int32
	// Image is the present image of the cluster; Publish tells of its changes.
	Image func() *image.Image
	// NewUUID makes the random part of member ids; a random UUID when not set.
	NewUUID func() string
	Events  Events
	Logger  *slog.Logger
}

// Events is told what happens. Unset functions are not called.
type Events struct {
	Runtime coordinator.Events
	// RebalanceCompleted is called when a classic group becomes stable.
	RebalanceCompleted func()
	// ConsumerRebalanced is called when the epoch of a consumer group is bumped.
	ConsumerRebalanced func()
	// OffsetsCommitted is called with the number of offsets of each commit.
	OffsetsCommitted func(n int)
	// OffsetsDeleted is called with the number of partitions of an OffsetDelete.
	OffsetsDeleted func(n int)
}

func (e *Events) rebalanceCompleted() {
	if e.RebalanceCompleted != nil {
		e.RebalanceCompleted()
	}
}

func (e *Events) consumerRebalanced() {
	if e.ConsumerRebalanced != nil {
		e.ConsumerRebalanced()
	}
}

// newMemberUUID is a random UUID in its usual form, which ends a member id.
func newMemberUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
