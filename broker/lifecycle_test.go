package broker

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/broker/config"
	"gregor/broker/peer"
	"gregor/kraft/image"
	"gregor/protocol"
	"gregor/storage/checkpoint"
	"gregor/storage/vfs"
)

// fakeController answers requests on pipes with what answer returns.
type fakeController struct {
	mu     sync.Mutex
	seen   []kmsg.Request
	answer func(req kmsg.Request, nth int) kmsg.Response
}

func (f *fakeController) dial(context.Context, string) (net.Conn, error) {
	near, far := net.Pipe()
	go f.serve(far)
	return near, nil
}

func (f *fakeController) serve(nc net.Conn) {
	defer func() { _ = nc.Close() }()
	for {
		var size [4]byte
		if _, err := io.ReadFull(nc, size[:]); err != nil {
			return
		}
		frame := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(nc, frame); err != nil {
			return
		}
		hdr, body, err := protocol.ParseRequest(frame)
		if err != nil {
			return
		}
		req, err := protocol.DecodeRequest(hdr, body)
		if err != nil {
			return
		}
		f.mu.Lock()
		f.seen = append(f.seen, req)
		resp := f.answer(req, len(f.seen))
		f.mu.Unlock()
		resp.SetVersion(hdr.Version)
		if _, err := nc.Write(protocol.AppendResponse(nil, hdr, resp)); err != nil {
			return
		}
	}
}

// requests are those of one kind that were sent so far.
func requests[R kmsg.Request](f *fakeController) []R {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []R
	for _, r := range f.seen {
		if x, ok := r.(R); ok {
			out = append(out, x)
		}
	}
	return out
}

// newTestLifecycle is a lifecycle of broker 1 that talks to the fake controller.
func newTestLifecycle(t *testing.T, f *fakeController, img *image.Cell) *lifecycle {
	t.Helper()
	cfg, _, err := config.Load(config.Options{Overrides: []string{"broker.heartbeat.interval.ms=20", "broker.session.timeout.ms=2000"}})
	if err != nil {
		t.Fatal(err)
	}
	pool := peer.NewPool(peer.Options{Dial: f.dial})
	t.Cleanup(pool.Close)
	log := slog.New(slog.DiscardHandler)
	l := newLifecycle()
	l.cfg, l.clusterID, l.images, l.log, l.previousEpoch = cfg, "c", img, log, 7
	l.offline = func() []protocol.UUID { return nil }
	l.controllers = &controllers{
		pool: pool, active: func() (peer.Endpoint, bool) { return peer.Endpoint{NodeID: 1}, true },
		cfg: func() *config.Config { return cfg }, log: log, creating: map[string]bool{},
	}
	return l
}

func imageAt(offset int64) *image.Image {
	return image.NewDelta(image.Empty()).Apply(image.Provenance{Offset: offset})
}

// runUntil runs the lifecycle until done is closed.
func runUntil(t *testing.T, l *lifecycle, done <-chan struct{}) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.run(ctx) }()
	select {
	case <-done:
	case err := <-ended:
		cancel()
		t.Fatalf("run ended: %v", err)
	case <-time.After(10 * time.Second):
		t.Error("did not come to it in 10 s")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("run: %v", err)
	}
}

func registered(epoch int64, code int16) *kmsg.BrokerRegistrationResponse {
	r := kmsg.NewPtrBrokerRegistrationResponse()
	r.BrokerEpoch, r.ErrorCode = epoch, code
	return r
}

func beat(fenced bool, code int16) *kmsg.BrokerHeartbeatResponse {
	r := kmsg.NewPtrBrokerHeartbeatResponse()
	r.IsFenced, r.ErrorCode = fenced, code
	return r
}

