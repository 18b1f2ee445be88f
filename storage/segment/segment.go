package segment

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"gregor/protocol/record"
	"gregor/storage/vfs"
)

// Options are what all segments of a log share. They can be changed between appends by SetOptions.
type Options struct {
	Files   *vfs.Cache
	Indexes *IndexCache // nil for no bound

	IndexIntervalBytes int32 // index.interval.bytes
	IndexMaxBytes      int32 // segment.index.bytes
	MaxBytes           int32 // segment.bytes: no blocks are reserved beyond it
	Preallocate        bool  // preallocate

	// Failed is told of an I/O error that a reader met, which no return value brings to the owner; may be nil.
	Failed func(err error)
}

// Segment is one segment. Methods that read may be called from any goroutine; those that write only by the
// owner's single writer, which is said where it holds.
type Segment struct {
	base int64
	opts atomic.Pointer[Options]

	place   place // guarded by gate
	log     *vfs.Handle
	size    atomic.Int64 // bytes of batches in .log, which may be longer (preallocate)
	offsets *index
	times   *index
	txns    *txnIndex

	// gate keeps a truncation (and a rename) apart from the single reads of Ranges. It is never held for longer
	// than one system call that does not wait.
	gate sync.RWMutex
	cuts atomic.Pointer[[]cut]
	tail atomic.Pointer[tail]

	max   atomic.Pointer[TimestampOffset] // largest timestamp so far, nil while not known
	first atomic.Int64                    // timestamp of the first batch, unknownTimestamp while not known

	advised atomic.Uintptr // descriptor that has been told to read ahead, plus 1
	repair  sync.Mutex     // one rebuild of the indexes at a time
	written atomic.Bool    // appended to since opened; its indexes are the writer's

	reserve        sync.Mutex
	allocatedBytes int64 // blocks are reserved up to here; guarded by reserve

	// Below is the writer's.
	createdMillis  int64
	bytesSinceLast int  // since the last offset index entry
	torn           bool // a write that failed has left bytes behind the batches
}

// place is where the files are and what follows their endings.
type place struct{ dir, suffix string }

// TimestampOffset is a timestamp and the last offset of the batch that has it.
type TimestampOffset struct {
	Timestamp int64
	Offset    int64
}

// cut says that in generation (a count of truncations of the whole log) everything from Position on was cut.
type cut struct {
	generation int64
	position   int64
}

const unknownTimestamp = math.MinInt64

// Open returns the segment of existing files without touching them. sizeBytes is the length of the .log,
// suffix what follows the file endings (SwapSuffix, CleanedSuffix, "").
func Open(dir string, base, sizeBytes, createdMillis int64, suffix string, o Options) *Segment {
	s := &Segment{base: base, place: place{dir, suffix}, createdMillis: createdMillis}
	s.log = o.Files.Handle(s.path(LogSuffix))
	s.init(o)
	s.size.Store(sizeBytes)
	return s
}

// Create makes an empty segment: the .log at once, the rest when needed. An existing file is emptied. After an error there
// may be one.
func Create(dir string, base, createdMillis int64, suffix string, o Options) (*Segment, error) {
	s := &Segment{base: base, place: place{dir, suffix}, createdMillis: createdMillis}
	f, err := o.Files.FS().Create(s.path(LogSuffix))
	if err != nil {
		return nil, err
	}
	s.log = o.Files.Adopt(f)
	s.init(o)
	for _, x := range []*index{s.offsets, s.times} {
		empty := []byte{}
		x.view.Store(&empty)
	}
	s.txns.view.Store(&[]AbortedTxn{})
	s.max.Store(&TimestampOffset{Timestamp: record.NoTimestamp, Offset: base})
	if o.Preallocate {
		if err := s.log.Truncate(int64(o.MaxBytes)); err != nil {
			return nil, errors.Join(err, s.log.Close())
		}
	}
	s.txns.trusted.Store(true)
	return s, nil
}

func (s *Segment) init(o Options) {
	s.opts.Store(&o)
	s.offsets = newIndex(o, s.path(IndexSuffix), offsetEntryBytes, s.validOffsets)
	s.times = newIndex(o, s.path(TimeIndexSuffix), timeEntryBytes, validTimeEntries)
	s.txns = &txnIndex{files: o.Files, path: s.path(TxnIndexSuffix)}
	s.first.Store(unknownTimestamp)
}

