package kraft

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/kraft/image"
	"gregor/kraft/metadata"
	"gregor/kraft/quorum"
	"gregor/storage/checkpoint"
	"gregor/storage/vfs"
)

// kafkaDisk copies a directory that Apache Kafka wrote (without its index files) to a file system in memory.
func kafkaDisk(t *testing.T, golden string) *vfs.Mem {
	t.Helper()
	dir := filepath.Join("testdata", "takeover", golden)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	fs := vfs.NewMem()
	if err := fs.MkdirAll("/data/" + quorum.DirName); err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		to := "/data/" + quorum.DirName + "/" + e.Name()
		if e.Name() == checkpoint.MetaPropertiesFile {
			to = "/data/" + e.Name()
		}
		if err := vfs.WriteFile(fs, to, b); err != nil {
			t.Fatal(err)
		}
	}
	return fs
}

// replayLog applies all records of Kafka's log in order.
func replayLog(t *testing.T, fs vfs.FS) *image.Image {
	t.Helper()
	d := image.NewDelta(image.Empty())
	var txns metadata.Transactions
	for i, rec := range readLog(t, fs) {
		due, err := txns.Feed(rec, int64(i))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range due {
			if err := d.Replay(r.Record); err != nil {
				t.Fatal(err)
			}
		}
	}
	return d.Apply(image.Provenance{})
}

func TestLogOfApacheKafkaIsTakenOver(t *testing.T) {
	tests := []struct {
		golden string
		static bool
	}{
		{"plain", true},
		{"metadata", false},
	}
	for _, tt := range tests {
		t.Run(tt.golden, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fs := kafkaDisk(t, tt.golden)
				want := replayLog(t, fs)
				o := testOptions(t, fs, 1, 1)
				if !tt.static {
					o.Quorum.StaticVoters = nil
				}
				n := openNode(t, o)
				defer stopNode(t, n)
				<-n.Loaded()
				until(t, "activation", func() bool { return n.isActive() && n.Image().Cluster.Controller(1) != nil })
				got := n.Image()
				compareState(t, got, want)
				// Work goes on in Kafka's log.
				reg := registerRequest(77, 1)
				reg.ClusterID = o.ClusterID
				answer := handle[*kmsg.BrokerRegistrationResponse](t, n, reg)
				if answer.ErrorCode != 0 {
					t.Fatalf("registration: %d", answer.ErrorCode)
				}
				synctest.Wait()
				if n.Image().Cluster.Broker(77) == nil {
					t.Error("a broker that registered is missing")
				}
			})
		})
	}
}

// compareState compares all but what a takeover itself changes: registrations and the leaderships of a broker that is
// gone.
func compareState(t *testing.T, got, want *image.Image) {
	t.Helper()
	if got.Features.MetadataVersion() != metadata.LatestMetadataVersion || want.Topics.Counts().Topics == 0 {
		t.Fatalf("metadata.version %v, %d topics in the golden", got.Features.MetadataVersion(), want.Topics.Counts().Topics)
	}
	if got.Topics.Counts().Topics != want.Topics.Counts().Topics ||
		got.Topics.Counts().Partitions != want.Topics.Counts().Partitions {
		t.Errorf("topics %+v, want %+v", got.Topics.Counts(), want.Topics.Counts())
	}
	for topic := range want.Topics.All() {
		if g := got.Topics.ByName(topic.Name); g == nil || g.ID != topic.ID {
			t.Errorf("topic %s is missing or has another id", topic.Name)
		}
	}
	for res, configs := range want.Configs.All() {
		for key, value := range configs {
			if got.Configs.Get(res)[key] != value {
				t.Errorf("%v %s is %q, want %q", res, key, got.Configs.Get(res)[key], value)
			}
		}
	}
	if got.ACLs.Len() != want.ACLs.Len() || got.Scram.Len() != want.Scram.Len() ||
		got.ClientQuotas.Len() != want.ClientQuotas.Len() || got.DelegationTokens.Len() != want.DelegationTokens.Len() ||
		got.ProducerIDs != want.ProducerIDs {
		t.Errorf("%d ACLs, %d credentials, %d quotas, %d tokens, producer ids %+v; want %d, %d, %d, %d, %+v",
			got.ACLs.Len(), got.Scram.Len(), got.ClientQuotas.Len(), got.DelegationTokens.Len(), got.ProducerIDs,
			want.ACLs.Len(), want.Scram.Len(), want.ClientQuotas.Len(), want.DelegationTokens.Len(), want.ProducerIDs)
	}
}