func TestBrokerAsksToBeFencedUntilItsMetadataHasItsRegistration(t *testing.T) {
	var img image.Cell
	img.Store(imageAt(10))
	f := &fakeController{}
	f.answer = func(req kmsg.Request, _ int) kmsg.Response {
		switch r := req.(type) {
		case *kmsg.BrokerRegistrationRequest:
			return registered(42, 0)
		case *kmsg.BrokerHeartbeatRequest:
			if r.WantFence {
				img.Store(imageAt(42)) // the registration arrives
			}
			return beat(r.WantFence, 0)
		}
		return nil
	}
	l := newTestLifecycle(t, f, &img)
	runUntil(t, l, l.unfenced)
	if reg := requests[*kmsg.BrokerRegistrationRequest](f); len(reg) != 1 || reg[0].PreviousBrokerEpoch != 7 || reg[0].IncarnationID != l.incarnation {
		t.Errorf("registrations %+v", reg)
	}
	beats := requests[*kmsg.BrokerHeartbeatRequest](f)
	if !beats[0].WantFence || beats[0].BrokerEpoch != 42 || beats[len(beats)-1].WantFence {
		t.Errorf("heartbeats %+v", beats)
	}
}

// A replica that is created, or turns out to be damaged, is news for the controller: until it has been told the broker is
// not idle, but it serves on.
func TestBrokerThatServesDoesNotAskToBeFencedForNewsOfItsReplicas(t *testing.T) {
	var img image.Cell
	img.Store(imageAt(100))
	var ready atomic.Bool
	registrations, served := 0, 0
	again := make(chan struct{})
	f := &fakeController{}
	f.answer = func(req kmsg.Request, nth int) kmsg.Response {
		r, ok := req.(*kmsg.BrokerHeartbeatRequest)
		if !ok {
			registrations++
			return registered(int64(40+registrations), 0)
		}
		switch {
		case registrations == 1 && !r.WantFence:
			ready.Store(false)
			if served++; served == 3 {
				return beat(true, kerr.StaleBrokerEpoch.Code)
			}
		case registrations == 2:
			if r.WantFence {
				closeOnce(again)
			}
		case served > 0:
			t.Error("a broker that serves asks to be fenced")
			closeOnce(again)
		case nth > 3:
			ready.Store(true)
		}
		return beat(r.WantFence, 0)
	}
	l := newTestLifecycle(t, f, &img)
	l.ready = ready.Load
	runUntil(t, l, again)
	if served != 3 {
		t.Errorf("%d heartbeats asked to serve before the registration was gone", served)
	}
}

func TestBrokerThatIsNotReadyWaitsToBeWoken(t *testing.T) {
	var img image.Cell
	img.Store(imageAt(100))
	var ready atomic.Bool
	f := &fakeController{}
	f.answer = func(req kmsg.Request, _ int) kmsg.Response {
		if r, ok := req.(*kmsg.BrokerHeartbeatRequest); ok {
			return beat(r.WantFence, 0)
		}
		return registered(42, 0)
	}
	l := newTestLifecycle(t, f, &img)
	l.cfg.Node.HeartbeatMillis = 60_000
	l.ready = ready.Load
	time.AfterFunc(20*retryBackoff, func() {
		ready.Store(true)
		l.wake()
	})
	runUntil(t, l, l.unfenced)
	if n := len(requests[*kmsg.BrokerHeartbeatRequest](f)); n != 2 {
		t.Errorf("%d heartbeats while it was not ready", n-1)
	}
}

func TestRegistrationIsRetriedWhileAnEarlierSessionLastsAndWhileControllersChange(t *testing.T) {
	var img image.Cell
	img.Store(imageAt(50))
	f := &fakeController{answer: func(req kmsg.Request, nth int) kmsg.Response {
		if _, ok := req.(*kmsg.BrokerHeartbeatRequest); ok {
			return beat(false, 0)
		}
		switch nth {
		case 1:
			return registered(-1, kerr.DuplicateBrokerRegistration.Code)
		case 2:
			return registered(-1, kerr.NotController.Code)
		case 3:
			return registered(-1, kerr.RequestTimedOut.Code)
		}
		return registered(42, 0)
	}}
	l := newTestLifecycle(t, f, &img)
	runUntil(t, l, l.unfenced)
	if n := len(requests[*kmsg.BrokerRegistrationRequest](f)); n != 4 {
		t.Errorf("%d registrations", n)
	}
}