func (s *Segment) fs() vfs.FS { return s.opts.Load().Files.FS() }

func (s *Segment) validOffsets(raw []byte) (int, error) {
	n, err := validOffsetEntries(raw)
	for n > 0 && int64(offsetEntry(raw[n-offsetEntryBytes:]).Position) >= s.size.Load() {
		n -= offsetEntryBytes
		err = errors.New("position beyond the log")
	}
	return n, err
}

func (s *Segment) path(suffix string) string {
	return filepath.Join(s.place.dir, FileName(s.base, suffix+s.place.suffix))
}

// Base is the offset in the file names, at or below the offset of the first batch.
func (s *Segment) Base() int64 { return s.base }

// SizeBytes is the size of the batches.
func (s *Segment) SizeBytes() int64 { return s.size.Load() }

// CreatedMillis is when the segment was made or opened, in wall-clock time; for roll by time without timestamps.
func (s *Segment) CreatedMillis() int64 { return s.createdMillis }

// SetOptions changes the intervals and sizes for what is written from now on. By the writer.
func (s *Segment) SetOptions(o Options) {
	s.opts.Store(&o)
	s.offsets.setMax(o.IndexMaxBytes)
	s.times.setMax(o.IndexMaxBytes)
}

// relative converts an offset; ok is false when the indexes cannot hold it.
func (s *Segment) relative(offset int64) (rel int32, ok bool) {
	d := offset - s.base
	if d < 0 || d > math.MaxInt32 {
		return 0, false
	}
	return int32(d), true
}

// Fits tells whether a batch with this last offset can be in the segment.
func (s *Segment) Fits(lastOffset int64) bool {
	_, ok := s.relative(lastOffset)
	return ok
}

// IndexesFull tells whether an index has no room for another entry, which makes the log roll.
func (s *Segment) IndexesFull() (bool, error) {
	if _, err := s.offsetEntries(); err != nil {
		return false, err
	}
	if _, err := s.timeEntries(); err != nil {
		return false, err
	}
	// The time index keeps one slot for the entry that sealing adds.
	return s.offsets.isFull() || (s.times.count()+2)*timeEntryBytes > int(s.times.maxBytes.Load()), nil
}

// Append writes whole batches, with offsets and epochs set, at the end: one write. After an error the file has
// been cut back to where it was if that could be done, or will be before the next write, and the segment is unchanged.
// By the writer.
func (s *Segment) Append(batches []byte) error {
	if err := s.cutTorn(); err != nil {
		return err
	}
	if !s.written.Load() {
		if _, err := s.MaxTimestamp(); err != nil { // checked while its index can be rebuilt
			return err
		}
		s.written.Store(true)
	}
	start := s.size.Load()
	if start+int64(len(batches)) > math.MaxInt32 {
		return fmt.Errorf("%w: %d bytes do not fit after %d", ErrOffsetOverflow, len(batches), start)
	}
	for b, err := range record.Batches(batches) {
		if err != nil {
			return err
		}
		if !s.Fits(b.LastOffset()) {
			return fmt.Errorf("%w: %d in segment %d", ErrOffsetOverflow, b.LastOffset(), s.base)
		}
	}
	if _, err := s.log.WriteAt(batches, start); err != nil {
		s.torn = true
		if cutErr := s.cutTorn(); cutErr != nil {
			return errors.Join(err, cutErr)
		}
		return err
	}
	if err := s.index(batches, start); err != nil {
		// The bytes are in the file but not part of the log yet; a log that goes on after this is rebuilt first.
		return errors.Join(err, s.log.Truncate(start))
	}
	s.size.Store(start + int64(len(batches)))
	return nil
}

// cutTorn cuts off what a failed write has left: among it may be whole batches, which recovery would take for the log's.
func (s *Segment) cutTorn() error {
	if !s.torn {
		return nil
	}
	s.reserve.Lock()
	defer s.reserve.Unlock()
	if err := s.log.Truncate(s.size.Load()); err != nil {
		return err
	}
	s.torn, s.allocatedBytes = false, 0
	return nil
}

