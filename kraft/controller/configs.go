package controller

import (
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/internal/configdef"
	"gregor/kraft/image"
	"gregor/kraft/metadata"
)

// Types of config resources, as in ConfigRecord and the config APIs.
const (
	configTopic         int8 = 2
	configBroker        int8 = 4
	configBrokerLogger  int8 = 8
	configClientMetrics int8 = 16
	configGroup         int8 = 32
)

// configTypeNames are the names of resource types in messages.
var configTypeNames = map[int8]string{
	configTopic: "TOPIC", configBroker: "BROKER", configBrokerLogger: "BROKER_LOGGER",
	configClientMetrics: "CLIENT_METRICS", configGroup: "GROUP",
}

// Operations of IncrementalAlterConfigs (KIP-339).
const (
	opSet      int8 = 0
	opRemove   int8 = 1
	opAppend   int8 = 2
	opSubtract int8 = 3
)

const (
	minISRKey   = "min.insync.replicas"
	cordonedKey = "cordoned.log.dirs"
	// maxConfigValueLength is the longest value of a config, in characters.
	maxConfigValueLength = 32767
)

type configResource struct {
	kind int8
	name string
}

// configOp is what happens to one key.
type configOp struct {
	name  string
	kind  int8
	value *string
}

// configOps are the operations on one resource in the order of the request; a key that comes twice counts once, with
// its last operation.
type configOps []configOp

func (o *configOps) put(op configOp) {
	if i := slices.IndexFunc(*o, func(x configOp) bool { return x.name == op.name }); i >= 0 {
		(*o)[i] = op
		return
	}
	*o = append(*o, op)
}

// IncrementalAlterConfigs decides IncrementalAlterConfigs (44) v0-1: keys of one resource change together or not at
// all. Loggers (BROKER_LOGGER) are not in the metadata log; the node that has them handles them before this.
func (d *Decider) IncrementalAlterConfigs(req *kmsg.IncrementalAlterConfigsRequest) Result {
	resp := req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	answer := func(res configResource, f *Fault) {
		r := kmsg.NewIncrementalAlterConfigsResponseResource()
		r.ResourceType, r.ResourceName = kmsg.ConfigResourceType(res.kind), res.name
		r.ErrorCode, r.ErrorMessage = codeAndMessage(f)
		resp.Resources = append(resp.Resources, r)
	}
	resources := make([]configResource, len(req.Resources))
	ops := make(map[configResource]configOps, len(req.Resources))
	for i, r := range req.Resources {
		res := configResource{int8(r.ResourceType), r.ResourceName}
		resources[i] = res
		var list configOps
		for _, c := range r.Configs {
			list.put(configOp{name: c.Name, kind: int8(c.Op), value: c.Value})
		}
		ops[res] = list
	}
	var records []metadata.Record
	for _, res := range d.alterableResources(resources, answer) {
		changed, f := d.alterResource(res, ops[res], false)
		answer(res, f)
		records = append(records, changed...)
	}
	return d.configResult(records, resp, req.ValidateOnly)
}

// AlterConfigs decides AlterConfigs (33) v0-2: the request holds all overrides of a resource, what it does not name
// goes back to its default.
func (d *Decider) AlterConfigs(req *kmsg.AlterConfigsRequest) Result {
	resp := req.ResponseKind().(*kmsg.AlterConfigsResponse)
	answer := func(res configResource, f *Fault) {
		r := kmsg.NewAlterConfigsResponseResource()
		r.ResourceType, r.ResourceName = kmsg.ConfigResourceType(res.kind), res.name
		r.ErrorCode, r.ErrorMessage = codeAndMessage(f)
		resp.Resources = append(resp.Resources, r)
	}
	resources := make([]configResource, len(req.Resources))
	ops := make(map[configResource]configOps, len(req.Resources))
	for i, r := range req.Resources {
		res := configResource{int8(r.ResourceType), r.ResourceName}
		resources[i] = res
		var list configOps
		for _, c := range r.Configs {
			list.put(configOp{name: c.Name, kind: opSet, value: c.Value})
		}
		ops[res] = list
	}
	var records []metadata.Record
	for _, res := range d.alterableResources(resources, answer) {
		changed, f := d.replaceResource(res, ops[res])
		answer(res, f)
		records = append(records, changed...)
	}
	return d.configResult(records, resp, req.ValidateOnly)
}

