package broker

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/protocol"
	"gregor/storage/vfs"
)

// twoDirNode is a node with the log directories a, which holds the metadata too, and b, and topics of one partition in
// each of them.
type twoDirNode struct {
	*testNode
	disk vfs.Switch
	dirs map[string]string // name of its directory, by topic
}

func newTwoDirNode(t *testing.T, overrides ...string) *twoDirNode {
	t.Helper()
	n := &twoDirNode{testNode: &testNode{t: t, dir: t.TempDir(), port: freePorts(t)}, dirs: map[string]string{}}
	n.options = append(slices.Clone(overrides), "log.dirs="+filepath.Join(n.dir, "a")+","+filepath.Join(n.dir, "b"))
	n.fs = vfs.NewErr(vfs.Real(), &n.disk)
	n.start()
	for i := range 4 {
		n.create(fmt.Sprintf("t%d", i))
	}
	if in := n.in("b"); len(in) != 2 {
		t.Fatalf("topics of b: %v", in)
	}
	return n
}

// create makes a topic with three records and notes where it is.
func (n *twoDirNode) create(topic string) {
	n.t.Helper()
	n.createTopic(n.client(), topic, 1, nil)
	produceEach(n.t, n.testNode, topic, 0, 3)
	l, ok := n.broker.manager.Log(topic, 0)
	if !ok {
		n.t.Fatalf("no log of %s", topic)
	}
	n.dirs[topic] = filepath.Base(filepath.Dir(l.Dir()))
}

// in are the topics of a directory.
func (n *twoDirNode) in(dir string) (topics []string) {
	for _, topic := range slices.Sorted(maps.Keys(n.dirs)) {
		if n.dirs[topic] == dir {
			topics = append(topics, topic)
		}
	}
	return topics
}

// directoryOf is where the cluster believes a topic's partition to be.
func (n *twoDirNode) directoryOf(topic string) protocol.UUID {
	d, _ := n.broker.node.Image().Topics.ByName(topic).Partition(0).Directory(n.config().Node.ID)
	return d
}

// mustHaveLostB checks that b alone is offline, for clients and for the controller.
func (n *twoDirNode) mustHaveLostB() {
	n.t.Helper()
	kept := n.in("a")
	for _, topic := range n.in("b") {
		mustBeOffline(n.t, n.testNode, topic, kept[0])
	}
	if _, failed := inLogDirs(n.t, n.testNode, "t0"); !slices.Equal(failed, []string{filepath.Join(n.dir, "b")}) {
		n.t.Errorf("kafka-log-dirs says that %v are offline", failed)
	}
	registered := n.broker.node.Image().Cluster.Broker(n.config().Node.ID)
	if len(registered.Directories) != 1 || registered.Directories[0] != n.directoryOf(kept[0]) {
		n.t.Errorf("the controller knows the directories %v", registered.Directories)
	}
	for i := range 3 {
		topic := fmt.Sprintf("later%d", i)
		n.create(topic)
		if n.dirs[topic] != "a" {
			n.t.Errorf("%s is in %s", topic, n.dirs[topic])
		}
	}
}

// mustBeWhole checks that everything is served, in its place.
func (n *twoDirNode) mustBeWhole(extra map[string]int) {
	n.t.Helper()
	for topic, dir := range n.dirs {
		want := []string{"value 0", "value 1", "value 2"}
		eventually(n.t, topic+" with a leader", func() bool { return inMetadata(n.t, n.testNode, topic).Leader >= 0 })
		got := valuesOf(readBack(n.t, n.testNode, topic))
		if len(got) < 3 || !slices.Equal(got[:3], want) || len(got) > 3+extra[topic] {
			n.t.Errorf("%s has %q", topic, got)
		}
		l, _ := n.broker.manager.Log(topic, 0)
		if at := filepath.Base(filepath.Dir(l.Dir())); at != dir {
			n.t.Errorf("%s is in %s, was in %s", topic, at, dir)
		}
	}
}

