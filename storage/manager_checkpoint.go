package storage

import (
	"errors"
	"iter"
	"maps"

	"gregor/storage/checkpoint"
)

// offsetsIn says what goes into an offset checkpoint of a directory.
type offsetsIn struct {
	file string
	// of answers the offset of a log; ok is false to leave it out. It runs with the directory's checkpoints held.
	of func(d *logDir, p TopicPartition, s *State) (offset int64, ok bool)
}

// The checkpoints that a Manager writes.
var (
	recoveryPointsIn = offsetsIn{checkpoint.RecoveryPointFile, recoveryPointOf}
	// The log start offset is written when it cannot be told from the first segment.
	logStartOffsetsIn = offsetsIn{checkpoint.LogStartOffsetFile, func(_ *logDir, _ TopicPartition, s *State) (int64, bool) {
		return s.LogStartOffset, len(s.segments) > 0 && s.LogStartOffset > s.segments[0].Base()
	}}
	highWatermarksIn = offsetsIn{checkpoint.HighWatermarkFile, func(_ *logDir, _ TopicPartition, s *State) (int64, bool) {
		return s.HighWatermark, true
	}}
	cleanedToIn = offsetsIn{checkpoint.CleanerOffsetFile, func(_ *logDir, _ TopicPartition, s *State) (int64, bool) {
		return s.CleanedTo, s.CleanedTo > 0
	}}
)

// checkpoints makes the background work that writes a checkpoint in every directory.
func (m *Manager) checkpoints(what offsetsIn) func() {
	return func() {
		for _, d := range m.onlineDirs() {
			_ = m.checkpoint(d, what) // dealt with; the next interval tries again
		}
	}
}

// checkpoint writes a checkpoint; a failure takes the directory offline, except for want of space (ErrNoSpace): the old file
// is there then.
func (m *Manager) checkpoint(d *logDir, what offsetsIn) error {
	d.checkpoints.Lock()
	var err error
	if !d.isWritten(what) {
		err = d.write(what.file, d.collect(what))
	}
	d.checkpoints.Unlock()
	if err != nil {
		m.dirFailed(d, err)
	}
	return err
}

// offsets are what a checkpoint must say: the offset of each log of the directory, and of replicas that could not be opened
// what it said before. Without a recovery point the next start would read those from the beginning and cut them at their
// damage. With checkpoints and placing held.
func (d *logDir) offsets(what offsetsIn) iter.Seq2[TopicPartition, int64] {
	return func(yield func(TopicPartition, int64) bool) {
		for p, l := range d.logs {
			if offset, ok := what.of(d, p, l.State()); ok && !yield(p, offset) {
				return
			}
		}
		for p, u := range d.unopened {
			if u.dir != d {
				continue
			}
			if offset, ok := d.written[what.file][p]; ok && !yield(p, offset) {
				return
			}
		}
	}
}

// isWritten tells that a checkpoint on disk says what it must; false if that is not certain. It is what most looks at a
// quiet broker come to, so nothing is allocated. With checkpoints held.
func (d *logDir) isWritten(what offsetsIn) bool {
	written := d.written[what.file]
	if written == nil || d.err() != nil {
		return false
	}
	d.placing.RLock()
	defer d.placing.RUnlock()
	n := 0
	for p, offset := range d.offsets(what) {
		if old, there := written[p]; !there || old != offset {
			return false
		}
		n++
	}
	return n == len(written)
}

// collect makes what a checkpoint must say. With checkpoints held.
func (d *logDir) collect(what offsetsIn) map[TopicPartition]int64 {
	d.placing.RLock()
	defer d.placing.RUnlock()
	collected := make(map[TopicPartition]int64, len(d.logs))
	maps.Insert(collected, d.offsets(what))
	return collected
}

// write writes a checkpoint that differs from what is on disk. With checkpoints held.
func (d *logDir) write(file string, offsets map[TopicPartition]int64) error {
	if err := d.err(); err != nil {
		return err
	}
	old, known := d.written[file]
	if known && old != nil && maps.Equal(old, offsets) {
		return nil
	}
	// What is on disk is not known while, and after, a write fails, unless for want of space.
	delete(d.written, file)
	if err := checkpoint.WriteOffsets(d.fs, d.file(file), offsets); err != nil {
		err = d.refuse("write of "+file, err)
		if known && errors.Is(err, ErrNoSpace) {
			d.written[file] = old
		}
		return err
	}
	d.written[file] = offsets
	d.space.worked()
	return nil
}

// loweredPoint is a recovery point that a truncation is about to lower. It holds until the log has published the
// truncation: a checkpoint written in between must not bring the old one back.
type loweredPoint struct {
	offset     int64
	generation int64 // of the log before the truncation
}

// lowerRecoveryPoint makes a lower recovery point durable before a log is truncated. The caller holds the log's
// writer's lock; only State is called on it.
func (d *logDir) lowerRecoveryPoint(l *Log, offset int64) error {
	p := l.topicPartition()
	d.checkpoints.Lock()
	defer d.checkpoints.Unlock()
	d.lowered[p] = loweredPoint{offset: offset, generation: l.State().generation}
	offsets := d.collect(recoveryPointsIn)
	if _, placed := offsets[p]; !placed {
		// The log is being loaded or created, and with it perhaps others: the file keeps what it says of them.
		written := d.written[checkpoint.RecoveryPointFile]
		if old, onDisk := written[p]; !onDisk || old <= offset {
			return nil
		}
		offsets = maps.Clone(written)
		offsets[p] = offset
	}
	err := d.write(checkpoint.RecoveryPointFile, offsets)
	if errors.Is(err, ErrNoSpace) {
		delete(d.lowered, p) // there will be no truncation
	}
	return err
}

// recoveryPointOf is the recovery point of a log, or the one that its truncation has announced.
func recoveryPointOf(d *logDir, p TopicPartition, s *State) (int64, bool) {
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

// forgetCheckpoints makes sure that no checkpoint file says anything of a log that is about to be created: the
// offsets of an older log of that name would cut or hide the new one's records after a crash.
func (d *logDir) forgetCheckpoints(p TopicPartition) error {
	d.checkpoints.Lock()
	defer d.checkpoints.Unlock()
	delete(d.lowered, p)
	for file, written := range maps.Clone(d.written) {
		if _, stale := written[p]; !stale {
			continue
		}
		offsets := maps.Clone(written)
		delete(offsets, p)
		if err := d.write(file, offsets); err != nil {
			return err
		}
	}
	return nil
}
