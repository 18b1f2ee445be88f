package consumer

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/groupcoord/schema"
	"gregor/protocol"
)

func invalid(message string) error { return protocol.NewError(kerr.InvalidRequest.Code, message) }

// Validate checks what can be said about a heartbeat without its group.
func Validate(req *kmsg.ConsumerGroupHeartbeatRequest, assignors []string) error {
	blank := func(s *string) bool { return s != nil && strings.TrimSpace(*s) == "" }
	if (req.Version >= 1 || req.MemberEpoch > 0 || req.MemberEpoch == leaveEpoch) && blank(&req.MemberID) {
		return invalid("MemberId can't be empty.")
	}
	switch {
	case blank(&req.Group):
		return invalid("GroupId can't be empty.")
	case blank(req.InstanceID):
		return invalid("InstanceId can't be empty.")
	case blank(req.RackID):
		return invalid("RackId can't be empty.")
	}
	if err := validateEpoch(req); err != nil {
		return err
	}
	if req.ServerAssignor != nil && !slices.Contains(assignors, *req.ServerAssignor) {
		return protocol.NewError(kerr.UnsupportedAssignor.Code,
			"ServerAssignor "+*req.ServerAssignor+" is not supported. Supported assignors: "+strings.Join(assignors, ", ")+".")
	}
	return nil
}

// validateEpoch checks what a heartbeat needs to say in its epoch.
func validateEpoch(req *kmsg.ConsumerGroupHeartbeatRequest) error {
	switch {
	case req.MemberEpoch == leaveStaticEpoch && req.InstanceID == nil:
		return invalid("InstanceId can't be null.")
	case req.MemberEpoch < leaveStaticEpoch:
		return invalid("MemberEpoch is invalid.")
	case req.MemberEpoch != joinEpoch:
		return nil
	case req.RebalanceTimeoutMillis == -1:
		return invalid("RebalanceTimeoutMs must be provided in first request.")
	case req.Topics == nil || len(req.Topics) > 0:
		return invalid("TopicPartitions must be empty when (re-)joining.")
	case req.SubscribedTopicNames == nil && req.SubscribedTopicRegex == nil:
		return invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")
	}
	return nil
}

// Leaves reports whether the heartbeat says that its member leaves.
func Leaves(req *kmsg.ConsumerGroupHeartbeatRequest) bool {
	return req.MemberEpoch == leaveEpoch || req.MemberEpoch == leaveStaticEpoch
}

// Joins reports whether the heartbeat makes its member join.
func Joins(req *kmsg.ConsumerGroupHeartbeatRequest) bool { return req.MemberEpoch == joinEpoch }

// reportedOf is what a member says it owns.
func reportedOf(topics []kmsg.ConsumerGroupHeartbeatRequestTopic) map[protocol.UUID][]int32 {
	if topics == nil {
		return nil
	}
	out := make(map[protocol.UUID][]int32, len(topics))
	for _, t := range topics {
		out[t.TopicID] = append(out[t.TopicID], t.Partitions...)
	}
	return out
}

// Heartbeat handles a ConsumerGroupHeartbeat of a member that joins or stays.
// records are those that made the group out of another one; the group may not be
// in the table yet.
func (m *Manager) Heartbeat(g *Group, caller Caller, req *kmsg.ConsumerGroupHeartbeatRequest, records []schema.Record) (*kmsg.ConsumerGroupHeartbeatResponse, Effect, error) {
	s := &stepper{Manager: m, group: g, records: records, reported: reportedOf(req.Topics)}
	if err := s.full(req.MemberID, req.InstanceID); err != nil {
		return nil, Effect{}, err
	}
	memberID := req.MemberID
	if memberID == "" {
		memberID = protocol.RandomUUID().String()
	}
	if err := s.find(memberID, req.MemberEpoch, req.InstanceID); err != nil {
		return nil, Effect{}, err
	}
	before := s.before
	if err := s.update(before.with(func(n *Member) { applyHeartbeat(n, caller, req) }), caller); err != nil {
		return nil, Effect{}, err
	}
	after, err := s.assignAndReconcile(s.changed || s.regexChanged)
	if err != nil {
		return nil, Effect{}, err
	}
	config := m.config(g.ID)
	m.expectHeartbeat(g.ID, memberID, config.SessionTimeout)
	resp := req.ResponseKind().(*kmsg.ConsumerGroupHeartbeatResponse)
	resp.MemberID, resp.MemberEpoch = &after.ID, after.Epoch
	resp.HeartbeatIntervalMillis = int32(config.HeartbeatInterval / time.Millisecond)
	// A full request is one after an error: the member wants to hear everything.
	full := req.RebalanceTimeoutMillis != -1 && (req.SubscribedTopicNames != nil || req.SubscribedTopicRegex != nil) && req.Topics != nil
	if req.MemberEpoch == joinEpoch || full || !before.Assigned.equal(after.Assigned) {
		resp.Assignment = assignmentOf(after)
	}
	return resp, Effect{Records: s.records}, nil
}

