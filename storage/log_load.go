package storage

import (
	"errors"
	"io/fs"
	"maps"
	"math"
	"path/filepath"
	"slices"

	"gregor/protocol/record"
	"gregor/storage/producer"
	"gregor/storage/segment"
	"gregor/storage/vfs"
)

// loader makes the segments of a log from what is in its directory, by the rules of Kafka's LogLoader.
type loader struct {
	l       *Log
	opts    LogOptions
	dir     string
	options segment.Options

	names     map[string]fs.DirEntry
	segments  []*segment.Segment
	recovered []*segment.Segment // whose files were rewritten
	snapshots *producer.Manager  // used by recovery alone, from one segment to the next

	bases       []int64        // of all segments, ascending
	newestBases map[int64]bool // of the last two segments
}

func (ld *loader) load() error {
	for {
		err := ld.attempt()
		split, splitErr := ld.splitOverflowed(err)
		if !split || splitErr != nil {
			return errors.Join(err, splitErr)
		}
	}
}

func (ld *loader) attempt() error {
	if err := ld.list(); err != nil {
		return err
	}
	if err := ld.finishSwaps(); err != nil {
		return err
	}
	if err := ld.openSegments(); err != nil {
		return err
	}
	if !ld.opts.HadCleanShutdown {
		if err := ld.recover(); err != nil {
			return err
		}
	}
	end, err := ld.settle()
	if err != nil {
		return err
	}
	return ld.finish(end)
}

func (ld *loader) list() error {
	entries, err := ld.l.fs.ReadDir(ld.dir)
	if err != nil {
		return err
	}
	ld.names = make(map[string]fs.DirEntry, len(entries))
	for _, e := range entries {
		if !e.IsDir() {
			ld.names[e.Name()] = e
		}
	}
	return nil
}

func (ld *loader) path(name string) string { return filepath.Join(ld.dir, name) }

func (ld *loader) remove(name string) error {
	delete(ld.names, name)
	return removeIfExists(ld.l.fs, ld.path(name))
}

