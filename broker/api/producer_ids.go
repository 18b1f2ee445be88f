package api

import (
	"context"
	"log/slog"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ProducerIDs hands out producer ids that nobody else in the cluster gets.
type ProducerIDs interface {
	Next(ctx context.Context) (int64, error)
}

// InitProducerId (key 22), versions 0 to 5.
//
//	2 flexible     3 producer id and epoch of the caller (KIP-360)     4 PRODUCER_FENCED     5 KIP-890
//
// Without a transactional id every call gives a new id with epoch 0, whatever the timeout. An empty transactional
// id, and only one of producer id and epoch, is INVALID_REQUEST. A transactional id is refused with
// TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which clients take as final, since this broker coordinates no
// transactions.
type initProducerID struct {
	ids ProducerIDs
	log *slog.Logger
}

func (h *initProducerID) handle(ctx context.Context, c *Call) kmsg.Response {
	req, _ := c.Request.(*kmsg.InitProducerIDRequest)
	resp := kmsg.NewPtrInitProducerIDResponse()
	resp.SetVersion(req.Version)
	resp.ProducerID, resp.ProducerEpoch = -1, -1
	switch {
	case req.TransactionalID != nil && *req.TransactionalID == "",
		(req.ProducerID == -1) != (req.ProducerEpoch == -1):
		resp.ErrorCode = kerr.InvalidRequest.Code
	case req.TransactionalID != nil:
		resp.ErrorCode = kerr.TransactionalIDAuthorizationFailed.Code
	default:
		id, err := h.ids.Next(ctx)
		if resp.ErrorCode = code(h.log, "InitProducerId", err); err == nil {
			resp.ProducerID, resp.ProducerEpoch = id, 0
		}
	}
	return resp
}
