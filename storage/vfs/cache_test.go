package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
)

// countingFS counts the open files of the file system below.
type countingFS struct {
	FS
	open, peak, opened atomic.Int64
}

type countingFile struct {
	File
	fs *countingFS
}

func (c *countingFS) OpenReadWrite(name string) (File, error) {
	f, err := c.FS.OpenReadWrite(name)
	if err != nil {
		return nil, err
	}
	c.opened.Add(1)
	n := c.open.Add(1)
	for p := c.peak.Load(); n > p && !c.peak.CompareAndSwap(p, n); p = c.peak.Load() {
	}
	return &countingFile{File: f, fs: c}, nil
}

func (f *countingFile) Close() error {
	f.fs.open.Add(-1)
	return f.File.Close()
}

func handles(t *testing.T, n, maxOpen int) (*countingFS, *Cache, []*Handle) {
	t.Helper()
	counting := &countingFS{FS: NewMem()}
	cache := NewCache(counting, maxOpen)
	hs := make([]*Handle, n)
	for i := range hs {
		name := fmt.Sprintf("/%d", i)
		must(t, WriteFile(counting, name, []byte(name)))
		hs[i] = cache.Handle(name)
	}
	return counting, cache, hs
}

func contents(t *testing.T, f File) string {
	t.Helper()
	size, err := f.Size()
	must(t, err)
	b := make([]byte, size)
	_, err = f.ReadAt(b, 0)
	must(t, err)
	return string(b)
}

func TestManyFilesFitIntoFewDescriptors(t *testing.T) {
	counting, cache, hs := handles(t, 100, 7)
	if counting.opened.Load() != 0 {
		t.Fatal("a handle opened its file before it was used")
	}
	for range 3 {
		for i, h := range hs {
			if got := contents(t, h); got != fmt.Sprintf("/%d", i) {
				t.Fatalf("%d: %q", i, got)
			}
		}
	}
	if peak := counting.peak.Load(); peak > 8 {
		t.Fatalf("%d descriptors", peak)
	}
	if s := cache.Stats(); s.Open != 7 || s.Evicted != counting.opened.Load()-7 {
		t.Fatalf("%+v", s)
	}
}

func TestRecentlyUsedFileStaysOpen(t *testing.T) {
	counting, _, hs := handles(t, 4, 2)
	contents(t, hs[0])
	contents(t, hs[1])
	contents(t, hs[0])
	contents(t, hs[2]) // pushes out 1
	before := counting.opened.Load()
	contents(t, hs[0])
	if counting.opened.Load() != before {
		t.Fatal("the most recently used file was closed")
	}
	contents(t, hs[1])
	if counting.opened.Load() != before+1 {
		t.Fatal("the coldest file was still open")
	}
}

func TestPinnedFileIsNeverClosed(t *testing.T) {
	counting, _, hs := handles(t, 10, 1)
	f, err := hs[0].Acquire()
	must(t, err)
	for _, h := range hs[1:] {
		contents(t, h)
	}
	if got := contents(t, f); got != "/0" {
		t.Fatalf("%q", got)
	}
	must(t, hs[0].Close()) // closed when released
	if got := contents(t, f); got != "/0" {
		t.Fatalf("%q", got)
	}
	hs[0].Release()
	if _, err := f.ReadAt(make([]byte, 1), 0); !errors.Is(err, fs.ErrClosed) {
		t.Fatalf("after the last release: %v", err)
	}
	if _, err := hs[0].Acquire(); !errors.Is(err, fs.ErrClosed) {
		t.Fatalf("acquire after close: %v", err)
	}
	if err := hs[0].Close(); !errors.Is(err, fs.ErrClosed) {
		t.Fatalf("second close: %v", err)
	}
	if n := counting.open.Load(); n != 0 { // the others gave way to the pinned one
		t.Fatalf("%d open", n)
	}
}

func TestCleanFileIsClosedBeforeAnUnsyncedOne(t *testing.T) {
	counting, _, hs := handles(t, 3, 2)
	write(t, hs[0], 0, "dirty") // coldest, but unsynced
	contents(t, hs[1])
	contents(t, hs[2])
	before := counting.opened.Load()
	contents(t, hs[0])
	if counting.opened.Load() != before {
		t.Fatal("the unsynced file was closed although a clean one was idle")
	}
	must(t, hs[0].Sync())
	contents(t, hs[2])
	contents(t, hs[1])
	contents(t, hs[2])
	before = counting.opened.Load()
	contents(t, hs[0])
	if counting.opened.Load() != before+1 {
		t.Fatal("a synced file should go in its turn")
	}
}

func TestRenamedFileIsOpenedUnderItsNewName(t *testing.T) {
	counting, _, hs := handles(t, 2, 1)
	contents(t, hs[0])
	contents(t, hs[1]) // pushes out 0
	must(t, counting.Rename("/0", "/0.deleted"))
	hs[0].Renamed("/0.deleted")
	if got := contents(t, hs[0]); got != "/0" || hs[0].Name() != "/0.deleted" {
		t.Fatalf("%q in %s", got, hs[0].Name())
	}
}

func TestAdoptedFileIsPartOfTheCache(t *testing.T) {
	_, cache, hs := handles(t, 3, 1)
	f, err := cache.FS().Create("/new")
	must(t, err)
	h := cache.Adopt(f)
	write(t, h, 0, "fresh")
	for _, other := range hs {
		contents(t, other)
	}
	if got := contents(t, h); got != "fresh" {
		t.Fatalf("%q", got)
	}
	must(t, h.Truncate(2))
	must(t, h.Allocate(0, 10))
	h.Advise(0, 0, AdviseDontNeed)
	if got := contents(t, h); got != "fr" {
		t.Fatalf("%q", got)
	}
	must(t, h.Close())
}

func TestMissingFileIsReportedByEveryUse(t *testing.T) {
	h := NewCache(NewMem(), 1).Handle("/none")
	for _, err := range []error{
		func() error { _, err := h.ReadAt(nil, 0); return err }(),
		func() error { _, err := h.WriteAt(nil, 0); return err }(),
		func() error { _, err := h.Size(); return err }(),
		h.Truncate(0), h.Sync(), h.Allocate(0, 1),
	} {
		if !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("%v", err)
		}
	}
	h.Advise(0, 0, AdviseNormal)
}

func TestReleaseWithoutAcquirePanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Fatal("no panic")
		}
	}()
	NewCache(NewMem(), 1).Handle("/f").Release()
}

func TestConcurrentUsersShareDescriptorsOfRealFiles(t *testing.T) {
	dir := t.TempDir()
	counting := &countingFS{FS: Real()}
	cache := NewCache(counting, 3)
	var hs []*Handle
	for i := range 12 {
		name := filepath.Join(dir, strconv.Itoa(i))
		must(t, WriteFile(counting, name, []byte{byte(i)}))
		hs = append(hs, cache.Handle(name))
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for n := range 300 {
				i := (n*7 + g*5) % len(hs)
				p := make([]byte, 1)
				if _, err := hs[i].ReadAt(p, 0); err != nil || p[0] != byte(i) {
					t.Errorf("file %d: %v %v", i, p, err)
					return
				}
			}
		})
	}
	wg.Wait()
	if peak := counting.peak.Load(); peak > 3+4+4 {
		t.Fatalf("%d descriptors for 3 idle and 4 users", peak)
	}
	for _, h := range hs {
		must(t, h.Close())
	}
	if n := counting.open.Load(); n != 0 {
		t.Fatalf("%d descriptors leak", n)
	}
}
