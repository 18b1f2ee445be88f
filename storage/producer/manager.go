package producer

import (
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"

	"gregor/storage/vfs"
)

// DefaultExpirationMillis is the default of producer.id.expiration.ms.
const DefaultExpirationMillis = 86400000

// Options make a Manager.
type Options struct {
	FS  vfs.FS
	Dir string // partition directory
	// Names are the names of the files in Dir, when the caller has listed it already; nil to list it.
	Names            []string
	ExpirationMillis int64        // 0 for the default
	Logger           *slog.Logger // nil for none
}

// Manager holds the producers of one partition.
//
// Invariant: ongoing has one entry for each producer with an open transaction.
type Manager struct {
	fs               vfs.FS
	dir              string
	log              *slog.Logger
	expirationMillis int64

	producers    map[int64]*State // nil before the first: most partitions have none, and there are many
	ongoing      txnList
	unreplicated txnList

	verifications map[int64]*verification // nil before the first
	lastGuard     uint64

	snapshots  []int64 // offsets of the snapshot files, ascending
	mapEnd     int64   // the state covers the log below
	lastSnap   int64   // newest offset with a snapshot, or what stands for it
	generation int64   // changes when snapshots being written become void
	begun      int64   // offset of the newest snapshot that is being written, -1 for none

	append Append
}

