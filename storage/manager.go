package storage

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"gregor/storage/cleaner"
	"gregor/storage/segment"
	"gregor/storage/vfs"
)

// Failures of a Manager.
var (
	// ErrUnformatted says that no log directory has a meta.properties: the node has not been formatted.
	ErrUnformatted = errors.New("no readable meta.properties files found")
	// ErrDirLost says that a log directory is not formatted although others are: its disk was replaced or is not
	// mounted, or it is new. To go on as if it were new would show partitions without their records, and let a
	// controller vote without what it had acknowledged. Kafka does not start either.
	ErrDirLost = errors.New("a log directory is not formatted (if its disk is not mounted, mount it; if it is new, format it with --ignore-formatted)")
	// ErrWrongNode says that a directory belongs to another node or cluster, or that directories contradict
	// each other.
	ErrWrongNode = errors.New("log directory does not belong here")
	// ErrDirLocked says that another process uses a directory.
	ErrDirLocked = errors.New("log directory is in use")
	// ErrNoOnlineDir says that all log directories are offline.
	ErrNoOnlineDir = errors.New("no log directory is online")
)

// ManagerOptions open the log directories of a node.
type ManagerOptions struct {
	FS vfs.FS
	// LogDirs are the directories for partitions (log.dirs). MetadataDir (metadata.log.dir) holds the metadata
	// log; "" for the first of LogDirs. On a node that is only a controller
	// LogDirs are checked but hold nothing.
	LogDirs        []string
	MetadataDir    string
	ControllerOnly bool

	NodeID    int32
	ClusterID string // "" to take it from meta.properties

	// Defaults are the configs of topics without overrides; TopicConfig answers those of a topic whose log is
	// loaded (nil for Defaults).
	Defaults    LogConfig
	TopicConfig func(topic string) LogConfig

	RecoveryThreads int // num.recovery.threads.per.data.dir
	MaxOpenFiles    int // descriptors kept open for all logs, 0 for DefaultMaxOpenFiles
	IndexCacheBytes int // memory for indexes of sealed segments, 0 for DefaultIndexCacheBytes
	Intervals       Intervals

	// ProducerExpirationMillis is producer.id.expiration.ms, VerifyTransactions
	// transaction.partition.verification.enable.
	ProducerExpirationMillis int64
	VerifyTransactions       bool

	// Cleaner is log.cleaner.*; nil leaves compacted logs as they are (log.cleaner.enable=false).
	Cleaner *cleaner.Config

	// DirFailed is told once for each directory that goes offline after OpenManager (before, Dirs tells). It runs
	// on a goroutine of its own, so that it may call the Manager.
	DirFailed func(d DirInfo)
	// ReplicaDamaged is told of each replica that goes offline alone, on a goroutine of its own as well; also while Load
	// runs.
	ReplicaDamaged func(r DamagedReplica)
	Logger         *slog.Logger // nil for none
}

// Defaults of ManagerOptions.
const (
	DefaultMaxOpenFiles    = 8192
	DefaultIndexCacheBytes = 64 << 20
)

// Intervals are the periods of the background work, in milliseconds; 0 stands for Kafka's default.
type Intervals struct {
	RetentionCheckMillis   int64 // log.retention.check.interval.ms
	RecoveryPointMillis    int64 // log.flush.offset.checkpoint.interval.ms
	LogStartOffsetMillis   int64 // log.flush.start.offset.checkpoint.interval.ms
	HighWatermarkMillis    int64 // replica.high.watermark.checkpoint.interval.ms
	ProducerExpiryMillis   int64 // producer.id.expiration.check.interval.ms
	InitialRetentionMillis int64 // log.initial.task.delay.ms
	ProgressMillis         int64 // between two lines about the loading of a directory
}

func (i Intervals) withDefaults() Intervals {
	set := func(v *int64, d int64) {
		if *v == 0 {
			*v = d
		}
	}
	set(&i.RetentionCheckMillis, 300000)
	set(&i.RecoveryPointMillis, 60000)
	set(&i.LogStartOffsetMillis, 60000)
	set(&i.HighWatermarkMillis, 5000)
	set(&i.ProducerExpiryMillis, 600000)
	set(&i.InitialRetentionMillis, 30000)
	set(&i.ProgressMillis, 2000)
	return i
}

