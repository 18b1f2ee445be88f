package kraft

import (
	"bytes"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/kraft/image"
	"gregor/kraft/metadata"
	"gregor/kraft/quorum"
	"gregor/protocol"
	"gregor/storage/vfs"
)

// withNode runs a test on a single controller that has taken over.
func withNode(t *testing.T, adjust func(*Options), test func(t *testing.T, n *Node)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(t, formatDisk(t, 1, nil), 1, 1)
		if adjust != nil {
			adjust(&o)
		}
		n := openNode(t, o)
		defer stopNode(t, n)
		until(t, "activation", func() bool { return n.Image().MetadataVersion() != 0 })
		test(t, n)
	})
}

// logFetch is a fetch of the metadata log.
func logFetch() *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.ReplicaState.ID, req.MaxBytes = 17, 7, 1<<20
	topic := kmsg.NewFetchRequestTopic()
	topic.TopicID = quorum.TopicID
	p := kmsg.NewFetchRequestTopicPartition()
	p.PartitionMaxBytes, p.CurrentLeaderEpoch, p.LastFetchedEpoch = 1<<20, 1, 0
	topic.Partitions = append(topic.Partitions, p)
	req.Topics = append(req.Topics, topic)
	return req
}

func TestFetchOfTheMetadataLog(t *testing.T) {
	withNode(t, nil, func(t *testing.T, n *Node) {
		other := "other"
		refused := []struct {
			name string
			set  func(r *kmsg.FetchRequest, rc *RequestContext)
			want string
		}{
			{"another cluster", func(r *kmsg.FetchRequest, _ *RequestContext) { r.ClusterID = &other }, "INCONSISTENT_CLUSTER_ID"},
			{"no topic", func(r *kmsg.FetchRequest, _ *RequestContext) { r.Topics = nil }, "INVALID_REQUEST"},
			{"another topic", func(r *kmsg.FetchRequest, _ *RequestContext) { r.Topics[0].TopicID[3]++ }, "INVALID_REQUEST"},
			{"another topic by name", func(r *kmsg.FetchRequest, _ *RequestContext) {
				r.Version, r.Topics[0].Topic = 12, "t"
			}, "INVALID_REQUEST"},
			{"another partition", func(r *kmsg.FetchRequest, _ *RequestContext) { r.Topics[0].Partitions[0].Partition = 1 }, "INVALID_REQUEST"},
			{"a stranger", func(_ *kmsg.FetchRequest, rc *RequestContext) {
				rc.Authorize = func(int8, int8, string) bool { return false }
			}, "CLUSTER_AUTHORIZATION_FAILED"},
		}
		for _, tt := range refused {
			req, rc := logFetch(), anonymous()
			tt.set(req, rc)
			resp, err := n.Handle(t.Context(), rc, req)
			if err != nil {
				t.Fatal(err)
			}
			if got := protocol.ErrorName(resp.(*kmsg.FetchResponse).ErrorCode); got != tt.want {
				t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
			}
		}
		req := logFetch()
		req.Version, req.ReplicaID, req.Topics[0].Topic = 12, 7, quorum.Topic
		resp := handle[*kmsg.FetchResponse](t, n, req)
		p := resp.Topics[0].Partitions[0]
		if resp.ErrorCode != 0 || p.ErrorCode != 0 || len(p.RecordBatches) == 0 || p.HighWatermark == 0 ||
			p.CurrentLeader.LeaderID != -1 && p.CurrentLeader.LeaderID != 1 {
			t.Errorf("%+v", resp)
		}
		req.Topics[0].Partitions[0].CurrentLeaderEpoch = 99
		p = handle[*kmsg.FetchResponse](t, n, req).Topics[0].Partitions[0]
		if got := protocol.ErrorName(p.ErrorCode); got != "UNKNOWN_LEADER_EPOCH" || p.RecordBatches == nil {
			t.Errorf("a newer epoch: %s", got)
		}
	})
}

