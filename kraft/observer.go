package kraft

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/internal/outage"
	"gregor/kraft/quorum"
	"gregor/protocol"
)

// Limits and versions of an observer's requests.
const (
	observerFetchVersion    = 18
	observerSnapshotVersion = 1
	observerMaxBytes        = 8 << 20
	// observerIdle is how often a voter looks whether it has become an observer.
	observerIdle = 200 * time.Millisecond
	// observerGrace is how long no controller may be of use before a line says so; an election takes less.
	observerGrace = 3 * time.Second
)

// followedLog is what the observer needs of the quorum.
type followedLog interface {
	FetchState() quorum.FollowState
	HandleFetched(ctx context.Context, f quorum.FetchedFromLeader) error
	HandleLeader(ctx context.Context, l quorum.LeaderAndEpoch) error
	BeginSnapshot(id quorum.SnapshotID) (*quorum.SnapshotDownload, error)
	Voters() quorum.VoterSet
	Err() error
}

// observer brings the metadata log to a node that does not vote: Fetch and FetchSnapshot from the active controller.
// On a voter it sleeps.
type observer struct {
	o      *Options
	log    followedLog
	logger *slog.Logger

	mu    sync.Mutex
	known map[int32]Endpoint // addresses that answers named

	trouble outage.Outage // with all controllers: silent, or none knows a leader

	round  int             // which of the servers to try next while no leader is known
	ctx    context.Context //nolint:containedctx // ends the goroutine at close
	cancel context.CancelFunc
	done   chan struct{}
}

func newObserver(o *Options, log followedLog) *observer {
	b := &observer{
		o: o, log: log, logger: o.Logger, known: make(map[int32]Endpoint), done: make(chan struct{}),
		trouble: outage.Outage{Grace: observerGrace},
	}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b
}

// endpoint gives the address of a node that some answer named.
func (b *observer) endpoint(id int32) (Endpoint, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, ok := b.known[id]
	return e, ok
}

func (b *observer) learn(id int32, host string, port int32) {
	if id < 0 || host == "" || port <= 0 || port > 65535 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.known[id] = Endpoint{NodeID: id, Host: host, Port: uint16(port)}
}

func (b *observer) close() {
	b.cancel()
	<-b.done
}

// run follows the log until close.
func (b *observer) run() {
	defer close(b.done)
	for b.ctx.Err() == nil {
		state := b.log.FetchState()
		if !state.Following || b.o.Client == nil {
			b.pause(observerIdle)
			continue
		}
		to, ok := b.target(state)
		if !ok {
			b.fails("none", errNoAddress)
			continue
		}
		if err := b.fetch(to, state); err != nil && b.ctx.Err() == nil {
			b.round++
			b.fails(address(to), err)
		} else if say, lasted := b.trouble.Ends(time.Now()); say && b.ctx.Err() == nil {
			b.logger.Info("metadata quorum: a controller is of use", "controller", address(to), "after", lasted.Round(time.Millisecond).String())
		}
		if b.log.Err() != nil {
			return
		}
	}
}

func address(e Endpoint) string { return net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port))) }

// errNoAddress is why nothing can be asked of a quorum.
var errNoAddress = errors.New("the address of no controller is known: set controller.quorum.bootstrap.servers or controller.quorum.voters")

// fails notes a failed round and waits before the next.
func (b *observer) fails(controller string, err error) {
	if say, lasted := b.trouble.Fails(time.Now()); say {
		b.logger.Warn("metadata quorum: no controller is of use, trying on", "for", lasted.Round(time.Second).String(), "controller", controller, "error", err)
	}
	b.pause(b.o.Quorum.RetryBackoff)
}

func (b *observer) pause(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-b.ctx.Done():
	case <-t.C:
	}
}

// target is the leader when its address is known, else one of the bootstrap servers and voters in turn.
func (b *observer) target(state quorum.FollowState) (Endpoint, bool) {
	if id := state.Leader.LeaderID; id != quorum.NoLeader && id != b.o.NodeID && b.round == 0 {
		if v, ok := b.log.Voters().Get(id); ok {
			if e, ok := b.o.endpointOf(id, v.Endpoints); ok {
				return e, true
			}
		}
		if e, ok := b.endpoint(id); ok {
			return e, true
		}
	}
	candidates := b.candidates()
	if len(candidates) == 0 {
		return Endpoint{}, false
	}
	return candidates[b.round%len(candidates)], true
}

// candidates are all addresses at which a controller may listen.
func (b *observer) candidates() []Endpoint {
	out := append([]Endpoint(nil), b.o.Quorum.BootstrapServers...)
	for _, voters := range [][]quorum.Voter{b.o.Quorum.StaticVoters, b.log.Voters().All()} {
		for _, v := range voters {
			if e, ok := b.o.endpointOf(v.Key.ID, v.Endpoints); ok && v.Key.ID != b.o.NodeID {
				out = append(out, e)
			}
		}
	}
	return out
}

// fetch does one round: asks for what comes after the end of the log, and takes the answer.
func (b *observer) fetch(to Endpoint, state quorum.FollowState) error {
	ctx, cancel := context.WithTimeout(b.ctx, b.o.Quorum.FetchMaxWait+b.o.Quorum.RequestTimeout)
	defer cancel()
	answer, err := b.o.Client.Do(ctx, to, b.fetchRequest(state))
	if err != nil {
		return err
	}
	resp, ok := answer.(*kmsg.FetchResponse)
	if !ok {
		return fmt.Errorf("answer of type %T to a fetch", answer)
	}
	if resp.ErrorCode != 0 {
		return fmt.Errorf("fetch refused: %s", protocol.ErrorName(resp.ErrorCode))
	}
	for _, node := range resp.Brokers {
		b.learn(node.NodeID, node.Host, node.Port)
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return errors.New("fetch answered without the partition asked for")
	}
	return b.take(to, &resp.Topics[0].Partitions[0])
}

