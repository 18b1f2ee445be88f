package kraft

import (
	"context"
	"log/slog"
	"sync"

	"gregor/kraft/quorum"
)

// peerQueueMessages is how many messages may wait for one peer; raft copes with the loss of more.
const peerQueueMessages = 256

// transport carries raft messages to other controllers over their controller listeners. It implements
// quorum.Transport: one goroutine per peer sends what its queue holds.
type transport struct {
	o           *Options
	logger      *slog.Logger
	unreachable func(id int32)

	mu     sync.Mutex
	peers  map[int32]*peerQueue
	closed bool
	ctx    context.Context //nolint:containedctx // ends the senders at close
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

type peerQueue struct {
	messages chan []byte
	mu       sync.Mutex
	to       quorum.Peer
}

func newTransport(o *Options) *transport {
	t := &transport{o: o, logger: o.Logger, peers: make(map[int32]*peerQueue), unreachable: func(int32) {}}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// Send implements quorum.Transport.
func (t *transport) Send(to quorum.Peer, msg []byte) {
	t.mu.Lock()
	if t.closed || t.o.Client == nil {
		t.mu.Unlock()
		return
	}
	q := t.peers[to.ID]
	if q == nil {
		q = &peerQueue{messages: make(chan []byte, peerQueueMessages)}
		t.peers[to.ID] = q
		t.wg.Go(func() { t.send(to.ID, q) })
	}
	t.mu.Unlock()
	q.mu.Lock()
	q.to = to
	q.mu.Unlock()
	select {
	case q.messages <- msg:
	default:
	}
}

// resolve finds where a peer listens: what the voter set says, else controller.quorum.voters.
func (t *transport) resolve(q *peerQueue) (Endpoint, bool) {
	q.mu.Lock()
	to := q.to
	q.mu.Unlock()
	if e, ok := t.o.endpointOf(to.ID, to.Endpoints); ok {
		return e, true
	}
	for _, v := range t.o.Quorum.StaticVoters {
		if v.Key.ID == to.ID {
			return t.o.endpointOf(to.ID, v.Endpoints)
		}
	}
	return Endpoint{}, false
}

// send sends the messages of one peer in order. After a failure the waiting ones are dropped: they are old by then.
func (t *transport) send(id int32, q *peerQueue) {
	for {
		var msg []byte
		select {
		case <-t.ctx.Done():
			return
		case msg = <-q.messages:
		}
		to, ok := t.resolve(q)
		if !ok {
			t.logger.Warn("metadata quorum: no address of a peer", "peer", id)
			continue
		}
		ctx, cancel := context.WithTimeout(t.ctx, t.o.Quorum.RequestTimeout)
		_, err := t.o.Client.SendPeer(ctx, to, msg)
		cancel()
		if err == nil || t.ctx.Err() != nil {
			continue
		}
		t.logger.Debug("metadata quorum: message not delivered", "peer", id, "error", err)
		for len(q.messages) > 0 {
			<-q.messages
		}
		t.unreachable(id)
	}
}

func (t *transport) close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.cancel()
	t.wg.Wait()
}
