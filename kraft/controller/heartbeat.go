package controller

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/kraft/metadata"
	"gregor/protocol"
)

// brokerState is a step of a broker's life as its heartbeats drive it (KIP-631).
type brokerState int8

const (
	stateFenced brokerState = iota
	stateUnfenced
	stateControlledShutdown
	stateShutdownNow
)

func (s brokerState) isFenced() bool { return s == stateFenced || s == stateShutdownNow }

// BrokerHeartbeat decides BrokerHeartbeat (63) v0-2: fencing, unfencing and controlled shutdown, log directories
// that failed (v1) and cordoned ones (v2).
func (d *Decider) BrokerHeartbeat(req *kmsg.BrokerHeartbeatRequest) Result {
	resp := req.ResponseKind().(*kmsg.BrokerHeartbeatResponse)
	res := Result{Response: resp}
	if f := d.checkBrokerEpoch(req.BrokerID, req.BrokerEpoch); f != nil {
		resp.ErrorCode = f.Code
		return res
	}
	registeredAt, ok := d.RegistrationOffset(req.BrokerID)
	if !ok {
		resp.ErrorCode = codeUnknownServer
		return res
	}
	current, next := d.nextState(req, registeredAt)
	if current != next {
		switch next {
		case stateFenced, stateShutdownNow:
			res.Records = d.fenceBroker(res.Records, req.BrokerID)
		case stateUnfenced:
			res.Records = d.unfenceBroker(res.Records, req.BrokerID, req.BrokerEpoch)
		case stateControlledShutdown:
			res.Records = d.enterShutdown(res.Records, req.BrokerID, req.BrokerEpoch)
		}
	}
	if d.features.directoryAssignment() {
		res.Records = d.directoriesOffline(res.Records, req.BrokerID, req.BrokerEpoch, req.OfflineLogDirs)
	}
	if d.features.cordonedLogDirs() && req.CordonedLogDirs != nil {
		res.Records = d.directoriesCordoned(res.Records, req.BrokerID, req.BrokerEpoch, req.CordonedLogDirs)
	}
	resp.IsCaughtUp = req.CurrentMetadataOffset >= registeredAt
	resp.IsFenced = next.isFenced()
	resp.ShouldShutdown = next == stateShutdownNow
	sessions, broker, offset := d.Sessions, req.BrokerID, req.CurrentMetadataOffset
	res.Applied = func(lastOffset int64) {
		sessions.heartbeat(broker, next.isFenced(), offset)
		switch next {
		case stateControlledShutdown:
			sessions.enterShutdown(broker, lastOffset)
		case stateShutdownNow:
			sessions.end(broker)
		case stateFenced, stateUnfenced: // the heartbeat has said it all
		}
	}
	return res
}

// nextState says in which state a broker is and in which its heartbeat puts it.
func (d *Decider) nextState(req *kmsg.BrokerHeartbeatRequest, registeredAt int64) (current, next brokerState) {
	broker := d.Image.Cluster.Broker(req.BrokerID)
	switch {
	case d.Sessions.shuttingDown(req.BrokerID) && !broker.Fenced:
		return stateControlledShutdown, d.stateInShutdown(req.BrokerID)
	case broker.Fenced:
		switch {
		case req.WantShutdown:
			return stateFenced, stateShutdownNow
		case !req.WantFence && req.CurrentMetadataOffset >= registeredAt:
			return stateFenced, stateUnfenced
		}
		return stateFenced, stateFenced
	}
	switch {
	case req.WantFence && req.WantShutdown:
		return stateUnfenced, stateShutdownNow
	case req.WantFence:
		return stateUnfenced, stateFenced
	case req.WantShutdown && d.hasLeaderships(req.BrokerID):
		return stateUnfenced, stateControlledShutdown
	case req.WantShutdown:
		return stateUnfenced, stateShutdownNow
	}
	return stateUnfenced, stateUnfenced
}

// stateInShutdown keeps a broker in controlled shutdown until it leads nothing and all others have applied that.
func (d *Decider) stateInShutdown(broker int32) brokerState {
	if d.hasLeaderships(broker) || d.Sessions.brokers[broker].shutdownOffset > d.Sessions.lowestActiveOffset() {
		return stateControlledShutdown
	}
	return stateShutdownNow
}

