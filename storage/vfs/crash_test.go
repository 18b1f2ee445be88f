package vfs

import (
	"fmt"
	"strings"
	"testing"
)

func memWith(t *testing.T, dirs ...string) *Mem {
	t.Helper()
	m := NewMem()
	for _, d := range dirs {
		must(t, m.MkdirAll(d))
	}
	must(t, m.SyncDir("/"))
	return m
}

// outcomes crashes under many seeds and collects what a file can look like.
func outcomes(t *testing.T, m *Mem, name string) map[string]int {
	t.Helper()
	seen := map[string]int{}
	for seed := range uint64(400) {
		after := m.Crash(seed)
		if ok, err := Exists(after, name); err != nil || !ok {
			seen["<missing>"]++
			continue
		}
		seen[read(t, after, name)]++
	}
	return seen
}

func TestUnsyncedNameMayVanishAndSyncedOneMayNot(t *testing.T) {
	m := memWith(t, "/d")
	must(t, WriteFile(m, "/d/f", []byte("x")))
	if seen := outcomes(t, m, "/d/f"); seen["<missing>"] == 0 || seen["x"] == 0 || len(seen) != 2 {
		t.Fatalf("before the directory sync: %v", seen)
	}
	must(t, m.SyncDir("/d"))
	if seen := outcomes(t, m, "/d/f"); seen["x"] != 400 {
		t.Fatalf("after it: %v", seen)
	}
}

func TestUnsyncedContentsMayBeLostWholeInPartOrNotAtAll(t *testing.T) {
	m := memWith(t, "/d")
	old, fresh := strings.Repeat("o", 3*pageBytes), strings.Repeat("n", 3*pageBytes)
	must(t, WriteFile(m, "/d/f", []byte(old)))
	must(t, m.SyncDir("/d"))
	f, err := m.OpenReadWrite("/d/f")
	must(t, err)
	write(t, f, 0, fresh)
	seen := outcomes(t, m, "/d/f")
	if seen[old] == 0 || seen[fresh] == 0 || len(seen) < 20 {
		t.Fatalf("old %d, new %d, %d different", seen[old], seen[fresh], len(seen))
	}
	must(t, f.Sync())
	if seen := outcomes(t, m, "/d/f"); seen[fresh] != 400 {
		t.Fatalf("after the sync: %d", seen[fresh])
	}
}

func TestUnsyncedAppendKeepsTheSyncedPrefix(t *testing.T) {
	m := memWith(t, "/d")
	must(t, WriteFile(m, "/d/f", []byte("durable")))
	must(t, m.SyncDir("/d"))
	f, err := m.OpenReadWrite("/d/f")
	must(t, err)
	write(t, f, 7, strings.Repeat("+", 2000))
	short := false
	for got := range outcomes(t, m, "/d/f") {
		if !strings.HasPrefix(got, "durable") || len(got) > 2007 {
			t.Fatalf("%q", got)
		}
		short = short || len(got) > 7 && len(got) < 2007
	}
	if !short {
		t.Fatal("the append was never torn")
	}
}

func TestUnsyncedTruncationMayBeUndone(t *testing.T) {
	m := memWith(t, "/d")
	must(t, WriteFile(m, "/d/f", []byte("0123456789")))
	must(t, m.SyncDir("/d"))
	f, err := m.OpenReadWrite("/d/f")
	must(t, err)
	must(t, f.Truncate(4))
	seen := outcomes(t, m, "/d/f")
	if seen["0123456789"] == 0 || seen["0123"] == 0 {
		t.Fatal(seen)
	}
	for got := range seen {
		if !strings.HasPrefix("0123456789", got) || len(got) < 4 {
			t.Fatalf("%q", got)
		}
	}
}

func TestRenameWithoutSyncOfTheContentsCanLeaveAnEmptyFile(t *testing.T) {
	m := memWith(t, "/d")
	must(t, WriteFile(m, "/d/f", []byte("old")))
	must(t, m.SyncDir("/d"))
	f, err := m.Create("/d/f.tmp")
	must(t, err)
	write(t, f, 0, "new")
	must(t, m.Rename("/d/f.tmp", "/d/f"))
	must(t, m.SyncDir("/d"))
	if seen := outcomes(t, m, "/d/f"); seen[""] == 0 || seen["new"] == 0 || seen["old"] != 0 {
		t.Fatal(seen)
	}
}

func TestAtomicWriteLeavesTheOldOrTheNewContentsAtEveryStep(t *testing.T) {
	m := memWith(t, "/d")
	must(t, WriteFileAtomic(m, "/d/f", []byte("old")))
	steps := 0
	m.OnOp(func(n int64, op Op) {
		steps++
		for seed := range uint64(50) {
			if got := read(t, m.Crash(seed), "/d/f"); got != "old" && got != "new" {
				t.Errorf("crash before step %d (%v %s), seed %d: %q", n, op.Kind, op.Name, seed, got)
			}
		}
	})
	must(t, WriteFileAtomic(m, "/d/f", []byte("new")))
	if steps != 5 {
		t.Fatalf("%d steps: create, write, sync, rename and directory sync were expected", steps)
	}
	if seen := outcomes(t, m, "/d/f"); seen["new"] != 400 {
		t.Fatal(seen)
	}
}