// index notes batches written at position start.
func (s *Segment) index(batches []byte, start int64) error {
	largest, err := s.MaxTimestamp()
	if err != nil {
		return err
	}
	t := s.tail.Load()
	if t == nil {
		t = newTail()
		s.tail.Store(t)
	}
	before, position := largest, start
	for b := range record.Validated(batches) {
		if position == 0 {
			s.first.Store(b.MaxTimestamp())
		}
		if ts := b.MaxTimestamp(); ts > largest.Timestamp {
			largest = TimestampOffset{Timestamp: ts, Offset: b.LastOffset()}
		}
		if s.bytesSinceLast > int(s.opts.Load().IndexIntervalBytes) {
			if err := s.addEntries(b.LastOffset(), position, largest); err != nil {
				return err
			}
			s.bytesSinceLast = 0
		}
		t.add(s.base, b.BaseOffset(), position)
		s.bytesSinceLast += len(b)
		position += int64(len(b))
	}
	if largest != before {
		found := largest // or every append would allocate one
		s.max.Store(&found)
	}
	return nil
}

func (s *Segment) addEntries(lastOffset, position int64, largest TimestampOffset) error {
	rel, ok := s.relative(lastOffset)
	if !ok {
		return fmt.Errorf("%w: %d in segment %d", ErrOffsetOverflow, lastOffset, s.base)
	}
	if !s.offsets.isFull() {
		var b [offsetEntryBytes]byte
		e := OffsetIndexEntry{RelativeOffset: rel, Position: int32(position)}
		if err := s.offsets.append(e.append(b[:0])); err != nil {
			return err
		}
	}
	return s.addTimeEntry(largest, false)
}

// addTimeEntry adds an entry if the timestamp has grown since the last one; last may use the reserved slot.
func (s *Segment) addTimeEntry(largest TimestampOffset, last bool) error {
	v, err := s.times.load()
	if err != nil && !errors.Is(err, ErrCorrupt) {
		return err
	}
	rel, ok := s.relative(largest.Offset)
	if !ok {
		return nil // damaged index of a segment whose offsets have been cut away
	}
	newest := TimeIndexEntry{Timestamp: record.NoTimestamp, RelativeOffset: -1}
	if len(v) > 0 {
		newest = timeEntry(v[len(v)-timeEntryBytes:])
	}
	if largest.Timestamp <= newest.Timestamp || rel <= newest.RelativeOffset {
		return nil
	}
	slots := 2
	if last {
		slots = 1
	}
	if (s.times.count()+slots)*timeEntryBytes > int(s.times.maxBytes.Load()) {
		return nil
	}
	var b [timeEntryBytes]byte
	return s.times.append(TimeIndexEntry{Timestamp: largest.Timestamp, RelativeOffset: rel}.append(b[:0]))
}

// AppendAborted adds an entry to the transaction index. By the writer.
func (s *Segment) AppendAborted(a AbortedTxn) error { return s.txns.append(a) }

// MaxTimestamp is the largest timestamp so far, NoTimestamp without one; of a segment that was opened rather
// than written it is the last entry of the time index, as in Kafka.
func (s *Segment) MaxTimestamp() (TimestampOffset, error) {
	if m := s.max.Load(); m != nil {
		return *m, nil
	}
	v, err := s.timeEntries()
	if err != nil {
		return TimestampOffset{}, err
	}
	m := s.lastTime(v)
	// Retention goes by it: a false one deletes records.
	repaired, err := s.repairTimes(m)
	if err != nil {
		return TimestampOffset{}, err
	}
	if repaired {
		return *s.max.Load(), nil
	}
	s.max.CompareAndSwap(nil, &m)
	return m, nil
}

func (s *Segment) lastTime(entries []byte) TimestampOffset {
	if len(entries) == 0 {
		return TimestampOffset{Timestamp: record.NoTimestamp, Offset: s.base}
	}
	e := timeEntry(entries[len(entries)-timeEntryBytes:])
	return TimestampOffset{Timestamp: e.Timestamp, Offset: s.base + int64(e.RelativeOffset)}
}

// FirstTimestamp is the largest timestamp of the first batch; ok is false when the segment is empty.
func (s *Segment) FirstTimestamp() (millis int64, ok bool, err error) {
	if s.size.Load() == 0 {
		return 0, false, nil
	}
	if ts := s.first.Load(); ts != unknownTimestamp {
		return ts, true, nil
	}
	scan := s.scan(0, s.size.Load())
	defer scan.close()
	if !scan.next() {
		return 0, false, scan.err
	}
	ts := scan.batch.MaxTimestamp()
	s.first.Store(ts)
	return ts, true, nil
}

