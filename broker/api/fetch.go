package api

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
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
	session     *fetchSession // locked while the fetch is under way; nil without one
	incremental bool
	img         *image.Image
	r           *network.Request
	bound       storage.Bound

	// What bounds the answer, and what has been read of it.
	budgetBytes, minBytes, totalBytes int
	failed                            bool // a partition is in error: the answer is due
	known                             bool // a partition exists: the answer may wait

	// own are the targets of a fetch without a session, and waiter its own.
	own    []fetchTarget
	byKey  map[targetKey]int // places in own, while a long request is listed
	waiter *replica.Waiter
	fired  []*replica.Subscription
}

// fetchRead is one partition of a fetch under way.
type fetchRead struct {
	target *fetchTarget
	part   *replica.Partition
	err    error // why the partition cannot be read

	res   replica.ReadResult
	bytes int
}

func newFetch(images image.Source, parts Replicas, sessionSlots int, maxBytes int32, log *slog.Logger) *fetch {
	h := &fetch{images: images, parts: parts, sessions: newSessions(sessionSlots), maxBytes: maxBytes, log: log}
	h.work.New = func() any { return &fetchWork{waiter: replica.NewWaiter()} }
	return h
}

func (h *fetch) serve(_ context.Context, r *network.Request) {
	w, _ := h.work.Get().(*fetchWork)
	if err := w.req.Decode(r.Header.Version, r.Body); err != nil {
		h.work.Put(w)
		r.Fail(err)
		return
	}
	if h.sessions.busy(w.req.SessionID) {
		r.Block(func(context.Context) { h.run(w, r) })
		return
	}
	h.run(w, r)
}

// run reads, and answers or waits. It waits first for an earlier fetch of the session.
func (h *fetch) run(w *fetchWork, r *network.Request) {
	h.begin(w, r)
	s, err := h.open(w, time.Now())
	if err != nil {
		w.resp = protocol.FetchResponse{ErrorCode: protocol.ErrorCode(err), Topics: w.resp.Topics[:0]}
		h.send(w)
		return
	}
	parked := false
	defer func() {
		if s != nil && !parked {
			s.mu.Unlock()
		}
	}()
	for i := range w.reads {
		h.resolve(w, i)
		h.read(w, i)
	}
	wait := time.Duration(w.req.MaxWaitMillis) * time.Millisecond
	if w.due() || wait <= 0 {
		h.finish(w)
		return
	}
	parked = true
	h.park(w, wait)
}

// begin sets up the memory for a request.
func (h *fetch) begin(w *fetchWork, r *network.Request) {
	w.r, w.img = r, h.images.Image()
	w.bound = storage.UpToHighWatermark
	if w.req.IsolationLevel == 1 {
		w.bound = storage.UpToLastStable
	}
	if w.req.ReplicaID >= 0 {
		w.bound = storage.UpToLogEnd
	}
	w.budgetBytes = int(min(w.req.MaxBytes, h.maxBytes))
	w.minBytes = int(min(w.req.MinBytes, int32(w.budgetBytes)))
	w.totalBytes, w.failed, w.known = 0, false, false
	w.reads = w.reads[:0]
}

// open finds the session, which is locked then, and lists what is to be read, in the session's order: what the client
// asks of anew and what may have changed since the last answer.
func (h *fetch) open(w *fetchWork, now time.Time) (*fetchSession, error) {
	s, incremental, err := h.sessions.open(&w.req, w.topicName, now, w.r.Conn)
	if err != nil {
		return nil, err
	}
	w.session, w.incremental = s, incremental
	if s == nil {
		w.listRequest()
		return nil, nil
	}
	s.observe(w.bound, w.img.Topics)
	for _, t := range s.takePending() {
		w.list(t)
	}
	w.known = s.quiet() > 0 // the quiet ones exist
	return s, nil
}

// topicName is the name of a topic, "" when the id is unknown.
func (w *fetchWork) topicName(id protocol.UUID) string {
	if t := w.img.Topics.ByID(id); t != nil {
		return t.Name
	}
	return ""
}

// list adds a partition to those of this fetch.
func (w *fetchWork) list(t *fetchTarget) {
	t.slot = len(w.reads)
	w.reads = append(w.reads, fetchRead{target: t})
}

