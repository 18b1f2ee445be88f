package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"

	"gregor/protocol/record"
	"gregor/storage/checkpoint"
	"gregor/storage/producer"
	"gregor/storage/segment"
	"gregor/storage/vfs"
)

const (
	ownDescriptors     = 64
	ownIndexCacheBytes = 16 << 20
)

// OpenLog opens a partition, or creates it when its directory is missing. After a clean shutdown it reads the
// names and sizes of the files, the end of the last segment and the producer snapshot, nothing else. Otherwise
// it finishes what was interrupted and recovers from the recovery point on: what is not a valid batch is cut
// off, indexes, leader epochs and producer states are rebuilt.
func OpenLog(o LogOptions) (*Log, error) {
	if o.Files == nil {
		o.Files = vfs.NewCache(o.FS, ownDescriptors)
	}
	if o.Indexes == nil {
		o.Indexes = segment.NewIndexCache(ownIndexCacheBytes)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.space == nil {
		o.space = newSpaceWatch(o.Files.FS(), o.Logger, o.Dir)
	}
	l := &Log{fs: o.Files.FS(), log: o.Logger, opts: lastingOptions{
		files: o.Files, indexes: o.Indexes, dir: o.Dir, topic: o.Topic, partition: o.Partition, events: o.Events, space: o.space,
		configs: o.configs, producerExpirationMillis: o.ProducerExpirationMillis, verifyTransactions: o.VerifyTransactions,
	}}
	l.config.Store(o.configs.of(o.Config))
	l.w.dir, l.w.remoteEnd, l.w.following = o.Dir, noRemoteEnd, -1
	l.w.jitterMillis = rollJitter(o.Config)
	l.flush.fs, l.flush.dir, l.flush.held = l.fs, o.Dir, noHold
	l.bg.workers = o.Workers
	l.flush.lastMillis.Store(nowMillis())
	if err := l.open(o); err != nil {
		return nil, fmt.Errorf("open of %s: %w", o.Dir, err)
	}
	return l, nil
}

// lastingOptions are those that an open log still needs.
type lastingOptions struct {
	files      *vfs.Cache
	indexes    *segment.IndexCache
	dir, topic string
	partition  int32
	events     Events
	space      *spaceWatch
	configs    *sharedConfigs

	producerExpirationMillis int64
	verifyTransactions       bool
}

func (l *Log) open(o LogOptions) error {
	created, err := l.makeDir()
	if err != nil {
		return err
	}
	l.topicID.fs, l.topicID.path = l.fs, filepath.Join(o.Dir, checkpoint.PartitionMetadataFile)
	if err := l.topicID.open(o.TopicID); err != nil {
		return err
	}
	if l.epochs, err = loadEpochs(l.fs, o.Dir); err != nil {
		return err
	}
	ld := loader{l: l, opts: o, dir: o.Dir, options: l.segmentOptions()}
	if err := ld.load(); err != nil {
		return err
	}
	if created || !o.HadCleanShutdown {
		// After a crash of the process alone, names that it made may not be durable yet.
		l.flush.filesChanged()
		l.flush.parent = true
	}
	l.publish()
	if o.HadCleanShutdown && len(ld.recovered) == 0 && !created && l.flush.dirty == 0 {
		l.opened = l.state.Load()
	}
	l.epochs.end = func() int64 { return l.state.Load().LogEndOffset }
	if l.topicID.pending() && !o.TopicIDLater {
		l.bg.run(l.writeTopicID)
	}
	ld.syncLater()
	return nil
}

// writeTopicID makes partition.metadata durable, if it is not yet. Without space the first append does, or a clean stop.
func (l *Log) writeTopicID() {
	if l.failure.Load() != nil {
		return
	}
	if err := l.topicID.flush(); err != nil {
		_ = l.refuse("write of partition.metadata", err)
		l.report()
	}
}

func (l *Log) makeDir() (created bool, err error) {
	exists, err := vfs.Exists(l.fs, l.opts.dir)
	if err != nil || exists {
		return false, err
	}
	if err := l.fs.MkdirAll(l.opts.dir); err != nil {
		return false, err
	}
	// Kafka has an empty one from the start.
	f, err := l.fs.Create(filepath.Join(l.opts.dir, checkpoint.LeaderEpochFile))
	if err != nil {
		return false, err
	}
	return true, f.Close()
}

// topicIDFile is partition.metadata: it says to which topic id the directory belongs, and is durable before the
// first record.
type topicIDFile struct {
	fs      vfs.FS
	id      [16]byte // set by open
	written atomic.Bool

	mu   sync.Mutex // held while the file is being written
	path string
}

func (f *topicIDFile) open(id [16]byte) error {
	f.id = id
	found, err := checkpoint.ReadPartitionMetadata(f.fs, f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case id != [16]byte{} && id != found:
		return fmt.Errorf("%w: %x is in %s, %x is asked for", ErrInconsistentTopicID, found, f.path, id)
	}
	f.id = found
	f.written.Store(true)
	return nil
}

func (f *topicIDFile) get() [16]byte { return f.id }

func (f *topicIDFile) pending() bool { return !f.written.Load() && f.id != [16]byte{} }

// flush makes the file durable.
func (f *topicIDFile) flush() error {
	return f.write(func(name string, b []byte) error { return vfs.WriteFileAtomic(f.fs, name, b) })
}

func (f *topicIDFile) write(replace replacer) error {
	if !f.pending() {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.pending() {
		return nil
	}
	if err := replace(f.path, checkpoint.EncodePartitionMetadata(f.id)); err != nil {
		return err
	}
	f.written.Store(true)
	return nil
}

// begin puts the file into a batch. The writer's end is to be called with the outcome, and holds up others meanwhile.
func (f *topicIDFile) begin(batch *vfs.Batch) (end func(durable bool), err error) {
	f.mu.Lock()
	if !f.pending() {
		f.mu.Unlock()
		return func(bool) {}, nil
	}
	if err := batch.Replace(f.path, checkpoint.EncodePartitionMetadata(f.id)); err != nil {
		f.mu.Unlock()
		return nil, err
	}
	return func(durable bool) {
		if durable {
			f.written.Store(true)
		}
		f.mu.Unlock()
	}, nil
}

// moveDir renames the directory while nobody writes the file.
func (f *topicIDFile) moveDir(dir string, rename func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := rename(); err != nil {
		return err
	}
	f.path = filepath.Join(dir, checkpoint.PartitionMetadataFile)
	return nil
}

// removeDir removes the directory while nobody writes the file, nor will again.
func (f *topicIDFile) removeDir(remove func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.written.Store(true)
	return remove()
}

// rebuildProducers brings the producer states to the log end: from the newest snapshot, then from the batches
// after it. A log that was closed cleanly without any snapshot has no producers (it is of a Kafka before them);
// empty snapshots stand for that.
func (l *Log) rebuildProducers(cleanStart bool) error {
	w := &l.w
	p := w.producers
	marks := map[int64]bool{w.logEnd: true}
	for _, s := range w.segments[max(0, len(w.segments)-2):] {
		marks[s.Base()] = true
	}
	if _, ok := p.LatestSnapshotOffset(); !ok && cleanStart {
		for _, s := range w.segments[max(0, len(w.segments)-2):] {
			p.UpdateMapEndOffset(s.Base())
			if err := l.takeSnapshot(p); err != nil {
				return err
			}
		}
		p.UpdateMapEndOffset(w.logEnd)
		return l.takeSnapshot(p)
	}
	emptyBefore := p.IsEmpty() && p.MapEndOffset() >= w.logEnd
	if err := p.TruncateAndReload(w.logStart, w.logEnd, nowMillis()); err != nil {
		return err
	}
	if !emptyBefore {
		if err := replayProducers(p, w.segments, w.logStart, w.logEnd, marks); err != nil {
			return err
		}
	}
	p.UpdateMapEndOffset(w.logEnd)
	return l.takeSnapshot(p)
}

// takeSnapshot writes a snapshot if there is space. Without it recovery, or the next truncation, replays more.
func (l *Log) takeSnapshot(p *producer.Manager) error {
	err := p.TakeSnapshot()
	if vfs.IsNoSpace(err) {
		_ = l.refuse("producer snapshot", err) // told; nothing is refused to anybody
		return nil
	}
	return err
}

// replayProducers applies the batches of [MapEndOffset, end), taking snapshots at the segment bases in marks if there is
// space.
func replayProducers(p *producer.Manager, segments []*segment.Segment, start, end int64, marks map[int64]bool) error {
	for i, s := range segments {
		if p.MapEndOffset() >= end || s.Base() >= end {
			return nil
		}
		if i+1 < len(segments) && segments[i+1].Base() <= p.MapEndOffset() {
			continue
		}
		from := max(s.Base(), p.MapEndOffset(), start)
		p.UpdateMapEndOffset(from)
		if marks[s.Base()] && from == s.Base() {
			if err := p.TakeSnapshot(); err != nil && !vfs.IsNoSpace(err) {
				return err
			}
		}
		err := s.Replay(from, func(b record.Batch) error {
			if b.LastOffset() >= end {
				return nil
			}
			txn, err := applyBatch(p, b)
			if txn != nil {
				p.CompleteTxn(*txn)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// applyBatch takes a batch of the log into the producer states; the caller completes the transaction.
func applyBatch(p *producer.Manager, b record.Batch) (*producer.CompletedTxn, error) {
	defer p.UpdateMapEndOffset(b.NextOffset())
	if !b.HasProducerID() {
		return nil, nil
	}
	a := p.Prepare(producer.AppendOptions{Origin: producer.FromReplication})
	txn, err := a.Check(b)
	if err != nil {
		return nil, err
	}
	p.Update(a)
	return txn, nil
}
