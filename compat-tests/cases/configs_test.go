package cases

import (
	"maps"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/compat-tests/harness"
	"gregor/compat-tests/wire"
)

func describeConfigs(t *testing.T, n *harness.Node, version int16, kind kmsg.ConfigResourceType, name string, keys ...string) kmsg.DescribeConfigsResponseResource {
	t.Helper()
	req := wire.At(kmsg.NewPtrDescribeConfigsRequest(), version)
	res := kmsg.NewDescribeConfigsRequestResource()
	res.ResourceType, res.ResourceName, res.ConfigNames = kind, name, keys
	req.Resources = append(req.Resources, res)
	return wire.Do[*kmsg.DescribeConfigsResponse](t, n.Addr, req).Resources[0]
}

func configValue(t *testing.T, n *harness.Node, topic, key string) string {
	t.Helper()
	got := describeConfigs(t, n, 4, kmsg.ConfigResourceTypeTopic, topic, key)
	wantCode(t, "describe "+topic, got.ErrorCode, nil)
	return *got.Configs[0].Value
}

func incremental(topic string, op kmsg.IncrementalAlterConfigOp, key string, value *string) *kmsg.IncrementalAlterConfigsRequest {
	req := wire.At(kmsg.NewPtrIncrementalAlterConfigsRequest(), 1)
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	res.Configs = append(res.Configs, kmsg.IncrementalAlterConfigsRequestResourceConfig{Name: key, Op: op, Value: value})
	req.Resources = append(req.Resources, res)
	return req
}

func alterIncrementally(t *testing.T, n *harness.Node, req *kmsg.IncrementalAlterConfigsRequest) []kmsg.IncrementalAlterConfigsResponseResource {
	t.Helper()
	return wire.Do[*kmsg.IncrementalAlterConfigsResponse](t, n.Addr, req).Resources
}

func TestOnlyTheKeysAskedFor(t *testing.T) {
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		wire.CreateTopic(t, n, "keys-asked", 1)
		for v := int16(1); v <= 4; v++ {
			got := describeConfigs(t, n, v, kmsg.ConfigResourceTypeTopic, "keys-asked", "cleanup.policy", "no.such.key")
			if got.ErrorCode != 0 || len(got.Configs) != 1 || got.Configs[0].Name != "cleanup.policy" {
				t.Errorf("v%d: %+v", v, got)
			}
			wantCode(t, "missing topic", describeConfigs(t, n, v, kmsg.ConfigResourceTypeTopic, "keys-missing").ErrorCode, kerr.UnknownTopicOrPartition)
			wantCode(t, "impossible name", describeConfigs(t, n, v, kmsg.ConfigResourceTypeTopic, "a/b").ErrorCode, kerr.InvalidTopicException)
			wantCode(t, "other broker", describeConfigs(t, n, v, kmsg.ConfigResourceTypeBroker, "99").ErrorCode, kerr.InvalidRequest)
			wantCode(t, "no number", describeConfigs(t, n, v, kmsg.ConfigResourceTypeBroker, "x").ErrorCode, kerr.InvalidRequest)
			if got := describeConfigs(t, n, v, kmsg.ConfigResourceTypeBroker, "1"); got.ErrorCode != 0 || len(got.Configs) < 200 {
				t.Errorf("v%d broker: %d, %d configs", v, got.ErrorCode, len(got.Configs))
			}
		}
	})
}

func TestConfigTypesAndDocumentation(t *testing.T) {
	types := map[string]kmsg.ConfigType{"cleanup.policy": 7, "retention.ms": 5, "segment.bytes": 3, "preallocate": 1, "min.cleanable.dirty.ratio": 6, "compression.type": 2}
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		wire.CreateTopic(t, n, "config-types", 1)
		for v := int16(3); v <= 4; v++ {
			for _, documentation := range []bool{false, true} {
				req := wire.At(kmsg.NewPtrDescribeConfigsRequest(), v)
				res := kmsg.NewDescribeConfigsRequestResource()
				res.ResourceType, res.ResourceName, res.ConfigNames = kmsg.ConfigResourceTypeTopic, "config-types", slices.Collect(maps.Keys(types))
				req.Resources, req.IncludeDocumentation = append(req.Resources, res), documentation
				for _, c := range wire.Do[*kmsg.DescribeConfigsResponse](t, n.Addr, req).Resources[0].Configs {
					want(t, c.Name, c.ConfigType, types[c.Name])
					if (c.Documentation != nil) != documentation {
						t.Errorf("v%d %s: documentation %v", v, c.Name, c.Documentation)
					}
				}
			}
		}
		for _, c := range describeConfigs(t, n, 4, kmsg.ConfigResourceTypeBroker, "1").Configs {
			if c.ConfigType == 9 && (c.Value != nil || !c.IsSensitive) {
				t.Errorf("password %s: %+v", c.Name, c)
			}
		}
	})
}

