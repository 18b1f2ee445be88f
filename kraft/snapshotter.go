package kraft

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"gregor/kraft/image"
	"gregor/kraft/metadata"
	"gregor/kraft/quorum"
)

// snapshotBatchRecords is how many records go to the snapshot's writer at a time.
const snapshotBatchRecords = 256

// snapshotStore is what the snapshotter needs of the quorum.
type snapshotStore interface {
	CreateSnapshot(ctx context.Context, offset, lastContainedLogTimestampMillis int64) (*quorum.SnapshotWriter, error)
}

// snapshotter writes a snapshot when the log has grown enough, or when there was none for long. All but the writing
// is done by the loader's goroutine.
type snapshotter struct {
	o      SnapshotOptions
	store  snapshotStore
	logger *slog.Logger

	newBytes int64
	lastTime time.Time
	lastAt   int64

	writing atomic.Bool
	stop    context.CancelFunc
	ctx     context.Context //nolint:containedctx // ends the writer's goroutine at Stop
	workers sync.WaitGroup
}

func newSnapshotter(o SnapshotOptions, store snapshotStore, logger *slog.Logger) *snapshotter {
	s := &snapshotter{o: o, store: store, logger: logger, lastTime: time.Now(), lastAt: -1}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// grew counts bytes of the log.
func (s *snapshotter) grew(bytes int64) { s.newBytes += bytes }

// disable ends the writing of snapshots for good: the state lacks a record of the log.
func (s *snapshotter) disable() { s.stop() }

// loaded starts the count anew: the state came from a snapshot.
func (s *snapshotter) loaded() { s.newBytes, s.lastTime = 0, time.Now() }

// published decides whether an image is to be written.
func (s *snapshotter) published(img *image.Image) {
	bySize := s.newBytes >= s.o.MaxNewRecordBytes
	byTime := s.o.MaxInterval > 0 && time.Since(s.lastTime) >= s.o.MaxInterval
	if !bySize && !byTime || img.Provenance.Offset <= s.lastAt || img.MetadataVersion() == 0 {
		return
	}
	if s.ctx.Err() != nil || !s.writing.CompareAndSwap(false, true) {
		return
	}
	s.newBytes, s.lastTime, s.lastAt = 0, time.Now(), img.Provenance.Offset
	s.workers.Go(func() {
		defer s.writing.Store(false)
		if err := s.write(img); err != nil && !errors.Is(err, context.Canceled) {
			s.logger.Warn("metadata snapshot not written", "offset", img.Provenance.Offset+1, "error", err)
		}
	})
}

func (s *snapshotter) write(img *image.Image) error {
	w, err := s.store.CreateSnapshot(s.ctx, img.Provenance.Offset+1, img.Provenance.TimestampMillis)
	if errors.Is(err, quorum.ErrSnapshotExists) {
		return nil
	}
	if err != nil {
		return err
	}
	level := img.MetadataVersion()
	batch := make([]quorum.VersionedRecord, 0, snapshotBatchRecords)
	for rec := range img.Records(image.RecordsOptions{MetadataVersion: level}) {
		batch = append(batch, quorum.VersionedRecord{Record: rec, Version: metadata.RecordVersion(rec, level)})
		if len(batch) < snapshotBatchRecords {
			continue
		}
		if err = w.Append(batch...); err != nil || s.ctx.Err() != nil {
			break
		}
		batch = batch[:0]
	}
	if err == nil {
		err = s.ctx.Err()
	}
	if err == nil {
		err = w.Append(batch...)
	}
	if err != nil {
		w.Abort()
		return err
	}
	return w.Close()
}

// close ends the writing of a snapshot, which is lost.
func (s *snapshotter) close() {
	s.stop()
	s.workers.Wait()
}