func removeIfExists(fsys vfs.FS, path string) error {
	if err := fsys.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (ld *loader) sizeOf(name string) (int64, error) {
	info, err := ld.names[name].Info()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// openSegments makes the segments, oldest first, removes indexes without one, and recovers the segments whose
// offset index is missing or whose transaction index is damaged.
func (ld *loader) openSegments() error {
	logs := map[int64]bool{}
	for name := range ld.names {
		if base, suffix, ok := segment.ParseFileName(name); ok && suffix == segment.LogSuffix {
			logs[base] = true
		}
	}
	for name := range ld.names {
		base, suffix, ok := segment.ParseFileName(name)
		if !ok || logs[base] {
			continue
		}
		switch suffix {
		case segment.IndexSuffix, segment.TimeIndexSuffix, segment.TxnIndexSuffix:
			ld.l.log.Warn("Deleting an index without a segment", "file", ld.path(name))
			if err := ld.remove(name); err != nil {
				return err
			}
		}
	}
	bases := make([]int64, 0, len(logs))
	for base := range logs {
		bases = append(bases, base)
	}
	slices.Sort(bases)
	ld.bases = bases
	ld.newestBases = map[int64]bool{}
	for _, base := range bases[max(0, len(bases)-2):] {
		ld.newestBases[base] = true
	}
	firstUnclean := ld.firstToRecover(bases)
	for i, base := range bases {
		size, err := ld.sizeOf(segment.FileName(base, segment.LogSuffix))
		if err != nil {
			return err
		}
		s := segment.Open(ld.dir, base, size, nowMillis(), "", ld.options)
		if i < firstUnclean {
			if err := ld.checkIndexes(s); err != nil {
				return err
			}
		}
		ld.segments = append(ld.segments, s)
	}
	return nil
}

// firstToRecover is the index of the first segment that recovery reads anyway: the one with the recovery point,
// and the one before it when the point is its end and it may have been sealed just before the crash.
func (ld *loader) firstToRecover(bases []int64) int {
	if ld.opts.HadCleanShutdown {
		return len(bases)
	}
	i, found := slices.BinarySearch(bases, ld.opts.RecoveryPoint)
	if !found || !ld.sealedBefore(bases[i]) {
		i--
	}
	return max(i, 0)
}

// sealedBefore tells whether the segment that ends where a segment with this base starts was made durable whole:
// a roll writes the producer snapshot after that.
func (ld *loader) sealedBefore(base int64) bool {
	_, ok := ld.names[producer.SnapshotName(base)]
	return ok
}

func (ld *loader) checkIndexes(s *segment.Segment) error {
	_, hasIndex := ld.names[segment.FileName(s.Base(), segment.IndexSuffix)]
	damaged := false
	if _, hasTxns := ld.names[segment.FileName(s.Base(), segment.TxnIndexSuffix)]; hasTxns {
		_, err := s.Aborted()
		if damaged = errors.Is(err, segment.ErrCorrupt); err != nil && !damaged {
			return err
		}
	}
	if hasIndex && !damaged {
		return nil
	}
	ld.l.log.Warn("Rebuilding missing or damaged indexes", "segment", ld.path(segment.FileName(s.Base(), segment.LogSuffix)))
	ld.snapshots = nil
	_, err := ld.recoverSegment(s)
	return err
}

// recover reads the segments from the one with the recovery point on. At the first damage the rest of the log
// goes.
func (ld *loader) recover() error {
	bases := make([]int64, len(ld.segments))
	for i, s := range ld.segments {
		bases[i] = s.Base()
	}
	all := ld.segments
	first := ld.firstToRecover(bases)
	ld.snapshots = nil
	for i := first; i < len(all); i++ {
		ld.segments = all[:i]
		r, err := ld.recoverSegment(all[i])
		if err != nil {
			return err
		}
		ld.segments = all[:i+1]
		if i+1 == len(all) && r.TruncatedBytes == 0 || i+1 < len(all) && ld.goesOn(r, all[i+1].Base()) {
			continue
		}
		ld.l.log.Warn("Cut damaged bytes off the log", "segment", ld.path(segment.FileName(all[i].Base(), segment.LogSuffix)),
			"bytes", r.TruncatedBytes, "logEnd", r.NextOffset, "damage", r.Damage)
		if err := ld.drop(all[i+1:]); err != nil {
			return err
		}
		// The cut must be durable before other bytes are written there.
		if err := all[i].SyncLog(); err != nil {
			return err
		}
		return ld.l.fs.SyncDir(ld.dir)
	}
	return nil
}

// goesOn tells whether the next segment continues a recovered one. Without a gap between them it does, whatever
// was cut off in between: nothing that belongs to the log (preallocated blocks that had not been cut yet). A gap is
// what the crash tore, or what compaction left, here or on the leader: but a segment that a roll has made durable
// is followed by one with a producer snapshot. Without that, whatever comes after the gap was not durable either.
func (ld *loader) goesOn(r segment.Recovered, nextBase int64) bool {
	return r.NextOffset == nextBase || r.TruncatedBytes == 0 && ld.sealedBefore(nextBase)
}

// drop removes segments, the newest first.
func (ld *loader) drop(gone []*segment.Segment) error {
	for _, s := range slices.Backward(gone) {
		ld.l.log.Warn("Deleting a segment beyond the end of the log", "segment", ld.path(segment.FileName(s.Base(), segment.LogSuffix)))
		if err := s.Remove(); err != nil {
			return err
		}
		ld.recovered = slices.DeleteFunc(ld.recovered, func(r *segment.Segment) bool { return r == s })
	}
	return nil
}

// recoverSegment recovers one segment, given those before it, with the producer states that it starts with; a
// snapshot at its end saves reading it again for the next one.
func (ld *loader) recoverSegment(s *segment.Segment) (segment.Recovered, error) {
	p, err := ld.producersAt(s.Base())
	if err != nil {
		return segment.Recovered{}, err
	}
	r, err := s.Recover(ld.durable(), ld.nextBase(s), func(b record.Batch) error {
		if b.Magic() >= 2 && b.LeaderEpoch() > ld.l.epochs.latest() {
			ld.l.epochs.assign(b.LeaderEpoch(), b.BaseOffset())
		}
		txn, err := applyBatch(p, b)
		if err != nil || txn == nil {
			return err
		}
		if txn.Aborted {
			err = s.AppendAborted(segment.AbortedTxn{
				ProducerID: txn.ProducerID, FirstOffset: txn.FirstOffset, LastOffset: txn.LastOffset,
				LastStableOffset: p.LastStableOffset(*txn),
			})
		}
		p.CompleteTxn(*txn)
		return err
	})
	if err != nil {
		return r, err
	}
	ld.recovered = append(ld.recovered, s)
	return r, p.TakeSnapshot()
}

// durable is the offset below which the log was on disk whole: a crash tears only what lies above the recovery point, and
// a clean stop nothing.
func (ld *loader) durable() int64 {
	if ld.opts.CutDamage {
		return 0
	}
	if ld.opts.HadCleanShutdown {
		return math.MaxInt64
	}
	return ld.opts.RecoveryPoint
}

// nextBase is the base of the segment after one, 0 for the last.
func (ld *loader) nextBase(s *segment.Segment) int64 {
	i, found := slices.BinarySearch(ld.bases, s.Base())
	if found {
		i++
	}
	if i == len(ld.bases) {
		return 0
	}
	return ld.bases[i]
}

// producersAt returns the producer states at the base of a segment.
func (ld *loader) producersAt(base int64) (*producer.Manager, error) {
	if p := ld.snapshots; p != nil && p.MapEndOffset() <= base {
		p.UpdateMapEndOffset(base)
		return p, p.TakeSnapshot()
	}
	names, err := ld.snapshotsFor(base)
	if err != nil {
		return nil, err
	}
	p, err := ld.newProducers(names)
	if err != nil {
		return nil, err
	}
	start := ld.opts.LogStartOffset
	if err := p.TruncateAndReload(start, base, nowMillis()); err != nil {
		return nil, err
	}
	// What a roll would have left: snapshots at the bases of the newest segments.
	if err := replayProducers(p, ld.segments, start, base, ld.newestBases); err != nil {
		return nil, err
	}
	p.UpdateMapEndOffset(base)
	ld.snapshots = p
	return p, p.TakeSnapshot()
}

// snapshotsFor lists the snapshots that recovery from a base may start with. Of later ones those at the bases of segments
// stay on disk, to be overwritten when recovery comes by: they tell that the segments before were sealed, also to a
// start after this one has crashed. The others go.
func (ld *loader) snapshotsFor(base int64) ([]string, error) {
	entries, err := ld.l.fs.ReadDir(ld.dir)
	if err != nil {
		return nil, err
	}
	names := []string{}
	for _, e := range entries {
		offset, suffix, ok := segment.ParseFileName(e.Name())
		if !ok || suffix != segment.SnapshotSuffix {
			continue
		}
		_, isBase := ld.names[segment.FileName(offset, segment.LogSuffix)]
		switch {
		case offset <= base:
			names = append(names, e.Name())
		case !isBase:
			if err := removeIfExists(ld.l.fs, ld.path(e.Name())); err != nil {
				return nil, err
			}
		}
	}
	return names, nil
}

// newProducers makes an empty state; names are those of the directory, nil when they may have changed.
func (ld *loader) newProducers(names []string) (*producer.Manager, error) {
	return producer.NewManager(producer.Options{
		FS: ld.l.fs, Dir: ld.dir, Names: names, ExpirationMillis: ld.opts.ProducerExpirationMillis, Logger: ld.l.log,
	})
}

// settle finds the log end and makes sure that there is a segment.
func (ld *loader) settle() (end int64, err error) {
	start := ld.opts.LogStartOffset
	if n := len(ld.segments); n > 0 {
		if end, err = ld.segments[n-1].NextOffset(); err != nil {
			return 0, err
		}
		if end >= start {
			return end, nil
		}
		ld.l.log.Warn("Deleting all segments because the log ends below its start", "dir", ld.dir, "logEnd", end, "logStart", start)
		if err := ld.drop(ld.segments); err != nil {
			return 0, err
		}
		ld.segments = nil
		ld.l.epochs.clear()
	}
	s, err := segment.Create(ld.dir, start, nowMillis(), "", ld.options)
	if err != nil {
		return 0, err
	}
	ld.l.flush.filesChanged()
	ld.segments = []*segment.Segment{s}
	return start, nil
}

// finish derives the rest of the log's state.
func (ld *loader) finish(end int64) error {
	l, w := ld.l, &ld.l.w
	w.setSegments(ld.segments)
	w.logEnd = end
	w.logStart = max(ld.opts.LogStartOffset, ld.segments[0].Base())
	if ld.opts.Config.RemoteStorageEnable {
		w.logStart = ld.opts.LogStartOffset // the records up to the first segment are in tiered storage
	}
	w.highWatermark = w.logStart
	w.cleanedTo = ld.opts.CleanedTo
	l.flush.done = end
	if !ld.opts.HadCleanShutdown {
		// Only a sync raises it: what was read now may still be in the page cache alone.
		l.flush.done = min(ld.opts.RecoveryPoint, end)
	}
	l.epochs.truncateEnd(end)
	l.epochs.truncateStart(ld.opts.LogStartOffset)
	if !ld.opts.HadCleanShutdown { // or else the next start would find the same
		if err := l.epochs.flush(); err != nil {
			return err
		}
	}
	bases := make([]int64, len(ld.segments))
	for i, s := range ld.segments {
		bases[i] = s.Base()
	}
	var names []string
	if ld.opts.HadCleanShutdown && len(ld.recovered) == 0 {
		names = slices.Collect(maps.Keys(ld.names)) // nothing has been written since they were listed
	}
	var err error
	if w.producers, err = ld.newProducers(names); err != nil {
		return err
	}
	if err := w.producers.RemoveStraySnapshots(bases); err != nil {
		return err
	}
	return l.rebuildProducers(ld.opts.HadCleanShutdown)
}

// syncLater makes the rewritten indexes of sealed segments durable in the background; until then the recovery
// point does not pass them.
func (ld *loader) syncLater() {
	l := ld.l
	sealed := slices.DeleteFunc(ld.recovered, func(s *segment.Segment) bool { return s == l.w.active })
	if len(sealed) == 0 {
		return
	}
	l.mu.Lock()
	for _, s := range sealed {
		l.w.unsealed = append(l.w.unsealed, s.Base())
	}
	slices.Sort(l.w.unsealed)
	l.unlock()
	l.bg.run(func() {
		for _, s := range sealed {
			if err := s.SyncAll(); err != nil && !l.isGone(err, s) {
				_ = l.fail("sync of a recovered segment", err)
				l.report()
				return
			}
		}
		l.mu.Lock()
		defer l.unlock()
		l.w.unsealed = slices.DeleteFunc(l.w.unsealed, func(base int64) bool {
			return slices.ContainsFunc(sealed, func(s *segment.Segment) bool { return s.Base() == base })
		})
		if !l.w.closed {
			l.publish()
		}
	})
}