// take does what the answer of a node says: follow another leader, fetch a snapshot, or append.
func (b *observer) take(to Endpoint, p *kmsg.FetchResponseTopicPartition) error {
	leader := quorum.LeaderAndEpoch{LeaderID: p.CurrentLeader.LeaderID, Epoch: p.CurrentLeader.LeaderEpoch}
	if p.ErrorCode != 0 {
		if err := b.log.HandleLeader(b.ctx, leader); err != nil {
			return err
		}
		// Without news of a leader the next one in turn is asked, after a pause: this node may be cut off from the others
		// and say the same for ever.
		if leader.LeaderID == quorum.NoLeader || leader.LeaderID == to.NodeID || b.log.FetchState().Leader != leader {
			return fmt.Errorf("fetch refused: %s", protocol.ErrorName(p.ErrorCode))
		}
		b.round = 0
		return nil
	}
	b.round = 0
	if to.NodeID >= 0 && leader.LeaderID == to.NodeID {
		b.learn(to.NodeID, to.Host, int32(to.Port))
	} else if to.NodeID < 0 {
		// A bootstrap server that serves fetches is the leader.
		b.learn(leader.LeaderID, to.Host, int32(to.Port))
	}
	if p.SnapshotID.Epoch >= 0 && p.SnapshotID.EndOffset >= 0 {
		id := quorum.SnapshotID{Offset: p.SnapshotID.EndOffset, Epoch: p.SnapshotID.Epoch}
		if err := b.log.HandleLeader(b.ctx, leader); err != nil {
			return err
		}
		return b.download(to, leader.Epoch, id)
	}
	got := quorum.FetchedFromLeader{Leader: leader, HighWatermark: p.HighWatermark, Records: p.RecordBatches}
	if p.DivergingEpoch.Epoch >= 0 && p.DivergingEpoch.EndOffset >= 0 {
		got.Diverging = &quorum.EpochEndOffset{Epoch: p.DivergingEpoch.Epoch, EndOffset: p.DivergingEpoch.EndOffset}
	}
	return b.log.HandleFetched(b.ctx, got)
}

func (b *observer) fetchRequest(state quorum.FollowState) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version = observerFetchVersion
	req.ClusterID = &b.o.ClusterID
	req.ReplicaID = b.o.NodeID
	req.ReplicaState.ID, req.ReplicaState.Epoch = b.o.NodeID, -1
	req.MaxWaitMillis = int32(b.o.Quorum.FetchMaxWait.Milliseconds())
	req.MinBytes, req.MaxBytes = 0, observerMaxBytes
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = quorum.Topic, quorum.TopicID
	p := kmsg.NewFetchRequestTopicPartition()
	p.CurrentLeaderEpoch = state.Leader.Epoch
	p.FetchOffset, p.LastFetchedEpoch, p.LogStartOffset = state.FetchOffset, state.LastFetchedEpoch, -1
	p.PartitionMaxBytes = observerMaxBytes
	p.ReplicaDirectoryID = b.o.DirectoryID
	p.HighWatermark = state.HighWatermark
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

// download fetches a snapshot piece by piece and puts it in the place of the log.
func (b *observer) download(from Endpoint, epoch int32, id quorum.SnapshotID) error {
	d, err := b.log.BeginSnapshot(id)
	if err != nil {
		return err
	}
	defer d.Abort()
	for {
		size, err := b.piece(from, epoch, d)
		if err != nil {
			return fmt.Errorf("snapshot %s: %w", id, err)
		}
		if d.Position() >= size {
			return d.Complete()
		}
	}
}

// piece fetches the next piece and gives the size of the whole.
func (b *observer) piece(from Endpoint, epoch int32, d *quorum.SnapshotDownload) (int64, error) {
	req := kmsg.NewPtrFetchSnapshotRequest()
	req.Version = observerSnapshotVersion
	req.ClusterID, req.ReplicaID, req.MaxBytes = &b.o.ClusterID, b.o.NodeID, observerMaxBytes
	t := kmsg.NewFetchSnapshotRequestTopic()
	t.Topic = quorum.Topic
	p := kmsg.NewFetchSnapshotRequestTopicPartition()
	p.CurrentLeaderEpoch, p.Position = epoch, d.Position()
	p.SnapshotID.EndOffset, p.SnapshotID.Epoch = d.ID().Offset, d.ID().Epoch
	p.ReplicaDirectoryID = b.o.DirectoryID
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	ctx, cancel := context.WithTimeout(b.ctx, b.o.Quorum.RequestTimeout)
	defer cancel()
	answer, err := b.o.Client.Do(ctx, from, req)
	if err != nil {
		return 0, err
	}
	resp, ok := answer.(*kmsg.FetchSnapshotResponse)
	if !ok || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return 0, errors.New("unexpected answer to a snapshot fetch")
	}
	got := &resp.Topics[0].Partitions[0]
	switch {
	case resp.ErrorCode != 0:
		return 0, fmt.Errorf("refused: %s", protocol.ErrorName(resp.ErrorCode))
	case got.ErrorCode != 0:
		return 0, fmt.Errorf("refused: %s", protocol.ErrorName(got.ErrorCode))
	case got.Position != d.Position() || len(got.Bytes) == 0:
		return 0, fmt.Errorf("piece at %d of %d bytes where %d was asked for", got.Position, len(got.Bytes), d.Position())
	}
	if _, err := d.Write(got.Bytes); err != nil {
		return 0, err
	}
	return got.Size, nil
}
