package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/protocol"
)

// consumerOffsets is the topic of the group coordinator.
const consumerOffsets = "__consumer_offsets"

// errorAnswer is the answer to a forwarded request that says for everything it asked that it failed with err.
func errorAnswer(req kmsg.Request, err error) kmsg.Response {
	code, text := protocol.ErrorCode(err), protocol.ErrorMessageOf(err)
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	switch r := resp.(type) {
	case *kmsg.CreateTopicsResponse:
		for _, t := range req.(*kmsg.CreateTopicsRequest).Topics { //nolint:forcetypeassert // the request of its response
			x := kmsg.NewCreateTopicsResponseTopic()
			x.Topic, x.ErrorCode, x.ErrorMessage = t.Topic, code, &text
			r.Topics = append(r.Topics, x)
		}
	case *kmsg.DeleteTopicsResponse:
		deleteTopicsError(r, req, code, text)
	case *kmsg.CreatePartitionsResponse:
		for _, t := range req.(*kmsg.CreatePartitionsRequest).Topics { //nolint:forcetypeassert // the request of its response
			x := kmsg.NewCreatePartitionsResponseTopic()
			x.Topic, x.ErrorCode, x.ErrorMessage = t.Topic, code, &text
			r.Topics = append(r.Topics, x)
		}
	case *kmsg.AlterConfigsResponse:
		for _, t := range req.(*kmsg.AlterConfigsRequest).Resources { //nolint:forcetypeassert // the request of its response
			x := kmsg.NewAlterConfigsResponseResource()
			x.ResourceType, x.ResourceName, x.ErrorCode, x.ErrorMessage = t.ResourceType, t.ResourceName, code, &text
			r.Resources = append(r.Resources, x)
		}
	case *kmsg.IncrementalAlterConfigsResponse:
		for _, t := range req.(*kmsg.IncrementalAlterConfigsRequest).Resources { //nolint:forcetypeassert // the request of its response
			x := kmsg.NewIncrementalAlterConfigsResponseResource()
			x.ResourceType, x.ResourceName, x.ErrorCode, x.ErrorMessage = t.ResourceType, t.ResourceName, code, &text
			r.Resources = append(r.Resources, x)
		}
	default:
		topLevelError(resp, code, text)
	}
	return resp
}

func deleteTopicsError(r *kmsg.DeleteTopicsResponse, req kmsg.Request, code int16, text string) {
	q, ok := req.(*kmsg.DeleteTopicsRequest)
	if !ok {
		return
	}
	add := func(name *string, id [16]byte) {
		x := kmsg.NewDeleteTopicsResponseTopic()
		x.Topic, x.TopicID, x.ErrorCode, x.ErrorMessage = name, id, code, &text
		r.Topics = append(r.Topics, x)
	}
	for i := range q.TopicNames {
		add(&q.TopicNames[i], [16]byte{})
	}
	for _, t := range q.Topics {
		add(t.Topic, t.TopicID)
	}
}

// topLevelError sets the error of answers that have one for the whole request.
func topLevelError(resp kmsg.Response, code int16, text string) {
	switch r := resp.(type) {
	case *kmsg.UpdateFeaturesResponse:
		r.ErrorCode, r.ErrorMessage = code, &text
	case *kmsg.DescribeQuorumResponse:
		r.ErrorCode, r.ErrorMessage = code, &text
	case *kmsg.ElectLeadersResponse:
		r.ErrorCode = code
	case *kmsg.AlterPartitionAssignmentsResponse:
		r.ErrorCode, r.ErrorMessage = code, &text
	case *kmsg.ListPartitionReassignmentsResponse:
		r.ErrorCode, r.ErrorMessage = code, &text
	case *kmsg.UnregisterBrokerResponse:
		r.ErrorCode, r.ErrorMessage = code, &text
	case *kmsg.UnregisterControllerResponse:
		r.ErrorCode, r.ErrorMessage = code, &text
	case *kmsg.AddRaftVoterResponse:
		r.ErrorCode, r.ErrorMessage = code, &text
	case *kmsg.RemoveRaftVoterResponse:
		r.ErrorCode, r.ErrorMessage = code, &text
	}
}
