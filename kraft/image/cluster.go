package image

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	"gregor/protocol"
)

// Endpoint is an address of a broker or controller.
type Endpoint struct {
	// Listener is the listener's name.
	Listener string
	Host     string
	Port     uint16
	// SecurityProtocol is 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL.
	SecurityProtocol int16
}

// FeatureRange is the range of levels that a node supports of a feature.
type FeatureRange struct {
	Name     string
	Min, Max int16
}

// Broker is the registration of a broker.
type Broker struct {
	ID          int32
	Epoch       int64
	Incarnation protocol.UUID
	Endpoints   []Endpoint     // by listener
	Features    []FeatureRange // by name
	Rack        *string        // nil without rack
	// Fenced brokers lead no partitions and are not shown to clients.
	Fenced bool
	// InControlledShutdown brokers are about to stop: they get no new leaders or ISR memberships.
	InControlledShutdown bool
	MigratingZkBroker    bool
	Directories          []protocol.UUID // online log directories, ascending as Kafka sorts them
	// CordonedDirectories get no new replicas; nil if never told (KIP-1066).
	CordonedDirectories []protocol.UUID
}

// Endpoint returns the broker's address on a listener.
func (b *Broker) Endpoint(listener string) (Endpoint, bool) {
	return findEndpoint(b.Endpoints, listener)
}

// Feature returns the levels that the broker supports of a feature, ok false if it does not know the feature.
func (b *Broker) Feature(name string) (r FeatureRange, ok bool) { return findFeature(b.Features, name) }

// HasOnlineDirectory reports whether a replica in dir is online as far as the broker told, as Kafka judges it: yes if
// the directory is not known yet or the broker never told its directories, no if it is lost.
func (b *Broker) HasOnlineDirectory(dir protocol.UUID) bool {
	switch dir {
	case protocol.DirectoryUnassigned, protocol.DirectoryMigrating:
		return true
	case protocol.DirectoryLost:
		return false
	}
	return len(b.Directories) == 0 || slices.Contains(b.Directories, dir)
}

// Controller is the registration of a controller.
type Controller struct {
	ID                int32
	Incarnation       protocol.UUID
	ZkMigrationReady  bool
	Endpoints         []Endpoint     // by listener
	SupportedFeatures []FeatureRange // by name
}

// Endpoint returns the controller's address on a listener.
func (c *Controller) Endpoint(listener string) (Endpoint, bool) {
	return findEndpoint(c.Endpoints, listener)
}

// Feature returns the levels that the controller supports of a feature, ok false if it does not know the feature.
func (c *Controller) Feature(name string) (r FeatureRange, ok bool) {
	return findFeature(c.SupportedFeatures, name)
}

func findEndpoint(eps []Endpoint, listener string) (Endpoint, bool) {
	for i := range eps {
		if eps[i].Listener == listener {
			return eps[i], true
		}
	}
	return Endpoint{}, false
}

func findFeature(fs []FeatureRange, name string) (FeatureRange, bool) {
	for i := range fs {
		if fs[i].Name == name {
			return fs[i], true
		}
	}
	return FeatureRange{}, false
}

// Cluster holds the registered brokers and controllers.
type Cluster struct {
	brokers     tree[int32, *Broker]
	controllers tree[int32, *Controller]
	fenced      int
}

func emptyCluster() *Cluster {
	return &Cluster{
		brokers:     newTree[int32, *Broker](cmp.Compare[int32]),
		controllers: newTree[int32, *Controller](cmp.Compare[int32]),
	}
}

// Broker returns the registration of a broker, nil if there is none.
func (c *Cluster) Broker(id int32) *Broker {
	b, _ := c.brokers.get(id)
	return b
}

// Brokers iterates over all registered brokers by id, fenced ones included.
func (c *Cluster) Brokers() iter.Seq[*Broker] { return values(&c.brokers) }

// NumBrokers returns the number of registered brokers and how many of them are fenced.
func (c *Cluster) NumBrokers() (registered, fenced int) { return c.brokers.len(), c.fenced }

// Alive reports whether the broker is registered and not fenced.
func (c *Cluster) Alive(id int32) bool {
	b, ok := c.brokers.get(id)
	return ok && !b.Fenced
}

// AliveBrokers iterates over the brokers that are not fenced, by id.
func (c *Cluster) AliveBrokers() iter.Seq[*Broker] {
	return func(yield func(*Broker) bool) {
		for _, b := range c.brokers.all() {
			if !b.Fenced && !yield(b) {
				return
			}
		}
	}
}

// AliveEndpoint returns the address on a listener of a broker that is alive.
func (c *Cluster) AliveEndpoint(id int32, listener string) (Endpoint, bool) {
	if b, ok := c.brokers.get(id); ok && !b.Fenced {
		return b.Endpoint(listener)
	}
	return Endpoint{}, false
}

// Controller returns the registration of a controller, nil if there is none.
func (c *Cluster) Controller(id int32) *Controller {
	r, _ := c.controllers.get(id)
	return r
}

// Controllers iterates over the registered controllers by id.
func (c *Cluster) Controllers() iter.Seq[*Controller] { return values(&c.controllers) }

// NumControllers returns the number of registered controllers.
func (c *Cluster) NumControllers() int { return c.controllers.len() }

func (c *Cluster) equal(o *Cluster) bool {
	return equalTrees(&c.brokers, &o.brokers, (*Broker).equal) &&
		equalTrees(&c.controllers, &o.controllers, (*Controller).equal)
}

func (b *Broker) equal(o *Broker) bool {
	return b == o || b.ID == o.ID && b.Epoch == o.Epoch && b.Incarnation == o.Incarnation &&
		slices.Equal(b.Endpoints, o.Endpoints) && slices.Equal(b.Features, o.Features) && equalStrings(b.Rack, o.Rack) &&
		b.Fenced == o.Fenced && b.InControlledShutdown == o.InControlledShutdown &&
		b.MigratingZkBroker == o.MigratingZkBroker && slices.Equal(b.Directories, o.Directories) &&
		(b.CordonedDirectories == nil) == (o.CordonedDirectories == nil) &&
		slices.Equal(b.CordonedDirectories, o.CordonedDirectories)
}

func (c *Controller) equal(o *Controller) bool {
	return c == o || c.ID == o.ID && c.Incarnation == o.Incarnation && c.ZkMigrationReady == o.ZkMigrationReady &&
		slices.Equal(c.Endpoints, o.Endpoints) && slices.Equal(c.SupportedFeatures, o.SupportedFeatures)
}

func equalStrings(a, b *string) bool {
	return a == b || a != nil && b != nil && *a == *b
}

// values iterates over a tree's values.
func values[K, V any](t *tree[K, V]) iter.Seq[V] {
	return func(yield func(V) bool) {
		for _, v := range t.all() {
			if !yield(v) {
				return
			}
		}
	}
}

func compareEndpoints(a, b Endpoint) int { return strings.Compare(a.Listener, b.Listener) }

func compareFeatures(a, b FeatureRange) int { return strings.Compare(a.Name, b.Name) }

// compareDirectories is the order of Kafka's Uuid: two signed 64 bit numbers, most significant first.
func compareDirectories(a, b protocol.UUID) int {
	for _, at := range []int{0, 8} {
		if c := cmp.Compare(int8(a[at]), int8(b[at])); c != 0 {
			return c
		}
		if c := slices.Compare(a[at:at+8], b[at:at+8]); c != 0 {
			return c
		}
	}
	return 0
}
