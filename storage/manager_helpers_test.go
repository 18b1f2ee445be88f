package storage

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gregor/storage/checkpoint"
	"gregor/storage/vfs"
)

const testCluster = "cGxhaW4tZ29sZGVuLTAwMQ"

// syncBuffer collects log lines from many goroutines.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func dirID(n byte) [16]byte { return [16]byte{0xa0, 15: n} }

// format writes the meta.properties of directories /d1, /d2, ... with the directory ids 1, 2, ...
func format(t testing.TB, fsys vfs.FS, dirs ...string) {
	t.Helper()
	for i, d := range dirs {
		must(t, fsys.MkdirAll(d))
		must(t, checkpoint.WriteMetaProperties(fsys, path.Join(d, checkpoint.MetaPropertiesFile), checkpoint.MetaProperties{
			Version: 1, ClusterID: testCluster, NodeID: 1, DirectoryID: dirID(byte(i + 1)),
		}, time.Unix(0, 0)))
		must(t, fsys.SyncDir(path.Dir(d)))
	}
}

func managerOptions(fsys vfs.FS, dirs ...string) ManagerOptions {
	return ManagerOptions{
		FS: fsys, LogDirs: dirs, NodeID: 1, Defaults: testConfig(), RecoveryThreads: 2,
		ProducerExpirationMillis: 1 << 60,
	}
}

// startManager opens and loads; the manager is killed when the test ends, if it still runs.
func startManager(t testing.TB, o ManagerOptions) *Manager {
	t.Helper()
	m, err := OpenManager(o)
	must(t, err)
	t.Cleanup(m.Kill)
	must(t, m.Load(LoadOptions{}))
	return m
}

func createLog(t testing.TB, m *Manager, topic string, partition int32, dir [16]byte) *Log {
	t.Helper()
	l, err := m.CreateLog(topic, partition, topicIDOf(topic), testConfig(), dir)
	must(t, err)
	return l
}

func topicIDOf(topic string) [16]byte {
	var id [16]byte
	copy(id[:], "id of "+topic)
	return id
}

// mustBe checks an error against a sentinel and a part of its text.
func mustBe(t testing.TB, err, sentinel error, text string) {
	t.Helper()
	if err == nil || sentinel != nil && !errors.Is(err, sentinel) || !strings.Contains(err.Error(), text) {
		t.Fatalf("got %v, want %v with %q", err, sentinel, text)
	}
}

func exists(t testing.TB, fsys vfs.FS, name string) bool {
	t.Helper()
	ok, err := vfs.Exists(fsys, name)
	must(t, err)
	return ok
}

func namesIn(t testing.TB, fsys vfs.FS, dir string) []string {
	t.Helper()
	entries, err := fsys.ReadDir(dir)
	must(t, err)
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names
}

// nameLike is the one name in dir with the prefix and suffix.
func nameLike(t testing.TB, fsys vfs.FS, dir, prefix, suffix string) string {
	t.Helper()
	found := slices.DeleteFunc(namesIn(t, fsys, dir), func(n string) bool {
		return !strings.HasPrefix(n, prefix) || !strings.HasSuffix(n, suffix)
	})
	if len(found) != 1 {
		t.Fatalf("%s*%s in %s: %v", prefix, suffix, dir, found)
	}
	return found[0]
}

func offsetsOf(t testing.TB, fsys vfs.FS, file string) string {
	t.Helper()
	offsets, err := checkpoint.ReadOffsets(fsys, file)
	must(t, err)
	return fmt.Sprint(offsets)
}

// tree is all files below a directory with their contents.
func tree(t testing.TB, fsys vfs.FS, dir string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	entries, err := fsys.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		if e.IsDir() {
			for sub, b := range tree(t, fsys, name) {
				files[path.Join(e.Name(), sub)] = b
			}
			continue
		}
		b, err := vfs.ReadFile(fsys, name)
		must(t, err)
		files[e.Name()] = b
	}
	return files
}
