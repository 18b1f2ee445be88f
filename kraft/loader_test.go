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
	commit := func(offset int64) {
		var id protocol.UUID
		id[0], id[13], id[14], id[15] = 1, byte(offset>>16), byte(offset>>8), byte(offset)
		l.Commit(quorum.CommittedBatch{
			BaseOffset: offset, LastOffset: offset, Epoch: 1, SizeBytes: 100,
			Records: []metadata.Record{&metadata.TopicRecord{Name: id.String(), TopicID: id}},
		})
	}
	for offset := range int64(records) {
		commit(offset)
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
		commit(offset)
	}
	if len(p.offsets) != 1+3+1 {
		t.Errorf("later images are at %v: they are bounded", p.offsets[1:])
	}
}
