package differential

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/compat-tests/wire"
)

func newTopic(name string, partitions int32, factor int16, configs ...string) kmsg.CreateTopicsRequestTopic {
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, partitions, factor
	for i := 0; i+1 < len(configs); i += 2 {
		t.Configs = append(t.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: configs[i], Value: &configs[i+1]})
	}
	return t
}

func assigned(name string, replicas ...[]int32) kmsg.CreateTopicsRequestTopic {
	t := newTopic(name, -1, -1)
	for i, r := range replicas {
		t.ReplicaAssignment = append(t.ReplicaAssignment, kmsg.CreateTopicsRequestTopicReplicaAssignment{Partition: int32(i), Replicas: r})
	}
	return t
}

func createRequest(v int16, validate bool, topics ...kmsg.CreateTopicsRequestTopic) *kmsg.CreateTopicsRequest {
	req := wire.At(kmsg.NewPtrCreateTopicsRequest(), v)
	req.TimeoutMillis, req.ValidateOnly, req.Topics = 30000, validate, topics
	return req
}

func TestCreateTopics(t *testing.T) {
	p := newPair(t)
	p.create("there", 1)
	p.create("dots.are_close", 1)
	null := newTopic("x-null", 1, 1)
	null.Configs = []kmsg.CreateTopicsRequestTopicConfig{{Name: "retention.ms"}}
	skipped := assigned("x-skipped", []int32{1}, []int32{1})
	skipped.ReplicaAssignment[1].Partition = 5
	twice := assigned("x-twice", []int32{1}, []int32{1})
	twice.ReplicaAssignment[1].Partition = 0
	both := assigned("x-both", []int32{1})
	both.NumPartitions, both.ReplicationFactor = 3, 1
	for _, v := range versions(1, 7) {
		for _, validate := range []bool{true, false} {
			for what, topic := range map[string]kmsg.CreateTopicsRequestTopic{
				"there":          newTopic("there", 1, 1),
				"close":          newTopic("dots_are.close", 1, 1),
				"empty":          newTopic("", 1, 1),
				"dot":            newTopic(".", 1, 1),
				"dots":           newTopic("..", 1, 1),
				"slash":          newTopic("a/b", 1, 1),
				"long":           newTopic(strings.Repeat("n", 250), 1, 1),
				"no partitions":  newTopic("x", 0, 1),
				"negative":       newTopic("x", -2, 1),
				"factor 0":       newTopic("x", 1, 0),
				"factor 2":       newTopic("x", 1, 2),
				"factor -2":      newTopic("x", 1, -2),
				"factor huge":    newTopic("x", 1, 32767),
				"unknown key":    newTopic("x", 1, 1, "no.such", "1"),
				"bad value":      newTopic("x", 1, 1, "retention.ms", "x"),
				"out of range":   newTopic("x", 1, 1, "segment.bytes", "1"),
				"bad policy":     newTopic("x", 1, 1, "cleanup.policy", "shred"),
				"empty policy":   newTopic("x", 1, 1, "cleanup.policy", ""),
				"bad codec":      newTopic("x", 1, 1, "compression.type", "brotli"),
				"bad ratio":      newTopic("x", 1, 1, "min.cleanable.dirty.ratio", "2"),
				"bad boolean":    newTopic("x", 1, 1, "preallocate", "maybe"),
				"key twice":      newTopic(fmt.Sprintf("x-keys-%d", v), 1, 1, "retention.ms", "1", "retention.ms", "2"),
				"null value":     null,
				"remote storage": newTopic("x", 1, 1, "remote.storage.enable", "true"),
				"compaction lag": newTopic("x", 1, 1, "min.compaction.lag.ms", "10", "max.compaction.lag.ms", "5"),
				"unknown broker": assigned("x-unknown", []int32{7}),
				"no replicas":    assigned("x-none", []int32{}),
				"replica twice":  assigned("x-double", []int32{1, 1}),
				"negative id":    assigned("x-negative", []int32{-1}),
				"gap":            skipped,
				"index twice":    twice,
				"both":           both,
				"uneven":         assigned("x-uneven", []int32{1}, []int32{1, 2}),
				"cluster topic":  newTopic("__cluster_metadata", 1, 1),
			} {
				p.same(fmt.Sprintf("%s, validate %v", what, validate), constant(createRequest(v, validate, topic)))
			}
			p.same("name twice", constant(createRequest(v, validate, newTopic("x2", 1, 1), newTopic("x2", 2, 1), newTopic("there", 1, 1))))
			p.same("nothing", constant(createRequest(v, validate)))
			name := fmt.Sprintf("ct-%d", v)
			p.same("good", constant(createRequest(v, validate, newTopic(name, 2, 1, "retention.ms", "100000", "cleanup.policy", "delete,compact"), assigned(name+"-assigned", []int32{1}, []int32{1}), newTopic(name+"-default", -1, -1))))
		}
	}
}

