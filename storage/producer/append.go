package producer

import (
	"fmt"
	"math"

	"gregor/protocol/record"
)

// CompletedTxn is a transaction that a marker ended.
type CompletedTxn struct {
	ProducerID  int64
	FirstOffset int64
	LastOffset  int64 // of the marker
	Aborted     bool
}

// AppendOptions qualify an append.
type AppendOptions struct {
	Origin Origin
	// TransactionVersion is that of a marker's WriteTxnMarkers request: from 2 on a marker's epoch must be above
	// the producer's (KIP-1228). Replicated batches do not carry it; 0 then.
	TransactionVersion int8
	// RequireVerification refuses transactional batches outside a transaction that is open here, unless Guard is
	// what StartVerification answered (transaction.partition.verification.enable).
	RequireVerification bool
	Guard               uint64
}

// Append collects what the batches of one append change; the Manager changes only when Update takes it.
type Append struct {
	m       *Manager
	opts    AppendOptions
	pending []pending
	cleared []clearedVerification
}

// clearedVerification is a verification that a batch of the append has ended.
type clearedVerification struct {
	producerID int64
	was        *verification
}

type pending struct {
	current *State // nil for a producer not seen before
	next    State  // current without batches, plus what this append adds
	started []int64
}

// Prepare begins an append. The Append is valid until the next Prepare.
func (m *Manager) Prepare(o AppendOptions) *Append {
	a := &m.append
	a.m, a.opts = m, o
	for i := range a.pending {
		a.pending[i] = pending{started: a.pending[i].started[:0]}
	}
	a.pending = a.pending[:0]
	clear(a.cleared)
	a.cleared = a.cleared[:0]
	return a
}

// Abandon takes back what Check has changed, for batches that were not appended after all. The producer may send them
// again under the verification that it had.
func (a *Append) Abandon() {
	for _, c := range a.cleared {
		if _, newer := a.m.verifications[c.producerID]; !newer {
			a.m.verifications[c.producerID] = c.was
		}
	}
	a.cleared = a.cleared[:0]
}

// Duplicate finds the original of a batch that a client sends again: one of the last five of its producer
// with the same epoch and sequences. Its offsets and timestamp are to be answered, and nothing is to be
// appended.
func (m *Manager) Duplicate(b record.Batch) (BatchMeta, bool) {
	s, ok := m.producers[b.ProducerID()]
	if !ok || b.BaseSequence() == record.NoSequence {
		return BatchMeta{}, false
	}
	return s.duplicate(b.ProducerEpoch(), b.BaseSequence(), b.LastSequence())
}

// Check validates a batch that has its final offsets, and adds it to the append. Batches without a producer id
// pass. A marker that ends a transaction with records on this partition answers it.
func (a *Append) Check(b record.Batch) (*CompletedTxn, error) {
	if !b.HasProducerID() {
		return nil, nil
	}
	if err := a.checkVerified(b); err != nil {
		return nil, err
	}
	p := a.of(b.ProducerID())
	var txn *CompletedTxn
	var err error
	if b.IsControl() {
		txn, err = a.addMarker(p, b)
	} else {
		err = a.addData(p, b)
	}
	if err == nil {
		a.clearVerification(b)
	}
	return txn, err
}

func (a *Append) of(producerID int64) *pending {
	for i := range a.pending {
		if a.pending[i].next.ProducerID == producerID {
			return &a.pending[i]
		}
	}
	if len(a.pending) < cap(a.pending) {
		a.pending = a.pending[:len(a.pending)+1]
	} else {
		a.pending = append(a.pending, pending{})
	}
	p := &a.pending[len(a.pending)-1]
	p.current = a.m.producers[producerID]
	p.next = unknown(producerID)
	p.started = p.started[:0]
	if p.current != nil {
		p.next = *p.current
		p.next.count = 0
	}
	return p
}

func (a *Append) addData(p *pending, b record.Batch) error {
	epoch, first := b.ProducerEpoch(), b.BaseOffset()
	if err := a.checkEpoch(p, epoch, first, 0); err != nil {
		return err
	}
	if a.opts.Origin == FromClient {
		if err := a.checkSequence(p, epoch, b.BaseSequence(), first); err != nil {
			return err
		}
	}
	transactional := b.IsTransactional()
	if p.next.HasOpenTxn() && !transactional {
		return fmt.Errorf("%w: producer %d sends a batch outside a transaction at offset %d while the one from offset %d is open",
			ErrInvalidTxnState, p.next.ProducerID, first, p.next.CurrentTxnFirstOffset)
	}
	p.next.setEpoch(epoch)
	p.next.add(BatchMeta{
		LastSequence: b.LastSequence(), LastOffset: b.LastOffset(),
		OffsetDelta: b.LastOffsetDelta(), Timestamp: b.MaxTimestamp(),
	})
	p.next.LastTimestamp = b.MaxTimestamp()
	if transactional && !p.next.HasOpenTxn() {
		p.next.CurrentTxnFirstOffset = first
		p.started = append(p.started, first)
	}
	return nil
}

