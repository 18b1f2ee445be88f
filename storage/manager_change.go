package storage

import (
	"errors"
	"path/filepath"
	"strconv"
)

// DeleteLog takes a log away: its directory is renamed at once, so that a topic of the same name can be created
// again, and removed after file.delete.delay.ms. Its future log goes too. It is no error when there is none,
// unless it may be in a directory that is offline.
func (m *Manager) DeleteLog(topic string, partition int32) error {
	return m.DeleteLogs([]TopicPartition{{Topic: topic, Partition: partition}})
}

// DeleteLogs deletes several logs, writing the checkpoints once.
func (m *Manager) DeleteLogs(partitions []TopicPartition) error {
	m.changing.Lock()
	defer m.changing.Unlock()
	var errs error
	touched := map[*logDir]struct{}{}
	for _, p := range partitions {
		m.mu.RLock()
		now, exists := m.current[p]
		future, moving := m.future[p]
		lostIn, lost := m.lost[p]
		damaged, closed := m.unopened[p]
		m.mu.RUnlock()
		if closed {
			touched[damaged.dir] = struct{}{}
			errs = errors.Join(errs, m.deleteUnopened(p, damaged))
		}
		if exists {
			touched[now.dir] = struct{}{}
			errs = errors.Join(errs, m.renameAway(p, now))
		}
		if moving {
			touched[future.dir] = struct{}{}
			errs = errors.Join(errs, m.renameAway(p, future))
		}
		if !exists && lost {
			errs = errors.Join(errs, lostIn.err())
		}
	}
	for d := range touched {
		errs = errors.Join(errs, m.syncNames(d))
		for _, what := range []offsetsIn{recoveryPointsIn, logStartOffsetsIn, highWatermarksIn} {
			_ = m.checkpoint(d, what) // dealt with; the next interval tries again
		}
		_ = m.checkpointCleaned(d)
	}
	return errs
}

// DeleteFutureLog gives up a move to another directory.
func (m *Manager) DeleteFutureLog(topic string, partition int32) error {
	p := TopicPartition{Topic: topic, Partition: partition}
	m.changing.Lock()
	defer m.changing.Unlock()
	m.mu.RLock()
	future, moving := m.future[p]
	m.mu.RUnlock()
	if !moving {
		return nil
	}
	return errors.Join(m.renameAway(p, future), m.syncNames(future.dir))
}

// syncNames makes renames in a directory durable.
func (m *Manager) syncNames(d *logDir) error {
	if err := d.err(); err != nil {
		return err
	}
	if err := m.fs.SyncDir(d.path); err != nil {
		err = storageErrorf(d.path, "sync of the directory", err)
		m.dirFailed(d, err)
		return err
	}
	return nil
}

// renameAway renames the directory of a log for deletion; the caller makes that durable. With changing held.
func (m *Manager) renameAway(p TopicPartition, at placedLog) error {
	m.mu.Lock()
	delete(at.dir.logs, p)
	for _, logs := range []map[TopicPartition]placedLog{m.current, m.future} {
		if logs[p].log == at.log {
			delete(logs, p)
		}
	}
	m.mu.Unlock()
	m.stopCleaning(at)
	path := filepath.Join(at.dir.path, dirName(p, DirDelete))
	err := at.log.renameDir(path)
	if errors.Is(err, ErrNoSpace) {
		// Deleting is what makes room: where there is none for the longer name, the directory goes at once.
		if err = at.log.Delete(); err == nil {
			m.log.Info("Deleted a log", "partition", p.String(), "path", at.log.opts.dir)
			return nil
		}
	}
	if err != nil {
		m.dirFailed(at.dir, err)
		return err
	}
	m.log.Info("Log is renamed and scheduled for deletion", "partition", p.String(), "path", path)
	m.removeLater(path, at.log)
	return nil
}

// PromoteFuture makes the future log of a partition, which has caught up, the current one; the old one is deleted
// later. No append may run meanwhile.
func (m *Manager) PromoteFuture(topic string, partition int32) (*Log, error) {
	p := TopicPartition{Topic: topic, Partition: partition}
	m.changing.Lock()
	defer m.changing.Unlock()
	m.mu.RLock()
	now, exists := m.current[p]
	future, moving := m.future[p]
	m.mu.RUnlock()
	if !exists || !moving {
		return nil, storageErrorf(p.String(), "promotion of the future replica", errors.New("current or future replica of partition "+
			strconv.Itoa(int(partition))+" is not online"))
	}
	if err := future.log.RenameDir(filepath.Join(future.dir.path, dirName(p, DirCurrent))); err != nil {
		m.dirFailed(future.dir, err)
		return nil, err
	}
	if _, err := future.log.UpdateHighWatermark(now.log.State().HighWatermark); err != nil {
		return nil, err
	}
	if err := future.log.setCleanedTo(now.log.State().CleanedTo, future.log.State().generation); err != nil {
		return nil, err
	}
	m.mu.Lock()
	delete(m.future, p)
	m.current[p] = future
	delete(now.dir.logs, p)
	m.mu.Unlock()
	// The old replica's directory may fail now; the new one serves all the same.
	if err := errors.Join(m.renameAway(p, now), m.syncNames(now.dir)); err != nil {
		m.log.Error("Cannot rename the replaced replica", "partition", p.String(), "error", err)
		now.log.CloseUnclean()
	}
	_ = errors.Join(m.checkpoint(now.dir, recoveryPointsIn), m.checkpoint(now.dir, logStartOffsetsIn),
		m.checkpointCleaned(now.dir), m.checkpointCleaned(future.dir)) // dealt with
	return future.log, nil
}
