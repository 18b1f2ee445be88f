package controller

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"gregor/internal/configdef"
	"gregor/kraft/metadata"
	"gregor/protocol"
)

// checkConfigs checks what a resource will hold after the changes.
func (d *Decider) checkConfigs(res configResource, changed, removed []*metadata.ConfigRecord, created bool) *Fault {
	existing := d.resourceConfigs(res)
	merged := make(map[string]string, len(existing)+len(changed))
	maps.Copy(merged, existing)
	for _, r := range slices.Concat(changed, removed) {
		if f := d.checkGuarded(r, existing[cordonedKey]); f != nil {
			return f
		}
		if r.Value == nil {
			delete(merged, r.Name)
			continue
		}
		if len(*r.Value) > maxConfigValueLength {
			return refuse(codeInvalidConfig, "The configuration value cannot be added because it exceeds the maximum "+
				"value size of %d bytes.", maxConfigValueLength)
		}
		merged[r.Name] = *r.Value
	}
	if f := d.checkResource(res, merged); f != nil {
		return f
	}
	if d.cfg.ValidateConfigs != nil {
		if err := d.cfg.ValidateConfigs(res.kind, res.name, merged); err != nil {
			return configFault(err)
		}
	}
	if created {
		return nil
	}
	return d.checkExists(res)
}

// configFault keeps the code of an error that has one; any other is INVALID_CONFIG.
func configFault(err error) *Fault {
	if f, ok := errors.AsType[*Fault](err); ok {
		return f
	}
	if code := protocol.ErrorCode(err); code != codeUnknownServer {
		return refuse(code, "%s", protocol.ErrorMessageOf(err))
	}
	return refuse(codeInvalidConfig, "%s", err.Error())
}

// checkGuarded refuses changes of broker configs that the features in use do not allow.
func (d *Decider) checkGuarded(r *metadata.ConfigRecord, cordoned string) *Fault {
	if r.ResourceType != configBroker {
		return nil
	}
	switch r.Name {
	case minISRKey:
		// With ELR all brokers must agree on min.insync.replicas, so only the cluster-wide value may change.
		if d.features.elr() && r.ResourceName != "" {
			return refuse(codeInvalidConfig,
				"Broker-level min.insync.replicas cannot be altered while ELR is enabled.")
		}
		if d.features.elr() && r.Value == nil {
			return refuse(codeInvalidConfig,
				"Cluster-level min.insync.replicas cannot be removed while ELR is enabled.")
		}
	case cordonedKey:
		if !d.features.cordonedLogDirs() {
			return refuse(codeInvalidConfig, "The cordoned.log.dirs configuration value cannot be set because it requires "+
				"metadata.version >= %s", metadata.MetadataVersion4_3IV0)
		}
		// The broker checks the directories of a forwarded request; without it a directory can only be taken out.
		if !d.req.Forwarded && r.Value != nil && strings.TrimSpace(*r.Value) != "" &&
			!subsetOfList(*r.Value, cordoned) {
			return refuse(codeInvalidConfig, "When updating cordoned.log.dirs via controllers,  the new value must be a "+
				"subset of the current configuration value.")
		}
	}
	return nil
}

func subsetOfList(sub, list string) bool {
	have := splitList(list)
	return !slices.ContainsFunc(splitList(sub), func(s string) bool { return !slices.Contains(have, s) })
}

func splitList(s string) []string {
	if strings.TrimSpace(s) == "" {
		return nil
	}
	parts := strings.Split(s, ",")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return parts
}

// checkResource checks the name and the values of a resource.
func (d *Decider) checkResource(res configResource, merged map[string]string) *Fault {
	switch res.kind {
	case configTopic:
		if res.name == "" {
			return refuse(codeInvalidRequest, "Default topic resources are not allowed.")
		}
		if why := protocol.TopicNameProblem(res.name); why != "" {
			return refuse(codeInvalidTopic, "Topic name is invalid: %s", why)
		}
		return d.checkTopicConfigs(merged)
	case configBroker:
		return checkBrokerName(res.name)
	case configClientMetrics:
		return checkClientMetrics(res.name, merged)
	case configGroup:
		if res.name == "" {
			return refuse(codeInvalidRequest, "Default group resources are not allowed.")
		}
		return d.checkGroupConfigs(merged)
	}
	return refuse(codeInvalidRequest, "Unknown resource type %s", configTypeNames[res.kind])
}

func checkBrokerName(name string) *Fault {
	if name == "" {
		return nil
	}
	id, err := strconv.ParseInt(name, 10, 32)
	switch {
	case err != nil:
		return refuse(codeInvalidRequest, "Unable to parse broker name as a base 10 number.")
	case id < 0:
		return refuse(codeInvalidRequest, "Invalid negative broker ID.")
	}
	return nil
}

