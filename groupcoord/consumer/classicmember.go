package consumer

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/groupcoord/assignor"
	"gregor/groupcoord/schema"
	"gregor/protocol"
)

// A member that speaks the classic protocol takes part in a consumer group by
// JoinGroup (its subscription), SyncGroup (its assignment) and Heartbeat (is
// there something new). Its generation is its member epoch. The coordinator
// assigns to it, too, so nobody leads.

// protocolType of classic members of a consumer group.
const protocolType = "consumer"

// memberIDRequiredVersion is the first JoinGroup that gets its id first.
const memberIDRequiredVersion = 4

// ClassicJoin handles a JoinGroup of a classic member. reply is called when the
// records are written; an error is the answer at once.
func (m *Manager) ClassicJoin(g *Group, caller Caller, req *kmsg.JoinGroupRequest, reply func(*kmsg.JoinGroupResponse)) (Effect, error) {
	s := &stepper{Manager: m, group: g}
	memberID, unknown := req.MemberID, req.MemberID == ""
	if unknown {
		memberID = protocol.RandomUUID().String()
	}
	if err := s.full(memberID, req.InstanceID); err != nil {
		return Effect{}, err
	}
	if !g.supportsClassic(req) {
		return Effect{}, kerr.InconsistentGroupProtocol
	}
	if unknown && req.InstanceID == nil && req.Version >= memberIDRequiredVersion {
		reply(&kmsg.JoinGroupResponse{Generation: -1, MemberID: memberID, ErrorCode: kerr.MemberIDRequired.Code})
		return Effect{}, nil
	}
	subscription, _, err := schema.DecodeSubscription(req.Protocols[0].Metadata)
	if err != nil {
		return Effect{}, protocol.NewError(kerr.InconsistentGroupProtocol.Code, "Malformed embedded consumer protocol in subscription deserialization.")
	}
	if err := s.findClassic(memberID, unknown, req.InstanceID); err != nil {
		return Effect{}, err
	}
	s.reported = ownedOf(subscription, m.Topics())
	after := s.before.with(func(n *Member) { applyClassicJoin(n, caller, req, subscription) })
	downgrade := m.downgradesWith(g, after)
	if err := s.update(after, caller); err != nil {
		return Effect{}, err
	}
	member, records, err := s.classicJoined(downgrade)
	if err != nil {
		return Effect{}, err
	}
	protocolName, kind := member.Classic.SupportedProtocols[0].Name, protocolType
	resp := &kmsg.JoinGroupResponse{
		MemberID: member.ID, Generation: member.Epoch, ProtocolType: &kind, Protocol: &protocolName, Members: []kmsg.JoinGroupResponseMember{},
	}
	session, rebalance := millis(req.SessionTimeoutMillis), millis(member.RebalanceTimeoutMillis)
	return Effect{Records: records, Applied: downgrade, Done: func(err error) {
		if err != nil {
			return
		}
		m.Timers.Cancel(joinKey(g.ID, member.ID))
		if !downgrade {
			m.expectHeartbeat(g.ID, member.ID, session)
			m.expectClassic(syncKey(g.ID, member.ID), g.ID, member.ID, rebalance, "it did not sync in time")
		}
		reply(resp)
	}}, nil
}

// supportsClassic reports whether the protocols fit to those of the classic
// members.
func (g *Group) supportsClassic(req *kmsg.JoinGroupRequest) bool {
	if req.ProtocolType != protocolType || len(req.Protocols) == 0 {
		return false
	}
	supported := make(map[string]int)
	for _, m := range g.members.All() {
		if m.Classic != nil {
			for _, p := range m.Classic.SupportedProtocols {
				supported[p.Name]++
			}
		}
	}
	for _, p := range req.Protocols {
		if supported[p.Name] == g.classicMembers.Get() {
			return true
		}
	}
	return false
}

// findClassic looks the member up, or makes it. Any id may join.
func (s *stepper) findClassic(memberID string, unknown bool, instanceID *string) error {
	if instanceID == nil {
		if s.before = s.group.Member(memberID); s.before == nil {
			s.before = newMember(memberID)
		}
		return nil
	}
	existing := s.group.StaticMember(*instanceID)
	switch {
	case !unknown:
		if err := checkStatic(existing, memberID, *instanceID); err != nil {
			return err
		}
		s.before = existing
	case existing == nil:
		s.before = newMember(memberID)
	default:
		s.replace(existing, memberID)
	}
	return nil
}

