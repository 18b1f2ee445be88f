package controller

import (
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/kraft/image"
	"gregor/kraft/metadata"
	"gregor/protocol"
)

// maxPartitionsPerRequest is how many partitions one CreateTopics or CreatePartitions request may add.
const maxPartitionsPerRequest = 10_000

// maxElectionsPerRound bounds the elections of one periodic round, so that the controller stays responsive.
const maxElectionsPerRound = 1_000

// Range is an inclusive range of feature levels.
type Range struct{ Min, Max int16 }

// String gives the range as Kafka prints it.
func (r Range) String() string { return itoa(r.Min) + "-" + itoa(r.Max) }

// Contains says whether a level is in the range.
func (r Range) Contains(level int16) bool { return r.Min <= level && level <= r.Max }

// Config is what the controller knows of its own node.
type Config struct {
	NodeID    int32
	ClusterID string
	// DefaultPartitions and DefaultReplicationFactor are num.partitions and default.replication.factor, for -1 in
	// CreateTopics (KIP-464).
	DefaultPartitions        int32
	DefaultReplicationFactor int16
	// DeleteTopicEnable is delete.topic.enable.
	DeleteTopicEnable bool
	// SessionTimeout is broker.session.timeout.ms.
	SessionTimeout time.Duration
	// Static gives the value of a key of server.properties and whether it is set there.
	Static func(key string) (value string, set bool)
	// Supported are the feature levels that this binary knows.
	Supported map[string]Range
	// Voters are the node ids of the quorum; UpdateFeatures needs each to have registered.
	Voters func() []int32
	// ValidateConfigs, when set, refuses configs that depend on other parts of the node (for example
	// remote.storage.enable without tiered storage). resourceType is that of ConfigRecord.
	ValidateConfigs func(resourceType int8, name string, merged map[string]string) error
}

// Request is what a decision may know of its caller.
type Request struct {
	// Principal is "User:alice".
	Principal string
	// Listener is the name of the listener the request came in on.
	Listener string
	// Forwarded is set for a request that came in an Envelope.
	Forwarded bool
	// Authorize says whether the caller may do operation (AclOperation) on a resource (ResourceType, name); nil
	// allows all.
	Authorize func(operation, resourceType int8, name string) bool
	// ChargeMutations charges n partition mutations to the caller's controller_mutation_rate; an error refuses them.
	// nil charges nothing.
	ChargeMutations func(n int) error
}

// Resource types and operations of ACLs (kafka-4.4/enums.tsv).
const (
	resourceTopic   int8 = 2
	resourceGroup   int8 = 3
	resourceCluster int8 = 4

	opCreate          int8 = 5
	opDelete          int8 = 6
	opAlter           int8 = 7
	opDescribe        int8 = 8
	opClusterAction   int8 = 9
	opDescribeConfigs int8 = 10
	opAlterConfigs    int8 = 11

	clusterResourceName = "kafka-cluster"
)

func (r *Request) allowed(operation, resourceType int8, name string) bool {
	return r.Authorize == nil || r.Authorize(operation, resourceType, name)
}

func (r *Request) allowedOnCluster(operation int8) bool {
	return r.allowed(operation, resourceCluster, clusterResourceName)
}

func (r *Request) charge(n int) *Fault {
	if r.ChargeMutations == nil {
		return nil
	}
	if err := r.ChargeMutations(n); err != nil {
		return refuseBare(codeThrottlingQuotaExceeded)
	}
	return nil
}

// View is everything that decisions see besides the request.
type View struct {
	// Image is the newest state, uncommitted changes included.
	Image *image.Image
	// Sessions are the brokers' heartbeats. Decisions read them; only Sessions' own methods change them.
	Sessions *Sessions
	Now      time.Time
	// NextOffset is the metadata offset that the first record of the next decision will get.
	NextOffset int64
	// RegistrationOffset gives the offset of a broker's RegisterBrokerRecord.
	RegistrationOffset func(broker int32) (int64, bool)
	// KRaftVersion is the finalized kraft.version, which is not in the image.
	KRaftVersion int16
	Rand         *rand.Rand
	// NewUUID makes topic ids.
	NewUUID func() protocol.UUID
}

// Result is a decision.
type Result struct {
	// Records are to be appended in this order. When there are several and Atomic is set, all or none of them may
	// take effect.
	Records []metadata.Record
	Atomic  bool
	// Response is sent once the records are committed, at once when there are none.
	Response kmsg.Response
	// Applied, when set, is called after the records were appended, with the offset of the last one (or the last
	// offset of the log when there are none). It updates Sessions only.
	Applied func(lastOffset int64)
	// KRaftUpgrade, when not 0, asks the quorum to raise kraft.version to this level before the response is sent.
	KRaftUpgrade int16
}

// Decider decides requests against one View. It is made for one decision and thrown away.
type Decider struct {
	View

	cfg      *Config
	req      *Request
	features features
}

// New makes a Decider.
func New(cfg *Config, view View, req *Request) *Decider {
	return &Decider{View: view, cfg: cfg, req: req, features: featuresOf(view.Image)}
}
