package broker

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/broker/inspect"
	"gregor/kraft/image"
	"gregor/storage/vfs"
)

func TestKafkasDirectoriesAreServedAsKafkaServesThem(t *testing.T) {
	for _, name := range []string{"plain", "kafka40", "legacy", "transactions", "transactions-tv1", "compacted", "groups"} {
		t.Run(name, func(t *testing.T) {
			g := readGolden(t, name)
			n := startGolden(t, g)
			cl := n.client()
			ids := topicIDs(t, cl)
			for _, row := range g.rows("offsets.tsv") {
				g.checkOffsets(t, cl, ids, row)
			}
			g.checkViews(t, cl, ids)
		})
	}
}

// TestKafkasCrashedDirectoryIsServedAsKafkaServedIt reads what is left of 16 kinds of damage, and looks at what became
// of directories that are not partitions of this broker.
func TestKafkasCrashedDirectoryIsServedAsKafkaServedIt(t *testing.T) {
	g := readGolden(t, "crashed")
	n := startGolden(t, g)
	cl := n.client()
	ids := topicIDs(t, cl)
	want := g.expectedView("batches.tsv")
	for _, row := range g.rows("offsets.tsv") {
		g.checkOffsets(t, cl, ids, row)
		topic, partition := partitionName(t, row[0])
		got := rawBatches(t, cl, ids[topic], partition, number(t, row[2]), number(t, row[3]))
		sameLines(t, row[0], got, want[row[0]])
	}
	var names []string
	entries, err := os.ReadDir(filepath.Join(n.dir, "data"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	stray := func(name string) bool {
		return strings.HasPrefix(name, "stranger-0.") && strings.HasSuffix(name, "-stray")
	}
	if slices.Contains(names, "stranger-0") || !slices.ContainsFunc(names, stray) {
		t.Errorf("a partition that the metadata does not know must be set aside: %v", names)
	}
	n.stop()
	n.start()
	for _, row := range g.rows("offsets.tsv") {
		g.checkOffsets(t, n.client(), ids, row)
	}
}

// TestOneNodeOfAKafkaClusterServesItsReplicas starts each of three nodes alone, the others being lost. It may lead
// without the others, and what it leads reads as it was on its disk.
func TestOneNodeOfAKafkaClusterServesItsReplicas(t *testing.T) {
	for node, replicas := range map[int][]string{
		1: {"div-0", "rep-0", "rep-1", "rep-2"},
		2: {"div-0", "elr-0", "move-0", "move-1", "rep-0", "rep-1", "rep-2"},
		3: {"elr-0", "move-0", "move-1", "rep-0", "rep-1", "rep-2"},
	} {
		t.Run(strconv.Itoa(node), func(t *testing.T) {
			g := readGolden(t, fmt.Sprintf("cluster3-node%d", node))
			n := startGolden(t, g, "unclean.leader.election.enable=true", "broker.session.timeout.ms=1500")
			cl := n.client()
			want := g.expectedView("batches.tsv")
			led := leadersOf(t, cl, int32(node))
			for ctx := timeout(t); len(led) < len(replicas) && ctx.Err() == nil; { // the others are fenced one session timeout after the start
				led = leadersOf(t, cl, int32(node))
			}
			if !slices.Equal(led, replicas) {
				t.Fatalf("leads %v, want %v", led, replicas)
			}
			ids := topicIDs(t, cl)
			for _, name := range led {
				topic, partition := partitionName(t, name)
				l, ok := n.broker.manager.Log(topic, partition)
				if !ok {
					t.Fatalf("no log of %s", name)
				}
				end := l.State().LogEndOffset
				if hw := listOffset(t, cl, topic, partition, -1, 0); hw != end {
					t.Errorf("%s: high watermark %d of %d", name, hw, end)
				}
				sameLines(t, name, rawBatches(t, cl, ids[topic], partition, 0, end), want[name])
			}
		})
	}
}

// leadersOf are the partitions that a node leads.
func leadersOf(t *testing.T, cl *kgo.Client, node int32) []string {
	t.Helper()
	var led []string
	for _, topic := range ask[*kmsg.MetadataResponse](t, cl, kmsg.NewPtrMetadataRequest()).Topics {
		for _, p := range topic.Partitions {
			if p.Leader == node {
				led = append(led, fmt.Sprintf("%s-%d", *topic.Topic, p.Partition))
			}
		}
	}
	slices.Sort(led)
	return led
}

// TestMetadataOfKafkaIsKeptAndHonoured opens directories of several metadata versions: features, topics, configs and
// the rest are as Kafka reported them, and stay so after a restart.
func TestMetadataOfKafkaIsKeptAndHonoured(t *testing.T) {
	for name, want := range map[string]map[string]int16{
		"plain":    {"metadata.version": 33, "transaction.version": 2, "group.version": 1},
		"metadata": {"metadata.version": 33, "transaction.version": 2, "kraft.version": 1, "eligible.leader.replicas.version": 1},
		"kafka40":  {"metadata.version": 25, "transaction.version": 2, "group.version": 1},
	} {
		t.Run(name, func(t *testing.T) {
			n := startGolden(t, readGolden(t, name))
			for range 2 {
				levels := map[string]int16{}
				for _, f := range ask[*kmsg.ApiVersionsResponse](t, n.client(), kmsg.NewPtrApiVersionsRequest()).FinalizedFeatures {
					levels[f.Name] = f.MaxVersionLevel
				}
				for feature, level := range want {
					if levels[feature] != level {
						t.Errorf("%s is %d, Kafka's is %d (%v)", feature, levels[feature], level, levels)
					}
				}
				n.createTopic(n.client(), fmt.Sprintf("made-by-gregor-%d", len(topicIDs(t, n.client()))), 2, nil)
				n.stop()
				n.start()
			}
			switch name {
			case "metadata":
				checkReported(t, n, n.client())
			case "kafka40":
				checkRecordVersions(t, filepath.Join(n.dir, "data"))
			}
		})
	}
}

// checkReported compares with metadata/reported.txt of the recordings.
func checkReported(t *testing.T, n *testNode, cl *kgo.Client) {
	t.Helper()
	ids := topicIDs(t, cl)
	for _, topic := range []string{"after-snapshot", "assigned", "bulk-1", "bulk-2", "bulk-3", "bulk-4", "bulk-5", "t1", "t2"} {
		if _, ok := ids[topic]; !ok {
			t.Errorf("topic %s is gone: %v", topic, slices.Sorted(maps.Keys(ids)))
		}
	}
	describe := kmsg.NewPtrDescribeConfigsRequest()
	for _, r := range []struct {
		kind kmsg.ConfigResourceType
		name string
	}{{kmsg.ConfigResourceTypeTopic, "t1"}, {kmsg.ConfigResourceTypeTopic, "bulk-1"}, {kmsg.ConfigResourceTypeBroker, ""}} {
		describe.Resources = append(describe.Resources, kmsg.DescribeConfigsRequestResource{ResourceType: r.kind, ResourceName: r.name})
	}
	got := map[string]string{}
	for _, r := range ask[*kmsg.DescribeConfigsResponse](t, cl, describe).Resources {
		for _, c := range r.Configs {
			if c.Value != nil {
				got[r.ResourceName+" "+c.Name] = *c.Value
			}
		}
	}
	for key, want := range map[string]string{
		"t1 retention.ms": "86400000", "t1 max.message.bytes": "2000000", "t1 cleanup.policy": "delete", "bulk-1 retention.ms": "7",
		" message.max.bytes": "2000000", " min.insync.replicas": "1",
	} {
		if got[key] != want {
			t.Errorf("config %s is %q, Kafka's is %q", key, got[key], want)
		}
	}
	img := n.broker.node.Image()
	alice, app := image.QuotaPart{Type: image.QuotaUser, Name: "alice"}, image.QuotaPart{Type: image.QuotaClientID, Name: "app"}
	for _, q := range []struct {
		entity image.QuotaEntity
		key    string
		value  float64
	}{
		{image.NewQuotaEntity(alice), "producer_byte_rate", 1024},
		{image.NewQuotaEntity(image.QuotaPart{Type: image.QuotaIP, Default: true}), "connection_creation_rate", 50},
		{image.NewQuotaEntity(alice, app), "consumer_byte_rate", 2048},
	} {
		if got := img.ClientQuotas.Get(q.entity)[q.key]; got != q.value {
			t.Errorf("quota %s of %v is %g, Kafka's is %g", q.key, q.entity, got, q.value)
		}
	}
	if quotas, acls, scram := img.ClientQuotas.Len(), img.ACLs.Len(), img.Scram.Len(); quotas != 7 || acls != 7 || scram != 3 {
		t.Errorf("%d quotas, %d access rules, %d credentials; Kafka has 7, 7, 3", quotas, acls, scram)
	}
}

// checkRecordVersions compares the versions of the records that were added with those that Kafka 4.0 writes: the
// node must not write what that release, which may come back, cannot read.
func checkRecordVersions(t *testing.T, dir string) {
	t.Helper()
	newest := map[string]int64{
		"BROKER_REGISTRATION_CHANGE_RECORD": 2, "PARTITION_CHANGE_RECORD": 2, "PARTITION_RECORD": 2, "REGISTER_BROKER_RECORD": 3,
	}
	logs, err := filepath.Glob(filepath.Join(dir, "__cluster_metadata-0", "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := inspect.Dump(logs, inspect.DumpOptions{FS: vfs.Real(), Out: &out, Decoder: inspect.MetadataDecoder}); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, m := range regexp.MustCompile(`"type":"([A-Z_]+)","version":(\d+)`).FindAllStringSubmatch(out.String(), -1) {
		seen[m[1]] = true
		if number(t, m[2]) > newest[m[1]] {
			t.Errorf("%s version %s in a log of metadata.version 4.0", m[1], m[2])
		}
	}
	if !seen["REGISTER_BROKER_RECORD"] || !seen["PARTITION_RECORD"] {
		t.Errorf("records %v", seen)
	}
}

// TestOffsetsOfKafkasGroupsAreKept compares with groups/describe-offsets.txt of the recordings.
func TestOffsetsOfKafkasGroupsAreKept(t *testing.T) {
	n := startGolden(t, readGolden(t, "groups"))
	cl := n.client()
	for group, want := range map[string]map[string]int64{
		"classic-empty":    {"other-0": 10, "other-1": 10},
		"classic-range":    {"in-0": 20, "in-1": 20, "in-2": 20, "in-3": 20, "other-0": 10, "other-1": 10},
		"classic-sticky":   {"in-0": 20, "in-1": 20},
		"consumer-empty":   {"other-0": 10, "other-1": 10},
		"consumer-regex":   {"in-0": 20, "in-1": 20, "in-2": 20, "in-3": 20, "other-0": 10, "other-1": 10},
		"consumer-uniform": {"in-0": 20, "in-1": 20, "in-2": 0, "in-3": 0, "other-0": 10, "other-1": 10},
		"expiring":         {"in-0": 5, "in-1": 7, "other-0": 3},
		"offset-deleted":   {"in-0": 5, "other-0": 3},
		"simple-offsets":   {"in-0": 5},
		"deleted-group":    {},
	} {
		req := kmsg.NewPtrOffsetFetchRequest()
		g := kmsg.NewOffsetFetchRequestGroup()
		g.Group = group
		req.Groups = append(req.Groups, g)
		req.Group = group
		got := map[string]int64{}
		for _, g := range ask[*kmsg.OffsetFetchResponse](t, cl, req).Groups {
			if g.ErrorCode != 0 {
				t.Errorf("%s: error %d", group, g.ErrorCode)
			}
			for _, topic := range g.Topics {
				for _, p := range topic.Partitions {
					got[fmt.Sprintf("%s-%d", topic.Topic, p.Partition)] = p.Offset
				}
			}
		}
		for _, name := range slices.Sorted(maps.Keys(want)) {
			if got[name] != want[name] {
				t.Errorf("%s has the offset %d of %s, Kafka's has %d", group, got[name], name, want[name])
			}
		}
		if len(got) < len(want) || len(want) == 0 && len(got) > 0 {
			t.Errorf("%s has the offsets %v, Kafka's has %v", group, got, want)
		}
	}
}

// TestWhatIsNotAPartitionIsLeftAlone puts files and directories of all kinds beside Kafka's partitions.
func TestWhatIsNotAPartitionIsLeftAlone(t *testing.T) {
	g := readGolden(t, "plain")
	const id = ".0123456789abcdef0123456789abcdef"
	keep := []string{
		"data/notes.txt", "data/lost+found/x", "data/nonsense/00000000000000000000.log", "data/keyed-0" + id + "-stray/00000000000000000000.log",
		"data/codec-none-0/notes.txt", "data/remote-log-index-cache/x",
	}
	for _, name := range keep {
		g.files[name] = []byte("kept")
	}
	for name, b := range maps.Clone(g.files) {
		if file, ok := strings.CutPrefix(name, "data/edge-1/"); ok {
			g.files["data/../other/edge-1"+id+"-future/"+file] = b
			g.files["data/gone-0"+id+"-delete/"+file] = b
		}
	}
	g.files["data/../other/meta.properties"] = regexp.MustCompile(`directory\.id=.*\n`).ReplaceAll(g.files["data/meta.properties"], nil)
	n := &testNode{t: t, dir: t.TempDir(), port: freePorts(t)}
	g.unpack(t, filepath.Join(n.dir, "data"))
	n.options = goldenOptions(t, g, n, fmt.Sprintf("log.dirs=%s,%s", filepath.Join(n.dir, "data"), filepath.Join(n.dir, "other")))
	n.start()
	g.checkViews(t, n.client(), topicIDs(t, n.client()))
	if future, ok := n.broker.manager.FutureLog("edge", 1); !ok || filepath.Base(filepath.Dir(future.Dir())) != "other" {
		t.Errorf("the copy under way is not known: %v", future)
	}
	if n.broker.manager.PendingDeletions() != 1 {
		t.Errorf("%d directories wait for their deletion, want 1", n.broker.manager.PendingDeletions())
	}
	n.stop()
	for _, name := range keep {
		b, err := os.ReadFile(filepath.Join(n.dir, name))
		if err != nil || string(b) != "kept" {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
}
