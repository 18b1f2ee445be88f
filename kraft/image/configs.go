package image

import (
	"cmp"
	"iter"
	"maps"
	"strconv"
	"strings"
)

// ResourceType is the type of a config resource, by the codes of Kafka's ConfigResource.
type ResourceType int8

// The config resources that can have dynamic configs.
const (
	ResourceTopic         ResourceType = 2
	ResourceBroker        ResourceType = 4
	ResourceClientMetrics ResourceType = 16
	ResourceGroup         ResourceType = 32
)

// ConfigResource names what a config is for. The name of a broker is its id in decimal, "" for all brokers.
type ConfigResource struct {
	Type ResourceType
	Name string
}

// Compare orders by type, then name.
func (a ConfigResource) Compare(b ConfigResource) int {
	return cmp.Or(cmp.Compare(a.Type, b.Type), strings.Compare(a.Name, b.Name))
}

// Configs holds the dynamic configs of resources. Resources without any are absent. The maps returned are shared and
// must not be changed; nil if there are no configs.
type Configs struct {
	resources tree[ConfigResource, map[string]string]
}

func emptyConfigs() *Configs {
	return &Configs{resources: newTree[ConfigResource, map[string]string](ConfigResource.Compare)}
}

// Get returns the configs of a resource.
func (c *Configs) Get(r ConfigResource) map[string]string {
	m, _ := c.resources.get(r)
	return m
}

// Topic returns the overrides of a topic.
func (c *Configs) Topic(name string) map[string]string {
	return c.Get(ConfigResource{Type: ResourceTopic, Name: name})
}

// Broker returns the dynamic configs of one broker, without those of all brokers.
func (c *Configs) Broker(id int32) map[string]string {
	return c.Get(ConfigResource{Type: ResourceBroker, Name: strconv.Itoa(int(id))})
}

// BrokerDefault returns the dynamic configs of all brokers.
func (c *Configs) BrokerDefault() map[string]string {
	return c.Get(ConfigResource{Type: ResourceBroker})
}

// Group returns the configs of a group.
func (c *Configs) Group(id string) map[string]string {
	return c.Get(ConfigResource{Type: ResourceGroup, Name: id})
}

// ClientMetrics returns the configs of a client metrics subscription.
func (c *Configs) ClientMetrics(name string) map[string]string {
	return c.Get(ConfigResource{Type: ResourceClientMetrics, Name: name})
}

// All iterates over the resources that have configs, by type and name.
func (c *Configs) All() iter.Seq2[ConfigResource, map[string]string] { return c.resources.all() }

// OfType iterates over the resources of a type that have configs, by name.
func (c *Configs) OfType(t ResourceType) iter.Seq2[string, map[string]string] {
	return func(yield func(string, map[string]string) bool) {
		for r, m := range c.resources.from(ConfigResource{Type: t}) {
			if r.Type != t || !yield(r.Name, m) {
				return
			}
		}
	}
}

func (c *Configs) equal(o *Configs) bool {
	return equalTrees(&c.resources, &o.resources, maps.Equal[map[string]string])
}
