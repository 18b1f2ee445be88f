package producer

import (
	"cmp"
	"fmt"
	"slices"

	"gregor/protocol/record"
)

// openTxn is a transaction that is ongoing, or ended by a marker that the high watermark has not passed.
type openTxn struct {
	producerID  int64
	firstOffset int64
	lastOffset  int64 // of the marker
}

// txnList is sorted by first offset. New ones nearly always go to the end.
type txnList []openTxn

func (l *txnList) put(t openTxn) {
	at, found := slices.BinarySearchFunc(*l, t.firstOffset, compareFirst)
	if found {
		(*l)[at] = t
		return
	}
	*l = slices.Insert(*l, at, t)
}

func (l *txnList) take(firstOffset int64) (openTxn, bool) {
	at, found := slices.BinarySearchFunc(*l, firstOffset, compareFirst)
	if !found {
		return openTxn{}, false
	}
	t := (*l)[at]
	*l = slices.Delete(*l, at, at+1)
	return t, true
}

func compareFirst(t openTxn, firstOffset int64) int { return cmp.Compare(t.firstOffset, firstOffset) }

// FirstUnstableOffset is the first offset of the oldest transaction that is open or whose marker is not yet
// below the high watermark; ok is false when there is none. The last stable offset is the smaller of it and
// the high watermark.
func (m *Manager) FirstUnstableOffset() (offset int64, ok bool) {
	switch {
	case len(m.unreplicated) == 0:
		return m.FirstUndecidedOffset()
	case len(m.ongoing) == 0:
		return m.unreplicated[0].firstOffset, true
	default:
		return min(m.unreplicated[0].firstOffset, m.ongoing[0].firstOffset), true
	}
}

// FirstUndecidedOffset is the first offset of the oldest open transaction, whatever is replicated.
func (m *Manager) FirstUndecidedOffset() (offset int64, ok bool) {
	if len(m.ongoing) == 0 {
		return 0, false
	}
	return m.ongoing[0].firstOffset, true
}

// LastStableOffset is what the transaction index stores with a completed transaction: the first offset of the
// oldest other open transaction, or the offset after the marker.
func (m *Manager) LastStableOffset(t CompletedTxn) int64 {
	for _, other := range m.ongoing {
		if other.producerID != t.ProducerID {
			return other.firstOffset
		}
	}
	return t.LastOffset + 1
}

// CompleteTxn marks a transaction as ended; it stays unstable until OnHighWatermark passes the marker. It is an
// error of the caller when it was not open.
func (m *Manager) CompleteTxn(t CompletedTxn) {
	open, ok := m.ongoing.take(t.FirstOffset)
	if !ok {
		panic(fmt.Sprintf("producer: transaction of producer %d from offset %d to %d was not open",
			t.ProducerID, t.FirstOffset, t.LastOffset))
	}
	open.lastOffset = t.LastOffset
	m.unreplicated.put(open)
}

// OnHighWatermark forgets ended transactions whose marker is below the high watermark.
func (m *Manager) OnHighWatermark(highWatermark int64) { m.forgetEndedBelow(highWatermark) }

func (m *Manager) forgetEndedBelow(offset int64) {
	m.unreplicated = slices.DeleteFunc(m.unreplicated, func(t openTxn) bool { return t.lastOffset < offset })
}

// OldestTxnLastTimestamp is the time of the last batch of the oldest open transaction, -1 without one; a
// transaction that has been silent for longer than the largest timeout hangs (KIP-664).
func (m *Manager) OldestTxnLastTimestamp() int64 {
	if len(m.ongoing) > 0 {
		if s, ok := m.producers[m.ongoing[0].producerID]; ok {
			return s.LastTimestamp
		}
	}
	return -1
}

// LateTxnBufferMillis is how long past the largest transaction timeout a transaction counts as late.
const LateTxnBufferMillis = 5 * 60 * 1000

// HasLateTxn tells whether the oldest open transaction should have been ended by its coordinator long ago.
func (m *Manager) HasLateTxn(nowMillis, maxTransactionTimeoutMillis int64) bool {
	last := m.OldestTxnLastTimestamp()
	return last > 0 && nowMillis-last > maxTransactionTimeoutMillis+LateTxnBufferMillis
}

// verification is the state of asking the coordinator whether a producer's transaction includes this
// partition (KIP-890). The guard is unique, so that an answer for an earlier transaction opens nothing.
type verification struct {
	guard             uint64
	startedMillis     int64
	lowestSequence    int32
	epoch             int16
	supportsEpochBump bool
}

