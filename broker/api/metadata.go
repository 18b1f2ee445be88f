package api

import (
	"context"
	"math/rand/v2"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/kraft/image"
	"gregor/protocol"
)

// Metadata (key 3), versions 0 to 13.
//
//	1 null topics = all, empty = none; controller id, racks, internal topics    8 authorized operations (KIP-430)
//	2 cluster id     4 allow auto-creation     5 offline replicas               10 topic ids; 12 lookup by id
//	6 LISTENER_NOT_FOUND, 7 leader epochs                                       11 no cluster operations; 13 error code
//
// Version 0 takes an empty list for all topics. A missing topic gets UNKNOWN_TOPIC_OR_PARTITION, also when its
// creation has just been started; a bad name INVALID_TOPIC_EXCEPTION, an unknown id UNKNOWN_TOPIC_ID. A partition
// without a leader stays in the answer with LEADER_NOT_AVAILABLE.
type metadataAPI struct {
	node        Node
	controllers Controllers
}

func (h *metadataAPI) handle(_ context.Context, c *Call) kmsg.Response {
	req, _ := c.Request.(*kmsg.MetadataRequest)
	resp := kmsg.NewPtrMetadataResponse()
	resp.SetVersion(req.Version)
	img := h.node.Images.Image()
	if err := checkMetadataIDs(req); err != nil {
		for _, t := range req.Topics {
			resp.Topics = append(resp.Topics, metadataTopicError(t.Topic, t.TopicID, err))
		}
		return resp
	}
	h.cluster(img, c, req, resp)
	v := topicView{img: img, listener: c.Conn.ListenerName(), version: req.Version, operations: req.IncludeTopicAuthorizedOperations}
	if req.Topics == nil || req.Version == 0 && len(req.Topics) == 0 {
		for t := range img.Topics.All() {
			resp.Topics = append(resp.Topics, v.topic(t))
		}
		return resp
	}
	h.topics(v, req, resp)
	return resp
}

// checkMetadataIDs refuses topic ids where they only exist on paper: versions 10 and 11 have the field without
// the lookup.
func checkMetadataIDs(req *kmsg.MetadataRequest) error {
	if req.Version >= 12 {
		return nil
	}
	for _, t := range req.Topics {
		if t.Topic == nil || t.TopicID != protocol.ZeroUUID {
			return kerr.InvalidRequest
		}
	}
	return nil
}

// cluster fills what the answer says of the cluster as a whole.
func (h *metadataAPI) cluster(img *image.Image, c *Call, req *kmsg.MetadataRequest, resp *kmsg.MetadataResponse) {
	for b := range img.Cluster.AliveBrokers() {
		if at, ok := b.Endpoint(c.Conn.ListenerName()); ok {
			resp.Brokers = append(resp.Brokers, kmsg.MetadataResponseBroker{NodeID: b.ID, Host: at.Host, Port: int32(at.Port), Rack: b.Rack})
		}
	}
	id := h.node.ClusterID
	resp.ClusterID = &id
	resp.ControllerID = anyAliveBroker(img)
	resp.AuthorizedOperations = operations(req.IncludeClusterAuthorizedOperations, clusterOperations)
}

// anyAliveBroker is the "controller" that clients are told: any live broker, since each forwards to the real one,
// which clients cannot reach; -1 when none lives.
func anyAliveBroker(img *image.Image) int32 {
	registered, fenced := img.Cluster.NumBrokers()
	if registered == fenced {
		return -1
	}
	skip := rand.IntN(registered - fenced)
	for b := range img.Cluster.AliveBrokers() {
		if skip == 0 {
			return b.ID
		}
		skip--
	}
	return -1
}

