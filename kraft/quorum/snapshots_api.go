package quorum

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"gregor/protocol/record"
	"gregor/storage"
)

// CreateSnapshot begins a snapshot of all records below offset, which must be the end of a committed batch; the time
// is that of the last of them. The caller appends the records of its state and closes the writer.
func (n *Node) CreateSnapshot(ctx context.Context, offset, lastContainedLogTimestampMillis int64) (*SnapshotWriter, error) {
	spec := snapshotSpec{lastContainedLogMillis: lastContainedLogTimestampMillis, nowMillis: time.Now().UnixMilli()}
	err := n.do(ctx, func(m *machine) (error, error) {
		var err error
		spec.id, spec.config, err = m.storage.snapshotAt(offset, m.board.load().highWatermark)
		if err != nil {
			return err, nil
		}
		// A start takes all that a snapshot covers for synced; an observer may not have done so yet.
		if err := m.storage.log.Flush(offset); err != nil {
			err = fmt.Errorf("sync of the metadata log: %w", err)
			return err, err
		}
		return nil, nil
	})
	if err != nil {
		return nil, err
	}
	return n.machine.storage.snapshots.newSnapshotWriter(spec)
}

// LatestSnapshot opens the newest snapshot; false when there is none but that of the format command.
func (n *Node) LatestSnapshot() (*SnapshotReader, bool, error) {
	id, ok := n.machine.storage.snapshots.latest()
	if !ok || id.IsBootstrap() {
		return nil, false, nil
	}
	r, err := n.machine.storage.snapshots.openSnapshot(id)
	return r, err == nil, err
}

// snapshotAt checks that a snapshot may end at an offset, and finds the epoch and the voters there.
func (s *raftStorage) snapshotAt(offset, highWatermark int64) (SnapshotID, config, error) {
	if newest, ok := s.snapshots.latest(); ok && offset <= newest.Offset {
		return SnapshotID{}, config{}, fmt.Errorf("%w: %v", ErrSnapshotExists, newest)
	}
	if offset > highWatermark || offset <= s.log.State().LogStartOffset {
		return SnapshotID{}, config{}, fmt.Errorf("%w: %d, high watermark %d", ErrSnapshotOffset, offset, highWatermark)
	}
	b, err := s.log.ReadBatches(offset, nil, 1, storage.UpToLogEnd)
	if err != nil && !errors.Is(err, io.EOF) {
		return SnapshotID{}, config{}, fmt.Errorf("metadata log at offset %d: %w", offset, err)
	}
	if first, _, err := record.Next(b); err == nil && first.BaseOffset() != offset {
		return SnapshotID{}, config{}, fmt.Errorf("%w: %d lies in the batch at %d", ErrSnapshotOffset, offset, first.BaseOffset())
	}
	epoch, ok := s.log.EpochForOffset(offset - 1)
	if !ok {
		return SnapshotID{}, config{}, fmt.Errorf("%w: no leader epoch of offset %d", ErrCorrupt, offset-1)
	}
	return SnapshotID{Offset: offset, Epoch: epoch}, s.history.at(offset).config, nil
}
