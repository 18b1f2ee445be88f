// Package offline takes a log directory away from a broker that has two, at a start and while it runs, and compares what
// clients see with what they see on Kafka.
package offline

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/compat-tests/harness"
	"gregor/compat-tests/wire"
)

func TestMain(m *testing.M) { harness.Main(m) }

const (
	partitions = 6
	// settling is how long the controller may take to hear of a directory that is offline.
	settling = 30 * time.Second
)

// twoDirs is a node with two log directories and a topic that is spread over both.
type twoDirs struct {
	t             *testing.T
	kind          harness.Kind
	node          *harness.Node
	first, second string // the first one holds the metadata log
	topic         wire.Topic
	lost, kept    int32 // a partition in the second and one in the first directory
}

// onBoth runs a test with a node of each kind. second makes the second directory.
func onBoth(t *testing.T, second func(t *testing.T) string, test func(d *twoDirs)) {
	for _, kind := range []harness.Kind{harness.Gregor, harness.Kafka} {
		t.Run(string(kind), func(t *testing.T) {
			d := &twoDirs{t: t, kind: kind, first: filepath.Join(t.TempDir(), "first"), second: second(t)}
			d.node = harness.Start(t, kind, harness.Options{LogDir: d.first, Properties: harness.Properties{
				"log.dirs": d.first + "," + d.second, "metadata.log.dir": d.first,
				"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "300",
			}})
			d.topic = wire.CreateTopic(t, d.node, "spread", partitions)
			for p := range int32(partitions) {
				d.mustProduce(p)
			}
			d.lost, d.kept = -1, -1
			for dir, held := range d.described() {
				for p := range int32(partitions) {
					if slices.Contains(held.partitions, fmt.Sprintf("spread-%d", p)) {
						if dir == d.second {
							d.lost = p
						} else {
							d.kept = p
						}
					}
				}
			}
			if d.lost < 0 || d.kept < 0 {
				t.Fatalf("the partitions are not spread: %+v", d.described())
			}
			test(d)
		})
	}
}

func freshDir(t *testing.T) string { return filepath.Join(t.TempDir(), "second") }

func record() []byte {
	return wire.NewBatch(wire.None, wire.Record{Timestamp: time.Now().UnixMilli(), Value: []byte("v")}).Encode()
}

func (d *twoDirs) mustProduce(p int32) {
	d.t.Helper()
	if got := wire.Produce(d.t, d.node.Addr, 12, d.topic, p, record()); got.ErrorCode != 0 {
		d.t.Fatalf("partition %d: error %d", p, got.ErrorCode)
	}
}

// dirDescription is what DescribeLogDirs says of a directory.
type dirDescription struct {
	code       int16
	partitions []string
}

func (d *twoDirs) described() map[string]dirDescription {
	d.t.Helper()
	out := map[string]dirDescription{}
	for _, dir := range wire.Do[*kmsg.DescribeLogDirsResponse](d.t, d.node.Addr, wire.At(kmsg.NewPtrDescribeLogDirsRequest(), 4)).Dirs {
		x := dirDescription{code: dir.ErrorCode}
		for _, t := range dir.Topics {
			for _, p := range t.Partitions {
				x.partitions = append(x.partitions, fmt.Sprintf("%s-%d", t.Topic, p.Partition))
			}
		}
		slices.Sort(x.partitions)
		out[dir.Dir] = x
	}
	return out
}

// seen is what the metadata says of a partition.
func (d *twoDirs) seen(p int32) string {
	d.t.Helper()
	req := wire.At(kmsg.NewPtrMetadataRequest(), 12)
	req.Topics = []kmsg.MetadataRequestTopic{{Topic: &d.topic.Name}}
	r := wire.Do[*kmsg.MetadataResponse](d.t, d.node.Addr, req)
	for _, t := range r.Topics {
		for _, x := range t.Partitions {
			if x.Partition == p {
				return fmt.Sprintf("%s, leader %d, replicas %v, ISR %v, offline %v", name(x.ErrorCode), x.Leader, x.Replicas, x.ISR, x.OfflineReplicas)
			}
		}
	}
	return "not there"
}

func name(code int16) string {
	if code == 0 {
		return "no error"
	}
	return kerr.TypedErrorForCode(code).Message
}

