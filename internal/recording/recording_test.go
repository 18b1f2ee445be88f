package recording

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"testing"
	"testing/fstest"
)

func archive(t *testing.T, names ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	zw := gzip.NewWriter(&b)
	tw := tar.NewWriter(zw)
	for _, name := range names {
		if err := tw.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(name))}); err != nil {
			t.Fatal(err)
		}
		if _, err := tw.Write([]byte(name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zw.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestFilesAreGivenByName(t *testing.T) {
	files := Read(t, fstest.MapFS{"x.tar.gz": {Data: archive(t, "data/a", "b")}}, "x.tar.gz")
	if len(files) != 2 || string(files["data/a"]) != "data/a" || string(files["b"]) != "b" {
		t.Error(files)
	}
}

func TestNodeHasThePartitionsThatStorageIsTestedWith(t *testing.T) {
	own, storage := fstest.MapFS{"x.tar.gz": {Data: archive(t, "data/a", "b")}}, fstest.MapFS{"x.tar.gz": {Data: archive(t, "a", "p-0/1.log", "data/a")}}
	files := Node(t, own, storage, "x.tar.gz")
	if len(files) != 4 || string(files["data/p-0/1.log"]) != "p-0/1.log" || string(files["data/data/a"]) != "data/a" {
		t.Error(files)
	}
	if files := Node(t, own, fstest.MapFS{}, "x.tar.gz"); len(files) != 2 {
		t.Error(files)
	}
}

func TestTornArchiveIsAnError(t *testing.T) {
	whole := archive(t, "data/a", "b")
	for _, n := range []int{0, 5, len(whole) / 2, len(whole) - 1} {
		if files, err := read(fstest.MapFS{"x.tar.gz": {Data: whole[:n]}}, "x.tar.gz"); err == nil {
			t.Errorf("the first %d bytes are read as %v", n, files)
		}
	}
	if _, err := read(fstest.MapFS{}, "x.tar.gz"); err == nil {
		t.Error("a missing archive is read")
	}
}
