package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"gregor/storage/checkpoint"
)

// LoadOptions say what the metadata knows of the replicas on this node.
type LoadOptions struct {
	// IsStray tells whether a replica does not belong here: its topic id is unknown or the node is none of its
	// replicas. Its directory is set aside as -stray. nil keeps all. It is called from several goroutines.
	IsStray func(p TopicPartition, topicID [16]byte) bool
}

// Load opens all logs, several at a time in each directory, and starts the background work. Whether the last
// stop was clean is read, and the proof removed, before the first log is opened (KAFKA-10471); after an unclean
// stop each log is recovered from its recovery point. A directory in which that fails goes offline; an error is
// answered only when nothing can be served.
func (m *Manager) Load(o LoadOptions) error {
	began := time.Now()
	var wg sync.WaitGroup
	errs := make([]error, len(m.dirs))
	for i, d := range m.dirs {
		if d.holdsLogs && d.online() {
			wg.Go(func() { errs[i] = (&dirLoader{m: m, d: d, o: o}).load() })
		}
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if !m.o.ControllerOnly && len(m.onlineDirs()) == 0 {
		return fmt.Errorf("%w: %v", ErrNoOnlineDir, pathsOf(m.dirs))
	}
	m.loaded.Store(true)
	m.mu.RLock()
	count := len(m.current) + len(m.future)
	m.mu.RUnlock()
	m.log.Info("Loaded all logs", "logs", count, "millis", time.Since(began).Milliseconds())
	m.startLoops()
	return nil
}

// onlineDirs are the directories that can take partitions.
func (m *Manager) onlineDirs() []*logDir {
	var dirs []*logDir
	for _, d := range m.dirs {
		if d.holdsLogs && d.online() {
			dirs = append(dirs, d)
		}
	}
	return dirs
}

// startOffsets are the contents of the checkpoint files.
type startOffsets struct{ recoveryPoint, logStart, highWatermark, cleanedTo map[TopicPartition]int64 }

// found is a partition directory on disk.
type found struct {
	partition TopicPartition
	name      string
	kind      DirKind
}

// dirLoader loads the logs of one directory.
type dirLoader struct {
	m       *Manager
	d       *logDir
	o       LoadOptions
	offsets startOffsets
}

// load opens the logs. The error is one that stops the start; a failure of the disk takes the directory offline
// instead.
func (ld *dirLoader) load() error {
	toLoad, err := ld.prepare()
	if err != nil {
		ld.m.dirFailed(ld.d, err)
		return nil
	}
	switch {
	case len(toLoad) == 0: // a new directory also has no proof of a clean stop, and nothing to recover
	case ld.d.hadCleanShutdown:
		ld.d.slog.Info("Loading logs", "dir", ld.d.path, "logs", len(toLoad))
	default:
		ld.d.slog.Info("No clean shutdown file: recovering the logs", "dir", ld.d.path, "logs", len(toLoad))
	}
	progress := newProgress(ld.m, ld.d, len(toLoad))
	jobs := make(chan found)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var conflict error
	for range min(ld.threads(), max(len(toLoad), 1)) {
		wg.Go(func() {
			for f := range jobs {
				err := ld.one(f)
				mu.Lock()
				conflict = errors.Join(conflict, err)
				mu.Unlock()
				progress.one()
			}
		})
	}
	for _, f := range toLoad {
		if !ld.d.online() {
			break
		}
		jobs <- f
	}
	close(jobs)
	wg.Wait()
	ld.d.loadComplete = ld.d.online()
	return conflict
}

// threads is how many logs are opened at the same time. After a clean stop nothing is read but names, sizes and small
// files: more of that at once than recoveries does no harm.
func (ld *dirLoader) threads() int {
	if ld.d.hadCleanShutdown {
		return max(ld.m.o.RecoveryThreads, 2*runtime.GOMAXPROCS(0))
	}
	return ld.m.o.RecoveryThreads
}

func (ld *dirLoader) prepare() ([]found, error) {
	if err := ld.d.openVolume(); err != nil {
		return nil, err
	}
	if err := ld.takeCleanShutdown(); err != nil {
		return nil, err
	}
	if err := ld.readCheckpoints(); err != nil {
		return nil, err
	}
	return ld.scan()
}

// openVolume opens the volume before anything is written to it whose failure it is to tell.
func (d *logDir) openVolume() error {
	v, err := d.fs.OpenVolume(d.path)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return storageErrorf(d.path, "open of the volume", err)
	}
	d.volume = v
	return nil
}

