package groupcoord

import (
	"cmp"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/groupcoord/offsets"
	"gregor/groupcoord/schema"
	"gregor/internal/timeline"
	"gregor/protocol"
)

// Record types that matter for a foreign group.
const (
	shareMemberRecord   = 10
	streamsMemberRecord = 19
)

// foreignGroup is a group of a type that this broker does not run yet. It was
// loaded from the log; its records stay as they are until the group is deleted
// or, when it has no members, a classic member takes the id over.
type foreignGroup struct {
	id        string
	groupType GroupType
	// keys are the keys of all live records of the group, by their bytes.
	keys *timeline.Map[string, schema.Key]
	// members maps member ids to their epochs, -1 when it is not known.
	members *timeline.Map[string, int32]
}

func newForeignGroup(registry *timeline.Registry, id string, t GroupType) *foreignGroup {
	return &foreignGroup{
		id: id, groupType: t,
		keys:    timeline.NewMap[string, schema.Key](registry),
		members: timeline.NewMap[string, int32](registry),
	}
}

// foreignKey returns the group that a record of an unserved type belongs to.
func foreignKey(key schema.Key) (groupID, memberID string, t GroupType) {
	switch k := key.(type) {
	case *schema.ShareGroupMemberMetadataKey:
		return k.GroupID, k.MemberID, TypeShare
	case *schema.ShareGroupMetadataKey:
		return k.GroupID, "", TypeShare
	case *schema.ShareGroupTargetAssignmentMetadataKey:
		return k.GroupID, "", TypeShare
	case *schema.ShareGroupTargetAssignmentMemberKey:
		return k.GroupID, k.MemberID, TypeShare
	case *schema.ShareGroupCurrentMemberAssignmentKey:
		return k.GroupID, k.MemberID, TypeShare
	case *schema.ShareGroupStatePartitionMetadataKey:
		return k.GroupID, "", TypeShare
	case *schema.StreamsGroupMetadataKey:
		return k.GroupID, "", TypeStreams
	case *schema.StreamsGroupMemberMetadataKey:
		return k.GroupID, k.MemberID, TypeStreams
	case *schema.StreamsGroupTargetAssignmentMetadataKey:
		return k.GroupID, "", TypeStreams
	case *schema.StreamsGroupTargetAssignmentMemberKey:
		return k.GroupID, k.MemberID, TypeStreams
	case *schema.StreamsGroupCurrentMemberAssignmentKey:
		return k.GroupID, k.MemberID, TypeStreams
	case *schema.StreamsGroupTopologyKey:
		return k.GroupID, "", TypeStreams
	}
	return "", "", TypeUnknown
}

// replay takes note of a record. It reports whether anything of the group is
// left.
func (g *foreignGroup) replay(rec schema.Record, memberID string) (left bool, err error) {
	raw, err := schema.AppendKey(nil, rec.Key)
	if err != nil {
		return true, err
	}
	recordType := rec.Key.RecordType()
	isMember := recordType == shareMemberRecord || recordType == streamsMemberRecord
	if rec.Value == nil {
		g.keys.Delete(string(raw))
		if isMember {
			g.members.Delete(memberID)
		}
		return g.keys.Len() > 0, nil
	}
	g.keys.Set(string(raw), rec.Key)
	if isMember && !g.members.Has(memberID) {
		g.members.Set(memberID, -1)
	}
	if v, ok := rec.Value.(*schema.StreamsGroupCurrentMemberAssignmentValue); ok {
		g.members.Set(memberID, v.MemberEpoch)
	}
	return true, nil
}

func (g *foreignGroup) kind() GroupType { return g.groupType }
func (g *foreignGroup) isEmpty() bool   { return g.members.Len() == 0 }

// validateDelete refuses a share group: its share state would be left behind,
// which takes the share coordinator to delete.
func (g *foreignGroup) validateDelete() error {
	switch {
	case !g.isEmpty():
		return kerr.NonEmptyGroup
	case g.groupType == TypeShare:
		return protocol.NewError(kerr.UnsupportedVersion.Code, "this broker does not serve share groups yet")
	default:
		return nil
	}
}

// tombstones deletes the group's records: those of members before those of the
// group, so that at no point of the log a member has no group.
func (g *foreignGroup) tombstones() []schema.Record {
	keys := make([]string, 0, g.keys.Len())
	byRaw := make(map[string]schema.Key, g.keys.Len())
	for raw, key := range g.keys.All() {
		keys = append(keys, raw)
		byRaw[raw] = key
	}
	slices.SortFunc(keys, func(a, b string) int {
		return cmp.Or(-cmp.Compare(byRaw[a].RecordType(), byRaw[b].RecordType()), cmp.Compare(a, b))
	})
	records := make([]schema.Record, 0, len(keys))
	for _, raw := range keys {
		records = append(records, schema.Tombstone(byRaw[raw]))
	}
	return records
}

func (g *foreignGroup) listed() kmsg.ListGroupsResponseGroup {
	out := kmsg.NewListGroupsResponseGroup()
	out.Group, out.ProtocolType, out.GroupState, out.GroupType = g.id, g.groupType.String(), "Empty", g.groupType.String()
	for range g.members.AllCommitted() {
		out.GroupState = "Stable"
		break
	}
	return out
}

// ValidateCommit implements offsets.Group. Nobody commits to a share group; a
// streams member has to know its epoch.
func (g *foreignGroup) ValidateCommit(c offsets.Commit) (func(string, protocol.UUID, int32) error, error) {
	if g.groupType == TypeShare {
		return nil, protocol.NewError(kerr.GroupIDNotFound.Code, "Group "+g.id+" is not a consumer group.")
	}
	if c.Generation < 0 && g.isEmpty() {
		return nil, nil
	}
	if c.Transactional && c.Generation == -1 && c.MemberID == "" && c.InstanceID == nil {
		return nil, nil
	}
	epoch, ok := g.members.Get(c.MemberID)
	switch {
	case !ok:
		return nil, kerr.UnknownMemberID
	case !c.Transactional && c.Version < 9:
		return nil, kerr.UnsupportedVersion
	case c.Generation != epoch:
		return nil, kerr.StaleMemberEpoch
	}
	return nil, nil
}

// ValidateFetch implements offsets.Group.
func (g *foreignGroup) ValidateFetch(memberID *string, memberEpoch int32, committed bool) error {
	if g.groupType == TypeShare {
		return kerr.GroupIDNotFound
	}
	if memberID == nil && memberEpoch < 0 {
		return nil
	}
	id := ""
	if memberID != nil {
		id = *memberID
	}
	epoch, ok := g.members.Get(id)
	if committed {
		epoch, ok = g.members.GetCommitted(id)
	}
	switch {
	case !ok:
		return kerr.UnknownMemberID
	case memberEpoch != epoch:
		return kerr.StaleMemberEpoch
	}
	return nil
}

// ValidateOffsetDelete implements offsets.Group.
func (g *foreignGroup) ValidateOffsetDelete() error {
	if g.groupType == TypeShare {
		return kerr.GroupIDNotFound
	}
	return nil
}

// Subscribed implements offsets.Group: what members of a foreign group read is
// not known, so everything is assumed.
func (g *foreignGroup) Subscribed(string) bool { return !g.isEmpty() }

// ExpiryBase implements offsets.Group. A share group has no offsets that could
// expire, and it does not expire itself.
func (g *foreignGroup) ExpiryBase() (func(*offsets.Offset) int64, bool) {
	if g.groupType == TypeShare {
		return nil, false
	}
	return func(o *offsets.Offset) int64 { return o.CommitMillis }, true
}
