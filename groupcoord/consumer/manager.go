package consumer

import (
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"gregor/groupcoord/assignor"
	"gregor/groupcoord/schema"
	"gregor/internal/coordinator"
	"gregor/protocol"
)

// Effect is what a step wants to be written.
type Effect = coordinator.Effect[schema.Record]

// Config of consumer groups.
type Config struct {
	// Assignors are group.consumer.assignors; the first is the default.
	Assignors []string
	// MaxSize is group.consumer.max.size.
	MaxSize int
	// RegexRefreshInterval is group.consumer.regex.refresh.interval.ms.
	RegexRefreshInterval time.Duration
	// Defaults of what a group's own config may change.
	Defaults GroupConfig
}

// GroupConfig is what a group's own config (consumer.*) may change.
type GroupConfig struct {
	SessionTimeout, HeartbeatInterval, AssignmentInterval time.Duration
}

// regexMinInterval is the least time between two resolutions of a group's
// patterns.
const regexMinInterval = 10 * time.Second

// Groups finds the groups of the partition.
type Groups interface {
	// Consumer returns the newest consumer group of that id, nil when there is
	// none.
	Consumer(id string) *Group
}

// Downgrader turns a consumer group into a classic one when only members of the
// classic protocol are left in it.
type Downgrader interface {
	// MayDowngrade says whether a group of that many members may.
	MayDowngrade(members int) bool
	// Downgrade replaces the group by a classic one, without the leaving members
	// and with the joining one in the place of the static member it replaces,
	// and returns the records of that. The state is changed already.
	Downgrade(g *Group, d Downgrade) ([]schema.Record, error)
}

// Downgrade says how.
type Downgrade struct {
	Leaving map[string]bool
	// Joining replaces the static member of the same instance id.
	Joining *Member
	// Rebalance begins a rebalance of the classic group, for the reason.
	Rebalance bool
	Reason    string
}

// Caller is where a request comes from.
type Caller struct {
	ClientID, ClientHost string
	// MayDescribe returns those of the topics that the caller may see; nil means
	// all.
	MayDescribe func(topics []string) []string
}

// Options of NewManager.
type Options struct {
	Config     Config
	Groups     Groups
	Timers     coordinator.Timers[schema.Record]
	Background coordinator.Background[schema.Record]
	Downgrader Downgrader
	// Topics returns the present image of the cluster.
	Topics func() Topics
	// GroupConfig returns a group's own config, the defaults where it has none.
	GroupConfig func(groupID string, defaults GroupConfig) GroupConfig
	// Rebalanced, when set, is called when a group epoch is bumped.
	Rebalanced func()
	Logger     *slog.Logger
}

// Manager takes the steps of all consumer groups of a partition.
type Manager struct {
	Options
	// newTopicsVersion is the version of the image that last got new topics:
	// patterns that were resolved before it have to be resolved again.
	newTopicsVersion int64
	hashes           topicHashes
}

// NewManager returns a manager.
func NewManager(o Options) *Manager {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Rebalanced == nil {
		o.Rebalanced = func() {}
	}
	return &Manager{Options: o, newTopicsVersion: -1}
}

// TopicsCreated makes the patterns be resolved again.
func (m *Manager) TopicsCreated(imageVersion int64) { m.newTopicsVersion = imageVersion }

// Errors with Kafka's messages.
func fenced(message string) error { return protocol.NewError(kerr.FencedMemberEpoch.Code, message) }

func unknownMember(g *Group, memberID string) error {
	return protocol.NewError(kerr.UnknownMemberID.Code, "Member "+memberID+" is not a member of group "+g.ID+".")
}

// Keys of the timers; see those of classic groups.
func sessionKey(group, member string) string   { return "session\x00" + group + "\x00" + member }
func rebalanceKey(group, member string) string { return "revoke\x00" + group + "\x00" + member }
func joinKey(group, member string) string      { return "rejoin\x00" + group + "\x00" + member }
func syncKey(group, member string) string      { return "resync\x00" + group + "\x00" + member }

func (m *Manager) config(groupID string) GroupConfig {
	return m.GroupConfig(groupID, m.Config.Defaults)
}

func millis(n int32) time.Duration { return time.Duration(n) * time.Millisecond }

// Loaded sets the timers of a group that was read from the log.
func (m *Manager) Loaded(g *Group) {
	if m.newTopicsVersion < 0 {
		m.newTopicsVersion = m.Topics().Version()
	}
	for _, member := range g.Members() {
		m.expectHeartbeat(g.ID, member.ID, m.config(g.ID).SessionTimeout)
		if member.State == UnrevokedPartitions {
			m.expectRevocation(g.ID, member)
		}
	}
}

