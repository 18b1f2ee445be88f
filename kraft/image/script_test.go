package image

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"gregor/kraft/metadata"
	"gregor/protocol"
)

// recordMakers make records with Kafka's defaults by name.
var recordMakers = func() map[string]func() metadata.Record {
	m := map[string]func() metadata.Record{}
	for _, f := range []func() metadata.Record{
		func() metadata.Record { return metadata.NewRegisterBrokerRecord() },
		func() metadata.Record { return metadata.NewUnregisterBrokerRecord() },
		func() metadata.Record { return metadata.NewFenceBrokerRecord() },
		func() metadata.Record { return metadata.NewUnfenceBrokerRecord() },
		func() metadata.Record { return metadata.NewBrokerRegistrationChangeRecord() },
		func() metadata.Record { return metadata.NewRegisterControllerRecord() },
		func() metadata.Record { return metadata.NewUnregisterControllerRecord() },
		func() metadata.Record { return metadata.NewTopicRecord() },
		func() metadata.Record { return metadata.NewPartitionRecord() },
		func() metadata.Record { return metadata.NewPartitionChangeRecord() },
		func() metadata.Record { return metadata.NewRemoveTopicRecord() },
		func() metadata.Record { return metadata.NewClearElrRecord() },
		func() metadata.Record { return metadata.NewConfigRecord() },
		func() metadata.Record { return metadata.NewClientQuotaRecord() },
		func() metadata.Record { return metadata.NewFeatureLevelRecord() },
		func() metadata.Record { return metadata.NewProducerIdsRecord() },
		func() metadata.Record { return metadata.NewAccessControlEntryRecord() },
		func() metadata.Record { return metadata.NewRemoveAccessControlEntryRecord() },
		func() metadata.Record { return metadata.NewUserScramCredentialRecord() },
		func() metadata.Record { return metadata.NewRemoveUserScramCredentialRecord() },
		func() metadata.Record { return metadata.NewDelegationTokenRecord() },
		func() metadata.Record { return metadata.NewRemoveDelegationTokenRecord() },
		func() metadata.Record { return metadata.NewNoOpRecord() },
		func() metadata.Record { return metadata.NewZkMigrationStateRecord() },
		func() metadata.Record { return metadata.NewBeginTransactionRecord() },
	} {
		m[f().MessageName()] = f
	}
	return m
}()

// parseRecord reads "NameOfRecord {json}", the fields by Kafka's names; topic and directory ids may be written as
// "#1", which is the id whose last byte is 1.
func parseRecord(line string) (metadata.Record, error) {
	name, body, _ := strings.Cut(line, " ")
	if !strings.HasSuffix(name, "Record") {
		name += "Record"
	}
	newRecord, ok := recordMakers[name]
	if !ok {
		return nil, fmt.Errorf("no record %q", name)
	}
	rec := newRecord()
	for i := byte('9'); i > '0'; i-- {
		body = strings.ReplaceAll(body, `"#`+string(i)+`"`, `"`+shortID(i-'0')+`"`)
	}
	if body == "" {
		return rec, nil
	}
	return rec, json.Unmarshal([]byte(body), rec)
}

func shortID(i byte) string {
	return protocol.UUID{0: 0x40, 15: i}.String()
}

func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		img := Empty()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "reset":
				img = Empty()
				return ""
			case "replay":
				return runReplay(t, d, &img)
			case "state":
				return shorten(describe(img)) + fmt.Sprintf("counts %+v\n", img.Topics.Counts())
			default:
				t.Fatalf("unknown command %s", d.Cmd)
				return ""
			}
		})
	})
}

// runReplay replays the records of a command as one delta and prints what it reports. With local=N also the changes
// for that broker.
func runReplay(t *testing.T, d *datadriven.TestData, img **Image) string {
	var out strings.Builder
	delta := NewDelta(*img)
	for line := range strings.Lines(d.Input) {
		rec, err := parseRecord(strings.TrimSpace(line))
		if err != nil {
			t.Fatalf("%s: %v", d.Pos, err)
		}
		if err := delta.Replay(rec); err != nil {
			if !errors.Is(err, ErrInconsistent) {
				t.Errorf("%s: %v", d.Pos, err)
			}
			fmt.Fprintf(&out, "error: %v\n", err)
		}
	}
	next := delta.Apply(Provenance{})
	between := Between(*img, next)
	out.WriteString(report(delta, d))
	requireWithin(t, d.Pos, between, delta)
	if !between.Apply(Provenance{}).Equal(next) {
		t.Errorf("%s: Between leads elsewhere", d.Pos)
	}
	*img = next
	return shorten(out.String())
}

