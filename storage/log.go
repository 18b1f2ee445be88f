package storage

import (
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"gregor/storage/producer"
	"gregor/storage/segment"
	"gregor/storage/vfs"
)

// Log is one partition. All methods may be called from any goroutine; those that change the log exclude each
// other, those that read take no lock.
type Log struct {
	opts    lastingOptions
	fs      vfs.FS
	log     *slog.Logger
	epochs  *epochCache
	topicID topicIDFile

	state    atomic.Pointer[State]
	opened   *State // the first one, if all of it had been closed cleanly
	config   atomic.Pointer[LogConfig]
	observer atomic.Pointer[func(*State)]

	failure  atomic.Pointer[StorageError] // set once; the log writes nothing more
	damage   atomic.Pointer[StorageError] // set once; the log is neither read nor changed any more, see markDamaged
	reported atomic.Bool                  // Events.Failed has been told

	mu sync.Mutex // the writer's lock
	w  writer     // guarded by mu

	flush flusher
	bg    background
}

// writer is what the holder of the writer's lock works on; the State is made from it.
type writer struct {
	dir         string
	producers   *producer.Manager
	segments    []*segment.Segment // never changed in place: States share it
	active      *segment.Segment
	sealedBytes int64 // of all segments but the active one

	logStart, highWatermark, logEnd int64

	generation   int64            // truncations so far
	jitterMillis int64            // of the active segment
	reserveAt    int64            // size of the active segment at which to reserve more blocks
	unsealed     []int64          // bases of segments that are sealed but not yet synced whole, ascending
	rolls        []roll           // of these segments, as far as their background work is not done
	rollTimer    *time.Timer      // of the next try, while armed
	withdrawn    *segment.Segment // of a roll that found no space; its files may still have to go
	trash        trash
	flushTimer   *time.Timer // of flush.ms, while armed
	following    int32       // the newest leader epoch in which another broker leads, -1 at first
	remoteEnd    int64       // last offset that tiered storage holds
	cleanedTo    int64       // where the next cleaning starts
	closed       bool
}

// State returns the newest published view.
func (l *Log) State() *State { return l.state.Load() }

// Topic returns the topic's name.
func (l *Log) Topic() string { return l.opts.topic }

// Partition returns the partition's number.
func (l *Log) Partition() int32 { return l.opts.partition }

func (l *Log) topicPartition() TopicPartition {
	return TopicPartition{Topic: l.opts.topic, Partition: l.opts.partition}
}

// Config returns the configs in force, which other logs may share: they must not be changed.
func (l *Log) Config() *LogConfig { return l.config.Load() }

// Dir returns the partition's directory.
func (l *Log) Dir() string {
	l.mu.Lock()
	defer l.unlock()
	return l.w.dir
}

// TopicID returns the topic's id, zero when it is not known.
func (l *Log) TopicID() [16]byte { return l.topicID.get() }

// Err returns why the log is out of service: the failure that made it stop writing, or its damage; nil while there is
// neither.
func (l *Log) Err() error {
	if f := l.failure.Load(); f != nil {
		return f
	}
	return l.Damage()
}

// SetObserver sets a function that is called with each newly published State whose offsets differ from the one
// before, in order, with the writer's lock held: it must be quick, must not block and must not call the log.
func (l *Log) SetObserver(observer func(*State)) {
	l.mu.Lock()
	defer l.unlock()
	if observer == nil {
		l.observer.Store(nil)
		return
	}
	l.observer.Store(&observer)
}

// UpdateConfig puts other configs in force.
func (l *Log) UpdateConfig(c LogConfig) {
	l.mu.Lock()
	defer l.unlock()
	if *l.config.Load() == c {
		return
	}
	l.config.Store(l.opts.configs.of(c))
	l.w.active.SetOptions(l.segmentOptions())
	l.w.jitterMillis = rollJitter(c)
}

func (l *Log) segmentOptions() segment.Options {
	c := l.config.Load()
	return segment.Options{
		Files: l.opts.files, Indexes: l.opts.indexes,
		IndexIntervalBytes: c.IndexIntervalBytes, IndexMaxBytes: c.SegmentIndexBytes,
		MaxBytes: c.SegmentBytes, Preallocate: c.Preallocate,
		Failed: func(err error) {
			_ = l.refuse("read", err) // the error is the reader's own
			l.report()
		},
	}
}

// rollJitter spreads the rolls by time of many partitions.
func rollJitter(c LogConfig) int64 {
	if limit := min(c.SegmentJitterMillis, c.SegmentMillis); limit > 0 {
		return rand.Int64N(limit)
	}
	return 0
}

func nowMillis() int64 { return time.Now().UnixMilli() }

// fail latches a failure of the file system, or damage that an operation met. The first one counts.
func (l *Log) fail(op string, cause error) error {
	if isDamage(cause) {
		return l.markDamaged(op, cause)
	}
	f := &StorageError{Op: op, Dir: l.opts.dir, Cause: cause}
	if l.failure.CompareAndSwap(nil, f) {
		l.log.Error("Log storage failed", "dir", l.opts.dir, "operation", op, "error", cause)
	}
	return l.failure.Load()
}

