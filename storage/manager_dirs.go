package storage

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"

	"gregor/storage/checkpoint"
	"gregor/storage/cleaner"
	"gregor/storage/segment"
	"gregor/storage/vfs"
)

const lockFile = ".lock"

// backgroundWorkers is how many logs do background work (rolls, removals) at the same time.
const backgroundWorkers = 32

// logDir is one log directory.
type logDir struct {
	fs        vfs.FS
	slog      *slog.Logger
	path      string
	metadata  bool // holds the metadata log
	holdsLogs bool // holds partitions
	meta      checkpoint.MetaProperties
	formatted bool // meta was read or written

	lock    io.Closer
	volume  vfs.Volume // open while the directory is loaded; nil where a volume cannot be synced
	failure atomic.Pointer[error]
	failing sync.Mutex // held while the directory goes offline
	space   *spaceWatch
	events  Events // of the logs

	hadCleanShutdown bool                        // the last stop was clean
	loadComplete     bool                        // every log has been loaded (and recovered, if need be)
	placing          *sync.RWMutex               // Manager.mu
	logs             map[TopicPartition]*Log     // guarded by placing; current and future ones
	unopened         map[TopicPartition]unopened // Manager.unopened
	creating         atomic.Int64                // logs that are being created here, not in logs yet

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

// used is how many logs the directory holds, or will in a moment. With placing held.
func (d *logDir) used() int { return len(d.logs) + int(d.creating.Load()) }

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
		lost: map[TopicPartition]*logDir{}, unopened: map[TopicPartition]unopened{}, doomed: map[string]struct{}{},
		creating: map[TopicPartition]chan struct{}{}, workers: NewWorkers(backgroundWorkers), batchFrom: defaultBatchFrom,
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
	e := ensemble{fs: m.fs, log: m.log, nodeID: o.NodeID, clusterID: o.ClusterID}
	for _, step := range []func() error{func() error { return e.list(o, &m.mu) }, e.prepare, e.check, e.lock, e.complete} {
		if err := step(); err != nil {
			unlockDirs(e.dirs, false)
			return nil, err
		}
	}
	m.dirs, m.clusterID = e.dirs, e.clusterID
	for _, d := range m.dirs {
		d.unopened, d.events = m.unopened, m.eventsOf(d)
	}
	if o.Cleaner != nil {
		m.cleaner = cleaner.NewPool(compacted{m}, *o.Cleaner, m.log)
	}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	return m, nil
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
			if !errors.Is(err, fs.ErrNotExist) { // the loading tells of a stop that was not clean
				m.log.Warn("The broker epoch of the last stop is not known", "dir", d.path, "error", err)
			}
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
// never comes back before the next start. It may be called with no lock held but a log's writer's lock not. What failed for
// want of space (ErrNoSpace) has changed nothing and is no failure of the directory.
func (m *Manager) dirFailed(d *logDir, cause error) {
	if errors.Is(cause, ErrNoSpace) {
		return
	}
	d.failing.Lock() // who meets the failure second finds the logs offline, too
	defer d.failing.Unlock()
	if !d.fail(cause) {
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
	l.failure.CompareAndSwap(nil, &StorageError{Op: "operation in the same directory", Dir: l.opts.dir, Cause: errOffline{cause}})
}

// fail latches the failure; it tells whether it is the first.
func (d *logDir) fail(cause error) bool {
	if !errors.Is(cause, ErrStorage) {
		cause = storageErrorf(d.path, "use of the log directory", cause)
	}
	if !d.failure.CompareAndSwap(nil, &cause) {
		return false
	}
	d.slog.Error("Log directory is offline", "dir", d.path, "error", cause)
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
