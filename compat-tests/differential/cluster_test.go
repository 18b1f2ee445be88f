package differential

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/compat-tests/harness"
	"gregor/compat-tests/wire"
)

func TestApiVersions(t *testing.T) {
	p := newPair(t)
	served := map[int16]bool{}
	onlyServed := func(s *side, resp kmsg.Response) {
		r, _ := resp.(*kmsg.ApiVersionsResponse)
		keys := r.ApiKeys[:0]
		for _, k := range r.ApiKeys {
			if s == p.gregor {
				served[k.ApiKey] = true
			}
			if served[k.ApiKey] {
				keys = append(keys, k)
			}
		}
		r.ApiKeys = keys
	}
	request := func(v int16, name, version string) *kmsg.ApiVersionsRequest {
		req := wire.At(kmsg.NewPtrApiVersionsRequest(), v)
		req.ClientSoftwareName, req.ClientSoftwareVersion, req.NodeID = name, version, -1
		return req
	}
	for _, v := range versions(0, 5) {
		p.same("usual", constant(request(v, "compat", "1.2.3")), onlyServed)
		for _, bad := range []string{"", "-a", "a-", "a b", "ü", "a..b", "a/b"} {
			p.same("name "+bad, constant(request(v, bad, "1")), onlyServed)
			p.same("version "+bad, constant(request(v, "compat", bad)), onlyServed)
		}
	}
	for _, node := range []int32{-1, 1, 2} {
		for _, cluster := range []*string{nil, new(harness.ClusterID), new("other")} {
			req := request(5, "compat", "1")
			req.NodeID, req.ClusterID = node, cluster
			p.same("node and cluster", constant(req), onlyServed)
		}
	}
}

func TestMetadata(t *testing.T) {
	p := newPair(t)
	p.create("md-a", 3)
	p.create("md-b", 1)
	for _, v := range versions(0, 13) {
		request := func(names ...string) *kmsg.MetadataRequest {
			req := wire.At(kmsg.NewPtrMetadataRequest(), v)
			req.Topics = []kmsg.MetadataRequestTopic{}
			for _, name := range names {
				rt := kmsg.NewMetadataRequestTopic()
				rt.Topic = new(name)
				req.Topics = append(req.Topics, rt)
			}
			return req
		}
		p.same("two topics", constant(request("md-a", "md-b")))
		p.same("a topic twice", constant(request("md-a", "md-a")))
		if v >= 4 { // without the flag to leave it out, the topic would be made
			p.same("missing", constant(request("md-missing", "md-a")))
		}
		p.same("bad names", constant(request("", ".", "a/b")))
		p.same("none", constant(request()))
		if v >= 8 {
			req := request("md-a", "md-missing")
			req.IncludeClusterAuthorizedOperations, req.IncludeTopicAuthorizedOperations = v <= 10, true
			p.same("operations", constant(req))
		}
		if v < 10 {
			continue
		}
		byID := func(names ...string) func(s *side) kmsg.Request {
			return func(s *side) kmsg.Request {
				req := request()
				for _, name := range names {
					rt := kmsg.NewMetadataRequestTopic()
					rt.TopicID = s.topic(name).ID
					req.Topics = append(req.Topics, rt)
				}
				return req
			}
		}
		p.same("by id", byID("md-a", "md-b"))
		p.same("by an unknown id", byID("md-nobody", "md-b"))
		p.same("by id and by name", func(s *side) kmsg.Request {
			req, _ := byID("md-a")(s).(*kmsg.MetadataRequest)
			rt := kmsg.NewMetadataRequestTopic()
			rt.Topic = new("md-b")
			req.Topics = append(req.Topics, rt)
			return req
		})
		p.same("by id with its name", func(s *side) kmsg.Request {
			req, _ := byID("md-a")(s).(*kmsg.MetadataRequest)
			req.Topics[0].Topic = new("md-a")
			return req
		})
		p.same("operations of an id", func(s *side) kmsg.Request {
			req, _ := byID("md-a")(s).(*kmsg.MetadataRequest)
			req.IncludeTopicAuthorizedOperations = true
			return req
		})
	}
}

func TestDescribeCluster(t *testing.T) {
	p := newPair(t)
	for _, v := range versions(0, 2) {
		for _, operations := range []bool{false, true} {
			for _, endpoint := range []int8{1, 2, 9} {
				req := wire.At(kmsg.NewPtrDescribeClusterRequest(), v)
				req.IncludeClusterAuthorizedOperations, req.EndpointType, req.IncludeFencedBrokers = operations, endpoint, v >= 2
				p.same("endpoints", constant(req))
			}
		}
	}
}

func TestDescribeQuorum(t *testing.T) {
	p := newPair(t)
	for _, v := range versions(0, 2) {
		for topic, partition := range map[string]int32{"__cluster_metadata": 0, "other": 0} {
			req := wire.At(kmsg.NewPtrDescribeQuorumRequest(), v)
			req.Topics = []kmsg.DescribeQuorumRequestTopic{{Topic: topic, Partitions: []kmsg.DescribeQuorumRequestTopicPartition{{Partition: partition}}}}
			p.same(topic, constant(req))
		}
		empty := wire.At(kmsg.NewPtrDescribeQuorumRequest(), v)
		p.same("nothing", constant(empty))
	}
}

