package broker

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
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
	"gregor/protocol"
	"gregor/protocol/record"
	"gregor/storage/checkpoint"
	"gregor/storage/vfs"
)

// golden is a log directory that Apache Kafka wrote, with what Kafka said of it (testdata/golden/README.md).
type golden struct {
	name  string
	files map[string][]byte
}

// readTar returns the files of an archive.
func readTar(t testing.TB, path string) map[string][]byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // only read
	zr, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for tr := tar.NewReader(zr); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(tr); err != nil {
			t.Fatal(err)
		}
	}
}

// readGolden reads a recording. The partitions that package storage is tested with are in its testdata.
func readGolden(t testing.TB, name string) *golden {
	t.Helper()
	g := &golden{name: name, files: readTar(t, filepath.Join("testdata", "golden", name+".tar.gz"))}
	shared := filepath.Join("..", "storage", "testdata", name+".tar.gz")
	if _, err := os.Stat(shared); err != nil {
		return g
	}
	for file, b := range readTar(t, shared) {
		if _, own := g.files["data/"+file]; !own && strings.Contains(file, "/") {
			g.files["data/"+file] = b
		}
	}
	return g
}

// rows are the lines of a tab-separated file.
func (g *golden) rows(file string) [][]string {
	var out [][]string
	for line := range strings.Lines(string(g.files[file])) {
		out = append(out, strings.Split(strings.TrimSuffix(line, "\n"), "\t"))
	}
	return out
}

