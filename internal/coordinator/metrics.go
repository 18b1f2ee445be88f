package coordinator

import (
	"sync/atomic"
	"time"
)

// Metrics are the counters of a [Runtime] since it was made, and its present
// gauges.
type Metrics struct {
	// Partitions by state. A failed one could not be loaded and tries again.
	Loading, Active, Failed int
	// Queued operations that wait for their turn.
	Queued int

	Writes, Reads, TimerRuns uint64
	// Batches and Records appended, AppendBytes of them; Failures is the number
	// of batches that the log refused.
	Batches, Records, AppendBytes, Failures uint64
	// Loads that ended well, and the time the longest took.
	Loads       uint64
	LongestLoad time.Duration
}

// Events is told what happens. Unset functions are not called. They run on
// whatever goroutine has the turn of a partition and must not block.
type Events struct {
	Loaded     func(LoadSummary)
	LoadFailed func(partition int32, err error)
	Flushed    func(FlushSummary)
	// Executed is called after each operation: how long it waited for its turn
	// and how long it ran.
	Executed func(waited, ran time.Duration)
}

// LoadSummary describes a finished load.
type LoadSummary struct {
	Partition, LeaderEpoch int32
	Records, Bytes         int64
	Took                   time.Duration
}

// FlushSummary describes an append.
type FlushSummary struct {
	Partition int32
	Records   int
	Bytes     int
	Took      time.Duration
	Err       error
}

type counters struct {
	writes, reads, timers                   atomic.Uint64
	batches, records, appendBytes, failures atomic.Uint64
	loads                                   atomic.Uint64
	longestLoad                             atomic.Int64
}

func (c *counters) metrics() Metrics {
	return Metrics{
		Writes: c.writes.Load(), Reads: c.reads.Load(), TimerRuns: c.timers.Load(),
		Batches: c.batches.Load(), Records: c.records.Load(), AppendBytes: c.appendBytes.Load(), Failures: c.failures.Load(),
		Loads: c.loads.Load(), LongestLoad: time.Duration(c.longestLoad.Load()),
	}
}

func (c *counters) loaded(took time.Duration) {
	c.loads.Add(1)
	for {
		longest := c.longestLoad.Load()
		if int64(took) <= longest || c.longestLoad.CompareAndSwap(longest, int64(took)) {
			return
		}
	}
}
