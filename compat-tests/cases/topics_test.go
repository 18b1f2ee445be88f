package cases

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/compat-tests/harness"
	"gregor/compat-tests/wire"
)

func newTopic(name string, partitions int32, factor int16) kmsg.CreateTopicsRequestTopic {
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, partitions, factor
	return t
}

func createRequest(version int16, topics ...kmsg.CreateTopicsRequestTopic) *kmsg.CreateTopicsRequest {
	req := wire.At(kmsg.NewPtrCreateTopicsRequest(), version)
	req.TimeoutMillis, req.Topics = 30000, topics
	return req
}

func create(t *testing.T, n *harness.Node, req *kmsg.CreateTopicsRequest) map[string]kmsg.CreateTopicsResponseTopic {
	t.Helper()
	byName := map[string]kmsg.CreateTopicsResponseTopic{}
	for _, rt := range wire.Do[*kmsg.CreateTopicsResponse](t, n.Addr, req).Topics {
		byName[rt.Topic] = rt
	}
	return byName
}

func TestBrokerDefaults(t *testing.T) {
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		for v := int16(2); v <= 7; v++ {
			name := fmt.Sprintf("defaults-%d", v)
			got := create(t, n, createRequest(v, newTopic(name, -1, -1)))[name]
			wantCode(t, name, got.ErrorCode, nil)
			if v >= 5 {
				want(t, "partitions", got.NumPartitions, 1)
				want(t, "factor", got.ReplicationFactor, 1)
			}
			wire.AwaitLeaders(t, n, name, 1)
		}
	})
}

func TestBadAndCollidingNames(t *testing.T) {
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		wire.CreateTopic(t, n, "collide_with", 1)
		bad := []string{".", "..", "", strings.Repeat("x", 250), "a/b", "a b", "ä", "collide.with"}
		for v := int16(2); v <= 7; v++ {
			for _, name := range bad {
				got := create(t, n, createRequest(v, newTopic(name, 1, 1)))[name]
				wantCode(t, fmt.Sprintf("v%d %q", v, name), got.ErrorCode, kerr.InvalidTopicException)
				if got.ErrorMessage == nil || *got.ErrorMessage == "" {
					t.Errorf("%q: no message", name)
				}
			}
			twice := create(t, n, createRequest(v, newTopic("twice", 1, 1), newTopic("twice", 1, 1)))
			wantCode(t, "twice", twice["twice"].ErrorCode, kerr.InvalidRequest)
			wantCode(t, "there", create(t, n, createRequest(v, newTopic("collide_with", 1, 1)))["collide_with"].ErrorCode, kerr.TopicAlreadyExists)
		}
		for v := range int16(14) {
			for _, name := range bad[:len(bad)-1] {
				got := metadata(t, n, metadataRequest(v, true, name)).Topics
				if v == 0 && name == "" && len(got) != 1 {
					continue
				}
				wantCode(t, fmt.Sprintf("Metadata v%d %q", v, name), got[0].ErrorCode, kerr.InvalidTopicException)
			}
		}
	})
}

func TestCreateTopicsAnswersWithAllConfigs(t *testing.T) {
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		for v := int16(5); v <= 7; v++ {
			for _, validate := range []bool{true, false} {
				name := fmt.Sprintf("all-configs-%d", v)
				topic := newTopic(name, 3, 1)
				topic.Configs = []kmsg.CreateTopicsRequestTopicConfig{{Name: "retention.ms", Value: new("5000")}}
				req := createRequest(v, topic)
				req.ValidateOnly = validate
				got := create(t, n, req)[name]
				wantCode(t, name, got.ErrorCode, nil)
				want(t, "partitions", got.NumPartitions, 3)
				if v >= 7 && !validate && got.TopicID == [16]byte{} {
					t.Error("no topic id")
				}
				if len(got.Configs) < 30 || !slices.IsSortedFunc(got.Configs, func(a, b kmsg.CreateTopicsResponseTopicConfig) int { return strings.Compare(a.Name, b.Name) }) {
					t.Errorf("v%d: %d configs: %+v", v, len(got.Configs), got.Configs)
				}
				i := slices.IndexFunc(got.Configs, func(c kmsg.CreateTopicsResponseTopicConfig) bool { return c.Name == "retention.ms" })
				if c := got.Configs[i]; *c.Value != "5000" || c.Source != 1 || c.ReadOnly || c.IsSensitive {
					t.Errorf("retention.ms: %+v", c)
				}
				if validate {
					wantCode(t, "created by validate_only", metadata(t, n, metadataRequest(12, false, name)).Topics[0].ErrorCode, kerr.UnknownTopicOrPartition)
				}
			}
		}
	})
}

