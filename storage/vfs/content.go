package vfs

import (
	"slices"
	"sync/atomic"
)

const (
	pageBytes   = 4096
	sectorBytes = 512
)

// page is a piece of a file. It is written in place only under the generation that made it; any other
// holder sees it unchanged.
type page struct {
	generation int64
	data       [pageBytes]byte
}

var generations atomic.Int64

// nextGeneration makes all existing pages read-only for the node that takes it.
func nextGeneration() int64 { return generations.Add(1) }

// content is the bytes of a file. A nil page, and everything past the last page, is zeros.
type content struct {
	size  int64
	pages []*page
}

// share copies the list of pages. Both holders must take a new generation before they write.
func (c *content) share() content { return content{size: c.size, pages: slices.Clone(c.pages)} }

func (c *content) readAt(p []byte, off int64) int {
	if off >= c.size {
		return 0
	}
	p = p[:min(int64(len(p)), c.size-off)]
	for n := 0; n < len(p); {
		index, within := (off+int64(n))/pageBytes, (off+int64(n))%pageBytes
		chunk := p[n:min(len(p), n+int(pageBytes-within))]
		if pg := c.page(index); pg != nil {
			copy(chunk, pg.data[within:])
		} else {
			clear(chunk)
		}
		n += len(chunk)
	}
	return len(p)
}

func (c *content) page(index int64) *page {
	if index < int64(len(c.pages)) {
		return c.pages[index]
	}
	return nil
}

// writable gives the page to write into, copying it if somebody else may hold it.
func (c *content) writable(index, generation int64) *page {
	if index >= int64(len(c.pages)) {
		c.pages = append(c.pages, make([]*page, index+1-int64(len(c.pages)))...)
	}
	pg := c.pages[index]
	switch {
	case pg == nil:
		pg = &page{generation: generation}
	case pg.generation != generation:
		fresh := *pg
		fresh.generation = generation
		pg = &fresh
	}
	c.pages[index] = pg
	return pg
}

func (c *content) writeAt(p []byte, off, generation int64) {
	for n := 0; n < len(p); {
		index, within := (off+int64(n))/pageBytes, (off+int64(n))%pageBytes
		n += copy(c.writable(index, generation).data[within:], p[n:])
	}
	c.size = max(c.size, off+int64(len(p)))
}

func (c *content) truncate(sizeBytes, generation int64) {
	if sizeBytes < c.size {
		whole := (sizeBytes + pageBytes - 1) / pageBytes
		if whole < int64(len(c.pages)) {
			c.pages = slices.Clone(c.pages[:whole])
		}
		// The rest of the last page must read as zeros when the file grows again.
		if within := sizeBytes % pageBytes; within != 0 && c.page(whole-1) != nil {
			clear(c.writable(whole-1, generation).data[within:])
		}
	}
	c.size = sizeBytes
}
