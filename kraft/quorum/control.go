package quorum

import (
	"encoding/binary"
	"fmt"

	"gregor/kraft/metadata"
	"gregor/protocol/record"
)

// raftBytesTag is the tagged field of the KRaftVoters record that holds etcd raft's ConfChangeV2 in its own encoding.
// Kafka skips it. Below 100 lie the tags that Kafka may come to use.
const raftBytesTag = 100

// maxRecordBytes bounds what a record of the metadata log may decompress to; Kafka's batches there end at 8 MiB.
const maxRecordBytes = 64 << 20

var recordLimits = record.Limits{MaxDecompressedBytes: maxRecordBytes}

// control is what the control records of a batch say.
type control struct {
	leaderChange *metadata.LeaderChangeMessage
	level        *int16    // KRaftVersion
	voters       *VoterSet // KRaftVoters
	raftBytes    []byte    // of KRaftVoters; nil when Kafka wrote it
	header       *metadata.SnapshotHeaderRecord
	footer       bool
}

// readControl decodes the records of a control batch. Types it does not know are skipped, as Kafka does.
func readControl(b record.Batch) (control, error) {
	var c control
	for rec, err := range b.Records(recordLimits) {
		if err != nil {
			return c, fmt.Errorf("%w: control batch at offset %d: %w", ErrCorrupt, b.BaseOffset(), err)
		}
		kind, err := record.ParseControlKey(rec.Key)
		if err != nil {
			return c, fmt.Errorf("%w: control record at offset %d: %w", ErrCorrupt, rec.Offset, err)
		}
		if err := c.set(kind, rec.Value); err != nil {
			return c, fmt.Errorf("%w: control record of type %d at offset %d: %w", ErrCorrupt, kind, rec.Offset, err)
		}
	}
	return c, nil
}

func (c *control) set(kind record.ControlType, value []byte) error {
	switch kind {
	case record.ControlLeaderChange:
		c.leaderChange = metadata.NewLeaderChangeMessage()
		version := int16(0)
		if len(value) >= 2 {
			version = int16(binary.BigEndian.Uint16(value))
		}
		return c.leaderChange.Decode(value, version)
	case record.ControlKRaftVersion:
		rec := metadata.NewKRaftVersionRecord()
		if err := rec.Decode(value, 0); err != nil {
			return err
		}
		c.level = &rec.KRaftVersion
	case record.ControlKRaftVoters:
		rec := metadata.NewVotersRecord()
		if err := rec.Decode(value, 0); err != nil {
			return err
		}
		voters, err := voterSetOf(rec)
		if err != nil {
			return err
		}
		c.voters = &voters
		c.raftBytes, _ = rec.Extra.Get(raftBytesTag)
	case record.ControlSnapshotHeader:
		c.header = metadata.NewSnapshotHeaderRecord()
		return c.header.Decode(value, 0)
	case record.ControlSnapshotFooter:
		c.footer = true
	case record.ControlAbort, record.ControlCommit: // of transactions, which the metadata log has none of
	}
	return nil
}

// apply returns the config after the batch.
func (c *control) apply(before config) config {
	if c.level != nil {
		before.level = *c.level
	}
	if c.voters != nil {
		before.voters = *c.voters
	}
	return before
}

// changesConfig tells whether the batch says anything about voters.
func (c *control) changesConfig() bool { return c.level != nil || c.voters != nil }

// controlRecord is a control record that is to be written.
type controlRecord struct {
	kind    record.ControlType
	message interface {
		Append(dst []byte, version int16) ([]byte, error)
	}
}

// buildControl makes a control batch; offsets and epoch are stamped later, or are those of a snapshot.
func buildControl(o record.BuilderOptions, nowMillis int64, records ...controlRecord) (record.Batch, error) {
	o.Control = true
	b := record.NewBuilder(o)
	for _, r := range records {
		value, err := r.message.Append(nil, 0)
		if err != nil {
			return nil, fmt.Errorf("control record of type %d: %w", r.kind, err)
		}
		b.Add(nowMillis, record.AppendControlKey(nil, r.kind), value, nil)
	}
	return b.Bytes(), nil
}

// leaderChangeBatch is the first batch of a leader's epoch: who votes, and who voted for it.
func leaderChangeBatch(leaderID int32, voters, granting []int32, nowMillis int64) (record.Batch, error) {
	msg := metadata.NewLeaderChangeMessage()
	msg.LeaderID = leaderID
	for _, id := range voters {
		msg.Voters = append(msg.Voters, metadata.LeaderChangeVoter{VoterID: id})
	}
	for _, id := range granting {
		msg.GrantingVoters = append(msg.GrantingVoters, metadata.LeaderChangeVoter{VoterID: id})
	}
	return buildControl(record.BuilderOptions{}, nowMillis, controlRecord{record.ControlLeaderChange, msg})
}

func kraftVersionRecord(level int16) controlRecord {
	rec := metadata.NewKRaftVersionRecord()
	rec.KRaftVersion = level
	return controlRecord{record.ControlKRaftVersion, rec}
}

// votersRecord makes a KRaftVoters record; raftBytes may be nil (in snapshots).
func votersRecord(voters VoterSet, raftBytes []byte) controlRecord {
	rec := voters.record()
	if raftBytes != nil {
		rec.Extra = rec.Extra.With(raftBytesTag, raftBytes)
	}
	return controlRecord{record.ControlKRaftVoters, rec}
}

// dataBatch makes the batch of one metadata record.
func dataBatch(r VersionedRecord, nowMillis int64) (record.Batch, error) {
	value, err := metadata.Append(nil, r.Record, r.Version)
	if err != nil {
		return nil, err
	}
	b := record.NewBuilder(record.BuilderOptions{})
	b.Add(nowMillis, nil, value, nil)
	return b.Bytes(), nil
}

// committedBatch decodes the metadata records of a batch.
func committedBatch(b record.Batch) (CommittedBatch, error) {
	out := CommittedBatch{
		BaseOffset: b.BaseOffset(), LastOffset: b.LastOffset(), Epoch: b.LeaderEpoch(),
		AppendTimestampMillis: b.MaxTimestamp(), SizeBytes: len(b),
	}
	if b.IsControl() {
		return out, nil
	}
	out.Records = make([]metadata.Record, 0, b.Count())
	for rec, err := range b.Records(recordLimits) {
		if err != nil {
			return out, fmt.Errorf("%w: batch at offset %d: %w", ErrCorrupt, b.BaseOffset(), err)
		}
		decoded, err := metadata.Decode(rec.Value)
		if err != nil {
			return out, fmt.Errorf("%w: metadata record at offset %d: %w", ErrCorrupt, rec.Offset, err)
		}
		out.Records = append(out.Records, decoded)
	}
	return out, nil
}
