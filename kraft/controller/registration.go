package controller

import (
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/kraft/image"
	"gregor/kraft/metadata"
	"gregor/protocol"
)

// noEpoch is a previous broker epoch that no request can name.
const noEpoch int64 = -2

// BrokerRegistration decides BrokerRegistration (62) v0-4. Since v3 a broker that stopped cleanly names its previous
// epoch; one that does not is taken to have lost unflushed data.
func (d *Decider) BrokerRegistration(req *kmsg.BrokerRegistrationRequest) Result {
	resp := req.ResponseKind().(*kmsg.BrokerRegistrationResponse)
	record, f := d.registerBroker(req)
	if f != nil {
		resp.ErrorCode = f.Code
		return Result{Response: resp}
	}
	existing := d.Image.Cluster.Broker(req.BrokerID)
	var out []metadata.Record
	if existing == nil || existing.Incarnation != protocol.UUID(req.IncarnationID) {
		previous := noEpoch
		if existing != nil {
			previous = existing.Epoch
		}
		clean := req.Version >= 3 && previous == req.PreviousBrokerEpoch
		out = d.shutDown(out, req.BrokerID, clean)
		record.BrokerEpoch = d.NextOffset
	} else {
		record.Fenced = existing.Fenced
		record.InControlledShutdown = existing.InControlledShutdown
		record.BrokerEpoch = existing.Epoch
	}
	resp.BrokerEpoch = record.BrokerEpoch
	return Result{Records: append(out, record), Response: resp}
}

// registerBroker checks a registration and makes its record, still without the epoch.
func (d *Decider) registerBroker(req *kmsg.BrokerRegistrationRequest) (*metadata.RegisterBrokerRecord, *Fault) {
	if req.ClusterID != d.cfg.ClusterID {
		return nil, refuse(codeInconsistentClusterID, "Expected cluster ID %s, but got cluster ID %s",
			d.cfg.ClusterID, req.ClusterID)
	}
	existing := d.Image.Cluster.Broker(req.BrokerID)
	if existing != nil && existing.Incarnation != protocol.UUID(req.IncarnationID) &&
		d.Sessions.valid(req.BrokerID, existing.Epoch, d.Now) && !d.followsKilled(req, existing) {
		return nil, refuse(codeDuplicateBroker, "Another broker is registered with that broker id. If the broker was "+
			"recently restarted this should self-resolve once the heartbeat manager expires the broker's session.")
	}
	if req.IsMigratingZkBroker {
		return nil, refuse(codeBrokerNotRegistered, "Controller does not support registering ZK brokers.")
	}
	if f := d.checkLogDirs(req); f != nil {
		return nil, f
	}
	if f := d.checkBrokerFeatures(req); f != nil {
		return nil, f
	}
	r := metadata.NewRegisterBrokerRecord()
	r.BrokerID, r.IncarnationID, r.Rack, r.Fenced = req.BrokerID, req.IncarnationID, req.Rack, true
	for _, l := range req.Listeners {
		r.EndPoints = append(r.EndPoints, metadata.BrokerEndpoint{
			Name: l.Name, Host: l.Host, Port: l.Port, SecurityProtocol: l.SecurityProtocol,
		})
	}
	for _, f := range req.Features {
		r.Features = append(r.Features, metadata.BrokerFeature{
			Name: f.Name, MinSupportedVersion: f.MinSupportedVersion, MaxSupportedVersion: f.MaxSupportedVersion,
		})
	}
	if d.features.directoryAssignment() {
		for _, dir := range req.LogDirs {
			r.LogDirs = append(r.LogDirs, dir)
		}
	}
	return r, nil
}

// followsKilled tells whether a registration is of the broker beside this controller, in the same process and on the same
// disks: its earlier incarnation is dead, or the lock of the log directories would not have let this one start. So a node
// that was killed need not wait for its own session to end. Another node that was given this one's id by mistake has
// other directories, and is refused as in Kafka.
func (d *Decider) followsKilled(req *kmsg.BrokerRegistrationRequest, existing *image.Broker) bool {
	return req.BrokerID == d.cfg.NodeID && slices.ContainsFunc(existing.Directories, func(dir protocol.UUID) bool {
		return slices.Contains(req.LogDirs, [16]byte(dir))
	})
}

