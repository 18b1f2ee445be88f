package kraft

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/kraft/image"
	"gregor/kraft/metadata"
	"gregor/protocol"
)

// Bounds of the wait between two attempts to register.
const (
	minRegistrationBackoff = 100 * time.Millisecond
	maxRegistrationBackoff = 60 * time.Second
)

// registrar registers this controller with the active one (KIP-919), anew with each start of the process. It is a
// publisher: the image tells whether the registration is there.
type registrar struct {
	node        *Node
	incarnation protocol.UUID
	changed     chan struct{}
	ctx         context.Context //nolint:containedctx // ends the goroutine at close
	cancel      context.CancelFunc
	done        chan struct{}
}

func newRegistrar(n *Node, incarnation protocol.UUID) *registrar {
	r := &registrar{node: n, incarnation: incarnation, changed: make(chan struct{}, 1), done: make(chan struct{})}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// Name implements image.Publisher.
func (r *registrar) Name() string { return "controller registration" }

// Publish implements image.Publisher.
func (r *registrar) Publish(*image.Delta, *image.Image, image.Manifest) {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// needed says whether the image lacks this incarnation's registration.
func (r *registrar) needed() bool {
	img := r.node.Image()
	if !img.MetadataVersion().SupportsControllerRegistration() {
		return false
	}
	c := img.Cluster.Controller(r.node.o.NodeID)
	return c == nil || c.Incarnation != r.incarnation
}

// run registers whenever it is needed, until close.
func (r *registrar) run() {
	defer close(r.done)
	backoff := minRegistrationBackoff
	retry := time.NewTimer(backoff)
	defer retry.Stop()
	for {
		select {
		case <-r.ctx.Done():
			return
		case <-r.changed:
			if !r.needed() {
				backoff = minRegistrationBackoff
			}
			continue
		case <-retry.C:
		}
		if r.needed() {
			if r.register() {
				backoff = minRegistrationBackoff
			} else {
				backoff = min(2*backoff, maxRegistrationBackoff)
			}
		}
		retry.Reset(backoff)
	}
}

// register sends one request to the active controller.
func (r *registrar) register() bool {
	n := r.node
	ctx, cancel := context.WithTimeout(r.ctx, n.o.Quorum.RequestTimeout)
	defer cancel()
	var resp kmsg.Response
	var err error
	if n.isActive() {
		resp, err = n.Handle(ctx, &RequestContext{Principal: "User:ANONYMOUS"}, r.request())
	} else if e, ok := n.LeaderEndpoint(); ok && n.o.Client != nil {
		resp, err = n.o.Client.Do(ctx, e, r.request())
	} else {
		return false
	}
	if err != nil {
		n.o.Logger.Info("controller registration: no answer", "error", err)
		return false
	}
	answer, ok := resp.(*kmsg.ControllerRegistrationResponse)
	if !ok || answer.ErrorCode != 0 {
		if ok {
			n.o.Logger.Info("controller registration: refused", "code", protocol.ErrorName(answer.ErrorCode))
		}
		return false
	}
	return true
}

func (r *registrar) request() *kmsg.ControllerRegistrationRequest {
	req := kmsg.NewPtrControllerRegistrationRequest()
	req.ControllerID, req.IncarnationID = r.node.o.NodeID, r.incarnation
	for _, l := range r.node.o.Controller.Listeners {
		e := kmsg.NewControllerRegistrationRequestListener()
		e.Name, e.Host, e.Port, e.SecurityProtocol = l.Name, l.Host, l.Port, l.SecurityProtocol
		req.Listeners = append(req.Listeners, e)
	}
	for _, f := range metadata.SupportedFeatures() {
		e := kmsg.NewControllerRegistrationRequestFeature()
		e.Name, e.MinSupportedVersion, e.MaxSupportedVersion = f.Name, f.Min, f.Max
		req.Features = append(req.Features, e)
	}
	return req
}

// close ends the goroutine.
func (r *registrar) close() {
	r.cancel()
	<-r.done
}
