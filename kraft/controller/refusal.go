package controller

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// NotController is the refusal of a controller that is not the active one.
func NotController() *Fault { return refuseBare(codeNotController) }

// TimedOut is the refusal of a request that could not be finished in time.
func TimedOut() *Fault { return refuse(7, "The request timed out.") }

// Unauthorized is the refusal of a caller that lacks a right on the cluster.
func Unauthorized() *Fault { return refuseBare(codeClusterAuthorization) }

// Unsupported is the refusal of what the metadata.version or kraft.version does not allow.
func Unsupported(text string) *Fault { return refuse(codeUnsupportedVersion, "%s", text) }

// FaultOf turns any error into a refusal.
func FaultOf(err error) *Fault { return faultOf(err) }

// Refusal makes the response that refuses a whole request: at the top level where the API has one, else once for each
// item.
func Refusal(req kmsg.Request, f *Fault) kmsg.Response {
	resp := req.ResponseKind()
	code, message := codeAndMessage(f)
	switch r := req.(type) {
	case *kmsg.CreateTopicsRequest:
		out := resp.(*kmsg.CreateTopicsResponse)
		for i := range r.Topics {
			out.Topics = append(out.Topics, failedTopic(r.Topics[i].Topic, f))
		}
	case *kmsg.DeleteTopicsRequest:
		refuseDeletion(r, resp.(*kmsg.DeleteTopicsResponse), f)
	case *kmsg.CreatePartitionsRequest:
		out := resp.(*kmsg.CreatePartitionsResponse)
		for i := range r.Topics {
			out.Topics = append(out.Topics, grownTopic(r.Topics[i].Topic, f))
		}
	case *kmsg.AlterConfigsRequest:
		out := resp.(*kmsg.AlterConfigsResponse)
		for _, res := range r.Resources {
			e := kmsg.NewAlterConfigsResponseResource()
			e.ResourceType, e.ResourceName, e.ErrorCode, e.ErrorMessage = res.ResourceType, res.ResourceName, code, message
			out.Resources = append(out.Resources, e)
		}
	case *kmsg.IncrementalAlterConfigsRequest:
		out := resp.(*kmsg.IncrementalAlterConfigsResponse)
		for _, res := range r.Resources {
			e := kmsg.NewIncrementalAlterConfigsResponseResource()
			e.ResourceType, e.ResourceName, e.ErrorCode, e.ErrorMessage = res.ResourceType, res.ResourceName, code, message
			out.Resources = append(out.Resources, e)
		}
	case *kmsg.AlterClientQuotasRequest:
		refuseQuotas(r, resp.(*kmsg.AlterClientQuotasResponse), f)
	case *kmsg.AlterUserSCRAMCredentialsRequest:
		refuseScram(r, resp.(*kmsg.AlterUserSCRAMCredentialsResponse), f)
	case *kmsg.ElectLeadersRequest:
		refuseElection(r, resp.(*kmsg.ElectLeadersResponse), f)
	case *kmsg.AlterPartitionAssignmentsRequest:
		refuseReassignment(r, resp.(*kmsg.AlterPartitionAssignmentsResponse), f)
	default:
		refuseAtTop(resp, code, message)
	}
	return resp
}

// refuseAtTop sets the error of a response that has one for the whole request.
func refuseAtTop(resp kmsg.Response, code int16, message *string) {
	switch out := resp.(type) {
	case *kmsg.ListPartitionReassignmentsResponse:
		out.ErrorCode, out.ErrorMessage = code, message
	case *kmsg.AlterPartitionResponse:
		out.ErrorCode = code
	case *kmsg.UpdateFeaturesResponse:
		out.ErrorCode, out.ErrorMessage = code, message
	case *kmsg.BrokerRegistrationResponse:
		out.ErrorCode = code
	case *kmsg.BrokerHeartbeatResponse:
		out.ErrorCode = code
	case *kmsg.UnregisterBrokerResponse:
		out.ErrorCode, out.ErrorMessage = code, message
	case *kmsg.AllocateProducerIDsResponse:
		out.ErrorCode = code
	case *kmsg.ControllerRegistrationResponse:
		out.ErrorCode, out.ErrorMessage = code, message
	case *kmsg.AssignReplicasToDirsResponse:
		out.ErrorCode = code
	case *kmsg.UnregisterControllerResponse:
		out.ErrorCode, out.ErrorMessage = code, message
	case *kmsg.DescribeClusterResponse:
		out.ErrorCode, out.ErrorMessage = code, message
	case *kmsg.DescribeQuorumResponse:
		out.ErrorCode, out.ErrorMessage = code, message
	case *kmsg.EnvelopeResponse:
		out.ErrorCode = code
	default:
		refuseQuorumRequest(resp, code, message)
	}
}

// refuseQuorumRequest sets the error of the APIs about the quorum itself.
func refuseQuorumRequest(resp kmsg.Response, code int16, message *string) {
	switch out := resp.(type) {
	case *kmsg.AddRaftVoterResponse:
		out.ErrorCode, out.ErrorMessage = code, message
	case *kmsg.RemoveRaftVoterResponse:
		out.ErrorCode, out.ErrorMessage = code, message
	case *kmsg.UpdateRaftVoterResponse:
		out.ErrorCode = code
	case *kmsg.FetchResponse:
		out.ErrorCode = code
	case *kmsg.FetchSnapshotResponse:
		out.ErrorCode = code
	}
}