// takeCleanShutdown reads and removes the proof of a clean stop.
func (ld *dirLoader) takeCleanShutdown() error {
	d := ld.d
	err := checkpoint.DeleteCleanShutdown(d.fs, d.path, d.file(checkpoint.CleanShutdownFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	d.hadCleanShutdown = err == nil
	return err
}

func (ld *dirLoader) readCheckpoints() error {
	d := ld.d
	for name, into := range map[string]*map[TopicPartition]int64{
		checkpoint.RecoveryPointFile:  &ld.offsets.recoveryPoint,
		checkpoint.LogStartOffsetFile: &ld.offsets.logStart,
		checkpoint.HighWatermarkFile:  &ld.offsets.highWatermark,
		checkpoint.CleanerOffsetFile:  &ld.offsets.cleanedTo,
	} {
		offsets, err := checkpoint.ReadOffsets(d.fs, d.file(name))
		switch {
		case err == nil:
			*into = offsets
			d.written[name] = offsets
		case errors.Is(err, fs.ErrNotExist):
			d.written[name] = nil
		case errors.Is(err, checkpoint.ErrSyntax):
			// Zero is always safe: more is recovered, or deleted records show until the leader says otherwise.
			d.slog.Warn("Ignoring a damaged checkpoint", "error", err)
		default:
			return err
		}
	}
	return nil
}

// scan lists the logs to load and queues what is to be deleted. Anything else is left alone.
func (ld *dirLoader) scan() ([]found, error) {
	d := ld.d
	entries, err := d.fs.ReadDir(d.path)
	if err != nil {
		return nil, err
	}
	var toLoad []found
	for _, e := range entries {
		if !e.IsDir() || e.Name() == remoteIndexCacheDir {
			continue
		}
		p, kind, ok := ParseDirName(e.Name())
		switch {
		case !ok:
			d.slog.Warn("Leaving a directory alone that is none of a partition", "dir", d.path, "name", e.Name())
		case p.Topic == MetadataTopic:
		case kind == DirDelete:
			ld.m.removeLater(filepath.Join(d.path, e.Name()), nil)
		case kind == DirStray:
			d.slog.Warn("Found a stray log, which may be removed by hand", "dir", d.path, "name", e.Name())
		default:
			toLoad = append(toLoad, found{partition: p, name: e.Name(), kind: kind})
		}
	}
	return toLoad, nil
}

// one opens one log.
func (ld *dirLoader) one(f found) error {
	m, d := ld.m, ld.d
	opts := m.logOptions(d, f.partition, f.name, m.topicConfig(f.partition.Topic))
	opts.HadCleanShutdown = d.hadCleanShutdown
	opts.RecoveryPoint = ld.offsets.recoveryPoint[f.partition]
	opts.LogStartOffset = ld.offsets.logStart[f.partition]
	opts.CleanedTo = ld.offsets.cleanedTo[f.partition]
	l, err := OpenLog(opts)
	switch {
	case err != nil && isReplicasOwn(err):
		ld.leaveDamaged(f, err)
		return nil
	case err != nil:
		m.dirFailed(d, fmt.Errorf("loading %s: %w", opts.Dir, err))
		return nil
	}
	// The checkpoint may lag behind the log start or be ahead of a log that lost its end: it is clamped.
	if _, err := l.UpdateHighWatermark(ld.offsets.highWatermark[f.partition]); err != nil {
		m.dirFailed(d, err)
		l.CloseUnclean()
		return nil
	}
	if ld.o.IsStray != nil && ld.o.IsStray(f.partition, l.TopicID()) {
		ld.setAside(f.partition, l)
		return nil
	}
	return m.place(d, f, l)
}

// setAside renames a stray replica, which is never deleted by itself.
func (ld *dirLoader) setAside(p TopicPartition, l *Log) {
	name := dirName(p, DirStray)
	if err := l.RenameDir(filepath.Join(ld.d.path, name)); err != nil {
		ld.m.dirFailed(ld.d, err)
	}
	l.CloseUnclean()
	ld.d.slog.Warn("Log belongs to no partition of this broker and is set aside", "dir", ld.d.path, "partition", p.String(), "name", name)
}

// place makes a log one of the directory.
func (m *Manager) place(d *logDir, f found, l *Log) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	logs := m.current
	if f.kind == DirFuture {
		logs = m.future
	}
	if other, taken := logs[f.partition]; taken {
		return fmt.Errorf("duplicate log directories for %s are found in both %s and %s: probably a log directory failed while the broker "+
			"was replacing the current replica with the future one; recover by deleting one of the two by hand, preferably the one in "+
			"the directory that is known to have failed recently", f.partition, filepath.Join(other.dir.path, f.partition.String()), filepath.Join(d.path, f.name))
	}
	if own, taken := d.logs[f.partition]; taken {
		return fmt.Errorf("%s has two directories of %s: %s and %s", d.path, f.partition, own.opts.dir, f.name)
	}
	logs[f.partition] = placedLog{log: l, dir: d}
	d.logs[f.partition] = l
	if !d.online() {
		// It failed while this log was being opened, after its logs were taken away.
		delete(logs, f.partition)
		delete(d.logs, f.partition)
		m.lost[f.partition] = d
		l.goOffline(d.err())
	}
	return nil
}

// progress writes a line every now and then while a directory is being loaded.
type progress struct {
	m        *Manager
	d        *logDir
	total    int
	done     atomic.Int64
	nextLine atomic.Int64 // Unix milliseconds
}

func newProgress(m *Manager, d *logDir, total int) *progress {
	p := &progress{m: m, d: d, total: total}
	p.nextLine.Store(time.Now().UnixMilli() + m.o.Intervals.ProgressMillis)
	return p
}

func (p *progress) one() {
	done := p.done.Add(1)
	now, due := time.Now().UnixMilli(), p.nextLine.Load()
	if int(done) == p.total || now >= due && p.nextLine.CompareAndSwap(due, now+p.m.o.Intervals.ProgressMillis) {
		p.m.log.Info("Loaded logs", "dir", p.d.path, "done", done, "total", p.total)
	}
}
