package api

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/broker/config"
	"gregor/internal/configdef"
	"gregor/kraft/image"
	"gregor/protocol"
)

// DescribeConfigs (key 32), versions 1 to 4.
//
//	1 source and synonyms (KIP-226)     3 type and documentation (KIP-569)     4 flexible
//
// Exactly the named known keys are returned, all for null and for none. A missing topic gives UNKNOWN_TOPIC_OR_PARTITION, an
// impossible name INVALID_TOPIC_EXCEPTION, a broker other than this one, a name that is no number and an unknown
// resource type INVALID_REQUEST. Values of sensitive keys are null. The broker resource "" has what was set
// dynamically for all brokers, and nothing else.
type describeConfigs struct{ node Node }

// rootLogger is the only logger that this broker has.
const rootLogger = "root"

// Sources of a config beyond those of package config.
const (
	sourceTopic         = 1
	sourceBrokerLogger  = 6
	sourceClientMetrics = 7
	sourceGroup         = 8
)

func (h *describeConfigs) handle(_ context.Context, c *Call) kmsg.Response {
	req, _ := c.Request.(*kmsg.DescribeConfigsRequest)
	resp := kmsg.NewPtrDescribeConfigsResponse()
	resp.SetVersion(req.Version)
	img := h.node.Images.Image()
	for _, r := range req.Resources {
		out := kmsg.NewDescribeConfigsResponseResource()
		out.ResourceType, out.ResourceName = r.ResourceType, r.ResourceName
		d := describer{cfg: h.node.Config(), synonyms: req.IncludeSynonyms, docs: req.IncludeDocumentation}
		if len(r.ConfigNames) > 0 {
			d.keys = r.ConfigNames
		}
		out.ErrorMessage = new(string) // empty, not null, without an error and for a topic that is not there
		if err := h.describe(&d, img, r); err != nil {
			out.ErrorCode = protocol.ErrorCode(err)
			if out.ErrorCode != kerr.UnknownTopicOrPartition.Code {
				out.ErrorMessage = message(err)
			}
			d.out = nil
		}
		out.Configs = d.out
		resp.Resources = append(resp.Resources, out)
	}
	return resp
}

func invalid(format string, args ...any) error {
	return protocol.NewError(kerr.InvalidRequest.Code, fmt.Sprintf(format, args...))
}

func (h *describeConfigs) describe(d *describer, img *image.Image, r kmsg.DescribeConfigsRequestResource) error {
	switch r.ResourceType {
	case kmsg.ConfigResourceTypeTopic:
		if err := checkTopicName(r.ResourceName); err != nil {
			return err
		}
		if img.Topics.ByName(r.ResourceName) == nil {
			return kerr.UnknownTopicOrPartition
		}
		d.withBrokerSynonyms(configdef.Topic(), img.Configs.Topic(r.ResourceName), sourceTopic)
	case kmsg.ConfigResourceTypeBroker:
		return h.broker(d, img, r.ResourceName)
	case kmsg.ConfigResourceTypeBrokerLogger:
		if r.ResourceName == "" {
			return invalid("Broker id must not be empty")
		}
		id, err := strconv.ParseInt(r.ResourceName, 10, 32)
		if err != nil {
			return invalid("Broker id must be an integer, but it is: %s", r.ResourceName)
		}
		if int32(id) != h.node.ID {
			return invalid("Unexpected broker id, expected %d but received %s", h.node.ID, r.ResourceName)
		}
		d.logger(rootLogger, "INFO")
	case kmsg.ConfigResourceTypeClientMetrics:
		if r.ResourceName == "" {
			return invalid("Client metrics subscription name must not be empty")
		}
		d.withBrokerSynonyms(configdef.ClientMetrics(), img.Configs.ClientMetrics(r.ResourceName), sourceClientMetrics)
	case kmsg.ConfigResourceTypeGroupConfig:
		if r.ResourceName == "" {
			return invalid("Group name must not be empty")
		}
		d.withBrokerSynonyms(configdef.Group(), img.Configs.Group(r.ResourceName), sourceGroup)
	default: // also unknown types
		return kerr.InvalidRequest
	}
	return nil
}

func (h *describeConfigs) broker(d *describer, img *image.Image, name string) error {
	if name == "" {
		d.brokerDefaults(img.Configs.BrokerDefault())
		return nil
	}
	id, err := strconv.ParseInt(name, 10, 32)
	if err != nil {
		return invalid("Broker id must be an integer, but it is: %s", name)
	}
	if int32(id) != h.node.ID {
		return invalid("Unexpected broker id, expected %d or empty string, but received %s", h.node.ID, name)
	}
	d.broker(img, h.node.ID)
	return nil
}

// describer collects the entries of one resource.
type describer struct {
	cfg            *config.Config
	synonyms, docs bool
	keys           []string // nil for all
	out            []kmsg.DescribeConfigsResponseResourceConfig
}

func (d *describer) wants(name string) bool { return d.keys == nil || slices.Contains(d.keys, name) }