// applyHeartbeat changes what the request says; what is null stays.
func applyHeartbeat(n *Member, caller Caller, req *kmsg.ConsumerGroupHeartbeatRequest) {
	if req.InstanceID != nil {
		n.InstanceID = req.InstanceID
	}
	if req.RackID != nil {
		n.RackID = req.RackID
	}
	if req.RebalanceTimeoutMillis != -1 {
		n.RebalanceTimeoutMillis = req.RebalanceTimeoutMillis
	}
	if req.ServerAssignor != nil {
		n.Assignor = req.ServerAssignor
	}
	if req.SubscribedTopicNames != nil {
		n.Topics = sortedSet(req.SubscribedTopicNames)
	}
	if req.SubscribedTopicRegex != nil {
		n.Regex = *req.SubscribedTopicRegex
	}
	n.ClientID, n.ClientHost, n.Classic = caller.ClientID, caller.ClientHost, nil
}

func assignmentOf(m *Member) *kmsg.ConsumerGroupHeartbeatResponseAssignment {
	out := kmsg.NewConsumerGroupHeartbeatResponseAssignment()
	for _, tp := range m.Assigned.plain() {
		t := kmsg.NewConsumerGroupHeartbeatResponseAssignmentTopic()
		t.TopicID, t.Partitions = tp.Topic, tp.Partitions
		out.Topics = append(out.Topics, t)
	}
	return &out
}

// stepper is one heartbeat, or the JoinGroup of a classic member, on its way.
type stepper struct {
	*Manager
	group    *Group
	records  []schema.Record
	reported map[protocol.UUID][]int32
	// before and after are the member.
	before, after *Member
	// changed: the member subscribes to other names. regexChanged: it subscribes
	// to another pattern. resolved: and the topics of that are known.
	changed, regexChanged, resolved bool
	// epoch is the group epoch after this step.
	epoch int32
}

// full refuses new members of a group that has enough.
func (s *stepper) full(memberID string, instanceID *string) error {
	if instanceID != nil && s.group.StaticMember(*instanceID) != nil {
		return nil
	}
	if s.group.NumMembers() >= s.Config.MaxSize && (memberID == "" || s.group.Member(memberID) == nil) {
		return protocol.NewError(kerr.GroupMaxSizeReached.Code,
			fmt.Sprintf("The consumer group has reached its maximum capacity of %d members.", s.Config.MaxSize))
	}
	return nil
}

// find looks the member up, or makes it.
func (s *stepper) find(memberID string, epoch int32, instanceID *string) error {
	join := epoch == joinEpoch
	if instanceID == nil {
		s.before = s.group.Member(memberID)
		if s.before == nil {
			if !join {
				return unknownMember(s.group, memberID)
			}
			s.before = newMember(memberID)
		}
		return s.validEpoch(epoch)
	}
	existing := s.group.StaticMember(*instanceID)
	if !join {
		if err := checkStatic(existing, memberID, *instanceID); err != nil {
			return err
		}
		s.before = existing
		return s.validEpoch(epoch)
	}
	if existing == nil {
		if s.before = s.group.Member(memberID); s.before == nil {
			s.before = newMember(memberID)
		}
		return nil
	}
	if existing.Classic == nil && existing.Epoch != leaveStaticEpoch {
		return protocol.NewError(kerr.UnreleasedInstanceID.Code, "Static member "+memberID+" with instance id "+*instanceID+
			" cannot join the group because the instance id is owned by "+existing.ID+" member.")
	}
	s.replace(existing, memberID)
	return nil
}

