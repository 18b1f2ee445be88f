package quorum

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gregor/kraft/metadata"
	"gregor/protocol"
	"gregor/storage/vfs"
)

func TestSnapshotNamesAreKafkas(t *testing.T) {
	id := SnapshotID{Offset: 243, Epoch: 1}
	if got := id.fileName(); got != "00000000000000000243-0000000001.checkpoint" {
		t.Fatalf("name %s", got)
	}
	for name, want := range map[string]bool{
		"00000000000000000243-0000000001.checkpoint":          true,
		"00000000000000000000-0000000000.checkpoint":          true,
		"9223372036854775807x-0000000001.checkpoint":          false,
		"00000000000000000243-0000000001.checkpoint.part":     false,
		"00000000000000000243-0000000001-ab.checkpoint":       false,
		"00000000000000000243-9999999999.checkpoint":          false,
		"-0000000000000000243-0000000001.checkpoint":          false,
		"00000000000000000243.snapshot":                       false,
		"00000000000000000243-0000000001.checkpoint.deleted":  false,
		"bootstrap.checkpoint":                                false,
		"00000000000000000243-0000000001-x1y2.checkpoint.tmp": false,
	} {
		got, ok := ParseSnapshotName(name)
		if ok != want || ok && got.fileName() != name {
			t.Errorf("%s: %v, %v", name, got, ok)
		}
	}
}