// VerificationOptions describe the batch for which the coordinator is to be asked.
type VerificationOptions struct {
	ProducerID        int64
	Epoch             int16
	FirstSequence     int32
	SupportsEpochBump bool // transaction version 2
	NowMillis         int64
}

// StartVerification answers the guard to append with after the coordinator has confirmed the transaction, or 0
// when none is needed because the transaction is open here. A second call before the append answers the same
// guard. A stale epoch is refused before anybody is asked.
func (m *Manager) StartVerification(o VerificationOptions) (guard uint64, err error) {
	if s, ok := m.producers[o.ProducerID]; ok && o.Epoch < s.Epoch {
		return 0, fmt.Errorf("%w: epoch %d of producer %d, last seen is %d",
			ErrInvalidProducerEpoch, o.Epoch, o.ProducerID, s.Epoch)
	}
	if m.HasOpenTxn(o.ProducerID, o.Epoch) {
		return 0, nil
	}
	v, ok := m.verifications[o.ProducerID]
	if !ok {
		m.lastGuard++
		v = &verification{
			guard: m.lastGuard, startedMillis: o.NowMillis,
			lowestSequence: o.FirstSequence, epoch: o.Epoch, supportsEpochBump: o.SupportsEpochBump,
		}
		if m.verifications == nil {
			m.verifications = map[int64]*verification{}
		}
		m.verifications[o.ProducerID] = v
	}
	// The lowest sequence seen must be the first one written, or a later batch in flight would overtake it and
	// make it out of order for ever (KAFKA-14884). A higher epoch starts again.
	switch {
	case o.Epoch > v.epoch:
		v.epoch, v.lowestSequence = o.Epoch, o.FirstSequence
	case o.Epoch == v.epoch:
		v.lowestSequence = min(v.lowestSequence, o.FirstSequence)
	}
	return v.guard, nil
}

// VerificationGuard is the guard that is pending for a producer, 0 for none.
func (m *Manager) VerificationGuard(producerID int64) uint64 {
	if v, ok := m.verifications[producerID]; ok {
		return v.guard
	}
	return 0
}

// HasOpenTxn tells whether a producer has a transaction open here under this epoch. Under a newer epoch the
// transaction may be over although its marker has not arrived.
func (m *Manager) HasOpenTxn(producerID int64, epoch int16) bool {
	s, ok := m.producers[producerID]
	return ok && s.HasOpenTxn() && s.Epoch == epoch
}

// checkVerified refuses transactional data that belongs to no transaction known here or to the coordinator. The
// epoch comes first: a fenced producer must hear so, as INVALID_TXN_STATE is fatal to clients (KAFKA-19690).
func (a *Append) checkVerified(b record.Batch) error {
	if !a.opts.RequireVerification || a.opts.Origin == FromReplication || !b.IsTransactional() || b.IsControl() {
		return nil
	}
	id, epoch := b.ProducerID(), b.ProducerEpoch()
	if s, ok := a.m.producers[id]; ok && epoch < s.Epoch {
		return fmt.Errorf("%w: epoch %d of producer %d at offset %d, last seen is %d",
			ErrInvalidProducerEpoch, epoch, id, b.BaseOffset(), s.Epoch)
	}
	if a.m.HasOpenTxn(id, epoch) {
		return nil
	}
	if pending := a.m.VerificationGuard(id); a.opts.Guard != 0 && a.opts.Guard == pending {
		return nil
	}
	// A later batch of the same append belongs to the transaction that an earlier one began.
	for i := range a.pending {
		if next := &a.pending[i].next; next.ProducerID == id && next.HasOpenTxn() && next.Epoch == epoch {
			return nil
		}
	}
	return fmt.Errorf("%w: producer %d epoch %d sends a transactional batch at offset %d, but no transaction is open or verified",
		ErrInvalidTxnState, id, epoch, b.BaseOffset())
}

// clearVerification ends the verification when the transaction has records here or is over: from now on the
// state itself tells. Only a marker of transaction version 2 does not when the verification is for its epoch:
// that is the next transaction, which has begun meanwhile.
func (a *Append) clearVerification(b record.Batch) {
	if !b.IsTransactional() {
		return
	}
	v, ok := a.m.verifications[b.ProducerID()]
	if !ok {
		return
	}
	if v.supportsEpochBump && b.IsControl() && b.ProducerEpoch() == v.epoch {
		return
	}
	delete(a.m.verifications, b.ProducerID())
	a.cleared = append(a.cleared, clearedVerification{producerID: b.ProducerID(), was: v})
}
