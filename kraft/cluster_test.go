package kraft

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/kraft/quorum"
	"gregor/protocol"
	"gregor/storage/checkpoint"
	"gregor/storage/vfs"
)

func TestThreeControllersElectOneAndFollowIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		defer c.stopAll()
		n := c.leader()
		until(t, "registration of all controllers", func() bool { return n.Image().Cluster.NumControllers() == 3 })
		joinBroker(t, n, 10)
		createTopic(t, n, "a", 3)
		c.sameImages()
		for _, other := range c.f.nodes {
			if other.Leader() != n.Leader() {
				t.Errorf("node %d sees leader %+v, the leader says %+v", other.o.NodeID, other.Leader(), n.Leader())
			}
		}
	})
}

func TestWaitingRequestsGetNotControllerWhenTheLeaderIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		defer c.stopAll()
		old := c.leader()
		joinBroker(t, old, 10)
		c.sameImages()
		c.f.setCut(old.o.NodeID, true)
		answered := make(chan kmsg.Response, 1)
		go func() {
			resp, err := old.Handle(context.Background(), anonymous(), createRequest("lost", 1, 1))
			if err == nil {
				answered <- resp
			}
		}()
		resp := (<-answered).(*kmsg.CreateTopicsResponse)
		if resp.Topics[0].ErrorCode != 41 {
			t.Errorf("got %s", protocol.ErrorName(resp.Topics[0].ErrorCode))
		}
		next := c.leader()
		createTopic(t, next, "kept", 1)
		c.f.setCut(old.o.NodeID, false)
		c.sameImages()
		if old.Image().Topics.ByName("lost") != nil || old.Image().Topics.ByName("kept") == nil {
			t.Error("the old leader kept what was never committed, or lacks what was")
		}
		until(t, "the old leader follows", func() bool { return old.Leader() == next.Leader() })
	})
}

func TestClusterGoesOnWhenItsLeaderStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		defer c.stopAll()
		first := c.leader()
		epoch := joinBroker(t, first, 10)
		createTopic(t, first, "before", 2)
		c.sameImages()
		id := first.o.NodeID
		c.stop(id)
		second := c.leader()
		resp := handle[*kmsg.BrokerHeartbeatResponse](t, second, heartbeatRequest(second, 10, epoch))
		if resp.ErrorCode != 0 || resp.IsFenced {
			t.Errorf("the new controller answers a heartbeat with %+v", resp)
		}
		createTopic(t, second, "after", 2)
		c.start(id)
		c.sameImages()
	})
}

func TestBrokerOnlyNodeFollowsTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		defer c.stopAll()
		n := c.leader()
		joinBroker(t, n, 10)
		createTopic(t, n, "a", 3)
		o := observerOptions(t, 50)
		o.Client = c.f.clientOf(50)
		broker := c.run(50, o)
		c.sameImages()
		if broker.Image().Topics.ByName("a") == nil {
			t.Fatal("topic missing on the observer")
		}
		e, ok := broker.LeaderEndpoint()
		if !ok || e.NodeID != n.o.NodeID {
			t.Errorf("the observer finds the leader at %+v, %v; it is node %d", e, ok, n.o.NodeID)
		}
		// It goes on after a change of leadership.
		c.stop(n.o.NodeID)
		createTopic(t, c.leader(), "b", 1)
		until(t, "following the new leader", func() bool { return broker.Image().Topics.ByName("b") != nil })
	})
}

func TestObserverThatIsFarBehindLoadsASnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		defer c.stopAll()
		c.stop(1)
		o := testOptions(t, c.disks[1], 1, 1)
		o.Snapshots.MaxNewRecordBytes = 1000
		o.Quorum.Log = quorum.LogOptions{SegmentBytes: 1 << 20, RetentionBytes: 1, RetentionMillis: 1}
		o.Client = c.f.clientOf(1)
		n := c.run(1, o)
		until(t, "activation", func() bool { return n.Image().MetadataVersion() != 0 })
		joinBroker(t, n, 10)
		for i := range 20 {
			createTopic(t, n, string(rune('a'+i)), 4)
			synctest.Wait()
		}
		until(t, "deletion of the beginning of the log", func() bool {
			pause(5 * time.Second)
			return n.quorum.LogStartOffset() > 0
		})
		oo := observerOptions(t, 50)
		oo.Client = c.f.clientOf(50)
		broker := c.run(50, oo)
		c.sameImages()
		if broker.Image().Topics.Counts().Topics != 20 {
			t.Errorf("%+v", broker.Image().Topics.Counts())
		}
	})
}

func TestObserverFindsTheLeaderFromBootstrapServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		defer c.stopAll()
		n := c.leader()
		o := observerOptions(t, 50)
		o.Quorum.StaticVoters = nil
		for id := int32(1); id <= 3; id++ {
			if id != n.o.NodeID {
				o.Quorum.BootstrapServers = append(o.Quorum.BootstrapServers, Endpoint{NodeID: -1, Host: "localhost", Port: uint16(9000 + id)})
			}
		}
		o.Client = c.f.clientOf(50)
		c.run(50, o)
		c.sameImages()
	})
}

