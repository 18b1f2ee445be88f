package record

import (
	"bytes"
	"errors"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
)

type gunzipper struct {
	src bytes.Reader
	zr  gzip.Reader
}

var gunzippers = sync.Pool{New: func() any { return new(gunzipper) }}

// firstReadBytes is what the stream decoders make room for before they have seen any data.
const firstReadBytes = 16 << 10

func gunzip(dst, src []byte, maxBytes int) ([]byte, error) {
	g := gunzippers.Get().(*gunzipper)
	defer func() {
		g.src.Reset(nil)
		gunzippers.Put(g)
	}()
	g.src.Reset(src)
	if err := g.zr.Reset(&g.src); err != nil {
		return nil, corruptf("gzip: %v", err)
	}
	g.zr.Multistream(false)
	for {
		if len(dst) == cap(dst) {
			dst = grow(dst, max(firstReadBytes, min(len(dst), 4<<20)))
		}
		// One byte above the limit may be read, to tell a payload at the limit from a longer one.
		room := min(cap(dst), maxBytes+1)
		n, err := g.zr.Read(dst[len(dst):room])
		dst = dst[:len(dst)+n]
		if len(dst) > maxBytes {
			return nil, limitf("gzip: more than %d bytes", maxBytes)
		}
		if errors.Is(err, io.EOF) {
			// Another member may follow. What does not start one is ignored, as Java's decoder does.
			if g.src.Len() == 0 || g.zr.Reset(&g.src) != nil {
				return dst, nil
			}
			g.zr.Multistream(false)
			continue
		}
		if err != nil {
			return nil, corruptf("gzip: %v", err)
		}
	}
}

type appendWriter struct{ b []byte }

func (w *appendWriter) Write(p []byte) (int, error) {
	w.b = append(w.b, p...)
	return len(p), nil
}

type gzipper struct {
	dst appendWriter
	zw  *gzip.Writer
}

// gzippers has a pool for each level from -1 to 9.
var gzippers [gzip.BestCompression + 2]sync.Pool

func gzipAppend(dst, src []byte, level int) []byte {
	if level == DefaultLevel || level < gzip.DefaultCompression {
		level = gzip.DefaultCompression
	}
	level = min(level, gzip.BestCompression)
	pool := &gzippers[level+1]
	g, ok := pool.Get().(*gzipper)
	if !ok {
		g = new(gzipper)
		// The level is in range, so that there is no error.
		g.zw, _ = gzip.NewWriterLevel(&g.dst, level)
	}
	g.dst.b = dst
	g.zw.Reset(&g.dst)
	// An appendWriter does not fail.
	_, _ = g.zw.Write(src)
	_ = g.zw.Close()
	dst = g.dst.b
	g.dst.b = nil
	pool.Put(g)
	return dst
}