func TestIncrementalAlterConfigs(t *testing.T) {
	const set, del, app, sub = kmsg.IncrementalAlterConfigOpSet, kmsg.IncrementalAlterConfigOpDelete, kmsg.IncrementalAlterConfigOpAppend, kmsg.IncrementalAlterConfigOpSubtract
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		wire.CreateTopic(t, n, "incremental", 1)
		for v := range int16(2) {
			step := func(what string, op kmsg.IncrementalAlterConfigOp, key string, value *string, expected *kerr.Error) {
				t.Helper()
				wantCode(t, what, alterIncrementally(t, n, wire.At(incremental("incremental", op, key, value), v))[0].ErrorCode, expected)
			}
			policy := func(what, expected string) {
				t.Helper()
				harness.Eventually(t, waitTimeout, what, func() bool { return configValue(t, n, "incremental", "cleanup.policy") == expected })
			}
			step("append to the default", app, "cleanup.policy", new("compact"), nil)
			policy("appended to the default", "delete,compact")
			step("append again", app, "cleanup.policy", new("compact"), nil)
			policy("appended once only", "delete,compact")
			step("subtract", sub, "cleanup.policy", new("delete"), nil)
			policy("subtracted", "compact")
			step("subtract what is not there", sub, "cleanup.policy", new("delete"), nil)
			policy("still", "compact")
			step("delete", del, "cleanup.policy", nil, nil)
			policy("deleted", "delete")
			step("append to a number", app, "retention.ms", new("5"), kerr.InvalidConfig)
			step("null", set, "retention.ms", nil, kerr.InvalidRequest)
			step("unknown key", set, "no.such.key", new("5"), kerr.InvalidConfig)

			twice := incremental("incremental", set, "retention.ms", new("7"))
			twice.Resources[0].Configs = append(twice.Resources[0].Configs, twice.Resources[0].Configs[0])
			wantCode(t, "key twice", alterIncrementally(t, n, wire.At(twice, v))[0].ErrorCode, kerr.InvalidRequest)
			same := incremental("incremental", set, "retention.ms", new("7"))
			same.Resources = append(same.Resources, same.Resources[0])
			for _, r := range alterIncrementally(t, n, wire.At(same, v)) {
				wantCode(t, "resource twice", r.ErrorCode, kerr.InvalidRequest)
			}
			half := incremental("incremental", set, "retention.ms", new("7"))
			half.Resources[0].Configs = append(half.Resources[0].Configs, kmsg.IncrementalAlterConfigsRequestResourceConfig{Name: "segment.bytes", Value: new("-3")})
			wantCode(t, "one key bad", alterIncrementally(t, n, wire.At(half, v))[0].ErrorCode, kerr.InvalidConfig)
			dry := incremental("incremental", set, "retention.ms", new("7"))
			dry.ValidateOnly = true
			wantCode(t, "validate only", alterIncrementally(t, n, wire.At(dry, v))[0].ErrorCode, nil)
			want(t, "retention.ms", configValue(t, n, "incremental", "retention.ms"), "604800000")
		}
	})
}

