package cases

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/compat-tests/harness"
	"gregor/compat-tests/wire"
)

// metadataRequest asks for topics by name; none at all is an empty list, not null.
func metadataRequest(version int16, autoCreate bool, topics ...string) *kmsg.MetadataRequest {
	req := wire.At(kmsg.NewPtrMetadataRequest(), version)
	req.AllowAutoTopicCreation = autoCreate
	req.Topics = []kmsg.MetadataRequestTopic{}
	for _, name := range topics {
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = &name
		req.Topics = append(req.Topics, rt)
	}
	return req
}

func metadata(t *testing.T, n *harness.Node, req *kmsg.MetadataRequest) *kmsg.MetadataResponse {
	t.Helper()
	return wire.Do[*kmsg.MetadataResponse](t, n.Addr, req)
}

func TestFirstAnswerForAutoCreatedTopic(t *testing.T) {
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		for v := int16(4); v <= 13; v++ {
			name := fmt.Sprintf("fresh-%d", v)
			first := metadata(t, n, metadataRequest(v, true, name)).Topics
			if len(first) != 1 {
				t.Fatalf("v%d: %+v", v, first)
			}
			wantCode(t, "first answer", first[0].ErrorCode, kerr.UnknownTopicOrPartition)
			want(t, "partitions", len(first[0].Partitions), 0)
			harness.Eventually(t, waitTimeout, name+" is shown", func() bool {
				later := metadata(t, n, metadataRequest(v, true, name)).Topics
				if later[0].ErrorCode == 0 && len(later[0].Partitions) == 0 {
					t.Fatal("no error, but no partitions")
				}
				return later[0].ErrorCode == 0
			})
		}
		missing := metadata(t, n, metadataRequest(12, false, "never-made")).Topics
		wantCode(t, "without the flag", missing[0].ErrorCode, kerr.UnknownTopicOrPartition)
		between(200 * time.Millisecond)
		missing = metadata(t, n, metadataRequest(12, false, "never-made")).Topics
		wantCode(t, "without the flag, later", missing[0].ErrorCode, kerr.UnknownTopicOrPartition)
	})
}

func TestNullTopicListIsNotEmptyList(t *testing.T) {
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		wire.CreateTopic(t, n, "null-list", 1)
		has := func(r *kmsg.MetadataResponse) bool {
			return slices.ContainsFunc(r.Topics, func(rt kmsg.MetadataResponseTopic) bool { return *rt.Topic == "null-list" })
		}
		if !has(metadata(t, n, metadataRequest(0, false))) {
			t.Error("v0, empty list: not all topics")
		}
		for v := int16(1); v <= 13; v++ {
			empty := metadata(t, n, metadataRequest(v, false))
			if len(empty.Topics) != 0 || len(empty.Brokers) != 1 {
				t.Errorf("v%d, empty list: %d topics, %d brokers", v, len(empty.Topics), len(empty.Brokers))
			}
			all := metadataRequest(v, false)
			all.Topics = nil
			if !has(metadata(t, n, all)) {
				t.Errorf("v%d, null list: not all topics", v)
			}
		}
	})
}

