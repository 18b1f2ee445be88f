package main

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

// ballastBytes are counted as live by the collector and never touched, so that they take address space and no memory. A
// broker's heap is a few megabytes: without them the collector would run for every megabyte of garbage, dozens of times
// a second under load.
const ballastBytes = 32 << 20

var ballast []byte //nolint:unused // holding it is its use

// startGCPercent lets the heap of a start grow to a few megabytes before the first collection: most starts are over by
// then.
const startGCPercent = 400

// longStart is from when on a start is treated as the long run: it recovers logs, or waits for other nodes.
const longStart = time.Second

// settleDelay is when the runtime is tuned for the long run: the first clients, who have waited for the start, come
// before the two collections that it takes.
const settleDelay = 300 * time.Millisecond

// tunesItself says that the operator has left the collector to us.
func tunesItself() bool { return os.Getenv("GOGC") == "" }

// tuneStart tunes the runtime for a start. The timer, which fires when the start takes long, tunes it for the long run.
func tuneStart() *time.Timer {
	if os.Getenv("GOMAXPROCS") == "" {
		// The network's workers wait in system calls, in which each keeps a processor of the scheduler for a while. With
		// one more than the machine has, what else runs always finds one.
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1)
	}
	if tunesItself() {
		debug.SetGCPercent(startGCPercent)
	}
	return time.AfterFunc(longStart, tuneRuntime)
}

// tuneRuntime makes the heap small rather than the collector idle, unless the operator said otherwise: a broker
// allocates little per request, and its memory is the page cache's to use. What only the start needed is given back. A
// long start is tuned for twice: while it lasts, and when it is over.
func tuneRuntime() {
	if tunesItself() {
		tuneCollector()
	}
	debug.FreeOSMemory()
}

var tuneCollector = sync.OnceFunc(func() {
	debug.SetGCPercent(50)
	ballast = make([]byte, ballastBytes)
})

// memoryInterval is how often the broker looks whether it is quiet.
const memoryInterval = 2 * time.Second

// A broker is quiet that allocates less than quietBytes between two looks; it then gives back what it does not need if
// that is more than spareBytes, which is worth a collection.
const (
	quietBytes = 2 << 20
	spareBytes = 8 << 20
)

// memoryUse is what the runtime says of the heap.
type memoryUse struct {
	allocatedBytes uint64 // since the start
	spareBytes     uint64 // garbage since the last collection, and free memory that the system could have
}

func readMemoryUse() memoryUse {
	samples := []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"},
		{Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(samples)
	live, objects := samples[1].Value.Uint64(), samples[2].Value.Uint64()
	return memoryUse{
		allocatedBytes: samples[0].Value.Uint64(),
		spareBytes:     objects - min(live, objects) + samples[3].Value.Uint64(),
	}
}

// wasteful tells whether a quiet broker holds much that it does not need; before is how it was a memoryInterval ago.
func (u memoryUse) wasteful(before memoryUse) bool {
	return u.allocatedBytes-before.allocatedBytes < quietBytes && u.spareBytes > spareBytes
}

// giveBackWhenQuiet returns memory to the system after a burst. The runtime itself keeps as much as the next burst may
// want: half of the heap, and collects garbage only when that much has come together, which takes a quiet broker minutes.
func giveBackWhenQuiet(ctx context.Context) {
	if !tunesItself() {
		return
	}
	ticker := time.NewTicker(memoryInterval)
	defer ticker.Stop()
	for before := readMemoryUse(); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := readMemoryUse()
		if now.wasteful(before) {
			debug.FreeOSMemory()
		}
		before = now
	}
}
