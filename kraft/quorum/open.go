package quorum

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"time"

	"gregor/kraft/metadata"
	"gregor/storage"
)

// logConfig is the configuration of the metadata log: nothing is deleted but what lies before a snapshot.
func logConfig(o LogOptions) storage.LogConfig {
	c := storage.DefaultLogConfig()
	c.SegmentBytes, c.SegmentMillis = o.SegmentBytes, o.SegmentMillis
	c.KeepActiveIndexSize = true
	c.CleanupDelete, c.CleanupCompact = true, false
	c.RetentionMillis, c.RetentionBytes = storage.Unlimited, storage.Unlimited
	c.FileDeleteDelayMillis = o.FileDeleteDelayMillis
	c.MaxMessageBytes = math.MaxInt32
	return c
}

// openMachine opens the directory: of this program, of Apache Kafka, freshly formatted or empty.
func openMachine(o *Options, b *board, acc *accumulator) (*machine, error) {
	if err := o.FS.MkdirAll(o.Dir); err != nil {
		return nil, fmt.Errorf("metadata log directory: %w", err)
	}
	snapshots, err := openSnapshots(o.FS, o.Dir, time.Duration(o.Log.FileDeleteDelayMillis)*time.Millisecond)
	if err != nil {
		return nil, err
	}
	newest, hasSnapshot := snapshots.latest()
	// All that a snapshot covers was synced. The rest is checked: what a crash tore off is cut.
	log, err := storage.OpenLog(storage.LogOptions{
		FS: o.FS, Dir: o.Dir, Topic: Topic, TopicID: TopicID, Config: logConfig(o.Log), Raft: true,
		RecoveryPoint: newest.Offset, Logger: o.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("metadata log: %w", err)
	}
	static, err := NewVoterSet(o.StaticVoters)
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	s := &raftStorage{log: log, snapshots: snapshots, segmentBytes: o.Log.SegmentBytes, base: config{voters: static}}
	if err := s.recover(newest, hasSnapshot); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	epoch, _ := log.LatestEpoch()
	states, err := openStateFile(o.FS, filepath.Join(o.Dir, quorumStateFile), max(epoch, newest.Epoch))
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	m := &machine{
		o: o, storage: s, states: states, board: b, acc: acc, replica: newReplicaTracker(), send: o.sender(),
		uploads: map[uint64]*upload{},
	}
	m.config.pending = -1
	m.setConfig(s.history.last().config, s.history.last().offset)
	m.publish()
	return m, m.committed(log.State().HighWatermark)
}

func (o *Options) sender() func(Peer, []byte) {
	if o.Transport == nil {
		return func(Peer, []byte) {}
	}
	return o.Transport.Send
}

// recover brings log and snapshots together: the log begins at a snapshot or at 0, holds the newest snapshot's last
// record or begins at its end, and the voter sets from there on are known.
func (s *raftStorage) recover(newest SnapshotID, hasSnapshot bool) error {
	initial := s.base
	if hasSnapshot {
		r, err := s.snapshots.openSnapshot(newest)
		if err != nil {
			return err
		}
		initial = r.config(s.base)
		if err := r.Close(); err != nil {
			return fmt.Errorf("snapshot %v: %w", newest, err)
		}
	}
	s.history = newConfigHistory(initial)
	if !s.covers(newest) {
		// The snapshot was received, and the node stopped before it took the log's place.
		if err := s.install(newest, initial); err != nil {
			return err
		}
	}
	if _, err := s.log.UpdateHighWatermark(newest.Offset); err != nil {
		return fmt.Errorf("high watermark of the metadata log: %w", err)
	}
	if err := s.findStart(newest); err != nil {
		return err
	}
	return s.scanConfigs(max(newest.Offset, s.log.State().LogStartOffset))
}

// covers tells whether the log holds the last record of a snapshot. A log that begins where the snapshot ends, or
// after it, has nothing to compare.
func (s *raftStorage) covers(id SnapshotID) bool {
	st := s.log.State()
	if id.Offset <= st.LogStartOffset {
		return true
	}
	if id.Offset > st.LogEndOffset {
		return false
	}
	epoch, ok := s.log.EpochForOffset(id.Offset - 1)
	return ok && epoch == id.Epoch
}

// findStart makes the log begin at a snapshot, because raft must know the term before its first entry. Segments hold
// more: the file that a snapshot's offset lies in begins before it.
func (s *raftStorage) findStart(newest SnapshotID) error {
	start := s.log.State().LogStartOffset
	if start == 0 {
		s.first.Store(1)
		return nil
	}
	for _, id := range s.snapshots.list() {
		if id.Offset < start {
			continue
		}
		if _, err := s.log.IncrementLogStartOffset(id.Offset); err != nil {
			return fmt.Errorf("log start %d of the metadata log: %w", id.Offset, err)
		}
		s.setFirst(id)
		return nil
	}
	return fmt.Errorf("%w: the log begins at offset %d, the newest snapshot ends at %d", ErrCorrupt, start, newest.Offset)
}

// bootstrapRecords reads the records of the format command: from the checkpoint 0-0, or from the bootstrap.checkpoint
// that Kafka up to 4.0 writes into the metadata log dir.
func bootstrapRecords(o *Options, snapshots *snapshotStore) ([]metadata.Record, bool, error) {
	r, err := snapshots.openSnapshot(SnapshotID{})
	if errors.Is(err, fs.ErrNotExist) {
		for _, dir := range []string{o.Dir, filepath.Dir(o.Dir)} {
			f, openErr := o.FS.Open(filepath.Join(dir, bootstrapFile))
			if errors.Is(openErr, fs.ErrNotExist) {
				continue
			}
			if openErr != nil {
				return nil, false, fmt.Errorf("%s: %w", bootstrapFile, openErr)
			}
			size, sizeErr := f.Size()
			if sizeErr != nil {
				return nil, false, errors.Join(fmt.Errorf("%s: %w", bootstrapFile, sizeErr), f.Close())
			}
			r, err = newSnapshotReader(f, size, SnapshotID{})
			break
		}
		if r == nil && errors.Is(err, fs.ErrNotExist) {
			return nil, false, nil
		}
	}
	if err != nil {
		return nil, false, err
	}
	var records []metadata.Record
	for b, err := range r.Batches() {
		if err != nil {
			return nil, false, errors.Join(err, r.Close())
		}
		records = append(records, b.Records...)
	}
	return records, true, r.Close()
}
