package quorum

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gregor/kraft/metadata"
	"gregor/protocol"
	"gregor/protocol/record"
	"gregor/storage/checkpoint"
	"gregor/storage/vfs"
)

// kafkaDir copies a `__cluster_metadata-0` of Apache Kafka 4.4.0 onto a node's disk. The index files are left out: they
// are made anew.
func kafkaDir(t testing.TB, fs vfs.FS, from, to string) {
	t.Helper()
	entries, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := fs.MkdirAll(to); err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		b, err := os.ReadFile(filepath.Join(from, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if err := vfs.WriteFile(fs, to+"/"+e.Name(), b); err != nil {
			t.Fatal(err)
		}
	}
	if err := fs.SyncDir(to); err != nil {
		t.Fatal(err)
	}
}

// takeOver prepares a node on a directory of Kafka.
func (c *cluster) takeOver(t testing.TB, id int32, from string, static ...int32) *testNode {
	t.Helper()
	n := c.add(id, 0)
	kafkaDir(t, n.fs, from, n.opts.Dir)
	props, err := checkpoint.ReadMetaProperties(n.fs, n.opts.Dir+"/meta.properties")
	if err != nil {
		t.Fatal(err)
	}
	n.opts.DirectoryID = protocol.UUID(props.DirectoryID)
	for _, v := range static {
		n.opts.StaticVoters = append(n.opts.StaticVoters, Voter{Key: ReplicaKey{ID: v}})
	}
	return n
}

func readLog(t testing.TB, n *testNode, from int64) []byte {
	t.Helper()
	var out []byte
	for end := n.machine.storage.endOffset(); from < end; {
		b, err := n.machine.storage.read(from, scanBytes)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, b...)
		for batch := range record.Validated(b) {
			from = batch.NextOffset()
		}
	}
	return out
}

func TestTakesOverDirectoriesOfKafkaAndGoesOn(t *testing.T) {
	for _, tc := range []struct {
		dir      string
		static   []int32
		end      int64
		snapshot SnapshotID
		level    int16
	}{
		{"metadata", nil, 245, SnapshotID{243, 1}, 1},
		{"plain", []int32{1}, 163, SnapshotID{}, 0},
	} {
		t.Run(tc.dir, func(t *testing.T) {
			c := newCluster(t, tc.level)
			from := "testdata/kafka/" + tc.dir
			n := c.takeOver(t, 1, from, tc.static...)
			c.must(c.start(1))
			if got := n.board.load().leader; got != (LeaderAndEpoch{1, 2}) {
				t.Fatalf("leader %v, want node 1 in the epoch after Kafka's", got)
			}
			if got := n.board.load().highWatermark; got != tc.end+1 {
				t.Fatalf("high watermark %d, want all of Kafka's log and the new epoch's first batch, %d", got, tc.end+1)
			}
			if got := n.board.load().config.level; got != tc.level {
				t.Fatalf("kraft.version %d, want %d", got, tc.level)
			}
			if tc.snapshot.Offset > 0 && !strings.HasPrefix(n.events.calls[1], fmt.Sprintf("load %v", tc.snapshot)) {
				t.Fatalf("state machine was told %q", n.events.calls[:2])
			}
			if n.events.next != tc.end+1 || len(n.events.faults) > 0 {
				t.Fatalf("state machine is at %d with faults %v", n.events.next, n.events.faults)
			}
			_, last, err := c.propose(n, "after")
			c.must(err)
			if last != tc.end+1 || n.board.load().highWatermark != tc.end+2 {
				t.Fatalf("proposal at %d, high watermark %d", last, n.board.load().highWatermark)
			}
			kafkas, err := os.ReadFile(from + "/00000000000000000000.log")
			if err != nil {
				t.Fatal(err)
			}
			if ours := readLog(t, n, 0); !bytes.Equal(ours[:len(kafkas)], kafkas) {
				t.Fatal("the log does not begin with Kafka's bytes")
			}
			c.crash(1, 0)
			c.must(c.start(1))
			if got := n.board.load().leader; got != (LeaderAndEpoch{1, 3}) || !slices.Contains(n.events.topics, "after") {
				t.Fatalf("after a restart: leader %v, topics %v", got, n.events.topics)
			}
			id, err := c.snapshot(n)
			c.must(err)
			if id != (SnapshotID{tc.end + 3, 3}) {
				t.Fatalf("snapshot %v", id)
			}
			c.finish()
		})
	}
}