// unlock releases the writer's lock and tells the owner of a failure that was met under it.
func (l *Log) unlock() {
	l.mu.Unlock()
	l.report()
}

func (l *Log) report() {
	if f := l.failure.Load(); f != nil && l.opts.events.Failed != nil && !l.reported.Swap(true) {
		l.opts.events.Failed(l, f)
	}
}

// usable returns why the log cannot be written to, if so.
func (l *Log) usable() error {
	if f := l.failure.Load(); f != nil {
		return f
	}
	if f := l.damage.Load(); f != nil {
		return f
	}
	if l.w.closed {
		return ErrClosed
	}
	return nil
}

// setSegments replaces the segments; the last one is the active one.
func (w *writer) setSegments(segments []*segment.Segment) {
	w.segments = segments
	w.active = segments[len(segments)-1]
	w.sealedBytes = 0
	for _, s := range segments[:len(segments)-1] {
		w.sealedBytes += s.SizeBytes()
	}
}

// publish makes the writer's view the readers'. With the writer's lock held.
func (l *Log) publish() {
	w := &l.w
	s := &State{
		LogStartOffset: w.logStart, LocalLogStartOffset: max(w.logStart, w.segments[0].Base()), HighWatermark: w.highWatermark, LastStableOffset: w.highWatermark,
		LogEndOffset: w.logEnd, ActiveSegmentBase: w.active.Base(), RecoveryPoint: l.recoveryPoint(),
		LatestEpoch: l.epochs.latest(), Segments: len(w.segments), CleanedTo: w.cleanedTo,
		segments: w.segments, activeBytes: w.active.SizeBytes(), generation: w.generation,
	}
	s.SizeBytes = w.sealedBytes + s.activeBytes
	if unstable, ok := w.producers.FirstUnstableOffset(); ok {
		s.LastStableOffset = min(s.LastStableOffset, max(unstable, w.logStart))
	}
	s.check()
	old := l.state.Swap(s)
	observer := l.observer.Load()
	if observer != nil && (old == nil || old.LogEndOffset != s.LogEndOffset || old.HighWatermark != s.HighWatermark ||
		old.LastStableOffset != s.LastStableOffset || old.LogStartOffset != s.LogStartOffset) {
		(*observer)(s)
	}
}

// recoveryPoint is the offset up to which the data is synced, held back to the start of the oldest segment of
// which more than the data must be synced before recovery may pass it over.
func (l *Log) recoveryPoint() int64 {
	flushed := min(l.flush.passable(), l.w.logEnd)
	if len(l.w.unsealed) > 0 && !l.w.closed {
		flushed = min(flushed, l.w.unsealed[0])
	}
	return flushed
}

// UpdateHighWatermark raises the high watermark to hw, clamped to the log; it never lowers it (only truncation
// does). It returns the one in force.
func (l *Log) UpdateHighWatermark(hw int64) (int64, error) {
	if s := l.state.Load(); hw <= s.HighWatermark {
		return s.HighWatermark, nil
	}
	l.mu.Lock()
	defer l.unlock()
	if err := l.usable(); err != nil {
		return l.w.highWatermark, err
	}
	if hw = min(hw, l.w.logEnd); hw > l.w.highWatermark {
		l.setHighWatermark(hw)
		l.publish()
	}
	return l.w.highWatermark, nil
}

func (l *Log) setHighWatermark(hw int64) {
	l.w.highWatermark = hw
	l.w.producers.OnHighWatermark(hw)
}

// IncrementLogStartOffset raises the log start offset, which may not pass the high watermark
// (ErrOffsetOutOfRange). It tells whether it grew. Files are deleted by DeleteOldSegments.
func (l *Log) IncrementLogStartOffset(offset int64) (bool, error) {
	l.mu.Lock()
	defer l.unlock()
	if err := l.usable(); err != nil {
		return false, err
	}
	return l.incrementLogStart(offset)
}

func (l *Log) incrementLogStart(offset int64) (bool, error) {
	w := &l.w
	if offset > w.highWatermark {
		return false, &offsetError{op: "log start offset", offset: offset, low: w.logStart, high: w.highWatermark}
	}
	if offset <= w.logStart {
		return false, nil
	}
	w.logStart = offset
	w.producers.OnLogStartIncremented(offset)
	if l.epochs.truncateStart(offset) {
		l.bg.run(l.flushEpochs)
	}
	l.publish()
	return true, nil
}

func (l *Log) flushEpochs() {
	if l.failure.Load() != nil {
		return
	}
	if err := l.saveEpochs(); err != nil {
		_ = l.fail("write of the leader epochs", err)
		l.report()
	}
}

