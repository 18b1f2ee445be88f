package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/broker/config"
	"gregor/internal/outage"
	"gregor/kraft/image"
	"gregor/kraft/metadata"
	"gregor/protocol"
)

// lifecycle keeps the broker registered with the controller: registration, heartbeats, unfencing and controlled
// shutdown (KIP-631). One goroutine, run, does it all; the others set what it wants and wait for what it has seen.
type lifecycle struct {
	controllers *controllers
	cfg         *config.Config
	clusterID   string
	listeners   []kmsg.BrokerRegistrationRequestListener
	directories []protocol.UUID
	// offline are the directories that failed while the broker ran.
	offline func() []protocol.UUID
	// ready tells whether the broker can serve what the metadata up to its registration gives it; nil for at once. Once it
	// could, it is not asked again in that epoch: a broker that asks to be fenced because it has news for the controller
	// loses all its leaderships.
	ready  func() bool
	images image.Source
	log    *slog.Logger

	incarnation protocol.UUID
	// previousEpoch is that of the clean-shutdown file, -1 without one.
	previousEpoch int64
	epoch         atomic.Int64 // -1 before the registration
	readyEpoch    int64        // the last one in which ready was true

	trouble outage.Outage // with registration and heartbeats

	mu       sync.Mutex
	stopping bool
	// kick wakes run before the next heartbeat is due.
	kick chan struct{}
	// unfenced and released are closed when the controller first says that the broker is not fenced, and that it
	// may stop.
	unfenced, released chan struct{}
}

func newLifecycle() *lifecycle {
	l := &lifecycle{
		incarnation: protocol.RandomUUID(), previousEpoch: -1, readyEpoch: -1,
		kick: make(chan struct{}, 1), unfenced: make(chan struct{}), released: make(chan struct{}),
	}
	l.epoch.Store(-1)
	return l
}

// Epoch is the epoch of the registration, -1 before it.
func (l *lifecycle) Epoch() int64 { return l.epoch.Load() }

// wake makes run look at the state again at once.
func (l *lifecycle) wake() {
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

// errFatal marks an answer of the controller that no retry changes.
var errFatal = errors.New("the controller refuses this broker")

// run registers the broker and sends heartbeats until ctx ends. It returns an error when the controller refuses the
// broker for good.
func (l *lifecycle) run(ctx context.Context) error {
	interval := time.Duration(l.cfg.Node.HeartbeatMillis) * time.Millisecond
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-l.kick:
		}
		again, err := l.step(ctx)
		if errors.Is(err, errFatal) {
			return err
		}
		l.report(ctx, err)
		if again {
			timer.Reset(retryBackoff)
		} else {
			timer.Reset(interval)
		}
	}
}

// report logs that the controller cannot be reached or refuses, and that it is over.
func (l *lifecycle) report(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		if say, lasted := l.trouble.Ends(time.Now()); say {
			l.log.Info("the controller takes registration and heartbeats again", "after", lasted.Round(time.Millisecond).String())
		}
		return
	}
	say, lasted := l.trouble.Fails(time.Now())
	switch {
	case !say:
	case errors.Is(err, kerr.DuplicateBrokerRegistration):
		l.log.Warn("another broker with this node.id is registered: waiting for its session to end, as it does when it was an earlier run of this one",
			"node", l.cfg.Node.ID, "for", lasted.Round(time.Second).String())
	default:
		l.log.Warn("no heartbeat is taken by the controller, trying on", "for", lasted.Round(time.Second).String(), "error", err)
	}
}

// step registers or sends one heartbeat. It returns whether the next one is due at once.
func (l *lifecycle) step(ctx context.Context) (again bool, err error) {
	if l.Epoch() < 0 {
		if err := l.register(ctx); err != nil {
			return true, err
		}
	}
	return l.heartbeat(ctx)
}

