package quorum

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gregor/kraft/metadata"
	"gregor/protocol"
)

// Endpoint is one listener of a controller.
type Endpoint struct {
	Name string // listener name, such as CONTROLLER
	Host string
	Port uint16
}

// ReplicaKey names a replica of the metadata log. A zero DirectoryID is unknown (kraft.version 0).
type ReplicaKey struct {
	ID          int32
	DirectoryID protocol.UUID
}

// String is for logs: `1` or `1:DIRECTORY`.
func (k ReplicaKey) String() string {
	if k.DirectoryID.IsZero() {
		return strconv.Itoa(int(k.ID))
	}
	return fmt.Sprintf("%d:%s", k.ID, k.DirectoryID)
}

// Voter is a member of the quorum.
type Voter struct {
	Key       ReplicaKey
	Endpoints []Endpoint
	// MinKRaftVersion and MaxKRaftVersion are the levels of the feature kraft.version that the voter supports.
	MinKRaftVersion, MaxKRaftVersion int16
}

// VoterSet is an immutable set of voters ordered by id; at most one voter per id.
type VoterSet struct {
	voters []Voter
}

// NewVoterSet copies and orders voters. Two voters of one id are an error.
func NewVoterSet(voters []Voter) (VoterSet, error) {
	sorted := slices.Clone(voters)
	slices.SortStableFunc(sorted, func(a, b Voter) int { return cmp.Compare(a.Key.ID, b.Key.ID) })
	for i, v := range sorted {
		if v.Key.ID < 0 {
			return VoterSet{}, fmt.Errorf("voter id %d is negative", v.Key.ID)
		}
		if i > 0 && sorted[i-1].Key.ID == v.Key.ID {
			return VoterSet{}, fmt.Errorf("two voters have the id %d", v.Key.ID)
		}
	}
	return VoterSet{voters: sorted}, nil
}

// Len is the number of voters.
func (s VoterSet) Len() int { return len(s.voters) }

// All returns the voters ordered by id; the caller must not change them.
func (s VoterSet) All() []Voter { return s.voters }

// IDs returns the ids in order.
func (s VoterSet) IDs() []int32 {
	ids := make([]int32, len(s.voters))
	for i, v := range s.voters {
		ids[i] = v.Key.ID
	}
	return ids
}

// Get returns the voter of an id.
func (s VoterSet) Get(id int32) (Voter, bool) {
	i, ok := slices.BinarySearchFunc(s.voters, id, func(v Voter, id int32) int { return cmp.Compare(v.Key.ID, id) })
	if !ok {
		return Voter{}, false
	}
	return s.voters[i], true
}

// Contains tells whether a replica is a voter. Directory ids count only when both are known.
func (s VoterSet) Contains(k ReplicaKey) bool {
	v, ok := s.Get(k.ID)
	return ok && sameDirectory(v.Key.DirectoryID, k.DirectoryID)
}

func sameDirectory(a, b protocol.UUID) bool { return a.IsZero() || b.IsZero() || a == b }

// With returns the set with v added or put in place of the voter of its id.
func (s VoterSet) With(v Voter) VoterSet {
	voters := slices.DeleteFunc(slices.Clone(s.voters), func(o Voter) bool { return o.Key.ID == v.Key.ID })
	voters = append(voters, v)
	slices.SortFunc(voters, func(a, b Voter) int { return cmp.Compare(a.Key.ID, b.Key.ID) })
	return VoterSet{voters: voters}
}

// Without returns the set less the voter of an id.
func (s VoterSet) Without(id int32) VoterSet {
	return VoterSet{voters: slices.DeleteFunc(slices.Clone(s.voters), func(o Voter) bool { return o.Key.ID == id })}
}

// Equal compares keys, endpoints and versions.
func (s VoterSet) Equal(o VoterSet) bool {
	return slices.EqualFunc(s.voters, o.voters, func(a, b Voter) bool {
		return a.Key == b.Key && a.MinKRaftVersion == b.MinKRaftVersion && a.MaxKRaftVersion == b.MaxKRaftVersion &&
			slices.Equal(a.Endpoints, b.Endpoints)
	})
}

// String is for logs.
func (s VoterSet) String() string {
	parts := make([]string, len(s.voters))
	for i, v := range s.voters {
		parts[i] = v.Key.String()
	}
	return "[" + strings.Join(parts, " ") + "]"
}

// record converts to Kafka's KRaftVoters record.
func (s VoterSet) record() *metadata.VotersRecord {
	rec := metadata.NewVotersRecord()
	rec.Voters = make([]metadata.VotersRecordVoter, len(s.voters))
	for i, v := range s.voters {
		out := &rec.Voters[i]
		out.VoterID, out.VoterDirectoryID = v.Key.ID, v.Key.DirectoryID
		out.KRaftVersionFeature.MinSupportedVersion = v.MinKRaftVersion
		out.KRaftVersionFeature.MaxSupportedVersion = v.MaxKRaftVersion
		for _, e := range v.Endpoints {
			out.Endpoints = append(out.Endpoints, metadata.VotersRecordEndpoint{Name: e.Name, Host: e.Host, Port: e.Port})
		}
	}
	return rec
}

// voterSetOf converts from Kafka's KRaftVoters record.
func voterSetOf(rec *metadata.VotersRecord) (VoterSet, error) {
	voters := make([]Voter, len(rec.Voters))
	for i := range rec.Voters {
		in := &rec.Voters[i]
		v := Voter{
			Key:             ReplicaKey{ID: in.VoterID, DirectoryID: in.VoterDirectoryID},
			MinKRaftVersion: in.KRaftVersionFeature.MinSupportedVersion,
			MaxKRaftVersion: in.KRaftVersionFeature.MaxSupportedVersion,
		}
		for _, e := range in.Endpoints {
			v.Endpoints = append(v.Endpoints, Endpoint{Name: e.Name, Host: e.Host, Port: e.Port})
		}
		voters[i] = v
	}
	return NewVoterSet(voters)
}

// config is a voter set with the kraft.version it is valid under. Level 0: static voters, directory ids unknown.
type config struct {
	level  int16
	voters VoterSet
}

// configPoint is a config and the offset of the record that brought it; -1 for what came from a snapshot, the
// bootstrap checkpoint or the static configuration.
type configPoint struct {
	offset int64
	config config
}

// configHistory lists the configs of the log from a snapshot on, oldest first. Never empty.
type configHistory struct {
	points []configPoint
}

func newConfigHistory(initial config) *configHistory {
	return &configHistory{points: []configPoint{{offset: -1, config: initial}}}
}

func (h *configHistory) last() configPoint { return h.points[len(h.points)-1] }

// at returns the config that is in force before endOffset: of the records below it.
func (h *configHistory) at(endOffset int64) configPoint {
	for i := len(h.points) - 1; i > 0; i-- {
		if h.points[i].offset < endOffset {
			return h.points[i]
		}
	}
	return h.points[0]
}

// add notes the config that the record at offset brought.
func (h *configHistory) add(offset int64, c config) {
	h.points = append(h.points, configPoint{offset: offset, config: c})
}

// truncate forgets the records at and above endOffset.
func (h *configHistory) truncate(endOffset int64) {
	for len(h.points) > 1 && h.last().offset >= endOffset {
		h.points = h.points[:len(h.points)-1]
	}
}

// compact forgets what lies before the config in force at startOffset.
func (h *configHistory) compact(startOffset int64) {
	for len(h.points) > 1 && h.points[1].offset < startOffset {
		h.points = h.points[1:]
	}
}
