package vfs

import (
	"bytes"
	"io"
)

// zerosChunkBytes is how much is looked at at once.
const zerosChunkBytes = 1 << 20

// OnlyZeros tells whether there is nothing but zeros in [from, to) of a file. An end of the file before to is an error.
func OnlyZeros(f io.ReaderAt, from, to int64) (bool, error) {
	chunk := make([]byte, min(zerosChunkBytes, max(to-from, 0)))
	for at := from; at < to; {
		n, err := f.ReadAt(chunk[:min(to-at, int64(len(chunk)))], at)
		if n == 0 {
			return false, err
		}
		if len(bytes.TrimLeft(chunk[:n], "\x00")) > 0 {
			return false, nil
		}
		at += int64(n)
	}
	return true, nil
}
