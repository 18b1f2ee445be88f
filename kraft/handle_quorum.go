package kraft

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/kraft/controller"
	"gregor/kraft/quorum"
	"gregor/protocol"
)

// Error codes of the quorum APIs.
const (
	codeInvalidRequest        int16 = 42
	codeNotLeaderOrFollower   int16 = 6
	codeInconsistentClusterID int16 = 104
)

// wrongCluster says whether a request names another cluster; null names none.
func (n *Node) wrongCluster(id *string) bool { return id != nil && *id != n.o.ClusterID }

// handleFetch answers Fetch (1) v4-18 of the metadata log: how brokers and joining controllers follow it. v13 names
// topics by id, v15 moves the replica id into a tag, v17 adds its directory id, v18 the high watermark it knows.
func (n *Node) handleFetch(ctx context.Context, rc *RequestContext, req kmsg.Request) kmsg.Response {
	r := req.(*kmsg.FetchRequest)
	resp := r.ResponseKind().(*kmsg.FetchResponse)
	part, code := n.fetchedPartition(rc, r)
	if code != 0 {
		resp.ErrorCode = code
		return resp
	}
	replica := r.ReplicaID
	if r.Version >= 15 {
		replica = r.ReplicaState.ID
	}
	known := part.HighWatermark
	if r.Version < 18 {
		known = math.MaxInt64
	}
	got := n.quorum.Fetch(ctx, quorum.FetchRequest{
		Replica:            quorum.ReplicaKey{ID: replica, DirectoryID: part.ReplicaDirectoryID},
		CurrentLeaderEpoch: part.CurrentLeaderEpoch,
		FetchOffset:        part.FetchOffset, LastFetchedEpoch: part.LastFetchedEpoch,
		MaxBytes: int(min(r.MaxBytes, part.PartitionMaxBytes)), MaxWait: time.Duration(r.MaxWaitMillis) * time.Millisecond,
		HighWatermark: known,
	})
	out := kmsg.NewFetchResponseTopic()
	out.Topic, out.TopicID = r.Topics[0].Topic, r.Topics[0].TopicID
	out.Partitions = append(out.Partitions, fetchedResponse(got))
	resp.Topics = append(resp.Topics, out)
	if got.Err != nil {
		if e, ok := n.endpoint(got.Leader.LeaderID); ok {
			b := kmsg.NewFetchResponseBroker()
			b.NodeID, b.Host, b.Port = e.NodeID, e.Host, int32(e.Port)
			resp.Brokers = append(resp.Brokers, b)
		}
	}
	return resp
}

// fetchedPartition finds the one partition that a fetch on the controller listener may name.
func (n *Node) fetchedPartition(rc *RequestContext, r *kmsg.FetchRequest) (*kmsg.FetchRequestTopicPartition, int16) {
	switch {
	case !rc.allowed(opClusterAction):
		return nil, controller.Unauthorized().Code
	case n.wrongCluster(r.ClusterID):
		return nil, codeInconsistentClusterID
	case len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 1 || r.Topics[0].Partitions[0].Partition != 0:
		return nil, codeInvalidRequest
	case r.Version < 13 && r.Topics[0].Topic != quorum.Topic,
		r.Version >= 13 && protocol.UUID(r.Topics[0].TopicID) != quorum.TopicID:
		return nil, codeInvalidRequest
	}
	return &r.Topics[0].Partitions[0], 0
}

func fetchedResponse(got quorum.FetchResponse) kmsg.FetchResponseTopicPartition {
	p := kmsg.NewFetchResponseTopicPartition()
	p.ErrorCode = protocol.ErrorCode(got.Err)
	p.HighWatermark, p.LogStartOffset = got.HighWatermark, got.LogStartOffset
	p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = got.Leader.LeaderID, got.Leader.Epoch
	p.RecordBatches = got.Records
	if p.RecordBatches == nil {
		p.RecordBatches = []byte{}
	}
	if got.Diverging != nil {
		p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset = got.Diverging.Epoch, got.Diverging.EndOffset
	}
	if got.Snapshot != nil {
		p.SnapshotID.EndOffset, p.SnapshotID.Epoch = got.Snapshot.Offset, got.Snapshot.Epoch
	}
	return p
}

// handleFetchSnapshot answers FetchSnapshot (59) v0-1: a piece of a snapshot file.
func (n *Node) handleFetchSnapshot(_ context.Context, rc *RequestContext, req kmsg.Request) kmsg.Response {
	r := req.(*kmsg.FetchSnapshotRequest)
	resp := r.ResponseKind().(*kmsg.FetchSnapshotResponse)
	switch {
	case !rc.allowed(opClusterAction):
		resp.ErrorCode = controller.Unauthorized().Code
		return resp
	case n.wrongCluster(r.ClusterID):
		resp.ErrorCode = codeInconsistentClusterID
		return resp
	case len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 1:
		resp.ErrorCode = codeInvalidRequest
		return resp
	}
	asked := r.Topics[0].Partitions[0]
	p := kmsg.NewFetchSnapshotResponseTopicPartition()
	p.Partition, p.Bytes = asked.Partition, []byte{}
	p.SnapshotID.EndOffset, p.SnapshotID.Epoch = asked.SnapshotID.EndOffset, asked.SnapshotID.Epoch
	if r.Topics[0].Topic != quorum.Topic || asked.Partition != 0 {
		p.ErrorCode = codeUnknownTopicOrPartition
	} else {
		got := n.quorum.FetchSnapshot(quorum.FetchSnapshotRequest{
			CurrentLeaderEpoch: asked.CurrentLeaderEpoch,
			ID:                 quorum.SnapshotID{Offset: asked.SnapshotID.EndOffset, Epoch: asked.SnapshotID.Epoch},
			Position:           asked.Position, MaxBytes: int(r.MaxBytes),
		})
		p.ErrorCode = protocol.ErrorCode(got.Err)
		p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = got.Leader.LeaderID, got.Leader.Epoch
		if got.Err == nil {
			p.Size, p.Position, p.Bytes = got.SizeBytes, got.Position, got.Bytes
		} else if e, ok := n.endpoint(got.Leader.LeaderID); ok {
			b := kmsg.NewFetchSnapshotResponseNodeEndpoint()
			b.NodeID, b.Host, b.Port = e.NodeID, e.Host, e.Port
			resp.NodeEndpoints = append(resp.NodeEndpoints, b)
		}
	}
	out := kmsg.NewFetchSnapshotResponseTopic()
	out.Topic = r.Topics[0].Topic
	out.Partitions = append(out.Partitions, p)
	resp.Topics = append(resp.Topics, out)
	return resp
}

