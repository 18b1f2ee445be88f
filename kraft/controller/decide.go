package controller

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Decides says whether Decide handles an API key.
func Decides(key int16) bool {
	switch key {
	case 19, 20, 33, 37, 43, 44, 45, 49, 51, 56, 57, 62, 63, 64, 67, 70, 73, 94:
		return true
	}
	return false
}

// between says whether an API is one between nodes, which needs CLUSTER_ACTION.
func between(key int16) bool {
	switch key {
	case 56, 62, 63, 67, 70, 73:
		return true
	}
	return false
}

// Decide decides a request that the active controller handles; ok is false for any other.
func (d *Decider) Decide(req kmsg.Request) (res Result, ok bool) {
	if !Decides(req.Key()) {
		return Result{}, false
	}
	if between(req.Key()) && !d.req.allowedOnCluster(opClusterAction) {
		return Result{Response: Refusal(req, refuseBare(codeClusterAuthorization))}, true
	}
	if d.Image.MetadataVersion() == 0 {
		// The bootstrap records are still on their way: nothing can be decided without a metadata.version.
		return Result{Response: Refusal(req, refuseBare(codeNotController))}, true
	}
	switch r := req.(type) {
	case *kmsg.CreateTopicsRequest:
		return d.CreateTopics(r), true
	case *kmsg.DeleteTopicsRequest:
		return d.DeleteTopics(r), true
	case *kmsg.CreatePartitionsRequest:
		return d.CreatePartitions(r), true
	case *kmsg.AlterConfigsRequest:
		return d.AlterConfigs(r), true
	case *kmsg.IncrementalAlterConfigsRequest:
		return d.IncrementalAlterConfigs(r), true
	case *kmsg.ElectLeadersRequest:
		return d.ElectLeaders(r), true
	case *kmsg.AlterPartitionAssignmentsRequest:
		return d.AlterPartitionReassignments(r), true
	case *kmsg.AlterClientQuotasRequest:
		return d.AlterClientQuotas(r), true
	case *kmsg.AlterUserSCRAMCredentialsRequest:
		return d.AlterUserScramCredentials(r), true
	}
	return d.decideForNodes(req)
}

// decideForNodes decides what brokers and controllers ask, and what is done to them.
func (d *Decider) decideForNodes(req kmsg.Request) (Result, bool) {
	switch r := req.(type) {
	case *kmsg.AlterPartitionRequest:
		return d.AlterPartition(r), true
	case *kmsg.UpdateFeaturesRequest:
		return d.UpdateFeatures(r), true
	case *kmsg.BrokerRegistrationRequest:
		return d.BrokerRegistration(r), true
	case *kmsg.BrokerHeartbeatRequest:
		return d.BrokerHeartbeat(r), true
	case *kmsg.UnregisterBrokerRequest:
		return d.UnregisterBroker(r), true
	case *kmsg.AllocateProducerIDsRequest:
		return d.AllocateProducerIDs(r), true
	case *kmsg.ControllerRegistrationRequest:
		return d.ControllerRegistration(r), true
	case *kmsg.AssignReplicasToDirsRequest:
		return d.AssignReplicasToDirs(r), true
	case *kmsg.UnregisterControllerRequest:
		return d.UnregisterController(r), true
	}
	return Result{}, false
}