func TestErrorsCarryAMessage(t *testing.T) {
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		wire.CreateTopic(t, n, "messages", 2)
		config := newTopic("messages-config", 1, 1)
		config.Configs = []kmsg.CreateTopicsRequestTopicConfig{{Name: "retention.ms", Value: new("soon")}}
		assigned := newTopic("messages-assigned", -1, -1)
		assigned.ReplicaAssignment = []kmsg.CreateTopicsRequestTopicReplicaAssignment{{Partition: 0, Replicas: []int32{77}}}
		both := newTopic("messages-both", 3, 1)
		both.ReplicaAssignment = []kmsg.CreateTopicsRequestTopicReplicaAssignment{{Partition: 0, Replicas: []int32{1}}}
		for what, c := range map[string]struct {
			topic kmsg.CreateTopicsRequestTopic
			want  *kerr.Error
		}{
			"factor":     {newTopic("messages-factor", 1, 3), kerr.InvalidReplicationFactor},
			"factor 0":   {newTopic("messages-factor", 1, 0), kerr.InvalidReplicationFactor},
			"partitions": {newTopic("messages-partitions", 0, 1), kerr.InvalidPartitions},
			"config":     {config, kerr.InvalidConfig},
			"assignment": {assigned, kerr.InvalidReplicaAssignment},
			"both":       {both, kerr.InvalidRequest},
		} {
			got := create(t, n, createRequest(7, c.topic))[c.topic.Topic]
			wantCode(t, what, got.ErrorCode, c.want)
			hasMessage(t, what, got.ErrorMessage)
		}
		for count, expected := range map[int32]*kerr.Error{1: kerr.InvalidPartitions, 2: kerr.InvalidPartitions, 0: kerr.InvalidPartitions, -1: kerr.InvalidPartitions} {
			req := wire.At(kmsg.NewPtrCreatePartitionsRequest(), 3)
			req.TimeoutMillis = 10000
			rt := kmsg.NewCreatePartitionsRequestTopic()
			rt.Topic, rt.Count = "messages", count
			req.Topics = append(req.Topics, rt)
			got := wire.Do[*kmsg.CreatePartitionsResponse](t, n.Addr, req).Topics[0]
			wantCode(t, fmt.Sprintf("%d partitions", count), got.ErrorCode, expected)
			hasMessage(t, "CreatePartitions", got.ErrorMessage)
		}
		alter := incremental("messages", kmsg.IncrementalAlterConfigOpSet, "retention.ms", new("soon"))
		got := wire.Do[*kmsg.IncrementalAlterConfigsResponse](t, n.Addr, alter).Resources[0]
		wantCode(t, "IncrementalAlterConfigs", got.ErrorCode, kerr.InvalidConfig)
		hasMessage(t, "IncrementalAlterConfigs", got.ErrorMessage)
	})
}

func hasMessage(t *testing.T, what string, message *string) {
	t.Helper()
	if message == nil || *message == "" || strings.Contains(*message, "\n") {
		t.Errorf("%s: message %v", what, message)
	}
}

