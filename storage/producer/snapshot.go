package producer

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gregor/storage/vfs"
)

// A snapshot file, big endian:
//
//	version int16 = 1 | crc uint32 (CRC-32C of all that follows) | count int32 | count entries of 46 bytes
//
//	producerId int64 | producerEpoch int16 | lastSequence int32 | lastOffset int64 | offsetDelta int32 |
//	timestamp int64 | coordinatorEpoch int32 | currentTxnFirstOffset int64
//
// lastOffset is -1 for a producer without a remembered batch; only the newest batch is kept.
const (
	snapshotVersion     = 1
	snapshotCRCPos      = 2
	snapshotEntriesPos  = 6
	snapshotHeaderBytes = 10
	snapshotEntryBytes  = 46

	snapshotSuffix = ".snapshot"
	offsetDigits   = 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// SnapshotName is the file name of the snapshot that covers the log below offset.
func SnapshotName(offset int64) string {
	return fmt.Sprintf("%0*d%s", offsetDigits, offset, snapshotSuffix)
}

// ParseSnapshotName is the reverse of SnapshotName; ok is false for other files.
func ParseSnapshotName(name string) (offset int64, ok bool) {
	digits, found := strings.CutSuffix(name, snapshotSuffix)
	if !found || len(digits) != offsetDigits {
		return 0, false
	}
	offset, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || offset < 0 {
		return 0, false
	}
	return offset, true
}

// ReadSnapshot reads a snapshot file. A damaged one is an ErrCorruptSnapshot.
func ReadSnapshot(fsys vfs.FS, path string) ([]State, error) {
	b, err := vfs.ReadFile(fsys, path)
	if err != nil {
		return nil, err
	}
	states, err := DecodeSnapshot(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return states, nil
}

// DecodeSnapshot reads the contents of a snapshot file.
func DecodeSnapshot(b []byte) ([]State, error) {
	if len(b) < snapshotHeaderBytes {
		return nil, fmt.Errorf("%w: %d bytes", ErrCorruptSnapshot, len(b))
	}
	if version := int16(binary.BigEndian.Uint16(b)); version != snapshotVersion {
		return nil, fmt.Errorf("%w: unknown version %d", ErrCorruptSnapshot, version)
	}
	stored, computed := binary.BigEndian.Uint32(b[snapshotCRCPos:]), crc32.Checksum(b[snapshotEntriesPos:], castagnoli)
	if stored != computed {
		return nil, fmt.Errorf("%w: CRC %08x is stored, %08x computed", ErrCorruptSnapshot, stored, computed)
	}
	count := int64(int32(binary.BigEndian.Uint32(b[snapshotEntriesPos:])))
	body := b[snapshotHeaderBytes:]
	if count < 0 || count*snapshotEntryBytes > int64(len(body)) {
		return nil, fmt.Errorf("%w: %d entries in %d bytes", ErrCorruptSnapshot, count, len(body))
	}
	states := make([]State, count)
	for i := range states {
		states[i] = decodeEntry(body[i*snapshotEntryBytes:])
	}
	return states, nil
}

func decodeEntry(e []byte) State {
	s := State{
		ProducerID:            int64(binary.BigEndian.Uint64(e)),
		Epoch:                 int16(binary.BigEndian.Uint16(e[8:])),
		LastTimestamp:         int64(binary.BigEndian.Uint64(e[26:])),
		CoordinatorEpoch:      int32(binary.BigEndian.Uint32(e[34:])),
		CurrentTxnFirstOffset: max(-1, int64(binary.BigEndian.Uint64(e[38:]))),
	}
	if lastOffset := int64(binary.BigEndian.Uint64(e[14:])); lastOffset >= 0 {
		s.add(BatchMeta{
			LastSequence: int32(binary.BigEndian.Uint32(e[10:])),
			LastOffset:   lastOffset,
			OffsetDelta:  int32(binary.BigEndian.Uint32(e[22:])),
			Timestamp:    s.LastTimestamp,
		})
	}
	return s
}

// EncodeSnapshot is the contents of a snapshot file, with the producers in the order given.
func EncodeSnapshot(states []State) []byte {
	b := make([]byte, snapshotHeaderBytes, snapshotHeaderBytes+len(states)*snapshotEntryBytes)
	binary.BigEndian.PutUint16(b, snapshotVersion)
	binary.BigEndian.PutUint32(b[snapshotEntriesPos:], uint32(len(states)))
	for i := range states {
		s := &states[i]
		last := s.last()
		b = binary.BigEndian.AppendUint64(b, uint64(s.ProducerID))
		b = binary.BigEndian.AppendUint16(b, uint16(s.Epoch))
		b = binary.BigEndian.AppendUint32(b, uint32(last.LastSequence))
		b = binary.BigEndian.AppendUint64(b, uint64(last.LastOffset))
		b = binary.BigEndian.AppendUint32(b, uint32(last.OffsetDelta))
		b = binary.BigEndian.AppendUint64(b, uint64(s.LastTimestamp))
		b = binary.BigEndian.AppendUint32(b, uint32(s.CoordinatorEpoch))
		b = binary.BigEndian.AppendUint64(b, uint64(s.CurrentTxnFirstOffset))
	}
	binary.BigEndian.PutUint32(b[snapshotCRCPos:], crc32.Checksum(b[snapshotEntriesPos:], castagnoli))
	return b
}

func compareIDs(a, b State) int { return cmp.Compare(a.ProducerID, b.ProducerID) }

// Snapshot is the state at one offset on its way to the disk: begun with the writer's lock held, written
// without, finished with it again.
type Snapshot struct {
	Offset int64

	fs         vfs.FS
	path       string
	contents   []byte
	generation int64
}

// BeginSnapshot takes the state at MapEndOffset; nil when there is a snapshot of that offset already.
func (m *Manager) BeginSnapshot() *Snapshot {
	if m.mapEnd <= m.lastSnap {
		return nil
	}
	m.begun = m.mapEnd
	return &Snapshot{
		Offset: m.mapEnd, fs: m.fs, path: m.snapshotPath(m.mapEnd),
		contents: EncodeSnapshot(m.Active()), generation: m.generation,
	}
}

// Moved tells that the partition directory has been renamed.
func (s *Snapshot) Moved(dir string) { s.path = filepath.Join(dir, filepath.Base(s.path)) }

// Write writes the file durably; no lock is needed.
func (s *Snapshot) Write() error { return vfs.WriteFileAtomic(s.fs, s.path, s.contents) }

// File is what Write writes, for a caller who does so himself.
func (s *Snapshot) File() (path string, contents []byte) { return s.path, s.contents }

// FinishSnapshot takes a written snapshot into account. One that a truncation has overtaken is removed again.
func (m *Manager) FinishSnapshot(s *Snapshot) error {
	if s.generation != m.generation {
		if err := m.fs.Remove(s.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	if m.begun == s.Offset {
		m.begun = -1
	}
	m.NoteSnapshot(s.Offset)
	return nil
}

// NoteSnapshot takes into account that there is a snapshot of an offset, written by another Manager.
func (m *Manager) NoteSnapshot(offset int64) {
	if at, found := slices.BinarySearch(m.snapshots, offset); !found {
		m.snapshots = slices.Insert(m.snapshots, at, offset)
	}
	m.lastSnap = max(m.lastSnap, offset)
}

// TakeSnapshot writes a snapshot at MapEndOffset, unless there is one.
func (m *Manager) TakeSnapshot() error {
	s := m.BeginSnapshot()
	if s == nil {
		return nil
	}
	if err := s.Write(); err != nil {
		m.begun = -1
		return fmt.Errorf("producer snapshot %s: %w", filepath.Base(s.path), err)
	}
	return m.FinishSnapshot(s)
}
