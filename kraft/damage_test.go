package kraft

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"gregor/kraft/image"
	"gregor/kraft/quorum"
	"gregor/storage/vfs"
)

// A controller that goes on without the topics of a damaged snapshot would have every broker delete them.
func TestDamagedSnapshotEndsTheNodeBeforeAnythingIsPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := formatDisk(t, 1, nil)
		o := testOptions(t, fs, 1, 1)
		o.Snapshots.MaxNewRecordBytes = 2000
		n := openNode(t, o)
		until(t, "activation", func() bool { return n.Image().MetadataVersion() != 0 })
		joinBroker(t, n, 1)
		for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
			createTopic(t, n, name, 3)
			synctest.Wait()
		}
		end := n.quorum.LogEndOffset()
		stopNode(t, n)
		flipNewestSnapshot(t, fs)

		seen := &countingPublisher{}
		n, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		n.Register(seen)
		if err := n.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		until(t, "failure", func() bool { return n.Err() != nil })
		if err := n.Err(); !errors.Is(err, quorum.ErrCorrupt) || !strings.Contains(err.Error(), ".checkpoint") {
			t.Errorf("the node failed with %v", err)
		}
		if seen.images > 0 {
			t.Errorf("%d images were published", seen.images)
		}
		// The leader's own first record is there, but nothing that a controller decided.
		if got := n.quorum.LogEndOffset(); got > end+1 {
			t.Errorf("the log went from %d to %d", end, got)
		}
		_ = n.Stop(t.Context())
	})
}

type countingPublisher struct{ images int }

func (p *countingPublisher) Name() string { return "counting" }

func (p *countingPublisher) Publish(*image.Delta, *image.Image, image.Manifest) { p.images++ }

// flipNewestSnapshot flips a bit in the middle of the newest snapshot.
func flipNewestSnapshot(t *testing.T, fs vfs.FS) {
	t.Helper()
	const dir = "/data/__cluster_metadata-0"
	entries, err := fs.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".checkpoint") {
			names = append(names, e.Name())
		}
	}
	if len(names) < 2 {
		t.Fatalf("snapshots %v", names)
	}
	path := dir + "/" + slices.Max(names)
	b, err := vfs.ReadFile(fs, path)
	if err != nil {
		t.Fatal(err)
	}
	b = slices.Clone(b)
	b[len(b)/2] ^= 0x10
	if err := fs.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := vfs.WriteFile(fs, path, b); err != nil {
		t.Fatal(err)
	}
}

// A disk that fails while the node starts must not make the process hang in its stop.
func TestFailedStartCanBeStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var broken vfs.Switch
		o := testOptions(t, formatDisk(t, 1, nil), 1, 1)
		o.FS = vfs.NewErr(o.FS, &broken)
		n, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		cause := errors.New("no space left")
		broken.Set(vfs.FailFrom(1, cause, vfs.MatchKind(vfs.OpSync, vfs.OpSyncDir)))
		if err := n.Start(t.Context()); !errors.Is(err, cause) {
			t.Fatalf("start: %v", err)
		}
		broken.Set(nil)
		_ = n.Stop(t.Context())
		if err := n.Err(); !errors.Is(err, cause) {
			t.Errorf("the node's error is %v", err)
		}
	})
}

func TestRecordThatDoesNotFitEndsTheNodeOfAController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testOptions(t, formatDisk(t, 1, nil), 1, 1))
		until(t, "activation", func() bool { return n.Image().MetadataVersion() != 0 })
		misfit := quorum.VersionedRecord{Record: misfitAt(0).Records[0]}
		if _, _, err := n.quorum.Propose(n.Leader().Epoch, []quorum.VersionedRecord{misfit}); err != nil {
			t.Fatal(err)
		}
		until(t, "failure", func() bool { return n.Err() != nil })
		if err := n.Err(); !errors.Is(err, image.ErrInconsistent) || !strings.Contains(err.Error(), "at offset") {
			t.Errorf("the node failed with %v", err)
		}
		_ = n.Stop(t.Context())
	})
}