// The three nodes were killed: node 1 is two epochs behind, and each has other snapshots.
func TestTakesOverAQuorumOfThreeThatKafkaLeft(t *testing.T) {
	for leader := int32(1); leader <= 3; leader++ {
		c := newCluster(t, 0)
		for id := int32(1); id <= 3; id++ {
			c.takeOver(t, id, fmt.Sprintf("testdata/kafka/cluster3/node%d", id), 1, 2, 3)
			c.must(c.start(id))
		}
		if got := c.nodes[1].machine.states.hardState(); got.term != 3 || got.vote != raftID(2) {
			t.Fatalf("node 1 read term %d, vote %d", got.term, got.vote)
		}
		if got := c.nodes[2].machine.states.hardState(); got.term != 5 || got.vote != raftID(2) {
			t.Fatalf("node 2, leader of epoch 5, read term %d, vote %d: it must not vote for another there", got.term, got.vote)
		}
		c.campaign(leader)
		c.stabilize()
		c.finish()
		l := c.leader()
		if leader > 1 && (l.id != leader || l.board.load().leader.Epoch != 6) {
			t.Fatalf("node %d leads epoch %d, want %d and 6", l.id, l.board.load().leader.Epoch, leader)
		}
		if leader == 1 && l.id == 1 {
			t.Fatal("node 1 leads although its log is behind")
		}
		_, _, err := c.propose(l, "together")
		c.must(err)
		c.finish()
		want := readLog(t, l, 402)
		for _, id := range c.ids() {
			if !bytes.Equal(readLog(t, c.nodes[id], 402), want) {
				t.Fatalf("node %d and the leader differ", id)
			}
		}
		kafkas, err := os.ReadFile("testdata/kafka/cluster3/node2/00000000000000000000.log")
		if err != nil {
			t.Fatal(err)
		}
		if got := readLog(t, c.nodes[1], 0); !bytes.HasPrefix(got, kafkas) {
			t.Fatal("node 1 did not get Kafka's batches byte for byte")
		}
	}
}

// A node formatted by Kafka starts with the voters of the checkpoint and hands its records to the controller.
func TestStartsFromKafkasFormattedDirectory(t *testing.T) {
	c := newCluster(t, 1)
	n := c.takeOver(t, 1, "testdata/kafka/formatted")
	c.must(c.start(1))
	if got := n.board.load(); got.leader != (LeaderAndEpoch{1, 1}) || got.config.level != 1 || got.highWatermark != 3 {
		t.Fatalf("state %+v", got)
	}
	records, ok, err := bootstrapRecords(&n.opts, n.machine.storage.snapshots)
	if err != nil || !ok || len(records) != 7 {
		t.Fatalf("%d bootstrap records, %v, %v", len(records), ok, err)
	}
	if f, ok := records[0].(*metadata.FeatureLevelRecord); !ok || f.Name != "metadata.version" || f.FeatureLevel != 33 {
		t.Fatalf("first bootstrap record %+v", records[0])
	}
}

