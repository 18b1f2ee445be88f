package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"sync/atomic"

	"gregor/storage/vfs"
)

const (
	offsetEntryBytes = 8
	timeEntryBytes   = 12
	// writeBehindBytes is how many bytes of new entries wait in memory before they are written.
	writeBehindBytes = 4096
)

// index is what the offset and the time index have in common: an array of entries of fixed size, ascending,
// held in memory as the bytes of the file. Readers use the published view; the owner's single writer appends.
type index struct {
	files      *vfs.Cache
	cache      *IndexCache
	entryBytes int
	maxBytes   atomic.Int64 // full size of the file, a multiple of entryBytes
	// valid tells how many bytes of a loaded file are entries; the rest is zero fill or damage.
	valid func(raw []byte) (bytes int, err error)

	view atomic.Pointer[[]byte] // entries; nil while not loaded
	used atomic.Bool            // since the cache last looked

	mu      sync.Mutex // loading, and all below
	path    string
	handle  *vfs.Handle  // nil until the file is known to exist
	written atomic.Int64 // bytes of the view that are in the file; changed with mu held
	full    bool         // the file has maxBytes
	dirty   bool         // written since the last sync
}

func (x *index) count() int {
	if v := x.view.Load(); v != nil {
		return len(*v) / x.entryBytes
	}
	return 0
}

func (x *index) isFull() bool { return (x.count()+1)*x.entryBytes > int(x.maxBytes.Load()) }

// load returns the entries, read from the file on first use. A missing file has none. An error that wraps
// ErrCorrupt comes with the good entries in front of the damage.
func (x *index) load() ([]byte, error) {
	if v := x.view.Load(); v != nil {
		x.used.Store(true)
		return *v, nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if v := x.view.Load(); v != nil {
		return *v, nil
	}
	raw, err := x.readLocked()
	if err != nil {
		return nil, err
	}
	n, err := x.valid(raw)
	entries := raw[:n:n]
	x.written.Store(int64(n))
	x.publish(entries)
	if x.cache != nil {
		x.cache.add(x)
	}
	if err != nil {
		return entries, &CorruptError{File: x.path, Position: int64(n), Cause: err}
	}
	return entries, nil
}

func (x *index) readLocked() ([]byte, error) {
	h, err := x.openLocked()
	if h == nil || err != nil {
		return nil, err
	}
	size, err := h.Size()
	if err != nil {
		return nil, err
	}
	x.full = size == x.maxBytes.Load()
	raw := make([]byte, size)
	n, err := h.ReadAt(raw, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return raw[:n], nil
}

// openLocked finds the file; nil when there is none.
func (x *index) openLocked() (*vfs.Handle, error) {
	if x.handle != nil {
		return x.handle, nil
	}
	exists, err := vfs.Exists(x.files.FS(), x.path)
	if err != nil || !exists {
		return nil, err
	}
	x.handle = x.files.Handle(x.path)
	return x.handle, nil
}

func (x *index) publish(entries []byte) { x.view.Store(&entries) }

// append adds an entry to the published view; the file follows later, without space as late as it must (write, trim). The
// caller is the only writer.
func (x *index) append(entry []byte) error {
	old, err := x.load()
	if err != nil && !errors.Is(err, ErrCorrupt) {
		return err
	}
	if x.cache != nil {
		x.cache.remove(x) // being written: not to be dropped
	}
	// Readers hold older views of the same array; bytes past their length are not theirs.
	x.publish(append(old, entry...))
	if len(old)+len(entry)-int(x.written.Load()) < writeBehindBytes {
		return nil
	}
	return unlessFull(x.write())
}

// unlessFull leaves out that there is no space: what could not be written waits in memory for the next write. No record
// depends on it before its segment is sealed, since recovery makes the indexes anew.
func unlessFull(err error) error {
	if vfs.IsNoSpace(err) {
		return nil
	}
	return err
}

// write brings the file up to the view, creating it at its full size if need be.
func (x *index) write() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.writeLocked(true)
}

func (x *index) writeLocked(fullSize bool) error {
	v := x.view.Load()
	h, err := x.openLocked()
	if err != nil {
		return err
	}
	if h == nil {
		f, err := x.files.FS().Create(x.path)
		if err != nil {
			return err
		}
		h = x.files.Adopt(f)
		x.handle, x.full = h, false
		x.written.Store(0)
	}
	if fullSize && !x.full {
		if err := h.Truncate(x.maxBytes.Load()); err != nil {
			return err
		}
		x.full, x.dirty = true, true
	}
	written := x.written.Load()
	if v == nil || written >= int64(len(*v)) {
		return nil
	}
	if _, err := h.WriteAt((*v)[written:], written); err != nil {
		return err
	}
	x.written.Store(int64(len(*v)))
	x.dirty = true
	return nil
}

// trim writes what is missing and cuts the file to its entries, creating it when missing.
func (x *index) trim() error {
	v, err := x.load()
	if err != nil && !errors.Is(err, ErrCorrupt) {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.writeLocked(false); err != nil {
		return err
	}
	size, err := x.handle.Size()
	if err != nil {
		return err
	}
	x.full = false
	if size == int64(len(v)) {
		return nil
	}
	x.dirty = true
	return x.handle.Truncate(int64(len(v)))
}

func (x *index) sync() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.handle == nil || !x.dirty {
		return nil
	}
	x.dirty = false
	if err := x.handle.Sync(); err != nil {
		x.dirty = true
		return err
	}
	return nil
}

func (x *index) isDirty() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.dirty
}

