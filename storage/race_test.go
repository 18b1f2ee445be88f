package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gregor/protocol/record"
	"gregor/storage/segment"
	"gregor/storage/vfs"
)

// stampedBatch is a batch whose records all carry the offset they were written at and the truncation round, so
// that a reader can tell bytes that were promised from bytes that were written over them.
func stampedBatch(base int64, n, size int, round uint64) record.Batch {
	b := record.NewBuilder(record.BuilderOptions{BaseOffset: base})
	value := make([]byte, size)
	binary.BigEndian.PutUint64(value, round)
	for range n {
		b.Add(1, nil, value, nil)
	}
	return b.Bytes()
}

// TestReadersSeeWholeRecordsWhileTheLogChanges reads from several goroutines while one appends, rolls,
// truncates, deletes and reopens nothing. What a reader gets is valid, in order, within its view, and does not
// change while it holds the range.
func TestReadersSeeWholeRecordsWhileTheLogChanges(t *testing.T) {
	o := testOptions(vfs.NewMem())
	o.Files = vfs.NewCache(o.FS, 3) // descriptors come and go
	o.Indexes = segment.NewIndexCache(100)
	o.Config.SegmentBytes, o.Config.IndexIntervalBytes, o.Config.FileDeleteDelayMillis = 4000, 200, 0
	o.Config.SegmentMillis = 1 << 40
	o.Config.RetentionBytes = 12000
	l := openLog(t, o)

	var done atomic.Bool
	var reads, revoked atomic.Int64
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			dice := rand.New(rand.NewPCG(uint64(i), 7))
			for !done.Load() {
				switch err := readOnce(l, dice); {
				case errors.Is(err, segment.ErrRangeGone):
					revoked.Add(1)
				case err != nil:
					t.Errorf("reader %d: %v", i, err)
					return
				default:
					reads.Add(1)
				}
			}
		})
	}
	wg.Go(func() {
		for !done.Load() {
			if _, err := l.OffsetForTimestamp(1, UpToLogEnd); err != nil && !errors.Is(err, segment.ErrRangeGone) {
				t.Error(err)
				return
			}
			l.EndOffsetForEpoch(0)
			l.ActiveProducers()
		}
	})
	dice := rand.New(rand.NewPCG(1, 2))
	deadline := time.Now().Add(1500 * time.Millisecond)
	for round := uint64(1); time.Now().Before(deadline) && !t.Failed(); {
		round = changeOnce(t, l, dice, round)
	}
	done.Store(true)
	wg.Wait()
	if reads.Load() < 100 || l.Err() != nil {
		t.Errorf("%d reads, %v", reads.Load(), l.Err())
	}
	t.Logf("%d reads, %d revoked, end %d", reads.Load(), revoked.Load(), l.State().LogEndOffset)
}

func changeOnce(t *testing.T, l *Log, dice *rand.Rand, round uint64) uint64 {
	t.Helper()
	s := l.State()
	switch dice.IntN(60) {
	case 0:
		must(t, l.TruncateTo(s.HighWatermark+dice.Int64N(s.LogEndOffset-s.HighWatermark+1)))
		round++
	case 1:
		must(t, l.Roll())
	case 2, 3:
		_, err := l.DeleteOldSegments(time.Now())
		must(t, err)
	case 4:
		must(t, l.Flush(s.LogEndOffset))
	case 5, 6, 7:
		_, err := l.UpdateHighWatermark(max(0, s.LogEndOffset-dice.Int64N(40)))
		must(t, err)
	case 8:
		_, err := l.IncrementLogStartOffset(min(s.HighWatermark, s.LogStartOffset+dice.Int64N(30)))
		must(t, err)
	default:
		b := stampedBatch(s.LogEndOffset, 1+dice.IntN(4), 8+dice.IntN(120), round)
		_, err := l.AppendAsFollower(b, 0)
		must(t, err)
	}
	return round
}

func readOnce(l *Log, dice *rand.Rand) error {
	s := l.State()
	offset := s.LogStartOffset + dice.Int64N(s.LogEndOffset-s.LogStartOffset+1)
	f, err := l.Read(offset, dice.IntN(2000), UpToLogEnd, true)
	if errors.Is(err, ErrOffsetOutOfRange) {
		return nil // deleted or truncated meanwhile
	}
	if err != nil || f.Range == nil {
		return err
	}
	defer f.Range.Release()
	first := make([]byte, f.Range.Len())
	if _, err := f.Range.ReadAt(first, 0); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if dice.IntN(4) == 0 {
		again := make([]byte, len(first))
		if _, err := f.Range.ReadAt(again, 0); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if !bytes.Equal(first, again) {
			return errors.New("the promised bytes changed")
		}
	}
	last := int64(-1)
	for b, err := range record.Batches(first) {
		if errors.Is(err, record.ErrTruncated) {
			break
		}
		if err != nil {
			return err
		}
		if !b.CRCValid() || b.LastOffset() < offset || b.BaseOffset() <= last || b.LastOffset() >= f.State.LogEndOffset {
			return errors.New("a batch that was not asked for")
		}
		last = b.LastOffset()
	}
	return nil
}

// TestConcurrentAppendersGetDistinctOffsets appends from many goroutines with flush.messages=1.
func TestConcurrentAppendersGetDistinctOffsets(t *testing.T) {
	o := testOptions(vfs.NewMem())
	o.Config.FlushMessages = 1
	o.Config.SegmentBytes = 3000
	l := openLog(t, o)
	var mu sync.Mutex
	seen := map[int64]bool{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				info, err := l.AppendAsLeader(batchOf(1, 1, record.BuilderOptions{}), 0, AppendOptions{AloneInSync: true})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if seen[info.FirstOffset] {
					t.Errorf("offset %d twice", info.FirstOffset)
				}
				seen[info.FirstOffset] = true
				mu.Unlock()
				if l.flush.flushed() <= info.FirstOffset {
					t.Errorf("offset %d acknowledged, %d synced", info.FirstOffset, l.flush.flushed())
				}
			}
		})
	}
	wg.Wait()
	if s := l.State(); s.LogEndOffset != 400 || s.HighWatermark != 400 {
		t.Errorf("end %d, high watermark %d", s.LogEndOffset, s.HighWatermark)
	}
}
