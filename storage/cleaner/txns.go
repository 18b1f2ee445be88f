package cleaner

import (
	"container/heap"

	"gregor/protocol/record"
	"gregor/storage/segment"
)

// txns follows the transactions while a round walks over the log, across segments and groups of segments: which
// batches are of aborted ones, and which markers have nothing left to mark.
type txns struct {
	lim record.Limits
	// committed are the producers of which batches were met since their last marker, in a transaction not aborted.
	committed map[int64]struct{}
	aborted   map[int64]*abortedTxn // open at this point of the walk, by producer
	waiting   byFirstOffset         // aborted ones that begin further on
	// keep notes an aborted transaction that still has batches in the segment being written; nil to note none.
	keep func(a segment.AbortedTxn) error
}

type abortedTxn struct {
	txn  segment.AbortedTxn
	seen bool // a batch of it was met
}

func newTxns(lim record.Limits) *txns {
	return &txns{lim: lim, committed: map[int64]struct{}{}, aborted: map[int64]*abortedTxn{}}
}

// add tells of aborted transactions ahead. One that is known already may come again.
func (t *txns) add(list []segment.AbortedTxn) {
	for _, a := range list {
		heap.Push(&t.waiting, a)
	}
}

func (t *txns) advance(offset int64) {
	for len(t.waiting) > 0 && t.waiting[0].FirstOffset <= offset {
		a := heap.Pop(&t.waiting).(segment.AbortedTxn)
		if _, known := t.aborted[a.ProducerID]; !known {
			t.aborted[a.ProducerID] = &abortedTxn{txn: a}
		}
	}
}

// data takes a data batch; it tells whether the batch is of an aborted transaction.
func (t *txns) data(b record.Batch) (aborted bool) {
	t.advance(b.LastOffset())
	if !b.IsTransactional() {
		return false
	}
	if a, ok := t.aborted[b.ProducerID()]; ok {
		a.seen = true
		return true
	}
	t.committed[b.ProducerID()] = struct{}{}
	return false
}

// control takes a control batch; it tells whether nothing is left of what it marks.
func (t *txns) control(b record.Batch) (idle bool, err error) {
	t.advance(b.LastOffset())
	kind, empty, err := t.kindOf(b)
	switch {
	case err != nil:
		return false, err
	case empty:
		return true, nil // an earlier round has emptied it
	}
	id := b.ProducerID()
	switch kind {
	case record.ControlAbort:
		a, ok := t.aborted[id]
		delete(t.aborted, id)
		if !ok || !a.seen {
			return true, nil
		}
		if t.keep != nil {
			return false, t.keep(a.txn)
		}
		return false, nil
	case record.ControlCommit:
		_, seen := t.committed[id]
		delete(t.committed, id)
		return !seen, nil
	default:
		return false, nil
	}
}

func (t *txns) kindOf(b record.Batch) (kind record.ControlType, empty bool, err error) {
	for rec, err := range b.Records(t.lim) {
		if err != nil {
			return 0, false, err
		}
		kind, err = record.ParseControlKey(rec.Key)
		return kind, false, err
	}
	return 0, true, nil
}

// byFirstOffset is a heap.
type byFirstOffset []segment.AbortedTxn

// Len implements heap.Interface.
func (h byFirstOffset) Len() int { return len(h) }

// Less implements heap.Interface.
func (h byFirstOffset) Less(i, j int) bool { return h[i].FirstOffset < h[j].FirstOffset }

// Swap implements heap.Interface.
func (h byFirstOffset) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *byFirstOffset) Push(x any) { *h = append(*h, x.(segment.AbortedTxn)) }

// Pop implements heap.Interface.
func (h *byFirstOffset) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}
