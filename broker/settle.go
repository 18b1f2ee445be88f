package broker

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// settleLimit bounds how long an answer waits for this node's own image.
const settleLimit = time.Second

// settle waits until this node's image shows what its quorum has committed. An answer of the controller comes by another
// way than the committed log does, so that without it a client could be told that its topic exists and then not
// find it. On a node that hears of the commit only later there is nothing to wait for, as in Kafka.
func (b *Broker) settle(ctx context.Context) {
	committed := b.node.HighWatermark()
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	for {
		moved := b.loaded.published()
		if b.node.Image().Provenance.Offset+1 >= committed {
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
