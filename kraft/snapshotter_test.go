package kraft

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"gregor/kraft/image"
	"gregor/kraft/metadata"
	"gregor/kraft/quorum"
)

// failingStore counts the snapshots asked for and cannot write any.
type failingStore struct {
	asked []int64
	err   error
	// hold, when not nil, is how long an attempt takes.
	hold time.Duration
}

func (s *failingStore) CreateSnapshot(ctx context.Context, offset, _ int64) (*quorum.SnapshotWriter, error) {
	s.asked = append(s.asked, offset)
	if s.hold > 0 {
		select {
		case <-time.After(s.hold):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return nil, s.err
}

// imageAt is an image at an offset.
func imageAt(t *testing.T, offset int64) *image.Image {
	t.Helper()
	d := image.NewDelta(image.Empty())
	level := &metadata.FeatureLevelRecord{
		Name: metadata.FeatureMetadataVersion, FeatureLevel: int16(metadata.LatestMetadataVersion),
	}
	if err := d.Replay(level); err != nil {
		t.Fatal(err)
	}
	return d.Apply(image.Provenance{Offset: offset})
}

func newTestSnapshotter(store snapshotStore, o SnapshotOptions) *snapshotter {
	return newSnapshotter(o, store, slog.New(slog.DiscardHandler))
}

func TestSnapshotsComeBySize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &failingStore{err: quorum.ErrSnapshotExists}
		s := newTestSnapshotter(store, SnapshotOptions{MaxNewRecordBytes: 100, MaxInterval: -1})
		defer s.close()
		s.published(imageAt(t, 5))
		s.grew(99)
		s.published(imageAt(t, 6))
		s.grew(1)
		s.published(imageAt(t, 7))
		synctest.Wait()
		s.published(imageAt(t, 8))
		s.grew(100)
		s.loaded()
		s.published(imageAt(t, 9))
		synctest.Wait()
		if len(store.asked) != 1 || store.asked[0] != 8 {
			t.Errorf("snapshots up to %v, want one up to 8", store.asked)
		}
	})
}

func TestSnapshotsComeByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &failingStore{err: errors.New("disk full")}
		s := newTestSnapshotter(store, SnapshotOptions{MaxNewRecordBytes: 100, MaxInterval: time.Minute})
		defer s.close()
		pause(time.Minute)
		s.published(image.Empty())
		s.published(imageAt(t, 1))
		synctest.Wait()
		pause(time.Minute)
		s.published(imageAt(t, 1)) // nothing new
		synctest.Wait()
		s.published(imageAt(t, 2)) // after a failure it tries again
		synctest.Wait()
		if len(store.asked) != 2 {
			t.Errorf("%d attempts, want 2", len(store.asked))
		}
	})
}

func TestOneSnapshotAtATimeAndNoneAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &failingStore{err: errors.New("disk full"), hold: time.Hour}
		s := newTestSnapshotter(store, SnapshotOptions{MaxNewRecordBytes: 1, MaxInterval: -1})
		for i := range int64(3) {
			s.grew(1)
			s.published(imageAt(t, i))
			synctest.Wait()
		}
		began := time.Now()
		s.close()
		if time.Since(began) > 0 {
			t.Error("the end waited for the snapshot")
		}
		s.grew(1)
		s.published(imageAt(t, 9))
		if len(store.asked) != 1 {
			t.Errorf("%d attempts, want 1", len(store.asked))
		}
	})
}