func (d *Decider) checkLogDirs(req *kmsg.BrokerRegistrationRequest) *Fault {
	if !d.features.directoryAssignment() {
		return nil
	}
	if len(req.LogDirs) == 0 {
		return refuse(codeInvalidRegistration, "No directories specified in request")
	}
	for i, dir := range req.LogDirs {
		switch {
		case protocol.UUID(dir).IsReservedDirectory():
			return refuse(codeInvalidRegistration, "Reserved directory ID in request")
		case slices.Contains(req.LogDirs[:i], dir):
			return refuse(codeInvalidRegistration, "Duplicate directory ID in request")
		}
	}
	for b := range d.Image.Cluster.Brokers() {
		if b.ID == req.BrokerID {
			continue
		}
		for _, dir := range b.Directories {
			if slices.Contains(req.LogDirs, [16]byte(dir)) {
				return refuse(codeInvalidRegistration, "Broker %d is already registered with directory %s", b.ID, dir)
			}
		}
	}
	return nil
}

// checkBrokerFeatures refuses a broker that cannot run at a finalized feature level.
func (d *Decider) checkBrokerFeatures(req *kmsg.BrokerRegistrationRequest) *Fault {
	finalized := d.finalizedLevels()
	seen := make(map[string]bool, len(req.Features))
	for _, f := range req.Features {
		seen[f.Name] = true
		if fault := checkBrokerFeature(f.Name, finalized[f.Name], Range{f.MinSupportedVersion, f.MaxSupportedVersion}); fault != nil {
			return fault
		}
	}
	if !seen[metadata.FeatureMetadataVersion] {
		return refuse(codeInvalidRegistration, "Request features do not contain 'metadata.version'")
	}
	for _, name := range sortedKeys(finalized) {
		if level := finalized[name]; level != 0 && !seen[name] {
			if fault := checkBrokerFeature(name, level, Range{}); fault != nil {
				return fault
			}
		}
	}
	return nil
}

func checkBrokerFeature(name string, finalized int16, supported Range) *Fault {
	if supported.Contains(finalized) {
		return nil
	}
	return refuse(codeUnsupportedVersion, "Unable to register because the broker does not support finalized version %d "+
		"of %s. The broker wants a version between %d and %d, inclusive.", finalized, name, supported.Min, supported.Max)
}

// finalizedLevels are the finalized features, kraft.version included.
func (d *Decider) finalizedLevels() map[string]int16 {
	out := map[string]int16{metadata.FeatureKRaftVersion: d.KRaftVersion}
	maps.Insert(out, d.Image.Features.All())
	return out
}

// UnregisterBroker decides UnregisterBroker (64) v0.
func (d *Decider) UnregisterBroker(req *kmsg.UnregisterBrokerRequest) Result {
	resp := req.ResponseKind().(*kmsg.UnregisterBrokerResponse)
	if !d.req.allowedOnCluster(opAlter) {
		resp.ErrorCode = codeClusterAuthorization
		return Result{Response: resp}
	}
	b := d.Image.Cluster.Broker(req.BrokerID)
	if b == nil {
		f := refuse(codeBrokerNotRegistered, "Broker ID %d is not currently registered", req.BrokerID)
		resp.ErrorCode, resp.ErrorMessage = codeAndMessage(f)
		return Result{Response: resp}
	}
	up := partitionUpdate{remove: req.BrokerID, add: noLeader, unclean: noLeader}
	out := d.updatePartitions(nil, up, inISR(req.BrokerID))
	out = d.updatePartitions(out, up, inELR(req.BrokerID))
	r := metadata.NewUnregisterBrokerRecord()
	r.BrokerID, r.BrokerEpoch = req.BrokerID, b.Epoch
	return Result{Records: append(out, r), Response: resp}
}