// LastModifiedMillis is the time of the last write to the .log.
func (s *Segment) LastModifiedMillis() (int64, error) {
	s.gate.RLock()
	defer s.gate.RUnlock()
	info, err := s.fs().Stat(s.path(LogSuffix))
	if err != nil {
		return 0, err
	}
	return info.ModTime().UnixMilli(), nil
}

// SetLastModified sets the time of the last write to the .log, of a segment that was written anew.
func (s *Segment) SetLastModified(t time.Time) error {
	s.gate.RLock()
	defer s.gate.RUnlock()
	return s.fs().SetModTime(s.path(LogSuffix), t)
}

// IndexBytes is the size of the entries of the offset and of the time index.
func (s *Segment) IndexBytes() (offsets, times int, err error) {
	o, err := s.offsetEntries()
	if err != nil {
		return 0, 0, err
	}
	t, err := s.timeEntries()
	return len(o), len(t), err
}

// LogPath is where the .log is, for messages.
func (s *Segment) LogPath() string { return s.log.Name() }

// WriteIndexes writes index entries that are still in memory, creating the files at full size. By the writer,
// or by anybody once the segment is sealed.
func (s *Segment) WriteIndexes() error {
	return errors.Join(s.offsets.write(), s.times.write(), s.txns.write())
}

// Seal ends writing: the last time index entry is added, the files are cut to what is used. By the writer.
func (s *Segment) Seal() error {
	if err := s.sealTimes(); err != nil {
		return err
	}
	return s.Trim()
}

func (s *Segment) sealTimes() error {
	if err := s.cutTorn(); err != nil {
		return err
	}
	m, err := s.MaxTimestamp()
	if err != nil {
		return err
	}
	return s.addTimeEntry(m, true)
}

// SealLater is the part of Seal that must be done before the next segment is written; Trim does the rest, which
// may be done later by another goroutine. By the writer.
func (s *Segment) SealLater() error { return s.sealTimes() }

// Trim cuts the files of a sealed segment to what is used and gives reserved blocks back. It does not sync.
func (s *Segment) Trim() error {
	if err := errors.Join(s.offsets.trim(), s.times.trim(), s.txns.write()); err != nil {
		return err
	}
	return s.trimLog()
}

func (s *Segment) trimLog() error {
	s.reserve.Lock()
	defer s.reserve.Unlock()
	size := s.size.Load()
	if !s.opts.Load().Preallocate && s.allocatedBytes <= size {
		return nil
	}
	// To its own length: frees the blocks reserved beyond it.
	s.allocatedBytes = 0
	return s.log.Truncate(size)
}

// SyncLog makes the batches durable. The indexes of the segment that is written need not be, because recovery
// rebuilds them.
func (s *Segment) SyncLog() error { return s.log.Sync() }

// SyncAll makes all files durable, for a sealed segment.
func (s *Segment) SyncAll() error {
	if err := s.log.Sync(); err != nil {
		return err
	}
	return s.SyncIndexes()
}

// SyncIndexes makes the indexes durable.
func (s *Segment) SyncIndexes() error {
	return errors.Join(s.offsets.sync(), s.times.sync(), s.txns.sync())
}

// SyncTrimmed makes durable what Trim did, of a segment whose batches are durable already.
func (s *Segment) SyncTrimmed() error {
	if s.opts.Load().Preallocate { // else the .log has kept its length
		return s.SyncAll()
	}
	return s.SyncIndexes()
}

// Changed tells whether the segment was appended to, or an index written, since it was opened.
func (s *Segment) Changed() bool { return s.written.Load() || s.offsets.isDirty() || s.times.isDirty() }

// Reserve allocates blocks for the next aheadBytes of appends, if less is left; a hint: ENOSPC is left to the
// write that meets it.
func (s *Segment) Reserve(aheadBytes int64) {
	s.reserve.Lock()
	defer s.reserve.Unlock()
	size := s.size.Load()
	end := min(size+aheadBytes, int64(s.opts.Load().MaxBytes))
	if s.opts.Load().Preallocate || end <= s.allocatedBytes || s.allocatedBytes-size > aheadBytes/2 {
		return
	}
	from := max(s.allocatedBytes, size)
	if err := s.log.Allocate(from, end-from); err == nil {
		s.allocatedBytes = end
	}
}

// Close gives up the descriptors, after the last write. Ranges stay readable.
func (s *Segment) Close() error {
	return errors.Join(s.log.Close(), s.offsets.close(), s.times.close(), s.txns.close())
}
