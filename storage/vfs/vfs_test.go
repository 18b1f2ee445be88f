package vfs

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"syscall"
	"testing"
)

// both runs a test on the real file system and on the one in memory: what holds for one holds for the other.
func both(t *testing.T, test func(t *testing.T, fsys FS, dir string)) {
	t.Helper()
	t.Run("real", func(t *testing.T) { test(t, Real(), t.TempDir()) })
	t.Run("mem", func(t *testing.T) {
		m := NewMem()
		must(t, m.MkdirAll("/d"))
		test(t, m, "/d")
	})
	t.Run("err", func(t *testing.T) { test(t, NewErr(Real(), &Switch{}), t.TempDir()) })
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, f File, off int64, s string) {
	t.Helper()
	if n, err := f.WriteAt([]byte(s), off); err != nil || n != len(s) {
		t.Fatalf("wrote %d, %v", n, err)
	}
}

func read(t *testing.T, fsys FS, name string) string {
	t.Helper()
	b, err := ReadFile(fsys, name)
	must(t, err)
	return string(b)
}

func TestFilesReadWhatWasWritten(t *testing.T) {
	both(t, func(t *testing.T, fsys FS, dir string) {
		name := filepath.Join(dir, "f")
		f, err := fsys.Create(name)
		must(t, err)
		write(t, f, 0, "hello")
		write(t, f, 8, "world")
		must(t, f.Allocate(0, 1<<16))
		f.Advise(0, 0, AdviseSequential)
		must(t, f.Sync())
		size, err := f.Size()
		must(t, err)
		if size != 13 {
			t.Fatalf("size %d: allocation must not change it", size)
		}
		must(t, f.Truncate(10))
		must(t, f.Truncate(12))
		must(t, f.Close())
		if got := read(t, fsys, name); got != "hello\x00\x00\x00wo\x00\x00" {
			t.Fatalf("%q", got)
		}
		if _, err := f.WriteAt([]byte("x"), 0); !errors.Is(err, fs.ErrClosed) {
			t.Fatalf("write after close: %v", err)
		}
		ro, err := fsys.Open(name)
		must(t, err)
		defer ro.Close()
		if _, err := ro.WriteAt([]byte("x"), 0); err == nil {
			t.Fatal("wrote to a file opened for reading")
		}
		p := make([]byte, 20)
		if n, err := ro.ReadAt(p, 10); n != 2 || !errors.Is(err, io.EOF) {
			t.Fatalf("short read gave %d, %v", n, err)
		}
	})
}

func TestNamesBehaveAsOnPosix(t *testing.T) {
	both(t, func(t *testing.T, fsys FS, dir string) {
		sub := filepath.Join(dir, "a", "b")
		must(t, fsys.MkdirAll(sub))
		must(t, fsys.MkdirAll(sub))
		must(t, WriteFile(fsys, filepath.Join(sub, "x"), []byte("1")))
		must(t, WriteFile(fsys, filepath.Join(sub, "y"), []byte("2")))
		must(t, fsys.Rename(filepath.Join(sub, "x"), filepath.Join(sub, "y")))
		must(t, fsys.Rename(sub, filepath.Join(dir, "c")))
		must(t, fsys.SyncDir(dir))
		if got := read(t, fsys, filepath.Join(dir, "c", "y")); got != "1" {
			t.Fatalf("%q", got)
		}
		for _, missing := range []string{sub, filepath.Join(dir, "c", "x")} {
			if _, err := fsys.Stat(missing); !errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("stat %s: %v", missing, err)
			}
		}
		if err := fsys.Remove(filepath.Join(dir, "c")); !errors.Is(err, syscall.ENOTEMPTY) {
			t.Fatalf("remove of a full directory: %v", err)
		}
		entries, err := fsys.ReadDir(dir)
		must(t, err)
		if len(entries) != 2 || entries[0].Name() != "a" || !entries[1].IsDir() {
			t.Fatalf("%v", entries)
		}
		must(t, fsys.RemoveAll(filepath.Join(dir, "c")))
		must(t, fsys.RemoveAll(filepath.Join(dir, "c")))
		if ok, err := Exists(fsys, filepath.Join(dir, "c")); ok || err != nil {
			t.Fatalf("exists %v, %v", ok, err)
		}
		for _, err := range []error{
			fsys.Remove(filepath.Join(dir, "none")),
			fsys.Rename(filepath.Join(dir, "none"), filepath.Join(dir, "n")),
			func() error { _, err := fsys.Open(filepath.Join(dir, "none")); return err }(),
			func() error { _, err := fsys.Create(filepath.Join(dir, "none", "f")); return err }(),
			func() error { _, err := fsys.ReadDir(filepath.Join(dir, "none")); return err }(),
		} {
			if !errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("missing name: %v", err)
			}
		}
	})
}