func applyClassicJoin(n *Member, caller Caller, req *kmsg.JoinGroupRequest, sub *schema.ConsumerProtocolSubscription) {
	if req.InstanceID != nil {
		n.InstanceID = req.InstanceID
	}
	if sub.RackID != nil && *sub.RackID != "" {
		n.RackID = sub.RackID
	}
	if n.RebalanceTimeoutMillis = req.RebalanceTimeoutMillis; req.Version == 0 {
		n.RebalanceTimeoutMillis = req.SessionTimeoutMillis
	}
	n.Topics, n.Regex = sortedSet(sub.Topics), ""
	n.ClientID, n.ClientHost = caller.ClientID, caller.ClientHost
	n.Classic = &Classic{SessionTimeoutMs: req.SessionTimeoutMillis}
	for _, p := range req.Protocols {
		n.Classic.SupportedProtocols = append(n.Classic.SupportedProtocols, schema.ConsumerGroupClassicProtocol{Name: p.Name, Metadata: append([]byte{}, p.Metadata...)})
	}
}

// ownedOf is what a classic member says it owns.
func ownedOf(sub *schema.ConsumerProtocolSubscription, topics Topics) map[protocol.UUID][]int32 {
	out := make(map[protocol.UUID][]int32)
	for _, tp := range sub.OwnedPartitions {
		if t, ok := topics.ByName(tp.Topic); ok {
			out[t.ID] = tp.Partitions
		}
	}
	return out
}

// downgradesWith reports whether the group becomes a classic one when member
// replaces the last member of the consumer protocol, a static one.
func (m *Manager) downgradesWith(g *Group, member *Member) bool {
	if member.InstanceID == nil {
		return false
	}
	old := g.StaticMember(*member.InstanceID)
	return old != nil && old.Classic == nil && g.classicMembers.Get() == g.NumMembers()-1 && m.Downgrader.MayDowngrade(g.NumMembers())
}

// classicJoined gives the member its assignment, or downgrades the group.
func (s *stepper) classicJoined(downgrade bool) (*Member, []schema.Record, error) {
	g := s.group
	changed := s.changed || s.regexChanged
	if !downgrade {
		member, err := s.assignAndReconcile(changed)
		return member, s.records, err
	}
	rebalance := g.AssignmentEpoch() < s.epoch
	if !rebalance {
		epoch, target := s.lastTarget()
		if _, err := s.reconcile(epoch, target, changed); err != nil {
			return nil, nil, err
		}
	}
	d := Downgrade{Joining: s.after, Rebalance: rebalance, Reason: "downgrade from consumer to classic with a stale assignment"}
	records, err := s.Downgrader.Downgrade(g, d)
	return s.after, append(s.records, records...), err
}

// expectClassic expels a classic member that does not do its next step in time.
func (m *Manager) expectClassic(key, groupID, memberID string, timeout time.Duration, why string) {
	m.Timers.Schedule(key, timeout, true, func() (Effect, error) { return m.expel(groupID, memberID, why) })
}

// expectJoin expels a classic member that was told to join again and does not.
func (m *Manager) expectJoin(g *Group, member *Member) {
	if key := joinKey(g.ID, member.ID); !m.Timers.Scheduled(key) {
		m.expectClassic(key, g.ID, member.ID, millis(member.RebalanceTimeoutMillis), "it did not rejoin in time")
	}
}

// classicMember finds the member of a SyncGroup or Heartbeat.
func (g *Group) classicMember(memberID string, instanceID *string, generation int32) (*Member, error) {
	m := g.Member(memberID)
	if instanceID != nil {
		m = g.StaticMember(*instanceID)
		if m == nil {
			return nil, kerr.UnknownMemberID
		}
		if err := checkStatic(m, memberID, *instanceID); err != nil {
			return nil, err
		}
	}
	switch {
	case m == nil:
		return nil, unknownMember(g, memberID)
	case m.Classic == nil:
		return nil, protocol.NewError(kerr.UnknownMemberID.Code, "Member "+memberID+" does not use the classic protocol.")
	case m.Epoch != generation:
		return nil, protocol.NewError(kerr.IllegalGeneration.Code,
			fmt.Sprintf("The request generation id %d is not equal to the member epoch %d of member %s.", generation, m.Epoch, memberID))
	}
	return m, nil
}