func TestFailedDirectoryIsOfflineAloneUntilTheNextStart(t *testing.T) {
	inB := vfs.MatchPath("/b/")
	for name, kind := range map[string]vfs.OpKind{"write": vfs.OpWrite, "sync": vfs.OpSync} {
		t.Run(name, func(t *testing.T) {
			n := newTwoDirNode(t, "log.flush.interval.messages=1")
			n.disk.Set(vfs.FailFrom(1, syscall.EIO, vfs.MatchKind(kind).And(inB)))
			victim, probed := n.in("b")[0], n.in("a")[0]
			if got := codesOf(t, n.testNode, topicIDs(t, n.client())[victim], victim); got.produce != offlineCodes.produce {
				t.Errorf("the produce that met the failure got %d", got.produce)
			}
			n.mustHaveLostB()
			n.disk.Set(nil)
			if got := codesOf(t, n.testNode, topicIDs(t, n.client())[victim], victim); got != offlineCodes {
				t.Errorf("with the disk back but no restart: %+v", got)
			}
			n.stop()
			for dir, clean := range map[string]bool{"a": true, "b": false} {
				if _, err := os.Stat(filepath.Join(n.dir, dir, ".kafka_cleanshutdown")); (err == nil) != clean {
					t.Errorf("clean stop of %s: %v", dir, err)
				}
			}
			n.start()
			// The record of the produce that failed may be there: it was written, and only not synced.
			n.mustBeWhole(map[string]int{probed: 2, victim: 1})
		})
	}
}

func TestDirectoryThatCannotBeReadAtTheStartIsOfflineAlone(t *testing.T) {
	n := newTwoDirNode(t)
	n.stop()
	n.disk.Set(vfs.FailFrom(1, syscall.EIO, func(op vfs.Op) bool {
		return strings.HasPrefix(op.Name+"/", filepath.Join(n.dir, "b")+"/")
	}))
	n.start()
	probed := n.in("a")[0]
	n.mustHaveLostB()
	n.stop()
	n.disk.Set(nil)
	n.start()
	n.mustBeWhole(map[string]int{probed: 2})
	for _, topic := range []string{"t0", "t1", "t2", "t3"} {
		produceEach(t, n.testNode, topic, 3, 4)
	}
}

func deleteTopic(name string) *kmsg.DeleteTopicsRequest {
	req := kmsg.NewPtrDeleteTopicsRequest()
	x := kmsg.NewDeleteTopicsRequestTopic()
	x.Topic = &name
	req.Topics, req.TopicNames, req.TimeoutMillis = append(req.Topics, x), []string{name}, 10_000
	return req
}

// TestInterruptedMoveIsKept finds copies that an AlterReplicaLogDirs of Kafka had not finished: Gregor does not move
// replicas, and leaves them for Kafka to go on with; the copy of a topic that is gone is set aside, and that of one that is
// deleted goes with it.
func TestInterruptedMoveIsKept(t *testing.T) {
	n := newTwoDirNode(t)
	n.stop()
	const id = ".0123456789abcdef0123456789abcdef-future"
	kept, deleted := n.in("a")[0], n.in("a")[1]
	copyTo := func(topic, name string) string {
		to := filepath.Join(n.dir, "b", name)
		if err := os.CopyFS(to, os.DirFS(filepath.Join(n.dir, "a", topic+"-0"))); err != nil {
			t.Fatal(err)
		}
		return to
	}
	keptCopy, deletedCopy := copyTo(kept, kept+"-0"+id), copyTo(deleted, deleted+"-0"+id)
	strayCopy := copyTo(kept, "gone-0"+id)
	metadata := filepath.Join(strayCopy, "partition.metadata")
	if err := os.WriteFile(metadata, []byte("version: 0\ntopic_id: "+protocol.RandomUUID().String()), 0o600); err != nil {
		t.Fatal(err)
	}
	// The copy lags behind.
	log := filepath.Join(keptCopy, "00000000000000000000.log")
	raw, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(log, int64(len(raw)/3)); err != nil {
		t.Fatal(err)
	}
	n.start()
	n.mustBeWhole(nil)
	produceEach(t, n.testNode, kept, 3, 5)
	for _, d := range n.broker.manager.Describe() {
		for _, l := range d.FutureLogs {
			if filepath.Base(d.Path) != "b" || l.Topic() != kept && l.Topic() != deleted {
				t.Errorf("%s has a copy of %s", d.Path, l.Topic())
			}
		}
	}
	if _, err := n.client().Request(t.Context(), deleteTopic(deleted)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the deleted topic's copy gone", func() bool { _, err := os.Stat(deletedCopy); return os.IsNotExist(err) })
	n.stop()
	if got, err := os.ReadFile(log); err != nil || string(got) != string(raw[:len(raw)/3]) {
		t.Errorf("the copy has %d bytes: %v", len(got), err)
	}
	if strays, err := filepath.Glob(filepath.Join(n.dir, "b", "gone-0.*-stray")); err != nil || len(strays) != 1 {
		t.Errorf("strays: %v, %v", strays, err)
	}
}