func (d *Decider) configResult(records []metadata.Record, resp kmsg.Response, validateOnly bool) Result {
	if validateOnly {
		return Result{Response: resp}
	}
	return Result{Records: append(records, d.clearELR(records)...), Atomic: true, Response: resp}
}

// alterableResources gives the resources that are named once and that the caller may alter; the others it answers.
func (d *Decider) alterableResources(
	resources []configResource, answer func(configResource, *Fault),
) []configResource {
	known := make([]configResource, 0, len(resources))
	for _, res := range resources {
		if configTypeNames[res.kind] == "" {
			answer(res, refuse(codeUnsupportedVersion, "Unknown resource type %d.", res.kind))
			continue
		}
		known = append(known, res)
	}
	once, twice := splitDuplicates(known)
	for _, res := range twice {
		answer(res, refuse(codeInvalidRequest, "Duplicate resource."))
	}
	out := make([]configResource, 0, len(once))
	for _, res := range once {
		if f := d.mayAlter(res); f != nil {
			answer(res, f)
			continue
		}
		out = append(out, res)
	}
	return out
}

func (d *Decider) mayAlter(res configResource) *Fault {
	switch res.kind {
	case configBroker, configClientMetrics:
		if !d.req.allowedOnCluster(opAlterConfigs) {
			return refuseBare(codeClusterAuthorization)
		}
	case configTopic:
		if !d.req.allowed(opAlterConfigs, resourceTopic, res.name) {
			return refuseBare(codeTopicAuthorization)
		}
	case configGroup:
		if !d.req.allowed(opAlterConfigs, resourceGroup, res.name) {
			return refuseBare(codeGroupAuthorization)
		}
	default:
		return refuse(codeInvalidRequest, "Unexpected resource type %s.", configTypeNames[res.kind])
	}
	return nil
}

// alterResource gives the records of operations on one resource. A resource that is being created need not exist.
func (d *Decider) alterResource(res configResource, ops configOps, created bool) ([]metadata.Record, *Fault) {
	existing := d.resourceConfigs(res)
	var changed []*metadata.ConfigRecord
	for _, op := range ops {
		current, isSet := existing[op.name]
		value, f := applyOp(res, op, current, isSet)
		if f != nil {
			return nil, f
		}
		// A broker reloads on each record (a keystore may have changed behind an unchanged path): always write it.
		if res.kind == configBroker || isSet != (value != nil) || isSet && current != *value {
			changed = append(changed, configRecord(res, op.name, value))
		}
	}
	if f := d.checkConfigs(res, changed, nil, created); f != nil {
		return nil, f
	}
	return asRecords(changed), nil
}

// replaceResource gives the records that make ops the only overrides of a resource.
func (d *Decider) replaceResource(res configResource, ops configOps) ([]metadata.Record, *Fault) {
	existing := d.resourceConfigs(res)
	var changed, removed []*metadata.ConfigRecord
	for _, op := range ops {
		current, isSet := existing[op.name]
		if res.kind == configBroker || isSet != (op.value != nil) || isSet && current != *op.value {
			changed = append(changed, configRecord(res, op.name, op.value))
		}
	}
	for _, key := range sortedKeys(existing) {
		if !slices.ContainsFunc(ops, func(op configOp) bool { return op.name == key }) {
			removed = append(removed, configRecord(res, key, nil))
		}
	}
	if f := d.checkConfigs(res, changed, removed, false); f != nil {
		return nil, f
	}
	return asRecords(append(changed, removed...)), nil
}

func (d *Decider) resourceConfigs(res configResource) map[string]string {
	return d.Image.Configs.Get(image.ConfigResource{Type: image.ResourceType(res.kind), Name: res.name})
}

func configRecord(res configResource, key string, value *string) *metadata.ConfigRecord {
	return &metadata.ConfigRecord{ResourceType: res.kind, ResourceName: res.name, Name: key, Value: value}
}

