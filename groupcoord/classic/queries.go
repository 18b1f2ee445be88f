package classic

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ValidateCommit says whether an offset commit of that origin is allowed.
func (g *Group) ValidateCommit(memberID string, instanceID *string, generation int32, transactional bool) error {
	if generation < 0 && g.state == Empty {
		// An admin client, or a consumer that assigns its partitions itself.
		return nil
	}
	switch {
	case generation >= 0 || memberID != "" || instanceID != nil:
		if err := g.validateMember(memberID, instanceID); err != nil {
			return err
		}
		if generation != g.Generation {
			return kerr.IllegalGeneration
		}
	case !transactional && g.state != Empty:
		// Old transactional commits do not say who they are, others have to.
		return kerr.UnknownMemberID
	}
	if !transactional && g.state == CompletingRebalance {
		// The member knows the generation, so it must sync before it commits.
		return kerr.RebalanceInProgress
	}
	return nil
}

// ValidateOffsetDelete says whether single offsets may be deleted: of a group
// with members only those of topics that it does not read, and that is known of
// consumers only.
func (g *Group) ValidateOffsetDelete() error {
	if g.state != Empty && g.ProtocolType != ConsumerProtocolType {
		return kerr.NonEmptyGroup
	}
	return nil
}

// ValidateDelete says whether the group may be deleted.
func (g *Group) ValidateDelete() error {
	if g.state != Empty {
		return kerr.NonEmptyGroup
	}
	return nil
}

// Subscribed says whether the group reads topic. Of consumers whose metadata
// cannot be read everything is assumed.
func (g *Group) Subscribed(topic string) bool {
	if g.subscribed == nil {
		return g.ProtocolType == ConsumerProtocolType
	}
	_, ok := g.subscribed[topic]
	return ok
}

// Expiry says from when on the retention of a group's offsets counts.
type Expiry struct {
	// Never: no offset expires now.
	Never bool
	// SinceMillis is the time since the group is empty; -1 means that each
	// offset counts from its own commit.
	SinceMillis int64
}

// Expiry returns the rule of R37: an empty group's offsets count from when it
// became empty, a simple group's and the unsubscribed topics of a stable
// consumer group from their commits; all others stay.
func (g *Group) Expiry() Expiry {
	switch {
	case g.ProtocolType == "":
		return Expiry{SinceMillis: noTimestamp}
	case g.state == Empty:
		return Expiry{SinceMillis: g.stateSince}
	case g.ProtocolType == ConsumerProtocolType && g.subscribed != nil && g.state == Stable:
		return Expiry{SinceMillis: noTimestamp}
	default:
		return Expiry{Never: true}
	}
}

// Describe answers DescribeGroups. Metadata is shown of a stable group only.
func (g *Group) Describe() kmsg.DescribeGroupsResponseGroup {
	out := kmsg.NewDescribeGroupsResponseGroup()
	out.Group, out.State, out.ProtocolType = g.ID, g.state.String(), g.ProtocolType
	if g.state == Stable && g.protocol != nil {
		out.Protocol = *g.protocol
	}
	out.Members = make([]kmsg.DescribeGroupsResponseGroupMember, 0, len(g.order))
	for _, m := range g.inKafkasOrder() {
		member := kmsg.NewDescribeGroupsResponseGroupMember()
		member.MemberID, member.InstanceID, member.ClientID, member.ClientHost = m.ID, m.InstanceID, m.ClientID, m.ClientHost
		member.MemberAssignment = orEmpty(m.Assignment)
		member.ProtocolMetadata = []byte{}
		if g.state == Stable {
			member.ProtocolMetadata = orEmpty(m.Metadata(g.protocol))
		}
		out.Members = append(out.Members, member)
	}
	return out
}
