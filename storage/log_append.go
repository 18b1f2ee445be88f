package storage

import (
	"errors"
	"fmt"
	"io"
	"math"

	"gregor/protocol/record"
	"gregor/storage/producer"
	"gregor/storage/segment"
	"gregor/storage/vfs"
)

// appended is what the walk over the batches of an append finds.
type appended struct {
	firstOffset  int64 // base of the first batch; of an old format its last offset
	lastOffset   int64
	maxTimestamp int64
	batches      int
	epoch        int32 // of the last batch
}

func measure(batches []byte) (appended, error) {
	a := appended{firstOffset: -1, lastOffset: -1, maxTimestamp: record.NoTimestamp, epoch: record.NoLeaderEpoch}
	for b, err := range record.Batches(batches) {
		if err != nil {
			return a, fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		if a.batches == 0 {
			a.firstOffset = b.BaseOffset()
		}
		a.batches++
		a.lastOffset = b.LastOffset()
		a.maxTimestamp = max(a.maxTimestamp, b.MaxTimestamp())
		a.epoch = b.LeaderEpoch()
	}
	if a.batches == 0 {
		return a, ErrEmptyAppend
	}
	return a, nil
}

// AppendAsLeader appends validated batches (record.ValidateProduce): it gives them the next offsets and the
// leader's epoch, in place, checks the producers' sequences, epochs and transactions, and writes them. A retry
// of one of a producer's last five batches is answered with the original's offsets and written nothing. When
// flush.messages is reached it returns after the sync, also for a retry, and the high watermark moves then. An epoch
// that is over is an ErrOldLeaderEpoch. The bytes are not kept.
func (l *Log) AppendAsLeader(batches []byte, leaderEpoch int32, o AppendOptions) (AppendInfo, error) {
	if _, err := measure(batches); err != nil {
		return AppendInfo{FirstOffset: -1, LastOffset: -1}, err
	}
	info, err := l.appendAsLeader(batches, leaderEpoch, o)
	if err != nil {
		return info, err
	}
	info.AloneInSync = o.AloneInSync
	if !l.syncDue(info) {
		return info, nil
	}
	if o.SyncLater {
		info.Unsynced = true
		return info, nil
	}
	return info, l.SyncAppended(info)
}

// syncDue tells whether an append may not be told of yet, because of flush.messages.
func (l *Log) syncDue(info AppendInfo) bool {
	end := info.LastOffset + 1
	return l.flushDue(end) || info.AloneInSync && l.state.Load().HighWatermark < end
}

// SyncAppended is the second half of an append with SyncLater that returned Unsynced: it returns after the sync, which
// appends that came meanwhile share, and the high watermark moves then.
func (l *Log) SyncAppended(info AppendInfo) error {
	end := info.LastOffset + 1
	if err := l.flushIfDue(end); err != nil || !info.AloneInSync || l.state.Load().HighWatermark >= end {
		return err
	}
	return l.commitSynced(info)
}

// commitSynced moves the high watermark past an append that had to be synced first, unless the log has been cut since.
func (l *Log) commitSynced(info AppendInfo) error {
	l.mu.Lock()
	defer l.unlock()
	if err := l.usable(); err != nil {
		return err
	}
	if end := info.LastOffset + 1; l.w.generation == info.generation && end > l.w.highWatermark {
		l.setHighWatermark(end)
		l.publish()
	}
	return nil
}

func (l *Log) appendAsLeader(batches []byte, leaderEpoch int32, o AppendOptions) (AppendInfo, error) {
	l.mu.Lock()
	defer l.unlock()
	none := AppendInfo{FirstOffset: -1, LastOffset: -1}
	if err := l.usable(); err != nil {
		return none, err
	}
	if newest := max(l.epochs.latest(), l.w.following); leaderEpoch < newest {
		return none, fmt.Errorf("%w: %d, the log is in %d", ErrOldLeaderEpoch, leaderEpoch, newest)
	}
	w := &l.w
	if o.Origin == FromClient {
		for b := range record.Validated(batches) {
			if original, ok := w.producers.Duplicate(b); ok {
				if o.Joined {
					return none, ErrJoinedRetry
				}
				return AppendInfo{
					FirstOffset: original.FirstOffset(), LastOffset: original.LastOffset, MaxTimestamp: original.Timestamp,
					LogAppendTimeMillis: original.Timestamp, LogStartOffset: w.logStart, LeaderEpoch: leaderEpoch, Duplicate: true,
					generation: w.generation,
				}, nil
			}
		}
	}
	if err := l.checkSegmentSize(len(batches)); err != nil {
		return none, err
	}
	next := w.logEnd
	for b := range record.Validated(batches) {
		if b.Magic() < 2 || b.LastOffsetDelta() < 0 {
			return none, fmt.Errorf("%w: message format %d, last offset delta %d", ErrCorrupt, b.Magic(), b.LastOffsetDelta())
		}
		b.SetBaseOffset(next)
		b.SetLeaderEpoch(leaderEpoch)
		next = b.NextOffset()
	}
	a, err := measure(batches)
	if err != nil {
		return none, err
	}
	// Nobody may read before the sync what a crash could still take.
	commit := o.AloneInSync && !l.flushDue(next)
	if err := l.write(batches, a, l.producerOptions(o), commit); err != nil {
		return none, err
	}
	return AppendInfo{
		FirstOffset: a.firstOffset, LastOffset: a.lastOffset, MaxTimestamp: a.maxTimestamp,
		LogAppendTimeMillis: o.LogAppendTimeMillis, LogStartOffset: w.logStart,
		Bytes: len(batches), Batches: a.batches, LeaderEpoch: leaderEpoch, generation: w.generation,
	}, nil
}

func (l *Log) producerOptions(o AppendOptions) producer.AppendOptions {
	p := producer.AppendOptions{
		TransactionVersion: o.TransactionVersion, RequireVerification: l.opts.verifyTransactions, Guard: o.Guard,
	}
	switch o.Origin {
	case FromClient:
		p.Origin = producer.FromClient
	case FromCoordinator:
		p.Origin = producer.FromCoordinator
	case FromReplication, FromRaft:
		p.Origin = producer.FromReplication
	}
	return p
}

func (l *Log) checkSegmentSize(bytes int) error {
	if limit := l.config.Load().SegmentBytes; int64(bytes) > int64(limit) {
		return fmt.Errorf("%w: %d bytes, segment.bytes is %d", ErrSegmentTooSmall, bytes, limit)
	}
	return nil
}

// flushIfDue syncs when flush.messages records are unsynced.
func (l *Log) flushIfDue(end int64) error {
	if !l.flushDue(end) {
		return nil
	}
	return l.Flush(end)
}

// flushDue tells whether flush.messages records below end are unsynced.
func (l *Log) flushDue(end int64) bool {
	limit := l.config.Load().FlushMessages
	return limit != math.MaxInt64 && end-l.flush.flushed() >= limit
}

// AppendAsFollower appends a leader's batches as they are. Batches of an epoch above leaderEpoch, the replica's
// own, and all after them are left out (KAFKA-18723), and so is a batch that is cut at the end. Offsets below
// the log end are an *UnexpectedOffsetError.
func (l *Log) AppendAsFollower(batches []byte, leaderEpoch int32) (AppendInfo, error) {
	valid, err := validPrefix(batches, leaderEpoch)
	if err != nil || valid == 0 {
		return AppendInfo{FirstOffset: -1, LastOffset: -1, LogStartOffset: l.state.Load().LogStartOffset}, err
	}
	info, err := l.appendVerbatim(batches[:valid])
	if err != nil {
		return info, err
	}
	return info, l.flushIfDue(info.LastOffset + 1)
}

// AppendRaft appends batches of the metadata quorum as they are, without syncing them.
func (l *Log) AppendRaft(batches []byte) (AppendInfo, error) { return l.appendVerbatim(batches) }

// validPrefix checks the batches of a leader and returns how many bytes of them are to be appended.
func validPrefix(batches []byte, leaderEpoch int32) (int, error) {
	valid, last := 0, int64(-1)
	for rest := batches; ; {
		b, next, err := record.Next(rest)
		if errors.Is(err, io.EOF) || errors.Is(err, record.ErrTruncated) {
			return valid, nil
		}
		if err != nil {
			return 0, fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		if b.LeaderEpoch() > leaderEpoch {
			return valid, nil
		}
		if !b.CRCValid() {
			return 0, fmt.Errorf("%w: CRC of the batch at offset %d does not match", ErrCorrupt, b.BaseOffset())
		}
		if b.LastOffset() <= last || b.LastOffset() < b.BaseOffset() {
			return 0, fmt.Errorf("%w: batch %d-%d after %d", ErrUnexpectedOffset, b.BaseOffset(), b.LastOffset(), last)
		}
		last = b.LastOffset()
		valid += len(b)
		rest = next
	}
}

func (l *Log) appendVerbatim(batches []byte) (AppendInfo, error) {
	a, err := measure(batches)
	if err != nil {
		return AppendInfo{FirstOffset: -1, LastOffset: -1}, err
	}
	l.mu.Lock()
	defer l.unlock()
	if err := l.usable(); err != nil {
		return AppendInfo{FirstOffset: -1, LastOffset: -1}, err
	}
	if a.firstOffset < l.w.logEnd {
		return AppendInfo{FirstOffset: -1, LastOffset: -1}, &UnexpectedOffsetError{
			FirstOffset: a.firstOffset, LastOffset: a.lastOffset, LogEndOffset: l.w.logEnd,
		}
	}
	// In pieces that fit into a segment: what a leader sends at once may be larger than segment.bytes.
	for rest := batches; len(rest) > 0; {
		n := fitting(rest, int(l.config.Load().SegmentBytes))
		piece, err := measure(rest[:n])
		if err != nil {
			return AppendInfo{FirstOffset: -1, LastOffset: -1}, err
		}
		if err := l.write(rest[:n], piece, producer.AppendOptions{Origin: producer.FromReplication}, false); err != nil {
			return AppendInfo{FirstOffset: -1, LastOffset: -1}, err
		}
		rest = rest[n:]
	}
	return AppendInfo{
		FirstOffset: a.firstOffset, LastOffset: a.lastOffset, MaxTimestamp: a.maxTimestamp,
		LogAppendTimeMillis: -1, LogStartOffset: l.w.logStart,
		Bytes: len(batches), Batches: a.batches, LeaderEpoch: a.epoch,
	}, nil
}

// fitting returns the length of the longest run of whole batches within limit, at least one batch.
func fitting(batches []byte, limit int) int {
	if len(batches) <= limit {
		return len(batches)
	}
	n := 0
	for b := range record.Validated(batches) {
		if n > 0 && n+len(b) > limit {
			break
		}
		n += len(b)
	}
	return n
}

// write appends batches that have their final offsets and epochs; commit moves the high watermark to the new end. With the
// writer's lock held. What the batches are refused for, a full disk included, leaves the log as it was; another error of the
// file system fails it.
func (l *Log) write(batches []byte, a appended, o producer.AppendOptions, commit bool) error {
	w := &l.w
	p := w.producers.Prepare(o)
	var completed []producer.CompletedTxn
	for b := range record.Validated(batches) {
		txn, err := p.Check(b)
		if err != nil {
			p.Abandon()
			return err
		}
		if txn != nil {
			completed = append(completed, *txn)
		}
	}
	if err := l.put(batches, a); err != nil {
		p.Abandon()
		return err
	}
	w.logEnd = a.lastOffset + 1
	w.producers.Update(p)
	for _, txn := range completed {
		if err := l.completeTxn(txn); err != nil {
			return err
		}
	}
	w.producers.UpdateMapEndOffset(w.logEnd)
	if commit {
		l.setHighWatermark(w.logEnd)
	}
	l.publish()
	l.opts.space.worked()
	c := l.config.Load()
	l.armFlushTimer(c)
	l.reserveAhead()
	return nil
}

// put writes batches and their leader epochs, rolling before if need be. All of it or, without space, nothing.
func (l *Log) put(batches []byte, a appended) error {
	if err := l.topicID.flush(); err != nil {
		return l.refuse("write of partition.metadata", err)
	}
	before, assigned, err := l.assignEpochs(batches)
	if err != nil {
		return err
	}
	target, err := l.segmentFor(len(batches), a)
	if err == nil {
		err = l.appendTo(target, batches)
	}
	if err != nil && assigned {
		l.epochs.restore(before)
	}
	return err
}

// appendTo writes batches to the active segment, or to the one that a roll has made for them, which is part of the log then.
func (l *Log) appendTo(target *segment.Segment, batches []byte) error {
	rolls := target != l.w.active
	if err := target.Append(batches); err != nil {
		if rolls && vfs.IsNoSpace(err) {
			l.withdraw(target)
		}
		return l.refuse("append", err)
	}
	if rolls {
		l.commitRoll(target)
	}
	return nil
}

// completeTxn enters an aborted transaction into the index before the last stable offset may move past it.
func (l *Log) completeTxn(txn producer.CompletedTxn) error {
	w := &l.w
	if txn.Aborted {
		err := w.active.AppendAborted(segment.AbortedTxn{
			ProducerID: txn.ProducerID, FirstOffset: txn.FirstOffset, LastOffset: txn.LastOffset,
			LastStableOffset: w.producers.LastStableOffset(txn),
		})
		if err != nil {
			// The batches are in the log and stay unstable; recovery rebuilds the index.
			l.publish()
			return l.fail("append to the transaction index", err)
		}
	}
	w.producers.CompleteTxn(txn)
	return nil
}

// assignEpochs notes the leader epochs that begin with the batches, and returns the entries before if any does.
func (l *Log) assignEpochs(batches []byte) (before []EpochEntry, assigned bool, err error) {
	newest := l.epochs.latest()
	for b := range record.Validated(batches) {
		switch {
		case b.Magic() >= 2:
			if b.LeaderEpoch() == newest || b.LeaderEpoch() < 0 {
				continue
			}
			if !assigned {
				before, assigned = l.epochs.view(), true
			}
			l.epochs.assign(b.LeaderEpoch(), b.BaseOffset())
			newest = b.LeaderEpoch()
		case newest >= 0:
			// Old formats carry no epoch: without history, truncation goes by the high watermark again.
			if !assigned {
				before, assigned = l.epochs.view(), true
			}
			l.epochs.clear()
			if err := l.saveEpochs(); err != nil {
				return nil, false, l.fail("write of the leader epochs", err)
			}
			newest = -1
		}
	}
	return before, assigned, nil
}

const (
	// reserveFromBytes is the size from which on blocks are reserved ahead: small partitions, of which there may
	// be many, take no more disk than they use.
	reserveFromBytes = 1 << 20
	reserveStepBytes = 32 << 20
)

// reserveAhead has blocks reserved in the background once half of the last reservation is used.
func (l *Log) reserveAhead() {
	active := l.w.active
	size := active.SizeBytes()
	if size < reserveFromBytes || size < l.w.reserveAt {
		return
	}
	step := min(size, reserveStepBytes)
	l.w.reserveAt = size + step/2
	l.bg.run(func() { active.Reserve(step) })
}
