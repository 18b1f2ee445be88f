package storage

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
)

// Sentinels of topic configs that are numbers.
const (
	// Unlimited is the value of retention.bytes, retention.ms, remote.copy.lag.* that switches the limit off.
	Unlimited int64 = -1
	// LocalRetentionAsTotal is the value of local.retention.* that means "the same as retention.*".
	LocalRetentionAsTotal int64 = -2

	minSegmentBytes = 1 << 20
)

// LogConfig is the typed view of the topic configs (kafka-4.4 names in the comments) that a log, its cleaner or
// the checks in front of it act on. Make one with DefaultLogConfig and With; it is a value, never changed in
// place.
type LogConfig struct {
	SegmentConfig
	FlushConfig
	RetentionConfig
	CompactionConfig
	MessageConfig
	ReplicaConfig
	RemoteConfig
}

// SegmentConfig is about segment files.
type SegmentConfig struct {
	SegmentBytes        int32 // segment.bytes; internal.segment.bytes wins when set (and may be below 1 MiB)
	SegmentMillis       int64 // segment.ms
	SegmentJitterMillis int64 // segment.jitter.ms
	SegmentIndexBytes   int32 // segment.index.bytes
	IndexIntervalBytes  int32 // index.interval.bytes
	Preallocate         bool  // preallocate
	// KeepActiveIndexSize leaves the indexes of the active segment at their full size on a clean close, as
	// Kafka does for __cluster_metadata-0. Not a topic config.
	KeepActiveIndexSize bool
}

// FlushConfig is about forced syncs.
type FlushConfig struct {
	FlushMessages int64 // flush.messages: sync when this many records are unsynced
	FlushMillis   int64 // flush.ms: sync at the latest after this time
}

// RetentionConfig is about deleting old segments.
type RetentionConfig struct {
	CleanupDelete         bool  // cleanup.policy contains delete
	CleanupCompact        bool  // cleanup.policy contains compact
	RetentionMillis       int64 // retention.ms, Unlimited
	RetentionBytes        int64 // retention.bytes, Unlimited
	FileDeleteDelayMillis int64 // file.delete.delay.ms
}

// CompactionConfig is about the cleaner.
type CompactionConfig struct {
	MinCleanableDirtyRatio float64 // min.cleanable.dirty.ratio
	MinCompactionLagMillis int64   // min.compaction.lag.ms
	MaxCompactionLagMillis int64   // max.compaction.lag.ms
	DeleteRetentionMillis  int64   // delete.retention.ms
}

// MessageConfig is about what a leader accepts and how it stores it.
type MessageConfig struct {
	MaxMessageBytes             int32  // max.message.bytes
	MaxDecompressedMessageBytes int32  // max.decompressed.message.bytes
	LogAppendTime               bool   // message.timestamp.type is LogAppendTime, not CreateTime
	TimestampBeforeMaxMillis    int64  // message.timestamp.before.max.ms
	TimestampAfterMaxMillis     int64  // message.timestamp.after.max.ms
	CompressionType             string // compression.type: producer, uncompressed, gzip, snappy, lz4, zstd
	GzipLevel                   int    // compression.gzip.level, -1 the library's
	LZ4Level                    int    // compression.lz4.level
	ZstdLevel                   int    // compression.zstd.level
}

// ReplicaConfig is about replication; the log does not act on it, the partition does.
type ReplicaConfig struct {
	MinInSyncReplicas     int32 // min.insync.replicas
	UncleanLeaderElection bool  // unclean.leader.election.enable
}

// RemoteConfig is about tiered storage.
type RemoteConfig struct {
	RemoteStorageEnable   bool  // remote.storage.enable
	RemoteCopyDisable     bool  // remote.log.copy.disable
	RemoteDeleteOnDisable bool  // remote.log.delete.on.disable
	RemoteCopyLagBytes    int64 // remote.copy.lag.bytes, Unlimited
	RemoteCopyLagMillis   int64 // remote.copy.lag.ms, Unlimited
	LocalRetentionMillis  int64 // local.retention.ms, LocalRetentionAsTotal, Unlimited
	LocalRetentionBytes   int64 // local.retention.bytes, LocalRetentionAsTotal, Unlimited
}

// DefaultLogConfig returns Kafka's defaults.
func DefaultLogConfig() LogConfig {
	return LogConfig{
		SegmentConfig: SegmentConfig{
			SegmentBytes: 1 << 30, SegmentMillis: 604800000, SegmentIndexBytes: 10485760, IndexIntervalBytes: 4096,
		},
		FlushConfig:     FlushConfig{FlushMessages: math.MaxInt64, FlushMillis: math.MaxInt64},
		RetentionConfig: RetentionConfig{CleanupDelete: true, RetentionMillis: 604800000, RetentionBytes: Unlimited, FileDeleteDelayMillis: 60000},
		CompactionConfig: CompactionConfig{
			MinCleanableDirtyRatio: 0.5, MaxCompactionLagMillis: math.MaxInt64, DeleteRetentionMillis: 86400000,
		},
		MessageConfig: MessageConfig{
			MaxMessageBytes: 1048588, MaxDecompressedMessageBytes: math.MaxInt32 - 8,
			TimestampBeforeMaxMillis: math.MaxInt64, TimestampAfterMaxMillis: 3600000,
			CompressionType: "producer", GzipLevel: -1, LZ4Level: 9, ZstdLevel: 3,
		},
		ReplicaConfig: ReplicaConfig{MinInSyncReplicas: 1},
		RemoteConfig: RemoteConfig{
			RemoteCopyLagBytes: Unlimited, LocalRetentionMillis: LocalRetentionAsTotal, LocalRetentionBytes: LocalRetentionAsTotal,
		},
	}
}

