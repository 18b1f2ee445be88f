package api

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"gregor/broker/network"
	"gregor/broker/replica"
	"gregor/kraft/image"
	"gregor/protocol"
	"gregor/storage"
)

// Fetch (key 1), versions 4 to 18.
//
//	5 log start offset of followers     12 last fetched epoch, diverging epoch (KIP-595)
//	7 sessions (KIP-227)                13 topic ids (KIP-516)
//	9 current leader epoch (KIP-320)    15 replica epoch (KIP-903)
//	11 rack (KIP-392)                   16 node endpoints (KIP-951); 17 directory id; 18 high watermark
//
// The answer comes when min_bytes are readable, after max_wait, or at once when a partition is in error, min_bytes
// or max_wait is not above 0, or nothing is fetched. The first partition with data gives at least one batch,
// whatever the limits. Errors per partition: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID,
// NOT_LEADER_OR_FOLLOWER, OFFSET_OUT_OF_RANGE, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, KAFKA_STORAGE_ERROR;
// of the whole request: those of sessions.
type fetch struct {
	images   image.Source
	parts    Replicas
	sessions *sessions
	maxBytes int32 // fetch.max.bytes
	log      *slog.Logger
	work     sync.Pool // *fetchWork
}

// fetchWork is the memory of one fetch; it is reused.
type fetchWork struct {
	req         protocol.FetchRequest
	resp        protocol.FetchResponse
	reads       []fetchRead
	splices     []protocol.Splice
	session     *fetchSession
	incremental bool
	img         *image.Image
	r           *network.Request
	bound       storage.Bound
}

// fetchRead is one partition of a fetch under way.
type fetchRead struct {
	topic  string
	id     protocol.UUID
	want   protocol.FetchPartition
	target *fetchTarget // its place in the session; nil without one
	part   *replica.Partition
	err    error // why the partition cannot be read at all

	res   replica.ReadResult
	bytes int
}

func newFetch(images image.Source, parts Replicas, sessionSlots int, maxBytes int32, log *slog.Logger) *fetch {
	h := &fetch{images: images, parts: parts, sessions: newSessions(sessionSlots), maxBytes: maxBytes, log: log}
	h.work.New = func() any { return &fetchWork{} }
	return h
}

func (h *fetch) serve(ctx context.Context, r *network.Request) {
	w, _ := h.work.Get().(*fetchWork)
	if err := w.req.Decode(r.Header.Version, r.Body); err != nil {
		h.work.Put(w)
		r.Fail(err)
		return
	}
	w.r, w.img = r, h.images.Image()
	w.bound = storage.UpToHighWatermark
	if w.req.IsolationLevel == 1 {
		w.bound = storage.UpToLastStable
	}
	if w.req.ReplicaID >= 0 {
		w.bound = storage.UpToLogEnd
	}
	now := time.Now()
	if err := h.open(w, now); err != nil {
		w.resp = protocol.FetchResponse{ErrorCode: protocol.ErrorCode(err), Topics: w.resp.Topics[:0]}
		h.send(w)
		return
	}
	h.resolve(w)
	done := h.read(w)
	wait := time.Duration(w.req.MaxWaitMillis) * time.Millisecond
	if done || wait <= 0 || len(w.reads) == 0 {
		h.finish(w)
		return
	}
	r.Go(func(ctx context.Context) {
		h.park(ctx, w, wait)
		h.finish(w)
	})
}

// open finds the session and lists what is to be read, in the session's order.
func (h *fetch) open(w *fetchWork, now time.Time) error {
	w.reads = w.reads[:0]
	name := func(id protocol.UUID) string {
		if t := w.img.Topics.ByID(id); t != nil {
			return t.Name
		}
		return ""
	}
	s, incremental, err := h.sessions.open(&w.req, name, now)
	if err != nil {
		return err
	}
	w.session, w.incremental = s, incremental
	if s == nil {
		h.listRequest(w, name)
		return nil
	}
	for t := s.head; t != nil; t = t.next {
		if t.topic == "" && s.byID {
			t.topic = name(t.id) // the topic may have become known since
		}
		w.reads = append(w.reads, fetchRead{topic: t.topic, id: t.id, want: t.want, target: t})
	}
	s.mu.Unlock()
	return nil
}