func (d *Decider) checkBrokerEpoch(broker int32, epoch int64) *Fault {
	b := d.Image.Cluster.Broker(broker)
	switch {
	case b == nil:
		return refuse(codeStaleBrokerEpoch, "No broker registration found for broker id %d", broker)
	case b.Epoch != epoch:
		return refuse(codeStaleBrokerEpoch, "Expected broker epoch %d, but got broker epoch %d", b.Epoch, epoch)
	}
	return nil
}

// fenceBroker moves leaderships away from a broker, takes it out of all ISRs and fences it.
func (d *Decider) fenceBroker(out []metadata.Record, broker int32) []metadata.Record {
	out = d.updatePartitions(out, partitionUpdate{remove: broker, add: noLeader, unclean: noLeader}, inISR(broker))
	r := metadata.NewBrokerRegistrationChangeRecord()
	r.BrokerID, r.BrokerEpoch, r.Fenced = broker, d.Image.Cluster.Broker(broker).Epoch, 1
	return append(out, r)
}

// unfenceBroker unfences a broker and gives it partitions that have no leader.
func (d *Decider) unfenceBroker(out []metadata.Record, broker int32, epoch int64) []metadata.Record {
	r := metadata.NewBrokerRegistrationChangeRecord()
	r.BrokerID, r.BrokerEpoch, r.Fenced = broker, epoch, -1
	out = append(out, r)
	return d.updatePartitions(out, partitionUpdate{remove: noLeader, add: broker, unclean: noLeader}, leaderless)
}

// enterShutdown moves leaderships away from a broker that wants to stop.
func (d *Decider) enterShutdown(out []metadata.Record, broker int32, epoch int64) []metadata.Record {
	if !d.Image.Cluster.Broker(broker).InControlledShutdown {
		r := metadata.NewBrokerRegistrationChangeRecord()
		r.BrokerID, r.BrokerEpoch, r.InControlledShutdown = broker, epoch, 1
		out = append(out, r)
	}
	return d.updatePartitions(out, partitionUpdate{remove: broker, add: noLeader, unclean: noLeader}, inISR(broker))
}

// shutDown cleans up after the previous incarnation of a broker that registers anew. Without proof of a clean
// shutdown its disk may lack what it acknowledged: it leaves all ELRs as well (KIP-966).
func (d *Decider) shutDown(out []metadata.Record, broker int32, clean bool) []metadata.Record {
	if !d.features.elr() || clean {
		return d.updatePartitions(out, partitionUpdate{remove: broker, add: noLeader, unclean: noLeader}, inISR(broker))
	}
	up := partitionUpdate{remove: noLeader, add: noLeader, unclean: broker}
	out = d.updatePartitions(out, up, inISR(broker))
	return d.updatePartitions(out, up, inELR(broker))
}

// directoriesOffline fails the replicas in directories that a broker newly reports as failed.
func (d *Decider) directoriesOffline(
	out []metadata.Record, broker int32, epoch int64, offline [][16]byte,
) []metadata.Record {
	var gone, left []protocol.UUID
	for _, dir := range d.Image.Cluster.Broker(broker).Directories {
		if slices.Contains(offline, [16]byte(dir)) {
			gone = append(gone, dir)
		} else {
			left = append(left, dir)
		}
	}
	if len(gone) == 0 {
		return out
	}
	out = d.updatePartitions(out, partitionUpdate{remove: broker, add: noLeader, unclean: noLeader},
		inDirectories(broker, gone))
	r := metadata.NewBrokerRegistrationChangeRecord()
	r.BrokerID, r.BrokerEpoch, r.LogDirs = broker, epoch, left
	return append(out, r)
}

// directoriesCordoned notes which directories get no new replicas (KIP-1066).
func (d *Decider) directoriesCordoned(
	out []metadata.Record, broker int32, epoch int64, cordoned [][16]byte,
) []metadata.Record {
	dirs := make([]protocol.UUID, len(cordoned))
	for i, dir := range cordoned {
		dirs[i] = dir
	}
	if sameDirs(d.Image.Cluster.Broker(broker).CordonedDirectories, dirs) {
		return out
	}
	r := metadata.NewBrokerRegistrationChangeRecord()
	r.BrokerID, r.BrokerEpoch, r.CordonedLogDirs = broker, epoch, dirs
	return append(out, r)
}
