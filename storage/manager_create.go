package storage

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

	"gregor/storage/segment"
	"gregor/storage/vfs"
)

// CreateLog returns the log of a partition, creating it if need be: in the directory with the given id, or, for a
// zero or reserved id, in the online one with the fewest logs. When the replica may be in a directory that is
// offline, the answer is ErrStorage rather than an empty log; when the log belongs to another topic of that
// name, ErrInconsistentTopicID; when none of the directories has space for it, ErrNoSpace, and there is nothing of it. Logs of
// different partitions are created at the same time.
func (m *Manager) CreateLog(topic string, partition int32, topicID [16]byte, c LogConfig, dirID [16]byte) (*Log, error) {
	p := TopicPartition{Topic: topic, Partition: partition}
	m.changing.RLock()
	defer m.changing.RUnlock()
	release := m.reserve(p)
	defer release()
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

// reserve waits until nobody else creates the log of a partition; the caller may until it calls release.
func (m *Manager) reserve(p TopicPartition) (release func()) {
	for {
		m.mu.Lock()
		other, taken := m.creating[p]
		if !taken {
			done := make(chan struct{})
			m.creating[p] = done
			m.mu.Unlock()
			return func() {
				m.mu.Lock()
				delete(m.creating, p)
				m.mu.Unlock()
				close(done)
			}
		}
		m.mu.Unlock()
		<-other
	}
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
	slices.SortStableFunc(open, func(a, b *logDir) int { return cmp.Compare(a.used(), b.used()) })
	return open, nil
}

// create makes the log in the first directory that takes it. With changing held, for reading if the partition is reserved.
func (m *Manager) create(p TopicPartition, kind DirKind, topicID [16]byte, c LogConfig, dirs []*logDir) (*Log, error) {
	name := dirName(p, kind)
	var err error
	for _, d := range dirs {
		if err = d.forgetCheckpoints(p); err != nil {
			m.dirFailed(d, err)
			continue
		}
		opts := m.logOptions(d, p, name, c)
		opts.TopicID, opts.TopicIDLater, opts.HadCleanShutdown = topicID, true, true
		var l *Log
		d.creating.Add(1)
		l, err = OpenLog(opts)
		d.creating.Add(-1)
		if err == nil {
			if err := m.place(d, found{partition: p, name: name, kind: kind}, l); err != nil {
				return nil, err
			}
			m.writeTopicIDLater(d, l)
			m.log.Debug("Created a log", "dir", d.path, "name", name)
			return l, l.Err()
		}
		if errors.Is(err, ErrInconsistentTopicID) {
			return nil, err
		}
		if err = m.createFailed(d, opts.Dir, name, err); errors.Is(err, ErrNoSpace) {
			continue
		}
		m.dirFailed(d, err)
		if exists, statErr := vfs.Exists(m.fs, opts.Dir); exists || statErr != nil {
			// A second directory elsewhere would leave two of one partition when this one comes back.
			break
		}
	}
	if errors.Is(err, ErrNoSpace) {
		return nil, err
	}
	return nil, storageErrorf(dirs[0].path, "creation of "+name, err)
}

// createFailed sorts out why a log could not be created. Without space what there is of it is removed again, so that it
// may be created anew, here or in another directory: an ErrNoSpace.
func (m *Manager) createFailed(d *logDir, path, name string, cause error) error {
	if !vfs.IsNoSpace(cause) {
		return cause
	}
	entries, err := m.fs.ReadDir(path)
	for _, e := range entries {
		if info, statErr := e.Info(); statErr != nil || info.Size() > 0 && filepath.Ext(e.Name()) == segment.LogSuffix {
			return cause // records: not what was to be created
		}
	}
	if err == nil {
		err = m.fs.RemoveAll(path)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(cause, err)
	}
	return d.refuse("creation of "+name, cause)
}

// topicIDQueue is the new logs whose partition.metadata is to be made durable: thousands of partitions are created
// faster than their files are synced, and nobody waits for that but the first record of each.
type topicIDQueue struct {
	mu      sync.Mutex
	logs    map[*logDir][]*Log
	running map[*logDir]bool
}

// writeTopicIDLater has the partition.metadata of a new log written. With changing held, so that no stop is under way.
func (m *Manager) writeTopicIDLater(d *logDir, l *Log) {
	if !l.topicID.pending() || m.ctx.Err() != nil {
		return // a stop writes it when it closes the log
	}
	q := &m.topicIDs
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.logs == nil {
		q.logs, q.running = map[*logDir][]*Log{}, map[*logDir]bool{}
	}
	q.logs[d] = append(q.logs[d], l)
	if !q.running[d] {
		q.running[d] = true
		m.work.Go(func() { m.writeTopicIDs(d) })
	}
}

// writeTopicIDs works the queue of a directory off. What comes while files are being synced goes together with the next.
func (m *Manager) writeTopicIDs(d *logDir) {
	q := &m.topicIDs
	for {
		q.mu.Lock()
		logs := q.logs[d]
		delete(q.logs, d)
		if len(logs) == 0 || m.ctx.Err() != nil {
			q.running[d] = false
			q.mu.Unlock()
			return
		}
		q.mu.Unlock()
		const together = 1024
		for some := range slices.Chunk(logs, together) {
			if m.ctx.Err() == nil {
				m.nameTopics(d, some)
			}
		}
	}
}

// nameTopics makes the partition.metadata of some logs durable.
func (m *Manager) nameTopics(d *logDir, logs []*Log) {
	if d.volume == nil || len(logs) < m.batchFrom {
		inParallel(closingThreads, len(logs), func(i int) { logs[i].writeTopicID() })
		return
	}
	batch := vfs.NewBatch(m.fs)
	var ends []func(durable bool)
	var err error
	for _, l := range logs {
		var end func(bool)
		if end, err = l.topicID.begin(batch); err != nil {
			break
		}
		ends = append(ends, end)
	}
	if err == nil {
		err = batch.Commit(d.volume)
	}
	for _, end := range ends {
		end(err == nil)
	}
	if err != nil {
		batch.Discard()
		// Without space the first record of each writes it, or the clean stop.
		m.dirFailed(d, d.refuse("write of partition.metadata", err))
	}
}
