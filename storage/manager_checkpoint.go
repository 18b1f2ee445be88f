package storage

import (
	"maps"

	"gregor/storage/checkpoint"
)

// loweredPoint is a recovery point that a truncation is about to lower. It holds until the log has published the
// truncation: a checkpoint written in between must not bring the old one back.
type loweredPoint struct {
	offset     int64
	generation int64 // of the log before the truncation
}

// lowerRecoveryPoint makes a lower recovery point durable before a log is truncated. The caller holds the log's
// writer's lock; only State is called on it.
func (m *Manager) lowerRecoveryPoint(d *logDir, p TopicPartition, l *Log, offset int64) error {
	d.checkpoints.Lock()
	d.lowered[p] = loweredPoint{offset: offset, generation: l.State().generation}
	// The log may be missing from the directory's set while it is being loaded or created: then the file is not
	// about it yet, and must not lose the others.
	offsets := m.collect(d, recoveryPointOf(d))
	if _, known := offsets[p]; !known {
		if old, onDisk := d.written[checkpoint.RecoveryPointFile][p]; !onDisk || old <= offset {
			d.checkpoints.Unlock()
			return nil
		}
		offsets = maps.Clone(d.written[checkpoint.RecoveryPointFile])
		offsets[p] = offset
	}
	err := m.writeLocked(d, checkpoint.RecoveryPointFile, offsets)
	d.checkpoints.Unlock()
	return err
}

// collect asks each log of a directory for the offset to write, if any.
func (m *Manager) collect(d *logDir, of func(p TopicPartition, s *State) (int64, bool)) map[TopicPartition]int64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	offsets := make(map[TopicPartition]int64, len(d.logs))
	for p, l := range d.logs {
		if offset, ok := of(p, l.State()); ok {
			offsets[p] = offset
		}
	}
	return offsets
}

// recoveryPointOf is the recovery point of a log, or the one that its truncation has announced. With
// d.checkpoints held.
func recoveryPointOf(d *logDir) func(p TopicPartition, s *State) (int64, bool) {
	return func(p TopicPartition, s *State) (int64, bool) {
		lowered, ok := d.lowered[p]
		if !ok {
			return s.RecoveryPoint, true
		}
		if lowered.generation != s.generation {
			delete(d.lowered, p)
			return s.RecoveryPoint, true
		}
		return min(s.RecoveryPoint, lowered.offset), true
	}
}

// logStartOf is the log start offset when it cannot be told from the first segment.
func logStartOf(_ TopicPartition, s *State) (int64, bool) {
	return s.LogStartOffset, len(s.segments) > 0 && s.LogStartOffset > s.segments[0].Base()
}

func highWatermarkOf(_ TopicPartition, s *State) (int64, bool) { return s.HighWatermark, true }

func (m *Manager) writeRecoveryPoints(d *logDir) {
	d.checkpoints.Lock()
	defer d.checkpoints.Unlock()
	m.writeOrFail(d, checkpoint.RecoveryPointFile, m.collect(d, recoveryPointOf(d)))
}

func (m *Manager) writeLogStartOffsets(d *logDir) {
	d.checkpoints.Lock()
	defer d.checkpoints.Unlock()
	m.writeOrFail(d, checkpoint.LogStartOffsetFile, m.collect(d, logStartOf))
}

func (m *Manager) writeHighWatermarks(d *logDir) {
	d.checkpoints.Lock()
	defer d.checkpoints.Unlock()
	m.writeOrFail(d, checkpoint.HighWatermarkFile, m.collect(d, highWatermarkOf))
}

// writeOrFail writes a checkpoint that differs from what is on disk; a failure takes the directory offline.
func (m *Manager) writeOrFail(d *logDir, name string, offsets map[TopicPartition]int64) {
	if err := m.writeLocked(d, name, offsets); err != nil {
		m.dirFailed(d, err)
	}
}

func (m *Manager) writeLocked(d *logDir, name string, offsets map[TopicPartition]int64) error {
	if err := d.err(); err != nil {
		return err
	}
	if old, known := d.written[name]; known && old != nil && maps.Equal(old, offsets) {
		return nil
	}
	// What is on disk is not known while, and after, a write fails.
	delete(d.written, name)
	if err := checkpoint.WriteOffsets(m.fs, d.file(name), offsets); err != nil {
		return storageErrorf(d.path, "write of "+name, err)
	}
	d.written[name] = offsets
	return nil
}

// forgetCheckpoints makes sure that no checkpoint file says anything of a log that is about to be created: the
// offsets of an older log of that name would cut or hide the new one's records after a crash.
func (m *Manager) forgetCheckpoints(d *logDir, p TopicPartition) error {
	d.checkpoints.Lock()
	defer d.checkpoints.Unlock()
	delete(d.lowered, p)
	for name, written := range d.written {
		if _, stale := written[p]; !stale {
			continue
		}
		offsets := maps.Clone(written)
		delete(offsets, p)
		if err := m.writeLocked(d, name, offsets); err != nil {
			m.dirFailed(d, err)
			return err
		}
	}
	return nil
}
