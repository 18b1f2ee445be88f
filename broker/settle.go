package broker

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/kraft/image"
)

// settleLimit bounds how long an answer waits for this node to take over what it answers of.
const settleLimit = time.Second

// settled is the last of the publishers: it knows up to where all parts of this node have taken the metadata over. In
// particular, the partitions that the image gives to this broker are led by it.
type settled struct {
	mu    sync.Mutex
	image *image.Image  // the last one taken over
	moved chan struct{} // closed at the next publication
}

func newSettled() *settled { return &settled{image: image.Empty(), moved: make(chan struct{})} }

// Name implements image.Publisher.
func (s *settled) Name() string { return "settled" }

// Publish implements image.Publisher.
func (s *settled) Publish(_ *image.Delta, img *image.Image, _ image.Manifest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.image = img
	close(s.moved)
	s.moved = make(chan struct{})
}

func (s *settled) load() (img *image.Image, moved <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.image, s.moved
}

// settle waits until this node has taken over what its quorum has committed. An answer of the controller comes by another
// way than the committed log does, so that without it a client could be told that its topic exists and then not
// find it, or not find its leader. On a node that hears of the commit only later there is nothing to wait for, as
// in Kafka.
func (b *Broker) settle(ctx context.Context) {
	committed := b.node.HighWatermark()
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	for {
		img, moved := b.settled.load()
		if img.Provenance.Offset+1 >= committed {
			return
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return
		}
	}
}

// changesMetadata tells whether a forwarded request may have changed what an image shows.
func changesMetadata(req kmsg.Request) bool {
	switch req.(type) {
	case *kmsg.DescribeQuorumRequest, *kmsg.ListPartitionReassignmentsRequest:
		return false
	}
	return true
}
