package replica

import (
	"fmt"

	"gregor/protocol/record"
	"gregor/storage"
)

// Config is the config of a partition's topic as appends act on it.
type Config struct {
	*storage.LogConfig
	// TargetCodec is what batches are stored with; CodecProducer keeps the producer's choice.
	TargetCodec record.Codec
	// Level is the compression level for TargetCodec.
	Level int
}

// LogConfig is the topic's config in force.
func (p *Partition) LogConfig() *Config { return p.config.Load() }

// Name is topic-partition, as Kafka writes it in messages.
func (p *Partition) Name() string { return p.name }

// setConfig makes a new topic config take effect.
func (p *Partition) setConfig(c storage.LogConfig) {
	p.log.UpdateConfig(c)
	p.config.Store(newConfig(p.log.Config()))
}

func newConfig(c *storage.LogConfig) *Config {
	out := &Config{LogConfig: c, TargetCodec: record.CodecProducer, Level: record.DefaultLevel}
	switch c.CompressionType {
	case "uncompressed":
		out.TargetCodec = record.CodecNone
	case "gzip":
		out.TargetCodec, out.Level = record.CodecGzip, c.GzipLevel
	case "snappy":
		out.TargetCodec = record.CodecSnappy
	case "lz4":
		out.TargetCodec, out.Level = record.CodecLZ4, c.LZ4Level
	case "zstd":
		out.TargetCodec, out.Level = record.CodecZstd, c.ZstdLevel
	}
	return out
}

func partitionName(topic string, index int32) string { return fmt.Sprintf("%s-%d", topic, index) }
