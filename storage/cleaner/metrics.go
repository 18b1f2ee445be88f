package cleaner

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Metrics are figures of a Pool, of kafka.log:type=LogCleaner and LogCleanerManager in Kafka.
type Metrics struct {
	MaxDirtyPercent             int   // of the filthiest log when a worker last looked
	SinceLastRunMillis          int64 // since a worker last looked
	MaxCompactionDelaySeconds   int64 // by how much max.compaction.lag.ms was exceeded then
	MaxBufferUtilizationPercent int   // of the last rounds
	RecopyPercent               int   // bytes written of bytes read in the last rounds
	MaxCleanSeconds             int   // of the last rounds
	Rounds                      int64 // so far
	BytesRead, BytesWritten     int64 // so far, the reads for the map of keys included
	Uncleanable                 []Uncleanable
}

// Uncleanable is a log that the cleaner leaves alone after an error.
type Uncleanable struct {
	Log, Dir string
	Bytes    int64 // that would be cleaned
	Err      error
}

// keepRounds is how many rounds count as the last ones.
const keepRounds = 8

type metrics struct {
	lastRun      atomic.Int64
	dirtyPercent atomic.Int64
	delayMillis  atomic.Int64

	mu                      sync.Mutex
	rounds                  int64
	bytesRead, bytesWritten int64
	last                    []Stats
}

func (m *metrics) chosen(nowMillis int64, dirtiest float64, delayMillis int64) {
	m.lastRun.Store(nowMillis)
	m.dirtyPercent.Store(int64(100 * dirtiest))
	m.delayMillis.Store(delayMillis)
}

func (m *metrics) cleaned(s *Stats) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rounds++
	m.bytesRead += s.IndexedBytes + s.BytesRead
	m.bytesWritten += s.BytesWritten
	m.last = append(m.last, *s)
	m.last = m.last[max(len(m.last)-keepRounds, 0):]
}

// Metrics returns the figures.
func (p *Pool) Metrics() Metrics {
	now := time.Now().UnixMilli()
	m := &p.metrics
	out := Metrics{
		MaxDirtyPercent: int(m.dirtyPercent.Load()), SinceLastRunMillis: now - m.lastRun.Load(),
		MaxCompactionDelaySeconds: m.delayMillis.Load() / 1000,
	}
	m.mu.Lock()
	out.Rounds, out.BytesRead, out.BytesWritten = m.rounds, m.bytesRead, m.bytesWritten
	var read, written int64
	for i := range m.last {
		s := &m.last[i]
		read += s.BytesRead
		written += s.BytesWritten
		out.MaxBufferUtilizationPercent = max(out.MaxBufferUtilizationPercent, int(100*s.MapUtilization))
		out.MaxCleanSeconds = max(out.MaxCleanSeconds, int(s.Took.Seconds()))
	}
	out.RecopyPercent = int(100 * written / max(read, 1))
	m.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	for l, err := range p.uncleanable {
		u := Uncleanable{Log: l.Name(), Dir: l.Dir(), Err: err}
		v := l.View()
		if plan, err := newPlan(v.Offsets, &v.Policy, v.Segments, now); err == nil {
			u.Bytes = plan.CleanableBytes
		}
		out.Uncleanable = append(out.Uncleanable, u)
	}
	slices.SortFunc(out.Uncleanable, func(a, b Uncleanable) int { return cmp.Compare(a.Log, b.Log) })
	return out
}
