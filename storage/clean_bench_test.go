package storage

import (
	"encoding/binary"
	"iter"
	"math/rand/v2"
	"testing"

	"gregor/protocol/record"
	"gregor/storage/cleaner"
	"gregor/storage/vfs"
)

// cleanShape is a log for the cleaner to go over.
type cleanShape struct {
	bytes, recordBytes, perBatch int
	codec                        record.Codec
	// cleanBytes of it have keys of their own and were cleaned before.
	cleanBytes int
}

// benchKey is a key like most: an id in text.
func benchKey(n int) []byte { return binary.BigEndian.AppendUint64([]byte("customer-"), uint64(n)) }

// fill writes the log: first what is clean, then records of which each tenth is the last of its key.
func (s *cleanShape) fill(b *testing.B, l *Log) {
	b.Helper()
	const liveShare = 10
	clean, records := s.cleanBytes/s.recordBytes, s.bytes/s.recordBytes
	keys := max((records-clean)/liveShare, 1)
	random := rand.NewChaCha8([32]byte{})
	value := make([]byte, s.recordBytes-len(benchKey(0)))
	var cleanedTo int64
	for at := 0; at < records; at += s.perBatch {
		builder := record.NewBuilder(record.BuilderOptions{Codec: s.codec})
		for i := at; i < at+s.perBatch; i++ {
			key := records + i // met only once
			if i >= clean {
				key = (i - clean) % keys
			}
			_, _ = random.Read(value[:len(value)/4]) // some of it compresses
			builder.Add(1, benchKey(key), value, nil)
		}
		_, err := l.AppendAsLeader(builder.Bytes(), 0, AppendOptions{AloneInSync: true})
		must(b, err)
		if at < clean {
			cleanedTo = int64(at + s.perBatch)
		}
	}
	must(b, l.Roll())
	must(b, l.Flush(l.State().LogEndOffset))
	must(b, l.setCleanedTo(cleanedTo, l.State().Generation()))
}

// signallingLog is the only log of a cleaner, and says when it has been cleaned.
type signallingLog struct {
	cleanable
	done chan struct{}
}

// SetCleanedTo implements cleaner.Log.
func (s *signallingLog) SetCleanedTo(v *cleaner.View, offset int64) error {
	err := s.cleanable.SetCleanedTo(v, offset)
	close(s.done)
	return err
}

// Compacted implements cleaner.Logs.
func (s *signallingLog) Compacted() iter.Seq[cleaner.Log] {
	return func(yield func(cleaner.Log) bool) { yield(s) }
}

// IsCurrent implements cleaner.Logs.
func (s *signallingLog) IsCurrent(cleaner.Log) bool { return true }

// BenchmarkClean measures one round over a log in the page cache.
func BenchmarkClean(b *testing.B) {
	const mib = 1 << 20
	for name, s := range map[string]cleanShape{
		"128MiB":          {bytes: 128 * mib, recordBytes: 1024, perBatch: 500},
		"8MiB":            {bytes: 8 * mib, recordBytes: 1024, perBatch: 500},
		"small-records":   {bytes: 64 * mib, recordBytes: 100, perBatch: 100},
		"one-in-a-batch":  {bytes: 64 * mib, recordBytes: 1024, perBatch: 1},
		"lz4":             {bytes: 128 * mib, recordBytes: 1024, perBatch: 100, codec: record.CodecLZ4},
		"zstd":            {bytes: 128 * mib, recordBytes: 1024, perBatch: 100, codec: record.CodecZstd},
		"clean-head":      {bytes: 128 * mib, recordBytes: 1024, perBatch: 500, cleanBytes: 96 * mib},
		"clean-head-tiny": {bytes: 64 * mib, recordBytes: 100, perBatch: 100, cleanBytes: 32 * mib},
	} {
		b.Run(name, func(b *testing.B) { s.run(b) })
	}
}

func (s *cleanShape) run(b *testing.B) {
	config, err := DefaultLogConfig().With(map[string]string{
		"cleanup.policy": "compact", "segment.bytes": "16777216", "min.cleanable.dirty.ratio": "0", "retention.ms": "-1",
	})
	must(b, err)
	fsys := vfs.Real()
	b.SetBytes(int64(s.bytes))
	for b.Loop() {
		b.StopTimer()
		dir := b.TempDir() + "/t-0"
		l, err := OpenLog(LogOptions{FS: fsys, Dir: dir, Config: config})
		must(b, err)
		s.fill(b, l)
		c := &signallingLog{cleanable: cleanableLog(fsys, l), done: make(chan struct{})}
		p := cleaner.NewPool(c, cleaner.DefaultConfig(), nil)
		b.StartTimer()
		p.Start()
		<-c.done
		b.StopTimer()
		p.Stop()
		l.CloseUnclean()
		must(b, fsys.RemoveAll(dir))
		b.StartTimer()
	}
}
