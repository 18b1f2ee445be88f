package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/broker/api"
	"gregor/broker/config"
	"gregor/broker/network"
	"gregor/broker/peer"
	"gregor/broker/replica"
	"gregor/groupcoord"
	"gregor/kraft"
	"gregor/protocol"
	"gregor/storage"
)

// Broker is a running node: a broker, a controller, or both.
type Broker struct {
	o       Options
	cfg     *config.Config
	log     *slog.Logger
	manager *storage.Manager
	node    *kraft.Node
	// Requests of one connection are answered in order: what waits for news of the metadata has connections of its own
	// (quorumPool), lest forwarded requests and heartbeats wait with it.
	pool, quorumPool *peer.Pool
	network          *network.Server

	// Set on nodes with the broker role.
	dynamic   *dynamicConfig
	replicas  *replica.Manager
	groups    *groupcoord.Coordinator
	lifecycle *lifecycle
	loaded    *logLoading
	placement *assignments
	settled   *settled
	// previousEpoch is that of the last clean stop, -1 when there was none.
	previousEpoch int64

	table       *api.Table
	controllers *controllers
	sockets     []socket // what start opened

	cancel context.CancelFunc // ends the background work
	wg     sync.WaitGroup
	failed chan error // the reason why the node cannot go on
}

// Start starts a node and returns when it serves: a controller when it listens, a broker when the controller has
// unfenced it.
func Start(ctx context.Context, o Options) (*Broker, error) {
	b := &Broker{o: o, cfg: o.Config, log: o.Logger, failed: make(chan error, 1)}
	background, cancel := context.WithCancel(context.Background())
	b.cancel = cancel
	if err := b.start(ctx, background); err != nil {
		b.abandon()
		return nil, err
	}
	return b, nil
}

// start does the steps of Start; what a failed one leaves open is for abandon.
func (b *Broker) start(ctx, background context.Context) error {
	if err := b.openStorage(); err != nil {
		return err
	}
	sockets, err := b.listen()
	if err != nil {
		return err
	}
	b.sockets = sockets
	if err := b.openQuorum(); err != nil {
		return err
	}
	b.build()
	b.announce(sockets)
	if err := b.serve(sockets, true); err != nil {
		return err
	}
	if err := b.node.Start(background); err != nil {
		return err
	}
	b.watchQuorum(background)
	if !b.cfg.Node.Broker {
		return nil
	}
	return b.join(ctx, background, sockets)
}

// openStorage locks and checks the log directories, and formats them when none of them is formatted.
func (b *Broker) openStorage() error {
	m, err := b.openManager()
	if errors.Is(err, storage.ErrUnformatted) && b.o.Format != nil {
		if err := b.o.Format.Run(b.o.FormatOutput); err != nil {
			return fmt.Errorf("cannot format the log directories: %w", err)
		}
		m, err = b.openManager()
	}
	if err != nil {
		return err
	}
	b.manager = m
	b.previousEpoch = -1
	if epoch, ok := m.PreviousBrokerEpoch(); ok { // known until the logs are loaded
		b.previousEpoch = epoch
	}
	return nil
}

func (b *Broker) openManager() (*storage.Manager, error) {
	o, err := managerOptions(&b.o, b.dirFailed, b.replicaDamaged)
	if err != nil {
		return nil, err
	}
	o.TopicConfig = b.configWhileLoading
	return storage.OpenManager(o)
}

func (b *Broker) openQuorum() error {
	o := peer.Options{
		ClientID: strconv.Itoa(int(b.cfg.Node.ID)), DialTimeout: millis(b.cfg.Sockets.ConnectionSetupMillis),
		RequestTimeout: millis(int64(b.cfg.Node.ControllerSocketMillis)),
	}
	b.pool, b.quorumPool = peer.NewPool(o), peer.NewPool(o)
	var err error
	b.node, err = kraft.Open(kraftOptions(&b.o, b.manager, peerClient{b.quorumPool}, b.sockets))
	return err
}

// peerClient is the pool as package kraft wants it.
type peerClient struct{ pool *peer.Pool }

func (p peerClient) Do(ctx context.Context, to kraft.Endpoint, req kmsg.Request) (kmsg.Response, error) {
	return p.pool.Do(ctx, peer.Endpoint(to), req)
}

func (p peerClient) SendPeer(ctx context.Context, to kraft.Endpoint, msg []byte) ([]byte, error) {
	return p.pool.SendPeer(ctx, peer.Endpoint(to), msg)
}

