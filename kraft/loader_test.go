package kraft

import (
	"errors"
	"log/slog"
	"testing"

	"gregor/kraft/image"
	"gregor/kraft/metadata"
	"gregor/kraft/quorum"
	"gregor/protocol"
)

// publications notes the offset and the number of topics of each image.
type publications struct{ offsets, topics []int64 }

func (p *publications) Name() string { return "test" }

func (p *publications) Publish(_ *image.Delta, img *image.Image, _ image.Manifest) {
	p.offsets = append(p.offsets, img.Provenance.Offset)
	p.topics = append(p.topics, int64(img.Topics.Counts().Topics))
}

func TestFirstImageHasAllThatIsCommittedHoweverMuchThatIs(t *testing.T) {
	const records = 3*maxRecordsPerPublication + 7
	committed := int64(records)
	l := newLoader(slog.New(slog.DiscardHandler), func() int64 { return committed })
	l.snapshots = newSnapshotter(SnapshotOptions{MaxNewRecordBytes: 1 << 60, MaxInterval: -1}, &failingStore{err: errors.ErrUnsupported}, l.logger)
	defer l.snapshots.close()
	var p publications
	l.publishers = append(l.publishers, &p)
	for offset := range int64(records) {
		l.Commit(topicAt(offset))
	}
	if len(p.offsets) != 1 || p.offsets[0] != records-1 || p.topics[0] != records {
		t.Fatalf("images at %v with %v topics; what the first one lacks is taken for gone", p.offsets, p.topics)
	}
	select {
	case <-l.loaded:
	default:
		t.Error("the loader does not count as caught up")
	}
	committed += records
	for offset := int64(records); offset < committed; offset++ {
		l.Commit(topicAt(offset))
	}
	if len(p.offsets) != 1+3+1 {
		t.Errorf("later images are at %v: they are bounded", p.offsets[1:])
	}
}

// topicAt is a committed batch of one record: a topic that is new.
func topicAt(offset int64) quorum.CommittedBatch {
	id := protocol.UUID{0: 1, 13: byte(offset >> 16), 14: byte(offset >> 8), 15: byte(offset)}
	return quorum.CommittedBatch{
		BaseOffset: offset, LastOffset: offset, Epoch: 1, SizeBytes: 100,
		Records: []metadata.Record{&metadata.TopicRecord{Name: id.String(), TopicID: id}},
	}
}

// misfitAt is a committed batch whose record cannot be replayed.
func misfitAt(offset int64) quorum.CommittedBatch {
	b := topicAt(offset)
	b.Records = []metadata.Record{&metadata.RemoveTopicRecord{TopicID: protocol.UUID{15: 9}}}
	return b
}

func TestRecordThatDoesNotFitEndsAControllerAndCostsABrokerItsSnapshots(t *testing.T) {
	for name, controller := range map[string]bool{"controller": true, "broker": false} {
		t.Run(name, func(t *testing.T) {
			next := int64(0)
			store := &failingStore{err: errors.ErrUnsupported}
			l := newLoader(slog.New(slog.DiscardHandler), func() int64 { return next })
			l.snapshots = newTestSnapshotter(store, SnapshotOptions{MaxNewRecordBytes: 1, MaxInterval: -1})
			var failed error
			if controller {
				l.fail = func(err error) { failed = err }
			}
			var p publications
			l.publishers = append(l.publishers, &p)
			level := &metadata.FeatureLevelRecord{Name: metadata.FeatureMetadataVersion, FeatureLevel: int16(metadata.LatestMetadataVersion)}
			first := quorum.CommittedBatch{Epoch: 1, SizeBytes: 100, Records: []metadata.Record{level}}
			batches := []quorum.CommittedBatch{first, topicAt(1), misfitAt(2)}
			if !controller {
				batches = append(batches, topicAt(3))
			}
			before := 0
			for _, b := range batches {
				next = b.LastOffset + 1
				l.Commit(b)
				l.snapshots.workers.Wait()
				if b.BaseOffset == 1 {
					before = len(store.asked)
				}
			}
			l.snapshots.close()
			if before == 0 || len(store.asked) > before {
				t.Errorf("snapshots at %v, %d of them before the record", store.asked, before)
			}
			last := p.offsets[len(p.offsets)-1]
			if controller && (!errors.Is(failed, image.ErrInconsistent) || last != 1) {
				t.Errorf("failed with %v; the last image is at %d", failed, last)
			}
			if !controller && (last != 3 || p.topics[len(p.topics)-1] != 2) {
				t.Errorf("images at %v with %v topics", p.offsets, p.topics)
			}
		})
	}
}