// keep cuts the entries to the first n and zeroes the rest of the file.
func (x *index) keep(n int) error {
	v, err := x.load()
	if err != nil && !errors.Is(err, ErrCorrupt) {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if n*x.entryBytes < len(v) {
		// A new array: readers may still look at the old entries while new ones are appended.
		x.publish(append(make([]byte, 0, n*x.entryBytes+256), v[:n*x.entryBytes]...))
	}
	return x.cutLocked(n * x.entryBytes)
}

// reset empties the index, whatever the file holds.
func (x *index) reset() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.publish([]byte{})
	x.written.Store(0)
	h, err := x.openLocked()
	if err != nil || h == nil {
		return err
	}
	x.full, x.dirty = false, true
	return h.Truncate(0)
}

func (x *index) cutLocked(bytes int) error {
	x.written.Store(min(x.written.Load(), int64(bytes)))
	if h, err := x.openLocked(); err != nil || h == nil {
		return err
	}
	x.dirty = true
	if err := x.handle.Truncate(x.written.Load()); err != nil {
		return err
	}
	x.full = false
	return nil
}

func (x *index) close() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.cache != nil {
		x.cache.remove(x)
	}
	if x.handle == nil {
		return nil
	}
	h := x.handle
	x.handle = nil
	return h.Close()
}