func TestUnfinishedSnapshotsAreRemovedAtTheStart(t *testing.T) {
	mem := vfs.NewMem()
	if err := mem.MkdirAll("/d"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"00000000000000000010-0000000001-abc.checkpoint.part", "00000000000000000005-0000000001.checkpoint.deleted",
		"00000000000000000020-0000000001.checkpoint", "00000000000000000007-0000000003.checkpoint", "00000000000000000000.log",
	} {
		if err := vfs.WriteFile(mem, "/d/"+name, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	s, err := openSnapshots(mem, "/d", 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(s.list()); got != "[7-3 20-1]" {
		t.Errorf("snapshots %s", got)
	}
	entries, err := mem.ReadDir("/d")
	if err != nil || len(entries) != 3 {
		t.Errorf("%d files left, %v", len(entries), err)
	}
}

func TestForgottenSnapshotsGoAfterTheDelay(t *testing.T) {
	mem := vfs.NewMem()
	store := storeWith(t, mem, time.Minute, SnapshotID{1, 1}, SnapshotID{2, 1}, SnapshotID{3, 2})
	now := time.UnixMilli(1000000)
	if err := store.forgetBefore(SnapshotID{3, 2}, now); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(store.list()); got != "[3-2]" || store.has(SnapshotID{1, 1}) {
		t.Fatalf("snapshots %s", got)
	}
	if _, _, err := store.open(SnapshotID{1, 1}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("opening a forgotten snapshot: %v", err)
	}
	count := func() int {
		entries, err := mem.ReadDir("/d")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	for _, step := range []struct {
		after time.Duration
		files int
	}{{0, 3}, {59 * time.Second, 3}, {time.Minute, 1}} {
		if err := store.removeDoomed(now.Add(step.after)); err != nil || count() != step.files {
			t.Errorf("after %v: %d files, %v", step.after, count(), err)
		}
	}
}

func storeWith(t *testing.T, mem *vfs.Mem, delay time.Duration, ids ...SnapshotID) *snapshotStore {
	t.Helper()
	if err := mem.MkdirAll("/d"); err != nil {
		t.Fatal(err)
	}
	if err := mem.SyncDir("/"); err != nil {
		t.Fatal(err)
	}
	store, err := openSnapshots(mem, "/d", delay)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		writeSnapshot(t, store, id, 3)
	}
	return store
}

func writeSnapshot(t *testing.T, store *snapshotStore, id SnapshotID, records int) {
	t.Helper()
	w, err := store.newSnapshotWriter(snapshotSpec{id: id, config: config{1, set(t, 1, 2)}, lastContainedLogMillis: 99, nowMillis: 100})
	if err != nil {
		t.Fatal(err)
	}
	for i := range records {
		r := &metadata.TopicRecord{Name: strings.Repeat("n", 200) + strconv.Itoa(i), TopicID: protocol.UUID{1: 1}}
		if err := w.Append(VersionedRecord{Record: r}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatalf("closed twice: %v", err)
	}
	w.Abort()
}

func TestLargeSnapshotIsWrittenInBatchesAndReadBack(t *testing.T) {
	mem := vfs.NewMem()
	id := SnapshotID{Offset: 5000, Epoch: 7}
	store := storeWith(t, mem, 0)
	writeSnapshot(t, store, id, 9000)
	if info, err := mem.Stat(store.path(id)); err != nil || info.Mode().Perm() != 0o400 {
		t.Fatalf("mode %v, %v", info.Mode(), err)
	}
	// It survives a power cut right after Close.
	after, err := openSnapshots(mem.Crash(0), "/d", 0)
	if err != nil {
		t.Fatal(err)
	}
	survivor, err := after.openSnapshot(id)
	if err != nil {
		t.Fatal(err)
	}
	if err := survivor.verify(); err != nil {
		t.Fatal(err)
	}
	r, err := store.openSnapshot(id)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	batches, records, next := 0, 0, int64(3)
	for b, err := range r.Batches() {
		if err != nil {
			t.Fatal(err)
		}
		if b.BaseOffset != next || b.Epoch != 7 || b.SizeBytes > maxSnapshotBatchBytes {
			t.Fatalf("batch at %d of epoch %d, %d bytes", b.BaseOffset, b.Epoch, b.SizeBytes)
		}
		next = b.LastOffset + 1
		batches++
		records += len(b.Records)
	}
	if records != 9000 || batches < 3 {
		t.Fatalf("%d records in %d batches", records, batches)
	}
	if r.ID() != id || r.LastContainedLogTimestampMillis() != 99 || r.config(config{}).voters.Len() != 2 || r.SizeBytes() < 1<<20 {
		t.Errorf("header: %v, %d, %v, %d bytes", r.ID(), r.LastContainedLogTimestampMillis(), r.config(config{}), r.SizeBytes())
	}
}

func TestAbortedSnapshotLeavesNothing(t *testing.T) {
	mem := vfs.NewMem()
	store := storeWith(t, mem, 0)
	w, err := store.newSnapshotWriter(snapshotSpec{id: SnapshotID{5, 1}})
	if err != nil {
		t.Fatal(err)
	}
	w.Abort()
	entries, err := mem.ReadDir("/d")
	if err != nil || len(entries) != 0 {
		t.Fatalf("%d files, %v", len(entries), err)
	}
	if err := w.Close(); err != nil || len(store.list()) != 0 {
		t.Fatal("an aborted snapshot was completed")
	}
}

func TestEveryChangedByteOfASnapshotIsFound(t *testing.T) {
	mem := vfs.NewMem()
	id := SnapshotID{5, 1}
	store := storeWith(t, mem, 0, id)
	whole, err := vfs.ReadFile(mem, store.path(id))
	if err != nil {
		t.Fatal(err)
	}
	check := func(b []byte) error {
		if err := mem.Remove(store.path(id)); err != nil {
			t.Fatal(err)
		}
		if err := vfs.WriteFile(mem, store.path(id), b); err != nil {
			t.Fatal(err)
		}
		r, err := store.openSnapshot(id)
		if err != nil {
			return err
		}
		defer func() { _ = r.Close() }()
		return r.verify()
	}
	if err := check(whole); err != nil {
		t.Fatal(err)
	}
	for i := range whole {
		// Base offset and leader epoch lie outside the CRC.
		bad := slices.Clone(whole)
		bad[i] ^= 0x41
		if err := check(bad); err == nil && !outsideCRC(whole, i) {
			t.Fatalf("byte %d changed: not noticed", i)
		} else if err != nil && !errors.Is(err, ErrCorrupt) {
			t.Fatalf("byte %d changed: %v", i, err)
		}
	}
	for n := range whole {
		if err := check(whole[:n]); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
	}
}

// outsideCRC tells whether byte i belongs to a base offset or a leader epoch.
func outsideCRC(file []byte, i int) bool {
	at := 0
	for at < len(file) {
		size := 12 + int(file[at+8])<<24 + int(file[at+9])<<16 + int(file[at+10])<<8 + int(file[at+11])
		if i < at+size {
			pos := i - at
			return pos < 8 || pos >= 12 && pos < 16
		}
		at += size
	}
	return false
}

func FuzzSnapshot(f *testing.F) {
	mem := vfs.NewMem()
	if err := mem.MkdirAll("/d"); err != nil {
		f.Fatal(err)
	}
	writeBootstrap(f, mem, "/d", config{level: 1, voters: set(f, 1)})
	b, err := vfs.ReadFile(mem, "/d/"+SnapshotID{}.fileName())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(b[:len(b)-1])
	f.Fuzz(func(t *testing.T, b []byte) {
		mem := vfs.NewMem()
		if err := vfs.WriteFile(mem, "/x", b); err != nil {
			t.Fatal(err)
		}
		file, err := mem.Open("/x")
		if err != nil {
			t.Fatal(err)
		}
		r, err := newSnapshotReader(file, int64(len(b)), SnapshotID{})
		if err != nil {
			return
		}
		_ = r.config(config{})
		_ = r.verify()
		for _, err := range r.Batches() {
			if err != nil {
				break
			}
		}
		_ = r.Close()
	})
}
