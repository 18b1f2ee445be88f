package storage

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"gregor/storage/checkpoint"
	"gregor/storage/vfs"
)

// ensemble is the log directories of a node while it is being made sure that they belong together, as Kafka's
// MetaPropertiesEnsemble does.
type ensemble struct {
	fs        vfs.FS
	log       *slog.Logger
	nodeID    int32
	clusterID string
	dirs      []*logDir
}

func (e *ensemble) list(o ManagerOptions, placing *sync.RWMutex) error {
	paths := slices.Clone(o.LogDirs)
	metadata := o.MetadataDir
	if metadata == "" {
		if len(paths) == 0 {
			return errors.New("no log directory is configured")
		}
		metadata = paths[0]
	}
	metadata = filepath.Clean(metadata)
	for _, p := range paths {
		p = filepath.Clean(p)
		if slices.ContainsFunc(e.dirs, func(d *logDir) bool { return d.path == p }) {
			return fmt.Errorf("duplicate log directory found: %s", p)
		}
		d := e.newDir(p, placing)
		d.metadata, d.holdsLogs = p == metadata, !o.ControllerOnly
		e.dirs = append(e.dirs, d)
	}
	if !slices.ContainsFunc(e.dirs, func(d *logDir) bool { return d.metadata }) {
		d := e.newDir(metadata, placing)
		d.metadata = true
		e.dirs = append(e.dirs, d)
	}
	return nil
}

func (e *ensemble) newDir(path string, placing *sync.RWMutex) *logDir {
	return &logDir{
		fs: e.fs, slog: e.log, path: path, placing: placing, space: newSpaceWatch(e.fs, e.log, path),
		logs: map[TopicPartition]*Log{}, written: map[string]map[TopicPartition]int64{},
		lowered: map[TopicPartition]loweredPoint{},
	}
}

func (e *ensemble) prepare() error {
	for _, d := range e.dirs {
		if err := d.prepare(); err != nil {
			d.fail(err)
		}
	}
	return nil
}

// prepare reads the directory's meta.properties. A directory that is not there is one that is not formatted.
func (d *logDir) prepare() error {
	st, err := d.fs.Stat(d.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.meta.NodeID = -1
		return nil
	case err != nil:
		return err
	case !st.IsDir():
		return fmt.Errorf("%s is not a directory", d.path)
	}
	if _, err := d.fs.ReadDir(d.path); err != nil {
		return err
	}
	meta, err := checkpoint.ReadMetaProperties(d.fs, d.file(checkpoint.MetaPropertiesFile))
	if errors.Is(err, fs.ErrNotExist) {
		d.meta.NodeID = -1
		return nil
	}
	d.meta, d.formatted = meta, err == nil
	return err
}

