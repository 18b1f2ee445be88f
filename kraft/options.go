package kraft

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/kraft/controller"
	"gregor/kraft/metadata"
	"gregor/kraft/quorum"
	"gregor/protocol"
	"gregor/storage/vfs"
)

// PeerAPIKey is the private API key under which controllers exchange raft messages.
const PeerAPIKey = protocol.RaftMessageKey

// Endpoint is where a node listens. NodeID is -1 when only the address is known (bootstrap servers).
type Endpoint struct {
	NodeID int32
	Host   string
	Port   uint16
}

// Client sends requests to the controller listeners of other nodes, and to that of this one.
type Client interface {
	// Do sends a request in its version and waits for the response.
	Do(ctx context.Context, to Endpoint, req kmsg.Request) (kmsg.Response, error)
	// SendPeer sends a raft message under PeerAPIKey and waits for the answer.
	SendPeer(ctx context.Context, to Endpoint, msg []byte) ([]byte, error)
}

// Options open a Node. NodeID, ClusterID, FS, MetadataDir and DirectoryID are required, Client too unless the node is
// the only controller of its cluster.
type Options struct {
	NodeID    int32
	ClusterID string
	FS        vfs.FS
	// MetadataDir is the log directory that holds __cluster_metadata-0; DirectoryID is its directory.id.
	MetadataDir string
	DirectoryID protocol.UUID
	// Controller is nil on a node without the controller role.
	Controller *ControllerOptions
	Quorum     QuorumOptions
	Snapshots  SnapshotOptions
	Client     Client
	Logger     *slog.Logger // nil for none
}

// QuorumOptions say who the quorum is and how it keeps its log.
type QuorumOptions struct {
	// StaticVoters is controller.quorum.voters.
	StaticVoters []quorum.Voter
	// BootstrapServers is controller.quorum.bootstrap.servers.
	BootstrapServers []Endpoint
	// ListenerNames is controller.listener.names; the first one is used between the nodes.
	ListenerNames []string
	// RequestTimeout is controller.quorum.request.timeout.ms, FetchMaxWait how long an observer's fetch may wait,
	// RetryBackoff controller.quorum.retry.backoff.ms. Zero is Kafka's default.
	RequestTimeout time.Duration
	FetchMaxWait   time.Duration
	RetryBackoff   time.Duration
	Log            quorum.LogOptions
	Timing         quorum.Timing
}

// SnapshotOptions say when snapshots are written. Zero is Kafka's default; a negative MaxInterval means never by time.
type SnapshotOptions struct {
	// MaxNewRecordBytes is metadata.log.max.record.bytes.between.snapshots.
	MaxNewRecordBytes int64
	// MaxInterval is metadata.log.max.snapshot.interval.ms.
	MaxInterval time.Duration
}

// ControllerOptions configure the active controller.
type ControllerOptions struct {
	// Listeners are the node's controller endpoints as other nodes reach them.
	Listeners []ControllerListener

	DefaultPartitions        int32 // num.partitions
	DefaultReplicationFactor int16 // default.replication.factor
	DeleteTopicEnable        bool  // delete.topic.enable
	// Static gives the value of a key of server.properties and whether it is set there.
	Static func(key string) (value string, set bool)
	// ValidateConfigs may refuse configs that this node cannot act on; see controller.Config.
	ValidateConfigs func(resourceType int8, name string, merged map[string]string) error

	SessionTimeout  time.Duration // broker.session.timeout.ms
	MaxIdle         time.Duration // metadata.max.idle.interval.ms; negative for no no-op records
	LeaderBalance   time.Duration // leader.imbalance.check.interval.seconds; negative when auto.leader.rebalance.enable=false
	UncleanElection time.Duration // unclean.leader.election.interval.ms; negative for never

	// Access may fill in what the caller of a forwarded request is allowed to do and what it is charged.
	Access func(rc *RequestContext, key, version int16)
}

// ControllerListener is an endpoint of a controller with its security protocol (0 PLAINTEXT, 1 SSL, 2
// SASL_PLAINTEXT, 3 SASL_SSL).
type ControllerListener struct {
	Name             string
	Host             string
	Port             uint16
	SecurityProtocol int16
}