func TestDescribeTopicPartitions(t *testing.T) {
	p := newPair(t)
	p.create("dtp-a", 3)
	p.create("dtp-b", 2)
	request := func(limit int32, topics ...string) *kmsg.DescribeTopicPartitionsRequest {
		req := kmsg.NewPtrDescribeTopicPartitionsRequest()
		req.ResponsePartitionLimit = limit
		for _, name := range topics {
			req.Topics = append(req.Topics, kmsg.DescribeTopicPartitionsRequestTopic{Topic: name})
		}
		return req
	}
	p.same("two", constant(request(2000, "dtp-b", "dtp-a")))
	p.same("missing", constant(request(2000, "dtp-missing", "dtp-a", "a/b")))
	p.same("twice", constant(request(2000, "dtp-a", "dtp-a")))
	p.same("limit", constant(request(4, "dtp-a", "dtp-b")))
	p.same("limit 1", constant(request(1, "dtp-a", "dtp-b")))
	p.same("limit 0", constant(request(0, "dtp-a", "dtp-b")))
	for _, cursor := range []kmsg.DescribeTopicPartitionsRequestCursor{{Topic: "dtp-a", Partition: 1}, {Topic: "dtp-b", Partition: 0}, {Topic: "dtp-a", Partition: 9}, {Topic: "zzz", Partition: 0}, {Topic: "dtp-a", Partition: -1}} {
		req := request(2, "dtp-a", "dtp-b")
		req.Cursor = &cursor
		p.same("cursor", constant(req))
	}
}

func TestLogDirs(t *testing.T) {
	p := newPair(t)
	p.create("dld", 2)
	for _, s := range p.sides() {
		wire.MustProduce(t, s.node.Addr, s.topic("dld"), 0, wire.NewBatch(wire.None, wire.Record{Timestamp: 5, Value: []byte("x")}))
	}
	for _, v := range versions(1, 5) {
		for what, topics := range map[string][]kmsg.DescribeLogDirsRequestTopic{
			"one":         {{Topic: "dld", Partitions: []int32{0}}},
			"both":        {{Topic: "dld", Partitions: []int32{1, 0}}},
			"missing":     {{Topic: "dld-missing", Partitions: []int32{0}}},
			"partition":   {{Topic: "dld", Partitions: []int32{9}}},
			"no topics":   {},
			"no partions": {{Topic: "dld"}},
		} {
			req := wire.At(kmsg.NewPtrDescribeLogDirsRequest(), v)
			req.Topics = topics
			p.same(what, constant(req))
		}
	}
}

func TestUpdateFeatures(t *testing.T) {
	p := newPair(t)
	for _, v := range versions(0, 2) {
		for _, u := range []struct {
			name  string
			level int16
			kind  int8
		}{
			{"group.version", 1, 1},
			{"group.version", 9, 1},
			{"no.such.feature", 1, 1},
			{"group.version", 0, 1},
			{"group.version", 1, 2},
			{"group.version", 1, 3},
			{"metadata.version", 7, 2},
			{"metadata.version", 99, 1},
			{"metadata.version", 0, 1},
			{"", 1, 1},
			{"group.version", -1, 1},
			{"group.version", 1, 9},
		} {
			req := wire.At(kmsg.NewPtrUpdateFeaturesRequest(), v)
			req.TimeoutMillis, req.ValidateOnly = 10000, v >= 1
			f := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
			f.Feature, f.MaxVersionLevel, f.UpgradeType, f.AllowDowngrade = u.name, u.level, u.kind, u.kind > 1
			req.FeatureUpdates = append(req.FeatureUpdates, f)
			p.same(u.name, constant(req))
			if v >= 1 {
				req.FeatureUpdates = append(req.FeatureUpdates, f)
				p.same(u.name+" twice", constant(req))
			}
		}
	}
}

func TestOtherClusterRequests(t *testing.T) {
	p := newPair(t)
	p.create("ocr", 2)
	for _, v := range versions(0, 2) {
		for what, topics := range map[string][]kmsg.ElectLeadersRequestTopic{
			"one":     {{Topic: "ocr", Partitions: []int32{0, 1}}},
			"missing": {{Topic: "ocr-missing", Partitions: []int32{0}}},
			"beyond":  {{Topic: "ocr", Partitions: []int32{7}}},
			"none":    {},
		} {
			for _, kind := range []int8{0, 1} {
				req := wire.At(kmsg.NewPtrElectLeadersRequest(), v)
				req.TimeoutMillis, req.Topics, req.ElectionType = 10000, topics, kind
				p.same(what, constant(req))
			}
		}
	}
	unregister := kmsg.NewPtrUnregisterBrokerRequest()
	unregister.BrokerID = 77
	p.same("unknown broker", constant(unregister))
	for _, v := range versions(0, 1) {
		for what, replicas := range map[string][]int32{"same": {1}, "cancel": nil, "unknown": {9}, "empty": {}, "twice": {1, 1}, "negative": {-1}} {
			for _, topic := range []string{"ocr", "ocr-missing"} {
				req := wire.At(kmsg.NewPtrAlterPartitionAssignmentsRequest(), v)
				req.TimeoutMillis = 10000
				req.Topics = []kmsg.AlterPartitionAssignmentsRequestTopic{{Topic: topic, Partitions: []kmsg.AlterPartitionAssignmentsRequestTopicPartition{{Partition: 0, Replicas: replicas}}}}
				p.same(topic+" "+what, constant(req))
			}
		}
	}
	list := kmsg.NewPtrListPartitionReassignmentsRequest()
	p.same("all", constant(list))
	list.Topics = []kmsg.ListPartitionReassignmentsRequestTopic{{Topic: "ocr", Partitions: []int32{0}}, {Topic: "ocr-missing", Partitions: []int32{0}}}
	p.same("some", constant(list))
	producers := kmsg.NewPtrDescribeProducersRequest()
	producers.Topics = []kmsg.DescribeProducersRequestTopic{{Topic: "ocr", Partitions: []int32{0, 9}}, {Topic: "ocr-missing", Partitions: []int32{0}}, {Topic: "a/b", Partitions: []int32{0}}}
	p.same("producers", constant(producers))
}
