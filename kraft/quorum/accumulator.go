package quorum

import (
	"fmt"
	"sync"

	"go.etcd.io/raft/v3/raftpb"
)

// proposals is a run of entries that were given offsets, in order.
type proposals struct {
	epoch      int32
	baseOffset int64
	entries    []*raftpb.Entry
}

// accumulator hands out offsets while this node leads. All entries of an epoch but the first one, the leader's empty
// entry, pass through it, so an offset is known before raft sees the entry and Propose need not wait for the machine.
//
// Invariant: entries[i] will have the offset next - len(entries) + i.
type accumulator struct {
	maxBytes int
	wakeup   func() // tells the machine that there is something to take; must not block

	mu          sync.Mutex
	epoch       int32 // 0: not leading
	next        int64
	entries     []*raftpb.Entry
	uncommitted []uncommitted
	bytes       int // of uncommitted
}

// uncommitted accounts for the memory of one call.
type uncommitted struct {
	lastOffset int64
	bytes      int
}

func newAccumulator(maxBytes int, wakeup func()) *accumulator {
	return &accumulator{maxBytes: maxBytes, wakeup: wakeup}
}

// open starts an epoch whose next entry has the offset next.
func (a *accumulator) open(epoch int32, next int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reset()
	a.epoch, a.next = epoch, next
}

// close ends the epoch; entries that raft has not seen are dropped.
func (a *accumulator) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reset()
}

func (a *accumulator) reset() {
	a.epoch, a.next, a.bytes = 0, 0, 0
	a.entries, a.uncommitted = nil, nil
}

// add gives entries offsets and queues them.
func (a *accumulator) add(epoch int32, entries []*raftpb.Entry) (base, last int64, err error) {
	size := 0
	for _, e := range entries {
		size += len(e.GetData())
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if epoch <= 0 || a.epoch != epoch {
		return 0, 0, fmt.Errorf("%w: epoch %d", ErrNotLeader, epoch)
	}
	if a.bytes > 0 && a.bytes+size > a.maxBytes {
		return 0, 0, fmt.Errorf("%w: %d bytes wait, %d more would exceed %d", ErrTooManyUncommitted, a.bytes, size, a.maxBytes)
	}
	base = a.next
	a.next += int64(len(entries))
	last = a.next - 1
	a.entries = append(a.entries, entries...)
	a.bytes += size
	a.uncommitted = append(a.uncommitted, uncommitted{last, size})
	a.wakeup()
	return base, last, nil
}

// take returns what was queued, up to about maxBytes of it. Whoever takes comes again until there is nothing.
func (a *accumulator) take(maxBytes int) proposals {
	a.mu.Lock()
	defer a.mu.Unlock()
	n, size := 0, 0
	for n < len(a.entries) && (n == 0 || size+len(a.entries[n].GetData()) <= maxBytes) {
		size += len(a.entries[n].GetData())
		n++
	}
	p := proposals{epoch: a.epoch, baseOffset: a.next - int64(len(a.entries)), entries: a.entries[:n:n]}
	a.entries = a.entries[n:]
	return p
}

// committed releases the memory of what lies below the high watermark.
func (a *accumulator) committed(highWatermark int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	done := 0
	for done < len(a.uncommitted) && a.uncommitted[done].lastOffset < highWatermark {
		a.bytes -= a.uncommitted[done].bytes
		done++
	}
	a.uncommitted = a.uncommitted[done:]
}

// nextOffset is the offset that the next entry will get, and the epoch; 0 when not leading.
func (a *accumulator) nextOffset() (epoch int32, next int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.epoch, a.next
}