// ClassicSync handles a SyncGroup of a classic member.
func (m *Manager) ClassicSync(g *Group, req *kmsg.SyncGroupRequest, reply func(*kmsg.SyncGroupResponse)) (Effect, error) {
	member, err := g.classicMember(req.MemberID, req.InstanceID, req.Generation)
	if err != nil {
		return Effect{}, err
	}
	if (req.ProtocolType != nil && *req.ProtocolType != protocolType) || (req.Protocol != nil && *req.Protocol != member.Classic.SupportedProtocols[0].Name) {
		return Effect{}, kerr.InconsistentGroupProtocol
	}
	if g.AssignmentEpoch() > member.Epoch && member.State != UnrevokedPartitions {
		m.expectJoin(g, member)
		return Effect{}, kerr.RebalanceInProgress
	}
	assignment, err := m.ClassicAssignment(member, member.Assigned.plain())
	if err != nil {
		return Effect{}, err
	}
	return Effect{Applied: true, Done: func(err error) {
		if err != nil {
			return
		}
		m.Timers.Cancel(syncKey(g.ID, member.ID))
		m.expectHeartbeat(g.ID, member.ID, millis(member.Classic.SessionTimeoutMs))
		reply(&kmsg.SyncGroupResponse{ProtocolType: req.ProtocolType, Protocol: req.Protocol, MemberAssignment: assignment})
	}}, nil
}

// ClassicAssignment is an assignment in the form that the member's client reads:
// of the version that it sent itself.
func (m *Manager) ClassicAssignment(member *Member, a assignor.Assignment) ([]byte, error) {
	metadata := member.Classic.SupportedProtocols[0].Metadata
	if len(metadata) < 2 {
		return nil, fmt.Errorf("metadata of member %s has no version", member.ID)
	}
	out := schema.NewConsumerProtocolAssignment()
	topics := m.Topics()
	for _, tp := range a.Sorted() {
		if t, ok := topics.ByID(tp.Topic); ok {
			out.AssignedPartitions = append(out.AssignedPartitions, schema.ConsumerProtocolAssignedTopic{Topic: t.Name, Partitions: tp.Partitions})
		}
	}
	_, highest := out.Versions()
	version := min(int16(binary.BigEndian.Uint16(metadata)), highest)
	return schema.AppendAssignment(nil, out, version)
}

// ClassicHeartbeat handles a Heartbeat of a classic member.
func (m *Manager) ClassicHeartbeat(g *Group, req *kmsg.HeartbeatRequest) error {
	member, err := g.classicMember(req.MemberID, req.InstanceID, req.Generation)
	if err != nil {
		return err
	}
	m.expectHeartbeat(g.ID, member.ID, millis(member.Classic.SessionTimeoutMs))
	if member.Epoch < g.AssignmentEpoch() || member.State == UnrevokedPartitions ||
		(member.State == UnreleasedPartitions && !g.waitsForOthers(member)) {
		m.expectJoin(g, member)
		return kerr.RebalanceInProgress
	}
	return nil
}

// waitsForOthers reports whether a partition of the member's target is still
// owned by another one.
func (g *Group) waitsForOthers(m *Member) bool {
	for _, tp := range g.Target(m.ID) {
		for _, index := range tp.Partitions {
			if !m.Assigned.has(tp.Topic, index) && g.ownerEpoch(tp.Topic, index) != noEpoch {
				return true
			}
		}
	}
	return false
}

