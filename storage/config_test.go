package storage

import (
	"errors"
	"math"
	"strings"
	"testing"
)

func TestConfigOverridesAreTyped(t *testing.T) {
	c, err := DefaultLogConfig().With(map[string]string{
		"segment.bytes": "2097152", "segment.ms": "5", "segment.jitter.ms": "3", "segment.index.bytes": "4096",
		"index.interval.bytes": "0", "preallocate": "True", "flush.messages": "1", "flush.ms": "0",
		"cleanup.policy": "compact, delete", "retention.ms": "-1", "retention.bytes": "7", "file.delete.delay.ms": "0",
		"min.cleanable.dirty.ratio": "0.25", "min.compaction.lag.ms": "1", "max.compaction.lag.ms": "2",
		"delete.retention.ms": "0", "max.message.bytes": "9", "max.decompressed.message.bytes": "10",
		"message.timestamp.type": "LogAppendTime", "message.timestamp.before.max.ms": "11",
		"message.timestamp.after.max.ms": "12", "compression.type": "zstd", "compression.gzip.level": "1",
		"compression.lz4.level": "2", "compression.zstd.level": "-3", "min.insync.replicas": "2",
		"unclean.leader.election.enable": "true", "remote.storage.enable": "true", "remote.log.copy.disable": "true",
		"remote.log.delete.on.disable": "true", "remote.copy.lag.bytes": "-1", "remote.copy.lag.ms": "4",
		"local.retention.ms": "13", "local.retention.bytes": "14", "leader.replication.throttled.replicas": "0:1",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := LogConfig{
		SegmentConfig:    SegmentConfig{SegmentBytes: 2097152, SegmentMillis: 5, SegmentJitterMillis: 3, SegmentIndexBytes: 4096, Preallocate: true},
		FlushConfig:      FlushConfig{FlushMessages: 1},
		RetentionConfig:  RetentionConfig{CleanupDelete: true, CleanupCompact: true, RetentionMillis: -1, RetentionBytes: 7},
		CompactionConfig: CompactionConfig{MinCleanableDirtyRatio: 0.25, MinCompactionLagMillis: 1, MaxCompactionLagMillis: 2},
		MessageConfig: MessageConfig{
			MaxMessageBytes: 9, MaxDecompressedMessageBytes: 10, LogAppendTime: true, TimestampBeforeMaxMillis: 11,
			TimestampAfterMaxMillis: 12, CompressionType: "zstd", GzipLevel: 1, LZ4Level: 2, ZstdLevel: -3,
		},
		ReplicaConfig: ReplicaConfig{MinInSyncReplicas: 2, UncleanLeaderElection: true},
		RemoteConfig: RemoteConfig{
			RemoteStorageEnable: true, RemoteCopyDisable: true, RemoteDeleteOnDisable: true, RemoteCopyLagBytes: -1,
			RemoteCopyLagMillis: 4, LocalRetentionMillis: 13, LocalRetentionBytes: 14,
		},
	}
	if c != want {
		t.Errorf("got  %+v\nwant %+v", c, want)
	}
}

func TestInternalSegmentBytesWinsAndMayBeSmall(t *testing.T) {
	c, err := DefaultLogConfig().With(map[string]string{"segment.bytes": "1048576", "internal.segment.bytes": "100"})
	if err != nil || c.SegmentBytes != 100 {
		t.Fatalf("got %d, %v", c.SegmentBytes, err)
	}
}

func TestConfigErrorNamesKeyAndValue(t *testing.T) {
	for name, value := range map[string]string{
		"segment.bytes": "1024", "segment.ms": "x", "preallocate": "yes", "cleanup.policy": "drop",
		"min.cleanable.dirty.ratio": "NaN", "compression.type": "brotli", "message.timestamp.type": "Never",
		"compression.lz4.level": "18", "internal.segment.bytes": "0", "retention.ms": "-2",
	} {
		_, err := DefaultLogConfig().With(map[string]string{name: value})
		if !errors.Is(err, ErrInvalidConfig) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), value) {
			t.Errorf("%s=%s: %v", name, value, err)
		}
	}
}

func TestLocalRetentionFollowsTotalUnlessTiered(t *testing.T) {
	c := DefaultLogConfig()
	c.RetentionMillis, c.RetentionBytes, c.LocalRetentionMillis = 10, 20, 5
	if ms, b := c.LocalRetention(); ms != 10 || b != 20 {
		t.Errorf("not tiered: %d, %d", ms, b)
	}
	c.RemoteStorageEnable = true
	if ms, b := c.LocalRetention(); ms != 5 || b != 20 {
		t.Errorf("tiered: %d, %d", ms, b)
	}
	if c.FlushMillis != math.MaxInt64 {
		t.Errorf("flush.ms is off by default, got %d", c.FlushMillis)
	}
}