// observerOptions are those of a formatted node without the controller role.
func observerOptions(t *testing.T, id int32) Options {
	t.Helper()
	fs := formatDisk(t, id, func(f *Formatter) { f.Controller = false })
	props, err := checkpoint.ReadMetaProperties(fs, "/data/"+checkpoint.MetaPropertiesFile)
	if err != nil {
		t.Fatal(err)
	}
	return Options{
		NodeID: id, ClusterID: testClusterID, FS: fs, MetadataDir: "/data", DirectoryID: props.DirectoryID,
		Quorum: QuorumOptions{StaticVoters: testVoters(3), ListenerNames: []string{"CONTROLLER"}},
	}
}

func TestDynamicQuorumGrowsAndShrinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{t: t, f: newFabric(), n: 1, disks: map[int32]*vfs.Mem{}}
		defer c.stopAll()
		c.disks[1] = formatDisk(t, 1, func(f *Formatter) {
			f.HasStaticVoters, f.Standalone = false, true
			f.AdvertisedController = quorum.Endpoint{Host: "localhost", Port: 9001}
		})
		c.disks[2] = formatDisk(t, 2, func(f *Formatter) { f.HasStaticVoters, f.NoInitialControllers = false, true })
		dynamic := func(id int32) Options {
			o := testOptions(t, c.disks[id], id, 1)
			o.Quorum.StaticVoters = nil
			o.Quorum.BootstrapServers = []Endpoint{{NodeID: -1, Host: "localhost", Port: 9001}}
			o.Client = c.f.clientOf(id)
			return o
		}
		n := c.run(1, dynamic(1))
		c.leader()
		second := c.run(2, dynamic(2))
		c.sameImages()
		req := kmsg.NewPtrAddRaftVoterRequest()
		req.VoterID, req.VoterDirectoryID = 2, second.o.DirectoryID
		l := kmsg.NewAddRaftVoterRequestListener()
		l.Name, l.Host, l.Port = "CONTROLLER", "localhost", 9002
		req.Listeners = append(req.Listeners, l)
		var added *kmsg.AddRaftVoterResponse
		until(t, "addition of the voter", func() bool {
			added = handle[*kmsg.AddRaftVoterResponse](t, n, req)
			return added.ErrorCode != 7
		})
		if added.ErrorCode != 0 {
			t.Fatalf("%s: %v", protocol.ErrorName(added.ErrorCode), *added.ErrorMessage)
		}
		if got := n.quorum.Voters().Len(); got != 2 {
			t.Fatalf("%d voters", got)
		}
		again := handle[*kmsg.AddRaftVoterResponse](t, n, req)
		if protocol.ErrorName(again.ErrorCode) != "DUPLICATE_VOTER" {
			t.Errorf("added twice: %s", protocol.ErrorName(again.ErrorCode))
		}
		joinBroker(t, n, 10)
		createTopic(t, n, "a", 1)
		c.sameImages()
		remove := kmsg.NewPtrRemoveRaftVoterRequest()
		remove.VoterID, remove.VoterDirectoryID = 2, second.o.DirectoryID
		if got := handle[*kmsg.RemoveRaftVoterResponse](t, n, remove); got.ErrorCode != 0 {
			t.Fatalf("%s: %v", protocol.ErrorName(got.ErrorCode), got.ErrorMessage)
		}
		createTopic(t, n, "b", 1)
		if got := n.quorum.Voters().Len(); got != 1 {
			t.Fatalf("%d voters", got)
		}
	})
}

func TestStaticVotersCannotBeChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		defer c.stopAll()
		n := c.leader()
		resp := handle[*kmsg.AddRaftVoterResponse](t, n, kmsg.NewPtrAddRaftVoterRequest())
		if resp.ErrorCode != 35 || *resp.ErrorMessage != "Cluster doesn't support adding voter because the kraft.version feature is 0" {
			t.Errorf("%d %s", resp.ErrorCode, *resp.ErrorMessage)
		}
		removed := handle[*kmsg.RemoveRaftVoterResponse](t, n, kmsg.NewPtrRemoveRaftVoterRequest())
		if removed.ErrorCode != 35 || *removed.ErrorMessage != "Cluster doesn't support removing voter because the kraft.version feature is 0" {
			t.Errorf("%d %s", removed.ErrorCode, *removed.ErrorMessage)
		}
	})
}

func TestTransactionThatItsControllerDidNotEndIsAborted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		defer c.stopAll()
		first := c.leader()
		joinBroker(t, first, 10)
		c.sameImages()
		openTransaction(t, first)
		c.sameImages()
		c.stop(first.o.NodeID)
		second := c.leader()
		createTopic(t, second, "next", 1)
		c.sameImages()
		if second.Image().Topics.ByName("half") != nil {
			t.Error("a transaction without an end took effect")
		}
		if second.Image().Topics.ByName("next") == nil {
			t.Error("what came after the aborted transaction did not take effect")
		}
	})
}
