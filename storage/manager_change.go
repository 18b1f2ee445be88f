package storage

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"

	"gregor/storage/vfs"
)

// CreateLog returns the log of a partition, creating it if need be: in the directory with the given id, or, for a
// zero or reserved id, in the online one with the fewest logs. When the replica may be in a directory that is
// offline, the answer is ErrStorage rather than an empty log; when the log belongs to another topic of that
// name, ErrInconsistentTopicID.
func (m *Manager) CreateLog(topic string, partition int32, topicID [16]byte, c LogConfig, dirID [16]byte) (*Log, error) {
	p := TopicPartition{Topic: topic, Partition: partition}
	m.changing.Lock()
	defer m.changing.Unlock()
	if l, ok := m.Log(topic, partition); ok {
		if known := l.TopicID(); known != topicID && known != [16]byte{} && topicID != [16]byte{} {
			return nil, fmt.Errorf("%w: %s has %s, not %s", ErrInconsistentTopicID, p, formatID(known), formatID(topicID))
		}
		return l, nil
	}
	dirs, err := m.dirsFor(p, dirID)
	if err != nil {
		return nil, err
	}
	return m.create(p, DirCurrent, topicID, c, dirs)
}

// CreateFutureLog creates the log that a partition is to be moved to, in the directory of the given path
// (AlterReplicaLogDirs).
func (m *Manager) CreateFutureLog(topic string, partition int32, c LogConfig, dirPath string) (*Log, error) {
	p := TopicPartition{Topic: topic, Partition: partition}
	m.changing.Lock()
	defer m.changing.Unlock()
	m.mu.RLock()
	now, exists := m.current[p]
	future, moving := m.future[p]
	m.mu.RUnlock()
	if !exists {
		return nil, storageErrorf(p.String(), "move to another directory", errors.New("the current replica is not online"))
	}
	for _, d := range m.dirs {
		if !d.holdsLogs || d.path != filepath.Clean(dirPath) {
			continue
		}
		switch {
		case moving && future.dir == d:
			return future.log, nil
		case moving || now.dir == d:
			return nil, fmt.Errorf("%s cannot be moved to %s: it is or moves in another directory already", p, d.path)
		case !d.online():
			return nil, d.err()
		}
		return m.create(p, DirFuture, now.log.TopicID(), c, []*logDir{d})
	}
	return nil, fmt.Errorf("log dir %s is not found in the config", dirPath)
}

// dirsFor is where a new log may go, best first.
func (m *Manager) dirsFor(p TopicPartition, id [16]byte) ([]*logDir, error) {
	m.mu.RLock()
	lostIn, lost := m.lost[p]
	damaged, closed := m.unopened[p]
	m.mu.RUnlock()
	switch {
	case lost:
		return nil, lostIn.err()
	case closed:
		return nil, damaged.err
	}
	var offline *logDir
	for _, d := range m.dirs {
		if !d.holdsLogs {
			continue
		}
		if !isReservedDirID(id) && d.meta.DirectoryID == id {
			if err := d.err(); err != nil {
				return nil, err
			}
			return []*logDir{d}, nil
		}
		if !d.online() {
			offline = d
		}
	}
	if offline != nil && !isReservedDirID(id) {
		// The id may be that of the directory that could not be read.
		return nil, offline.err()
	}
	return m.leastUsed()
}

func (m *Manager) isCordoned(d *logDir) bool { return slices.Contains(*m.cordoned.Load(), d.path) }

// leastUsed orders the online directories by their number of logs. Cordoned ones are left out, unless there is
// no other: the replica may have been assigned just before.
func (m *Manager) leastUsed() ([]*logDir, error) {
	dirs := m.onlineDirs()
	if len(dirs) == 0 {
		return nil, storageErrorf("", "creation of a log", ErrNoOnlineDir)
	}
	open := slices.DeleteFunc(slices.Clone(dirs), m.isCordoned)
	if len(open) == 0 {
		return dirs[:1], nil
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	slices.SortStableFunc(open, func(a, b *logDir) int { return cmp.Compare(len(a.logs), len(b.logs)) })
	return open, nil
}

// create makes the log in the first directory that takes it. With changing held.
func (m *Manager) create(p TopicPartition, kind DirKind, topicID [16]byte, c LogConfig, dirs []*logDir) (*Log, error) {
	name := dirName(p, kind)
	var err error
	for _, d := range dirs {
		if err = d.forgetCheckpoints(p); err != nil {
			m.dirFailed(d, err)
			continue
		}
		opts := m.logOptions(d, p, name, c)
		opts.TopicID, opts.HadCleanShutdown = topicID, true
		var l *Log
		if l, err = OpenLog(opts); err == nil {
			if err := m.place(d, found{partition: p, name: name, kind: kind}, l); err != nil {
				return nil, err
			}
			m.log.Debug("Created a log", "dir", d.path, "name", name)
			return l, l.Err()
		}
		if errors.Is(err, ErrInconsistentTopicID) {
			return nil, err
		}
		m.dirFailed(d, err)
		if exists, statErr := vfs.Exists(m.fs, opts.Dir); exists || statErr != nil {
			// A second directory elsewhere would leave two of one partition when this one comes back.
			break
		}
	}
	return nil, storageErrorf(dirs[0].path, "creation of "+name, err)
}

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
		m.checkpoint(d, recoveryPointsIn)
		m.checkpoint(d, logStartOffsetsIn)
		m.checkpointCleaned(d)
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
	return m.renameAway(p, future)
}

// renameAway renames the directory of a log for deletion. With changing held.
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
	if err := at.log.RenameDir(path); err != nil {
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
	if err := m.renameAway(p, now); err != nil {
		m.log.Error("Cannot rename the replaced replica", "partition", p.String(), "error", err)
		now.log.CloseUnclean()
	}
	m.checkpoint(now.dir, recoveryPointsIn)
	m.checkpoint(now.dir, logStartOffsetsIn)
	m.checkpointCleaned(now.dir)
	m.checkpointCleaned(future.dir)
	return future.log, nil
}
