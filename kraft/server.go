package kraft

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/kraft/controller"
	"gregor/kraft/image"
	"gregor/kraft/metadata"
	"gregor/kraft/quorum"
	"gregor/protocol"
)

// proposer is what the controller needs of the quorum.
type proposer interface {
	Propose(epoch int32, recs []quorum.VersionedRecord) (baseOffset, lastOffset int64, err error)
	Bootstrap() ([]metadata.Record, bool, error)
	LogEndOffset() int64
	KRaftVersion() int16
	UpgradeKRaftVersion(ctx context.Context, level int16) error
	Resign(ctx context.Context, epoch int32) error
	Fail(err error)
}

// server is the controller of this node. One goroutine, run, owns all of it but the queues. While this node leads
// the quorum it decides requests; all the time it follows the committed log, so that it can take over at once.
type server struct {
	o      *ControllerOptions
	cfg    *controller.Config
	q      proposer
	logger *slog.Logger

	ops    chan *operation
	events chan event
	stop   chan struct{}
	done   chan struct{}

	// heard holds contacts of brokers whose heartbeats still wait in ops.
	heardMu sync.Mutex
	heard   map[contact]time.Time

	committed follower
	active    *activeState // nil while this node does not lead
	leader    quorum.LeaderAndEpoch
	gaveUp    bool // the last attempt to become active failed
	timer     *time.Timer
}

// contact names a session: a broker under an epoch.
type contact struct {
	broker int32
	epoch  int64
}

// operation is a request on its way to the goroutine and back.
type operation struct {
	ctx   context.Context //nolint:containedctx // it is the request's own, read once before deciding
	rc    *RequestContext
	req   kmsg.Request
	reply chan kmsg.Response // buffered, gets exactly one response
}

func (op *operation) refuse(f *controller.Fault) { op.reply <- controller.Refusal(op.req, f) }

// event is what the quorum tells; exactly one field is set.
type event struct {
	batch    *quorum.CommittedBatch
	snapshot *image.Image
	leader   *quorum.LeaderAndEpoch
}

// activeState exists while this node leads. Invariant: newest is the committed image plus all records proposed in
// this epoch, in order.
type activeState struct {
	epoch    int32
	newest   *image.Image
	next     int64 // offset of the next record, if nobody else appends
	sessions *controller.Sessions
	// registered holds the offset of each broker's RegisterBrokerRecord.
	registered map[int32]int64
	waiting    []waiter
	rand       *rand.Rand
	periodic   []*periodicTask
}

// waiter is a response that waits for the commit of an offset.
type waiter struct {
	offset int64
	op     *operation
	resp   kmsg.Response
	// upgrade is a kraft.version that the quorum is to be raised to before the response goes out.
	upgrade int16
}

func newServer(o *ControllerOptions, cfg *controller.Config, q proposer, logger *slog.Logger) *server {
	return &server{
		o: o, cfg: cfg, q: q, logger: logger,
		ops: make(chan *operation), events: make(chan event), stop: make(chan struct{}), done: make(chan struct{}),
		heard: make(map[contact]time.Time), committed: newFollower(),
		leader: quorum.LeaderAndEpoch{LeaderID: quorum.NoLeader},
	}
}

// run is the controller's goroutine.
func (s *server) run() {
	defer close(s.done)
	s.timer = time.NewTimer(time.Hour)
	defer s.timer.Stop()
	for {
		s.arm()
		select {
		case <-s.stop:
			s.resign()
			return
		case e := <-s.events:
			s.handleEvent(e)
		case op := <-s.ops:
			s.decide(op)
		case <-s.timer.C:
			s.runPeriodic(time.Now())
		}
	}
}

// close stops the goroutine.
func (s *server) close() {
	close(s.stop)
	<-s.done
}

// handle gives a request to the goroutine and waits for its response.
func (s *server) handle(ctx context.Context, rc *RequestContext, req kmsg.Request) kmsg.Response {
	if hb, ok := req.(*kmsg.BrokerHeartbeatRequest); ok {
		s.heardMu.Lock()
		s.heard[contact{hb.BrokerID, hb.BrokerEpoch}] = time.Now()
		s.heardMu.Unlock()
	}
	op := &operation{ctx: ctx, rc: rc, req: req, reply: make(chan kmsg.Response, 1)}
	select {
	case s.ops <- op:
	case <-s.stop:
		return controller.Refusal(req, controller.NotController())
	case <-ctx.Done():
		return controller.Refusal(req, controller.TimedOut())
	}
	select {
	case resp := <-op.reply:
		return resp
	case <-ctx.Done():
		return controller.Refusal(req, controller.TimedOut())
	}
}