// rename follows a rename of the file (or of a directory above it), doing it itself when move is set.
func (x *index) rename(path string, move bool) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if move {
		err := x.files.FS().Rename(x.path, path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	x.path = path
	if x.handle != nil {
		x.handle.Renamed(path)
	}
	return nil
}

func (x *index) remove() error {
	closeErr := x.close()
	if err := x.files.FS().Remove(x.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return closeErr
}

// search returns the number of entries for which before holds; before holds for a prefix.
func search(entries []byte, entryBytes int, before func(entry []byte) bool) int {
	low, high := 0, len(entries)/entryBytes
	for low < high {
		mid := int(uint(low+high) >> 1)
		if before(entries[mid*entryBytes : (mid+1)*entryBytes]) {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

// OffsetIndexEntry maps the last offset of a batch (relative to the segment's base) to the batch's position.
type OffsetIndexEntry struct {
	RelativeOffset int32
	Position       int32
}

// DecodeOffsetIndex returns the entries at the start of an .index file: as many as ascend, both in offset and
// position; what follows is zero fill, or damage, which the error tells.
func DecodeOffsetIndex(raw []byte) ([]OffsetIndexEntry, error) {
	n, err := validOffsetEntries(raw)
	entries := make([]OffsetIndexEntry, 0, n/offsetEntryBytes)
	for at := 0; at < n; at += offsetEntryBytes {
		entries = append(entries, offsetEntry(raw[at:]))
	}
	return entries, err
}

func offsetEntry(b []byte) OffsetIndexEntry {
	return OffsetIndexEntry{
		RelativeOffset: int32(binary.BigEndian.Uint32(b)),
		Position:       int32(binary.BigEndian.Uint32(b[4:])),
	}
}

func validOffsetEntries(raw []byte) (int, error) {
	last := OffsetIndexEntry{RelativeOffset: -1, Position: 0}
	at := 0
	for ; at+offsetEntryBytes <= len(raw); at += offsetEntryBytes {
		e := offsetEntry(raw[at:])
		// The first batch of a segment never has an entry, so no position is 0.
		if e.RelativeOffset <= last.RelativeOffset || e.Position <= last.Position {
			break
		}
		last = e
	}
	return at, checkZeroFill(raw[at:])
}

// TimeIndexEntry maps the largest timestamp so far to the last offset (relative to the segment's base) of the
// batch that has it.
type TimeIndexEntry struct {
	Timestamp      int64
	RelativeOffset int32
}

// DecodeTimeIndex is DecodeOffsetIndex for a .timeindex file.
func DecodeTimeIndex(raw []byte) ([]TimeIndexEntry, error) {
	n, err := validTimeEntries(raw)
	entries := make([]TimeIndexEntry, 0, n/timeEntryBytes)
	for at := 0; at < n; at += timeEntryBytes {
		entries = append(entries, timeEntry(raw[at:]))
	}
	return entries, err
}

func timeEntry(b []byte) TimeIndexEntry {
	return TimeIndexEntry{
		Timestamp:      int64(binary.BigEndian.Uint64(b)),
		RelativeOffset: int32(binary.BigEndian.Uint32(b[8:])),
	}
}

func validTimeEntries(raw []byte) (int, error) {
	last := TimeIndexEntry{Timestamp: -1, RelativeOffset: -1}
	at := 0
	for ; at+timeEntryBytes <= len(raw); at += timeEntryBytes {
		e := timeEntry(raw[at:])
		if e.Timestamp <= last.Timestamp || e.RelativeOffset <= last.RelativeOffset {
			break
		}
		// Timestamp 0 at offset 0 is a legal first entry and also what zero fill looks like. It is fill when
		// nothing but zeros follows: a file cut to its entries would end here.
		if at == 0 && e == (TimeIndexEntry{}) && len(raw) > timeEntryBytes && isZero(raw) {
			return 0, nil
		}
		last = e
	}
	return at, checkZeroFill(raw[at:])
}

var errIndexDamage = errors.New("entries do not ascend")

func checkZeroFill(rest []byte) error {
	if isZero(rest) {
		return nil
	}
	return errIndexDamage
}

func isZero(b []byte) bool {
	for len(b) >= 8 {
		if binary.LittleEndian.Uint64(b) != 0 {
			return false
		}
		b = b[8:]
	}
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

func newIndex(o Options, path string, entryBytes int, valid func([]byte) (int, error)) *index {
	x := &index{files: o.Files, cache: o.Indexes, entryBytes: entryBytes, valid: valid, path: path}
	x.setMax(o.IndexMaxBytes)
	return x
}

func (x *index) setMax(bytes int32) {
	x.maxBytes.Store(int64(max(int(bytes)/x.entryBytes, 1) * x.entryBytes))
}

func (e OffsetIndexEntry) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(e.RelativeOffset))
	return binary.BigEndian.AppendUint32(b, uint32(e.Position))
}

func (e TimeIndexEntry) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(e.Timestamp))
	return binary.BigEndian.AppendUint32(b, uint32(e.RelativeOffset))
}

func (e TimeIndexEntry) String() string { return fmt.Sprintf("%d@%d", e.Timestamp, e.RelativeOffset) }