func (a *Append) addMarker(p *pending, b record.Batch) (*CompletedTxn, error) {
	control, marker, ok, err := record.ParseEndTxnBatch(b, record.Limits{})
	if err != nil {
		return nil, err
	}
	if !ok {
		// Emptied: the whole transaction has been compacted away. The batch is there for its epoch, which still fences
		// (Kafka forgets it).
		if b.Count() == 0 && b.ProducerEpoch() >= p.next.Epoch {
			p.next.setEpoch(b.ProducerEpoch())
			p.next.LastTimestamp = b.MaxTimestamp()
		}
		return nil, nil
	}
	offset := b.BaseOffset()
	if err := a.checkEpoch(p, b.ProducerEpoch(), offset, a.opts.TransactionVersion); err != nil {
		return nil, err
	}
	if p.next.CoordinatorEpoch > marker.CoordinatorEpoch {
		err := fmt.Errorf("%w: marker for producer %d at offset %d has coordinator epoch %d, below %d",
			ErrCoordinatorFenced, p.next.ProducerID, offset, marker.CoordinatorEpoch, p.next.CoordinatorEpoch)
		if a.opts.Origin != FromReplication {
			return nil, err
		}
		a.m.log.Warn("The leader wrote a marker that is taken over although it should be fenced", "dir", a.m.dir, "error", err)
	}
	var txn *CompletedTxn
	if p.next.HasOpenTxn() {
		// A marker without data here moves neither the last stable offset nor the transaction index.
		txn = &CompletedTxn{
			ProducerID: p.next.ProducerID, FirstOffset: p.next.CurrentTxnFirstOffset, LastOffset: offset,
			Aborted: control == record.ControlAbort,
		}
	}
	p.next.setEpoch(b.ProducerEpoch())
	p.next.CoordinatorEpoch = marker.CoordinatorEpoch
	p.next.LastTimestamp = b.MaxTimestamp()
	p.next.CurrentTxnFirstOffset = -1
	return txn, nil
}

// checkEpoch fences zombies. A marker of transaction version 2 carries the epoch after the transaction, so it
// must be above the producer's; an equal one with nothing open is the retry of a marker that has been written
// (KAFKA-19999), which must succeed or the coordinator would retry for ever.
func (a *Append) checkEpoch(p *pending, epoch int16, offset int64, transactionVersion int8) error {
	current := p.next.Epoch
	if epoch > current || epoch == current && (transactionVersion < 2 || !p.next.HasOpenTxn()) {
		return nil
	}
	err := fmt.Errorf("%w: epoch %d of producer %d at offset %d (transaction version %d), last seen is %d",
		ErrInvalidProducerEpoch, epoch, p.next.ProducerID, offset, transactionVersion, current)
	if a.opts.Origin == FromReplication {
		a.m.log.Warn("The leader wrote a batch that is taken over although it should be fenced", "dir", a.m.dir, "error", err)
		return nil
	}
	return err
}

func (a *Append) checkSequence(p *pending, epoch int16, firstSequence int32, offset int64) error {
	id := p.next.ProducerID
	if v, ok := a.m.verifications[id]; ok {
		if v.supportsEpochBump && firstSequence != 0 && (p.current == nil || p.current.count == 0) {
			return fmt.Errorf("%w: producer %d without state here must start at 0, not %d (offset %d)",
				ErrOutOfOrderSequence, id, firstSequence, offset)
		}
		if firstSequence > v.lowestSequence {
			return fmt.Errorf("%w: producer %d sends %d at offset %d while %d awaits verification",
				ErrOutOfOrderSequence, id, firstSequence, offset, v.lowestSequence)
		}
	}
	if epoch != p.next.Epoch {
		// A producer never seen may start anywhere: its state may have expired or been deleted with the records.
		if firstSequence != 0 && p.next.Epoch != record.NoProducerEpoch {
			return fmt.Errorf("%w: producer %d starts epoch %d (after %d) at %d, not 0 (offset %d)",
				ErrOutOfOrderSequence, id, epoch, p.next.Epoch, firstSequence, offset)
		}
		return nil
	}
	last := record.NoSequence
	switch {
	case p.next.count > 0:
		last = p.next.LastSequence()
	case p.current != nil && p.current.Epoch == epoch:
		last = p.current.LastSequence()
	}
	seen := p.current != nil && p.current.Epoch != record.NoProducerEpoch
	if seen && !follows(last, firstSequence) {
		return fmt.Errorf("%w: producer %d epoch %d sends %d after %d (offset %d)",
			ErrOutOfOrderSequence, id, epoch, firstSequence, last, offset)
	}
	return nil
}

func follows(last, next int32) bool {
	if last == math.MaxInt32 {
		return next == 0
	}
	return next == last+1
}

// Update makes the append part of the state. Transactions that it completed are to be passed to CompleteTxn
// afterwards, when their entry in the transaction index is written.
func (m *Manager) Update(a *Append) {
	for i := range a.pending {
		p := &a.pending[i]
		if p.current != nil {
			p.current.merge(&p.next)
		} else {
			m.put(p.next)
		}
		for _, first := range p.started {
			m.ongoing.put(openTxn{producerID: p.next.ProducerID, firstOffset: first})
		}
	}
}