// AssignEpochStart notes that the records of a leader epoch start at an offset. A new leader calls it with the log end
// before it serves. Its entry is in the file before the recovery point passes the first of these records, and without
// records when the log is closed cleanly: below the recovery point the file is all there is, above it recovery learns the
// epochs from the batches, and whoever opens a log drops an epoch without records. Becoming the leader of ten thousand
// partitions so costs no write. An epoch that starts below the log end changes what is history already, and is durable at
// once.
func (l *Log) AssignEpochStart(epoch int32, offset int64) error {
	l.mu.Lock()
	defer l.unlock()
	if err := l.usable(); err != nil {
		return err
	}
	before := l.epochs.view()
	if !l.epochs.assign(epoch, offset) {
		return nil
	}
	if offset < l.w.logEnd {
		if err := l.epochs.flush(); err != nil {
			l.epochs.restore(before)
			return l.refuse("write of the leader epochs", err)
		}
	}
	l.publish()
	return nil
}

// Follow notes that another broker leads in an epoch: what this one was about to append in an older epoch is refused from
// now on (ErrOldLeaderEpoch).
func (l *Log) Follow(leaderEpoch int32) {
	l.mu.Lock()
	defer l.unlock()
	l.w.following = max(l.w.following, leaderEpoch)
}

// LatestEpoch returns the newest leader epoch; ok is false when there is none.
func (l *Log) LatestEpoch() (epoch int32, ok bool) {
	epoch = l.epochs.latest()
	return epoch, epoch >= 0
}

// EndOffsetForEpoch returns the newest leader epoch at or below epoch, and the offset after its last record;
// (-1, -1) when the log cannot tell.
func (l *Log) EndOffsetForEpoch(epoch int32) (foundEpoch int32, endOffset int64) {
	return l.epochs.endOffset(epoch, l.state.Load().LogEndOffset)
}

// EpochForOffset returns the leader epoch of the record at an offset.
func (l *Log) EpochForOffset(offset int64) (epoch int32, ok bool) { return l.epochs.forOffset(offset) }

// EpochEntries returns the history of leader epochs, ascending.
func (l *Log) EpochEntries() []EpochEntry { return l.epochs.all() }

// ActiveProducers returns what is remembered of the producers, by id (DescribeProducers).
func (l *Log) ActiveProducers() []producer.State {
	l.mu.Lock()
	defer l.unlock()
	return l.w.producers.Active()
}

// StartVerification begins the verification of a transaction with its coordinator: the guard goes into
// AppendOptions afterwards; 0 when none is needed because the transaction is open here or verification is off.
func (l *Log) StartVerification(o producer.VerificationOptions) (guard uint64, err error) {
	if !l.opts.verifyTransactions {
		return 0, nil
	}
	l.mu.Lock()
	defer l.unlock()
	if o.NowMillis == 0 {
		o.NowMillis = nowMillis()
	}
	return l.w.producers.StartVerification(o)
}

// HasOngoingTxn tells whether the producer has a transaction open here under this epoch.
func (l *Log) HasOngoingTxn(producerID int64, epoch int16) bool {
	l.mu.Lock()
	defer l.unlock()
	return l.w.producers.HasOpenTxn(producerID, epoch)
}

// HasLateTxn tells whether the oldest open transaction should have ended long ago (PartitionsWithLateTransactionsCount).
func (l *Log) HasLateTxn(now time.Time, maxTransactionTimeoutMillis int64) bool {
	l.mu.Lock()
	defer l.unlock()
	return l.w.producers.HasLateTxn(now.UnixMilli(), maxTransactionTimeoutMillis)
}

// ExpireProducers forgets producers silent for producer.id.expiration.ms.
func (l *Log) ExpireProducers(now time.Time) {
	l.mu.Lock()
	defer l.unlock()
	l.w.producers.ExpireBefore(now.UnixMilli())
}

// SetProducerExpiration changes producer.id.expiration.ms.
func (l *Log) SetProducerExpiration(millis int64) {
	l.mu.Lock()
	defer l.unlock()
	l.w.producers.SetExpiration(millis)
}

// RenameDir renames the partition's directory (deletion, promotion of a future replica) and syncs the parent.
func (l *Log) RenameDir(dir string) error {
	if err := l.renameDir(dir); err != nil {
		return err
	}
	if err := l.fs.SyncDir(filepath.Dir(dir)); err != nil {
		defer l.report()
		return l.fail("rename of the directory", err)
	}
	return nil
}

// renameDir is RenameDir without the sync.
func (l *Log) renameDir(dir string) error {
	l.lockIdle()
	defer l.unlock()
	w := &l.w
	if err := l.topicID.moveDir(dir, func() error { return l.fs.Rename(w.dir, dir) }); err != nil {
		return l.refuse("rename of the directory", err)
	}
	w.dir = dir
	for _, s := range w.segments {
		if err := s.DirRenamed(dir); err != nil {
			return l.fail("rename of the directory", err)
		}
	}
	for _, r := range w.rolls {
		if r.snapshot != nil {
			r.snapshot.Moved(dir)
		}
	}
	if w.withdrawn != nil {
		// Only notes the path.
		_ = w.withdrawn.DirRenamed(dir)
	}
	w.trash.dirRenamed(dir)
	w.producers.SetDir(dir)
	l.epochs.setDir(dir)
	l.flush.dirRenamed(dir)
	return nil
}
