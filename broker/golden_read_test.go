package broker

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/internal/recording"
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

// readGolden reads a recording.
func readGolden(t *testing.T, name string) *golden {
	t.Helper()
	return &golden{name: name, files: recording.Node(t, os.DirFS("testdata/golden"), os.DirFS("../storage/testdata"), name+".tar.gz")}
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
func (g *golden) unpack(t *testing.T, dir string) {
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

func number(t *testing.T, text string) int64 {
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
func partitionName(t *testing.T, name string) (topic string, partition int32) {
	t.Helper()
	i := strings.LastIndexByte(name, '-')
	return name[:i], int32(number(t, name[i+1:]))
}

// ask sends a request to the node.
func ask[R kmsg.Response](t *testing.T, cl *kgo.Client, req kmsg.Request) R {
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
func listOffset(t *testing.T, cl *kgo.Client, topic string, partition int32, timestamp int64, isolation int8) int64 {
	t.Helper()
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID, req.IsolationLevel = -1, isolation
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Partition, rp.Timestamp = partition, timestamp
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	var p kmsg.ListOffsetsResponseTopicPartition
	for ctx := timeout(t); ; {
		p = ask[*kmsg.ListOffsetsResponse](t, cl, req).Topics[0].Partitions[0]
		if p.ErrorCode != kerr.NotLeaderForPartition.Code || ctx.Err() != nil {
			break // after an unclean stop leaders are elected when the node serves already
		}
	}
	if p.ErrorCode != 0 {
		t.Errorf("ListOffsets of %s-%d at %d: error %d", topic, partition, timestamp, p.ErrorCode)
	}
	return p.Offset
}

// topicIDs are the ids of the node's topics.
func topicIDs(t *testing.T, cl *kgo.Client) map[string]protocol.UUID {
	t.Helper()
	ids := map[string]protocol.UUID{}
	for _, topic := range ask[*kmsg.MetadataResponse](t, cl, kmsg.NewPtrMetadataRequest()).Topics {
		ids[*topic.Topic] = topic.TopicID
	}
	return ids
}

// fetchOnce fetches a partition from an offset.
func fetchOnce(t *testing.T, cl *kgo.Client, id protocol.UUID, partition int32, offset int64, isolation int8, maxBytes int32) *kmsg.FetchResponseTopicPartition {
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
func consumeView(t *testing.T, cl *kgo.Client, id protocol.UUID, name string, from, to int64, isolation int8) []string {
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
func oldLZ4(t *testing.T, raw []byte) (out []string) {
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
		topic, partition := partitionName(t, row[0])
		start, hw, lso := number(t, row[2]), number(t, row[3]), number(t, row[4])
		if g.name == "groups" && !strings.HasPrefix(topic, "__") {
			continue // recorded is what groups keep
		}
		listOffset(t, cl, topic, partition, -1, 0) // waits until the node leads
		sameLines(t, row[0]+" read_uncommitted", consumeView(t, cl, ids[topic], row[0], start, hw, 0), uncommitted[row[0]])
		sameLines(t, row[0]+" read_committed", consumeView(t, cl, ids[topic], row[0], start, lso, 1), committed[row[0]])
	}
}

// rawBatches fetches a partition whole and lists its batches: "base last size crc".
func rawBatches(t *testing.T, cl *kgo.Client, id protocol.UUID, partition int32, from, to int64) []string {
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
