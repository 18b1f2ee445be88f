package storage

import (
	"errors"
	"path/filepath"

	"gregor/protocol/record"
	"gregor/storage/checkpoint"
)

// DamagedReplica is a replica that is offline although its directory is online, because a file of it is damaged.
type DamagedReplica struct {
	Topic     string
	Partition int32
	TopicID   [16]byte // zero when it cannot be read
	Err       error    // an ErrStorage that names the file and the position
}

// unopened is a replica that could not be opened. Its files are left as they are.
type unopened struct {
	dir  *logDir
	name string // of the partition's directory
	err  error
}

// logDamaged is told by a log that it is offline. What it holds is made durable, and the recovery point with it, before
// anybody is told: the next start must not read the damaged part, if the stop is not clean, and cut the log there.
func (m *Manager) logDamaged(d *logDir, l *Log, err error) {
	m.work.Go(func() {
		if l.Flush(l.State().LogEndOffset) == nil {
			_ = m.checkpoint(d, recoveryPointsIn) // dealt with
		}
		m.tellDamage(DamagedReplica{Topic: l.Topic(), Partition: l.Partition(), TopicID: l.TopicID(), Err: err})
	})
}

func (m *Manager) tellDamage(r DamagedReplica) {
	if m.o.ReplicaDamaged != nil {
		m.o.ReplicaDamaged(r)
	}
}

// isReplicasOwn tells errors of loading that are of one replica from those of its directory.
func isReplicasOwn(err error) bool {
	return isDamage(err) || errors.Is(err, record.ErrCorrupt) || errors.Is(err, record.ErrTruncated)
}

// leaveDamaged notes a replica that cannot be opened. The others of the directory go on.
func (ld *dirLoader) leaveDamaged(f found, cause error) {
	m, path := ld.m, filepath.Join(ld.d.path, f.name)
	err := storageErrorf(path, "opening", cause)
	m.log.Error("Replica is offline: a file of it is damaged", "topic", f.partition.Topic, "partition", f.partition.Partition, "error", err)
	if f.kind != DirCurrent {
		return // a copy that is not in use
	}
	id, idErr := checkpoint.ReadPartitionMetadata(m.fs, filepath.Join(path, checkpoint.PartitionMetadataFile))
	if idErr == nil && ld.o.IsStray != nil && ld.o.IsStray(f.partition, id) {
		name := dirName(f.partition, DirStray)
		if err := m.renameClosed(path, filepath.Join(ld.d.path, name)); err != nil {
			m.dirFailed(ld.d, err)
		}
		return
	}
	m.mu.Lock()
	m.unopened[f.partition] = unopened{dir: ld.d, name: f.name, err: err}
	m.mu.Unlock()
	m.work.Go(func() {
		m.tellDamage(DamagedReplica{Topic: f.partition.Topic, Partition: f.partition.Partition, TopicID: id, Err: err})
	})
}

// renameClosed renames the directory of a log that is not open.
func (m *Manager) renameClosed(from, to string) error {
	if err := m.fs.Rename(from, to); err != nil {
		return err
	}
	return m.fs.SyncDir(filepath.Dir(to))
}

// deleteUnopened deletes a replica that could not be opened. With changing held.
func (m *Manager) deleteUnopened(p TopicPartition, u unopened) error {
	path := filepath.Join(u.dir.path, dirName(p, DirDelete))
	if err := m.renameClosed(filepath.Join(u.dir.path, u.name), path); err != nil {
		err = storageErrorf(u.dir.path, "rename of "+u.name, err)
		m.dirFailed(u.dir, err)
		return err
	}
	m.mu.Lock()
	delete(m.unopened, p)
	m.mu.Unlock()
	m.log.Info("Log is renamed and scheduled for deletion", "partition", p.String(), "path", path)
	m.removeLater(path, nil)
	return nil
}
