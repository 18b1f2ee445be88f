package differential

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/compat-tests/wire"
)

const (
	topicKind  = kmsg.ConfigResourceTypeTopic
	brokerKind = kmsg.ConfigResourceTypeBroker
	loggerKind = kmsg.ConfigResourceTypeBrokerLogger
)

func describe(v int16, kind kmsg.ConfigResourceType, name string, keys ...string) *kmsg.DescribeConfigsRequest {
	req := wire.At(kmsg.NewPtrDescribeConfigsRequest(), v)
	res := kmsg.NewDescribeConfigsRequestResource()
	res.ResourceType, res.ResourceName, res.ConfigNames = kind, name, keys
	req.Resources = append(req.Resources, res)
	return req
}

func TestDescribeConfigs(t *testing.T) {
	p := newPair(t)
	p.create("dc", 1, "retention.ms", "12345", "cleanup.policy", "compact")
	for _, v := range versions(0, 4) {
		for _, full := range []bool{false, true} {
			for kind, names := range map[kmsg.ConfigResourceType][]string{
				topicKind:  {"dc", "dc-missing", "", "a/b", "__cluster_metadata"},
				brokerKind: {"1", "", "2", "x", "-1"},
				// Loggers are the classes of the one and the packages of the other.
				loggerKind:                           {"2", "x", ""},
				kmsg.ConfigResourceTypeClientMetrics: {"some", ""},
				kmsg.ConfigResourceTypeGroupConfig:   {"some", ""},
				kmsg.ConfigResourceType(99):          {"1"},
				kmsg.ConfigResourceTypeUnknown:       {"1"},
			} {
				for _, name := range names {
					req := describe(v, kind, name)
					req.IncludeSynonyms, req.IncludeDocumentation = full, full
					p.same(fmt.Sprintf("kind %d %q full %v", kind, name, full), constant(req))
				}
			}
			req := describe(v, topicKind, "dc", "retention.ms", "no.such", "cleanup.policy", "retention.ms")
			req.IncludeSynonyms = full
			p.same("keys", constant(req))
		}
		empty := describe(v, topicKind, "dc")
		empty.Resources[0].ConfigNames = []string{}
		p.same("no keys", constant(empty))
		twice := describe(v, topicKind, "dc")
		twice.Resources = append(twice.Resources, twice.Resources[0])
		p.same("twice", constant(twice))
	}
	for _, v := range versions(0, 1) {
		for _, types := range [][]int8{nil, {2}, {16}, {32}, {8}, {2, 16}, {99}} {
			req := wire.At(kmsg.NewPtrListConfigResourcesRequest(), v)
			req.ResourceTypes = types
			if v == 1 && (types == nil || types[0] == 2) {
				continue // lists the topics of all tests
			}
			p.same(fmt.Sprint(types), constant(req))
		}
	}
}