func TestCreatePartitions(t *testing.T) {
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		for v := range int16(4) {
			name := fmt.Sprintf("grows-%d", v)
			wire.CreateTopic(t, n, name, 1)
			req := wire.At(kmsg.NewPtrCreatePartitionsRequest(), v)
			req.TimeoutMillis = 10000
			rt := kmsg.NewCreatePartitionsRequestTopic()
			rt.Topic, rt.Count = name, 3
			req.Topics = append(req.Topics, rt)
			got := wire.Do[*kmsg.CreatePartitionsResponse](t, n.Addr, req).Topics[0]
			wantCode(t, name, got.ErrorCode, nil)
			if got.ErrorMessage != nil {
				t.Errorf("message %q", *got.ErrorMessage)
			}
			wire.AwaitLeaders(t, n, name, 3)
		}
	})
}

func TestDeleteRecordsBelowTheStart(t *testing.T) {
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		topic := wire.CreateTopic(t, n, "below-the-start", 1)
		produceValues(t, n, topic, 0, "0", "1", "2", "3", "4")
		for _, step := range []struct {
			before, low int64
			want        *kerr.Error
		}{
			{3, 3, nil},
			{2, 3, nil},
			{3, 3, nil},
			{0, 3, nil},
			{6, -1, kerr.OffsetOutOfRange},
			{-2, -1, kerr.OffsetOutOfRange},
			{5, 5, nil},
			{-1, 5, nil},
		} {
			got := deleteRecords(t, n, topic.Name, step.before)
			wantCode(t, strconv.FormatInt(step.before, 10), got.ErrorCode, step.want)
			want(t, fmt.Sprintf("low watermark after %d", step.before), got.LowWatermark, step.low)
		}
		want(t, "earliest", wire.ListOffset(t, n.Addr, 7, topic, 0, -2).Offset, 5)
	})
}

func TestDeleteTopicsAnswersForEach(t *testing.T) {
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		for v := int16(1); v <= 5; v++ {
			name := fmt.Sprintf("delete-%d", v)
			wire.CreateTopic(t, n, name, 1)
			req := wire.At(kmsg.NewPtrDeleteTopicsRequest(), v)
			req.TimeoutMillis, req.TopicNames = 10000, []string{name, "delete-missing"}
			r := wire.Do[*kmsg.DeleteTopicsResponse](t, n.Addr, req)
			want(t, "results", len(r.Topics), 2)
			for _, rt := range r.Topics {
				expected := kerr.UnknownTopicOrPartition
				if *rt.Topic == name {
					expected = nil
				}
				wantCode(t, *rt.Topic, rt.ErrorCode, expected)
			}
		}
		topic := wire.CreateTopic(t, n, "delete-by-id", 1)
		one := func(name *string, id [16]byte) kmsg.DeleteTopicsRequestTopic {
			rt := kmsg.NewDeleteTopicsRequestTopic()
			rt.Topic, rt.TopicID = name, id
			return rt
		}
		for _, c := range []struct {
			what   string
			topics []kmsg.DeleteTopicsRequestTopic
			want   *kerr.Error
		}{
			{"unknown id", []kmsg.DeleteTopicsRequestTopic{one(nil, [16]byte{1})}, kerr.UnknownTopicID},
			{"both", []kmsg.DeleteTopicsRequestTopic{one(new(topic.Name), topic.ID)}, kerr.InvalidRequest},
			{"neither", []kmsg.DeleteTopicsRequestTopic{one(nil, [16]byte{})}, kerr.InvalidRequest},
			{"twice", []kmsg.DeleteTopicsRequestTopic{one(new(topic.Name), [16]byte{}), one(new(topic.Name), [16]byte{})}, kerr.InvalidRequest},
			{"by id", []kmsg.DeleteTopicsRequestTopic{one(nil, topic.ID)}, nil},
		} {
			req := wire.At(kmsg.NewPtrDeleteTopicsRequest(), 6)
			req.TimeoutMillis, req.Topics = 10000, c.topics
			for _, rt := range wire.Do[*kmsg.DeleteTopicsResponse](t, n.Addr, req).Topics {
				wantCode(t, c.what, rt.ErrorCode, c.want)
				if c.want == nil && (rt.Topic == nil || *rt.Topic != topic.Name || rt.TopicID != topic.ID) {
					t.Errorf("by id: %+v", rt)
				}
			}
		}
	})
}