// listRequest lists the partitions of a request without a session.
func (h *fetch) listRequest(w *fetchWork, name func(protocol.UUID) string) {
	for i := range w.req.Topics {
		t := &w.req.Topics[i]
		topic := t.Name
		if w.req.Version >= 13 {
			topic = name(t.ID)
		}
		for _, p := range t.Partitions {
			w.reads = append(w.reads, fetchRead{topic: topic, id: t.ID, want: p})
		}
	}
}

// resolve finds the replicas on one view of the cluster.
func (h *fetch) resolve(w *fetchWork) {
	for i := range w.reads {
		x := &w.reads[i]
		x.part, x.err = h.partition(w, x)
	}
}

func (h *fetch) partition(w *fetchWork, x *fetchRead) (*replica.Partition, error) {
	if x.topic == "" && w.req.Version >= 13 {
		return nil, kerr.UnknownTopicID
	}
	topic := w.img.Topics.ByName(x.topic)
	if topic == nil || topic.Partition(x.want.Index) == nil {
		return nil, kerr.UnknownTopicOrPartition
	}
	if w.req.Version >= 13 && topic.ID != x.id {
		return nil, kerr.InconsistentTopicID // made again under its old name since the session began
	}
	part := h.parts.Lookup(x.topic, x.want.Index)
	if part == nil {
		return nil, kerr.NotLeaderForPartition
	}
	return part, nil
}

// read reads every partition within the limits and tells whether the answer is due. Called again after a wait,
// it gives up what it read before.
func (h *fetch) read(w *fetchWork) bool {
	budget := int(min(w.req.MaxBytes, h.maxBytes))
	minBytes := int(min(w.req.MinBytes, int32(budget)))
	atLeastOne, failed, total, known := true, false, 0, 0
	for i := range w.reads {
		x := &w.reads[i]
		x.release()
		if x.part == nil {
			// What the cluster does not have is no reason to answer early, as long as anything else was asked for.
			failed = failed || !errors.Is(x.err, kerr.UnknownTopicID) && !errors.Is(x.err, kerr.UnknownTopicOrPartition)
			continue
		}
		known++
		x.res, x.err = x.part.Read(replica.ReadRequest{
			Offset: x.want.FetchOffset, LeaderEpoch: x.want.CurrentLeaderEpoch, LastFetchedEpoch: x.want.LastFetchedEpoch,
			MaxBytes: min(int(x.want.MaxBytes), budget), Bound: w.bound, AtLeastOne: atLeastOne,
		})
		if x.err != nil || x.res.Diverging != nil {
			failed = true
			continue
		}
		if x.res.Fetched.FirstPartial {
			x.release() // a cut first batch is of no use to anybody
		}
		if x.res.Fetched.Range == nil {
			continue
		}
		x.bytes = x.res.Fetched.Range.Len()
		if x.bytes > 0 {
			atLeastOne = false
		}
		total += x.bytes
		budget = max(0, budget-x.bytes)
	}
	return failed || total >= minBytes || known == 0
}

// release gives up the bytes that were read.
func (x *fetchRead) release() {
	if x.res.Fetched.Range != nil {
		x.res.Fetched.Range.Release()
		x.res.Fetched.Range = nil
	}
	x.bytes = 0
}

// park waits until the answer is due or the time is over. It registers with every partition before it looks
// again, so that nothing that moves in between is missed.
func (h *fetch) park(ctx context.Context, w *fetchWork, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	waiter := replica.NewWaiter()
	defer func() {
		for i := range w.reads {
			if p := w.reads[i].part; p != nil {
				p.Unwatch(waiter)
			}
		}
	}()
	for {
		for i := range w.reads {
			if x := &w.reads[i]; x.part != nil {
				x.part.Unwatch(waiter)
				x.part.Watch(waiter, w.bound, x.want.FetchOffset)
			}
		}
		if h.read(w) {
			return
		}
		select {
		case <-waiter.C:
		case <-timer.C:
			h.read(w)
			return
		case <-ctx.Done():
			return
		}
	}
}

// finish fills the response from what was read and sends it.
func (h *fetch) finish(w *fetchWork) {
	w.resp.ErrorCode, w.resp.ThrottleMillis = 0, 0
	w.resp.SessionID = noSession
	w.resp.Topics = w.resp.Topics[:0]
	w.resp.NodeEndpoints = w.resp.NodeEndpoints[:0]
	if w.session != nil {
		w.resp.SessionID = w.session.id
		w.session.mu.Lock()
	}
	for i := range w.reads {
		x := &w.reads[i]
		out := protocol.FetchPartitionResponse{
			Index: x.want.Index, HighWatermark: -1, LastStableOffset: -1, LogStartOffset: -1, PreferredReadReplica: -1,
		}
		h.fill(w, x, &out)
		if x.target != nil && !x.target.changed(&out) && w.incremental {
			x.release()
			continue
		}
		if out.SplicedBytes > 0 && x.target != nil {
			w.session.moveToEnd(x.target)
		}
		w.add(x, out)
	}
	if w.session != nil {
		w.session.mu.Unlock()
	}
	h.send(w)
}

