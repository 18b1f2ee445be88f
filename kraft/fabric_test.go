package kraft

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/storage/vfs"
)

var errUnreachable = errors.New("unreachable")

// fabric connects the nodes of a cluster: node id listens on localhost:9000+id. Requests and responses pass as bytes.
type fabric struct {
	mu    sync.Mutex
	nodes map[int32]*Node
	cut   map[int32]bool
}

func newFabric() *fabric { return &fabric{nodes: map[int32]*Node{}, cut: map[int32]bool{}} }

// clientOf is the network as node id sees it.
func (f *fabric) clientOf(id int32) Client { return &fabricClient{f, id} }

type fabricClient struct {
	f    *fabric
	from int32
}

func (c *fabricClient) peer(to Endpoint) (*Node, error) {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	id := int32(to.Port) - 9000
	n := c.f.nodes[id]
	if n == nil || c.f.cut[id] || c.f.cut[c.from] {
		return nil, fmt.Errorf("node %d: %w", id, errUnreachable)
	}
	return n, nil
}

func (c *fabricClient) Do(ctx context.Context, to Endpoint, req kmsg.Request) (kmsg.Response, error) {
	n, err := c.peer(to)
	if err != nil {
		return nil, err
	}
	arrived := kmsg.RequestForKey(req.Key())
	arrived.SetVersion(req.GetVersion())
	if err := arrived.ReadFrom(req.AppendTo(nil)); err != nil {
		return nil, err
	}
	resp, err := n.Handle(ctx, anonymous(), arrived)
	if err != nil {
		return nil, err
	}
	out := kmsg.ResponseForKey(req.Key())
	out.SetVersion(req.GetVersion())
	if err := out.ReadFrom(resp.AppendTo(nil)); err != nil {
		return nil, err
	}
	if _, err := c.peer(to); err != nil {
		return nil, err
	}
	return out, nil
}

func (c *fabricClient) SendPeer(ctx context.Context, to Endpoint, msg []byte) ([]byte, error) {
	n, err := c.peer(to)
	if err != nil {
		return nil, err
	}
	return n.HandlePeer(ctx, append([]byte(nil), msg...))
}

func (f *fabric) setCut(id int32, cut bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cut[id] = cut
}

// cluster is a set of controllers with static voters.
type cluster struct {
	t     *testing.T
	f     *fabric
	n     int32
	disks map[int32]*vfs.Mem
}

func newCluster(t *testing.T, n int32) *cluster {
	t.Helper()
	c := &cluster{t: t, f: newFabric(), n: n, disks: map[int32]*vfs.Mem{}}
	for id := int32(1); id <= n; id++ {
		c.disks[id] = formatDisk(t, id, nil)
		c.start(id)
	}
	return c
}

func (c *cluster) start(id int32) *Node {
	c.t.Helper()
	o := testOptions(c.t, c.disks[id], id, c.n)
	o.Client = c.f.clientOf(id)
	return c.run(id, o)
}

// run opens a node and connects it.
func (c *cluster) run(id int32, o Options) *Node {
	c.t.Helper()
	n, err := Open(o)
	if err != nil {
		c.t.Fatal(err)
	}
	c.f.mu.Lock()
	c.f.nodes[id] = n
	c.f.mu.Unlock()
	if err := n.Start(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
	return n
}

func (c *cluster) stop(id int32) {
	c.t.Helper()
	c.f.mu.Lock()
	n := c.f.nodes[id]
	c.f.mu.Unlock()
	stopNode(c.t, n)
	c.f.mu.Lock()
	delete(c.f.nodes, id)
	c.f.mu.Unlock()
}

func (c *cluster) stopAll() {
	for id := range c.f.nodes {
		c.stop(id)
	}
}

// leader waits for an active controller among the nodes that are connected, and gives it.
func (c *cluster) leader() *Node {
	c.t.Helper()
	var found *Node
	until(c.t, "election", func() bool {
		c.f.mu.Lock()
		defer c.f.mu.Unlock()
		for id, n := range c.f.nodes {
			if n.server != nil && !c.f.cut[id] && n.isActive() && n.Image().MetadataVersion() != 0 {
				found = n
				return true
			}
		}
		return false
	})
	return found
}

// sameImages waits until all nodes have the leader's image.
func (c *cluster) sameImages() {
	c.t.Helper()
	want := c.leader()
	until(c.t, "replication", func() bool {
		synctest.Wait()
		img := want.Image()
		for _, n := range c.f.nodes {
			if !n.Image().Equal(img) {
				return false
			}
		}
		return true
	})
}