func TestReadOnlyModeIsKept(t *testing.T) {
	both(t, func(t *testing.T, fsys FS, dir string) {
		name := filepath.Join(dir, "f")
		must(t, WriteFile(fsys, name, nil))
		must(t, fsys.Chmod(name, 0o400))
		st, err := fsys.Stat(name)
		must(t, err)
		if st.Mode().Perm() != 0o400 {
			t.Fatal(st.Mode())
		}
		must(t, fsys.Rename(name, name+"2"))
		must(t, fsys.Remove(name+"2"))
	})
}

func TestSecondLockIsRefusedUntilTheFirstIsGone(t *testing.T) {
	both(t, func(t *testing.T, fsys FS, dir string) {
		name := filepath.Join(dir, ".lock")
		first, err := fsys.Lock(name)
		must(t, err)
		if _, err := fsys.Lock(name); !errors.Is(err, ErrLocked) {
			t.Fatalf("second lock: %v", err)
		}
		must(t, first.Close())
		again, err := fsys.Lock(name)
		must(t, err)
		must(t, again.Close())
		if ok, _ := Exists(fsys, name); !ok {
			t.Fatal("unlocking removed the file")
		}
	})
}

func TestDiskUsageIsPlausible(t *testing.T) {
	both(t, func(t *testing.T, fsys FS, dir string) {
		total, usable, err := fsys.DiskUsage(dir)
		must(t, err)
		if total <= 0 || usable < 0 || usable > total {
			t.Fatalf("%d of %d", usable, total)
		}
	})
}

func TestAtomicWriteLeavesNoTemporaryFile(t *testing.T) {
	both(t, func(t *testing.T, fsys FS, dir string) {
		name := filepath.Join(dir, "meta.properties")
		must(t, WriteFileAtomic(fsys, name, []byte("one")))
		must(t, WriteFileAtomic(fsys, name, []byte("three")))
		if got := read(t, fsys, name); got != "three" {
			t.Fatalf("%q", got)
		}
		entries, err := fsys.ReadDir(dir)
		must(t, err)
		if len(entries) != 1 {
			t.Fatalf("%v", entries)
		}
	})
}

func TestRealFileHasADescriptor(t *testing.T) {
	f, err := Real().Create(filepath.Join(t.TempDir(), "f"))
	must(t, err)
	if _, ok := f.Fd(); !ok {
		t.Fatal("no descriptor")
	}
	must(t, f.Close())
	if _, ok := f.Fd(); ok {
		t.Fatal("descriptor after close")
	}
}

func TestLargeContentsCrossPages(t *testing.T) {
	both(t, func(t *testing.T, fsys FS, dir string) {
		want := bytes.Repeat([]byte("0123456789abcdef-"), 3000)
		name := filepath.Join(dir, "big")
		f, err := fsys.Create(name)
		must(t, err)
		for off := 0; off < len(want); off += 1234 {
			_, err := f.WriteAt(want[off:min(len(want), off+1234)], int64(off))
			must(t, err)
		}
		must(t, f.Close())
		if read(t, fsys, name) != string(want) {
			t.Fatal("contents differ")
		}
	})
}
