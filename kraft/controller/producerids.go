package controller

import (
	"math"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/kraft/metadata"
)

// producerIDBlock is how many producer ids a broker gets at a time.
const producerIDBlock = 1000

// AllocateProducerIDs decides AllocateProducerIds (67) v0: the next block of ids is the broker's.
func (d *Decider) AllocateProducerIDs(req *kmsg.AllocateProducerIDsRequest) Result {
	resp := req.ResponseKind().(*kmsg.AllocateProducerIDsResponse)
	if f := d.checkBrokerEpoch(req.BrokerID, req.BrokerEpoch); f != nil {
		resp.ErrorCode = f.Code
		return Result{Response: resp}
	}
	first := d.Image.ProducerIDs.Next
	if first > math.MaxInt64-producerIDBlock {
		resp.ErrorCode = codeUnknownServer
		return Result{Response: resp}
	}
	resp.ProducerIDStart, resp.ProducerIDLen = first, producerIDBlock
	r := metadata.NewProducerIdsRecord()
	r.BrokerID, r.BrokerEpoch, r.NextProducerID = req.BrokerID, req.BrokerEpoch, first+producerIDBlock
	return Result{Records: []metadata.Record{r}, Response: resp}
}