func asRecords(in []*metadata.ConfigRecord) []metadata.Record {
	out := make([]metadata.Record, len(in))
	for i, r := range in {
		out[i] = r
	}
	return out
}

// applyOp gives the value of a key after an operation; nil when it is not set any more.
func applyOp(res configResource, op configOp, current string, isSet bool) (*string, *Fault) {
	switch op.kind {
	case opSet:
		return op.value, nil
	case opRemove:
		return nil, nil
	case opAppend, opSubtract:
	default:
		return nil, refuse(codeInvalidRequest, "Unknown operations type %d", op.kind)
	}
	key := configTable(res.kind).Lookup(op.name)
	if key == nil || key.Type != configdef.List {
		name := "APPEND"
		if op.kind == opSubtract {
			name = "SUBTRACT"
		}
		return nil, refuse(codeInvalidConfig, "Can't %s to key %s because its type is not LIST.", name, op.name)
	}
	if op.value == nil {
		return nil, refuse(codeInvalidRequest, "Null value not supported for : %s", op.name)
	}
	if !isSet && key.Default != nil {
		current = *key.Default
	}
	list := strings.FieldsFunc(current, func(r rune) bool { return r == ',' })
	for item := range strings.SplitSeq(*op.value, ",") {
		i := slices.Index(list, item)
		switch {
		case op.kind == opAppend && i < 0:
			list = append(list, item)
		case op.kind == opSubtract && i >= 0:
			list = slices.Delete(list, i, i+1)
		}
	}
	joined := strings.Join(list, ",")
	return &joined, nil
}

func configTable(kind int8) *configdef.Table {
	switch kind {
	case configTopic:
		return configdef.Topic()
	case configGroup:
		return configdef.Group()
	case configClientMetrics:
		return configdef.ClientMetrics()
	}
	return configdef.Broker()
}

// clearELR gives the records that empty the ELR where min.insync.replicas changes: what was enough before may not be
// so now (KIP-966).
func (d *Decider) clearELR(records []metadata.Record) []metadata.Record {
	if !d.features.elr() {
		return nil
	}
	var out []metadata.Record
	for _, rec := range records {
		r, ok := rec.(*metadata.ConfigRecord)
		if !ok || r.Name != minISRKey {
			continue
		}
		c := metadata.NewClearElrRecord()
		if r.ResourceType == configTopic {
			c.TopicName = r.ResourceName
		}
		out = append(out, c)
	}
	return out
}

// configEntry is a resolved config value with where it comes from (DescribeConfigs' config source).
type configEntry struct {
	value  *string
	source int8
}

const (
	sourceTopic          int8 = 1
	sourceBroker         int8 = 2
	sourceClusterDefault int8 = 3
	sourceStatic         int8 = 4
	sourceDefault        int8 = 5
)

// inheritedTopicConfig resolves a topic config that the topic does not set itself, with the broker keys it falls
// back to, on the node of this controller.
func (d *Decider) inheritedTopicConfig(key *configdef.Key) configEntry {
	if key == nil {
		return configEntry{source: sourceDefault}
	}
	layers := []struct {
		source int8
		value  func(key string) (string, bool)
	}{
		{sourceBroker, lookupIn(d.Image.Configs.Broker(d.cfg.NodeID))},
		{sourceClusterDefault, lookupIn(d.Image.Configs.BrokerDefault())},
		{sourceStatic, d.cfg.Static},
	}
	for _, layer := range layers {
		if layer.value == nil {
			continue
		}
		for _, syn := range key.Synonyms {
			if v, ok := layer.value(syn.Name); ok {
				v = convertUnit(v, syn.Factor)
				return configEntry{value: &v, source: layer.source}
			}
		}
	}
	return configEntry{value: key.Default, source: sourceDefault}
}

func lookupIn(m map[string]string) func(string) (string, bool) {
	return func(key string) (string, bool) {
		v, ok := m[key]
		return v, ok
	}
}

// convertUnit turns the value of a broker key into the unit of the topic key that falls back to it.
func convertUnit(value string, factor int64) string {
	n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
	if factor <= 1 || err != nil {
		return value
	}
	return strconv.FormatInt(n*factor, 10)
}
