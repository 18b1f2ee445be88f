package quorum

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"gregor/storage/vfs"
)

// Suffixes of snapshot files: OFFSET20-EPOCH10.checkpoint; .part while it is being written or received; .deleted
// while it waits for its removal.
const (
	checkpointSuffix = ".checkpoint"
	partSuffix       = ".part"
	deletedSuffix    = ".deleted"

	// bootstrapFile is the form in which Kafka up to 4.0 keeps the records of the format command.
	bootstrapFile = "bootstrap.checkpoint"
)

// fileName is Kafka's name of a snapshot.
func (s SnapshotID) fileName() string {
	return fmt.Sprintf("%020d-%010d%s", s.Offset, s.Epoch, checkpointSuffix)
}

// String is for logs.
func (s SnapshotID) String() string { return fmt.Sprintf("%d-%d", s.Offset, s.Epoch) }

func (s SnapshotID) compare(o SnapshotID) int {
	return cmp.Or(cmp.Compare(s.Offset, o.Offset), cmp.Compare(s.Epoch, o.Epoch))
}

// ParseSnapshotName is the ID in the name of a snapshot file, OFFSET20-EPOCH10.checkpoint.
func ParseSnapshotName(name string) (SnapshotID, bool) {
	stem, ok := strings.CutSuffix(name, checkpointSuffix)
	if !ok || len(stem) != 31 || stem[20] != '-' {
		return SnapshotID{}, false
	}
	offset, err1 := strconv.ParseInt(stem[:20], 10, 64)
	epoch, err2 := strconv.ParseInt(stem[21:], 10, 32)
	if err1 != nil || err2 != nil || offset < 0 || epoch < 0 {
		return SnapshotID{}, false
	}
	return SnapshotID{Offset: offset, Epoch: int32(epoch)}, true
}

// snapshotStore knows the snapshots of the directory. It may be used from several goroutines.
type snapshotStore struct {
	fs  vfs.FS
	dir string

	mu      sync.Mutex
	ids     []SnapshotID // ascending
	doomed  map[string]time.Time
	delayed time.Duration
}

// openSnapshots lists the directory; unfinished files and those whose deletion was under way are removed.
func openSnapshots(fsys vfs.FS, dir string, deleteDelay time.Duration) (*snapshotStore, error) {
	s := &snapshotStore{fs: fsys, dir: dir, doomed: map[string]time.Time{}, delayed: deleteDelay}
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("metadata log directory: %w", err)
	}
	for _, e := range entries {
		name := e.Name()
		if strings.HasSuffix(name, checkpointSuffix+partSuffix) || strings.HasSuffix(name, checkpointSuffix+deletedSuffix) {
			if err := fsys.Remove(filepath.Join(dir, name)); err != nil {
				return nil, fmt.Errorf("left-over snapshot file: %w", err)
			}
			continue
		}
		if id, ok := ParseSnapshotName(name); ok {
			s.ids = append(s.ids, id)
		}
	}
	slices.SortFunc(s.ids, SnapshotID.compare)
	return s, nil
}

// latest returns the newest snapshot, which may be the bootstrap one.
func (s *snapshotStore) latest() (SnapshotID, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ids) == 0 {
		return SnapshotID{}, false
	}
	return s.ids[len(s.ids)-1], true
}

// earliest returns the oldest snapshot.
func (s *snapshotStore) earliest() (SnapshotID, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ids) == 0 {
		return SnapshotID{}, false
	}
	return s.ids[0], true
}

// list returns all snapshots, oldest first.
func (s *snapshotStore) list() []SnapshotID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.ids)
}

func (s *snapshotStore) has(id SnapshotID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.ids, id)
}

func (s *snapshotStore) path(id SnapshotID) string { return filepath.Join(s.dir, id.fileName()) }

// open opens a snapshot's file; fs.ErrNotExist when it is gone.
func (s *snapshotStore) open(id SnapshotID) (vfs.File, int64, error) {
	f, err := s.fs.Open(s.path(id))
	if err != nil {
		return nil, 0, err
	}
	size, err := f.Size()
	if err != nil {
		_ = f.Close()
		return nil, 0, err
	}
	return f, size, nil
}

// partName is a name for a snapshot that is being written.
func (s *snapshotStore) partName(id SnapshotID, unique string) string {
	return strings.TrimSuffix(s.path(id), checkpointSuffix) + "-" + unique + checkpointSuffix + partSuffix
}

// complete makes a written and synced file a snapshot: read-only, renamed, durable.
func (s *snapshotStore) complete(part string, id SnapshotID) error {
	if err := s.fs.Chmod(part, 0o400); err != nil {
		return fmt.Errorf("snapshot %v: %w", id, err)
	}
	if err := s.fs.Rename(part, s.path(id)); err != nil {
		if vfs.IsNoSpace(err) {
			_ = s.fs.Remove(part) // it takes the space that is wanted
		}
		return fmt.Errorf("snapshot %v: %w", id, err)
	}
	if err := s.fs.SyncDir(s.dir); err != nil {
		return fmt.Errorf("snapshot %v: %w", id, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.ids, id) {
		s.ids = append(s.ids, id)
		slices.SortFunc(s.ids, SnapshotID.compare)
	}
	return nil
}

// forgetBefore renames the snapshots older than id; removeDoomed removes their files after a while, because readers
// on other systems may still have them open.
func (s *snapshotStore) forgetBefore(id SnapshotID, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.ids) > 0 && s.ids[0].compare(id) < 0 {
		path := s.path(s.ids[0])
		if err := s.fs.Rename(path, path+deletedSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("deletion of snapshot %v: %w", s.ids[0], err)
		}
		s.doomed[path+deletedSuffix] = now.Add(s.delayed)
		s.ids = s.ids[1:]
	}
	return nil
}

// removeDoomed removes files whose time has come.
func (s *snapshotStore) removeDoomed(now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for path, at := range s.doomed {
		if now.Before(at) {
			continue
		}
		if err := s.fs.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removal of a deleted snapshot: %w", err)
		}
		delete(s.doomed, path)
	}
	return nil
}

// sizeOf is the size of a snapshot's file, 0 when it is gone.
func (s *snapshotStore) sizeOf(id SnapshotID) int64 {
	info, err := s.fs.Stat(s.path(id))
	if err != nil {
		return 0
	}
	return info.Size()
}
