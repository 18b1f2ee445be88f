package cleaner

import (
	"syscall"
	"unsafe"
)

// mapMemory is memory for the entries of a map, all zero. What is large comes from the operating system, not from the
// runtime: that would fill all of it with zeros where it had been used before, which takes longer than cleaning a small
// log, and would take its size for a reason to collect garbage later.
type mapMemory struct{ mapped []byte }

// mappedFrom is how many bytes are large.
const mappedFrom = 1 << 20

// entries returns so many entries, valid until free.
func (m *mapMemory) entries(n int) []mapEntry {
	if n*entryBytes < mappedFrom {
		return make([]mapEntry, n)
	}
	mapped, err := syscall.Mmap(-1, 0, n*entryBytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return make([]mapEntry, n) // a limit on mappings
	}
	m.mapped = mapped
	return unsafe.Slice((*mapEntry)(unsafe.Pointer(unsafe.SliceData(mapped))), n) //nolint:gosec // aligned to a page; no pointers in it
}

// free gives the memory back.
func (m *mapMemory) free() {
	if m.mapped != nil {
		_ = syscall.Munmap(m.mapped) // fails only for what is not mapped
		m.mapped = nil
	}
}
