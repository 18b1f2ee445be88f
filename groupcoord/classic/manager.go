package classic

import (
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/groupcoord/schema"
	"gregor/internal/coordinator"
	"gregor/protocol"
)

// Effect is what a step wants to be written.
type Effect = coordinator.Effect[schema.Record]

// Config of classic groups.
type Config struct {
	// MaxSize is group.max.size.
	MaxSize int
	// InitialRebalanceDelay is group.initial.rebalance.delay.ms.
	InitialRebalanceDelay time.Duration
	// NewMemberJoinTimeout is how long the JoinGroup of a new member waits;
	// Kafka has five minutes.
	NewMemberJoinTimeout time.Duration
	// MinSessionTimeoutMillis and MaxSessionTimeoutMillis are
	// group.min.session.timeout.ms and group.max.session.timeout.ms.
	MinSessionTimeoutMillis, MaxSessionTimeoutMillis int32
}

// Groups finds the groups of the partition. Timers look their group up again:
// it may have been deleted, or replaced.
type Groups interface {
	// Classic returns the classic group of that id, nil when there is none.
	Classic(id string) *Group
}

// Caller is where a request comes from.
type Caller struct {
	// ClientID of the request header, ClientHost as Kafka stores it: "/" and
	// the address.
	ClientID, ClientHost string
}

// Manager takes the steps of all classic groups of a partition.
type Manager struct {
	cfg    Config
	groups Groups
	timers coordinator.Timers[schema.Record]
	newID  func() string
	log    *slog.Logger
	// completed counts rebalances that reached Stable.
	completed func()
}

// ManagerOptions of NewManager.
type ManagerOptions struct {
	Config Config
	Groups Groups
	Timers coordinator.Timers[schema.Record]
	// NewID returns a random UUID in its usual text form.
	NewID  func() string
	Logger *slog.Logger
	// RebalanceCompleted, when set, is called when a group becomes stable.
	RebalanceCompleted func()
}

// NewManager returns a manager.
func NewManager(o ManagerOptions) *Manager {
	m := &Manager{cfg: o.Config, groups: o.Groups, timers: o.Timers, newID: o.NewID, log: o.Logger, completed: o.RebalanceCompleted}
	if m.log == nil {
		m.log = slog.New(slog.DiscardHandler)
	}
	if m.completed == nil {
		m.completed = func() {}
	}
	return m
}

// Keys of the timers. Ids may hold any character but NUL in practice; a dash
// between them would let one group's client reach another group's timers.
func heartbeatKey(group, member string) string { return "heartbeat\x00" + group + "\x00" + member }
func joinKey(group string) string              { return "join\x00" + group }
func syncKey(group string) string              { return "sync\x00" + group }

// Loaded sets the timers of a group that was read from the log.
func (m *Manager) Loaded(g *Group) {
	for _, member := range g.order {
		m.expectHeartbeat(g, member)
	}
	if len(g.members) > m.cfg.MaxSize {
		m.prepareRebalance(g, "the loaded group is over capacity")
	}
	g.check()
}

// Unloaded answers everybody who waits with err. The group is dead then.
func (m *Manager) Unloaded(g *Group, err error) {
	code := protocol.ErrorCode(err)
	g.transition(Dead)
	for _, member := range g.order {
		g.answerJoin(member, &kmsg.JoinGroupResponse{MemberID: member.ID, Generation: -1, ErrorCode: code})
		g.answerSync(member, &kmsg.SyncGroupResponse{ErrorCode: code})
	}
}

// Deleted forgets the timers of an empty group that is deleted.
func (m *Manager) Deleted(g *Group) {
	m.timers.Cancel(joinKey(g.ID))
	m.timers.Cancel(syncKey(g.ID))
	for id := range g.pendingJoin {
		m.timers.Cancel(heartbeatKey(g.ID, id))
	}
}

// Committed keeps the session of a member alive that commits offsets.
func (m *Manager) Committed(g *Group, memberID string) {
	if member := g.members[memberID]; member != nil && (g.state == Stable || g.state == PreparingRebalance) {
		m.expectHeartbeat(g, member)
	}
}

// expectHeartbeat restarts a member's session.
func (m *Manager) expectHeartbeat(g *Group, member *Member) {
	m.expectHeartbeatIn(g, member.ID, member.sessionTimeout())
}

func (m *Manager) expectHeartbeatIn(g *Group, memberID string, timeout time.Duration) {
	groupID := g.ID
	m.timers.Schedule(heartbeatKey(groupID, memberID), timeout, false, func() (Effect, error) {
		return m.expireMember(groupID, memberID), nil
	})
}

// expireMember removes a member, or a pending one, whose session ended.
func (m *Manager) expireMember(groupID, memberID string) Effect {
	g := m.groups.Classic(groupID)
	if g == nil {
		return Effect{}
	}
	defer g.check()
	if _, pending := g.pendingJoin[memberID]; pending {
		m.log.Info("pending member removed: session timed out", "group", groupID, "member", memberID)
		g.remove(memberID)
		return m.completeIfAllJoined(g)
	}
	member := g.members[memberID]
	if member == nil || member.heartbeatSatisfied() {
		return Effect{}
	}
	m.log.Info("member removed: session timed out", "group", groupID, "member", memberID)
	// A new member may still wait for its first rebalance. The unknown id makes
	// its client join again, if it is alive.
	g.answerJoin(member, joinError("", kerrUnknownMember))
	g.remove(memberID)
	if g.state == Stable || g.state == CompletingRebalance {
		return m.rebalanceOrComplete(g, "member timed out")
	}
	return m.completeIfAllJoined(g)
}

// completeIfAllJoined ends the join phase if nobody else is waited for.
func (m *Manager) completeIfAllJoined(g *Group) Effect {
	if g.state == PreparingRebalance && g.allJoined() {
		return m.completeJoin(g)
	}
	return Effect{}
}