// build makes the parts that need no other node, and registers the publishers in their order: configs, logs,
// replicas, elections.
func (b *Broker) build() {
	b.dynamic = newDynamicConfig(b.cfg, b.log)
	b.controllers = &controllers{pool: b.pool, active: b.activeController, cfg: b.dynamic.Config, log: b.log, creating: map[string]bool{}}
	b.network = network.NewServer(networkOptions(&b.o))
	deps := api.Deps{
		Node: api.Node{
			ID: b.cfg.Node.ID, ClusterID: b.manager.ClusterID(), Config: b.dynamic.Config, Images: b.node,
			KRaftVersion: b.node.KRaftVersion, BrokerEpoch: b.epoch,
		},
		Controllers: b.controllers, Broker: b.cfg.Node.Broker, Logger: b.log,
	}
	if b.cfg.Node.Controller {
		deps.ControllerHandle, deps.ControllerKeys, deps.Peer = b.handleController, controllerKeys(), b.node.HandlePeer
	}
	if b.cfg.Node.Broker {
		b.buildBroker(&deps)
	}
	b.table = api.NewTable(deps)
}

func (b *Broker) buildBroker(deps *api.Deps) {
	b.lifecycle = newLifecycle()
	b.placement = newAssignments(b.controllers, b.cfg.Node.ID, b.lifecycle.Epoch, b.log)
	b.replicas = replica.NewManager(replica.Options{
		NodeID: b.cfg.Node.ID, Logs: b.manager, Logger: b.log, Placed: b.placed,
		TopicConfig: func(overrides map[string]string) (storage.LogConfig, error) {
			return topicConfig(b.dynamic.Config(), overrides)
		},
	})
	b.dynamic.replicas = b.replicas
	b.settled = newSettled()
	b.controllers.settle = b.settle
	b.dynamic.changed = append(b.dynamic.changed, func(c *config.Config) {
		b.network.SetLimits(connectionLimits(c, b.log))
		b.manager.SetCleaner(cleanerConfig(c))
	})
	b.groups = groupcoord.New(groupcoord.Options{
		Config: groupConfig(b.cfg), Log: &topicLog{topic: consumerOffsets, replicas: b.replicas}, Logger: b.log,
		NumPartitions: b.groupPartitions, Image: b.node.Image,
	})
	b.loaded = &logLoading{manager: b.manager, nodeID: b.cfg.Node.ID, done: make(chan struct{}), fail: b.fail}
	// The config that is in force is known before the logs are opened by it, and the logs are open when replicas want them.
	for _, p := range []kraftPublisher{b.dynamic, b.loaded, b.replicas, &elections{nodeID: b.cfg.Node.ID, groups: b.groups}, b.settled, &wakeOnImage{lifecycle: b.lifecycle, told: -1}} {
		b.node.Register(p)
	}
	deps.Replicas, deps.Groups = b.replicas, b.groups
	deps.LogDirs = logDirs{b.manager}
	deps.ProducerIDs = &producerIDs{controllers: b.controllers, nodeID: b.cfg.Node.ID, epoch: b.lifecycle.Epoch}
}

func (b *Broker) epoch() int64 {
	if b.lifecycle == nil {
		return -1
	}
	return b.lifecycle.Epoch()
}

// groupPartitions is the number of partitions that groups are spread over.
func (b *Broker) groupPartitions() int32 {
	if t := b.node.Image().Topics.ByName(consumerOffsets); t != nil {
		return int32(t.NumPartitions())
	}
	return b.cfg.Offsets.TopicPartitions
}

func (b *Broker) activeController() (peer.Endpoint, bool) {
	e, ok := b.node.LeaderEndpoint()
	return peer.Endpoint(e), ok
}

// handleController answers on the controller's listeners.
func (b *Broker) handleController(ctx context.Context, c *api.Call) kmsg.Response {
	resp, err := b.node.Handle(ctx, &kraft.RequestContext{
		Principal: c.Conn.Principal().String(), ClientID: c.Header.ClientID, Listener: c.Conn.ListenerName(),
		ClientAddr: c.Conn.RemoteAddr().Addr(),
	}, c.Request)
	if err != nil {
		b.log.Error("controller cannot handle a request", "api", protocol.APIName(c.Header.Key), "error", err)
		return nil
	}
	return resp
}

// controllerKeys are the APIs that the controller answers.
func controllerKeys() []int16 {
	var out []int16
	for _, a := range protocol.APIs() {
		if kraft.Supported(a.Key) {
			out = append(out, a.Key)
		}
	}
	return out
}

// announce writes the first line of the log.
func (b *Broker) announce(sockets []socket) {
	var names []string
	for _, s := range sockets {
		names = append(names, s.listener.Name+"://"+s.net.Addr().String())
	}
	say := func() {
		b.log.Info("Gregor starts", "version", b.o.Version, "node", b.cfg.Node.ID, "roles", strings.Join(b.cfg.Node.Roles, ","),
			"listeners", strings.Join(names, ","), "cluster", b.manager.ClusterID(), "logDirs", strings.Join(b.cfg.Storage.Dirs, ","))
	}
	if b.o.Introduce != nil {
		b.o.Introduce(say)
	} else {
		say()
	}
}

