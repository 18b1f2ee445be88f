package groupcoord

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/groupcoord/classic"
	"gregor/groupcoord/consumer"
	"gregor/groupcoord/schema"
	"gregor/protocol"
)

func notConsumer(id string) error {
	return protocol.NewError(kerr.GroupIDNotFound.Code, "Group "+id+" is not a consumer group.")
}

// consumerHeartbeat handles ConsumerGroupHeartbeat.
func (s *shard) consumerHeartbeat(caller Caller, req *kmsg.ConsumerGroupHeartbeatRequest) (*kmsg.ConsumerGroupHeartbeatResponse, effect, error) {
	if consumer.Leaves(req) {
		g, err := s.lookup(req.Group)
		if err != nil {
			return nil, effect{}, err
		}
		c, ok := g.(consumerGroup)
		if !ok {
			return nil, effect{}, notConsumer(req.Group)
		}
		return s.consumer.Leave(c.Group, req)
	}
	g, records, err := s.consumerGroupFor(req.Group, consumer.Joins(req))
	if err != nil {
		return nil, effect{}, err
	}
	return s.consumer.Heartbeat(g, caller.consumer(), req, records)
}

// consumerGroupFor returns the consumer group of that id. For a member that
// joins it is made, also out of a classic group; the records of that are
// returned, and only their replay changes the table.
func (s *shard) consumerGroupFor(id string, join bool) (*consumer.Group, []schema.Record, error) {
	g, ok := s.groups.Get(id)
	switch g := g.(type) {
	case consumerGroup:
		return g.Group, nil, nil
	case classicGroup:
		if !join {
			return nil, nil, notConsumer(id)
		}
		if g.isEmpty() {
			return consumer.NewGroup(s.Registry, id), s.deleteGroup(g), nil
		}
		return s.upgrade(g.Group)
	default:
		if ok {
			return nil, nil, notConsumer(id)
		}
		if !join {
			return nil, nil, protocol.NewError(kerr.GroupIDNotFound.Code, "Consumer group "+id+" not found.")
		}
		return consumer.NewGroup(s.Registry, id), nil, nil
	}
}

// upgrade makes a consumer group out of a classic one whose members go on with
// the classic protocol.
func (s *shard) upgrade(g *classic.Group) (*consumer.Group, []schema.Record, error) {
	refuse := func(why string) (*consumer.Group, []schema.Record, error) {
		return nil, nil, protocol.NewError(kerr.GroupIDNotFound.Code, "Cannot upgrade classic group "+g.ID+" to consumer group because "+why+".")
	}
	switch {
	case !s.migration.Upgrade:
		return refuse("online upgrade is disabled")
	case g.ProtocolType != classic.ConsumerProtocolType:
		return refuse("the group does not use the consumer embedded protocol")
	case len(g.Members()) > s.consumer.Config.MaxSize:
		return refuse("the group size exceeds the consumer group maximum size")
	}
	members := make([]consumer.FromClassic, 0, len(g.Members()))
	for _, m := range g.Members() {
		from := consumer.FromClassic{
			ID: m.ID, InstanceID: m.InstanceID, ClientID: m.ClientID, ClientHost: m.ClientHost,
			RebalanceTimeoutMillis: m.RebalanceTimeoutMillis, SessionTimeoutMillis: m.SessionTimeoutMillis,
			Metadata: m.Metadata(g.Protocol()), Assignment: m.Assignment,
		}
		for _, p := range m.Protocols {
			from.Protocols = append(from.Protocols, schema.ConsumerGroupClassicProtocol{Name: p.Name, Metadata: p.Metadata})
		}
		if from.Metadata == nil && len(m.Protocols) > 0 {
			// The first rebalance did not end yet, so no protocol is selected.
			from.Metadata = m.Protocols[0].Metadata
		}
		members = append(members, from)
	}
	upgraded := consumer.NewGroup(s.Registry, g.ID)
	if err := s.consumer.Upgrade(upgraded, g.Generation, members); err != nil {
		return nil, nil, err
	}
	s.classic.Upgraded(g)
	s.Logger.Info("classic group became a consumer group", "group", g.ID, "members", len(members))
	return upgraded, append([]schema.Record{classic.Tombstone(g.ID)}, upgraded.Records()...), nil
}

// MayDowngrade implements consumer.Downgrader.
func (s *shard) MayDowngrade(members int) bool {
	return s.migration.Downgrade && members <= s.classicMaxSize
}

// Downgrade implements consumer.Downgrader.
func (s *shard) Downgrade(g *consumer.Group, d consumer.Downgrade) ([]schema.Record, error) {
	var replaced *consumer.Member
	if d.Joining != nil {
		replaced = g.StaticMember(*d.Joining.InstanceID)
	}
	var members []classic.Former
	for _, m := range g.Members() {
		target := g.Target(m.ID)
		switch {
		case d.Leaving[m.ID]:
			continue
		case replaced != nil && m.ID == replaced.ID:
			m = d.Joining
		}
		assignment, err := s.consumer.ClassicAssignment(m, target)
		if err != nil {
			return nil, protocol.NewError(kerr.GroupIDNotFound.Code, "Cannot downgrade the consumer group "+g.ID+": "+err.Error()+".")
		}
		f := classic.Former{
			ID: m.ID, InstanceID: m.InstanceID, ClientID: m.ClientID, ClientHost: m.ClientHost,
			RebalanceTimeoutMillis: m.RebalanceTimeoutMillis, SessionTimeoutMillis: m.Classic.SessionTimeoutMs, Assignment: assignment,
		}
		for _, p := range m.Classic.SupportedProtocols {
			f.Protocols = append(f.Protocols, classic.Protocol{Name: p.Name, Metadata: p.Metadata})
		}
		members = append(members, f)
	}
	records := g.Tombstones(func(id string) string {
		if replaced != nil && id == replaced.ID {
			return d.Joining.ID
		}
		return id
	})
	group, record := s.classic.Downgraded(g.ID, g.Epoch(), members, d.Rebalance, d.Reason)
	s.groups.Set(g.ID, classicGroup{group})
	s.Logger.Info("consumer group became a classic group", "group", g.ID, "members", len(members))
	return append(records, record), nil
}

// consumerDescribe handles ConsumerGroupDescribe, which knows consumer groups
// only.
func (s *shard) consumerDescribe(ids []string) ([]kmsg.ConsumerGroupDescribeResponseGroup, error) {
	out := make([]kmsg.ConsumerGroupDescribeResponseGroup, 0, len(ids))
	for _, id := range ids {
		g, ok := s.groups.GetCommitted(id)
		if c, isConsumer := g.(consumerGroup); ok && isConsumer {
			out = append(out, s.consumer.Describe(c.Group))
			continue
		}
		missing := kmsg.NewConsumerGroupDescribeResponseGroup()
		missing.Group, missing.ErrorCode = id, kerr.GroupIDNotFound.Code
		message := "Group " + id + " not found."
		if ok {
			message = "Group " + id + " is not a consumer group."
		}
		missing.ErrorMessage = &message
		out = append(out, missing)
	}
	return out, nil
}

// topicsChanged makes the consumer groups look at their topics again.
func (s *shard) topicsChanged(names []string, created bool) (struct{}, effect, error) {
	if created {
		s.consumer.TopicsCreated(s.topics().Version())
	}
	for _, g := range s.groups.All() {
		if c, ok := g.(consumerGroup); ok && slices.ContainsFunc(names, c.Subscribed) {
			c.RequestRefresh()
		}
	}
	return struct{}{}, effect{}, nil
}