// ClassicLeave handles a LeaveGroup: of members of either protocol.
func (m *Manager) ClassicLeave(g *Group, leaving []kmsg.LeaveGroupRequestMember) ([]kmsg.LeaveGroupResponseMember, Effect, error) {
	out := make([]kmsg.LeaveGroupResponseMember, 0, len(leaving))
	var gone []*Member
	seen := make(map[string]bool)
	for _, who := range leaving {
		answer := kmsg.NewLeaveGroupResponseMember()
		answer.MemberID, answer.InstanceID = who.MemberID, who.InstanceID
		member, err := g.leaver(who)
		switch {
		case err != nil:
			answer.ErrorCode = protocol.ErrorCode(err)
		case !seen[member.ID]:
			seen[member.ID] = true
			gone = append(gone, member)
		}
		out = append(out, answer)
	}
	effect, err := m.remove(g, gone)
	return out, effect, err
}

func (g *Group) leaver(who kmsg.LeaveGroupRequestMember) (*Member, error) {
	if who.InstanceID == nil {
		if m := g.Member(who.MemberID); m != nil {
			return m, nil
		}
		return nil, unknownMember(g, who.MemberID)
	}
	m := g.StaticMember(*who.InstanceID)
	if m != nil && who.MemberID == "" {
		return m, nil
	}
	return m, checkStatic(m, who.MemberID, *who.InstanceID)
}

// FromClassic is a member of a classic group that becomes a consumer group.
type FromClassic struct {
	ID                                           string
	InstanceID                                   *string
	ClientID, ClientHost                         string
	RebalanceTimeoutMillis, SessionTimeoutMillis int32
	Protocols                                    []schema.ConsumerGroupClassicProtocol
	// Metadata is that of the group's selected protocol.
	Metadata, Assignment []byte
}

// Upgrade makes a consumer group out of a classic one. The group is not in the
// table: its records will be replayed.
func (m *Manager) Upgrade(g *Group, generation int32, members []FromClassic) error {
	g.epoch.Set(generation)
	g.assignmentEpoch.Set(generation)
	topics := m.Topics()
	for i := range members {
		old := &members[i]
		assigned := make(Owned)
		var target assignor.Assignment
		if len(old.Assignment) > 0 {
			a, _, err := schema.DecodeAssignment(old.Assignment)
			if err != nil {
				return cannotUpgrade(g.ID, "the embedded consumer protocol is malformed")
			}
			if len(a.UserData) > 0 {
				return cannotUpgrade(g.ID, "an unsupported custom assignor is in use. "+
					"Please refer to the documentation or switch to a default assignor before re-attempting the upgrade")
			}
			target = targetOfClassic(a, topics)
			for _, tp := range target {
				for _, index := range tp.Partitions {
					put(assigned, tp.Topic, index, generation)
				}
			}
		}
		sub, _, err := schema.DecodeSubscription(old.Metadata)
		if err != nil {
			return cannotUpgrade(g.ID, "the embedded consumer protocol is malformed")
		}
		member := newMember(old.ID).with(func(n *Member) {
			n.Epoch, n.PreviousEpoch, n.InstanceID, n.RackID = generation, generation, old.InstanceID, sub.RackID
			n.RebalanceTimeoutMillis, n.ClientID, n.ClientHost = old.RebalanceTimeoutMillis, old.ClientID, old.ClientHost
			n.Topics, n.Assigned = sortedSet(sub.Topics), assigned
			n.Classic = &Classic{SessionTimeoutMs: old.SessionTimeoutMillis, SupportedProtocols: old.Protocols}
		})
		g.target.Set(member.ID, target)
		g.setMember(member)
	}
	g.hash.Set(m.hashes.metadata(g.topicNames(change{}), topics))
	for _, member := range g.Members() {
		m.expectHeartbeat(g.ID, member.ID, millis(member.Classic.SessionTimeoutMs))
	}
	return nil
}

// targetOfClassic is what a classic member was assigned, in that order, as far as
// the topics exist.
func targetOfClassic(a *schema.ConsumerProtocolAssignment, topics Topics) assignor.Assignment {
	var out assignor.Assignment
	for _, tp := range a.AssignedPartitions {
		if t, ok := topics.ByName(tp.Topic); ok && out.Of(t.ID) == nil {
			out = append(out, assignor.TopicPartitions{Topic: t.ID, Partitions: slices.Clone(tp.Partitions)})
		}
	}
	return out
}

func cannotUpgrade(groupID, why string) error {
	return protocol.NewError(kerr.GroupIDNotFound.Code, "Cannot upgrade classic group "+groupID+" to consumer group because "+why+".")
}