// Manager owns the log directories of a node (JBOD, KIP-112, KIP-858) and the logs in them: it locks and checks
// the directories, loads the logs, creates and deletes them, writes the offset checkpoints, applies
// retention, and takes a directory offline when an operation in it fails. OpenManager, then Load, then
// Shutdown.
type Manager struct {
	o         ManagerOptions
	fs        vfs.FS
	log       *slog.Logger
	files     *vfs.Cache
	indexes   *segment.IndexCache
	dirs      []*logDir // in the order of the options; the metadata directory last when it is none of them
	clusterID string
	defaults  atomic.Pointer[LogConfig]
	configs   sharedConfigs
	cordoned  atomic.Pointer[[]string]

	// mu guards the maps here and logDir.logs. It is never held over file operations, but for changing, which
	// makes creating, deleting and moving logs exclude each other; those that create logs hold it for reading, and
	// creating keeps two from the same one.
	changing sync.RWMutex
	mu       sync.RWMutex
	current  map[TopicPartition]placedLog
	future   map[TopicPartition]placedLog
	lost     map[TopicPartition]*logDir  // replicas in directories that failed after they were loaded
	unopened map[TopicPartition]unopened // replicas that are damaged so that they cannot be opened
	creating map[TopicPartition]chan struct{}
	doomed   map[string]struct{} // paths of directories waiting for their removal

	ctx    context.Context //nolint:containedctx // lifetime of the background goroutines, ended by Shutdown
	cancel context.CancelFunc
	work   sync.WaitGroup
	loaded atomic.Bool
	// cleaner is nil without ManagerOptions.Cleaner.
	cleaner *cleaner.Pool
	workers *Workers // for the background work of all logs
	// batchFrom is defaultBatchFrom, less in tests.
	batchFrom int
	// topicIDs are the logs whose partition.metadata is to be written.
	topicIDs topicIDQueue
	// removing makes removals of directories, which can be large, take turns.
	removing sync.Mutex
}

// placedLog is a log and where it is.
type placedLog struct {
	log *Log
	dir *logDir
}

// DirInfo describes a log directory.
type DirInfo struct {
	Path string
	ID   [16]byte // zero when its meta.properties could not be read
	// Metadata says that it is the directory of the metadata log, HoldsLogs that it holds partitions.
	Metadata  bool
	HoldsLogs bool
	Err       error // why it is offline, nil while it is online
}

// Dirs describes all directories.
func (m *Manager) Dirs() []DirInfo {
	infos := make([]DirInfo, len(m.dirs))
	for i, d := range m.dirs {
		infos[i] = d.info()
	}
	return infos
}

// ClusterID is the id in the meta.properties files.
func (m *Manager) ClusterID() string { return m.clusterID }

// MetadataDir describes the directory of the metadata log.
func (m *Manager) MetadataDir() DirInfo {
	for _, d := range m.dirs {
		if d.metadata {
			return d.info()
		}
	}
	return DirInfo{}
}

// DirOf tells which directory a log is in.
func (m *Manager) DirOf(l *Log) DirInfo {
	path := filepath.Dir(l.Dir())
	for _, d := range m.dirs {
		if d.path == path {
			return d.info()
		}
	}
	return DirInfo{}
}

// Log returns the log of a partition, if it is loaded and its directory is online.
func (m *Manager) Log(topic string, partition int32) (*Log, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	p, ok := m.current[TopicPartition{Topic: topic, Partition: partition}]
	return p.log, ok
}

// FutureLog returns the log that a partition is being moved to, if there is one.
func (m *Manager) FutureLog(topic string, partition int32) (*Log, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	p, ok := m.future[TopicPartition{Topic: topic, Partition: partition}]
	return p.log, ok
}

// Logs goes through the logs that are loaded when it is called, in no order, future ones last.
func (m *Manager) Logs() iter.Seq[*Log] {
	m.mu.RLock()
	logs := make([]*Log, 0, len(m.current)+len(m.future))
	for _, p := range m.current {
		logs = append(logs, p.log)
	}
	for _, p := range m.future {
		logs = append(logs, p.log)
	}
	m.mu.RUnlock()
	return slices.Values(logs)
}

