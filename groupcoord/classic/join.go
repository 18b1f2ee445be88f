package classic

import (
	"cmp"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/internal/coordinator"
	"gregor/protocol"
)

// Versions of JoinGroup.
const (
	memberIDRequiredVersion = 4 // KIP-394
	skipAssignmentVersion   = 9 // KIP-814
)

var kerrUnknownMember = kerr.UnknownMemberID

// joinError is a JoinGroup answer with an error.
func joinError(memberID string, err error) *kmsg.JoinGroupResponse {
	return &kmsg.JoinGroupResponse{MemberID: memberID, Generation: -1, ErrorCode: protocol.ErrorCode(err)}
}

// request is a JoinGroup on its way through the steps.
type request struct {
	*kmsg.JoinGroupRequest
	caller Caller
	terms  terms
	reply  func(*kmsg.JoinGroupResponse)
}

func (r *request) fail(memberID string, err error) Effect {
	r.reply(joinError(memberID, err))
	return Effect{}
}

func (r *request) reason() string {
	if r.Reason == nil {
		return "not provided"
	}
	return *r.Reason
}

// Join handles a JoinGroup. reply gets the answer, perhaps much later, and only
// the first one counts. isNew says that the group was made for this request:
// then it is written even if the request changes nothing else.
func (m *Manager) Join(g *Group, isNew bool, caller Caller, req *kmsg.JoinGroupRequest, reply func(*kmsg.JoinGroupResponse)) Effect {
	defer g.check()
	r := &request{JoinGroupRequest: req, caller: caller, reply: reply, terms: termsOf(req)}
	effect := m.join(g, r)
	if isNew && len(effect.Records) == 0 {
		return Effect{
			Applied: true, Records: append(effect.Records, emptyRecord(g)),
			Done: func(err error) {
				if err != nil {
					m.log.Warn("new group not written", "group", g.ID, "cause", err)
					reply(joinError("", coordinator.ClientError(err)))
				}
			},
		}
	}
	return effect
}

// termsOf reads the terms of a request. Version 0 has no rebalance timeout.
func termsOf(req *kmsg.JoinGroupRequest) terms {
	t := terms{
		RebalanceTimeoutMillis: req.RebalanceTimeoutMillis, SessionTimeoutMillis: req.SessionTimeoutMillis,
		Protocols: make([]Protocol, 0, len(req.Protocols)),
	}
	if req.Version == 0 {
		t.RebalanceTimeoutMillis = req.SessionTimeoutMillis
	}
	seen := make(map[string]struct{}, len(req.Protocols))
	for _, p := range req.Protocols {
		if _, dup := seen[p.Name]; dup {
			continue
		}
		seen[p.Name] = struct{}{}
		t.Protocols = append(t.Protocols, Protocol{Name: p.Name, Metadata: append([]byte{}, p.Metadata...)})
	}
	return t
}

func (m *Manager) join(g *Group, r *request) Effect {
	if !m.accepts(g, r.MemberID) {
		g.remove(r.MemberID)
		return r.fail("", kerr.GroupMaxSizeReached)
	}
	if r.MemberID == "" {
		return m.joinNew(g, r)
	}
	return m.joinExisting(g, r)
}

// accepts reports whether there is room for the member. During a rebalance the
// members that wait count, not all: so the last to rejoin are kept out if the
// group is over capacity.
func (m *Manager) accepts(g *Group, memberID string) bool {
	member := g.members[memberID]
	switch g.state {
	case PreparingRebalance:
		return (member != nil && member.join != nil) || g.awaitingJoin < m.cfg.MaxSize
	case CompletingRebalance, Stable:
		return member != nil || len(g.members) < m.cfg.MaxSize
	case Empty, Dead:
	}
	return true
}

func (m *Manager) joinNew(g *Group, r *request) Effect {
	if !g.supports(r.ProtocolType, r.terms.Protocols) {
		return r.fail("", kerr.InconsistentGroupProtocol)
	}
	if r.InstanceID != nil {
		newID := *r.InstanceID + "-" + m.newID()
		if oldID, ok := g.static[*r.InstanceID]; ok {
			m.log.Info("static member joins again under a new id", "group", g.ID, "instance", *r.InstanceID, "old", oldID, "new", newID)
			return m.replaceStatic(g, r, oldID, newID)
		}
		return m.addMember(g, r, newID)
	}
	newID := r.caller.ClientID + "-" + m.newID()
	if r.Version < memberIDRequiredVersion {
		return m.addMember(g, r, newID)
	}
	// Nothing is kept of the member but its id, until it uses it.
	g.pendingJoin[newID] = struct{}{}
	m.expectHeartbeatIn(g, newID, (&Member{terms: r.terms}).sessionTimeout())
	return r.fail(newID, kerr.MemberIDRequired)
}

