package vfs

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestNthMatchingOperationFailsOnce(t *testing.T) {
	m := NewMem()
	e := NewErr(m, FailNth(2, syscall.EIO, MatchKind(OpSync).And(MatchPath(".log"))))
	log, err := e.Create("/0.log")
	must(t, err)
	index, err := e.Create("/0.index")
	must(t, err)
	must(t, log.Sync())
	must(t, index.Sync())
	err = log.Sync()
	var pe *fs.PathError
	if !errors.Is(err, syscall.EIO) || !errors.As(err, &pe) || pe.Path != "/0.log" || pe.Op != "sync" {
		t.Fatalf("%v", err)
	}
	must(t, log.Sync())
}

func TestDeadDiskFailsFromTheNthOperationOn(t *testing.T) {
	e := NewErr(NewMem(), FailFrom(2, syscall.EIO, MatchKind(OpWrite, OpRead)))
	f, err := e.Create("/f")
	must(t, err)
	write(t, f, 0, "x")
	for range 3 {
		if _, err := f.WriteAt([]byte("y"), 0); !errors.Is(err, syscall.EIO) {
			t.Fatalf("%v", err)
		}
		if _, err := f.ReadAt(make([]byte, 1), 0); !errors.Is(err, syscall.EIO) {
			t.Fatalf("%v", err)
		}
	}
}

func TestFullDiskWritesInPartThenAnswersENOSPC(t *testing.T) {
	m := NewMem()
	e := NewErr(m, DiskFull(10, MatchPath("/d")))
	must(t, m.MkdirAll("/d"))
	f, err := e.Create("/d/f")
	must(t, err)
	write(t, f, 0, "12345678")
	if err := f.Allocate(0, 100); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("allocate: %v", err)
	}
	n, err := f.WriteAt([]byte("abcdef"), 8)
	if n != 2 || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("wrote %d, %v", n, err)
	}
	if got := read(t, m, "/d/f"); got != "12345678ab" {
		t.Fatalf("%q", got)
	}
	if n, err := f.WriteAt([]byte("x"), 10); n != 0 || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("wrote %d, %v", n, err)
	}
	g, err := e.Create("/elsewhere")
	must(t, err)
	write(t, g, 0, strings.Repeat("z", 100))
}

func TestEveryOperationCanFail(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "f")
	for kind := OpOpen; kind <= OpAllocate; kind++ {
		t.Run(kind.String(), func(t *testing.T) {
			must(t, WriteFile(Real(), name, []byte("x")))
			var s Switch
			e := NewErr(Real(), &s)
			f, err := e.OpenReadWrite(name)
			must(t, err)
			defer f.Close()
			s.Set(InjectorFunc(func(op Op) error {
				if op.Kind == kind {
					return syscall.EIO
				}
				return nil
			}))
			calls := map[OpKind]func() error{
				OpOpen:       func() error { _, err := e.Open(name); return err },
				OpCreate:     func() error { _, err := e.Create(name + "2"); return err },
				OpRename:     func() error { return e.Rename(name, name+"3") },
				OpRemove:     func() error { return e.Remove(name) },
				OpRemoveAll:  func() error { return e.RemoveAll(name) },
				OpMkdir:      func() error { return e.MkdirAll(name + "4") },
				OpReadDir:    func() error { _, err := e.ReadDir(dir); return err },
				OpStat:       func() error { _, err := e.Stat(name); return err },
				OpChmod:      func() error { return e.Chmod(name, 0o600) },
				OpSetModTime: func() error { return e.SetModTime(name, time.Unix(1, 0)) },
				OpSyncDir:    func() error { return e.SyncDir(dir) },
				OpLock:       func() error { _, err := e.Lock(name + "5"); return err },
				OpDiskUsage:  func() error { _, _, err := e.DiskUsage(dir); return err },
				OpRead:       func() error { _, err := f.ReadAt(make([]byte, 1), 0); return err },
				OpWrite:      func() error { _, err := f.WriteAt([]byte("y"), 0); return err },
				OpTruncate:   func() error { return f.Truncate(0) },
				OpSync:       f.Sync,
				OpAllocate:   func() error { return f.Allocate(0, 10) },
				OpSyncAll: func() error {
					v, err := e.OpenVolume(dir)
					must(t, err)
					defer v.Close()
					return v.SyncAll()
				},
			}
			if err := calls[kind](); !errors.Is(err, syscall.EIO) {
				t.Fatalf("%v", err)
			}
			s.Set(nil)
			if got := read(t, e, name); got != "x" {
				t.Fatalf("the failed operation was done: %q", got)
			}
			if _, ok := f.Fd(); ok {
				t.Fatal("a descriptor leads around the injector")
			}
		})
	}
}

func TestOpenForReadWriteCanFail(t *testing.T) {
	m := NewMem()
	must(t, WriteFile(m, "/f", nil))
	if _, err := NewErr(m, FailNth(1, syscall.EMFILE, MatchKind(OpOpen))).OpenReadWrite("/f"); !errors.Is(err, syscall.EMFILE) {
		t.Fatalf("%v", err)
	}
}

func TestUnknownKindHasAName(t *testing.T) {
	if OpKind(-1).String() != "unknown" || OpKind(99).String() != "unknown" || OpSync.String() != "sync" {
		t.Fatal("names of kinds")
	}
}