// Files is the cache of descriptors that all logs use.
func (m *Manager) Files() *vfs.Cache { return m.files }

// SetDefaults changes the configs of topics without overrides; it does not touch logs that are open.
func (m *Manager) SetDefaults(c LogConfig) { m.defaults.Store(&c) }

// UpdateTopicConfig puts other configs in force for all logs of a topic.
func (m *Manager) UpdateTopicConfig(topic string, c LogConfig) {
	for l := range m.Logs() {
		if l.Topic() == topic {
			l.UpdateConfig(c)
		}
	}
}

// SetCordoned names the directories that get no new replicas (cordoned.log.dirs, KIP-1066).
func (m *Manager) SetCordoned(paths []string) {
	clean := make([]string, len(paths))
	for i, p := range paths {
		clean[i] = filepath.Clean(p)
	}
	m.cordoned.Store(&clean)
}

func (m *Manager) topicConfig(topic string) LogConfig {
	if m.o.TopicConfig != nil {
		return m.o.TopicConfig(topic)
	}
	return *m.defaults.Load()
}

func (m *Manager) logOptions(d *logDir, p TopicPartition, name string, c LogConfig) LogOptions {
	return LogOptions{
		FS: m.fs, Files: m.files, Indexes: m.indexes,
		Dir: filepath.Join(d.path, name), Topic: p.Topic, Partition: p.Partition, Config: c,
		ProducerExpirationMillis: m.o.ProducerExpirationMillis, VerifyTransactions: m.o.VerifyTransactions, Workers: m.workers,
		Events: d.events, Logger: m.log, space: d.space, configs: &m.configs,
	}
}

// eventsOf is what the logs of a directory tell.
func (m *Manager) eventsOf(d *logDir) Events {
	return Events{
		Failed:               func(_ *Log, err error) { m.dirFailed(d, err) },
		Damaged:              func(l *Log, err error) { m.logDamaged(d, l, err) },
		RecoveryPointLowered: d.lowerRecoveryPoint,
	}
}

// DirDescription is what DescribeLogDirs tells of a directory.
type DirDescription struct {
	DirInfo
	TotalBytes  int64 // of the volume, -1 when not known
	UsableBytes int64
	Cordoned    bool
	Logs        []*Log // current replicas
	FutureLogs  []*Log
}

// Describe describes the directories that hold partitions.
func (m *Manager) Describe() []DirDescription {
	var out []DirDescription
	for _, d := range m.dirs {
		if !d.holdsLogs {
			continue
		}
		desc := DirDescription{DirInfo: d.info(), TotalBytes: -1, UsableBytes: -1, Cordoned: m.isCordoned(d)}
		if desc.Err == nil {
			// The failure of a statistic says nothing of the data.
			if total, usable, err := m.fs.DiskUsage(d.path); err == nil {
				desc.TotalBytes, desc.UsableBytes = total, usable
			}
			m.mu.RLock()
			for p, l := range d.logs {
				if l.Damage() != nil {
					continue // offline, as those of an offline directory
				}
				if m.current[p].log == l {
					desc.Logs = append(desc.Logs, l)
				} else {
					desc.FutureLogs = append(desc.FutureLogs, l)
				}
			}
			m.mu.RUnlock()
			slices.SortFunc(desc.Logs, compareLogs)
			slices.SortFunc(desc.FutureLogs, compareLogs)
		}
		out = append(out, desc)
	}
	return out
}

func compareLogs(a, b *Log) int {
	return a.topicPartition().Compare(b.topicPartition())
}

// isReservedDirID tells ids that mean "unassigned", "lost" or "migrating" instead of a directory (KIP-858).
func isReservedDirID(id [16]byte) bool {
	const reservedBelow = 100
	for _, b := range id[:15] {
		if b != 0 {
			return false
		}
	}
	return id[15] < reservedBelow
}

func storageErrorf(dir, op string, cause error) error {
	return &StorageError{Op: op, Dir: dir, Cause: cause}
}

// errOffline is the cause that logs of a directory answer after another operation in it has failed.
type errOffline struct{ cause error }

func (e errOffline) Error() string { return fmt.Sprintf("the log directory is offline: %v", e.cause) }

func (e errOffline) Unwrap() error { return e.cause }