func describeLogDirs(t *testing.T, n *harness.Node, version int16, topics []kmsg.DescribeLogDirsRequestTopic) *kmsg.DescribeLogDirsResponse {
	t.Helper()
	req := wire.At(kmsg.NewPtrDescribeLogDirsRequest(), version)
	req.Topics = topics
	return wire.Do[*kmsg.DescribeLogDirsResponse](t, n.Addr, req)
}

func TestDescribeLogDirsListsWhatWasAsked(t *testing.T) {
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		wire.CreateTopic(t, n, "asked", 2)
		wire.CreateTopic(t, n, "not-asked", 1)
		for v := int16(1); v <= 5; v++ {
			one := describeLogDirs(t, n, v, []kmsg.DescribeLogDirsRequestTopic{{Topic: "asked", Partitions: []int32{1}}})
			if len(one.Dirs) != 1 || len(one.Dirs[0].Topics) != 1 || len(one.Dirs[0].Topics[0].Partitions) != 1 || one.Dirs[0].Topics[0].Partitions[0].Partition != 1 {
				t.Errorf("v%d: %+v", v, one)
			}
			none := describeLogDirs(t, n, v, []kmsg.DescribeLogDirsRequestTopic{{Topic: "nowhere", Partitions: []int32{0}}})
			if len(none.Dirs) != 1 || len(none.Dirs[0].Topics) != 0 || none.Dirs[0].ErrorCode != 0 {
				t.Errorf("v%d, unknown topic: %+v", v, none)
			}
			all := describeLogDirs(t, n, v, nil)
			if len(all.Dirs[0].Topics) < 2 {
				t.Errorf("v%d, all: %+v", v, all)
			}
		}
	})
}

func TestDiskSizeFields(t *testing.T) {
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		wire.CreateTopic(t, n, "disk-size", 1)
		for v := int16(1); v <= 5; v++ {
			dir := describeLogDirs(t, n, v, []kmsg.DescribeLogDirsRequestTopic{{Topic: "disk-size", Partitions: []int32{0}}}).Dirs[0]
			want(t, "directory", dir.Dir, n.LogDir)
			p := dir.Topics[0].Partitions[0]
			if p.OffsetLag != 0 || p.IsFuture || v >= 4 && (dir.TotalBytes <= 0 || dir.UsableBytes <= 0 || dir.UsableBytes > dir.TotalBytes) {
				t.Errorf("v%d: %+v", v, dir)
			}
		}
	})
}

func TestDescribeTopicPartitions(t *testing.T) {
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		topic := wire.CreateTopic(t, n, "paged-b", 3)
		wire.CreateTopic(t, n, "paged-a", 2)
		req := kmsg.NewPtrDescribeTopicPartitionsRequest()
		req.Topics = []kmsg.DescribeTopicPartitionsRequestTopic{{Topic: "paged-b"}, {Topic: "paged-missing"}, {Topic: "paged-a"}}
		req.ResponsePartitionLimit = 4
		r := wire.Do[*kmsg.DescribeTopicPartitionsResponse](t, n.Addr, req)
		if len(r.Topics) != 2 || *r.Topics[0].Topic != "paged-a" || len(r.Topics[1].Partitions) != 2 {
			t.Fatalf("first page: %+v", r.Topics)
		}
		if r.NextCursor == nil || r.NextCursor.Topic != "paged-b" || r.NextCursor.Partition != 2 {
			t.Fatalf("cursor: %+v", r.NextCursor)
		}
		req.Cursor = &kmsg.DescribeTopicPartitionsRequestCursor{Topic: r.NextCursor.Topic, Partition: r.NextCursor.Partition}
		r = wire.Do[*kmsg.DescribeTopicPartitionsResponse](t, n.Addr, req)
		if len(r.Topics) != 2 || len(r.Topics[0].Partitions) != 1 || r.Topics[0].TopicID != topic.ID || r.NextCursor != nil {
			t.Fatalf("second page: %+v", r)
		}
		wantCode(t, "missing", r.Topics[1].ErrorCode, kerr.UnknownTopicOrPartition)
	})
}