// Rebuilding every control batch and every snapshot batch of Kafka from its contents gives Kafka's bytes.
func TestBatchesAreThoseOfKafkaByteForByte(t *testing.T) {
	files, err := filepath.Glob("testdata/kafka/*/*.checkpoint")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("testdata/kafka/*/*/*.checkpoint")
	if err != nil {
		t.Fatal(err)
	}
	logs, err := filepath.Glob("testdata/kafka/*/*.log")
	if err != nil {
		t.Fatal(err)
	}
	lastLogs, err := filepath.Glob("testdata/kafka/*/*/*.log")
	if err != nil {
		t.Fatal(err)
	}
	controls, data := 0, 0
	for _, name := range slices.Concat(files, more, logs, lastLogs) {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for batch, err := range record.Batches(b) {
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			rebuilt := rebuildData(t, batch)
			if batch.IsControl() {
				rebuilt = rebuildControl(t, batch)
				controls++
			} else {
				data++
			}
			if !bytes.Equal(batch, rebuilt) {
				t.Fatalf("%s: batch at offset %d:\nKafka %x\nours  %x", name, batch.BaseOffset(), []byte(batch), []byte(rebuilt))
			}
		}
	}
	if controls < 20 || data < 100 {
		t.Fatalf("only %d control batches and %d others", controls, data)
	}
}

func rebuildControl(t *testing.T, b record.Batch) record.Batch {
	t.Helper()
	c, err := readControl(b)
	if err != nil {
		t.Fatal(err)
	}
	var records []controlRecord
	if c.leaderChange != nil {
		records = append(records, controlRecord{record.ControlLeaderChange, c.leaderChange})
	}
	if c.header != nil {
		records = append(records, controlRecord{record.ControlSnapshotHeader, c.header})
	}
	if c.level != nil {
		records = append(records, kraftVersionRecord(*c.level))
	}
	if c.voters != nil {
		records = append(records, votersRecord(*c.voters, c.raftBytes))
	}
	if c.footer {
		records = append(records, controlRecord{record.ControlSnapshotFooter, metadata.NewSnapshotFooterRecord()})
	}
	out, err := buildControl(record.BuilderOptions{BaseOffset: b.BaseOffset(), LeaderEpoch: b.LeaderEpoch()}, b.BaseTimestamp(), records...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func rebuildData(t *testing.T, b record.Batch) record.Batch {
	t.Helper()
	builder := record.NewBuilder(record.BuilderOptions{BaseOffset: b.BaseOffset(), LeaderEpoch: b.LeaderEpoch()})
	for rec, err := range b.Records(recordLimits) {
		if err != nil {
			t.Fatal(err)
		}
		if b.IsControl() {
			return nil
		}
		decoded, version, err := metadata.DecodeVersion(rec.Value)
		if err != nil {
			t.Fatal(err)
		}
		value, err := metadata.Append(nil, decoded, version)
		if err != nil {
			t.Fatal(err)
		}
		builder.Add(rec.Timestamp, nil, value, nil)
	}
	return builder.Bytes()
}

// The counts are those of Kafka's own dump.
func TestReadsEverySnapshotOfKafka(t *testing.T) {
	fs := vfs.NewMem()
	kafkaDir(t, fs, "testdata/kafka/metadata", "/d")
	store, err := openSnapshots(fs, "/d", 0)
	if err != nil {
		t.Fatal(err)
	}
	want := map[SnapshotID]int{{0, 0}: 7, {48, 1}: 10, {90, 1}: 24, {122, 1}: 42, {165, 1}: 64, {243, 1}: 87}
	for _, id := range store.list() {
		r, err := store.openSnapshot(id)
		if err != nil {
			t.Fatal(err)
		}
		records := 0
		for b, err := range r.Batches() {
			if err != nil {
				t.Fatal(err)
			}
			records += len(b.Records)
		}
		if err := r.verify(); err != nil {
			t.Fatal(err)
		}
		if c := r.config(config{}); c.level != 1 || c.voters.Len() != 1 {
			t.Fatalf("snapshot %v: kraft.version %d, voters %v", id, c.level, c.voters)
		}
		if records != want[id] {
			t.Errorf("snapshot %v: %d records, want %d", id, records, want[id])
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if len(store.list()) != len(want) {
		t.Fatalf("snapshots %v", store.list())
	}
}