// NewManager lists the snapshots; the state is empty until TruncateAndReload.
func NewManager(o Options) (*Manager, error) {
	m := &Manager{
		fs: o.FS, dir: o.Dir, log: o.Logger, expirationMillis: o.ExpirationMillis,
		begun: -1,
	}
	if m.expirationMillis == 0 {
		m.expirationMillis = DefaultExpirationMillis
	}
	if m.log == nil {
		m.log = slog.New(slog.DiscardHandler)
	}
	names := o.Names
	if names == nil {
		entries, err := o.FS.ReadDir(o.Dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
	}
	for _, name := range names {
		if offset, ok := ParseSnapshotName(name); ok {
			m.snapshots = append(m.snapshots, offset)
		}
	}
	slices.Sort(m.snapshots)
	return m, nil
}

// SetDir tells that the partition directory has been renamed.
func (m *Manager) SetDir(dir string) { m.dir = dir }

// Count is the number of producers.
func (m *Manager) Count() int { return len(m.producers) }

// IsEmpty tells whether nothing is remembered at all.
func (m *Manager) IsEmpty() bool { return len(m.producers) == 0 && len(m.unreplicated) == 0 }

// Lookup is what is remembered of a producer.
func (m *Manager) Lookup(producerID int64) (State, bool) {
	s, ok := m.producers[producerID]
	if !ok {
		return State{}, false
	}
	return *s, true
}

// Active are all producers, by id.
func (m *Manager) Active() []State {
	states := make([]State, 0, len(m.producers))
	for _, s := range m.producers {
		states = append(states, *s)
	}
	slices.SortFunc(states, compareIDs)
	return states
}

// MapEndOffset is the offset up to which the log is reflected here.
func (m *Manager) MapEndOffset() int64 { return m.mapEnd }

// UpdateMapEndOffset says that the log below offset is reflected here.
func (m *Manager) UpdateMapEndOffset(offset int64) { m.mapEnd = offset }

func (m *Manager) expired(s *State, nowMillis int64) bool {
	return !s.HasOpenTxn() && nowMillis-s.LastTimestamp >= m.expirationMillis
}

// ExpireBefore forgets the producers (and verifications) that have been silent for the expiration time.
// Producers with an open transaction stay.
func (m *Manager) ExpireBefore(nowMillis int64) {
	for id, s := range m.producers {
		if m.expired(s, nowMillis) {
			delete(m.producers, id)
		}
	}
	for id, v := range m.verifications {
		if nowMillis-v.startedMillis >= m.expirationMillis {
			delete(m.verifications, id)
		}
	}
}

// SetExpiration changes producer.id.expiration.ms.
func (m *Manager) SetExpiration(millis int64) { m.expirationMillis = millis }

// TruncateAndReload prepares the state for a log that now reaches from logStart to logEnd: snapshots above the
// end or not above the start are deleted; unless the state ends at logEnd already it becomes that of the
// newest valid snapshot, and the caller replays the log from MapEndOffset. Producers that expired by
// nowMillis are left out. Damaged snapshots are deleted and the one before is taken.
func (m *Manager) TruncateAndReload(logStart, logEnd, nowMillis int64) error {
	for _, offset := range slices.Clone(m.snapshots) {
		if offset > logEnd || offset <= logStart {
			if err := m.DeleteSnapshot(offset); err != nil {
				return err
			}
		}
	}
	if logEnd == m.mapEnd {
		m.OnLogStartIncremented(logStart)
		return nil
	}
	m.clear()
	return m.loadNewest(logStart, nowMillis)
}

func (m *Manager) clear() {
	m.generation++
	m.begun = -1
	clear(m.producers)
	m.ongoing, m.unreplicated = nil, nil
}

func (m *Manager) loadNewest(logStart, nowMillis int64) error {
	for len(m.snapshots) > 0 {
		offset := m.snapshots[len(m.snapshots)-1]
		states, err := ReadSnapshot(m.fs, m.snapshotPath(offset))
		switch {
		case err == nil:
			for _, s := range states {
				if !m.expired(&s, nowMillis) {
					m.load(s)
				}
			}
			m.lastSnap, m.mapEnd = offset, offset
			return nil
		case errors.Is(err, ErrCorruptSnapshot):
			m.log.Warn("Dropping a damaged producer snapshot", "file", m.snapshotPath(offset), "error", err)
			if err := m.DeleteSnapshot(offset); err != nil {
				return err
			}
		case errors.Is(err, fs.ErrNotExist):
			m.forgetSnapshot(offset)
		default:
			return err
		}
	}
	m.lastSnap, m.mapEnd = logStart, logStart
	return nil
}

func (m *Manager) put(s State) {
	if m.producers == nil {
		m.producers = map[int64]*State{}
	}
	m.producers[s.ProducerID] = &s
}

func (m *Manager) load(s State) {
	m.put(s)
	if s.HasOpenTxn() {
		m.ongoing.put(openTxn{producerID: s.ProducerID, firstOffset: s.CurrentTxnFirstOffset})
	}
}

// OnLogStartIncremented says that the log now starts at logStart. Producers stay: their state outlives their
// records.
func (m *Manager) OnLogStartIncremented(logStart int64) {
	m.forgetEndedBelow(logStart)
	m.mapEnd = max(m.mapEnd, logStart)
	newest := m.begun
	if n := len(m.snapshots); n > 0 {
		newest = max(newest, m.snapshots[n-1])
	}
	m.lastSnap = logStart
	if newest >= 0 {
		m.lastSnap = newest
	}
}

// TruncateFullyAndStartAt forgets everything and deletes all snapshots.
func (m *Manager) TruncateFullyAndStartAt(offset int64) error {
	m.clear()
	for _, snapshot := range slices.Clone(m.snapshots) {
		if err := m.DeleteSnapshot(snapshot); err != nil {
			return err
		}
	}
	m.lastSnap, m.mapEnd = 0, offset
	return nil
}

// Snapshots are the offsets of the snapshot files, ascending.
func (m *Manager) Snapshots() []int64 { return slices.Clone(m.snapshots) }

// LatestSnapshotOffset is the offset of the newest snapshot file.
func (m *Manager) LatestSnapshotOffset() (offset int64, ok bool) {
	if n := len(m.snapshots); n > 0 {
		return m.snapshots[n-1], true
	}
	return 0, false
}

// OldestSnapshotOffset is the offset of the oldest snapshot file.
func (m *Manager) OldestSnapshotOffset() (offset int64, ok bool) {
	if len(m.snapshots) > 0 {
		return m.snapshots[0], true
	}
	return 0, false
}

// RemoveStraySnapshots deletes the snapshots that belong to no segment, but for the newest one when it is at or
// above the last segment base: that one was written by a clean stop.
func (m *Manager) RemoveStraySnapshots(segmentBases []int64) error {
	last := int64(-1)
	for _, base := range segmentBases {
		last = max(last, base)
	}
	var newest int64 = -1
	for _, offset := range m.snapshots {
		if !slices.Contains(segmentBases, offset) {
			newest = offset
		}
	}
	for _, offset := range slices.Clone(m.snapshots) {
		if slices.Contains(segmentBases, offset) || offset == newest && offset >= last {
			continue
		}
		if err := m.DeleteSnapshot(offset); err != nil {
			return err
		}
	}
	return nil
}

// DeleteSnapshotsBelow deletes the snapshots of offsets below offset.
func (m *Manager) DeleteSnapshotsBelow(offset int64) error {
	for _, snapshot := range slices.Clone(m.snapshots) {
		if snapshot >= offset {
			break
		}
		if err := m.DeleteSnapshot(snapshot); err != nil {
			return err
		}
	}
	return nil
}

// DeleteSnapshot deletes a snapshot file, if it exists.
func (m *Manager) DeleteSnapshot(offset int64) error {
	if !m.forgetSnapshot(offset) {
		return nil
	}
	if err := m.fs.Remove(m.snapshotPath(offset)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// MarkSnapshotDeleted renames a snapshot file to NAME.deleted and answers the new path, for the caller to remove
// after file.delete.delay.ms; ok is false when there is none, or when it is gone at once because the directory has no room
// for the longer name.
func (m *Manager) MarkSnapshotDeleted(offset int64) (path string, ok bool, err error) {
	if !m.forgetSnapshot(offset) {
		return "", false, nil
	}
	path = m.snapshotPath(offset) + ".deleted"
	if err := m.fs.Rename(m.snapshotPath(offset), path); err != nil {
		if vfs.IsNoSpace(err) {
			err = m.fs.Remove(m.snapshotPath(offset))
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return "", false, err
	}
	return path, true, nil
}

func (m *Manager) forgetSnapshot(offset int64) bool {
	at, found := slices.BinarySearch(m.snapshots, offset)
	if found {
		m.snapshots = slices.Delete(m.snapshots, at, at+1)
	}
	return found
}

func (m *Manager) snapshotPath(offset int64) string {
	return filepath.Join(m.dir, SnapshotName(offset))
}