// expectHeartbeat restarts a member's session.
func (m *Manager) expectHeartbeat(groupID, memberID string, timeout time.Duration) {
	m.Timers.Schedule(sessionKey(groupID, memberID), timeout, true, func() (Effect, error) {
		return m.expel(groupID, memberID, "its session expired")
	})
}

// expectRevocation expels a member that does not give its partitions up in time.
func (m *Manager) expectRevocation(groupID string, member *Member) {
	memberID, epoch := member.ID, member.Epoch
	m.Timers.Schedule(rebalanceKey(groupID, memberID), millis(member.RebalanceTimeoutMillis), true, func() (Effect, error) {
		g := m.Groups.Consumer(groupID)
		if g == nil {
			return Effect{}, nil
		}
		if now := g.Member(memberID); now == nil || now.Epoch != epoch {
			return Effect{}, nil
		}
		return m.expel(groupID, memberID, "it did not give its partitions up in time")
	})
}

// expel removes a member, if it is still there.
func (m *Manager) expel(groupID, memberID, why string) (Effect, error) {
	g := m.Groups.Consumer(groupID)
	if g == nil {
		return Effect{}, nil
	}
	member := g.Member(memberID)
	if member == nil {
		return Effect{}, nil
	}
	m.Logger.Info("member fenced", "group", groupID, "member", memberID, "reason", why)
	return m.remove(g, []*Member{member})
}

// cancelTimers forgets the timers of a member.
func (m *Manager) cancelTimers(groupID, memberID string) {
	m.Timers.Cancel(sessionKey(groupID, memberID))
	m.Timers.Cancel(rebalanceKey(groupID, memberID))
	m.Timers.Cancel(joinKey(groupID, memberID))
	m.Timers.Cancel(syncKey(groupID, memberID))
}

// Deleted forgets the timers of a group that is deleted or converted.
func (m *Manager) Deleted(g *Group) {
	for id := range g.members.All() {
		m.cancelTimers(g.ID, id)
	}
}

// remove takes members out of the group: their partitions are free at once, and
// the others get a new target.
func (m *Manager) remove(g *Group, members []*Member) (Effect, error) {
	if len(members) == 0 {
		return Effect{}, nil
	}
	gone := make(map[string]bool, len(members))
	classicGone := 0
	for _, member := range members {
		gone[member.ID] = true
		if member.Classic != nil {
			classicGone++
		}
	}
	left := g.NumMembers() - len(gone)
	if left > 0 && g.classicMembers.Get()-classicGone == left && m.Downgrader.MayDowngrade(left) {
		records, err := m.Downgrader.Downgrade(g, Downgrade{Leaving: gone, Rebalance: true, Reason: "downgrade from consumer to classic: members left"})
		return Effect{Records: records, Applied: true}, err
	}
	var records []schema.Record
	for _, member := range members {
		records = append(records, removeRecords(g.ID, member.ID)...)
	}
	forgotten := m.forgetPatterns(g, members)
	for _, regex := range forgotten {
		records = append(records, regexTombstone(g.ID, regex))
	}
	c := change{without: gone}
	epoch := g.Epoch() + 1
	records = append(records, epochRecord(g.ID, epoch, m.hashes.metadata(g.topicNames(c), m.Topics())))
	m.Rebalanced()
	if left == 0 {
		records = append(records, targetEpochRecord(g.ID, epoch, 0))
	}
	for _, member := range members {
		m.cancelTimers(g.ID, member.ID)
	}
	return Effect{Records: records, Done: func(err error) {
		// When that could not be written they are members still, and perhaps
		// nobody comes to say so.
		for _, member := range members {
			if err != nil {
				m.expectHeartbeat(g.ID, member.ID, m.config(g.ID).SessionTimeout)
			}
		}
	}}, nil
}

// forgetPatterns returns the patterns that only these members subscribe to.
func (m *Manager) forgetPatterns(g *Group, members []*Member) []string {
	counts := make(map[string]int)
	for _, member := range members {
		if member.Regex != "" {
			counts[member.Regex]++
		}
	}
	var out []string
	for _, regex := range sortedKeys(counts) {
		if n, _ := g.subscribers.Get(regex); n == counts[regex] {
			out = append(out, regex)
		}
	}
	return out
}

// defaultAssignor is the one for groups whose members want none.
func (m *Manager) defaultAssignor() string { return m.Config.Assignors[0] }

func (m *Manager) assignorOf(g *Group, c change) string {
	if name := g.preferredAssignor(c); name != "" {
		return name
	}
	return m.defaultAssignor()
}

// assignorByName returns the assignor, the default one for a name that the log
// has and the config no longer.
func (m *Manager) assignorByName(name string) assignor.Assignor {
	if a, ok := assignor.ByName(name); ok {
		return a
	}
	a, _ := assignor.ByName(m.defaultAssignor())
	return a
}
