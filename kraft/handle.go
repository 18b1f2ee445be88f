package kraft

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/kraft/controller"
	"gregor/kraft/quorum"
	"gregor/protocol"
)

// handler answers one API.
type handler func(n *Node, ctx context.Context, rc *RequestContext, req kmsg.Request) kmsg.Response

// handlers are the APIs of the controller listener that this package answers. Others there (ApiVersions, SASL,
// DescribeConfigs, ACLs and tokens) are not about the quorum or the controller's decisions.
var handlers map[int16]handler

func init() {
	handlers = map[int16]handler{
		int16(kmsg.Fetch):                      (*Node).handleFetch,
		int16(kmsg.FetchSnapshot):              (*Node).handleFetchSnapshot,
		int16(kmsg.DescribeQuorum):             (*Node).handleDescribeQuorum,
		int16(kmsg.DescribeCluster):            (*Node).handleDescribeCluster,
		int16(kmsg.ListPartitionReassignments): (*Node).handleListReassignments,
		int16(kmsg.Envelope):                   (*Node).handleEnvelope,
		int16(kmsg.AddRaftVoter):               (*Node).handleAddVoter,
		int16(kmsg.RemoveRaftVoter):            (*Node).handleRemoveVoter,
		int16(kmsg.UpdateRaftVoter):            (*Node).handleUpdateVoter,
	}
	for key := range int16(kmsg.MaxKey + 1) {
		if controller.Decides(key) {
			handlers[key] = (*Node).handleDecided
		}
	}
}

// ACL operations on the cluster.
const (
	opAlter         int8 = 7
	opDescribe      int8 = 8
	opClusterAction int8 = 9

	resourceCluster     int8 = 4
	clusterResourceName      = "kafka-cluster"
)

func (rc *RequestContext) allowed(operation int8) bool {
	return rc.Authorize == nil || rc.Authorize(operation, resourceCluster, clusterResourceName)
}

// handleDecided answers what the active controller decides.
func (n *Node) handleDecided(ctx context.Context, rc *RequestContext, req kmsg.Request) kmsg.Response {
	if n.server == nil {
		return controller.Refusal(req, controller.NotController())
	}
	return n.server.handle(ctx, rc, req)
}

// isActive says whether this node leads the quorum.
func (n *Node) isActive() bool { return n.quorum.Leader().LeaderID == n.o.NodeID }

// handleListReassignments answers ListPartitionReassignments (46) from the committed image.
func (n *Node) handleListReassignments(_ context.Context, rc *RequestContext, req kmsg.Request) kmsg.Response {
	if n.server == nil || !n.isActive() {
		return controller.Refusal(req, controller.NotController())
	}
	d := controller.New(n.server.cfg, controller.View{Image: n.Image()}, rc.request())
	return d.ListPartitionReassignments(req.(*kmsg.ListPartitionReassignmentsRequest)).Response
}

// handleDescribeCluster answers DescribeCluster (60) about the controllers; any controller does.
func (n *Node) handleDescribeCluster(_ context.Context, rc *RequestContext, req kmsg.Request) kmsg.Response {
	if n.server == nil {
		return controller.Refusal(req, controller.NotController())
	}
	d := controller.New(n.server.cfg, controller.View{Image: n.Image()}, rc.request())
	return d.DescribeCluster(req.(*kmsg.DescribeClusterRequest), n.quorum.Leader().LeaderID).Response
}

// handleDescribeQuorum answers DescribeQuorum (55) v0-2: v1 has timestamps, v2 directory ids and addresses.
func (n *Node) handleDescribeQuorum(_ context.Context, rc *RequestContext, req kmsg.Request) kmsg.Response {
	r := req.(*kmsg.DescribeQuorumRequest)
	resp := r.ResponseKind().(*kmsg.DescribeQuorumResponse)
	none := "" // Kafka's schema has no null by default here
	resp.ErrorMessage = &none
	if !rc.allowed(opDescribe) {
		return controller.Refusal(req, controller.Unauthorized())
	}
	known := len(r.Topics) == 1 && r.Topics[0].Topic == quorum.Topic && len(r.Topics[0].Partitions) == 1 &&
		r.Topics[0].Partitions[0].Partition == 0
	if !known {
		for _, t := range r.Topics {
			out := kmsg.NewDescribeQuorumResponseTopic()
			out.Topic = t.Topic
			for _, p := range t.Partitions {
				part := kmsg.NewDescribeQuorumResponseTopicPartition()
				part.Partition = p.Partition
				setQuorumError(&part, codeUnknownTopicOrPartition)
				out.Partitions = append(out.Partitions, part)
			}
			resp.Topics = append(resp.Topics, out)
		}
		return resp
	}
	part := kmsg.NewDescribeQuorumResponseTopicPartition()
	part.ErrorMessage = &none
	d, err := n.quorum.Describe()
	if err != nil {
		l := n.quorum.Leader()
		part.LeaderID, part.LeaderEpoch = l.LeaderID, l.Epoch
		setQuorumError(&part, protocol.ErrorCode(err))
	} else {
		part.LeaderID, part.LeaderEpoch, part.HighWatermark = d.Leader.LeaderID, d.Leader.Epoch, d.HighWatermark
		part.CurrentVoters = replicaStates(d.Voters)
		part.Observers = replicaStates(d.Observers)
		resp.Nodes = n.quorumNodes(d.VoterSet)
	}
	out := kmsg.NewDescribeQuorumResponseTopic()
	out.Topic = quorum.Topic
	out.Partitions = append(out.Partitions, part)
	resp.Topics = append(resp.Topics, out)
	return resp
}

const codeUnknownTopicOrPartition int16 = 3

func setQuorumError(p *kmsg.DescribeQuorumResponseTopicPartition, code int16) {
	message := protocol.ErrorMessage(code)
	p.ErrorCode, p.ErrorMessage = code, &message
}

func replicaStates(in []quorum.ReplicaState) []kmsg.DescribeQuorumResponseTopicPartitionReplicaState {
	out := make([]kmsg.DescribeQuorumResponseTopicPartitionReplicaState, 0, len(in))
	for _, s := range in {
		r := kmsg.NewDescribeQuorumResponseTopicPartitionReplicaState()
		r.ReplicaID, r.ReplicaDirectoryID, r.LogEndOffset = s.Key.ID, s.Key.DirectoryID, s.LogEndOffset
		r.LastFetchTimestamp, r.LastCaughtUpTimestamp = s.LastFetchTimestampMillis, s.LastCaughtUpTimestampMillis
		out = append(out, r)
	}
	return out
}

// quorumNodes are the addresses of the voters.
func (n *Node) quorumNodes(voters quorum.VoterSet) []kmsg.DescribeQuorumResponseNode {
	var out []kmsg.DescribeQuorumResponseNode
	for _, v := range voters.All() {
		node := kmsg.NewDescribeQuorumResponseNode()
		node.NodeID = v.Key.ID
		for _, e := range v.Endpoints {
			l := kmsg.NewDescribeQuorumResponseNodeListener()
			l.Name, l.Host, l.Port = e.Name, e.Host, e.Port
			node.Listeners = append(node.Listeners, l)
		}
		out = append(out, node)
	}
	return out
}