func TestBrokerOfAnotherClusterGivesUp(t *testing.T) {
	var img image.Cell
	f := &fakeController{answer: func(kmsg.Request, int) kmsg.Response {
		return registered(-1, kerr.InconsistentClusterID.Code)
	}}
	l := newTestLifecycle(t, f, &img)
	if err := l.run(t.Context()); !errors.Is(err, errFatal) || !errors.Is(err, kerr.InconsistentClusterID) {
		t.Errorf("run: %v", err)
	}
}

func TestBrokerRegistersAgainWhenItsRegistrationIsGone(t *testing.T) {
	var img image.Cell
	img.Store(imageAt(100))
	again := make(chan struct{})
	registrations, beats := 0, 0
	f := &fakeController{answer: func(req kmsg.Request, _ int) kmsg.Response {
		if _, ok := req.(*kmsg.BrokerRegistrationRequest); ok {
			registrations++
			if registrations == 2 {
				close(again)
			}
			return registered(int64(40+registrations), 0)
		}
		beats++
		if beats == 2 {
			return beat(true, kerr.StaleBrokerEpoch.Code)
		}
		return beat(false, 0)
	}}
	l := newTestLifecycle(t, f, &img)
	runUntil(t, l, again)
}

func TestControlledShutdownWaitsForTheControllersLeave(t *testing.T) {
	var img image.Cell
	img.Store(imageAt(100))
	wishes := 0
	f := &fakeController{answer: func(req kmsg.Request, _ int) kmsg.Response {
		r, ok := req.(*kmsg.BrokerHeartbeatRequest)
		if !ok {
			return registered(42, 0)
		}
		resp := beat(false, 0)
		if r.WantShutdown {
			wishes++
			resp.ShouldShutdown = wishes > 3
		}
		return resp
	}}
	l := newTestLifecycle(t, f, &img)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.run(ctx) }()
	<-l.unfenced
	if err := l.controlledShutdown(timeout(t)); err != nil {
		t.Error(err)
	}
	cancel()
	<-ended
	f.mu.Lock()
	defer f.mu.Unlock()
	if wishes < 4 {
		t.Errorf("it left after %d heartbeats", wishes)
	}
}

func TestProducerIDsComeFromBlocksAndNewOnesAreFetched(t *testing.T) {
	next := int64(0)
	f := &fakeController{answer: func(req kmsg.Request, _ int) kmsg.Response {
		r := kmsg.NewPtrAllocateProducerIDsResponse()
		if x, ok := req.(*kmsg.AllocateProducerIDsRequest); !ok || x.BrokerEpoch != 42 {
			r.ErrorCode = kerr.StaleBrokerEpoch.Code
			return r
		}
		r.ProducerIDStart, r.ProducerIDLen = next, 3
		next += 3
		return r
	}}
	l := newTestLifecycle(t, f, &image.Cell{})
	p := &producerIDs{controllers: l.controllers, nodeID: 1, epoch: func() int64 { return 42 }}
	for want := range int64(7) {
		if id, err := p.Next(timeout(t)); err != nil || id != want {
			t.Errorf("id %d, %v; want %d", id, err, want)
		}
	}
	stale := &producerIDs{controllers: l.controllers, nodeID: 1, epoch: func() int64 { return 1 }}
	if _, err := stale.Next(timeout(t)); !errors.Is(err, kerr.CoordinatorLoadInProgress) {
		t.Errorf("with a stale epoch: %v", err)
	}
}

// The file that proves a clean stop goes when the logs are loaded, which may be as soon as the quorum has started: the
// broker has read it by then. Without it the controller must think that the broker's disk lacks data.
func TestCleanStopIsToldHoweverFastTheLogsAreLoaded(t *testing.T) {
	n := newTestNode(t)
	n.createTopic(n.client(), "t", 1, nil)
	n.stop()
	slow := vfs.InjectorFunc(func(op vfs.Op) error {
		if op.Kind == vfs.OpOpen && strings.HasSuffix(op.Name, checkpoint.CleanShutdownFile) {
			<-time.After(300 * time.Millisecond)
		}
		return nil
	})
	n.fs = vfs.NewErr(vfs.Real(), slow)
	n.start()
	p := n.broker.node.Image().Topics.Partition("t", 0)
	if p == nil || p.LeaderRecoveryState != 0 || len(p.LastKnownELR) > 0 {
		t.Errorf("after a clean stop the partition is %+v", p)
	}
}