// listed yields the keys of a table that are asked for and not internal.
func (d *describer) listed(t *configdef.Table) iter.Seq[*configdef.Key] {
	return func(yield func(*configdef.Key) bool) {
		for k := range t.All() {
			if !k.Internal && d.wants(k.Name) && !yield(k) {
				return
			}
		}
	}
}

// add appends an entry. The chain holds where its value could come from, the one in force first.
func (d *describer) add(k *configdef.Key, value *string, chain []kmsg.DescribeConfigsResponseResourceConfigConfigSynonym, readOnly bool) {
	e := kmsg.NewDescribeConfigsResponseResourceConfig()
	e.Name, e.Value, e.ReadOnly, e.IsSensitive = k.Name, value, readOnly, k.Sensitive
	e.Source = kmsg.ConfigSourceDefaultConfig
	if len(chain) > 0 {
		e.Source = chain[0].Source
	}
	if k.Sensitive {
		e.Value = nil
	}
	e.ConfigSynonyms = []kmsg.DescribeConfigsResponseResourceConfigConfigSynonym{}
	if d.synonyms {
		for _, s := range chain {
			if k.Sensitive {
				s.Value = nil
			}
			e.ConfigSynonyms = append(e.ConfigSynonyms, s)
		}
	}
	e.ConfigType = kmsg.ConfigType(k.Type)
	if d.docs {
		doc := k.Doc
		e.Documentation = &doc
	}
	d.out = append(d.out, e)
}

func synonym(name string, value *string, source kmsg.ConfigSource) kmsg.DescribeConfigsResponseResourceConfigConfigSynonym {
	s := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
	s.Name, s.Value, s.Source = name, value, source
	return s
}

// brokerChain is where a broker key's value could come from, in the broker keys' own units. As in Kafka it begins with
// the key's own name: what only a synonym (log.retention.hours for log.retention.ms) says is left out.
func (d *describer) brokerChain(name string) []kmsg.DescribeConfigsResponseResourceConfigConfigSynonym {
	var out []kmsg.DescribeConfigsResponseResourceConfigConfigSynonym
	for _, v := range d.cfg.Synonyms(name) {
		if v.Text != nil {
			out = append(out, synonym(v.Name, v.Text, kmsg.ConfigSource(v.Source)))
		}
	}
	own := slices.IndexFunc(out, func(s kmsg.DescribeConfigsResponseResourceConfigConfigSynonym) bool { return s.Name == name })
	if own < 0 {
		return nil
	}
	return out[own:]
}

// withBrokerSynonyms adds the keys of a resource that falls back to broker keys: its own overrides come first.
func (d *describer) withBrokerSynonyms(t *configdef.Table, overrides map[string]string, source kmsg.ConfigSource) {
	for k := range d.listed(t) {
		var chain []kmsg.DescribeConfigsResponseResourceConfigConfigSynonym
		value := k.Default
		if len(k.Synonyms) > 0 {
			chain = d.brokerChain(k.Synonyms[0].Name)
			if v := d.cfg.Fallback(k); v.Text != nil {
				value = v.Text
			}
		}
		if source == sourceGroup && len(k.Synonyms) == 0 && k.Default != nil {
			chain = append(chain, synonym(k.Name, k.Default, kmsg.ConfigSourceDefaultConfig))
		}
		if text, ok := overrides[k.Name]; ok {
			value = canonical(k, text)
			chain = append([]kmsg.DescribeConfigsResponseResourceConfigConfigSynonym{synonym(k.Name, &text, source)}, chain...)
		}
		d.add(k, value, chain, false)
	}
}

// canonical is a value as Kafka shows it, which has parsed it: blanks gone, doubles with a point.
func canonical(k *configdef.Key, text string) *string {
	if v, err := k.Parse(text); err == nil && k.Type != configdef.Password {
		text = configdef.Format(v)
	}
	return &text
}

// broker adds every key of this broker.
func (d *describer) broker(img *image.Image, id int32) {
	for k := range configdef.Broker().All() {
		// An internal key that the file sets is listed too, as in Kafka.
		_, set := d.cfg.Static(k.Name)
		if k.UpdateMode == configdef.DynamicOnly || k.Internal && !set || !d.wants(k.Name) {
			continue
		}
		v, _ := d.cfg.Lookup(k.Name)
		value := v.Text
		if v.Name != k.Name { // a synonym's value, in its own unit
			value = d.cfg.Own(k.Name)
		}
		d.add(k, value, d.brokerChain(k.Name), k.UpdateMode == configdef.ReadOnly)
	}
	for _, name := range d.otherNames(img, id) {
		if d.wants(name) {
			d.other(img, id, name)
		}
	}
}

// otherNames are the names that the table does not have but that were set, in the file or dynamically: keys of one
// listener, and plugins'.
func (d *describer) otherNames(img *image.Image, id int32) []string {
	set := map[string]bool{}
	for _, v := range d.cfg.Unknown() {
		set[v.Name] = true
	}
	for _, dynamic := range []map[string]string{img.Configs.BrokerDefault(), img.Configs.Broker(id)} {
		for name := range dynamic {
			set[name] = set[name] || configdef.Broker().Lookup(name) == nil
		}
	}
	maps.DeleteFunc(set, func(_ string, other bool) bool { return !other })
	return slices.Sorted(maps.Keys(set))
}