func TestFetchSnapshotRefusals(t *testing.T) {
	withNode(t, nil, func(t *testing.T, n *Node) {
		request := func() *kmsg.FetchSnapshotRequest {
			req := kmsg.NewPtrFetchSnapshotRequest()
			topic := kmsg.NewFetchSnapshotRequestTopic()
			topic.Topic = quorum.Topic
			topic.Partitions = append(topic.Partitions, kmsg.NewFetchSnapshotRequestTopicPartition())
			topic.Partitions[0].SnapshotID.EndOffset, topic.Partitions[0].CurrentLeaderEpoch = 12345, n.Leader().Epoch
			req.Topics = append(req.Topics, topic)
			return req
		}
		other := "other"
		req := request()
		req.ClusterID = &other
		if got := protocol.ErrorName(handle[*kmsg.FetchSnapshotResponse](t, n, req).ErrorCode); got != "INCONSISTENT_CLUSTER_ID" {
			t.Errorf("another cluster: %s", got)
		}
		req.ClusterID, req.Topics = nil, nil
		if got := protocol.ErrorName(handle[*kmsg.FetchSnapshotResponse](t, n, req).ErrorCode); got != "INVALID_REQUEST" {
			t.Errorf("no topic: %s", got)
		}
		for want, set := range map[string]func(*kmsg.FetchSnapshotRequest){
			"UNKNOWN_TOPIC_OR_PARTITION": func(r *kmsg.FetchSnapshotRequest) { r.Topics[0].Topic = "t" },
			"SNAPSHOT_NOT_FOUND":         func(*kmsg.FetchSnapshotRequest) {},
			"UNKNOWN_LEADER_EPOCH":       func(r *kmsg.FetchSnapshotRequest) { r.Topics[0].Partitions[0].CurrentLeaderEpoch++ },
		} {
			req := request()
			set(req)
			p := handle[*kmsg.FetchSnapshotResponse](t, n, req).Topics[0].Partitions[0]
			if got := protocol.ErrorName(p.ErrorCode); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
		rc := anonymous()
		rc.Authorize = func(int8, int8, string) bool { return false }
		resp, _ := n.Handle(t.Context(), rc, request())
		if got := protocol.ErrorName(resp.(*kmsg.FetchSnapshotResponse).ErrorCode); got != "CLUSTER_AUTHORIZATION_FAILED" {
			t.Errorf("a stranger: %s", got)
		}
	})
}

func TestChangesOfVotersAreRefused(t *testing.T) {
	withNode(t, nil, func(t *testing.T, n *Node) {
		other := "other"
		add := kmsg.NewPtrAddRaftVoterRequest()
		add.ClusterID = &other
		if got := handle[*kmsg.AddRaftVoterResponse](t, n, add); protocol.ErrorName(got.ErrorCode) != "INCONSISTENT_CLUSTER_ID" {
			t.Errorf("another cluster: %+v", got)
		}
		rc := anonymous()
		rc.Authorize = func(int8, int8, string) bool { return false }
		resp, _ := n.Handle(t.Context(), rc, kmsg.NewPtrRemoveRaftVoterRequest())
		if got := resp.(*kmsg.RemoveRaftVoterResponse); protocol.ErrorName(got.ErrorCode) != "CLUSTER_AUTHORIZATION_FAILED" {
			t.Errorf("a stranger: %+v", got)
		}
		update := kmsg.NewPtrUpdateRaftVoterRequest()
		update.VoterID = 77
		l := kmsg.NewUpdateRaftVoterRequestListener()
		l.Name, l.Host, l.Port = "CONTROLLER", "localhost", 9077
		update.Listeners = append(update.Listeners, l)
		got := handle[*kmsg.UpdateRaftVoterResponse](t, n, update)
		if got.ErrorCode == 0 || got.CurrentLeader.LeaderID != 1 || got.CurrentLeader.Port != 9001 {
			t.Errorf("a voter that is none: %+v", got)
		}
	})
}

func TestDescribeClusterOnAController(t *testing.T) {
	withNode(t, nil, func(t *testing.T, n *Node) {
		until(t, "registration", func() bool { return n.Image().Cluster.Controller(1) != nil })
		req := kmsg.NewPtrDescribeClusterRequest()
		req.Version, req.EndpointType = 1, 2
		resp := handle[*kmsg.DescribeClusterResponse](t, n, req)
		if resp.ErrorCode != 0 || resp.ControllerID != 1 || len(resp.Brokers) != 1 || resp.Brokers[0].Port != 9001 {
			t.Errorf("%+v", resp)
		}
		list := handle[*kmsg.ListPartitionReassignmentsResponse](t, n, kmsg.NewPtrListPartitionReassignmentsRequest())
		if list.ErrorCode != 0 || len(list.Topics) != 0 {
			t.Errorf("%+v", list)
		}
		if n.ClusterID() != testClusterID || n.Err() != nil {
			t.Errorf("cluster %q, error %v", n.ClusterID(), n.Err())
		}
		if _, err := n.Handle(t.Context(), anonymous(), kmsg.NewPtrProduceRequest()); err == nil {
			t.Error("a controller answered Produce")
		}
	})
}

func TestKRaftVersionIsRaisedByTheQuorum(t *testing.T) {
	withNode(t, nil, func(t *testing.T, n *Node) {
		if n.KRaftVersion() != 0 {
			t.Fatalf("kraft.version %d at first", n.KRaftVersion())
		}
		req := kmsg.NewPtrUpdateFeaturesRequest()
		req.Version = 2
		u := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
		u.Feature, u.MaxVersionLevel, u.UpgradeType = metadata.FeatureKRaftVersion, 1, 1
		req.FeatureUpdates = append(req.FeatureUpdates, u)
		resp := handle[*kmsg.UpdateFeaturesResponse](t, n, req)
		if resp.ErrorCode != 0 {
			t.Fatalf("%s: %v", protocol.ErrorName(resp.ErrorCode), *resp.ErrorMessage)
		}
		if n.KRaftVersion() != 1 {
			t.Errorf("kraft.version %d", n.KRaftVersion())
		}
	})
}

func TestPeriodicElections(t *testing.T) {
	short := func(o *Options) {
		o.Controller.LeaderBalance, o.Controller.UncleanElection = time.Second, time.Second
	}
	withNode(t, short, func(t *testing.T, n *Node) {
		epochs := map[int32]int64{}
		for b := int32(1); b <= 2; b++ {
			epochs[b] = joinBroker(t, n, b)
		}
		create := createRequest("t", -1, -1)
		a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		a.Replicas = []int32{1, 2}
		create.Topics[0].ReplicaAssignment = append(create.Topics[0].ReplicaAssignment, a)
		if got := handle[*kmsg.CreateTopicsResponse](t, n, create); got.Topics[0].ErrorCode != 0 {
			t.Fatalf("%+v", got)
		}
		partition := func() *image.Partition { return n.Image().Topics.Partition("t", 0) }
		beat := func(b int32, fence bool) {
			hb := heartbeatRequest(n, b, epochs[b])
			hb.WantFence = fence
			if got := handle[*kmsg.BrokerHeartbeatResponse](t, n, hb); got.ErrorCode != 0 {
				t.Fatalf("%+v", got)
			}
			synctest.Wait()
		}
		beat(1, true)
		until(t, "the other replica leads", func() bool { return partition().Leader == 2 })
		beat(1, false)
		isr := kmsg.NewPtrAlterPartitionRequest()
		isr.Version, isr.BrokerID, isr.BrokerEpoch = 3, 2, epochs[2]
		topic := kmsg.NewAlterPartitionRequestTopic()
		topic.TopicID = n.Image().Topics.ByName("t").ID
		p := kmsg.NewAlterPartitionRequestTopicPartition()
		p.LeaderEpoch, p.PartitionEpoch = partition().LeaderEpoch, partition().PartitionEpoch
		for b := int32(1); b <= 2; b++ {
			s := kmsg.NewAlterPartitionRequestTopicPartitionNewEpochISR()
			s.BrokerID, s.BrokerEpoch = b, epochs[b]
			p.NewEpochISR = append(p.NewEpochISR, s)
		}
		topic.Partitions = append(topic.Partitions, p)
		isr.Topics = append(isr.Topics, topic)
		if got := handle[*kmsg.AlterPartitionResponse](t, n, isr); got.ErrorCode != 0 || got.Topics[0].Partitions[0].ErrorCode != 0 {
			t.Fatalf("%+v", got)
		}
		until(t, "the preferred leader is elected", func() bool { return partition().Leader == 1 })
		leadUnclean(t, n, beat, partition)
	})
}

// leadUnclean: a partition whose replicas in sync are gone gets a leader once its topic allows any.
func leadUnclean(t *testing.T, n *Node, beat func(int32, bool), partition func() *image.Partition) {
	t.Helper()
	beat(2, true)
	beat(1, true)
	until(t, "no leader", func() bool { return partition().Leader == -1 })
	beat(2, false)
	pause(2 * time.Second)
	if synctest.Wait(); partition().Leader != -1 {
		t.Fatalf("replica %d out of sync was elected", partition().Leader)
	}
	alter := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, "t"
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	yes := "true"
	c.Name, c.Value = "unclean.leader.election.enable", &yes
	r.Configs = append(r.Configs, c)
	alter.Resources = append(alter.Resources, r)
	if got := handle[*kmsg.IncrementalAlterConfigsResponse](t, n, alter); got.Resources[0].ErrorCode != 0 {
		t.Fatalf("%+v", got)
	}
	until(t, "unclean election", func() bool { return partition().Leader == 2 })
	if !slices.Equal(partition().ISR, []int32{2}) {
		t.Errorf("ISR %v", partition().ISR)
	}
}

// TestNodeWithoutBootstrapRecordsUsesTheNewestFeatures: a directory that was formatted without them.
func TestNodeWithoutBootstrapRecordsUsesTheNewestFeatures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := formatDisk(t, 1, nil)
		name := "/data/" + quorum.DirName + "/00000000000000000000-0000000000.checkpoint"
		if err := fs.Remove(name); err != nil {
			t.Fatal(err)
		}
		n := openNode(t, testOptions(t, fs, 1, 1))
		defer stopNode(t, n)
		until(t, "activation", func() bool { return n.Image().MetadataVersion() == metadata.LatestMetadataVersion })
		if got := n.Image().Features.Level(metadata.FeatureGroup); got != 1 {
			t.Errorf("group.version %d", got)
		}
	})
}

