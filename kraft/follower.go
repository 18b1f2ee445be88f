package kraft

import (
	"gregor/kraft/image"
	"gregor/kraft/metadata"
	"gregor/kraft/quorum"
)

// follower holds the committed state as the controller needs it: the image, where brokers registered, and whether a
// transaction is open.
type follower struct {
	image      *image.Image
	registered map[int32]int64
	txns       metadata.Transactions
	next       int64 // offset after the last committed record
}

func newFollower() follower {
	return follower{image: image.Empty(), registered: make(map[int32]int64)}
}

// batch applies a committed batch, or none of it when a record does not fit.
func (f *follower) batch(b *quorum.CommittedBatch) error {
	delta := image.NewDelta(f.image)
	for i, rec := range b.Records {
		applied, err := replay(delta, &f.txns, rec, b.BaseOffset+int64(i))
		if err != nil {
			return err
		}
		for _, r := range applied {
			switch reg := r.Record.(type) {
			case *metadata.RegisterBrokerRecord:
				f.registered[reg.BrokerID] = r.Offset
			case *metadata.UnregisterBrokerRecord:
				delete(f.registered, reg.BrokerID)
			}
		}
	}
	f.image = delta.Apply(image.Provenance{
		Offset: b.LastOffset, Epoch: b.Epoch, TimestampMillis: b.AppendTimestampMillis,
	})
	f.next = b.LastOffset + 1
	return nil
}

// snapshot replaces the state. Where in the snapshot's range a broker registered is not known; its end is safe.
func (f *follower) snapshot(img *image.Image) {
	f.image = img
	f.txns.Reset()
	f.next = img.Provenance.Offset + 1
	clear(f.registered)
	for b := range img.Cluster.Brokers() {
		f.registered[b.ID] = img.Provenance.Offset
	}
}