// RequestContext says who sent a request.
type RequestContext struct {
	Principal  string // "User:alice"
	ClientID   string
	Listener   string
	ClientAddr netip.Addr
	// Forwarded is set for a request that came in an Envelope.
	Forwarded bool
	// Authorize says whether the principal may do an operation (AclOperation) on a resource (ResourceType, name); nil
	// allows all.
	Authorize func(operation, resourceType int8, name string) bool
	// ChargeMutations charges partition mutations to the caller's quota; nil charges nothing.
	ChargeMutations func(n int) error
}

func (rc *RequestContext) request() *controller.Request {
	return &controller.Request{
		Principal: rc.Principal, Listener: rc.Listener, Forwarded: rc.Forwarded,
		Authorize: rc.Authorize, ChargeMutations: rc.ChargeMutations,
	}
}

// Kafka's defaults.
const (
	defaultRequestTimeout    = 2 * time.Second
	defaultFetchMaxWait      = 500 * time.Millisecond
	defaultRetryBackoff      = 20 * time.Millisecond
	defaultSnapshotBytes     = 20 << 20
	defaultSnapshotInterval  = time.Hour
	defaultSessionTimeout    = 9 * time.Second
	defaultMaxIdle           = 500 * time.Millisecond
	defaultLeaderBalance     = 300 * time.Second
	defaultUncleanElection   = 300 * time.Second
	defaultReplicationFactor = 1
)

func orDefault[T comparable](value *T, def T) {
	var zero T
	if *value == zero {
		*value = def
	}
}

func (o *Options) setDefaults() error {
	switch {
	case o.FS == nil, o.MetadataDir == "":
		return errors.New("kraft: FS and MetadataDir are required")
	case o.NodeID < 0:
		return fmt.Errorf("kraft: node id %d is negative", o.NodeID)
	case o.ClusterID == "":
		return errors.New("kraft: a cluster id is required")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	orDefault(&o.Quorum.RequestTimeout, defaultRequestTimeout)
	orDefault(&o.Quorum.FetchMaxWait, defaultFetchMaxWait)
	orDefault(&o.Quorum.RetryBackoff, defaultRetryBackoff)
	orDefault(&o.Snapshots.MaxNewRecordBytes, defaultSnapshotBytes)
	orDefault(&o.Snapshots.MaxInterval, defaultSnapshotInterval)
	if c := o.Controller; c != nil {
		orDefault(&c.SessionTimeout, defaultSessionTimeout)
		orDefault(&c.MaxIdle, defaultMaxIdle)
		orDefault(&c.LeaderBalance, defaultLeaderBalance)
		orDefault(&c.UncleanElection, defaultUncleanElection)
		orDefault(&c.DefaultPartitions, 1)
		orDefault(&c.DefaultReplicationFactor, defaultReplicationFactor)
	}
	return nil
}

// supportedFeatures are the feature levels that this build can run at.
func supportedFeatures() map[string]controller.Range {
	out := make(map[string]controller.Range)
	for _, f := range metadata.SupportedFeatures() {
		out[f.Name] = controller.Range{Min: f.Min, Max: f.Max}
	}
	return out
}

// deciderConfig is what decisions know of this node.
func (o *Options) deciderConfig(voters func() []int32) *controller.Config {
	c := o.Controller
	return &controller.Config{
		NodeID: o.NodeID, ClusterID: o.ClusterID,
		DefaultPartitions: c.DefaultPartitions, DefaultReplicationFactor: c.DefaultReplicationFactor,
		DeleteTopicEnable: c.DeleteTopicEnable, SessionTimeout: c.SessionTimeout,
		Static: c.Static, Supported: supportedFeatures(), Voters: voters, ValidateConfigs: c.ValidateConfigs,
	}
}

// endpointOf picks the address of a voter on the listener that is used between the nodes.
func (o *Options) endpointOf(id int32, endpoints []quorum.Endpoint) (Endpoint, bool) {
	for _, name := range o.Quorum.ListenerNames {
		i := slices.IndexFunc(endpoints, func(e quorum.Endpoint) bool { return e.Name == name })
		if i >= 0 {
			return Endpoint{NodeID: id, Host: endpoints[i].Host, Port: endpoints[i].Port}, true
		}
	}
	if len(endpoints) == 0 {
		return Endpoint{}, false
	}
	return Endpoint{NodeID: id, Host: endpoints[0].Host, Port: endpoints[0].Port}, true
}
