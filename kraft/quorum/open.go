package quorum

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"time"

	"gregor/protocol/record"
	"gregor/storage"
	"gregor/storage/checkpoint"
	"gregor/storage/vfs"
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
	named, err := makeDir(o.FS, o.Dir)
	if err != nil {
		return nil, err
	}
	m, err := openLogs(o, b, acc)
	// Nothing that depends on the log, as a vote does, is said before the directory has its name for good.
	if nameErr := <-named; nameErr != nil {
		err = errors.Join(err, fmt.Errorf("metadata log directory: %w", nameErr))
		if m != nil {
			err = errors.Join(err, m.storage.log.Close())
		}
		return nil, err
	}
	return m, err
}

// openLogs opens the log and the snapshots in the directory, and the state of raft beside them.
func openLogs(o *Options, b *board, acc *accumulator) (*machine, error) {
	snapshots, err := openSnapshots(o.FS, o.Dir, time.Duration(o.Log.FileDeleteDelayMillis)*time.Millisecond)
	if err != nil {
		return nil, err
	}
	newest, hasSnapshot := snapshots.latest()
	if !o.Observer { // who never votes may fetch again whatever is lost
		if err := VerifyLog(o.FS, o.Dir, newest); err != nil {
			return nil, err
		}
	}
	// All that a snapshot covers was synced. The rest is checked: what a crash tore off is cut.
	log, err := storage.OpenLog(storage.LogOptions{
		FS: o.FS, Dir: o.Dir, Topic: Topic, TopicID: TopicID, Config: logConfig(o.Log),
		RecoveryPoint: newest.Offset, CutDamage: o.Observer, Logger: o.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("metadata log: %w", err)
	}
	static, err := NewVoterSet(o.StaticVoters)
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	s := &raftStorage{log: log, snapshots: snapshots, segmentBytes: o.Log.SegmentBytes, base: config{voters: static}}
	s.full.logger, s.full.dir = o.Logger, o.Dir
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

// makeDir makes the log's directory, and begins to make it durable by name: one that is there may still be known to the
// page cache only. The channel gets the result, while the caller reads what is in the directory.
func makeDir(fsys vfs.FS, dir string) (named <-chan error, err error) {
	if err := fsys.MkdirAll(dir); err != nil {
		return nil, fmt.Errorf("metadata log directory: %w", err)
	}
	done := make(chan error, 1)
	go func() { done <- fsys.SyncDir(filepath.Dir(dir)) }()
	return done, nil
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
	covered, err := s.covers(newest)
	if err != nil {
		return err
	}
	if !covered {
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
// after it, has nothing to compare. The batch itself is asked: leader-epoch-checkpoint forgets the epochs before the
// log start, and the first segment begins before that.
func (s *raftStorage) covers(id SnapshotID) (bool, error) {
	st := s.log.State()
	if id.Offset <= st.LogStartOffset {
		return true, nil
	}
	if id.Offset > st.LogEndOffset {
		return false, nil
	}
	chunk, err := s.log.ReadBatches(id.Offset-1, nil, 1, storage.UpToLogEnd)
	if err != nil {
		return false, fmt.Errorf("metadata log at offset %d: %w", id.Offset-1, err)
	}
	b, _, err := record.Next(chunk)
	if err != nil {
		return false, fmt.Errorf("%w: metadata log at offset %d: %w", ErrCorrupt, id.Offset-1, err)
	}
	return b.LeaderEpoch() == id.Epoch, nil
}

// findStart makes the log begin at 0 or at a snapshot, because raft must know the term before its first entry.
// Segments hold more: the file that a snapshot's offset lies in begins before it, and a new start shows it again.
func (s *raftStorage) findStart(newest SnapshotID) error {
	start, end := s.log.State().LogStartOffset, s.log.State().LogEndOffset
	if _, ok := s.log.EpochForOffset(0); start == 0 && (ok || end == 0) {
		s.first.Store(1)
		return nil
	}
	for _, id := range s.snapshots.list() {
		if _, ok := s.log.EpochForOffset(id.Offset); id.Offset < max(start, 1) || !ok && id.Offset < end {
			continue
		}
		if _, err := s.log.IncrementLogStartOffset(id.Offset); err != nil {
			return fmt.Errorf("log start %d of the metadata log: %w", id.Offset, err)
		}
		return s.beginAt(id, time.Now())
	}
	return fmt.Errorf("%w: %s: the log begins at offset %d, the newest snapshot ends at %d, and %s knows no epoch at either", ErrCorrupt,
		s.snapshots.dir, start, newest.Offset, checkpoint.LeaderEpochFile)
}
