package kraft

import (
	"bytes"
	"errors"
	"testing"

	"gregor/storage/checkpoint"
	"gregor/storage/vfs"
)

func newNodeFormatter(fs vfs.FS, dirs ...string) *Formatter {
	return &Formatter{
		FS: fs, NodeID: 1, LogDirs: dirs, MetadataDir: "/m", Controller: true, HasStaticVoters: true,
		ListenerName: "CONTROLLER",
	}
}

func TestEmptyNodeFormatsItselfOnce(t *testing.T) {
	fs := vfs.NewMem()
	id, formatted, err := newNodeFormatter(fs, "/a").EnsureFormatted(&bytes.Buffer{})
	if err != nil || !formatted || len(id) != 22 {
		t.Fatalf("got %q, %v, %v", id, formatted, err)
	}
	again, formatted, err := newNodeFormatter(fs, "/a").EnsureFormatted(&bytes.Buffer{})
	if err != nil || formatted || again != id {
		t.Fatalf("second start: got %q, %v, %v; want %q", again, formatted, err, id)
	}
}

func TestNewLogDirOfAFormattedNodeGetsItsMetaProperties(t *testing.T) {
	fs := vfs.NewMem()
	id, _, err := newNodeFormatter(fs, "/a").EnsureFormatted(&bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	_, formatted, err := newNodeFormatter(fs, "/a", "/b").EnsureFormatted(&bytes.Buffer{})
	if err != nil || !formatted {
		t.Fatalf("got %v, %v", formatted, err)
	}
	p, err := checkpoint.ReadMetaProperties(fs, "/b/meta.properties")
	if err != nil || p.ClusterID != id || p.NodeID != 1 {
		t.Fatalf("got %+v, %v", p, err)
	}
}

func TestLostMetadataDirIsNotFormattedAnew(t *testing.T) {
	fs := vfs.NewMem()
	if _, _, err := newNodeFormatter(fs, "/a").EnsureFormatted(&bytes.Buffer{}); err != nil {
		t.Fatal(err)
	}
	if err := fs.RemoveAll("/m"); err != nil {
		t.Fatal(err)
	}
	_, _, err := newNodeFormatter(fs, "/a").EnsureFormatted(&bytes.Buffer{})
	if !errors.Is(err, ErrMetadataDirLost) {
		t.Fatalf("got %v", err)
	}
}

func TestOtherClusterIDIsRefused(t *testing.T) {
	fs := vfs.NewMem()
	if _, _, err := newNodeFormatter(fs, "/a").EnsureFormatted(&bytes.Buffer{}); err != nil {
		t.Fatal(err)
	}
	f := newNodeFormatter(fs, "/a")
	f.ClusterID = "AAAAAAAAAAAAAAAAAAAAAA"
	if _, _, err := f.EnsureFormatted(&bytes.Buffer{}); err == nil {
		t.Fatal("a node of another cluster was accepted")
	}
}