func (l *lifecycle) register(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(l.cfg.Node.RegistrationMillis)*time.Millisecond)
	defer cancel()
	req := kmsg.NewPtrBrokerRegistrationRequest()
	req.SetVersion(4)
	req.BrokerID, req.ClusterID, req.IncarnationID = l.cfg.Node.ID, l.clusterID, l.incarnation
	req.Listeners = l.listeners
	for _, f := range metadata.SupportedFeatures() {
		x := kmsg.NewBrokerRegistrationRequestFeature()
		x.Name, x.MinSupportedVersion, x.MaxSupportedVersion = f.Name, f.Min, f.Max
		req.Features = append(req.Features, x)
	}
	if l.cfg.Node.Rack != "" {
		req.Rack = &l.cfg.Node.Rack
	}
	for _, d := range l.directories {
		req.LogDirs = append(req.LogDirs, d)
	}
	req.PreviousBrokerEpoch = l.previousEpoch
	resp, err := l.controllers.do(ctx, req, func(r kmsg.Response) bool {
		x, ok := r.(*kmsg.BrokerRegistrationResponse)
		return ok && x.ErrorCode == kerr.NotController.Code
	})
	if err != nil {
		return fmt.Errorf("registration: %w", err)
	}
	x, _ := resp.(*kmsg.BrokerRegistrationResponse)
	switch x.ErrorCode {
	case 0:
		l.epoch.Store(x.BrokerEpoch)
		l.log.Debug("registered with the controller", "brokerEpoch", x.BrokerEpoch)
		return nil
	case kerr.DuplicateBrokerRegistration.Code:
		// The session of an earlier run of this broker has not expired yet: it will.
		return fmt.Errorf("registration: %w", kerr.DuplicateBrokerRegistration)
	}
	if err := kerr.ErrorForCode(x.ErrorCode); kerr.IsRetriable(err) {
		return fmt.Errorf("registration: %w", err) // a busy controller is no reason to give up
	}
	return fmt.Errorf("%w: registration of broker %d: %w", errFatal, l.cfg.Node.ID, kerr.ErrorForCode(x.ErrorCode))
}

// heartbeat tells the controller what the broker wants: to be fenced until its own metadata contains its
// registration, then to serve, and at the end to stop.
func (l *lifecycle) heartbeat(ctx context.Context) (again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(l.cfg.Node.SessionTimeoutMillis)*time.Millisecond/2)
	defer cancel()
	l.mu.Lock()
	stopping := l.stopping
	l.mu.Unlock()
	offset := l.images.Image().Provenance.Offset
	req := kmsg.NewPtrBrokerHeartbeatRequest()
	req.SetVersion(2)
	req.BrokerID, req.BrokerEpoch = l.cfg.Node.ID, l.Epoch()
	req.CurrentMetadataOffset = offset
	if l.readyEpoch != l.Epoch() && offset >= l.Epoch() && (l.ready == nil || l.ready()) {
		l.readyEpoch = l.Epoch()
	}
	req.WantFence = l.readyEpoch != l.Epoch()
	req.WantShutdown = stopping
	for _, d := range l.offline() {
		req.OfflineLogDirs = append(req.OfflineLogDirs, d)
	}
	resp, err := l.controllers.do(ctx, req, func(r kmsg.Response) bool {
		x, ok := r.(*kmsg.BrokerHeartbeatResponse)
		return ok && x.ErrorCode == kerr.NotController.Code
	})
	if err != nil {
		return false, err
	}
	x, _ := resp.(*kmsg.BrokerHeartbeatResponse)
	switch x.ErrorCode {
	case 0:
	case kerr.StaleBrokerEpoch.Code, kerr.BrokerIDNotRegistered.Code:
		// The registration is gone: another incarnation took it, or an operator removed it.
		l.epoch.Store(-1)
		return true, fmt.Errorf("heartbeat: %w", kerr.ErrorForCode(x.ErrorCode))
	default:
		return false, fmt.Errorf("heartbeat: %w", kerr.ErrorForCode(x.ErrorCode))
	}
	if !x.IsFenced {
		closeOnce(l.unfenced)
	}
	if x.ShouldShutdown {
		closeOnce(l.released)
	}
	// Who asks to be fenced is woken when it need not be any more: to load the logs may take minutes.
	return x.IsFenced && !req.WantFence && !stopping || stopping && !x.ShouldShutdown, nil
}

// closeOnce closes a channel that only run closes.
func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}

// controlledShutdown asks the controller to move leadership away and waits until it says so, or ctx ends.
func (l *lifecycle) controlledShutdown(ctx context.Context) error {
	if l.Epoch() < 0 {
		return nil
	}
	l.mu.Lock()
	l.stopping = true
	l.mu.Unlock()
	l.wake()
	select {
	case <-l.released:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("controlled shutdown: %w", ctx.Err())
	}
}
