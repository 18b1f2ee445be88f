package quorum

import (
	"encoding/hex"
	"errors"
	"fmt"

	"gregor/kraft/metadata"
	"gregor/protocol"
	"gregor/protocol/record"
	"gregor/storage/vfs"
)

// maxSnapshotBatchBytes is where a batch of a snapshot is closed, unless a single record is larger. Kafka allows
// 8 MiB; smaller batches cost nothing and keep what a reader holds in memory small.
const maxSnapshotBatchBytes = 512 << 10

// SnapshotWriter writes one checkpoint. Nothing is seen of it before Close succeeds. It is used by one goroutine.
type SnapshotWriter struct {
	id        SnapshotID
	store     *snapshotStore
	part      string
	file      vfs.File
	position  int64
	offset    int64 // of the next record inside the snapshot
	nowMillis int64
	builder   *record.Builder
	scratch   []byte
	finished  bool
}

// snapshotSpec is what a snapshot is made from.
type snapshotSpec struct {
	id                     SnapshotID
	lastContainedLogMillis int64
	config                 config
	nowMillis              int64
}

// newSnapshotWriter creates the file and writes the header.
func (s *snapshotStore) newSnapshotWriter(spec snapshotSpec) (*SnapshotWriter, error) {
	unique := protocol.RandomUUID()
	w := &SnapshotWriter{
		id: spec.id, store: s, part: s.partName(spec.id, hex.EncodeToString(unique[:8])),
		nowMillis: spec.nowMillis,
	}
	f, err := s.fs.Create(w.part)
	if err != nil {
		return nil, fmt.Errorf("snapshot %v: %w", spec.id, err)
	}
	w.file = f
	header := metadata.NewSnapshotHeaderRecord()
	header.LastContainedLogTimestamp = spec.lastContainedLogMillis
	records := []controlRecord{{record.ControlSnapshotHeader, header}}
	if spec.config.level >= 1 {
		records = append(records, kraftVersionRecord(spec.config.level))
		if spec.config.voters.Len() > 0 {
			records = append(records, votersRecord(spec.config.voters, nil))
		}
	}
	if err := w.control(records...); err != nil {
		w.Abort()
		return nil, err
	}
	w.builder = record.NewBuilder(w.options())
	return w, nil
}

// ID names the snapshot.
func (w *SnapshotWriter) ID() SnapshotID { return w.id }

func (w *SnapshotWriter) options() record.BuilderOptions {
	return record.BuilderOptions{BaseOffset: w.offset, LeaderEpoch: w.id.Epoch}
}

func (w *SnapshotWriter) control(records ...controlRecord) error {
	b, err := buildControl(w.options(), w.nowMillis, records...)
	if err != nil {
		return err
	}
	w.offset = b.NextOffset()
	return w.write(b)
}

func (w *SnapshotWriter) write(b []byte) error {
	if _, err := w.file.WriteAt(b, w.position); err != nil {
		return fmt.Errorf("snapshot %v: %w", w.id, err)
	}
	w.position += int64(len(b))
	return nil
}

// Append adds records.
func (w *SnapshotWriter) Append(records ...VersionedRecord) error {
	for _, r := range records {
		value, err := metadata.Append(w.scratch[:0], r.Record, r.Version)
		if err != nil {
			return fmt.Errorf("snapshot %v: %w", w.id, err)
		}
		w.scratch = value
		if w.builder.Count() > 0 && w.builder.SizeWith(-1, len(value)) > maxSnapshotBatchBytes {
			if err := w.flush(); err != nil {
				return err
			}
		}
		w.builder.Add(w.nowMillis, nil, value, nil)
	}
	return nil
}

func (w *SnapshotWriter) flush() error {
	if w.builder.Count() == 0 {
		return nil
	}
	b := w.builder.Bytes()
	w.offset = b.NextOffset()
	err := w.write(b)
	w.builder.Reset(w.options())
	return err
}

// Close writes the footer and makes the snapshot durable and visible. After an error the snapshot does not exist.
func (w *SnapshotWriter) Close() error {
	if w.finished {
		return nil
	}
	err := w.flush()
	if err == nil {
		err = w.control(controlRecord{record.ControlSnapshotFooter, metadata.NewSnapshotFooterRecord()})
	}
	if err == nil {
		if err = w.file.Sync(); err != nil {
			err = fmt.Errorf("snapshot %v: %w", w.id, err)
		}
	}
	if err != nil {
		w.Abort()
		return err
	}
	w.finished = true
	if err := w.file.Close(); err != nil {
		return errors.Join(fmt.Errorf("snapshot %v: %w", w.id, err), w.store.fs.Remove(w.part))
	}
	return w.store.complete(w.part, w.id)
}

// Abort gives the snapshot up. It does nothing after Close.
func (w *SnapshotWriter) Abort() {
	if w.finished {
		return
	}
	w.finished = true
	_ = w.file.Close()
	_ = w.store.fs.Remove(w.part)
}
