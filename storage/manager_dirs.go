package storage

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"gregor/storage/checkpoint"
	"gregor/storage/segment"
	"gregor/storage/vfs"
)

const lockFile = ".lock"

// logDir is one log directory.
type logDir struct {
	path      string
	metadata  bool // holds the metadata log
	holdsLogs bool // holds partitions
	meta      checkpoint.MetaProperties
	formatted bool // meta was read or written

	lock    io.Closer
	failure atomic.Pointer[error]

	hadCleanShutdown bool                    // the last stop was clean
	loadComplete     bool                    // every log has been loaded (and recovered, if need be)
	logs             map[TopicPartition]*Log // guarded by Manager.mu; current and future ones

	// checkpoints is held while a checkpoint file is written.
	checkpoints sync.Mutex
	written     map[string]map[TopicPartition]int64 // what is on disk, by file name; missing when not known
	lowered     map[TopicPartition]loweredPoint
}

func (d *logDir) err() error {
	if f := d.failure.Load(); f != nil {
		return *f
	}
	return nil
}

func (d *logDir) online() bool { return d.err() == nil }

func (d *logDir) info() DirInfo {
	return DirInfo{Path: d.path, ID: d.meta.DirectoryID, Metadata: d.metadata, HoldsLogs: d.holdsLogs, Err: d.err()}
}

func (d *logDir) file(name string) string { return filepath.Join(d.path, name) }

// OpenManager creates missing directories, checks that all belong to this node (meta.properties), gives those
// without an id one, and locks them. A directory that cannot be used is offline from the start, unless it is
// the metadata directory or the only one. No log is opened yet.
func OpenManager(o ManagerOptions) (*Manager, error) {
	m := &Manager{
		o: o, fs: o.FS, log: o.Logger,
		current: map[TopicPartition]placedLog{}, future: map[TopicPartition]placedLog{},
		lost: map[TopicPartition]*logDir{}, doomed: map[string]struct{}{},
	}
	m.o.Intervals = o.Intervals.withDefaults()
	m.o.RecoveryThreads = max(o.RecoveryThreads, 1)
	if m.log == nil {
		m.log = slog.New(slog.DiscardHandler)
	}
	if o.MaxOpenFiles == 0 {
		m.o.MaxOpenFiles = DefaultMaxOpenFiles
	}
	if o.IndexCacheBytes == 0 {
		m.o.IndexCacheBytes = DefaultIndexCacheBytes
	}
	m.files = vfs.NewCache(o.FS, m.o.MaxOpenFiles)
	m.indexes = segment.NewIndexCache(m.o.IndexCacheBytes)
	m.SetDefaults(o.Defaults)
	m.SetCordoned(nil)
	if err := m.listDirs(); err != nil {
		return nil, err
	}
	for _, d := range m.dirs {
		if err := m.prepareDir(d); err != nil {
			m.failDir(d, err)
		}
	}
	for _, step := range []func() error{m.checkEnsemble, m.completeEnsemble, m.lockDirs} {
		if err := step(); err != nil {
			m.unlockDirs(false)
			return nil, err
		}
	}
	m.start()
	return m, nil
}

func (m *Manager) listDirs() error {
	paths := slices.Clone(m.o.LogDirs)
	metadata := m.o.MetadataDir
	if metadata == "" {
		if len(paths) == 0 {
			return errors.New("no log directory is configured")
		}
		metadata = paths[0]
	}
	metadata = filepath.Clean(metadata)
	for _, p := range paths {
		p = filepath.Clean(p)
		if slices.ContainsFunc(m.dirs, func(d *logDir) bool { return d.path == p }) {
			return fmt.Errorf("duplicate log directory found: %s", p)
		}
		m.dirs = append(m.dirs, newLogDir(p, p == metadata, !m.o.ControllerOnly))
	}
	if !slices.ContainsFunc(m.dirs, func(d *logDir) bool { return d.metadata }) {
		m.dirs = append(m.dirs, newLogDir(metadata, true, false))
	}
	return nil
}

func newLogDir(path string, metadata, holdsLogs bool) *logDir {
	return &logDir{
		path: path, metadata: metadata, holdsLogs: holdsLogs,
		logs: map[TopicPartition]*Log{}, written: map[string]map[TopicPartition]int64{},
		lowered: map[TopicPartition]loweredPoint{},
	}
}