// requireWithin checks that a delta reported every difference between the images, and of topics nothing else.
func requireWithin(t *testing.T, pos string, between, delta *Delta) {
	t.Helper()
	for name, missing := range map[string]bool{
		"features":    !contains(delta.ChangedFeatures(), between.ChangedFeatures()),
		"brokers":     !contains(delta.ChangedBrokers(), between.ChangedBrokers()),
		"controllers": !contains(delta.ChangedControllers(), between.ChangedControllers()),
		"configs":     !contains(delta.ChangedConfigs(), between.ChangedConfigs()),
		"quotas":      !contains(delta.ChangedQuotas(), between.ChangedQuotas()),
		"acls":        !contains(delta.ChangedACLs(), between.ChangedACLs()),
		"scram":       !contains(delta.ChangedScram(), between.ChangedScram()),
		"tokens":      !contains(delta.ChangedDelegationTokens(), between.ChangedDelegationTokens()),
		"producerIDs": between.ProducerIDsChanged() && !delta.ProducerIDsChanged(),
	} {
		if missing {
			t.Errorf("%s: %s changed, but the delta does not say so", pos, name)
		}
	}
	if between.Topics() == nil {
		return
	}
	for broker := range int32(5) {
		got, want := delta.Topics().LocalChanges(broker), between.Topics().LocalChanges(broker)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: broker %d:\n got %+v\nwant %+v", pos, broker, got, want)
		}
	}
}

func contains[T comparable](all, some []T) bool {
	return !slices.ContainsFunc(some, func(s T) bool { return !slices.Contains(all, s) })
}

func report(delta *Delta, d *datadriven.TestData) string {
	var out strings.Builder
	line := func(name string, v any) {
		if rv := reflect.ValueOf(v); rv.Kind() != reflect.Slice || rv.Len() > 0 {
			fmt.Fprintf(&out, "%s %v\n", name, v)
		}
	}
	line("features", delta.ChangedFeatures())
	line("brokers", delta.ChangedBrokers())
	line("controllers", delta.ChangedControllers())
	line("configs", delta.ChangedConfigs())
	line("quotas", delta.ChangedQuotas())
	line("acls", delta.ChangedACLs())
	line("scram", delta.ChangedScram())
	line("tokens", delta.ChangedDelegationTokens())
	if delta.ProducerIDsChanged() {
		line("producer ids", "changed")
	}
	topics := delta.Topics()
	if topics == nil {
		return out.String()
	}
	for _, topic := range topics.Deleted() {
		line("deleted", topic.Name)
	}
	for _, topic := range topics.Created() {
		line("created", topic.Name)
	}
	for _, topic := range topics.Changed() {
		for p := range topic.Partitions() {
			line("partition", fmt.Sprintf("%s-%d %+v", topic.New.Name, p.ID, *p.New))
		}
	}
	if d.HasArg("local") {
		var broker int32
		d.ScanArgs(&testing.T{}, "local", &broker)
		c := topics.LocalChanges(broker)
		for _, l := range c.Deletes {
			line("local delete", fmt.Sprintf("%v %s topic deleted %t", l.TopicPartition, l.TopicID, l.TopicDeleted))
		}
		for _, l := range c.Leaders {
			line("local leader", fmt.Sprintf("%v epoch %d new %t", l.TopicPartition, l.State.LeaderEpoch, l.NewLeaderEpoch))
		}
		for _, l := range c.Followers {
			line("local follower", fmt.Sprintf("%v epoch %d new %t", l.TopicPartition, l.State.LeaderEpoch, l.NewLeaderEpoch))
		}
		for _, l := range c.Directories {
			line("local directory", fmt.Sprintf("%v %s", l.TopicPartition, l.Directory))
		}
	}
	return out.String()
}

// shorten writes ids as parseRecord takes them.
func shorten(s string) string {
	for i := byte(1); i <= 9; i++ {
		s = strings.ReplaceAll(s, shortID(i), fmt.Sprintf("#%d", i))
	}
	return s
}