func TestNamesOfADirectoryAreLostFromTheEnd(t *testing.T) {
	m := memWith(t, "/d")
	for i := range 4 {
		must(t, WriteFile(m, fmt.Sprintf("/d/%d", i), nil))
	}
	must(t, m.Remove("/d/0"))
	for seed := range uint64(200) {
		entries, err := m.Crash(seed).ReadDir("/d")
		must(t, err)
		names := ""
		for _, e := range entries {
			names += e.Name()
		}
		if names != "123" && !strings.HasPrefix("0123", names) {
			t.Fatalf("seed %d: %q", seed, names)
		}
	}
}

func TestRenameBetweenDirectoriesIsNeverHalfDone(t *testing.T) {
	m := memWith(t, "/a", "/b")
	must(t, WriteFile(m, "/a/f", []byte("x")))
	must(t, m.SyncDir("/a"))
	must(t, WriteFile(m, "/b/g", nil))
	must(t, m.Rename("/a/f", "/b/f"))
	for seed := range uint64(200) {
		after := m.Crash(seed)
		a, _ := Exists(after, "/a/f")
		b, _ := Exists(after, "/b/f")
		if a == b {
			t.Fatalf("seed %d: in a %v, in b %v", seed, a, b)
		}
	}
}

func TestRenamedDirectoryKeepsItsFiles(t *testing.T) {
	m := memWith(t, "/d/t-0")
	must(t, m.SyncDir("/d"))
	must(t, WriteFile(m, "/d/t-0/log", []byte("x")))
	must(t, m.SyncDir("/d/t-0"))
	must(t, m.Rename("/d/t-0", "/d/t-0-delete"))
	for seed := range uint64(50) {
		after := m.Crash(seed)
		old, _ := Exists(after, "/d/t-0/log")
		moved, _ := Exists(after, "/d/t-0-delete/log")
		if old == moved {
			t.Fatalf("seed %d: old %v, moved %v", seed, old, moved)
		}
	}
}

func TestSeedsZeroAndKeepAllAreTheExtremes(t *testing.T) {
	m := memWith(t, "/d")
	must(t, WriteFileAtomic(m, "/d/f", []byte("synced")))
	f, err := m.OpenReadWrite("/d/f")
	must(t, err)
	write(t, f, 0, "SYNCED")
	must(t, WriteFile(m, "/d/g", nil))
	if got := read(t, m.Crash(0), "/d/f"); got != "synced" {
		t.Fatalf("%q", got)
	}
	all := m.Crash(CrashKeepAll)
	if got := read(t, all, "/d/f"); got != "SYNCED" {
		t.Fatalf("%q", got)
	}
	if ok, _ := Exists(all, "/d/g"); !ok {
		t.Fatal("a killed process lost a name")
	}
}

func TestSeedReplays(t *testing.T) {
	m := memWith(t, "/d", "/e")
	for i := range 20 {
		must(t, WriteFile(m, fmt.Sprintf("/d/%d", i), []byte("x")))
		f, err := m.Create(fmt.Sprintf("/e/%d", i))
		must(t, err)
		write(t, f, 0, strings.Repeat("y", 5000))
	}
	dump := func(seed uint64) string {
		var b strings.Builder
		after := m.Crash(seed)
		for _, dir := range []string{"/d", "/e"} {
			entries, err := after.ReadDir(dir)
			must(t, err)
			for _, e := range entries {
				fmt.Fprintf(&b, "%s %q\n", e.Name(), read(t, after, dir+"/"+e.Name()))
			}
		}
		return b.String()
	}
	if dump(7) != dump(7) {
		t.Fatal("same seed, different disk")
	}
	if dump(7) == dump(8) {
		t.Fatal("different seeds, same disk")
	}
}

func TestCloneAndOriginalDoNotSeeEachOthersWrites(t *testing.T) {
	m := memWith(t, "/d")
	f, err := m.Create("/d/f")
	must(t, err)
	write(t, f, 0, strings.Repeat("a", 2*pageBytes))
	clone := m.Clone()
	write(t, f, 10, "original")
	g, err := clone.OpenReadWrite("/d/f")
	must(t, err)
	write(t, g, 10, "theclone")
	must(t, g.Truncate(100))
	if got := read(t, m, "/d/f"); got[10:18] != "original" || len(got) != 2*pageBytes {
		t.Fatalf("%q", got[:20])
	}
	if got := read(t, clone, "/d/f"); got[10:18] != "theclone" || len(got) != 100 {
		t.Fatalf("%q", got)
	}
}

func TestCrashedFileSystemIsFreeOfLocks(t *testing.T) {
	m := memWith(t, "/d")
	_, err := m.Lock("/d/.lock")
	must(t, err)
	_, err = m.Crash(CrashKeepAll).Lock("/d/.lock")
	must(t, err)
}
