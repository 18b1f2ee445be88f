package metadata

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Names of the features that Kafka 4.4 knows.
const (
	FeatureMetadataVersion = "metadata.version"
	FeatureKRaftVersion    = "kraft.version"
	FeatureTransaction     = "transaction.version"
	FeatureGroup           = "group.version"
	FeatureELR             = "eligible.leader.replicas.version"
	FeatureShare           = "share.version"
	FeatureStreams         = "streams.version"
)

// MetadataVersion is a level of the feature metadata.version. The zero value means that none is finalized.
type MetadataVersion int16

// The levels that decide about something here, and the bounds.
const (
	MetadataVersion3_3IV3 MetadataVersion = 7
	MetadataVersion3_4IV0 MetadataVersion = 8
	MetadataVersion3_5IV2 MetadataVersion = 11
	MetadataVersion3_6IV0 MetadataVersion = 12
	MetadataVersion3_6IV1 MetadataVersion = 13
	MetadataVersion3_6IV2 MetadataVersion = 14
	MetadataVersion3_7IV0 MetadataVersion = 15
	MetadataVersion3_7IV2 MetadataVersion = 17
	MetadataVersion3_9IV0 MetadataVersion = 21
	MetadataVersion4_0IV0 MetadataVersion = 22
	MetadataVersion4_0IV1 MetadataVersion = 23
	MetadataVersion4_3IV0 MetadataVersion = 30
	MetadataVersion4_4IV1 MetadataVersion = 32
	MetadataVersion4_4IV2 MetadataVersion = 33

	// MinMetadataVersion is the lowest level that Kafka 4.4 runs at.
	MinMetadataVersion = MetadataVersion3_3IV3
	// LatestMetadataVersion is the highest production level of Kafka 4.4 and the one a new cluster gets.
	LatestMetadataVersion = MetadataVersion4_4IV2
)

// metadataVersionNames are the names of levels from MinMetadataVersion on; a star after the name marks a level that
// changes the format of the metadata, so that a downgrade across it loses some.
var metadataVersionNames = []string{
	"3.3-IV3*", "3.4-IV0*", "3.5-IV0", "3.5-IV1", "3.5-IV2*", "3.6-IV0", "3.6-IV1*", "3.6-IV2*",
	"3.7-IV0*", "3.7-IV1", "3.7-IV2*", "3.7-IV3", "3.7-IV4", "3.8-IV0", "3.9-IV0", "4.0-IV0", "4.0-IV1*", "4.0-IV2",
	"4.0-IV3", "4.1-IV0", "4.1-IV1", "4.2-IV0", "4.2-IV1", "4.3-IV0*", "4.4-IV0", "4.4-IV1*", "4.4-IV2*",
}

// Valid reports whether this is a production level of Kafka 4.4.
func (v MetadataVersion) Valid() bool { return v >= MinMetadataVersion && v <= LatestMetadataVersion }

// String returns the name, like "4.4-IV2".
func (v MetadataVersion) String() string {
	if !v.Valid() {
		return "unknown level " + strconv.Itoa(int(v))
	}
	return strings.TrimSuffix(metadataVersionNames[v-MinMetadataVersion], "*")
}

// Release returns the Kafka release of the level, like "4.4".
func (v MetadataVersion) Release() string {
	release, _, _ := strings.Cut(v.String(), "-")
	return release
}

// DidMetadataChange reports whether the level changed the format of the metadata from the level below.
func (v MetadataVersion) DidMetadataChange() bool {
	return v.Valid() && strings.HasSuffix(metadataVersionNames[v-MinMetadataVersion], "*")
}

// MetadataChanged reports whether the format of the metadata differs between two levels: a downgrade from one to the
// other would lose metadata.
func MetadataChanged(a, b MetadataVersion) bool {
	for v := min(a, b) + 1; v <= max(a, b); v++ {
		if v.DidMetadataChange() {
			return true
		}
	}
	return false
}

// ParseMetadataVersion accepts the name of a level ("4.4-IV2"), a release ("4.4", "4.4.0": its highest level) or a
// level's number.
func ParseMetadataVersion(s string) (MetadataVersion, error) {
	release := strings.Join(strings.SplitN(s, ".", 3)[:min(2, strings.Count(s, ".")+1)], ".")
	for v := LatestMetadataVersion; v >= MinMetadataVersion; v-- {
		if s == v.String() || s == strconv.Itoa(int(v)) || !strings.Contains(s, "-") && release == v.Release() {
			return v, nil
		}
	}
	return 0, fmt.Errorf("unknown metadata.version %q: it is one of %s to %s", s, MinMetadataVersion, LatestMetadataVersion)
}

// SupportsMigration reports whether ZkMigrationStateRecord may be written (KIP-866).
func (v MetadataVersion) SupportsMigration() bool { return v >= MetadataVersion3_4IV0 }

// SupportsInControlledShutdown reports whether registrations hold InControlledShutdown (KIP-841).
func (v MetadataVersion) SupportsInControlledShutdown() bool { return v >= MetadataVersion3_3IV3 }

// SupportsScram reports whether UserScramCredentialRecord may be written (KIP-900).
func (v MetadataVersion) SupportsScram() bool { return v >= MetadataVersion3_5IV2 }

// BumpsLeaderEpochOnISRShrink reports whether the controller raises the leader epoch when the ISR shrinks.
func (v MetadataVersion) BumpsLeaderEpochOnISRShrink() bool { return v < MetadataVersion3_6IV0 }