func (m *Manager) joinExisting(g *Group, r *request) Effect {
	if !g.supports(r.ProtocolType, r.terms.Protocols) {
		return r.fail(r.MemberID, kerr.InconsistentGroupProtocol)
	}
	if _, pending := g.pendingJoin[r.MemberID]; pending {
		if r.InstanceID != nil {
			// Ids are handed out to dynamic members only. Kafka breaks here, too.
			m.log.Warn("pending member joins as a static one", "group", g.ID, "member", r.MemberID, "instance", *r.InstanceID)
			return r.fail(r.MemberID, kerr.UnknownServerError)
		}
		return m.addMember(g, r, r.MemberID)
	}
	if err := g.validateMember(r.MemberID, r.InstanceID); err != nil {
		return r.fail(r.MemberID, err)
	}
	member := g.members[r.MemberID]
	switch g.state {
	case PreparingRebalance:
		return m.updateMember(g, r, member, "member joins during the rebalance")
	case CompletingRebalance:
		if !member.matches(r.terms.Protocols) {
			return m.updateMember(g, r, member, "member joins with other metadata")
		}
		// The answer to the first request may have been lost.
		resp := g.joined(member)
		if g.leader == member.ID {
			resp.Members = g.memberList()
		}
		r.reply(resp)
		return Effect{}
	case Stable:
		if g.leader == member.ID {
			// The leader wants a new assignment, perhaps because topics changed.
			return m.updateMember(g, r, member, "leader joins again")
		}
		if !member.matches(r.terms.Protocols) {
			return m.updateMember(g, r, member, "member joins with other metadata")
		}
		r.reply(g.joined(member))
		return Effect{}
	case Empty, Dead:
	}
	return r.fail(r.MemberID, kerr.UnknownMemberID)
}

// joined is the answer to a member of the present generation.
func (g *Group) joined(member *Member) *kmsg.JoinGroupResponse {
	resp := &kmsg.JoinGroupResponse{
		Generation: g.Generation, MemberID: member.ID, LeaderID: g.leader, Protocol: g.protocol, Members: []kmsg.JoinGroupResponseMember{},
	}
	if g.ProtocolType != "" {
		protocolType := g.ProtocolType
		resp.ProtocolType = &protocolType
	}
	return resp
}

// memberList is what the leader gets to see.
func (g *Group) memberList() []kmsg.JoinGroupResponseMember {
	list := make([]kmsg.JoinGroupResponseMember, 0, len(g.order))
	for _, member := range g.inKafkasOrder() {
		out := kmsg.NewJoinGroupResponseMember()
		out.MemberID, out.InstanceID, out.ProtocolMetadata = member.ID, member.InstanceID, member.Metadata(g.protocol)
		list = append(list, out)
	}
	return list
}

func (m *Manager) updateMember(g *Group, r *request, member *Member, why string) Effect {
	g.update(member, r.terms, r.reply)
	return m.rebalanceOrComplete(g, why+"; client reason: "+r.reason())
}

func (m *Manager) addMember(g *Group, r *request, memberID string) Effect {
	member := &Member{
		ID: memberID, InstanceID: r.InstanceID, ClientID: r.caller.ClientID, ClientHost: r.caller.ClientHost,
		ProtocolType: r.ProtocolType, terms: r.terms, isNew: true,
	}
	if g.state == PreparingRebalance && g.previous == Empty {
		g.newMemberAdded = true
	}
	g.add(member, r.reply)
	// The client does not know its id yet, so it cannot send heartbeats; and if
	// it is gone nobody would notice. So the request itself times out.
	m.expectHeartbeatIn(g, memberID, cmp.Or(m.cfg.NewMemberJoinTimeout, defaultNewMemberJoinTimeout))
	return m.rebalanceOrComplete(g, "new member; client reason: "+r.reason())
}

// replaceStatic lets a static member that lost its id go on under a new one. If
// the group is stable and the selected protocol stays the same nobody else has
// to know.
func (m *Manager) replaceStatic(g *Group, r *request, oldID, newID string) Effect {
	oldLeader := g.leader
	member := g.replaceStatic(*r.InstanceID, oldID, newID)
	m.expectHeartbeat(g, member)
	oldTerms := member.terms
	g.update(member, r.terms, r.reply)
	switch g.state {
	case Stable:
		if g.protocol == nil || *g.protocol != g.selectProtocol() {
			return m.rebalanceOrComplete(g, "static member joins with other protocols; client reason: "+r.reason())
		}
		return Effect{
			Applied: true, Records: append(Effect{}.Records, g.record(nil)),
			Done: func(err error) {
				if err != nil {
					m.unreplaceStatic(g, r, replaced{member: member, oldID: oldID, oldLeader: oldLeader, oldTerms: oldTerms, err: err})
					return
				}
				m.staticReplaced(g, r, member, oldLeader)
			},
		}
	case CompletingRebalance:
		// The old id may be on its way to the leader, and the new one would get
		// no assignment.
		return m.prepareRebalance(g, "static member joins again; client reason: "+r.reason())
	case PreparingRebalance, Empty, Dead:
	}
	return m.maybeCompleteJoin(g)
}

// replaced is a replacement that could not be written.
type replaced struct {
	member           *Member
	oldID, oldLeader string
	oldTerms         terms
	err              error
}

// unreplaceStatic gives a static member its old id back.
func (m *Manager) unreplaceStatic(g *Group, r *request, x replaced) {
	m.log.Warn("new id of a static member not written", "group", g.ID, "member", x.member.ID, "cause", x.err)
	resp := g.joined(x.member)
	resp.MemberID, resp.LeaderID, resp.ErrorCode = "", x.oldLeader, protocol.ErrorCode(coordinator.ClientError(x.err))
	if g.members[x.member.ID] == x.member {
		g.update(x.member, x.oldTerms, nil)
		m.expectHeartbeat(g, g.replaceStatic(*r.InstanceID, x.member.ID, x.oldID))
	}
	r.reply(resp)
	g.check()
}

// staticReplaced answers the static member. Old clients would compute an
// assignment if they were told that they lead, so they are told the old id.
func (m *Manager) staticReplaced(g *Group, r *request, member *Member, oldLeader string) {
	resp := g.joined(member)
	if r.Version >= skipAssignmentVersion {
		if g.leader == member.ID {
			resp.SkipAssignment = true
			resp.Members = g.memberList()
		}
	} else {
		resp.LeaderID = oldLeader
	}
	g.answerJoin(member, resp)
}