// checkTypes checks that all keys are known and their values valid, in order of the keys.
func checkTypes(table *configdef.Table, merged map[string]string, unknown string, unknownCode int16) *Fault {
	for _, name := range sortedKeys(merged) {
		if table.Lookup(name) == nil {
			return refuse(unknownCode, "%s: %s", unknown, name)
		}
	}
	for _, name := range sortedKeys(merged) {
		if _, err := table.Lookup(name).Parse(merged[name]); err != nil {
			return refuse(codeInvalidConfig, "%s", err.Error())
		}
	}
	return nil
}

// checkTopicConfigs checks the overrides of a topic, and together with what it inherits.
func (d *Decider) checkTopicConfigs(merged map[string]string) *Fault {
	if f := checkTypes(configdef.Topic(), merged, "Unknown topic config name", codeInvalidConfig); f != nil {
		return f
	}
	minLag, maxLag := d.mergedLong(merged, "min.compaction.lag.ms"), d.mergedLong(merged, "max.compaction.lag.ms")
	if minLag > maxLag {
		return refuse(codeInvalidConfig, "conflict topic config setting min.compaction.lag.ms (%d) > "+
			"max.compaction.lag.ms (%d)", minLag, maxLag)
	}
	if remote := configdef.Topic().Lookup("remote.storage.enable"); d.isTrue(remote, merged) && !d.remoteStorage() {
		return refuse(codeInvalidConfig, "Tiered Storage functionality is disabled in the broker. "+
			"Topic cannot be configured with remote log storage.")
	}
	return nil
}

func (d *Decider) isTrue(k *configdef.Key, merged map[string]string) bool {
	v, err := k.Parse(merged[k.Name])
	yes, ok := v.(bool)
	return err == nil && ok && yes
}

// remoteStorage tells whether this node runs with tiered storage.
func (d *Decider) remoteStorage() bool {
	if d.cfg.Static == nil {
		return false
	}
	text, _ := d.cfg.Static("remote.log.storage.system.enable")
	return strings.EqualFold(strings.TrimSpace(text), "true")
}

// mergedLong gives a number a topic with these overrides would use.
func (d *Decider) mergedLong(merged map[string]string, name string) int64 {
	text, ok := merged[name]
	if !ok {
		if e := d.inheritedTopicConfig(configdef.Topic().Lookup(name)); e.value != nil {
			text = *e.value
		}
	}
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// Bounds of interval.ms of a client metrics subscription (KIP-714).
const (
	minPushIntervalMillis = 100
	maxPushIntervalMillis = 3_600_000
)

func checkClientMetrics(name string, merged map[string]string) *Fault {
	if name == "" {
		return refuse(codeInvalidRequest, "Subscription name can't be empty")
	}
	f := checkTypes(configdef.ClientMetrics(), merged, "Unknown client metrics configuration", codeInvalidRequest)
	if f != nil {
		return f
	}
	if text, ok := merged["interval.ms"]; ok {
		n, _ := strconv.Atoi(text)
		if n < minPushIntervalMillis || n > maxPushIntervalMillis {
			return refuse(codeInvalidRequest, "Invalid value %s for %s, interval must be between 100 and 3600000 (1 hour)",
				text, "interval.ms")
		}
	}
	return checkMatchPatterns(merged["match"])
}

// matchKeys are what a client metrics subscription can select clients by.
var matchKeys = []string{
	"client_instance_id", "client_id", "client_software_name", "client_software_version",
	"client_source_address", "client_source_port",
}

func checkMatchPatterns(match string) *Fault {
	for _, pattern := range splitList(match) {
		key, regex, ok := strings.Cut(pattern, "=")
		if !ok || !slices.Contains(matchKeys, strings.TrimSpace(key)) || !validPattern(strings.TrimSpace(regex)) {
			return refuse(codeInvalidConfig, "Illegal client matching pattern: %s", pattern)
		}
	}
	return nil
}

// checkExists refuses to configure what is not there.
func (d *Decider) checkExists(res configResource) *Fault {
	switch {
	case res.kind == configTopic && d.Image.Topics.ByName(res.name) == nil:
		return refuse(codeUnknownTopicOrPartition, "The topic '%s' does not exist.", res.name)
	case res.kind == configBroker && res.name != "":
		id, err := strconv.ParseInt(res.name, 10, 32)
		if err != nil {
			return refuse(codeInvalidRequest, "Invalid broker name %s", res.name)
		}
		if d.Image.Cluster.Broker(int32(id)) == nil && d.Image.Cluster.Controller(int32(id)) == nil &&
			int32(id) != d.cfg.NodeID {
			return refuse(codeBrokerNotRegistered, "No node with id %d found.", id)
		}
	}
	return nil
}
