package producer

import "gregor/protocol/record"

// RetainedBatches is how many batches of a producer are remembered, as many as a client may have in flight.
const RetainedBatches = 5

// BatchMeta is what is remembered of a batch.
type BatchMeta struct {
	LastOffset   int64
	Timestamp    int64 // largest of the batch
	OffsetDelta  int32 // last offset - first offset
	LastSequence int32
}

// FirstSequence is the sequence of the first record.
func (b BatchMeta) FirstSequence() int32 {
	if b.LastSequence == record.NoSequence {
		return record.NoSequence
	}
	return record.SubtractSequence(b.LastSequence, b.OffsetDelta)
}

// FirstOffset is the offset of the first record.
func (b BatchMeta) FirstOffset() int64 { return b.LastOffset - int64(b.OffsetDelta) }

// State is what is remembered of one producer. It is a value; copies are independent.
//
// Invariant: all remembered batches are of Epoch.
type State struct {
	ProducerID            int64
	LastTimestamp         int64 // of the last batch or marker
	CurrentTxnFirstOffset int64 // -1 when no transaction is open
	CoordinatorEpoch      int32 // of the last marker, -1 before the first
	Epoch                 int16 // -1 for a producer never seen
	count                 uint8
	batches               [RetainedBatches]BatchMeta // the first count, oldest first
}

func unknown(producerID int64) State {
	return State{
		ProducerID: producerID, Epoch: record.NoProducerEpoch, CoordinatorEpoch: -1,
		LastTimestamp: record.NoTimestamp, CurrentTxnFirstOffset: -1,
	}
}

// Batches are the remembered batches, oldest first.
func (s *State) Batches() []BatchMeta { return s.batches[:s.count] }

// HasOpenTxn tells whether a transaction is open.
func (s *State) HasOpenTxn() bool { return s.CurrentTxnFirstOffset >= 0 }

// LastSequence is the last sequence of the newest remembered batch, -1 without one.
func (s *State) LastSequence() int32 { return s.last().LastSequence }

// LastOffset is the last offset of the newest remembered batch, -1 without one.
func (s *State) LastOffset() int64 { return s.last().LastOffset }

func (s *State) last() BatchMeta {
	if s.count == 0 {
		return BatchMeta{LastOffset: -1, LastSequence: record.NoSequence, Timestamp: record.NoTimestamp}
	}
	return s.batches[s.count-1]
}

func (s *State) setEpoch(epoch int16) {
	if s.Epoch != epoch {
		s.Epoch = epoch
		s.count = 0
	}
}

func (s *State) add(b BatchMeta) {
	if s.count == RetainedBatches {
		copy(s.batches[:], s.batches[1:])
		s.count--
	}
	s.batches[s.count] = b
	s.count++
}

// merge takes over what an append changed: next started as a copy without batches.
func (s *State) merge(next *State) {
	s.setEpoch(next.Epoch)
	for _, b := range next.Batches() {
		s.add(b)
	}
	s.CoordinatorEpoch = next.CoordinatorEpoch
	s.CurrentTxnFirstOffset = next.CurrentTxnFirstOffset
	s.LastTimestamp = next.LastTimestamp
}

// duplicate finds the remembered batch with exactly this epoch and range of sequences.
func (s *State) duplicate(epoch int16, firstSequence, lastSequence int32) (BatchMeta, bool) {
	if s.Epoch != epoch {
		return BatchMeta{}, false
	}
	for _, b := range s.Batches() {
		if b.LastSequence == lastSequence && b.FirstSequence() == firstSequence {
			return b, true
		}
	}
	return BatchMeta{}, false
}