// changes are single alterations, good and bad.
var changes = []struct {
	kind       kmsg.ConfigResourceType
	name       string
	op         kmsg.IncrementalAlterConfigOp
	key, value string
}{
	{topicKind, "ac", 0, "retention.ms", "5000"},
	{topicKind, "ac", 0, "retention.ms", "x"},
	{topicKind, "ac", 0, "retention.ms", "-2"},
	{topicKind, "ac", 0, "retention.ms", ""},
	{topicKind, "ac", 0, "no.such", "1"},
	{topicKind, "ac", 0, "", "1"},
	{topicKind, "ac", 0, "cleanup.policy", "shred"},
	{topicKind, "ac", 0, "cleanup.policy", "compact,compact"},
	{topicKind, "ac", 0, "min.insync.replicas", "0"},
	{topicKind, "ac", 0, "min.insync.replicas", "9"},
	{topicKind, "ac", 0, "segment.bytes", "1"},
	{topicKind, "ac", 0, "segment.bytes", "99999999999"},
	{topicKind, "ac", 0, "unclean.leader.election.enable", "perhaps"},
	{topicKind, "ac", 0, "remote.storage.enable", "true"},
	{topicKind, "ac", 0, "message.timestamp.type", "Never"},
	{topicKind, "ac", 0, "leader.replication.throttled.replicas", "x"},
	{topicKind, "ac", 0, "leader.replication.throttled.replicas", "0:1"},
	{topicKind, "ac", 1, "retention.ms", ""},
	{topicKind, "ac", 1, "no.such", ""},
	{topicKind, "ac", 2, "cleanup.policy", "compact"},
	{topicKind, "ac", 2, "retention.ms", "5"},
	{topicKind, "ac", 3, "cleanup.policy", "compact"},
	{topicKind, "ac", 3, "cleanup.policy", "compact"},
	{topicKind, "ac", 3, "retention.ms", "5"},
	{topicKind, "ac", 4, "retention.ms", "5"},
	{topicKind, "ac-missing", 0, "retention.ms", "5"},
	{topicKind, "", 0, "retention.ms", "5"},
	{topicKind, "a/b", 0, "retention.ms", "5"},
	{brokerKind, "1", 0, "log.cleaner.threads", "x"},
	{brokerKind, "1", 0, "log.retention.ms", "1000000"},
	{brokerKind, "1", 1, "log.retention.ms", ""},
	{brokerKind, "1", 0, "broker.id", "4"},
	{brokerKind, "1", 0, "node.id", "4"},
	{brokerKind, "1", 0, "num.partitions", "4"},
	{brokerKind, "1", 0, "no.such", "4"},
	{brokerKind, "1", 0, "advertised.listeners", "PLAINTEXT://x:1"},
	{brokerKind, "1", 0, "log.dirs", "x"},
	{brokerKind, "", 0, "message.max.bytes", "1048588"},
	{brokerKind, "", 0, "message.max.bytes", "-1"},
	{brokerKind, "", 1, "message.max.bytes", ""},
	{brokerKind, "", 0, "listeners", "PLAINTEXT://x:1"},
	{brokerKind, "2", 0, "log.retention.ms", "1000000"},
	{brokerKind, "x", 0, "log.retention.ms", "1000000"},
	{loggerKind, "1", 0, "no.such.logger", "INFO"},
	{loggerKind, "2", 0, "root", "INFO"},
	{loggerKind, "x", 0, "root", "INFO"},
	{kmsg.ConfigResourceTypeGroupConfig, "g", 0, "consumer.session.timeout.ms", "45001"},
	{kmsg.ConfigResourceTypeGroupConfig, "g", 0, "consumer.session.timeout.ms", "1"},
	{kmsg.ConfigResourceTypeGroupConfig, "g", 0, "no.such", "1"},
	{kmsg.ConfigResourceTypeGroupConfig, "g", 1, "consumer.session.timeout.ms", ""},
	{kmsg.ConfigResourceTypeGroupConfig, "", 0, "consumer.session.timeout.ms", "45001"},
	{kmsg.ConfigResourceTypeClientMetrics, "m", 0, "interval.ms", "1000"},
	{kmsg.ConfigResourceTypeClientMetrics, "m", 0, "interval.ms", "1"},
	{kmsg.ConfigResourceTypeClientMetrics, "m", 0, "match", "x"},
	{kmsg.ConfigResourceTypeClientMetrics, "m", 1, "interval.ms", ""},
	{kmsg.ConfigResourceType(99), "1", 0, "a", "b"},
}

func TestAlterConfigs(t *testing.T) {
	p := newPair(t)
	p.create("ac", 1)
	for _, v := range versions(0, 1) {
		for _, validate := range []bool{true, false} {
			for _, c := range changes {
				req := wire.At(kmsg.NewPtrIncrementalAlterConfigsRequest(), v)
				req.ValidateOnly = validate
				res := kmsg.NewIncrementalAlterConfigsRequestResource()
				res.ResourceType, res.ResourceName = c.kind, c.name
				value := &c.value
				if c.op == kmsg.IncrementalAlterConfigOpDelete {
					value = nil
				}
				res.Configs = append(res.Configs, kmsg.IncrementalAlterConfigsRequestResourceConfig{Name: c.key, Op: c.op, Value: value})
				req.Resources = append(req.Resources, res)
				p.same(fmt.Sprintf("%d %q %d %s=%s validate %v", c.kind, c.name, c.op, c.key, c.value, validate), constant(req))
				if !validate && c.kind == topicKind && c.name == "ac" {
					after := describe(4, topicKind, "ac", "retention.ms", "cleanup.policy", c.key)
					p.settles("after "+c.key+"="+c.value, constant(after))
				}
			}
		}
	}
	for _, v := range versions(0, 2) {
		for _, validate := range []bool{true, false} {
			for _, c := range changes {
				if c.op != kmsg.IncrementalAlterConfigOpSet {
					continue
				}
				req := wire.At(kmsg.NewPtrAlterConfigsRequest(), v)
				req.ValidateOnly = validate
				res := kmsg.NewAlterConfigsRequestResource()
				res.ResourceType, res.ResourceName = c.kind, c.name
				res.Configs = append(res.Configs, kmsg.AlterConfigsRequestResourceConfig{Name: c.key, Value: &c.value})
				req.Resources = append(req.Resources, res)
				p.same(fmt.Sprintf("%d %q %s=%s validate %v", c.kind, c.name, c.key, c.value, validate), constant(req))
			}
		}
	}
}