// SupportsTransactions reports whether metadata transactions may be written (KIP-868).
func (v MetadataVersion) SupportsTransactions() bool { return v >= MetadataVersion3_6IV1 }

// SupportsDelegationTokens reports whether DelegationTokenRecord may be written (KIP-900).
func (v MetadataVersion) SupportsDelegationTokens() bool { return v >= MetadataVersion3_6IV2 }

// SupportsControllerRegistration reports whether RegisterControllerRecord may be written (KIP-919).
func (v MetadataVersion) SupportsControllerRegistration() bool { return v >= MetadataVersion3_7IV0 }

// SupportsDirectories reports whether partitions and registrations hold log directories (KIP-858).
func (v MetadataVersion) SupportsDirectories() bool { return v >= MetadataVersion3_7IV2 }

// SupportsELR reports whether partitions hold eligible leader replicas (KIP-966).
func (v MetadataVersion) SupportsELR() bool { return v >= MetadataVersion4_0IV1 }

// SupportsCordonedLogDirs reports whether registrations hold cordoned log directories (KIP-1066).
func (v MetadataVersion) SupportsCordonedLogDirs() bool { return v >= MetadataVersion4_3IV0 }

// SupportsCIDRACLs reports whether ACLs may hold address ranges.
func (v MetadataVersion) SupportsCIDRACLs() bool { return v >= MetadataVersion4_4IV1 }

// SupportsControllerUnregistration reports whether UnregisterControllerRecord may be written.
func (v MetadataVersion) SupportsControllerUnregistration() bool { return v >= MetadataVersion4_4IV2 }

// FetchRequestVersion returns the version in which brokers fetch from each other.
func (v MetadataVersion) FetchRequestVersion() int16 {
	return stepped(v, []versionStep{{27, 18}, {21, 17}, {19, 16}, {10, 15}, {9, 14}, {0, 13}})
}

// ListOffsetsRequestVersion returns the version in which brokers send ListOffsets to each other.
func (v MetadataVersion) ListOffsetsRequestVersion() int16 {
	return stepped(v, []versionStep{{29, 11}, {25, 10}, {21, 9}, {9, 8}, {0, 7}})
}

// versionStep says that from a level on a request has a version.
type versionStep struct {
	from    MetadataVersion
	version int16
}

func stepped(v MetadataVersion, steps []versionStep) int16 {
	i := slices.IndexFunc(steps, func(s versionStep) bool { return v >= s.from })
	return steps[max(i, 0)].version
}

// FeatureLevel is a level of a feature other than metadata.version.
type FeatureLevel struct {
	Level int16
	// Bootstrap is the metadata.version from which on a new cluster gets this level.
	Bootstrap MetadataVersion
	// DependsOn names features that must be finalized at least at these levels.
	DependsOn map[string]int16
}

// Feature is a feature with its levels in ascending order. All levels are production levels.
type Feature struct {
	Name   string
	Levels []FeatureLevel
}

// Min returns the lowest level.
func (f Feature) Min() int16 { return f.Levels[0].Level }

// Max returns the highest level.
func (f Feature) Max() int16 { return f.Levels[len(f.Levels)-1].Level }

// DefaultLevel returns the level that a cluster formatted with the given metadata.version gets.
func (f Feature) DefaultLevel(v MetadataVersion) int16 {
	level := f.Min()
	for _, l := range f.Levels {
		if v >= l.Bootstrap {
			level = max(level, l.Level)
		}
	}
	return level
}

func levels(bootstrap ...MetadataVersion) []FeatureLevel {
	out := []FeatureLevel{{Level: 0, Bootstrap: MetadataVersion3_3IV3}}
	for i, b := range bootstrap {
		out = append(out, FeatureLevel{Level: int16(i + 1), Bootstrap: b})
	}
	return out
}

// Features returns the features of Kafka 4.4 other than metadata.version, by name.
func Features() []Feature {
	elr := levels(26)
	elr[1].DependsOn = map[string]int16{FeatureMetadataVersion: int16(MetadataVersion4_0IV1)}
	return []Feature{
		{Name: FeatureELR, Levels: elr},
		{Name: FeatureGroup, Levels: levels(MetadataVersion4_0IV0)},
		{Name: FeatureKRaftVersion, Levels: levels(MetadataVersion3_9IV0)},
		{Name: FeatureShare, Levels: levels(28, 31)},
		{Name: FeatureStreams, Levels: levels(29)},
		{Name: FeatureTransaction, Levels: levels(24, 24)},
	}
}

// FeatureByName returns one of [Features].
func FeatureByName(name string) (Feature, bool) {
	fs := Features()
	if i := slices.IndexFunc(fs, func(f Feature) bool { return f.Name == name }); i >= 0 {
		return fs[i], true
	}
	return Feature{}, false
}

// SupportedFeature is the range of levels that this build supports of a feature.
type SupportedFeature struct {
	Name     string
	Min, Max int16
}

// SupportedFeatures returns all features with the levels that Kafka 4.4 supports, metadata.version included, by name.
func SupportedFeatures() []SupportedFeature {
	var out []SupportedFeature
	for _, f := range Features() {
		out = append(out, SupportedFeature{Name: f.Name, Min: f.Min(), Max: f.Max()})
	}
	out = append(out, SupportedFeature{FeatureMetadataVersion, int16(MinMetadataVersion), int16(LatestMetadataVersion)})
	slices.SortFunc(out, func(a, b SupportedFeature) int { return strings.Compare(a.Name, b.Name) })
	return out
}