// prepareDir makes the directory and reads its meta.properties.
func (m *Manager) prepareDir(d *logDir) error {
	st, err := m.fs.Stat(d.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		m.log.Info("Log directory not found, creating it", "dir", d.path)
		if err := m.fs.MkdirAll(d.path); err != nil {
			return err
		}
		if err := m.fs.SyncDir(filepath.Dir(d.path)); err != nil {
			return err
		}
	case err != nil:
		return err
	case !st.IsDir():
		return fmt.Errorf("%s is not a directory", d.path)
	}
	if _, err := m.fs.ReadDir(d.path); err != nil {
		return err
	}
	meta, err := checkpoint.ReadMetaProperties(m.fs, d.file(checkpoint.MetaPropertiesFile))
	if errors.Is(err, fs.ErrNotExist) {
		d.meta.NodeID = -1
		return nil
	}
	d.meta, d.formatted = meta, err == nil
	return err
}

// checkEnsemble verifies that the directories belong together and to this node, as Kafka's
// MetaPropertiesEnsemble does.
func (m *Manager) checkEnsemble() error {
	var metadata *logDir
	readable := false
	for _, d := range m.dirs {
		readable = readable || d.formatted
		if d.metadata {
			metadata = d
		}
	}
	if err := metadata.err(); err != nil {
		return fmt.Errorf("error in the metadata log directory %s, cannot continue: %w", metadata.path, err)
	}
	if !readable {
		return fmt.Errorf("%w in %v", ErrUnformatted, m.paths())
	}
	m.clusterID = m.o.ClusterID
	ids := map[[16]byte]string{}
	for _, d := range m.dirs {
		if !d.formatted || !d.online() {
			continue
		}
		if err := m.checkMeta(d); err != nil {
			return err
		}
		if id := d.meta.DirectoryID; id != [16]byte{} {
			if other, taken := ids[id]; taken {
				return fmt.Errorf("%w: duplicate directory.id %s in %s and %s", ErrWrongNode, formatID(id), other, d.path)
			}
			ids[id] = d.path
		}
	}
	return nil
}

func (m *Manager) paths() []string {
	paths := make([]string, len(m.dirs))
	for i, d := range m.dirs {
		paths[i] = d.path
	}
	return paths
}

func formatID(id [16]byte) string { return base64.RawURLEncoding.EncodeToString(id[:]) }

func (m *Manager) checkMeta(d *logDir) error {
	path := d.file(checkpoint.MetaPropertiesFile)
	switch {
	case d.meta.ClusterID == "" || d.meta.ClusterID == m.clusterID:
	case m.clusterID == "":
		m.clusterID = d.meta.ClusterID
	default:
		return fmt.Errorf("%w: invalid cluster.id in %s: expected %s, but read %s", ErrWrongNode, path, m.clusterID, d.meta.ClusterID)
	}
	if d.meta.NodeID >= 0 && d.meta.NodeID != m.o.NodeID {
		return fmt.Errorf("%w: stored node id %d doesn't match previous node id %d in %s: if you moved your data, make sure your "+
			"configured node id matches; if you intend to create a new node, remove all data in your data directories",
			ErrWrongNode, d.meta.NodeID, m.o.NodeID, path)
	}
	if d.meta.DirectoryID != [16]byte{} && isReservedDirID(d.meta.DirectoryID) {
		return fmt.Errorf("%w: reserved directory.id %s in %s", ErrWrongNode, formatID(d.meta.DirectoryID), path)
	}
	if d.metadata {
		return nil
	}
	metadataLog := d.file(MetadataTopic + "-0")
	if found, err := vfs.Exists(m.fs, metadataLog); err == nil && found {
		return fmt.Errorf("%w: found unexpected metadata log %s: the metadata directory is another", ErrWrongNode, metadataLog)
	}
	return nil
}

// completeEnsemble writes the meta.properties of directories that have none (added to log.dirs since the
// node was formatted), that have no id yet or that are of version 0.
func (m *Manager) completeEnsemble() error {
	if m.clusterID == "" {
		return fmt.Errorf("%w with a cluster.id in %v", ErrUnformatted, m.paths())
	}
	for _, d := range m.dirs {
		if !d.online() {
			continue
		}
		meta := d.meta
		meta.Version, meta.ClusterID, meta.NodeID = 1, m.clusterID, m.o.NodeID
		if meta.DirectoryID == [16]byte{} {
			meta.DirectoryID = newDirID()
		}
		if d.formatted && d.meta.Version == 1 && d.meta.DirectoryID == meta.DirectoryID {
			continue
		}
		m.log.Info("Writing meta.properties", "dir", d.path, "directory.id", formatID(meta.DirectoryID))
		err := checkpoint.WriteMetaProperties(m.fs, d.file(checkpoint.MetaPropertiesFile), meta, time.Now())
		if err != nil && d.metadata {
			return err
		}
		if err != nil {
			m.failDir(d, err)
			continue
		}
		d.meta, d.formatted = meta, true
	}
	return nil
}