// Commit implements quorum.StateMachine.
func (s *server) Commit(b quorum.CommittedBatch) { s.tell(event{batch: &b}) }

// LoadSnapshot implements quorum.StateMachine.
func (s *server) LoadSnapshot(r *quorum.SnapshotReader) error {
	img, _, err := readImage(r)
	if err != nil {
		return err
	}
	s.tell(event{snapshot: img})
	return nil
}

// LeaderChange implements quorum.StateMachine.
func (s *server) LeaderChange(l quorum.LeaderAndEpoch) { s.tell(event{leader: &l}) }

func (s *server) tell(e event) {
	select {
	case s.events <- e:
	case <-s.done:
	}
}

func (s *server) handleEvent(e event) {
	switch {
	case e.batch != nil:
		if err := s.committed.batch(e.batch); err != nil {
			// What it would decide from now on would rest on a state that the others do not have.
			s.resign()
			s.q.Fail(err)
			return
		}
		s.answer(e.batch.LastOffset)
	case e.snapshot != nil:
		s.committed.snapshot(e.snapshot)
	case e.leader != nil:
		s.leader = *e.leader
		if s.active != nil && (s.leader.LeaderID != s.cfg.NodeID || s.leader.Epoch != s.active.epoch) {
			s.resign()
		}
		if s.active == nil && s.leader.LeaderID == s.cfg.NodeID {
			s.activate()
		}
	}
}

// resign ends the time as active controller: nobody is answered any more than that.
func (s *server) resign() {
	a := s.active
	if a == nil {
		return
	}
	s.active = nil
	s.logger.Info("controller: not active any more", "epoch", a.epoch)
	for _, w := range a.waiting {
		w.op.refuse(controller.NotController())
	}
}

// answer releases the responses whose records are committed.
func (s *server) answer(committed int64) {
	a := s.active
	if a == nil {
		return
	}
	n := 0
	for n < len(a.waiting) && a.waiting[n].offset <= committed {
		s.release(a.waiting[n])
		n++
	}
	a.waiting = a.waiting[n:]
}

// release sends a response, after raising kraft.version where that was asked for.
func (s *server) release(w waiter) {
	if w.upgrade == 0 {
		w.op.reply <- w.resp
		return
	}
	go func() {
		if err := s.q.UpgradeKRaftVersion(w.op.ctx, w.upgrade); err != nil {
			w.op.refuse(controller.FaultOf(err))
			return
		}
		w.op.reply <- w.resp
	}()
}

// view is what a decision of now sees.
func (s *server) view(now time.Time) controller.View {
	a := s.active
	return controller.View{
		Image: a.newest, Sessions: a.sessions, Now: now, NextOffset: a.next,
		RegistrationOffset: func(broker int32) (int64, bool) {
			offset, ok := a.registered[broker]
			return offset, ok
		},
		KRaftVersion: s.q.KRaftVersion(), Rand: a.rand, NewUUID: protocol.RandomUUID,
	}
}

// decide decides a request.
func (s *server) decide(op *operation) {
	s.drainContacts()
	if op.ctx.Err() != nil {
		op.refuse(controller.TimedOut())
		return
	}
	if s.active == nil {
		op.refuse(controller.NotController())
		return
	}
	now := time.Now()
	res, ok := controller.New(s.cfg, s.view(now), op.rc.request()).Decide(op.req)
	if !ok {
		op.refuse(controller.FaultOf(errors.ErrUnsupported))
		return
	}
	offset, err := s.apply(res, kmsg.NameForKey(op.req.Key()))
	if err != nil {
		if s.active != nil {
			s.logger.Warn("controller: request not carried out", "api", kmsg.NameForKey(op.req.Key()), "error", err)
		}
		op.refuse(proposalFault(err))
		return
	}
	w := waiter{offset: offset, op: op, resp: res.Response, upgrade: res.KRaftUpgrade}
	// An answer without records may rest on records that are not committed, of other requests or of a periodic task:
	// apply has given the offset of the newest of them.
	if offset < s.committed.next {
		s.release(w)
		return
	}
	s.active.waiting = append(s.active.waiting, w)
}