// LocalRetention returns the effective limits for the segments on this disk: those of local.retention.* when
// tiered storage is on, those of retention.* otherwise.
func (c LogConfig) LocalRetention() (millis, bytes int64) {
	millis, bytes = c.RetentionMillis, c.RetentionBytes
	if !c.RemoteStorageEnable {
		return millis, bytes
	}
	if c.LocalRetentionMillis != LocalRetentionAsTotal {
		millis = c.LocalRetentionMillis
	}
	if c.LocalRetentionBytes != LocalRetentionAsTotal {
		bytes = c.LocalRetentionBytes
	}
	return millis, bytes
}

// ErrInvalidConfig marks a topic config whose value a log cannot act on; the text names key and value.
var ErrInvalidConfig = errors.New("invalid topic config")

// With returns the config with the given topic configs (by Kafka's names) set. Names that no log acts on are
// passed over: they are validated where they are stored.
func (c LogConfig) With(overrides map[string]string) (LogConfig, error) {
	for name, value := range overrides {
		set, ok := configSetters[name]
		if !ok || name == internalSegmentBytes {
			continue
		}
		if err := set(&c, strings.TrimSpace(value)); err != nil {
			return LogConfig{}, fmt.Errorf("%w: %s=%q: %w", ErrInvalidConfig, name, value, err)
		}
	}
	if value, ok := overrides[internalSegmentBytes]; ok && value != "" {
		// Last, because it wins over segment.bytes.
		if err := configSetters[internalSegmentBytes](&c, value); err != nil {
			return LogConfig{}, fmt.Errorf("%w: %s=%q: %w", ErrInvalidConfig, internalSegmentBytes, value, err)
		}
	}
	return c, nil
}

const internalSegmentBytes = "internal.segment.bytes"

type configSetter func(c *LogConfig, value string) error

// int64Setter parses an integer of at least low and at most high.
func int64Setter(low, high int64, set func(c *LogConfig, v int64)) configSetter {
	return func(c *LogConfig, value string) error {
		v, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return errors.New("not a number")
		}
		if v < low || v > high {
			return fmt.Errorf("must be in [%d, %d]", low, high)
		}
		set(c, v)
		return nil
	}
}

func boolSetter(set func(c *LogConfig, v bool)) configSetter {
	return func(c *LogConfig, value string) error {
		switch strings.ToLower(value) {
		case "true":
			set(c, true)
		case "false":
			set(c, false)
		default:
			return errors.New("must be true or false")
		}
		return nil
	}
}

func setCleanupPolicy(c *LogConfig, value string) error {
	c.CleanupDelete, c.CleanupCompact = false, false
	for policy := range strings.SplitSeq(value, ",") {
		switch strings.TrimSpace(policy) {
		case "delete":
			c.CleanupDelete = true
		case "compact":
			c.CleanupCompact = true
		case "":
			// An empty list keeps everything.
		default:
			return errors.New("must be a list of delete and compact")
		}
	}
	return nil
}

func setCompressionType(c *LogConfig, value string) error {
	switch value {
	case "producer", "uncompressed", "gzip", "snappy", "lz4", "zstd":
		c.CompressionType = value
		return nil
	}
	return errors.New("must be one of uncompressed, zstd, lz4, snappy, gzip, producer")
}

func setTimestampType(c *LogConfig, value string) error {
	switch value {
	case "CreateTime":
		c.LogAppendTime = false
	case "LogAppendTime":
		c.LogAppendTime = true
	default:
		return errors.New("must be CreateTime or LogAppendTime")
	}
	return nil
}

func setDirtyRatio(c *LogConfig, value string) error {
	v, err := strconv.ParseFloat(value, 64)
	if err != nil || !(v >= 0 && v <= 1) {
		return errors.New("must be a number in [0, 1]")
	}
	c.MinCleanableDirtyRatio = v
	return nil
}