// topics answers for the topics that the request names, each once.
func (h *metadataAPI) topics(v topicView, req *kmsg.MetadataRequest, resp *kmsg.MetadataResponse) {
	var create []string
	seen := make(map[string]bool, len(req.Topics))
	byID := slices.ContainsFunc(req.Topics, func(t kmsg.MetadataRequestTopic) bool { return t.TopicID != protocol.ZeroUUID })
	for _, t := range req.Topics {
		if byID {
			// One id makes it a request by ids: names beside it are not looked at.
			if t.TopicID == protocol.ZeroUUID {
				continue
			}
			if topic := v.img.Topics.ByID(t.TopicID); topic != nil {
				resp.Topics = append(resp.Topics, v.topic(topic))
			} else {
				resp.Topics = append(resp.Topics, metadataTopicError(nil, t.TopicID, kerr.UnknownTopicID))
			}
			continue
		}
		if t.Topic == nil {
			resp.Topics = append(resp.Topics, metadataTopicError(nil, t.TopicID, kerr.UnknownTopicID))
			continue
		}
		name := *t.Topic
		if seen[name] {
			continue
		}
		seen[name] = true
		if topic := v.img.Topics.ByName(name); topic != nil {
			resp.Topics = append(resp.Topics, v.topic(topic))
			continue
		}
		err := error(kerr.UnknownTopicOrPartition)
		if checkTopicName(name) != nil {
			err = kerr.InvalidTopicException
		} else if req.AllowAutoTopicCreation && h.node.Config().Topics.AutoCreate {
			create = append(create, name)
		}
		x := metadataTopicError(&name, protocol.ZeroUUID, err)
		x.IsInternal = isInternal(name)
		x.AuthorizedOperations = operations(v.operations, topicOperations)
		resp.Topics = append(resp.Topics, x)
	}
	if len(create) > 0 {
		h.controllers.AutoCreate(create)
	}
}

func metadataTopicError(name *string, id [16]byte, err error) kmsg.MetadataResponseTopic {
	t := kmsg.NewMetadataResponseTopic()
	t.ErrorCode, t.Topic, t.TopicID = protocol.ErrorCode(err), name, id
	t.AuthorizedOperations = notAsked
	t.Partitions = []kmsg.MetadataResponseTopicPartition{}
	return t
}

// topicView describes topics as one listener sees them in one version.
type topicView struct {
	img        *image.Image
	listener   string
	version    int16
	operations bool
}

func (v topicView) topic(t *image.Topic) kmsg.MetadataResponseTopic {
	out := kmsg.NewMetadataResponseTopic()
	name := t.Name
	out.Topic, out.TopicID, out.IsInternal = &name, t.ID, isInternal(t.Name)
	out.AuthorizedOperations = operations(v.operations, topicOperations)
	out.Partitions = make([]kmsg.MetadataResponseTopicPartition, 0, t.NumPartitions())
	for id, p := range t.Partitions() {
		x := kmsg.NewMetadataResponseTopicPartition()
		x.Partition, x.LeaderEpoch = id, p.LeaderEpoch
		x.Replicas, x.ISR = p.Replicas, p.ISR
		x.OfflineReplicas = v.offline(p)
		x.ErrorCode, x.Leader = v.leader(p)
		out.Partitions = append(out.Partitions, x)
	}
	return out
}

// leader is the leader that clients of the listener can reach: -1 with LEADER_NOT_AVAILABLE when there is none,
// or with LISTENER_NOT_FOUND (from version 6 on) when it does not listen there.
func (v topicView) leader(p *image.Partition) (int16, int32) {
	if p.Leader < 0 || !v.img.Cluster.Alive(p.Leader) {
		return kerr.LeaderNotAvailable.Code, -1
	}
	if _, ok := v.img.Cluster.AliveEndpoint(p.Leader, v.listener); ok {
		return 0, p.Leader
	}
	if v.version >= 6 {
		return kerr.ListenerNotFound.Code, -1
	}
	return kerr.LeaderNotAvailable.Code, -1
}

// offline lists the replicas whose broker is not alive or whose directory is not online.
func (v topicView) offline(p *image.Partition) []int32 {
	out := []int32{}
	for i, id := range p.Replicas {
		b := v.img.Cluster.Broker(id)
		online := b != nil && !b.Fenced
		if online && i < len(p.Directories) {
			online = b.HasOnlineDirectory(p.Directories[i])
		}
		if !online {
			out = append(out, id)
		}
	}
	return out
}

// checkTopicName returns INVALID_TOPIC_EXCEPTION with the reason for a name that no topic can have.
func checkTopicName(name string) error {
	reason := protocol.TopicNameProblem(name)
	if reason == "" {
		return nil
	}
	return protocol.NewError(kerr.InvalidTopicException.Code, "Topic name is invalid: "+reason)
}