// listRequest lists the partitions of a request without a session. One that is named twice is fetched once, as the
// last mention wants it.
func (w *fetchWork) listRequest() {
	n := 0
	for i := range w.req.Topics {
		n += len(w.req.Topics[i].Partitions)
	}
	w.own = slices.Grow(w.own[:0], n)[:0] // does not move any more: the targets are pointed to
	for i := range w.req.Topics {
		t := &w.req.Topics[i]
		topic := t.Name
		if w.req.Version >= 13 {
			topic = w.topicName(t.ID)
		}
		for _, p := range t.Partitions {
			x := fetchTarget{topic: topic, id: t.ID, want: p}
			if old := w.listed(&x, n); old != nil {
				old.want = p
				continue
			}
			w.own = append(w.own, x)
			w.list(&w.own[len(w.own)-1])
		}
	}
	clear(w.byKey)
}

// maxScanTargets is up to how many targets are searched one by one rather than by a map.
const maxScanTargets = 16

// listed finds a partition among those of the request before it; n is how many there will be.
func (w *fetchWork) listed(x *fetchTarget, n int) *fetchTarget {
	if n <= maxScanTargets {
		for i := range w.own {
			if o := &w.own[i]; o.want.Index == x.want.Index && o.id == x.id && o.topic == x.topic {
				return o
			}
		}
		return nil
	}
	if w.byKey == nil {
		w.byKey = map[targetKey]int{}
	}
	k := targetKey{topic: x.topic, id: x.id, index: x.want.Index}
	if i, ok := w.byKey[k]; ok {
		return &w.own[i]
	}
	w.byKey[k] = len(w.own)
	return nil
}

// resolve finds the replica of a partition on the request's view of the cluster.
func (h *fetch) resolve(w *fetchWork, i int) {
	x := &w.reads[i]
	t := x.target
	if t.topic == "" && w.req.Version >= 13 {
		t.topic = w.topicName(t.id) // the topic may have become known since
	}
	x.part, x.err = h.partition(w, t)
}

func (h *fetch) partition(w *fetchWork, t *fetchTarget) (*replica.Partition, error) {
	if t.topic == "" && w.req.Version >= 13 {
		return nil, kerr.UnknownTopicID
	}
	topic := w.img.Topics.ByName(t.topic)
	if topic == nil || topic.Partition(t.want.Index) == nil {
		return nil, kerr.UnknownTopicOrPartition
	}
	if w.req.Version >= 13 && topic.ID != t.id {
		return nil, kerr.InconsistentTopicID // made again under its old name since the session began
	}
	part := h.parts.Lookup(t.topic, t.want.Index)
	if part == nil {
		return nil, h.parts.Missing(t.topic, t.want.Index)
	}
	if w.req.ReplicaID >= 0 && !slices.Contains(topic.Partition(t.want.Index).Replicas, w.req.ReplicaID) {
		return nil, kerr.NotLeaderForPartition // also to a follower that is not, or not yet, one of the replicas
	}
	return part, nil
}

// read reads one partition within what is left of the limits. Called again after a wait, it gives up what it read
// before.
func (h *fetch) read(w *fetchWork, i int) {
	x := &w.reads[i]
	w.totalBytes -= x.bytes
	x.release()
	if x.part == nil {
		// What the cluster does not have is no reason to answer early, as long as anything else was asked for.
		w.failed = w.failed || !isUnknown(x.err)
		return
	}
	w.known = true
	want, left := &x.target.want, max(0, w.budgetBytes-w.totalBytes)
	x.res, x.err = x.part.Read(replica.ReadRequest{
		Offset:      want.FetchOffset,
		LeaderEpoch: max(want.CurrentLeaderEpoch, replica.NoEpoch), LastFetchedEpoch: max(want.LastFetchedEpoch, replica.NoEpoch),
		MaxBytes: min(int(want.MaxBytes), left), Bound: w.bound, AtLeastOne: w.totalBytes == 0,
	})
	if x.err != nil || x.res.Diverging != nil {
		w.failed = true
		return
	}
	if x.res.Fetched.FirstPartial {
		x.release() // a cut first batch is of no use to anybody
	}
	if x.res.Fetched.Range != nil {
		x.bytes = x.res.Fetched.Range.Len()
		w.totalBytes += x.bytes
	}
}

// due tells whether the answer has to wait no longer.
func (w *fetchWork) due() bool { return w.failed || !w.known || w.totalBytes >= w.minBytes }

// isUnknown tells whether the cluster does not have what was asked for.
func isUnknown(err error) bool {
	return errors.Is(err, kerr.UnknownTopicID) || errors.Is(err, kerr.UnknownTopicOrPartition)
}

// release gives up the bytes that were read.
func (x *fetchRead) release() {
	if x.res.Fetched.Range != nil {
		x.res.Fetched.Range.Release()
		x.res.Fetched.Range = nil
	}
	x.bytes = 0
}