var configSetters = map[string]configSetter{
	"segment.bytes":                  int64Setter(minSegmentBytes, math.MaxInt32, func(c *LogConfig, v int64) { c.SegmentBytes = int32(v) }),
	internalSegmentBytes:             int64Setter(1, math.MaxInt32, func(c *LogConfig, v int64) { c.SegmentBytes = int32(v) }),
	"segment.ms":                     int64Setter(1, math.MaxInt64, func(c *LogConfig, v int64) { c.SegmentMillis = v }),
	"segment.jitter.ms":              int64Setter(0, math.MaxInt64, func(c *LogConfig, v int64) { c.SegmentJitterMillis = v }),
	"segment.index.bytes":            int64Setter(4, math.MaxInt32, func(c *LogConfig, v int64) { c.SegmentIndexBytes = int32(v) }),
	"index.interval.bytes":           int64Setter(0, math.MaxInt32, func(c *LogConfig, v int64) { c.IndexIntervalBytes = int32(v) }),
	"preallocate":                    boolSetter(func(c *LogConfig, v bool) { c.Preallocate = v }),
	"flush.messages":                 int64Setter(1, math.MaxInt64, func(c *LogConfig, v int64) { c.FlushMessages = v }),
	"flush.ms":                       int64Setter(0, math.MaxInt64, func(c *LogConfig, v int64) { c.FlushMillis = v }),
	"cleanup.policy":                 setCleanupPolicy,
	"retention.ms":                   int64Setter(-1, math.MaxInt64, func(c *LogConfig, v int64) { c.RetentionMillis = v }),
	"retention.bytes":                int64Setter(math.MinInt64, math.MaxInt64, func(c *LogConfig, v int64) { c.RetentionBytes = v }),
	"file.delete.delay.ms":           int64Setter(0, math.MaxInt64, func(c *LogConfig, v int64) { c.FileDeleteDelayMillis = v }),
	"min.cleanable.dirty.ratio":      setDirtyRatio,
	"min.compaction.lag.ms":          int64Setter(0, math.MaxInt64, func(c *LogConfig, v int64) { c.MinCompactionLagMillis = v }),
	"max.compaction.lag.ms":          int64Setter(1, math.MaxInt64, func(c *LogConfig, v int64) { c.MaxCompactionLagMillis = v }),
	"delete.retention.ms":            int64Setter(0, math.MaxInt64, func(c *LogConfig, v int64) { c.DeleteRetentionMillis = v }),
	"max.message.bytes":              int64Setter(0, math.MaxInt32, func(c *LogConfig, v int64) { c.MaxMessageBytes = int32(v) }),
	"max.decompressed.message.bytes": int64Setter(1, math.MaxInt32-8, func(c *LogConfig, v int64) { c.MaxDecompressedMessageBytes = int32(v) }),
	"message.timestamp.type":         setTimestampType,
	"message.timestamp.before.max.ms": int64Setter(0, math.MaxInt64, func(c *LogConfig, v int64) {
		c.TimestampBeforeMaxMillis = v
	}),
	"message.timestamp.after.max.ms": int64Setter(0, math.MaxInt64, func(c *LogConfig, v int64) { c.TimestampAfterMaxMillis = v }),
	"compression.type":               setCompressionType,
	"compression.gzip.level":         int64Setter(-1, 9, func(c *LogConfig, v int64) { c.GzipLevel = int(v) }),
	"compression.lz4.level":          int64Setter(1, 17, func(c *LogConfig, v int64) { c.LZ4Level = int(v) }),
	"compression.zstd.level":         int64Setter(-131072, 22, func(c *LogConfig, v int64) { c.ZstdLevel = int(v) }),
	"min.insync.replicas":            int64Setter(1, math.MaxInt32, func(c *LogConfig, v int64) { c.MinInSyncReplicas = int32(v) }),
	"unclean.leader.election.enable": boolSetter(func(c *LogConfig, v bool) { c.UncleanLeaderElection = v }),
	"remote.storage.enable":          boolSetter(func(c *LogConfig, v bool) { c.RemoteStorageEnable = v }),
	"remote.log.copy.disable":        boolSetter(func(c *LogConfig, v bool) { c.RemoteCopyDisable = v }),
	"remote.log.delete.on.disable":   boolSetter(func(c *LogConfig, v bool) { c.RemoteDeleteOnDisable = v }),
	"remote.copy.lag.bytes":          int64Setter(-1, math.MaxInt64, func(c *LogConfig, v int64) { c.RemoteCopyLagBytes = v }),
	"remote.copy.lag.ms":             int64Setter(-1, math.MaxInt64, func(c *LogConfig, v int64) { c.RemoteCopyLagMillis = v }),
	"local.retention.ms":             int64Setter(-2, math.MaxInt64, func(c *LogConfig, v int64) { c.LocalRetentionMillis = v }),
	"local.retention.bytes":          int64Setter(-2, math.MaxInt64, func(c *LogConfig, v int64) { c.LocalRetentionBytes = v }),
}

// sharedConfigs has logs with equal configs share them: the partitions of a topic, and most topics. It knows the
// configs that it saw last.
type sharedConfigs struct {
	mu     sync.Mutex
	recent [4]*LogConfig
	next   int
}

// of returns a config equal to c that is never changed.
func (s *sharedConfigs) of(c LogConfig) *LogConfig {
	if s == nil {
		return &c
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, known := range s.recent {
		if known != nil && *known == c {
			return known
		}
	}
	s.recent[s.next] = &c
	s.next = (s.next + 1) % len(s.recent)
	return &c
}