// fill sets what a partition's answer says.
func (h *fetch) fill(w *fetchWork, x *fetchRead, out *protocol.FetchPartitionResponse) {
	if x.err != nil {
		out.ErrorCode = code(h.log, "Fetch", x.err)
		if out.ErrorCode == kerr.NotLeaderForPartition.Code || out.ErrorCode == kerr.FencedLeaderEpoch.Code {
			h.leaderHint(w, x, out)
		}
		return
	}
	s := x.res.State
	out.HighWatermark, out.LastStableOffset, out.LogStartOffset = s.HighWatermark, s.LastStableOffset, s.LogStartOffset
	if d := x.res.Diverging; d != nil {
		out.DivergingEpoch = &protocol.EpochEndOffset{Epoch: d.Epoch, EndOffset: d.EndOffset}
	}
	if w.bound == storage.UpToLastStable {
		// Null for read_uncommitted, a list, maybe empty, for read_committed.
		out.AbortedTransactions = make([]protocol.AbortedTransaction, 0, len(x.res.Fetched.AbortedTxns))
		for _, a := range x.res.Fetched.AbortedTxns {
			out.AbortedTransactions = append(out.AbortedTransactions, protocol.AbortedTransaction{ProducerID: a.ProducerID, FirstOffset: a.FirstOffset})
		}
	}
	out.SplicedBytes = x.bytes
}

// leaderHint tells the client where to go instead (KIP-951).
func (h *fetch) leaderHint(w *fetchWork, x *fetchRead, out *protocol.FetchPartitionResponse) {
	p := w.img.Topics.Partition(x.topic, x.want.Index)
	if w.req.Version < 12 || p == nil {
		return
	}
	out.CurrentLeader = &protocol.LeaderIDAndEpoch{LeaderID: p.Leader, LeaderEpoch: p.LeaderEpoch}
	if w.req.Version >= 16 {
		w.resp.NodeEndpoints = addEndpoint(w.resp.NodeEndpoints, w.img, w.r.Conn.ListenerName(), p.Leader)
	}
}

// add puts a partition's answer behind those of the same topic before it.
func (w *fetchWork) add(x *fetchRead, out protocol.FetchPartitionResponse) {
	n := len(w.resp.Topics)
	if n > 0 {
		last := &w.resp.Topics[n-1]
		if last.ID == x.id && last.Name == x.topic {
			last.Partitions = append(last.Partitions, out)
			return
		}
	}
	if n < cap(w.resp.Topics) {
		w.resp.Topics = w.resp.Topics[:n+1]
		t := &w.resp.Topics[n]
		*t = protocol.FetchTopicResponse{Name: x.topic, ID: x.id, Partitions: append(t.Partitions[:0], out)}
		return
	}
	w.resp.Topics = append(w.resp.Topics, protocol.FetchTopicResponse{Name: x.topic, ID: x.id, Partitions: []protocol.FetchPartitionResponse{out}})
}

// send encodes the answer and hands the bytes that were read to the connection, which releases them.
func (h *fetch) send(w *fetchWork) {
	b := network.NewBuffer(512)
	b.B, w.splices = protocol.AppendFetchResponse(b.B, &w.r.Header, &w.resp, w.splices[:0])
	parts := make([]network.Part, 0, 2*len(w.splices)+1)
	at, next := 0, 0
	for _, s := range w.splices {
		parts = append(parts, network.Part{Bytes: b.B[at:s.At]})
		at = s.At
		for w.reads[next].bytes == 0 {
			next++
		}
		x := &w.reads[next]
		next++
		parts = append(parts, network.Part{Range: x.res.Fetched.Range})
		x.res.Fetched.Range = nil // the connection's now
	}
	if at < len(b.B) {
		parts = append(parts, network.Part{Bytes: b.B[at:]})
	}
	w.r.Reply(network.Response{Parts: parts, Buffer: b})
	for i := range w.reads {
		w.reads[i].release()
	}
	w.r, w.img, w.session = nil, nil, nil
	clear(w.reads)
	h.work.Put(w)
}
