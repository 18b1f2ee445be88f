package record

import (
	"encoding/binary"
)

// ControlType is the type of a control record, the second int16 of its key.
type ControlType int16

// The control record types. Abort and Commit end transactions (KIP-98), the others belong to the metadata log and its
// snapshots (KIP-595, KIP-630, KIP-853).
const (
	ControlAbort          ControlType = 0
	ControlCommit         ControlType = 1
	ControlLeaderChange   ControlType = 2
	ControlSnapshotHeader ControlType = 3
	ControlSnapshotFooter ControlType = 4
	ControlKRaftVersion   ControlType = 5
	ControlKRaftVoters    ControlType = 6
)

// String returns Kafka's name of the type, UNKNOWN for one from a newer version, which readers skip.
func (t ControlType) String() string {
	names := [...]string{
		"ABORT", "COMMIT", "LEADER_CHANGE", "SNAPSHOT_HEADER", "SNAPSHOT_FOOTER", "KRAFT_VERSION", "KRAFT_VOTERS",
	}
	if t < 0 || int(t) >= len(names) {
		return "UNKNOWN"
	}
	return names[t]
}

// ControlKeyVersion is the version of control record keys that is written.
const ControlKeyVersion int16 = 0

// ParseControlKey returns the type of the control record with this key. Keys of later versions start with the same two
// fields. A type that is not known is returned as it is.
func ParseControlKey(key []byte) (ControlType, error) {
	if len(key) < 4 {
		return 0, corruptf("control record key of %d bytes", len(key))
	}
	if version := int16(binary.BigEndian.Uint16(key)); version < 0 {
		return 0, corruptf("control record key of version %d", version)
	}
	return ControlType(binary.BigEndian.Uint16(key[2:])), nil
}

// AppendControlKey appends the key of a control record.
func AppendControlKey(dst []byte, t ControlType) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(ControlKeyVersion))
	return binary.BigEndian.AppendUint16(dst, uint16(t))
}

// EndTxnMarker is the value of an Abort or Commit record.
type EndTxnMarker struct {
	CoordinatorEpoch int32
}

// Append appends the marker in version 0.
func (m EndTxnMarker) Append(dst []byte) []byte {
	dst = append(dst, 0, 0)
	return binary.BigEndian.AppendUint32(dst, uint32(m.CoordinatorEpoch))
}

// ParseEndTxnMarker reads a marker. Later versions add fields at the end, which are ignored.
func ParseEndTxnMarker(value []byte) (EndTxnMarker, error) {
	if len(value) < 6 {
		return EndTxnMarker{}, corruptf("end of transaction marker of %d bytes", len(value))
	}
	if version := int16(binary.BigEndian.Uint16(value)); version < 0 {
		return EndTxnMarker{}, corruptf("end of transaction marker of version %d", version)
	}
	return EndTxnMarker{CoordinatorEpoch: int32(binary.BigEndian.Uint32(value[2:]))}, nil
}

// EndTxnOptions describe the batch of a transaction marker.
type EndTxnOptions struct {
	BaseOffset       int64
	LeaderEpoch      int32
	TimestampMillis  int64
	ProducerID       int64
	ProducerEpoch    int16
	Commit           bool
	CoordinatorEpoch int32
}

// BuildEndTxnMarker returns the control batch that ends a transaction on one partition.
func BuildEndTxnMarker(o EndTxnOptions) Batch {
	b := NewBuilder(BuilderOptions{
		BaseOffset: o.BaseOffset, LeaderEpoch: o.LeaderEpoch,
		HasProducer: true, ProducerID: o.ProducerID, ProducerEpoch: o.ProducerEpoch, BaseSequence: NoSequence,
		Transactional: true, Control: true,
	})
	t := ControlAbort
	if o.Commit {
		t = ControlCommit
	}
	b.Add(o.TimestampMillis, AppendControlKey(nil, t), EndTxnMarker{o.CoordinatorEpoch}.Append(nil), nil)
	return b.Bytes()
}

// ParseEndTxnBatch reads the control batch of a transaction marker: its type (Abort or Commit) and its value. It
// returns ok false for control batches that hold something else, and for batches without records.
func ParseEndTxnBatch(b Batch, lim Limits) (t ControlType, m EndTxnMarker, ok bool, err error) {
	if !b.IsControl() || !b.HasProducerID() {
		return 0, m, false, nil
	}
	for rec, err := range b.Records(lim) {
		if err != nil {
			return 0, m, false, err
		}
		if t, err = ParseControlKey(rec.Key); err != nil {
			return 0, m, false, err
		}
		if t != ControlAbort && t != ControlCommit {
			return t, m, false, nil
		}
		m, err = ParseEndTxnMarker(rec.Value)
		return t, m, err == nil, err
	}
	return 0, m, false, nil
}