// replace puts a new member into the place of a static one: it inherits the
// assignment.
func (s *stepper) replace(existing *Member, memberID string) {
	s.before = existing.with(func(n *Member) { n.ID, n.Epoch, n.PreviousEpoch = memberID, joinEpoch, joinEpoch })
	s.records = append(s.records, removeRecords(s.group.ID, existing.ID)...)
	s.records = append(s.records, memberRecord(s.group.ID, s.before),
		targetRecord(s.group.ID, memberID, s.group.Target(existing.ID)), currentRecord(s.group.ID, s.before))
	if existing.ID != memberID {
		s.cancelTimers(s.group.ID, existing.ID)
	}
}

// checkStatic makes sure that the member id is the one behind the instance id.
func checkStatic(existing *Member, memberID, instanceID string) error {
	if existing == nil {
		return protocol.NewError(kerr.UnknownMemberID.Code, "Instance id "+instanceID+" is unknown.")
	}
	if existing.ID != memberID {
		return protocol.NewError(kerr.FencedInstanceID.Code,
			"Static member "+memberID+" with instance id "+instanceID+" was fenced by member "+existing.ID+".")
	}
	return nil
}

// validEpoch accepts the member's epoch, and the one before it from a member
// that missed the answer and owns nothing that it lost.
func (s *stepper) validEpoch(epoch int32) error {
	m := s.before
	switch {
	case epoch == joinEpoch, epoch == m.Epoch:
		return nil
	case epoch > m.Epoch:
		return fenced(fmt.Sprintf("The consumer group member has a greater member epoch (%d) than the one known by the group coordinator (%d). "+
			"The member must abandon all its partitions and rejoin.", epoch, m.Epoch))
	case epoch != m.PreviousEpoch || !s.reportsOnly(m.Assigned):
		return fenced(fmt.Sprintf("The consumer group member has a smaller member epoch (%d) than the one known by the group coordinator (%d). "+
			"The member must abandon all its partitions and rejoin.", epoch, m.Epoch))
	}
	return nil
}

// reportsOnly reports whether the member says what it owns, and that is not more
// than o.
func (s *stepper) reportsOnly(o Owned) bool {
	if s.reported == nil {
		return false
	}
	for topic, partitions := range s.reported {
		for _, index := range partitions {
			if !o.has(topic, index) {
				return false
			}
		}
	}
	return true
}

// update takes the member's new metadata, and bumps the group epoch when it
// matters to the others.
func (s *stepper) update(after *Member, caller Caller) error {
	s.after = after
	g := s.group
	if !after.sameMetadata(s.before) {
		s.records = append(s.records, memberRecord(g.ID, after))
		s.changed = !slices.Equal(after.Topics, s.before.Topics)
	}
	if err := s.updateRegex(caller); err != nil {
		return err
	}
	c := s.change()
	bump := s.changed || s.resolved || (!equalPtr(after.Assignor, s.before.Assignor) && s.assignorOf(g, change{}) != s.assignorOf(g, c))
	s.epoch = g.Epoch()
	if !bump && !g.refreshNeeded() {
		return nil
	}
	hash := s.hashes.metadata(g.topicNames(c), s.Topics())
	if bump || hash != g.hash.Get() {
		s.epoch++
		s.records = append(s.records, epochRecord(g.ID, s.epoch, hash))
		s.Rebalanced()
		s.Logger.Info("group epoch bumped", "group", g.ID, "epoch", s.epoch)
	}
	g.refreshedEpoch = s.epoch
	if g.oldMetadata.Get() {
		s.records = append(s.records, oldMetadataTombstone(g.ID))
	}
	return nil
}

// change is the group with the member as it is after this step, and without the
// static member that it replaces.
func (s *stepper) change() change {
	c := change{with: s.after}
	if s.after.InstanceID != nil {
		if old := s.group.StaticMember(*s.after.InstanceID); old != nil && old.ID != s.after.ID {
			c.without = map[string]bool{old.ID: true}
		}
	}
	return c
}
