package api

import (
	"gregor/broker/network"
	"gregor/storage"
)

// Bounds of what is joined. A larger batch gains little by sharing a write, and would have to be copied.
const (
	maxJoinedBytes      = 64 << 10
	maxJoinedBatchBytes = 16 << 10
)

// gather leaves the only append of a request to the end of the worker's round, in which other connections may append to the
// same partition: batches that come together then share one write. What is kept of the request is in w.
func (h *produce) gather(w *produceWork, a *readyAppend) bool {
	if len(w.req.Topics) != 1 || len(w.req.Topics[0].Partitions) != 1 || len(a.batch) > maxJoinedBatchBytes || !a.r.Gather(h, a.part, w) {
		return false
	}
	w.memory = *a
	w.gathered = &w.memory
	return true
}

// ServeGathered implements network.Gatherer: the items are requests (*produceWork) that append to the same partition.
func (h *produce) ServeGathered(items []any) {
	for len(items) > 0 {
		n := joinable(items)
		if n == 1 || !h.appendJoined(items[:n]) {
			for _, x := range items[:n] {
				w := gatheredWork(x)
				h.append(w, w.gathered)
			}
		}
		for _, x := range items[:n] {
			w := gatheredWork(x)
			r := w.gathered.r
			h.finish(r.Conn.Context(), w, r)
		}
		items = items[n:]
	}
}

func gatheredWork(item any) *produceWork {
	w, _ := item.(*produceWork) // it is what gather gave
	return w
}

// joinable is how many of the first requests can share a write: of equal acks, because the log is asked once for all of
// them whether enough replicas are in sync.
func joinable(items []any) int {
	first := gatheredWork(items[0])
	bytes := len(first.gathered.batch)
	for n, x := range items[1:] {
		w := gatheredWork(x)
		bytes += len(w.gathered.batch)
		if bytes > maxJoinedBytes || (w.req.Acks == -1) != (first.req.Acks == -1) {
			return n + 1
		}
	}
	return len(items)
}

// appendJoined appends the batches of several requests in one write. False: nothing was written, and each is to be appended
// alone, to find out what is to be said against which.
func (h *produce) appendJoined(items []any) bool {
	joined := network.NewBuffer(maxJoinedBytes)
	defer joined.Release()
	for _, x := range items {
		joined.B = append(joined.B, gatheredWork(x).gathered.batch...)
	}
	first := gatheredWork(items[0])
	info, err := first.gathered.part.AppendAsLeader(joined.B, first.req.Acks == -1, storage.AppendOptions{
		Origin: storage.FromClient, SyncLater: true, Joined: true,
	})
	if err != nil {
		return false
	}
	next := info.FirstOffset
	for _, x := range items {
		w := gatheredWork(x)
		part := info.Part(next, w.gathered.batch)
		part.LogAppendTimeMillis = w.gathered.logAppendTimeMillis
		w.appended(w.gathered, part)
		next = part.LastOffset + 1
	}
	return true
}

var _ network.Gatherer = (*produce)(nil)