func TestWhatWasDescribedCanBeSetBack(t *testing.T) {
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		wire.CreateTopic(t, n, "set-back", 1, "retention.ms", "123456")
		described := describeConfigs(t, n, 4, kmsg.ConfigResourceTypeTopic, "set-back")
		back := incremental("set-back", 0, "", nil)
		back.Resources[0].Configs = nil
		old := kmsg.NewPtrAlterConfigsRequest()
		old.Version = 2
		res := kmsg.NewAlterConfigsRequestResource()
		res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeTopic, "set-back"
		for _, c := range described.Configs {
			if c.ReadOnly {
				t.Errorf("%s is read-only", c.Name)
			}
			if c.Value != nil {
				back.Resources[0].Configs = append(back.Resources[0].Configs, kmsg.IncrementalAlterConfigsRequestResourceConfig{Name: c.Name, Value: c.Value})
				res.Configs = append(res.Configs, kmsg.AlterConfigsRequestResourceConfig{Name: c.Name, Value: c.Value})
			}
		}
		old.Resources = append(old.Resources, res)
		wantCode(t, "incrementally", alterIncrementally(t, n, back)[0].ErrorCode, nil)
		wantCode(t, "all at once", wire.Do[*kmsg.AlterConfigsResponse](t, n.Addr, old).Resources[0].ErrorCode, nil)
	})
}

func TestNullConfigValues(t *testing.T) {
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		wire.CreateTopic(t, n, "null-config", 1)
		topic := newTopic("null-config-new", 1, 1)
		topic.Configs = []kmsg.CreateTopicsRequestTopicConfig{{Name: "retention.ms"}}
		made := create(t, n, createRequest(7, topic))["null-config-new"]
		wantCode(t, "CreateTopics", made.ErrorCode, kerr.InvalidConfig)
		hasMessage(t, "CreateTopics", made.ErrorMessage)
		set := alterIncrementally(t, n, incremental("null-config", kmsg.IncrementalAlterConfigOpSet, "retention.ms", nil))[0]
		wantCode(t, "IncrementalAlterConfigs", set.ErrorCode, kerr.InvalidRequest)
		hasMessage(t, "IncrementalAlterConfigs", set.ErrorMessage)
		for v := range int16(3) {
			got := alterAll(t, n, v, "null-config", false, "retention.ms", "")
			wantCode(t, "AlterConfigs", got.ErrorCode, kerr.InvalidRequest)
			hasMessage(t, "AlterConfigs", got.ErrorMessage)
		}
		want(t, "retention.ms", configValue(t, n, "null-config", "retention.ms"), "604800000")
	})
}

// alterAll sends AlterConfigs with one key; an empty value stands for null.
func alterAll(t *testing.T, n *harness.Node, version int16, topic string, validateOnly bool, key, value string) kmsg.AlterConfigsResponseResource {
	t.Helper()
	req := wire.At(kmsg.NewPtrAlterConfigsRequest(), version)
	res := kmsg.NewAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	c := kmsg.AlterConfigsRequestResourceConfig{Name: key}
	if value != "" {
		c.Value = &value
	}
	res.Configs = append(res.Configs, c)
	req.Resources, req.ValidateOnly = append(req.Resources, res), validateOnly
	return wire.Do[*kmsg.AlterConfigsResponse](t, n.Addr, req).Resources[0]
}

func TestAlterConfigsReplaces(t *testing.T) {
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		wire.CreateTopic(t, n, "replaces", 1, "retention.ms", "1000000", "segment.bytes", "2000000", "cleanup.policy", "compact")
		wantCode(t, "validate only", alterAll(t, n, 2, "replaces", true, "retention.ms", "5").ErrorCode, nil)
		want(t, "after validate only", configValue(t, n, "replaces", "retention.ms"), "1000000")
		for v := range int16(3) {
			wantCode(t, "AlterConfigs", alterAll(t, n, v, "replaces", false, "retention.ms", "2000000").ErrorCode, nil)
		}
		harness.Eventually(t, waitTimeout, "the new value", func() bool { return configValue(t, n, "replaces", "retention.ms") == "2000000" })
		want(t, "segment.bytes", configValue(t, n, "replaces", "segment.bytes"), "1073741824")
		want(t, "cleanup.policy", configValue(t, n, "replaces", "cleanup.policy"), "delete")
		wantCode(t, "missing topic", alterAll(t, n, 2, "replaces-not", false, "retention.ms", "5").ErrorCode, kerr.UnknownTopicOrPartition)
	})
}
