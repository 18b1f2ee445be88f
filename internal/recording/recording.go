// Package recording reads the archives in testdata that hold what Apache Kafka wrote.
package recording

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing"
)

// Read returns the files of a .tar.gz archive, such as os.DirFS("testdata") has, by their names in it. A test that cannot
// read its recording ends.
func Read(t testing.TB, dir fs.FS, name string) map[string][]byte {
	t.Helper()
	files, err := read(dir, name)
	if err != nil {
		t.Fatalf("recording %s: %v", name, err)
	}
	return files
}

// Node returns the files of a node: data/ is its log directory, what lies beside it is what Kafka said of it. The partitions
// that package storage is tested with are in its own testdata, storage, by the same name of the archive.
func Node(t testing.TB, dir, storage fs.FS, name string) map[string][]byte {
	t.Helper()
	files := Read(t, dir, name)
	if _, err := fs.Stat(storage, name); err != nil {
		return files
	}
	for file, b := range Read(t, storage, name) {
		if _, own := files["data/"+file]; !own && strings.Contains(file, "/") {
			files["data/"+file] = b
		}
	}
	return files
}

// tarPaddingBytes is more than what fills the last block of an archive.
const tarPaddingBytes = 1 << 20

func read(dir fs.FS, name string) (map[string][]byte, error) {
	f, err := dir.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	zr, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for tr := tar.NewReader(zr); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			_, err = io.CopyN(io.Discard, zr, tarPaddingBytes) // to the check sum behind it
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return files, err
		}
		if err != nil {
			return nil, err
		}
		if files[h.Name], err = io.ReadAll(tr); err != nil {
			return nil, fmt.Errorf("%s: %w", h.Name, err)
		}
	}
}