func proposalFault(err error) *controller.Fault {
	switch {
	case errors.Is(err, quorum.ErrNotLeader), errors.Is(err, quorum.ErrClosed):
		return controller.NotController()
	case errors.Is(err, quorum.ErrTooManyUncommitted):
		return controller.TimedOut()
	}
	return controller.FaultOf(err)
}

// apply proposes the records of a decision and applies them to the newest image. It gives the offset of the last one.
// When the quorum takes none of this epoch any more, this controller is not active any more: a quorum that stops does
// not tell the end of the leadership.
func (s *server) apply(res controller.Result, name string) (int64, error) {
	a := s.active
	last := a.next - 1
	if len(res.Records) > 0 {
		records := s.withTransaction(res.Records, res.Atomic, name)
		offset, err := s.propose(records)
		if errors.Is(err, quorum.ErrNotLeader) {
			s.resign()
		}
		if err != nil {
			return 0, err
		}
		last = offset
	}
	if res.Applied != nil {
		res.Applied(last)
	}
	return last, nil
}

// withTransaction wraps records that must take effect together. Each record is a batch of its own in the log, so only
// a transaction keeps them together.
func (s *server) withTransaction(records []metadata.Record, atomic bool, name string) []metadata.Record {
	if !atomic || len(records) < 2 || !s.active.newest.MetadataVersion().SupportsTransactions() {
		return records
	}
	out := make([]metadata.Record, 0, len(records)+2)
	out = append(out, &metadata.BeginTransactionRecord{Name: &name})
	out = append(out, records...)
	return append(out, metadata.NewEndTransactionRecord())
}

// propose appends records to the log and applies them to the newest image, or does neither.
func (s *server) propose(records []metadata.Record) (int64, error) {
	a := s.active
	delta := image.NewDelta(a.newest)
	level := a.newest.MetadataVersion()
	entries := make([]quorum.VersionedRecord, len(records))
	for i, rec := range records {
		if err := delta.Replay(rec); err != nil {
			return 0, err
		}
		if f, ok := rec.(*metadata.FeatureLevelRecord); ok && f.Name == metadata.FeatureMetadataVersion && level == 0 {
			level = metadata.MetadataVersion(f.FeatureLevel)
		}
		entries[i] = quorum.VersionedRecord{Record: rec, Version: metadata.RecordVersion(rec, level)}
	}
	base, last, err := s.q.Propose(a.epoch, entries)
	if err != nil {
		return 0, err
	}
	now := time.Now()
	a.newest = delta.Apply(image.Provenance{Offset: last, Epoch: a.epoch, TimestampMillis: now.UnixMilli()})
	a.next = last + 1
	for i, rec := range records {
		a.observe(rec, base+int64(i), now)
	}
	return last, nil
}

// observe keeps sessions and registration offsets in step with a record of this controller.
func (a *activeState) observe(rec metadata.Record, offset int64, now time.Time) {
	broker := noBroker
	switch r := rec.(type) {
	case *metadata.RegisterBrokerRecord:
		a.registered[r.BrokerID] = offset
		broker = r.BrokerID
	case *metadata.UnregisterBrokerRecord:
		delete(a.registered, r.BrokerID)
		a.sessions.Unregister(r.BrokerID)
	case *metadata.BrokerRegistrationChangeRecord:
		broker = r.BrokerID
	}
	if b := a.newest.Cluster.Broker(broker); b != nil {
		a.sessions.Register(b.ID, b.Epoch, b.Fenced, now)
	}
}

// noBroker is an id that no broker has.
const noBroker int32 = -1

// drainContacts takes over the contacts of heartbeats that have arrived but are not decided yet. Those that come while
// this node is not the active controller are dropped: they say nothing of the sessions of a later time.
func (s *server) drainContacts() {
	s.heardMu.Lock()
	defer s.heardMu.Unlock()
	if s.active != nil {
		for c, at := range s.heard {
			s.active.sessions.Contact(c.broker, c.epoch, at)
		}
	}
	clear(s.heard)
}
