package kraft

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/kraft/image"
	"gregor/kraft/quorum"
	"gregor/protocol"
)

// Leader is the active controller, as far as a node knows. NodeID is -1 when it knows none.
type Leader struct {
	NodeID int32
	Epoch  int32
}

// Node is this node's part in the metadata quorum. Its methods may be called from any goroutine.
type Node struct {
	o         Options
	quorum    *quorum.Node
	loader    *loader
	server    *server // nil without the controller role
	transport *transport
	observer  *observer
	registrar *registrar // nil without the controller role

	mu      sync.Mutex
	started bool
	stopped bool
}

// Open opens the metadata log. Nothing runs before Start.
func Open(o Options) (*Node, error) {
	if err := o.setDefaults(); err != nil {
		return nil, err
	}
	n := &Node{o: o, transport: newTransport(&o)}
	q, err := quorum.Open(quorum.Options{
		NodeID: o.NodeID, DirectoryID: o.DirectoryID, ClusterID: o.ClusterID,
		FS: o.FS, Dir: filepath.Join(o.MetadataDir, quorum.DirName),
		Observer: o.Controller == nil, StaticVoters: o.Quorum.StaticVoters, Transport: n.transport,
		Log: o.Quorum.Log, Timing: o.Quorum.Timing, Logger: o.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("open metadata quorum: %w", err)
	}
	n.quorum = q
	n.transport.unreachable = q.ReportUnreachable
	n.loader = newLoader(o.Logger, q.CommittedTo)
	n.loader.snapshots = newSnapshotter(o.Snapshots, q, o.Logger)
	q.Register(n.loader)
	n.observer = newObserver(&o, q)
	if o.Controller != nil {
		cfg := o.deciderConfig(func() []int32 { return q.Voters().IDs() })
		n.loader.fail = q.Fail
		n.server = newServer(o.Controller, cfg, q, o.Logger)
		q.Register(n.server)
		n.registrar = newRegistrar(n, protocol.RandomUUID())
	}
	return n, nil
}

// Register adds a publisher. Publishers are called in the order of their registration, by one goroutine. All must be
// registered before Start.
func (n *Node) Register(p image.Publisher) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.loader.publishers = append(n.loader.publishers, p)
}

// Start begins to follow or to lead the quorum.
func (n *Node) Start(context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.started {
		return errors.New("kraft: started twice")
	}
	n.started = true
	if n.registrar != nil {
		n.loader.publishers = append(n.loader.publishers, n.registrar)
		go n.registrar.run()
	}
	if n.server != nil {
		go n.server.run()
	}
	if err := n.quorum.Start(); err != nil {
		close(n.observer.done) // it never runs
		return fmt.Errorf("start metadata quorum: %w", err)
	}
	go n.observer.run()
	return nil
}

// Stop hands leadership over and stops everything.
func (n *Node) Stop(ctx context.Context) error {
	n.mu.Lock()
	started, stopped := n.started, n.stopped
	n.stopped = true
	n.mu.Unlock()
	if stopped {
		return nil
	}
	if started {
		if n.registrar != nil {
			n.registrar.close()
		}
		n.observer.close()
	}
	n.loader.snapshots.close()
	err := n.quorum.Stop(ctx)
	if started && n.server != nil {
		n.server.close()
	}
	n.transport.close()
	if err != nil {
		return fmt.Errorf("stop metadata quorum: %w", err)
	}
	return nil
}

// Done is closed when the node was stopped or cannot go on; Err then tells why.
func (n *Node) Done() <-chan struct{} { return n.quorum.Done() }

// Err is why the node cannot go on: the metadata log is lost. The process should end.
func (n *Node) Err() error { return n.quorum.Err() }

// Image implements image.Source: the newest committed image that all publishers were, or are being, told of.
func (n *Node) Image() *image.Image { return n.loader.cell.Image() }

// Loaded is closed when the committed log was applied up to its end for the first time.
func (n *Node) Loaded() <-chan struct{} { return n.loader.loaded }

// Leader is the active controller.
func (n *Node) Leader() Leader {
	l := n.quorum.Leader()
	return Leader{NodeID: l.LeaderID, Epoch: l.Epoch}
}

// HighWatermark is the exclusive end of the committed log, as far as this node knows.
func (n *Node) HighWatermark() int64 { return n.quorum.HighWatermark() }

// KRaftVersion is the finalized kraft.version.
func (n *Node) KRaftVersion() int16 { return n.quorum.KRaftVersion() }

// ClusterID is the id of the cluster.
func (n *Node) ClusterID() string { return n.o.ClusterID }

// LeaderEndpoint is where the active controller listens.
func (n *Node) LeaderEndpoint() (Endpoint, bool) {
	id := n.quorum.Leader().LeaderID
	if id == quorum.NoLeader {
		return Endpoint{}, false
	}
	return n.endpoint(id)
}

// endpoint finds the address of a controller: from the voters, from what the leader said, from its registration.
func (n *Node) endpoint(id int32) (Endpoint, bool) {
	if n.o.Controller != nil && id == n.o.NodeID && len(n.o.Controller.Listeners) > 0 {
		l := n.o.Controller.Listeners[0]
		return Endpoint{NodeID: id, Host: l.Host, Port: l.Port}, true
	}
	if v, ok := n.quorum.Voters().Get(id); ok {
		if e, ok := n.o.endpointOf(id, v.Endpoints); ok {
			return e, true
		}
	}
	if e, ok := n.observer.endpoint(id); ok {
		return e, true
	}
	if c := n.Image().Cluster.Controller(id); c != nil {
		for _, name := range n.o.Quorum.ListenerNames {
			if e, ok := c.Endpoint(name); ok {
				return Endpoint{NodeID: id, Host: e.Host, Port: e.Port}, true
			}
		}
	}
	return Endpoint{}, false
}

// HandlePeer takes a raft message that another controller sent under PeerAPIKey.
func (n *Node) HandlePeer(_ context.Context, msg []byte) ([]byte, error) {
	if n.server == nil {
		return nil, errors.New("kraft: this node is not a controller")
	}
	return nil, n.quorum.Receive(msg)
}

// Supported says whether Handle answers an API key.
func Supported(key int16) bool {
	_, ok := handlers[key]
	return ok
}

// Handle answers a request to the controller listener. A node that is not the active controller says NOT_CONTROLLER
// in the response. The error is for keys that are not Supported.
func (n *Node) Handle(ctx context.Context, rc *RequestContext, req kmsg.Request) (kmsg.Response, error) {
	h, ok := handlers[req.Key()]
	if !ok {
		return nil, fmt.Errorf("kraft: API key %d: %w", req.Key(), errors.ErrUnsupported)
	}
	return h(n, ctx, rc, req), nil
}