// voterFault turns an error of a change of voters into a refusal with a text.
func voterFault(err error) *controller.Fault {
	code := protocol.ErrorCode(err)
	if code == codeNotLeaderOrFollower {
		return controller.NotLeader()
	}
	text := err.Error()
	return &controller.Fault{Code: code, Message: &text}
}

// checkVoters refuses changes of voters that this node cannot make.
func (n *Node) checkVoters(rc *RequestContext, clusterID *string, operation int8, verb string) *controller.Fault {
	switch {
	case !rc.allowed(operation):
		return controller.Unauthorized()
	case n.wrongCluster(clusterID):
		return controller.WrongCluster()
	case n.server == nil || !n.isActive():
		return controller.NotLeader()
	case verb != "" && n.quorum.KRaftVersion() < 1:
		return controller.Unsupported(fmt.Sprintf("Cluster doesn't support %s voter because the kraft.version feature is %d",
			verb, n.quorum.KRaftVersion()))
	}
	return nil
}

// handleAddVoter answers AddRaftVoter (80) v0-1 (KIP-853); v1 can be answered before the commit.
func (n *Node) handleAddVoter(ctx context.Context, rc *RequestContext, req kmsg.Request) kmsg.Response {
	r := req.(*kmsg.AddRaftVoterRequest)
	f := n.checkVoters(rc, r.ClusterID, opAlter, "adding")
	if f == nil {
		if timeout := time.Duration(r.TimeoutMillis) * time.Millisecond; timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, timeout)
			defer cancel()
		}
		v := quorum.Voter{
			Key:             quorum.ReplicaKey{ID: r.VoterID, DirectoryID: r.VoterDirectoryID},
			MaxKRaftVersion: 1,
		}
		for _, l := range r.Listeners {
			v.Endpoints = append(v.Endpoints, quorum.Endpoint{Name: l.Name, Host: l.Host, Port: l.Port})
		}
		if err := n.quorum.AddVoter(ctx, v, r.Version < 1 || r.AckWhenCommitted); err != nil {
			f = voterFault(err)
		}
	}
	return n.answerVoters(req, f)
}

// handleRemoveVoter answers RemoveRaftVoter (81) v0.
func (n *Node) handleRemoveVoter(ctx context.Context, rc *RequestContext, req kmsg.Request) kmsg.Response {
	r := req.(*kmsg.RemoveRaftVoterRequest)
	f := n.checkVoters(rc, r.ClusterID, opAlter, "removing")
	if f == nil {
		key := quorum.ReplicaKey{ID: r.VoterID, DirectoryID: r.VoterDirectoryID}
		if err := n.quorum.RemoveVoter(ctx, key); err != nil {
			f = voterFault(err)
		}
	}
	return n.answerVoters(req, f)
}

// handleUpdateVoter answers UpdateRaftVoter (82) v0: a voter whose addresses changed.
func (n *Node) handleUpdateVoter(ctx context.Context, rc *RequestContext, req kmsg.Request) kmsg.Response {
	r := req.(*kmsg.UpdateRaftVoterRequest)
	f := n.checkVoters(rc, r.ClusterID, opClusterAction, "")
	if f == nil {
		v := quorum.Voter{
			Key:             quorum.ReplicaKey{ID: r.VoterID, DirectoryID: r.VoterDirectoryID},
			MinKRaftVersion: r.KRaftVersionFeature.MinSupportedVersion,
			MaxKRaftVersion: r.KRaftVersionFeature.MaxSupportedVersion,
		}
		for _, l := range r.Listeners {
			v.Endpoints = append(v.Endpoints, quorum.Endpoint{Name: l.Name, Host: l.Host, Port: l.Port})
		}
		if err := n.quorum.UpdateVoter(ctx, v); err != nil {
			f = voterFault(err)
		}
	}
	resp := n.answerVoters(req, f).(*kmsg.UpdateRaftVoterResponse)
	l := n.quorum.Leader()
	resp.CurrentLeader.LeaderID, resp.CurrentLeader.LeaderEpoch = l.LeaderID, l.Epoch
	if e, ok := n.endpoint(l.LeaderID); ok {
		resp.CurrentLeader.Host, resp.CurrentLeader.Port = e.Host, int32(e.Port)
	}
	return resp
}

func (n *Node) answerVoters(req kmsg.Request, f *controller.Fault) kmsg.Response {
	if f != nil {
		return controller.Refusal(req, f)
	}
	return req.ResponseKind()
}