func TestLeaderIDsAreInBrokersOnEveryListener(t *testing.T) {
	test := func(t *testing.T, kind harness.Kind) {
		port := harness.Ports(t, 3)
		listeners := fmt.Sprintf("PLAINTEXT://127.0.0.1:%d,SIX://[::1]:%d", port[0], port[1])
		n := harness.New(t, kind, harness.Options{Properties: harness.Properties{
			"listeners":                      listeners + fmt.Sprintf(",CONTROLLER://127.0.0.1:%d", port[2]),
			"advertised.listeners":           listeners,
			"controller.quorum.voters":       fmt.Sprintf("1@127.0.0.1:%d", port[2]),
			"listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SIX:PLAINTEXT",
		}})
		n.Addr = fmt.Sprintf("127.0.0.1:%d", port[0])
		n.Start(t)
		wire.CreateTopic(t, n, "both-listeners", 2)
		for i, addr := range []string{n.Addr, fmt.Sprintf("[::1]:%d", port[1])} {
			for _, v := range []int16{0, 5, 13} {
				r := wire.Do[*kmsg.MetadataResponse](t, addr, metadataRequest(v, false, "both-listeners"))
				if len(r.Brokers) != 1 || r.Brokers[0].NodeID != 1 || int(r.Brokers[0].Port) != port[i] {
					t.Errorf("%s v%d: brokers %+v", addr, v, r.Brokers)
				}
				for _, p := range r.Topics[0].Partitions {
					if p.Leader != 1 || !slices.Equal(p.Replicas, []int32{1}) || !slices.Equal(p.ISR, []int32{1}) {
						t.Errorf("%s v%d: partition %+v", addr, v, p)
					}
				}
			}
		}
	}
	t.Run("gregor", func(t *testing.T) { test(t, harness.Gregor) })
	t.Run("kafka", func(t *testing.T) { test(t, harness.Kafka) })
}

func TestControllerIsALiveBroker(t *testing.T) {
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		for v := int16(1); v <= 13; v++ {
			want(t, "Metadata controller", metadata(t, n, metadataRequest(v, false)).ControllerID, 1)
		}
		for v := range int16(3) {
			r := wire.Do[*kmsg.DescribeClusterResponse](t, n.Addr, wire.At(kmsg.NewPtrDescribeClusterRequest(), v))
			wantCode(t, "DescribeCluster", r.ErrorCode, nil)
			want(t, "DescribeCluster controller", r.ControllerID, 1)
		}
	})
}

// notAsked stands for operations that the request did not ask for.
const notAsked = math.MinInt32

func bits(ops ...int) (mask int32) {
	for _, op := range ops {
		mask |= 1 << op
	}
	return mask
}

func TestAuthorizedOperations(t *testing.T) {
	clusterOps := bits(5, 7, 8, 9, 10, 11, 12)
	topicOps := bits(3, 4, 5, 6, 7, 8, 10, 11)
	groupOps := bits(3, 6, 8, 10, 11)
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		wire.CreateTopic(t, n, "operations", 1)
		for v := int16(8); v <= 13; v++ {
			req := metadataRequest(v, false, "operations")
			off := metadata(t, n, req)
			want(t, "topic, off", off.Topics[0].AuthorizedOperations, notAsked)
			req.IncludeTopicAuthorizedOperations, req.IncludeClusterAuthorizedOperations = true, true
			on := metadata(t, n, req)
			want(t, "topic, on", on.Topics[0].AuthorizedOperations, topicOps)
			if v <= 10 {
				want(t, "cluster, off", off.AuthorizedOperations, notAsked)
				want(t, "cluster, on", on.AuthorizedOperations, clusterOps)
			}
		}
		cluster := kmsg.NewPtrDescribeClusterRequest()
		want(t, "DescribeCluster, off", wire.Do[*kmsg.DescribeClusterResponse](t, n.Addr, cluster).ClusterAuthorizedOperations, notAsked)
		cluster.IncludeClusterAuthorizedOperations = true
		want(t, "DescribeCluster, on", wire.Do[*kmsg.DescribeClusterResponse](t, n.Addr, cluster).ClusterAuthorizedOperations, clusterOps)
		commit(t, n, 8, "operations-group", topicPartition{"operations", 0}, 0)
		for v := int16(3); v <= 6; v++ {
			req := wire.At(kmsg.NewPtrDescribeGroupsRequest(), v)
			req.Groups = []string{"operations-group"}
			want(t, "group, off", wire.Do[*kmsg.DescribeGroupsResponse](t, n.Addr, req).Groups[0].AuthorizedOperations, notAsked)
			req.IncludeAuthorizedOperations = true
			want(t, "group, on", wire.Do[*kmsg.DescribeGroupsResponse](t, n.Addr, req).Groups[0].AuthorizedOperations, groupOps)
		}
	})
}