// check verifies that the directories belong together and to this node.
func (e *ensemble) check() error {
	var metadata, formatted *logDir
	for _, d := range e.dirs {
		if d.formatted && formatted == nil {
			formatted = d
		}
		if d.metadata {
			metadata = d
		}
	}
	if err := metadata.err(); err != nil {
		return fmt.Errorf("error in the metadata log directory %s, cannot continue: %w", metadata.path, err)
	}
	if formatted == nil {
		return fmt.Errorf("%w in %v", ErrUnformatted, pathsOf(e.dirs))
	}
	ids := map[[16]byte]string{}
	for _, d := range e.dirs {
		if !d.online() {
			continue
		}
		if !d.formatted {
			return fmt.Errorf("%w: no meta.properties in %s, although %s has one", ErrDirLost, d.path, formatted.path)
		}
		if d.meta.ClusterID == "" && d.meta.NodeID < 0 {
			return fmt.Errorf("%w: %s is empty", ErrDirLost, d.file(checkpoint.MetaPropertiesFile))
		}
		if err := e.checkMeta(d); err != nil {
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

func pathsOf(dirs []*logDir) []string {
	paths := make([]string, len(dirs))
	for i, d := range dirs {
		paths[i] = d.path
	}
	return paths
}

func formatID(id [16]byte) string { return base64.RawURLEncoding.EncodeToString(id[:]) }

func (e *ensemble) checkMeta(d *logDir) error {
	path := d.file(checkpoint.MetaPropertiesFile)
	switch {
	case d.meta.ClusterID == "" || d.meta.ClusterID == e.clusterID:
	case e.clusterID == "":
		e.clusterID = d.meta.ClusterID
	default:
		return fmt.Errorf("%w: invalid cluster.id in %s: expected %s, but read %s", ErrWrongNode, path, e.clusterID, d.meta.ClusterID)
	}
	if d.meta.NodeID >= 0 && d.meta.NodeID != e.nodeID {
		return fmt.Errorf("%w: stored node id %d doesn't match previous node id %d in %s: if you moved your data, make sure your "+
			"configured node id matches; if you intend to create a new node, remove all data in your data directories",
			ErrWrongNode, d.meta.NodeID, e.nodeID, path)
	}
	if d.meta.DirectoryID != [16]byte{} && isReservedDirID(d.meta.DirectoryID) {
		return fmt.Errorf("%w: reserved directory.id %s in %s", ErrWrongNode, formatID(d.meta.DirectoryID), path)
	}
	if d.metadata {
		return nil
	}
	metadataLog := d.file(MetadataTopic + "-0")
	if found, err := vfs.Exists(e.fs, metadataLog); err == nil && found {
		return fmt.Errorf("%w: found unexpected metadata log %s: the metadata directory is another", ErrWrongNode, metadataLog)
	}
	return nil
}

// complete writes the meta.properties of directories that have no id yet or are of version 0.
func (e *ensemble) complete() error {
	if e.clusterID == "" {
		return fmt.Errorf("%w with a cluster.id in %v", ErrUnformatted, pathsOf(e.dirs))
	}
	for _, d := range e.dirs {
		if !d.online() {
			continue
		}
		meta := d.meta
		meta.Version, meta.ClusterID, meta.NodeID = 1, e.clusterID, e.nodeID
		if meta.DirectoryID == [16]byte{} {
			meta.DirectoryID = newDirID()
		}
		if d.formatted && d.meta.Version == 1 && d.meta.DirectoryID == meta.DirectoryID {
			continue
		}
		e.log.Info("Writing meta.properties", "dir", d.path, "directory.id", formatID(meta.DirectoryID))
		err := checkpoint.WriteMetaProperties(e.fs, d.file(checkpoint.MetaPropertiesFile), meta, time.Now())
		if err != nil && d.metadata {
			return err
		}
		if err != nil {
			d.fail(err)
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

// lock takes the locks of all directories that this process writes into, before it writes into any of them: another one
// may run on some.
func (e *ensemble) lock() error {
	online := 0
	for _, d := range e.dirs {
		if !d.online() || !d.holdsLogs && !d.metadata {
			continue
		}
		lock, err := e.fs.Lock(d.file(lockFile))
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
			d.fail(err)
		}
	}
	if online == 0 {
		return fmt.Errorf("%w: %v", ErrNoOnlineDir, pathsOf(e.dirs))
	}
	return nil
}

// unlockDirs gives up the locks; on a clean stop the lock files go too, while the locks are still held, so that
// nobody's fresh lock file is removed.
func unlockDirs(dirs []*logDir, removeFiles bool) {
	for _, d := range dirs {
		if d.volume != nil {
			_ = d.volume.Close() // a directory
			d.volume = nil
		}
		if d.lock == nil {
			continue
		}
		if removeFiles && d.online() {
			if err := d.fs.Remove(d.file(lockFile)); err != nil {
				d.slog.Warn("Cannot remove the lock file", "dir", d.path, "error", err)
			}
		}
		if err := d.lock.Close(); err != nil {
			d.slog.Warn("Cannot release the lock", "dir", d.path, "error", err)
		}
		d.lock = nil
	}
}
