package quorum

import (
	"fmt"
	"math"
	"slices"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"gregor/protocol/record"
)

// raftID is the raft id of a node: 0 means nobody there.
func raftID(nodeID int32) uint64 { return uint64(nodeID) + 1 }

// nodeID is the node of a raft id; -1 for none.
func nodeID(id uint64) int32 { return int32(id) - 1 }

// indexOf is the raft index of an offset.
func indexOf(offset int64) uint64 { return uint64(offset) + 1 }

// offsetOf is the offset of a raft index; -1 for index 0, which lies before the log.
func offsetOf(index uint64) int64 { return int64(index) - 1 }

// epochOf is the partition leader epoch of a raft term. Terms are checked against MaxInt32 when they come in.
func epochOf(term uint64) int32 { return int32(min(term, math.MaxInt32)) }

// carrier makes the entry that carries a batch: the last one of the batch. An entry of a voter set has raft's conf
// change around its batch, everything else is the batch itself.
func carrier(b record.Batch, voters bool) (*raftpb.Entry, error) {
	e := &raftpb.Entry{Term: new(uint64(b.LeaderEpoch())), Index: new(indexOf(b.LastOffset())), Data: b}
	if voters {
		data, err := proto.Marshal(&raftpb.ConfChangeV2{Context: b})
		if err != nil {
			return nil, fmt.Errorf("conf change: %w", err)
		}
		e.Type, e.Data = raftpb.EntryConfChangeV2.Enum(), data
	}
	return e, nil
}

// entriesOf appends the entries of a batch whose index is in [lo, hi): one per offset, empty but for the last.
func entriesOf(dst []*raftpb.Entry, b record.Batch, lo, hi uint64) ([]*raftpb.Entry, error) {
	last := indexOf(b.LastOffset())
	for index := max(lo, indexOf(b.BaseOffset())); index < min(last, hi); index++ {
		dst = append(dst, &raftpb.Entry{Term: new(uint64(b.LeaderEpoch())), Index: new(index)})
	}
	if last < lo || last >= hi {
		return dst, nil
	}
	voters, err := hasVoters(b)
	if err != nil {
		return dst, err
	}
	e, err := carrier(b, voters)
	if err != nil {
		return dst, err
	}
	return append(dst, e), nil
}

func hasVoters(b record.Batch) (bool, error) {
	if !b.IsControl() {
		return false, nil
	}
	c, err := readControl(b)
	if err != nil {
		return false, err
	}
	return c.voters != nil, nil
}

// carriedBatch returns the batch of an entry, nil for an empty one.
func carriedBatch(e *raftpb.Entry) (record.Batch, error) {
	if e.GetType() == raftpb.EntryNormal {
		return record.Batch(e.GetData()), nil
	}
	if e.GetType() != raftpb.EntryConfChangeV2 {
		return nil, fmt.Errorf("%w: raft entry of type %v", ErrCorrupt, e.GetType())
	}
	var cc raftpb.ConfChangeV2
	if err := proto.Unmarshal(e.GetData(), &cc); err != nil {
		return nil, fmt.Errorf("%w: conf change: %w", ErrCorrupt, err)
	}
	return record.Batch(cc.GetContext()), nil
}

// appendStamped appends a batch with the offsets and the epoch of the entry that carries it.
func appendStamped(dst []byte, b record.Batch, e *raftpb.Entry) []byte {
	at := len(dst)
	dst = append(dst, b...)
	stamped := record.Batch(dst[at:])
	stamped.SetBaseOffset(offsetOf(e.GetIndex()) - int64(b.LastOffsetDelta()))
	stamped.SetLeaderEpoch(epochOf(e.GetTerm()))
	return dst
}

// appendBatches appends the whole batches of entries. An empty entry that no later entry covers is a new leader's;
// leaderChange gives its batch.
func appendBatches(dst []byte, entries []*raftpb.Entry, leaderChange func(*raftpb.Entry) (record.Batch, error)) ([]byte, error) {
	type piece struct {
		entry *raftpb.Entry
		batch record.Batch
	}
	pieces := make([]piece, 0, len(entries))
	covered := uint64(math.MaxUint64) // lowest index that a batch found so far covers
	for _, e := range slices.Backward(entries) {
		if e.GetIndex() >= covered {
			continue
		}
		b, err := carriedBatch(e)
		if err == nil && len(b) == 0 {
			b, err = leaderChange(e)
		}
		if err != nil {
			return dst, err
		}
		covered = e.GetIndex() - uint64(b.LastOffsetDelta())
		pieces = append(pieces, piece{e, b})
	}
	for _, p := range slices.Backward(pieces) {
		dst = appendStamped(dst, p.batch, p.entry)
	}
	return dst, nil
}

// checkBatch says whether bytes that a peer sent are a batch that the log may hold.
func checkBatch(b record.Batch) error {
	switch {
	case b.Magic() != 2:
		return fmt.Errorf("%w: batch of format %d", ErrCorrupt, b.Magic())
	case b.BaseOffset() < 0 || b.LastOffsetDelta() < 0 || b.LeaderEpoch() < 0:
		return fmt.Errorf("%w: batch at offset %d, delta %d, epoch %d", ErrCorrupt, b.BaseOffset(), b.LastOffsetDelta(), b.LeaderEpoch())
	case b.BaseOffset() > math.MaxInt64-int64(b.LastOffsetDelta())-1:
		return fmt.Errorf("%w: batch at offset %d", ErrCorrupt, b.BaseOffset())
	case b.Count() != b.LastOffsetDelta()+1:
		return fmt.Errorf("%w: batch at offset %d has %d records in %d offsets", ErrCorrupt, b.BaseOffset(), b.Count(), int64(b.LastOffsetDelta())+1)
	case !b.CRCValid():
		return fmt.Errorf("%w: batch at offset %d fails its CRC", ErrCorrupt, b.BaseOffset())
	}
	return nil
}