// other adds a name that the table does not have. A key of one listener has the type of the key behind its prefix and
// falls back to it. What nobody knows could be a secret: its value is not shown.
func (d *describer) other(img *image.Image, id int32, name string) {
	base := config.KeyOf(name)
	k := &configdef.Key{Name: name, Sensitive: true}
	if base != nil {
		k = &configdef.Key{Name: name, Type: base.Type, Sensitive: base.Sensitive, Doc: base.Doc}
	}
	var chain []kmsg.DescribeConfigsResponseResourceConfigConfigSynonym
	if text, ok := img.Configs.Broker(id)[name]; ok {
		chain = append(chain, synonym(name, &text, kmsg.ConfigSourceDynamicBrokerConfig))
	}
	if text, ok := img.Configs.BrokerDefault()[name]; ok {
		chain = append(chain, synonym(name, &text, kmsg.ConfigSourceDynamicDefaultBrokerConfig))
	}
	if text, ok := d.cfg.Static(name); ok {
		chain = append(chain, synonym(name, &text, kmsg.ConfigSourceStaticBrokerConfig))
	}
	var value *string
	if len(chain) > 0 {
		value = chain[0].Value
	}
	if base != nil {
		chain = append(chain, d.brokerChain(base.Name)...)
	}
	d.add(k, value, chain, true)
}

// brokerDefaults adds what was set dynamically for all brokers.
func (d *describer) brokerDefaults(set map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if !d.wants(name) {
			continue
		}
		text := set[name]
		k := configdef.Broker().Lookup(name)
		if k == nil {
			k = &configdef.Key{Name: name, Sensitive: true}
		}
		chain := []kmsg.DescribeConfigsResponseResourceConfigConfigSynonym{synonym(name, &text, kmsg.ConfigSourceDynamicDefaultBrokerConfig)}
		d.add(k, &text, chain, k.UpdateMode == configdef.ReadOnly)
	}
}

// logger adds a logger with its level.
func (d *describer) logger(name, level string) {
	if d.wants(name) {
		k := &configdef.Key{Name: name, Type: configdef.String, Doc: "The level of the log."}
		d.add(k, &level, []kmsg.DescribeConfigsResponseResourceConfigConfigSynonym{synonym(name, &level, sourceBrokerLogger)}, false)
	}
}

// listConfigResources answers ListConfigResources (key 74), versions 0 and 1: the resources that have, or can
// have, configs (KIP-1142). Version 0 lists client metrics only; from version 1 on an empty list asks for all types.
type listConfigResources struct{ node Node }

func (h *listConfigResources) handle(_ context.Context, c *Call) kmsg.Response {
	req, _ := c.Request.(*kmsg.ListConfigResourcesRequest)
	resp := kmsg.NewPtrListConfigResourcesResponse()
	resp.SetVersion(req.Version)
	types := req.ResourceTypes
	switch {
	case req.Version == 0:
		types = []int8{int8(kmsg.ConfigResourceTypeClientMetrics)}
	case len(types) == 0:
		for _, t := range []kmsg.ConfigResourceType{
			kmsg.ConfigResourceTypeTopic, kmsg.ConfigResourceTypeBroker, kmsg.ConfigResourceTypeBrokerLogger,
			kmsg.ConfigResourceTypeClientMetrics, kmsg.ConfigResourceTypeGroupConfig,
		} {
			types = append(types, int8(t))
		}
	}
	img := h.node.Images.Image()
	for _, t := range types {
		names, ok := configResources(img, kmsg.ConfigResourceType(t))
		if !ok {
			resp.ErrorCode = kerr.UnsupportedVersion.Code
			resp.ConfigResources = nil
			return resp
		}
		for _, name := range names {
			x := kmsg.NewListConfigResourcesResponseConfigResource()
			x.Name, x.Type = name, t
			resp.ConfigResources = append(resp.ConfigResources, x)
		}
	}
	return resp
}

// configResources are the names of the resources of a type.
func configResources(img *image.Image, t kmsg.ConfigResourceType) ([]string, bool) {
	var names []string
	switch t {
	case kmsg.ConfigResourceTypeTopic:
		for x := range img.Topics.All() {
			names = append(names, x.Name)
		}
	case kmsg.ConfigResourceTypeBroker, kmsg.ConfigResourceTypeBrokerLogger:
		for b := range img.Cluster.Brokers() {
			names = append(names, strconv.Itoa(int(b.ID)))
		}
	case kmsg.ConfigResourceTypeClientMetrics:
		for name := range img.Configs.OfType(image.ResourceClientMetrics) {
			names = append(names, name)
		}
	case kmsg.ConfigResourceTypeGroupConfig:
		for name := range img.Configs.OfType(image.ResourceGroup) {
			names = append(names, name)
		}
	default:
		return nil, false
	}
	return names, true
}
