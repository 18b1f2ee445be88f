package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sync"
	"sync/atomic"

	"gregor/storage/vfs"
)

// AbortedTxn is an entry of the transaction index: a transaction whose ABORT marker is in the segment.
type AbortedTxn struct {
	ProducerID       int64
	FirstOffset      int64
	LastOffset       int64 // of the ABORT marker
	LastStableOffset int64 // when the marker was appended
}

const (
	txnEntryBytes   = 34
	txnEntryVersion = 0
)

func (a AbortedTxn) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, txnEntryVersion)
	b = binary.BigEndian.AppendUint64(b, uint64(a.ProducerID))
	b = binary.BigEndian.AppendUint64(b, uint64(a.FirstOffset))
	b = binary.BigEndian.AppendUint64(b, uint64(a.LastOffset))
	return binary.BigEndian.AppendUint64(b, uint64(a.LastStableOffset))
}

// DecodeTxnIndex returns the entries of a .txnindex file up to the first damage, which the error tells.
func DecodeTxnIndex(raw []byte) ([]AbortedTxn, error) {
	entries := make([]AbortedTxn, 0, len(raw)/txnEntryBytes)
	last := int64(-1)
	for len(raw) >= txnEntryBytes {
		if v := int16(binary.BigEndian.Uint16(raw)); v != txnEntryVersion {
			return entries, fmt.Errorf("unknown version %d", v)
		}
		a := AbortedTxn{
			ProducerID:       int64(binary.BigEndian.Uint64(raw[2:])),
			FirstOffset:      int64(binary.BigEndian.Uint64(raw[10:])),
			LastOffset:       int64(binary.BigEndian.Uint64(raw[18:])),
			LastStableOffset: int64(binary.BigEndian.Uint64(raw[26:])),
		}
		if a.LastOffset <= last || a.FirstOffset < 0 || a.FirstOffset > a.LastOffset {
			return entries, errIndexDamage
		}
		last = a.LastOffset
		entries = append(entries, a)
		raw = raw[txnEntryBytes:]
	}
	if len(raw) > 0 {
		return entries, fmt.Errorf("%d bytes after the last entry", len(raw))
	}
	return entries, nil
}

// txnIndex is the .txnindex of one segment. The file exists from the first aborted transaction on.
type txnIndex struct {
	files *vfs.Cache
	view  atomic.Pointer[[]AbortedTxn] // nil while not loaded
	// trusted says that the entries have been compared with the log, or were made of it.
	trusted atomic.Bool

	mu      sync.Mutex
	path    string
	handle  *vfs.Handle
	written int // entries that are in the file
	dirty   bool
}

func (x *txnIndex) load() ([]AbortedTxn, error) {
	if v := x.view.Load(); v != nil {
		return *v, nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if v := x.view.Load(); v != nil {
		return *v, nil
	}
	raw, err := vfs.ReadFile(x.files.FS(), x.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, io.EOF) {
		return nil, err
	}
	entries, err := DecodeTxnIndex(raw)
	if err != nil {
		return entries, &CorruptError{File: x.path, Position: int64(len(entries) * txnEntryBytes), Cause: err}
	}
	entries = slices.Clip(entries)
	x.written = len(entries)
	x.view.Store(&entries)
	return entries, nil
}

func (x *txnIndex) append(a AbortedTxn) error {
	old, err := x.load()
	if err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	entries := append(old, a) //nolint:gocritic // a longer view of the same array; readers keep the shorter one
	if err := unlessFull(x.writeLocked(entries)); err != nil {
		return err
	}
	x.view.Store(&entries)
	return nil
}

// write writes the entries that there was no space for.
func (x *txnIndex) write() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	v := x.view.Load()
	if v == nil || x.written == len(*v) {
		return nil
	}
	return x.writeLocked(*v)
}

func (x *txnIndex) writeLocked(entries []AbortedTxn) error {
	if x.handle == nil {
		f, err := x.openLocked()
		if err != nil {
			return err
		}
		x.handle = x.files.Adopt(f)
	}
	var raw []byte
	for _, a := range entries[x.written:] {
		raw = a.append(raw)
	}
	if _, err := x.handle.WriteAt(raw, int64(x.written*txnEntryBytes)); err != nil {
		return err
	}
	x.written, x.dirty = len(entries), true
	return nil
}

func (x *txnIndex) openLocked() (vfs.File, error) {
	f, err := x.files.FS().OpenReadWrite(x.path)
	if errors.Is(err, fs.ErrNotExist) {
		return x.files.FS().Create(x.path)
	}
	return f, err
}

// keep cuts the index to the entries whose marker lies below an offset.
func (x *txnIndex) keep(below int64) error {
	old, err := x.load()
	if err != nil && !errors.Is(err, ErrCorrupt) {
		return err
	}
	n := 0
	for n < len(old) && old[n].LastOffset < below {
		n++
	}
	if n == len(old) && err == nil {
		return nil
	}
	return x.cut(slices.Clone(old[:n]))
}

// reset empties the index; the file stays, empty, when there is one.
func (x *txnIndex) reset() error {
	x.trusted.Store(true)
	return x.cut([]AbortedTxn{})
}

func (x *txnIndex) cut(entries []AbortedTxn) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.view.Store(&entries)
	x.written = min(x.written, len(entries))
	if x.handle == nil {
		exists, err := vfs.Exists(x.files.FS(), x.path)
		if err != nil || !exists {
			return err
		}
		x.handle = x.files.Handle(x.path)
	}
	x.dirty = true
	return x.handle.Truncate(int64(x.written * txnEntryBytes))
}

func (x *txnIndex) sync() error {
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

func (x *txnIndex) close() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.handle == nil {
		return nil
	}
	h := x.handle
	x.handle = nil
	return h.Close()
}

func (x *txnIndex) rename(path string, move bool) error {
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

func (x *txnIndex) remove() error {
	closeErr := x.close()
	if err := x.files.FS().Remove(x.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return closeErr
}