// holdNames lets go of the frame: a waiting request needs no more of it than the names of topics.
func (w *fetchWork) holdNames() {
	if w.session != nil {
		return // its names are its own
	}
	for i := range w.reads {
		x := &w.reads[i]
		switch t := x.target; {
		case x.part != nil:
			t.topic = x.part.Topic()
		case i > 0 && w.reads[i-1].target.topic == t.topic:
			t.topic = w.reads[i-1].target.topic
		default:
			t.topic = strings.Clone(t.topic)
		}
	}
}

// subscribe has the waiter told when there is something to read.
func (w *fetchWork) subscribe(waiter *replica.Waiter, i int) {
	x := &w.reads[i]
	if x.part == nil {
		return
	}
	t := x.target
	t.sub = replica.Subscription{Owner: t, Bound: w.bound, Offset: t.want.FetchOffset}
	t.part = x.part
	x.part.Subscribe(waiter, &t.sub, x.res.Turn)
}

// readFired reads what has changed while the fetch waited: partitions of this fetch, and such of the session that had
// been quiet. It returns whether the answer is due.
func (h *fetch) readFired(w *fetchWork, waiter *replica.Waiter) bool {
	w.fired = waiter.TakeFired(w.fired[:0])
	before := len(w.reads)
	for _, sub := range w.fired {
		t, _ := sub.Owner.(*fetchTarget)
		t.part = nil
		if t.slot < 0 {
			w.session.awake(t)
			w.list(t)
			h.resolve(w, t.slot)
		}
		h.read(w, t.slot)
	}
	if w.due() {
		return true
	}
	for _, sub := range w.fired {
		t, _ := sub.Owner.(*fetchTarget)
		w.subscribe(waiter, t.slot)
	}
	if len(w.reads) > before {
		w.inOrder()
	}
	return false
}

// inOrder puts the partitions into the session's order again.
func (w *fetchWork) inOrder() {
	slices.SortFunc(w.reads, func(a, b fetchRead) int { return cmp.Compare(a.target.order, b.target.order) })
	for i := range w.reads {
		w.reads[i].target.slot = i
	}
}

// finish fills the response from what was read and sends it. In a session it then knows which partitions have nothing
// more to tell: those are not looked at again before something happens to them.
func (h *fetch) finish(w *fetchWork) {
	w.resp.ErrorCode, w.resp.ThrottleMillis = 0, 0
	w.resp.SessionID = noSession
	w.resp.Topics = w.resp.Topics[:0]
	w.resp.NodeEndpoints = w.resp.NodeEndpoints[:0]
	if w.session != nil {
		w.resp.SessionID = w.session.id
		w.inOrder()
	}
	for i := range w.reads {
		x := &w.reads[i]
		t := x.target
		t.unsubscribe()
		out := protocol.FetchPartitionResponse{
			Index: t.want.Index, HighWatermark: -1, LastStableOffset: -1, LogStartOffset: -1, PreferredReadReplica: -1,
		}
		h.fill(w, x, &out)
		if w.session == nil {
			w.add(t, out)
			continue
		}
		t.slot = -1
		mention := t.changed(&out) || !w.incremental
		if out.SplicedBytes > 0 {
			w.session.moveToEnd(t)
		}
		w.session.settle(t, x, w.bound)
		if mention {
			w.add(t, out)
		} else {
			x.release()
		}
	}
	if w.session != nil {
		w.session.compact()
	}
	h.send(w)
}

// fill sets what a partition's answer says.
func (h *fetch) fill(w *fetchWork, x *fetchRead, out *protocol.FetchPartitionResponse) {
	if x.err != nil {
		out.ErrorCode = code(h.log, "Fetch", x.err)
		if isUnknown(x.err) {
			out.AbortedTransactions = []protocol.AbortedTransaction{} // Kafka's default, which it leaves here
		}
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

// leaderHint tells the client where to go instead (KIP-951). The field is older than that, but Kafka fills it from
// version 16 on.
func (h *fetch) leaderHint(w *fetchWork, x *fetchRead, out *protocol.FetchPartitionResponse) {
	p := w.img.Topics.Partition(x.target.topic, x.target.want.Index)
	if w.req.Version < 16 || p == nil {
		return
	}
	out.CurrentLeader = &protocol.LeaderIDAndEpoch{LeaderID: p.Leader, LeaderEpoch: p.LeaderEpoch}
	w.resp.NodeEndpoints = addEndpoint(w.resp.NodeEndpoints, w.img, w.r.Conn.ListenerName(), p.Leader)
}

// add puts a partition's answer behind those of the same topic before it.
func (w *fetchWork) add(x *fetchTarget, out protocol.FetchPartitionResponse) {
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
	parts := slices.Grow(w.r.Parts(), 2*len(w.splices)+1)
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
	clear(w.own)
	clear(w.fired)
	h.work.Put(w)
}