func TestStorageInfoTellsProblems(t *testing.T) {
	fs := vfs.NewMem()
	write := func(dir, props string) {
		if err := fs.MkdirAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := vfs.WriteFile(fs, dir+"/meta.properties", []byte(props)); err != nil {
			t.Fatal(err)
		}
	}
	write("/a", "version=1\ncluster.id=one\nnode.id=1\n")
	write("/b", "version=1\ncluster.id=two\nnode.id=1\n")
	write("/c", "version=1\ncluster.id=one\nnode.id=2\n")
	write("/old", "version=0\ncluster.id=one\nbroker.id=1\n")
	if err := vfs.WriteFile(fs, "/file", nil); err != nil {
		t.Fatal(err)
	}
	tests := map[string][]string{
		"No directories specified.":                                                nil,
		"Found problem:\n  /none does not exist":                                   {"/none"},
		"  /file is not a directory":                                               {"/file"},
		"  Mismatched cluster IDs between storage directories.":                    {"/a", "/b"},
		"  Mismatched node IDs between storage directories.":                       {"/a", "/c"},
		"  The kafka configuration file appears to be for a cluster in KRaft mode": {"/old"},
		"Found metadata: {broker.id=1, cluster.id=one, version=0}":                 {"/old"},
	}
	for want, dirs := range tests {
		var out bytes.Buffer
		if _, err := StorageInfo(fs, dirs, &out); err != nil || !bytes.Contains(out.Bytes(), []byte(want)) {
			t.Errorf("%v: %v\n%s", dirs, err, out.String())
		}
	}
}