// watchQuorum ends the node when the quorum's log fails: a controller without it is none.
func (b *Broker) watchQuorum(ctx context.Context) {
	b.wg.Go(func() {
		select {
		case <-b.node.Done():
			if ctx.Err() == nil {
				b.fail(fmt.Errorf("metadata quorum stopped: %w", b.node.Err()))
			}
		case <-ctx.Done():
		}
	})
}

// join registers the broker, waits until the controller has unfenced it and its logs are loaded, and opens its
// listeners to clients.
func (b *Broker) join(ctx, background context.Context, sockets []socket) error {
	l := b.lifecycle
	l.controllers, l.cfg, l.clusterID, l.images, l.log = b.controllers, b.cfg, b.manager.ClusterID(), b.node, b.log
	l.listeners = registrationListeners(b.cfg, sockets)
	l.offline, l.ready = b.offlineDirs, b.ready
	b.placement.told = l.wake
	for _, d := range b.manager.Dirs() {
		if d.HoldsLogs && d.Err == nil {
			l.directories = append(l.directories, d.ID)
		}
	}
	l.previousEpoch = b.previousEpoch
	b.wg.Go(func() {
		if err := l.run(background); err != nil {
			b.fail(err)
		}
	})
	b.wg.Go(func() { b.placement.run(background) })
	b.wg.Go(func() { b.replicas.Run(background) })
	if err := b.awaitReady(ctx); err != nil {
		return err
	}
	if err := b.awaitUnfencedImage(ctx); err != nil {
		return err
	}
	return b.serve(sockets, false)
}

// waitNotice is how often a start that waits says for what.
const waitNotice = 10 * time.Second

// awaitReady waits until the logs are loaded and the controller has unfenced the broker.
func (b *Broker) awaitReady(ctx context.Context) error {
	notice := time.NewTicker(waitNotice)
	defer notice.Stop()
	began := time.Now()
	for _, ready := range []<-chan struct{}{b.loaded.done, b.lifecycle.unfenced} {
		for waiting := true; waiting; {
			select {
			case <-ready:
				waiting = false
			case <-notice.C:
				b.log.Info("not serving clients yet", "after", time.Since(began).Round(time.Second).String(), "waitingFor", b.awaited())
			case err := <-b.failed:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}

// awaited says what the start waits for.
func (b *Broker) awaited() string {
	_, active := b.activeController()
	select {
	case <-b.loaded.done:
	default:
		if b.node.Image().Provenance.Offset >= 0 {
			return "the logs to be loaded"
		}
	}
	switch {
	case !active:
		return "an active controller"
	case b.lifecycle.Epoch() < 0:
		return "the controller to register this broker"
	}
	return "the controller to unfence this broker"
}

// awaitUnfencedImage waits until all parts of this broker have taken over an image that says that it serves: a
// client's first Metadata must list it, and its first produce find the leaders that it lists.
func (b *Broker) awaitUnfencedImage(ctx context.Context) error {
	for {
		img, moved := b.settled.load()
		if img.Cluster.Alive(b.cfg.Node.ID) {
			return nil
		}
		select {
		case <-moved:
		case err := <-b.failed:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// fail reports the first reason why the node cannot go on.
func (b *Broker) fail(err error) {
	select {
	case b.failed <- err:
	default:
	}
}

// Failed gives the reason when the node cannot go on by itself; the caller then stops it.
func (b *Broker) Failed() <-chan error { return b.failed }

// Stop stops in order. When ctx ends first, it goes on without waiting for the controller and for clients.
func (b *Broker) Stop(ctx context.Context) error {
	var errs []error
	if b.cfg.Node.Broker && b.cfg.Node.ControlledShutdown {
		if err := b.lifecycle.controlledShutdown(ctx); err != nil {
			b.log.Warn("stopping without the controller's leave", "error", err)
		}
	}
	epoch := b.epoch()
	if err := b.network.Stop(ctx); err != nil {
		b.log.Debug("connections were cut", "error", err)
	}
	if b.groups != nil {
		b.groups.Close()
	}
	b.cancel()
	b.wg.Wait()
	errs = append(errs, b.node.Stop(ctx))
	b.pool.Close()
	b.quorumPool.Close()
	errs = append(errs, b.manager.Shutdown(epoch))
	return errors.Join(errs...)
}

// abandon gives up what a failed start has opened.
func (b *Broker) abandon() {
	b.cancel()
	if b.network != nil {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		_ = b.network.Stop(now) // the start failed; connections are cut
	}
	for _, s := range b.sockets {
		_ = s.net.Close() // the network has closed those that it served
	}
	if b.pool != nil {
		b.pool.Close()
		b.quorumPool.Close()
	}
	b.wg.Wait()
	if b.groups != nil {
		b.groups.Close()
	}
	if b.node != nil {
		if err := b.node.Stop(context.Background()); err != nil {
			b.log.Debug("quorum did not stop cleanly after the failed start", "error", err)
		}
	}
	if b.manager != nil {
		b.manager.Kill()
	}
}
