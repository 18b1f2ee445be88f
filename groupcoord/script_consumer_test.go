package groupcoord_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/protocol"
)

// heartbeat of the consumer protocol: join (epoch 0), leave=-1 or -2, ack (say
// that the member owns what it was assigned last), owned=none.
func (s *script) consumerHeartbeat(a args) {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	name := a.str("m", "")
	req.Group, req.MemberID = a.str("g", "g"), a.str("id", name)
	s.learn(name, req.MemberID)
	s.mu.Lock()
	epoch, owned := s.gens[name], s.owned[name]
	s.mu.Unlock()
	req.MemberEpoch = int32(a.num("epoch", int(epoch)))
	if a.has("join") || a.has("full") {
		if a.has("join") {
			req.MemberEpoch = 0
			owned = nil
		}
		req.RebalanceTimeoutMillis = int32(a.num("rebalance", 5000))
		req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		req.SubscribedTopicNames = []string{}
	}
	if a.has("leave") {
		req.MemberEpoch = int32(a.num("leave", -1))
	}
	if a.has("topics") {
		req.SubscribedTopicNames = strings.Split(a.str("topics", ""), "+")
		if a.str("topics", "") == "none" {
			req.SubscribedTopicNames = []string{}
		}
	}
	req.SubscribedTopicRegex, req.InstanceID, req.RackID, req.ServerAssignor = a.ptr("regex"), a.ptr("instance"), a.ptr("rack"), a.ptr("assignor")
	if a.has("pattern") {
		pattern := strings.TrimSpace(a.d.Input)
		req.SubscribedTopicRegex = &pattern
	}
	if a.has("ack") || a.has("full") {
		req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		for _, t := range owned {
			req.Topics = append(req.Topics, kmsg.ConsumerGroupHeartbeatRequestTopic{TopicID: t.TopicID, Partitions: t.Partitions})
		}
	}
	s.send(name, a.num("v", 1), req, func(r kmsg.Response) {
		resp := r.(*kmsg.ConsumerGroupHeartbeatResponse)
		text := "unchanged"
		s.mu.Lock()
		if resp.ErrorCode == 0 {
			s.gens[name] = resp.MemberEpoch
			if resp.Assignment != nil {
				s.owned[name] = resp.Assignment.Topics
				text = s.assigned(resp.Assignment.Topics)
			}
		}
		s.mu.Unlock()
		message := ""
		if resp.ErrorMessage != nil && a.has("message") {
			message = " " + *resp.ErrorMessage
		}
		s.say("%s: heartbeat %s%s epoch=%d interval=%d assignment=%s", name, errorName(resp.ErrorCode), message, resp.MemberEpoch, resp.HeartbeatIntervalMillis, text)
	})
}

func (s *script) assigned(topics []kmsg.ConsumerGroupHeartbeatResponseAssignmentTopic) string {
	var out []string
	for _, t := range topics {
		for _, p := range t.Partitions {
			out = append(out, fmt.Sprintf("%s-%d", s.target.topicName(t.TopicID), p))
		}
	}
	slices.Sort(out)
	return fmt.Sprint(out)
}

func (s *script) describeConsumer(a args) {
	req := kmsg.NewPtrConsumerGroupDescribeRequest()
	req.Groups = strings.Fields(a.d.Input)
	s.send("admin", a.num("v", 1), req, func(r kmsg.Response) {
		for _, g := range r.(*kmsg.ConsumerGroupDescribeResponse).Groups {
			members := make([]func() string, 0, len(g.Members))
			for _, m := range g.Members {
				members = append(members, func() string {
					return fmt.Sprintf("\n  %s/%s epoch=%d type=%d topics=%v regex=%s has=%s target=%s", s.nameOf(m.MemberID), deref(m.InstanceID),
						m.MemberEpoch, m.MemberType, m.SubscribedTopics, deref(m.SubscribedTopicRegex), described(m.Assignment), described(m.TargetAssignment))
				})
			}
			s.say("describe %s %s message=%s state=%s epoch=%d assignment=%d assignor=%s %s", g.Group, errorName(g.ErrorCode), deref(g.ErrorMessage),
				g.State, g.Epoch, g.AssignmentEpoch, g.AssignorName, showAll(members))
		}
	})
}

func described(a kmsg.Assignment) string {
	var out []string
	for _, t := range a.TopicPartitions {
		for _, p := range t.Partitions {
			out = append(out, fmt.Sprintf("%s-%d", t.Topic, p))
		}
	}
	slices.Sort(out)
	return fmt.Sprint(out)
}

func (g *gregor) topicName(id protocol.UUID) string {
	for name, topicID := range topicIDs {
		if topicID == id {
			return name
		}
	}
	return id.String()
}

func (k *kafka) topicName(id protocol.UUID) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.topics[id]
}

// learnTopics asks for the ids of the topics.
func (k *kafka) learnTopics() error {
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 12
	resp, err := k.do(k.t.Context(), "admin", req)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.topics = make(map[protocol.UUID]string)
	for _, t := range resp.(*kmsg.MetadataResponse).Topics {
		k.topics[t.TopicID] = *t.Topic
	}
	return nil
}
