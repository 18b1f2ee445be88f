package metadata

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// kafkaLevel is a line of testdata/features.tsv, the levels of Kafka 4.4.0.
type kafkaLevel struct {
	feature, name string
	level         int16
	details       string
}

func kafkaLevels(t *testing.T) []kafkaLevel {
	t.Helper()
	text, err := os.ReadFile("testdata/features.tsv")
	if err != nil {
		t.Fatal(err)
	}
	var out []kafkaLevel
	for line := range strings.Lines(string(text)) {
		col := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if col[0] != "level" {
			continue
		}
		out = append(out, kafkaLevel{feature: col[1], level: number(t, col[2]), name: col[3], details: col[5]})
	}
	return out
}

func number(t *testing.T, s string) int16 {
	t.Helper()
	v, err := strconv.ParseInt(s, 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	return int16(v)
}

// abilities gives the words by which Kafka's table names what a level supports.
func abilities(v MetadataVersion) []string {
	all := map[string]bool{
		"LeaderEpochBumpRequiredOnIsrShrink": v.BumpsLeaderEpochOnISRShrink(),
		"Migration":                          v.SupportsMigration(),
		"Scram":                              v.SupportsScram(),
		"MetadataTransaction":                v.SupportsTransactions(),
		"DelegationToken":                    v.SupportsDelegationTokens(),
		"ControllerRegistration":             v.SupportsControllerRegistration(),
		"DirectoryAssignment":                v.SupportsDirectories(),
		"Elr":                                v.SupportsELR(),
		"CordonedLogDirs":                    v.SupportsCordonedLogDirs(),
		"CidrAcl":                            v.SupportsCIDRACLs(),
		"ControllerUnregistration":           v.SupportsControllerUnregistration(),
	}
	maps.DeleteFunc(all, func(_ string, has bool) bool { return !has })
	return slices.Sorted(maps.Keys(all))
}

func TestMetadataVersionsAreThoseOfKafka(t *testing.T) {
	seen := 0
	for _, k := range kafkaLevels(t) {
		v := MetadataVersion(k.level)
		if k.feature != FeatureMetadataVersion {
			continue
		}
		if strings.HasPrefix(k.details, "unstable") {
			if v.Valid() {
				t.Errorf("%s is unstable in Kafka", v)
			}
			continue
		}
		seen++
		if v.String() != k.name || !v.Valid() {
			t.Errorf("level %d is %s, want %s", k.level, v, k.name)
		}
		controller := "n/a"
		if v.SupportsControllerRegistration() {
			controller = "0"
		}
		got := fmt.Sprintf("production; didMetadataChange %t; fetchRequest=%d listOffsetRequest=%d partitionChangeRecord=%d "+
			"partitionRecord=%d registerBrokerRecord=%d registerControllerRecord=%s; %s",
			v.DidMetadataChange(), v.FetchRequestVersion(), v.ListOffsetsRequestVersion(),
			RecordVersion(&PartitionChangeRecord{}, v), RecordVersion(&PartitionRecord{}, v),
			RecordVersion(&RegisterBrokerRecord{}, v), controller, strings.Join(abilities(v), " "))
		if got != k.details {
			t.Errorf("%s:\n got %s\nwant %s", v, got, k.details)
		}
	}
	if seen != int(LatestMetadataVersion-MinMetadataVersion)+1 {
		t.Errorf("%d levels compared", seen)
	}
}

func TestOtherFeaturesAreThoseOfKafka(t *testing.T) {
	want := map[string][]string{}
	for _, k := range kafkaLevels(t) {
		if k.feature != FeatureMetadataVersion {
			want[k.feature] = append(want[k.feature], fmt.Sprintf("%d %s", k.level, k.details))
		}
	}
	got := map[string][]string{}
	for _, f := range Features() {
		for _, l := range f.Levels {
			depends := "{}"
			for name, level := range l.DependsOn {
				depends = fmt.Sprintf("{%s=%d}", name, level)
			}
			got[f.Name] = append(got[f.Name],
				fmt.Sprintf("%d bootstrap metadata.version %s; depends %s; production", l.Level, l.Bootstrap, depends))
		}
	}
	if !maps.EqualFunc(got, want, slices.Equal[[]string]) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestSupportedFeaturesAreWhatKafkaAdvertises(t *testing.T) {
	text, err := os.ReadFile("testdata/features.tsv")
	if err != nil {
		t.Fatal(err)
	}
	var want []SupportedFeature
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "supported\tbroker ApiVersions v4\t"); ok {
			col := strings.Split(rest, "\t")
			want = append(want, SupportedFeature{col[0], number(t, col[1]), number(t, col[2])})
		}
	}
	if got := SupportedFeatures(); !slices.Equal(got, want) || len(want) != 7 {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

func TestNewClusterGetsTheDefaultLevelsOfItsMetadataVersion(t *testing.T) {
	for _, c := range []struct {
		version string
		want    map[string]int16
	}{
		{"4.4-IV2", map[string]int16{FeatureELR: 1, FeatureGroup: 1, FeatureKRaftVersion: 1, FeatureShare: 2, FeatureStreams: 1, FeatureTransaction: 2}},
		{"4.2-IV0", map[string]int16{FeatureELR: 1, FeatureGroup: 1, FeatureKRaftVersion: 1, FeatureShare: 1, FeatureStreams: 0, FeatureTransaction: 2}},
		{"4.0-IV1", map[string]int16{FeatureELR: 0, FeatureGroup: 1, FeatureKRaftVersion: 1, FeatureShare: 0, FeatureStreams: 0, FeatureTransaction: 0}},
		{"3.3-IV3", map[string]int16{FeatureELR: 0, FeatureGroup: 0, FeatureKRaftVersion: 0, FeatureShare: 0, FeatureStreams: 0, FeatureTransaction: 0}},
	} {
		v, err := ParseMetadataVersion(c.version)
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range c.want {
			f, ok := FeatureByName(name)
			if got := f.DefaultLevel(v); !ok || got != want {
				t.Errorf("%s at %s: %d, want %d", name, c.version, got, want)
			}
		}
	}
}

func TestMetadataVersionIsParsedByNameReleaseAndLevel(t *testing.T) {
	for s, want := range map[string]MetadataVersion{
		"4.4-IV2": 33, "4.4-IV0": 31, "4.4": 33, "4.4.0": 33, "4.0": 25, "3.3": 7, "3.9.1": 21, "33": 33, "7": 7,
	} {
		if got, err := ParseMetadataVersion(s); err != nil || got != want {
			t.Errorf("%q: %d %v, want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"", "4", "4.5", "4.5-IV0", "34", "6", "4.4-IV3", "3.2", "x"} {
		if got, err := ParseMetadataVersion(s); err == nil {
			t.Errorf("%q: %d", s, got)
		}
	}
}

func TestDowngradeAcrossAFormatChangeLosesMetadata(t *testing.T) {
	for _, c := range []struct {
		a, b MetadataVersion
		want bool
	}{
		{33, 33, false}, {33, 32, true}, {32, 31, true}, {31, 30, false}, {29, 23, false}, {29, 22, true}, {23, 29, false}, {7, 33, true},
	} {
		if got := MetadataChanged(c.a, c.b); got != c.want {
			t.Errorf("%s and %s: %t", c.a, c.b, got)
		}
	}
}

func TestUnknownLevelsHaveNoName(t *testing.T) {
	for _, v := range []MetadataVersion{-1, 0, 6, 34} {
		if v.Valid() || !strings.HasPrefix(v.String(), "unknown") || v.DidMetadataChange() {
			t.Errorf("%d is %s", int(v), v)
		}
	}
	if r := MetadataVersion4_4IV1.Release(); r != "4.4" {
		t.Errorf("release %s", r)
	}
}
