package kraft

import (
	"log/slog"

	"gregor/kraft/image"
	"gregor/kraft/metadata"
	"gregor/kraft/quorum"
)

// maxRecordsPerPublication bounds how many records are gathered before publishers are told, while there are more. The first
// image is never cut: what it lacks, the publishers take for gone, and a broker would set aside the logs of partitions
// that come later in the log.
const maxRecordsPerPublication = 10_000

// loader turns the committed log into images and tells the publishers. It is a state machine of the quorum: its
// methods are called by one goroutine, in log order.
type loader struct {
	logger     *slog.Logger
	cell       image.Cell
	publishers []image.Publisher
	snapshots  *snapshotter
	// committedTo gives the end of what is committed: while there is more to come at once, publishing waits.
	committedTo func() int64
	// fail ends the node when a record cannot be replayed, if the node is a controller. On the others it is nil: they go on
	// without the record, as Kafka's brokers do, and write no snapshots any more.
	fail func(error)

	delta *image.Delta
	txns  metadata.Transactions
	// at is the provenance of the last record that is not held back by an open transaction.
	at       image.Provenance
	leader   quorum.LeaderAndEpoch
	manifest image.Manifest
	records  int

	published bool // at least once
	loaded    chan struct{}
}

func newLoader(logger *slog.Logger, committedTo func() int64) *loader {
	return &loader{
		logger: logger, committedTo: committedTo, loaded: make(chan struct{}),
		delta: image.NewDelta(image.Empty()), at: image.Empty().Provenance,
		leader: quorum.LeaderAndEpoch{LeaderID: quorum.NoLeader},
	}
}

// Commit implements quorum.StateMachine.
func (l *loader) Commit(b quorum.CommittedBatch) {
	for i, rec := range b.Records {
		if _, err := replay(l.delta, &l.txns, rec, b.BaseOffset+int64(i)); err != nil {
			if l.fail != nil {
				l.fail(err)
				return
			}
			l.logger.Error("metadata loader: record ignored, no more snapshots are written", "error", err)
			l.snapshots.disable()
		}
		l.records++
	}
	if !l.txns.Open() {
		l.at = image.Provenance{Offset: b.LastOffset, Epoch: b.Epoch, TimestampMillis: b.AppendTimestampMillis}
	}
	l.manifest.Batches++
	l.manifest.Bytes += int64(b.SizeBytes)
	l.snapshots.grew(int64(b.SizeBytes))
	more := b.LastOffset+1 < l.committedTo()
	if l.txns.Open() || more && (!l.published || l.records < maxRecordsPerPublication) {
		return
	}
	l.publish(image.ManifestLog)
}

// LoadSnapshot implements quorum.StateMachine.
func (l *loader) LoadSnapshot(r *quorum.SnapshotReader) error {
	img, batches, err := readImage(r)
	if err != nil {
		return err
	}
	l.txns.Reset()
	l.at = img.Provenance
	l.delta = image.Between(l.cell.Image(), img)
	l.manifest = image.Manifest{Batches: batches, Bytes: r.SizeBytes()}
	l.snapshots.loaded()
	if r.ID().Offset >= l.committedTo() {
		l.publish(image.ManifestSnapshot)
	}
	return nil
}

// readImage reads a snapshot into an image.
func readImage(r *quorum.SnapshotReader) (*image.Image, int, error) {
	delta := image.NewDelta(image.Empty())
	batches := 0
	for b, err := range r.Batches() {
		if err != nil {
			return nil, 0, err
		}
		batches++
		for _, rec := range b.Records {
			if err := delta.Replay(rec); err != nil {
				return nil, 0, err
			}
		}
	}
	return delta.Apply(image.Provenance{
		Offset: r.ID().Offset - 1, Epoch: r.ID().Epoch, TimestampMillis: r.LastContainedLogTimestampMillis(),
	}), batches, nil
}

// LeaderChange implements quorum.StateMachine.
func (l *loader) LeaderChange(leader quorum.LeaderAndEpoch) { l.leader = leader }

// publish makes the gathered changes the newest image and tells everybody.
func (l *loader) publish(kind image.ManifestKind) {
	img := l.delta.Apply(l.at)
	delta := l.delta
	manifest := l.manifest
	manifest.Kind, manifest.Provenance = kind, l.at
	manifest.LeaderID, manifest.LeaderEpoch = l.leader.LeaderID, l.leader.Epoch
	l.delta = image.NewDelta(img)
	l.manifest = image.Manifest{}
	l.records = 0
	l.cell.Store(img)
	for _, p := range l.publishers {
		p.Publish(delta, img, manifest)
	}
	l.snapshots.published(img)
	if !l.published {
		l.published = true
		close(l.loaded)
	}
}
