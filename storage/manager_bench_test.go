package storage

import (
	"runtime"
	"testing"
	"time"

	"gregor/storage/vfs"
)

// BenchmarkManyLogs creates, stops and starts a directory of many logs, and tells what one of them costs.
func BenchmarkManyLogs(b *testing.B) {
	const logs = 1000
	for b.Loop() {
		dir := b.TempDir()
		format(b, vfs.Real(), dir)
		m, err := OpenManager(managerOptions(vfs.Real(), dir))
		must(b, err)
		must(b, m.Load(LoadOptions{}))
		step := func(name string, work func()) {
			began := time.Now()
			work()
			b.ReportMetric(float64(time.Since(began).Microseconds())/logs, "us/"+name)
		}
		step("create", func() {
			for i := range int32(logs) {
				createLog(b, m, "t", i, [16]byte{})
			}
		})
		for l := range m.Logs() {
			appendBatch(b, l, 1, 1)
		}
		step("stop", func() { must(b, m.Shutdown(1)) })
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		step("start", func() {
			m, err = OpenManager(managerOptions(vfs.Real(), dir))
			must(b, err)
			must(b, m.Load(LoadOptions{}))
		})
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/logs, "heapB/log")
		b.ReportMetric(float64(m.Files().Stats().Open), "descriptors")
		m.Kill()
	}
}
