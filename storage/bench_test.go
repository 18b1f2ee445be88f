package storage

import (
	"testing"

	"gregor/protocol/record"
	"gregor/storage/vfs"
)

func benchLog(b *testing.B) *Log {
	b.Helper()
	o := LogOptions{FS: vfs.Real(), Dir: b.TempDir() + "/t-0", Config: DefaultLogConfig()}
	l, err := OpenLog(o)
	must(b, err)
	b.Cleanup(l.CloseUnclean)
	return l
}

func benchAppend(b *testing.B, bytes int) {
	l := benchLog(b)
	builder := record.NewBuilder(record.BuilderOptions{})
	builder.Add(1, nil, make([]byte, bytes), nil)
	batch := builder.Bytes()
	b.SetBytes(int64(len(batch)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := l.AppendAsLeader(batch, 0, AppendOptions{AloneInSync: true}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppend1KiB(b *testing.B)  { benchAppend(b, 1<<10) }
func BenchmarkAppend16KiB(b *testing.B) { benchAppend(b, 16<<10) }

func BenchmarkTailRead1KiB(b *testing.B) {
	l := benchLog(b)
	builder := record.NewBuilder(record.BuilderOptions{})
	builder.Add(1, nil, make([]byte, 1<<10), nil)
	batch := builder.Bytes()
	for range 1000 {
		_, err := l.AppendAsLeader(batch, 0, AppendOptions{AloneInSync: true})
		must(b, err)
	}
	buf := make([]byte, 4096)
	b.ReportAllocs()
	for b.Loop() {
		f, err := l.Read(999, 1<<20, UpToHighWatermark, true)
		must(b, err)
		_, err = f.Range.ReadAt(buf[:f.Range.Len()], 0)
		must(b, err)
		f.Range.Release()
	}
}

func BenchmarkGroupCommit16(b *testing.B) {
	o := LogOptions{FS: vfs.Real(), Dir: b.TempDir() + "/t-0", Config: DefaultLogConfig()}
	o.Config.FlushMessages = 1
	l, err := OpenLog(o)
	must(b, err)
	b.Cleanup(l.CloseUnclean)
	builder := record.NewBuilder(record.BuilderOptions{})
	builder.Add(1, nil, make([]byte, 1<<10), nil)
	batch := builder.Bytes()
	b.SetParallelism(8) // on two cores
	b.RunParallel(func(pb *testing.PB) {
		own := append([]byte(nil), batch...)
		for pb.Next() {
			if _, err := l.AppendAsLeader(own, 0, AppendOptions{}); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