// expect compares everything that clients see of a node whose second directory is offline.
func (d *twoDirs) expect() {
	d.t.Helper()
	const gone = "LEADER_NOT_AVAILABLE, leader -1, replicas [1], ISR [], offline [1]"
	if !harness.Within(settling, func() bool { return d.seen(d.lost) == gone }) {
		d.t.Errorf("the partition in the directory that is offline: %s, want %s", d.seen(d.lost), gone)
	}
	if got, want := d.seen(d.kept), "no error, leader 1, replicas [1], ISR [1], offline []"; got != want {
		d.t.Errorf("the partition in the other directory: %s, want %s", got, want)
	}
	for what, c := range map[string]struct {
		got  int16
		want *kerr.Error
	}{
		"produce":     {wire.Produce(d.t, d.node.Addr, 12, d.topic, d.lost, record()).ErrorCode, kerr.KafkaStorageError},
		"fetch":       {wire.Fetch(d.t, d.node.Addr, 16, d.topic, d.lost, 0).ErrorCode, kerr.KafkaStorageError},
		"list offset": {wire.ListOffset(d.t, d.node.Addr, 8, d.topic, d.lost, -1).ErrorCode, kerr.KafkaStorageError},
	} {
		// On a slow machine Kafka hears that the partition is led by nobody before it looks for its log.
		ofKafka := d.kind == harness.Kafka && c.got == kerr.NotLeaderForPartition.Code
		if c.got != c.want.Code && !ofKafka {
			d.t.Errorf("%s: %s, want %s", what, name(c.got), c.want.Message)
		}
	}
	dirs := d.described()
	if x := dirs[d.second]; x.code != kerr.KafkaStorageError.Code || len(x.partitions) > 0 {
		d.t.Errorf("the directory that is offline is described as %+v", x)
	}
	if x := dirs[d.first]; x.code != 0 || !slices.Contains(x.partitions, fmt.Sprintf("spread-%d", d.kept)) {
		d.t.Errorf("the other directory is described as %+v", x)
	}
	if len(dirs) != 2 {
		d.t.Errorf("%d directories are described: %v", len(dirs), slices.Sorted(maps.Keys(dirs)))
	}
	d.mustProduce(d.kept)
	late := wire.CreateTopic(d.t, d.node, "late", 3)
	for p := range int32(3) {
		if got := wire.Produce(d.t, d.node.Addr, 12, late, p, record()); got.ErrorCode != 0 {
			d.t.Errorf("a topic that was made afterwards, partition %d: %s", p, name(got.ErrorCode))
		}
	}
	if x := d.described()[d.first]; !slices.Contains(x.partitions, "late-0") || !slices.Contains(x.partitions, "late-2") {
		d.t.Errorf("the topic that was made afterwards is not in the directory that is left: %v", x.partitions)
	}
}

// TestDirectoryThatCannotBeReadAtTheStartIsOffline damages the second directory's meta.properties while the node is down.
func TestDirectoryThatCannotBeReadAtTheStartIsOffline(t *testing.T) {
	onBoth(t, freshDir, func(d *twoDirs) {
		d.node.Stop(d.t)
		meta := filepath.Join(d.second, "meta.properties")
		whole, err := os.ReadFile(meta)
		if err != nil {
			d.t.Fatal(err)
		}
		if err := os.WriteFile(meta, []byte("version=x\n"), 0o600); err != nil {
			d.t.Fatal(err)
		}
		d.node.Start(d.t)
		d.expect()
		// With the file mended, everything is back after the next start.
		d.node.Stop(d.t)
		if err := os.WriteFile(meta, whole, 0o600); err != nil {
			d.t.Fatal(err)
		}
		d.node.Start(d.t)
		wire.AwaitLeaders(d.t, d.node, d.topic.Name, partitions)
		if end := wire.ListOffset(d.t, d.node.Addr, 8, d.topic, d.lost, -1).Offset; end != 1 {
			d.t.Errorf("the partition that was offline ends at %d", end)
		}
	})
}

// TestDirectoryThatFailsIsOffline stops the second directory's file system while the node runs: the next append fails.
func TestDirectoryThatFailsIsOffline(t *testing.T) {
	var disk *harness.Disk
	onDisk := func(t *testing.T) string {
		disk = harness.NewDisk(t, "ext4")
		return filepath.Join(disk.Path, "second")
	}
	onBoth(t, onDisk, func(d *twoDirs) {
		disk.Shutdown()
		got := wire.Produce(d.t, d.node.Addr, 12, d.topic, d.lost, record()).ErrorCode
		// Kafka meets the failure in an index that it has mapped into memory, and does not take that for one of storage.
		if got != kerr.KafkaStorageError.Code && (d.node.Kind != harness.Kafka || got != kerr.UnknownServerError.Code) {
			d.t.Errorf("the append that fails: %s", name(got))
		}
		d.expect()
	})
}

// TestNodeEndsWithItsMetadataDirectory damages the first directory's meta.properties while the node is down.
func TestNodeEndsWithItsMetadataDirectory(t *testing.T) {
	onBoth(t, freshDir, func(d *twoDirs) {
		d.node.Stop(d.t)
		if err := os.WriteFile(filepath.Join(d.first, "meta.properties"), []byte("version=x\n"), 0o600); err != nil {
			d.t.Fatal(err)
		}
		d.node.Launch(d.t)
		if status := d.node.Wait(d.t, time.Minute); status != 1 || !strings.Contains(d.node.Log(), d.first) {
			d.t.Errorf("exit status %d:\n%s", status, d.node.LogTail(5))
		}
	})
}
