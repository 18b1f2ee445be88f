package controller

import (
	"math"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/kraft/metadata"
	"gregor/protocol"
)

// ControllerRegistration decides ControllerRegistration (70) v0 (KIP-919).
func (d *Decider) ControllerRegistration(req *kmsg.ControllerRegistrationRequest) Result {
	resp := req.ResponseKind().(*kmsg.ControllerRegistrationResponse)
	if !d.features.SupportsControllerRegistration() {
		resp.ErrorCode, resp.ErrorMessage = codeAndMessage(refuse(codeUnsupportedVersion,
			"The current MetadataVersion is too old to support controller registrations."))
		return Result{Response: resp}
	}
	r := metadata.NewRegisterControllerRecord()
	r.ControllerID, r.IncarnationID = req.ControllerID, protocol.UUID(req.IncarnationID)
	for _, l := range req.Listeners {
		r.EndPoints = append(r.EndPoints, metadata.ControllerEndpoint{
			Name: l.Name, Host: l.Host, Port: l.Port, SecurityProtocol: l.SecurityProtocol,
		})
	}
	for _, f := range req.Features {
		r.Features = append(r.Features, metadata.ControllerFeature{
			Name: f.Name, MinSupportedVersion: f.MinSupportedVersion, MaxSupportedVersion: f.MaxSupportedVersion,
		})
	}
	return Result{Records: []metadata.Record{r}, Atomic: true, Response: resp}
}

// UnregisterController decides UnregisterController (94) v0: a controller that is gone for good stops to block feature
// upgrades.
func (d *Decider) UnregisterController(req *kmsg.UnregisterControllerRequest) Result {
	resp := req.ResponseKind().(*kmsg.UnregisterControllerResponse)
	var f *Fault
	switch {
	case !d.req.allowedOnCluster(opAlter):
		f = refuseBare(codeClusterAuthorization)
	case req.ControllerID == d.cfg.NodeID:
		f = refuse(codeInvalidRequest, "Controller cannot unregister itself while it is active.")
	case !d.features.SupportsControllerUnregistration():
		f = refuse(codeUnsupportedVersion,
			"The current MetadataVersion is too old to support controller unregistration.")
	case d.Image.Cluster.Controller(req.ControllerID) == nil:
		f = refuse(codeControllerNotRegistered, "Controller ID %d is not currently registered.", req.ControllerID)
	}
	if f != nil {
		resp.ErrorCode, resp.ErrorMessage = codeAndMessage(f)
		return Result{Response: resp}
	}
	r := metadata.NewUnregisterControllerRecord()
	r.ControllerID = req.ControllerID
	return Result{Records: []metadata.Record{r}, Atomic: true, Response: resp}
}

// Endpoint types of DescribeCluster (KIP-919).
const (
	endpointBrokers     int8 = 1
	endpointControllers int8 = 2
)

// DescribeCluster answers DescribeCluster (60) v0-2 on a controller's listener: its "brokers" are the controllers.
func (d *Decider) DescribeCluster(req *kmsg.DescribeClusterRequest, active int32) Result {
	resp := req.ResponseKind().(*kmsg.DescribeClusterResponse)
	resp.ClusterAuthorizedOperations = math.MinInt32
	var f *Fault
	switch {
	case !d.features.SupportsControllerRegistration():
		f = refuse(codeUnsupportedVersion,
			"Direct-to-controller communication is not supported with the current MetadataVersion.")
	case !d.req.allowedOnCluster(opAlter):
		f = refuseBare(codeClusterAuthorization)
	default:
		f = checkEndpointType(req.Version, req.EndpointType)
	}
	if f != nil {
		resp.ErrorCode, resp.ErrorMessage = codeAndMessage(f)
		return Result{Response: resp}
	}
	resp.EndpointType = endpointControllers
	resp.ClusterID, resp.ControllerID = d.cfg.ClusterID, active
	for c := range d.Image.Cluster.Controllers() {
		e, ok := c.Endpoint(d.req.Listener)
		if !ok {
			continue
		}
		b := kmsg.NewDescribeClusterResponseBroker()
		b.NodeID, b.Host, b.Port = c.ID, e.Host, int32(e.Port)
		resp.Brokers = append(resp.Brokers, b)
	}
	if req.IncludeClusterAuthorizedOperations {
		resp.ClusterAuthorizedOperations = d.clusterOperations()
	}
	return Result{Response: resp}
}

// checkEndpointType refuses a request that asks for brokers; before v1 there was no way to ask for controllers.
func checkEndpointType(version int16, endpointType int8) *Fault {
	var f *Fault
	switch endpointType {
	case endpointControllers:
		return nil
	case endpointBrokers:
		f = refuse(codeMismatchedEndpointType, "The request was sent to an endpoint of type CONTROLLER, but we wanted an "+
			"endpoint of type BROKER")
	default:
		f = refuse(codeUnsupportedEndpointType, "Unsupported endpoint type %d", endpointType)
	}
	if version == 0 {
		f.Code = codeInvalidRequest
	}
	return f
}

// clusterOperations are the operations on the cluster that the caller may do, as a bit field.
func (d *Decider) clusterOperations() int32 {
	if !d.req.allowedOnCluster(opDescribe) {
		return 0
	}
	var bits int32
	for _, op := range []int8{5, 7, 8, 9, 10, 11, 12} {
		if d.req.allowedOnCluster(op) {
			bits |= 1 << op
		}
	}
	return bits
}