func TestDeleteTopics(t *testing.T) {
	p := newPair(t)
	for _, v := range versions(0, 5) {
		name := fmt.Sprintf("dt-%d", v)
		p.create(name, 1)
		for what, names := range map[string][]string{"missing": {"dt-missing"}, "bad": {"a/b"}, "nothing": {}, "missing twice": {"dt-missing", "dt-missing"}} {
			req := wire.At(kmsg.NewPtrDeleteTopicsRequest(), v)
			req.TimeoutMillis, req.TopicNames = 10000, names
			p.same(what, constant(req))
		}
		req := wire.At(kmsg.NewPtrDeleteTopicsRequest(), v)
		req.TimeoutMillis, req.TopicNames = 10000, []string{name, "dt-missing"}
		p.same("one", constant(req))
	}
	p.create("dt-id", 1)
	p.create("dt-name", 1)
	p.create("dt-twice", 1)
	one := func(name string) kmsg.DeleteTopicsRequestTopic {
		rt := kmsg.NewDeleteTopicsRequestTopic()
		rt.Topic = new(name)
		return rt
	}
	byID := func(s *side, name string) kmsg.DeleteTopicsRequestTopic {
		rt := kmsg.NewDeleteTopicsRequestTopic()
		rt.TopicID = s.topic(name).ID
		return rt
	}
	for what, topics := range map[string]func(s *side) []kmsg.DeleteTopicsRequestTopic{
		"unknown id": func(s *side) []kmsg.DeleteTopicsRequestTopic {
			return []kmsg.DeleteTopicsRequestTopic{byID(s, "nobody")}
		},
		"neither": func(*side) []kmsg.DeleteTopicsRequestTopic {
			return []kmsg.DeleteTopicsRequestTopic{kmsg.NewDeleteTopicsRequestTopic()}
		},
		"name twice": func(*side) []kmsg.DeleteTopicsRequestTopic {
			return []kmsg.DeleteTopicsRequestTopic{one("dt-twice"), one("dt-twice")}
		},
		"id twice": func(s *side) []kmsg.DeleteTopicsRequestTopic {
			return []kmsg.DeleteTopicsRequestTopic{byID(s, "dt-twice"), byID(s, "dt-twice")}
		},
		"id and name": func(s *side) []kmsg.DeleteTopicsRequestTopic {
			return []kmsg.DeleteTopicsRequestTopic{byID(s, "dt-twice"), one("dt-twice")}
		},
		"both": func(s *side) []kmsg.DeleteTopicsRequestTopic {
			rt := byID(s, "dt-twice")
			rt.Topic = new("dt-twice")
			return []kmsg.DeleteTopicsRequestTopic{rt}
		},
		"by id and by name": func(s *side) []kmsg.DeleteTopicsRequestTopic {
			return []kmsg.DeleteTopicsRequestTopic{byID(s, "dt-id"), one("dt-name")}
		},
	} {
		p.same(what, func(s *side) kmsg.Request {
			req := wire.At(kmsg.NewPtrDeleteTopicsRequest(), 6)
			req.TimeoutMillis, req.Topics = 10000, topics(s)
			return req
		})
	}
}

func TestCreatePartitions(t *testing.T) {
	p := newPair(t)
	for _, v := range versions(0, 3) {
		name := fmt.Sprintf("cpt-%d", v)
		p.create(name, 2)
		request := func(validate bool, topic string, count int32, assignment ...[]int32) *kmsg.CreatePartitionsRequest {
			req := wire.At(kmsg.NewPtrCreatePartitionsRequest(), v)
			req.TimeoutMillis, req.ValidateOnly = 10000, validate
			rt := kmsg.NewCreatePartitionsRequestTopic()
			rt.Topic, rt.Count = topic, count
			for _, a := range assignment {
				rt.Assignment = append(rt.Assignment, kmsg.CreatePartitionsRequestTopicAssignment{Replicas: a})
			}
			req.Topics = append(req.Topics, rt)
			return req
		}
		for _, validate := range []bool{true, false} {
			for _, count := range []int32{-1, 0, 1, 2} {
				p.same(fmt.Sprintf("to %d", count), constant(request(validate, name, count)))
			}
			p.same("missing", constant(request(validate, "cpt-missing", 5)))
			p.same("bad name", constant(request(validate, "a/b", 5)))
			p.same("unknown broker", constant(request(validate, name, 3, []int32{9})))
			p.same("too few assignments", constant(request(validate, name, 5, []int32{1})))
			p.same("no replicas", constant(request(validate, name, 3, []int32{})))
			p.same("replica twice", constant(request(validate, name, 3, []int32{1, 1})))
			twice := request(validate, name, 4)
			twice.Topics = append(twice.Topics, twice.Topics[0])
			p.same("twice", constant(twice))
		}
		p.same("validate 3", constant(request(true, name, 3)))
		p.same("to 3", constant(request(false, name, 3)))
		p.same("to 4, assigned", constant(request(false, name, 4, []int32{1})))
		for _, s := range p.sides() {
			wire.AwaitLeaders(t, s.node, name, 4)
		}
		req := wire.At(kmsg.NewPtrMetadataRequest(), 12)
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = new(name)
		req.Topics = append(req.Topics, rt)
		p.same("after it", constant(req))
	}
}