// newDirID makes a random id whose text does not begin with a dash, as Kafka's do not.
func newDirID() (id [16]byte) {
	for id == [16]byte{} || isReservedDirID(id) || formatID(id)[0] == '-' {
		_, _ = rand.Read(id[:]) // never fails
		id[6] = id[6]&0x0f | 0x40
		id[8] = id[8]&0x3f | 0x80
	}
	return id
}

// lockDirs takes the locks of all directories that this process writes into.
func (m *Manager) lockDirs() error {
	online := 0
	for _, d := range m.dirs {
		if !d.online() || !d.holdsLogs && !d.metadata {
			continue
		}
		lock, err := m.fs.Lock(d.file(lockFile))
		switch {
		case err == nil:
			d.lock = lock
			online++
		case errors.Is(err, vfs.ErrLocked):
			return fmt.Errorf("%w: failed to acquire lock on file .lock in %s: a Kafka or Gregor instance in another process is using this directory",
				ErrDirLocked, d.path)
		case d.metadata:
			return err
		default:
			m.failDir(d, err)
		}
	}
	if online == 0 {
		return fmt.Errorf("%w: %v", ErrNoOnlineDir, m.paths())
	}
	return nil
}

// unlockDirs gives up the locks; on a clean stop the lock files go too, while the locks are still held, so that
// nobody's fresh lock file is removed.
func (m *Manager) unlockDirs(removeFiles bool) {
	for _, d := range m.dirs {
		if d.lock == nil {
			continue
		}
		if removeFiles && d.online() {
			if err := m.fs.Remove(d.file(lockFile)); err != nil {
				m.log.Warn("Cannot remove the lock file", "dir", d.path, "error", err)
			}
		}
		if err := d.lock.Close(); err != nil {
			m.log.Warn("Cannot release the lock", "dir", d.path, "error", err)
		}
		d.lock = nil
	}
}

// PreviousBrokerEpoch is the epoch that the broker had when it stopped, to be sent with its registration
// (KIP-966); ok is false when the stop was not clean in all directories, or they disagree. Call it before Load,
// which removes the files.
func (m *Manager) PreviousBrokerEpoch() (epoch int64, ok bool) {
	epoch = -1
	for _, d := range m.dirs {
		if !d.holdsLogs {
			continue
		}
		if !d.online() {
			return -1, false
		}
		e, err := checkpoint.ReadCleanShutdown(m.fs, d.file(checkpoint.CleanShutdownFile))
		if err != nil {
			m.log.Info("The broker epoch of the last stop is not known", "dir", d.path, "error", err)
			return -1, false
		}
		if epoch >= 0 && e != epoch {
			m.log.Info("The directories have different broker epochs", "dir", d.path, "epoch", e, "other", epoch)
			return -1, false
		}
		epoch = e
	}
	return epoch, epoch >= 0
}

// dirFailed takes a directory offline: its logs answer ErrStorage from now on, the others go on. A directory
// never comes back before the next start. It may be called with no lock held but a log's writer's lock not.
func (m *Manager) dirFailed(d *logDir, cause error) {
	if !m.failDir(d, cause) {
		return
	}
	m.mu.Lock()
	logs := make([]*Log, 0, len(d.logs))
	for p, l := range d.logs {
		logs = append(logs, l)
		if m.current[p].log == l {
			delete(m.current, p)
			m.lost[p] = d
		}
		if m.future[p].log == l {
			delete(m.future, p)
		}
	}
	clear(d.logs)
	m.mu.Unlock()
	for _, l := range logs {
		l.goOffline(cause)
	}
	m.log.Warn("Stopped serving the logs of a directory", "dir", d.path, "logs", len(logs))
	m.work.Go(func() {
		if m.o.DirFailed != nil {
			m.o.DirFailed(d.info())
		}
		for _, l := range logs {
			l.CloseUnclean()
		}
	})
}

// goOffline makes a log answer ErrStorage because of what happened elsewhere in its directory; nothing is reported
// or logged for it.
func (l *Log) goOffline(cause error) {
	l.reported.Store(true)
	l.failure.CompareAndSwap(nil, &StorageError{Op: "operation in the same directory", Dir: l.opts.Dir, Cause: errOffline{cause}})
}

// failDir latches the failure; it tells whether it is the first.
func (m *Manager) failDir(d *logDir, cause error) bool {
	if !errors.Is(cause, ErrStorage) {
		cause = storageErrorf(d.path, "use of the log directory", cause)
	}
	if !d.failure.CompareAndSwap(nil, &cause) {
		return false
	}
	m.log.Error("Log directory is offline", "dir", d.path, "error", cause)
	return true
}

// MetadataDirFailed takes the metadata directory offline when the quorum's log, which is not this Manager's,
// cannot write.
func (m *Manager) MetadataDirFailed(cause error) {
	for _, d := range m.dirs {
		if d.metadata {
			m.dirFailed(d, cause)
		}
	}
}
