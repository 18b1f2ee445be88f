package broker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// producerIDs hands out producer ids from blocks that the controller gives to this broker (KIP-730). An id is never
// given out twice in the cluster; those of a block that are left at a stop are lost, as in Kafka.
type producerIDs struct {
	controllers *controllers
	nodeID      int32
	epoch       func() int64 // of the broker's registration

	mu        sync.Mutex // held while a block is fetched: the others that wait need the same block
	next, end int64
}

// Next implements api.ProducerIDs.
func (p *producerIDs) Next(ctx context.Context) (int64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == p.end {
		if err := p.fetch(ctx); err != nil {
			return -1, err
		}
	}
	id := p.next
	p.next++
	return id, nil
}

// allocateTimeout bounds the wait for a block; clients retry COORDINATOR_LOAD_IN_PROGRESS.
const allocateTimeout = 5 * time.Second

func (p *producerIDs) fetch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, allocateTimeout)
	defer cancel()
	req := kmsg.NewPtrAllocateProducerIDsRequest()
	req.BrokerID, req.BrokerEpoch = p.nodeID, p.epoch()
	resp, err := p.controllers.do(ctx, req, func(r kmsg.Response) bool {
		x, ok := r.(*kmsg.AllocateProducerIDsResponse)
		return ok && x.ErrorCode == kerr.NotController.Code
	})
	if err != nil {
		return fmt.Errorf("%w: %w", kerr.CoordinatorLoadInProgress, err)
	}
	x, _ := resp.(*kmsg.AllocateProducerIDsResponse)
	if err := kerr.ErrorForCode(x.ErrorCode); err != nil {
		// A stale broker epoch: the next registration brings a new one.
		return fmt.Errorf("%w: controller gives no producer ids: %w", kerr.CoordinatorLoadInProgress, err)
	}
	p.next, p.end = x.ProducerIDStart, x.ProducerIDStart+int64(x.ProducerIDLen)
	return nil
}