func refuseDeletion(r *kmsg.DeleteTopicsRequest, out *kmsg.DeleteTopicsResponse, f *Fault) {
	del := &deletion{resp: out}
	for _, name := range r.TopicNames {
		del.answer(&name, [16]byte{}, f)
	}
	for _, t := range r.Topics {
		del.answer(t.Topic, t.TopicID, f)
	}
}

// refuseElection sets the error of the whole (since v1) and that of each partition.
func refuseElection(r *kmsg.ElectLeadersRequest, out *kmsg.ElectLeadersResponse, f *Fault) {
	out.ErrorCode = f.Code
	for _, t := range r.Topics {
		e := kmsg.NewElectLeadersResponseTopic()
		e.Topic = t.Topic
		for _, i := range t.Partitions {
			p := kmsg.NewElectLeadersResponseTopicPartition()
			p.Partition = i
			p.ErrorCode, p.ErrorMessage = codeAndMessage(f)
			e.Partitions = append(e.Partitions, p)
		}
		out.Topics = append(out.Topics, e)
	}
}

// refuseReassignment sets the error of the whole and that of each partition.
func refuseReassignment(
	r *kmsg.AlterPartitionAssignmentsRequest, out *kmsg.AlterPartitionAssignmentsResponse, f *Fault,
) {
	out.ErrorCode, out.ErrorMessage = codeAndMessage(f)
	for _, t := range r.Topics {
		e := kmsg.NewAlterPartitionAssignmentsResponseTopic()
		e.Topic = t.Topic
		for _, asked := range t.Partitions {
			p := kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
			p.Partition = asked.Partition
			p.ErrorCode, p.ErrorMessage = codeAndMessage(f)
			e.Partitions = append(e.Partitions, p)
		}
		out.Topics = append(out.Topics, e)
	}
}

func refuseQuotas(r *kmsg.AlterClientQuotasRequest, out *kmsg.AlterClientQuotasResponse, f *Fault) {
	for _, entry := range r.Entries {
		e := kmsg.NewAlterClientQuotasResponseEntry()
		e.ErrorCode, e.ErrorMessage = codeAndMessage(f)
		for _, part := range entry.Entity {
			p := kmsg.NewAlterClientQuotasResponseEntryEntity()
			p.Type, p.Name = part.Type, part.Name
			e.Entity = append(e.Entity, p)
		}
		out.Entries = append(out.Entries, e)
	}
}

func refuseScram(r *kmsg.AlterUserSCRAMCredentialsRequest, out *kmsg.AlterUserSCRAMCredentialsResponse, f *Fault) {
	var users []string
	for _, x := range r.Deletions {
		users = append(users, x.Name)
	}
	for _, x := range r.Upsertions {
		users = append(users, x.Name)
	}
	for _, user := range dedup(users) {
		e := kmsg.NewAlterUserSCRAMCredentialsResponseResult()
		e.User = user
		e.ErrorCode, e.ErrorMessage = codeAndMessage(f)
		out.Results = append(out.Results, e)
	}
}

// NotLeader is the refusal of a controller that does not lead the quorum, in the APIs about the quorum.
func NotLeader() *Fault { return refuseBare(codeNotLeaderOrFollower) }

// WrongCluster is the refusal of a request that names another cluster.
func WrongCluster() *Fault { return refuseBare(codeInconsistentClusterID) }

// ErrorCodes gives the error codes of a response that can say NOT_CONTROLLER: that of the whole, or of each item.
func ErrorCodes(resp kmsg.Response) []int16 {
	var out []int16
	switch r := resp.(type) {
	case *kmsg.CreateTopicsResponse:
		for _, t := range r.Topics {
			out = append(out, t.ErrorCode)
		}
	case *kmsg.DeleteTopicsResponse:
		for _, t := range r.Topics {
			out = append(out, t.ErrorCode)
		}
	case *kmsg.CreatePartitionsResponse:
		for _, t := range r.Topics {
			out = append(out, t.ErrorCode)
		}
	case *kmsg.AlterConfigsResponse:
		for _, t := range r.Resources {
			out = append(out, t.ErrorCode)
		}
	case *kmsg.IncrementalAlterConfigsResponse:
		for _, t := range r.Resources {
			out = append(out, t.ErrorCode)
		}
	case *kmsg.AlterClientQuotasResponse:
		for _, e := range r.Entries {
			out = append(out, e.ErrorCode)
		}
	case *kmsg.AlterUserSCRAMCredentialsResponse:
		for _, e := range r.Results {
			out = append(out, e.ErrorCode)
		}
	case *kmsg.DescribeQuorumResponse:
		out = append(out, r.ErrorCode)
	default:
		out = append(out, topErrorCode(resp))
	}
	return out
}

func topErrorCode(resp kmsg.Response) int16 {
	switch r := resp.(type) {
	case *kmsg.ElectLeadersResponse:
		return r.ErrorCode
	case *kmsg.AlterPartitionAssignmentsResponse:
		return r.ErrorCode
	case *kmsg.ListPartitionReassignmentsResponse:
		return r.ErrorCode
	case *kmsg.UpdateFeaturesResponse:
		return r.ErrorCode
	case *kmsg.UnregisterBrokerResponse:
		return r.ErrorCode
	case *kmsg.UnregisterControllerResponse:
		return r.ErrorCode
	case *kmsg.AddRaftVoterResponse:
		return r.ErrorCode
	case *kmsg.RemoveRaftVoterResponse:
		return r.ErrorCode
	case *kmsg.AllocateProducerIDsResponse:
		return r.ErrorCode
	}
	return codeNone
}