// unpack writes the log directory to dir.
func (g *golden) unpack(t testing.TB, dir string) {
	t.Helper()
	sizes := map[string]int64{}
	for _, r := range g.rows("sizes.tsv") {
		sizes[r[0]] = number(t, r[1])
	}
	for file, b := range g.files {
		name, ok := strings.CutPrefix(file, "data/")
		if !ok {
			continue
		}
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, b, 0o644); err != nil {
			t.Fatal(err)
		}
		if n, ok := sizes[file]; ok {
			if err := os.Truncate(to, n); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func number(t testing.TB, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// startGolden starts a node on a copy of the recording, as its only voter.
func startGolden(t *testing.T, g *golden, overrides ...string) *testNode {
	t.Helper()
	n := &testNode{t: t, dir: t.TempDir(), port: freePorts(t)}
	g.unpack(t, filepath.Join(n.dir, "data"))
	n.options = goldenOptions(t, g, n, overrides...)
	n.start()
	return n
}

// goldenOptions are the overrides for the node that a recording is of.
func goldenOptions(t *testing.T, g *golden, n *testNode, overrides ...string) []string {
	t.Helper()
	meta, err := checkpoint.ReadMetaProperties(vfs.Real(), filepath.Join(n.dir, "data", checkpoint.MetaPropertiesFile))
	if err != nil {
		t.Fatal(err)
	}
	voters := fmt.Sprintf("controller.quorum.voters=%d@127.0.0.1:%d", meta.NodeID, n.port+1)
	if g.name == "metadata" { // formatted with --standalone
		voters = fmt.Sprintf("controller.quorum.bootstrap.servers=127.0.0.1:%d", n.port+1)
	}
	return append([]string{
		fmt.Sprintf("node.id=%d", meta.NodeID), voters,
		"log.index.size.max.bytes=4096", "offsets.retention.minutes=2147483647", "broker.session.timeout.ms=5000", "broker.heartbeat.interval.ms=200",
	}, overrides...)
}

// partitionName is a TOPIC-PARTITION of the recordings.
func partitionName(t testing.TB, name string) (topic string, partition int32) {
	t.Helper()
	i := strings.LastIndexByte(name, '-')
	return name[:i], int32(number(t, name[i+1:]))
}

// ask sends a request to the node.
func ask[R kmsg.Response](t testing.TB, cl *kgo.Client, req kmsg.Request) R {
	t.Helper()
	resp, err := cl.Request(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	r, ok := resp.(R)
	if !ok {
		t.Fatalf("%T", resp)
	}
	return r
}

// listOffset asks for an offset of a partition by the isolation level 0 or 1.
func listOffset(t testing.TB, cl *kgo.Client, topic string, partition int32, timestamp int64, isolation int8) int64 {
	t.Helper()
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID, req.IsolationLevel = -1, isolation
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Partition, rp.Timestamp = partition, timestamp
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	p := ask[*kmsg.ListOffsetsResponse](t, cl, req).Topics[0].Partitions[0]
	if p.ErrorCode != 0 {
		t.Errorf("ListOffsets of %s-%d at %d: error %d", topic, partition, timestamp, p.ErrorCode)
	}
	return p.Offset
}

// topicIDs are the ids of the node's topics.
func topicIDs(t testing.TB, cl *kgo.Client) map[string]protocol.UUID {
	t.Helper()
	ids := map[string]protocol.UUID{}
	for _, topic := range ask[*kmsg.MetadataResponse](t, cl, kmsg.NewPtrMetadataRequest()).Topics {
		ids[*topic.Topic] = topic.TopicID
	}
	return ids
}

// fetchOnce fetches a partition from an offset.
func fetchOnce(t testing.TB, cl *kgo.Client, id protocol.UUID, partition int32, offset int64, isolation int8, maxBytes int32) *kmsg.FetchResponseTopicPartition {
	t.Helper()
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.IsolationLevel = 0, 1, 50<<20, isolation
	rt := kmsg.NewFetchRequestTopic()
	rt.TopicID = id
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = partition, offset, maxBytes
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp := ask[*kmsg.FetchResponse](t, cl, req)
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		t.Fatalf("Fetch answered %+v", resp)
	}
	return &resp.Topics[0].Partitions[0]
}

// digest is that of the expected files: 8 bytes of the SHA-256 over key, value and headers.
func digest(r *kgo.Record) string {
	part := func(b []byte) string {
		if b == nil {
			return "-"
		}
		sum := sha256.Sum256(b)
		return fmt.Sprintf("%d:%x", len(b), sum)
	}
	h := sha256.New()
	_, _ = io.WriteString(h, part(r.Key)+"|"+part(r.Value)) // a hash never fails
	for _, x := range r.Headers {
		_, _ = io.WriteString(h, "|"+x.Key+"="+part(x.Value))
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// consumeView reads a partition from its log start up to an offset, as a consumer of that isolation level does.
func consumeView(t testing.TB, cl *kgo.Client, id protocol.UUID, name string, from, to int64, isolation int8) []string {
	t.Helper()
	topic, partition := partitionName(t, name)
	var out []string
	level := kgo.ReadUncommitted()
	if isolation == 1 {
		level = kgo.ReadCommitted()
	}
	for at := from; at < to; {
		p := fetchOnce(t, cl, id, partition, at, isolation, 10000)
		if p.ErrorCode != 0 || len(p.RecordBatches) == 0 {
			t.Fatalf("%s at %d of %d: error %d, %d bytes", name, at, to, p.ErrorCode, len(p.RecordBatches))
		}
		if topic == "magic0-lz4" {
			return oldLZ4(t, p.RecordBatches)
		}
		f, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Offset: at, IsolationLevel: level, Topic: topic, Partition: partition}, p, kgo.DefaultDecompressor(), nil)
		if f.Err != nil {
			t.Fatalf("%s at %d: %v", name, at, f.Err)
		}
		for _, r := range f.Records {
			if r.Offset < to {
				millis := r.Timestamp.UnixMilli()
				if r.Attrs.TimestampType() < 0 {
					millis = -1
				}
				out = append(out, fmt.Sprintf("%d\t%d\t%s", r.Offset, millis, digest(r)))
			}
		}
		if next <= at {
			t.Fatalf("%s: no progress at %d", name, at)
		}
		at = next
	}
	return out
}

// oldLZ4 reads message format 0 with lz4, whose frames have a header checksum that only Java's client knows.
func oldLZ4(t testing.TB, raw []byte) (out []string) {
	t.Helper()
	for b, err := range record.Batches(raw) {
		if err != nil {
			t.Fatal(err)
		}
		for r, err := range b.Records(record.Limits{}) {
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, fmt.Sprintf("%d\t-1\t%s", r.Offset, digest(&kgo.Record{Key: r.Key, Value: r.Value})))
		}
	}
	return out
}

// expectedView are the records of a partition that Kafka's consumer saw.
func (g *golden) expectedView(file string) map[string][]string {
	out := map[string][]string{}
	for _, r := range g.rows(file) {
		out[r[0]] = append(out[r[0]], strings.Join(r[1:], "\t"))
	}
	return out
}

func sameLines(t *testing.T, what string, got, want []string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		a, b := "(end)", "(end)"
		if i < len(got) {
			a = got[i]
		}
		if i < len(want) {
			b = want[i]
		}
		if a != b {
			t.Errorf("%s: record %d is %q, Kafka read %q", what, i, a, b)
			return
		}
	}
}

// checkOffsets compares what ListOffsets answers with what Kafka answered. Internal topics go on growing, and
// transactions that Kafka left open may be aborted meanwhile.
func (g *golden) checkOffsets(t *testing.T, cl *kgo.Client, ids map[string]protocol.UUID, row []string) {
	t.Helper()
	topic, partition := partitionName(t, row[0])
	if ids[topic].String() != row[1] {
		t.Errorf("%s has the topic id %s, Kafka's is %s", topic, ids[topic], row[1])
	}
	start, hw, lso, maxAt := number(t, row[2]), number(t, row[3]), number(t, row[4]), number(t, row[5])
	if got := listOffset(t, cl, topic, partition, -2, 0); got != start {
		t.Errorf("%s starts at %d, Kafka's at %d", row[0], got, start)
	}
	internal := strings.HasPrefix(topic, "__")
	if got := listOffset(t, cl, topic, partition, -1, 0); got != hw && (got < hw || !internal && lso == hw) {
		t.Errorf("%s has the high watermark %d, Kafka's has %d", row[0], got, hw)
	}
	if got := listOffset(t, cl, topic, partition, -1, 1); got != lso && (got < lso || !internal && lso == hw) {
		t.Errorf("%s has the last stable offset %d, Kafka's has %d", row[0], got, lso)
	}
	// badindex: Kafka looked into a damaged time index that is rebuilt here.
	if got := listOffset(t, cl, topic, partition, -3, 0); got != maxAt && !internal && lso == hw && topic != "badindex" {
		t.Errorf("%s has its largest timestamp at %d, Kafka's at %d", row[0], got, maxAt)
	}
}

// checkViews reads all partitions with both isolation levels.
func (g *golden) checkViews(t *testing.T, cl *kgo.Client, ids map[string]protocol.UUID) {
	t.Helper()
	uncommitted := g.expectedView("uncommitted.tsv")
	committed := uncommitted
	if g.files["committed.tsv"] != nil {
		committed = g.expectedView("committed.tsv")
	}
	for _, row := range g.rows("offsets.tsv") {
		topic, _ := partitionName(t, row[0])
		start, hw, lso := number(t, row[2]), number(t, row[3]), number(t, row[4])
		if g.name == "groups" && !strings.HasPrefix(topic, "__") {
			continue // recorded is what groups keep
		}
		sameLines(t, row[0]+" read_uncommitted", consumeView(t, cl, ids[topic], row[0], start, hw, 0), uncommitted[row[0]])
		sameLines(t, row[0]+" read_committed", consumeView(t, cl, ids[topic], row[0], start, lso, 1), committed[row[0]])
	}
}

// rawBatches fetches a partition whole and lists its batches: "base last size crc".
func rawBatches(t testing.TB, cl *kgo.Client, id protocol.UUID, partition int32, from, to int64) []string {
	t.Helper()
	var out []string
	for at := from; at < to; {
		p := fetchOnce(t, cl, id, partition, at, 0, 5000)
		if p.ErrorCode != 0 || len(p.RecordBatches) == 0 {
			t.Fatalf("at %d of %d: error %d, %d bytes", at, to, p.ErrorCode, len(p.RecordBatches))
		}
		before := at
		for rest := p.RecordBatches; len(rest) > 0; {
			b, tail, err := record.Next(rest)
			if err != nil {
				break // cut at the end of the answer
			}
			out = append(out, fmt.Sprintf("%d\t%d\t%d\t%d", b.BaseOffset(), b.LastOffset(), b.SizeBytes(), b.CRC()))
			at, rest = b.NextOffset(), tail
		}
		if at == before {
			t.Fatalf("no progress at %d", at)
		}
	}
	return out
}

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
		t.Run(fmt.Sprint(node), func(t *testing.T) {
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
func leadersOf(t testing.TB, cl *kgo.Client, node int32) []string {
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
