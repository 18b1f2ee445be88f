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
	"gregor/protocol/record"
	"gregor/storage"
)

// Produce (key 0), versions 3 to 13; ApiVersions lists 0 to 13, because old librdkafka compresses only for a broker
// that knows them.
//
//	3 record batches of magic 2, transactional id     8 record errors and error message (KIP-467)
//	5 log start offset                                9 flexible
//	7 zstd allowed                                    10 current leader and node endpoints (KIP-951)
//	13 topic ids instead of names (KIP-516)
//
// acks: 0 no answer at all, 1 after the leader's append, -1 after all in-sync replicas have it; others
// INVALID_REQUIRED_ACKS per partition. Each partition has its own error: UNKNOWN_TOPIC_OR_PARTITION,
// UNKNOWN_TOPIC_ID, NOT_LEADER_OR_FOLLOWER, INVALID_TOPIC_EXCEPTION (an internal topic), those of
// record.ValidateProduce, of the producer's sequence, NOT_ENOUGH_REPLICAS[_AFTER_APPEND], REQUEST_TIMED_OUT.
type produce struct {
	images image.Source
	parts  Replicas
	log    *slog.Logger
	work   sync.Pool // *produceWork
}

// Replicas finds the replica of a partition on this broker; nil when there is none, and then Missing is the error.
type Replicas interface {
	Lookup(topic string, partition int32) *replica.Partition
	Missing(topic string, partition int32) error
}

// produceWork is the memory of one request; it is reused.
type produceWork struct {
	req     protocol.ProduceRequest
	resp    protocol.ProduceResponse
	pending []pendingAppend
	// gathered is the only append of the request, if it was left to the end of the round (see produce_gather.go).
	gathered *readyAppend
	memory   readyAppend // for gathered
}

// pendingAppend is an append that waits for the disk or for the other in-sync replicas.
type pendingAppend struct {
	topic, partition int // indices into the response
	part             *replica.Partition
	info             storage.AppendInfo
}

func newProduce(images image.Source, parts Replicas, log *slog.Logger) *produce {
	h := &produce{images: images, parts: parts, log: log}
	h.work.New = func() any { return &produceWork{} }
	return h
}

func (h *produce) serve(ctx context.Context, r *network.Request) {
	w, _ := h.work.Get().(*produceWork)
	if err := w.req.Decode(r.Header.Version, r.Body); err != nil {
		h.work.Put(w)
		r.Fail(err)
		return
	}
	h.appendAll(w, r)
	if w.gathered == nil {
		h.finish(ctx, w, r)
	}
}

// finish answers at once, or when the disk or the followers have what was appended.
func (h *produce) finish(ctx context.Context, w *produceWork, r *network.Request) {
	if len(w.pending) == 0 {
		h.reply(w, r)
		return
	}
	switch {
	case !w.syncs():
		r.Go(func(ctx context.Context) { h.awaitAndReply(ctx, w, r) })
	case !w.pending[0].part.Syncing():
		// It takes no longer than waking another goroutine for it.
		h.awaitAndReply(ctx, w, r)
	default:
		h.replySynced(w, r)
	}
}

func (h *produce) awaitAndReply(ctx context.Context, w *produceWork, r *network.Request) {
	h.wait(ctx, w)
	h.reply(w, r)
}

// replySynced answers after the sync that comes next, without a goroutine that waits for it.
func (h *produce) replySynced(w *produceWork, r *network.Request) {
	x := &w.pending[0]
	var failure error
	var task *network.Task
	task = r.NewTask(func() {
		defer task.Done()
		x.info.Unsynced = false
		switch {
		case failure != nil:
			h.fail(w, x, failure)
		case w.req.Acks == -1 && x.part.State().HighWatermark <= x.info.LastOffset:
			r.Go(func(ctx context.Context) { h.awaitAndReply(ctx, w, r) }) // there are other replicas by now
			return
		}
		h.reply(w, r)
	})
	x.part.SyncAppendedThen(x.info, func(err error) {
		failure = err
		task.Wake()
	})
	task.Start()
}

// syncs tells that all there is to wait for is one sync.
func (w *produceWork) syncs() bool {
	return len(w.pending) == 1 && w.pending[0].info.Unsynced && w.pending[0].info.AloneInSync
}

// appendAll appends what the request holds and notes what has to wait for the disk or for followers.
func (h *produce) appendAll(w *produceWork, r *network.Request) {
	img := h.images.Image()
	w.resp.Topics = w.resp.Topics[:0]
	w.resp.NodeEndpoints = w.resp.NodeEndpoints[:0]
	w.pending, w.gathered = w.pending[:0], nil
	now := time.Now()
	for i := range w.req.Topics {
		t := &w.req.Topics[i]
		if len(t.Partitions) == 0 {
			continue // Kafka does not answer a topic of which nothing is asked
		}
		out := appendTopic(&w.resp.Topics)
		out.Name, out.ID = t.Name, t.ID
		name, err := h.topicName(img, w.req.Version, t)
		for j := range t.Partitions {
			out.Partitions = append(out.Partitions, protocol.ProducePartitionResponse{
				Index: t.Partitions[j].Index, BaseOffset: -1, LogAppendTimeMillis: -1, LogStartOffset: -1,
			})
			p := &out.Partitions[j]
			if err != nil {
				p.ErrorCode = protocol.ErrorCode(err)
				continue
			}
			a := appendCall{img: img, topic: name, index: t.Partitions[j].Index, records: t.Partitions[j].Records, now: now, r: r}
			h.appendOne(w, a, p, len(w.resp.Topics)-1, j)
		}
	}
}

// appendTopic adds an element and reuses its memory.
func appendTopic(topics *[]protocol.ProduceTopicResponse) *protocol.ProduceTopicResponse {
	n := len(*topics)
	if n < cap(*topics) {
		*topics = (*topics)[:n+1]
		t := &(*topics)[n]
		*t = protocol.ProduceTopicResponse{Partitions: t.Partitions[:0]}
		return t
	}
	*topics = append(*topics, protocol.ProduceTopicResponse{})
	return &(*topics)[n]
}

// topicName is the name of a topic that may be given by id. Only ids are checked here: that a name exists is
// checked with its partition.
func (h *produce) topicName(img *image.Image, version int16, t *protocol.ProduceTopic) (string, error) {
	if version < 13 {
		return t.Name, nil
	}
	topic := img.Topics.ByID(t.ID)
	if topic == nil {
		return "", kerr.UnknownTopicID
	}
	return topic.Name, nil
}

// appendCall is one partition of a request on its way to the log.
type appendCall struct {
	img     *image.Image
	topic   string
	index   int32
	records []byte
	now     time.Time
	r       *network.Request
}

// readyAppend is an append that nothing is to be said against but by the log.
type readyAppend struct {
	appendCall

	part                *replica.Partition
	batch               record.Batch
	logAppendTimeMillis int64 // -1 with CreateTime
	topicAt, indexAt    int   // indices into the response
}

// appendOne appends the records of one partition and fills its response, or leaves that to the end of the round.
func (h *produce) appendOne(w *produceWork, a appendCall, out *protocol.ProducePartitionResponse, topic, partition int) {
	part, err := h.partition(a)
	if err != nil {
		h.refuse(w, a, out, nil, err)
		return
	}
	if acks := w.req.Acks; acks != 0 && acks != 1 && acks != -1 {
		h.refuse(w, a, out, part, kerr.InvalidRequiredAcks)
		return
	}
	valid, err := record.ValidateProduce(a.records, h.options(part, a, w.req.Version))
	if err != nil {
		h.refuse(w, a, out, part, err)
		return
	}
	ready := readyAppend{appendCall: a, part: part, batch: valid.Batch, logAppendTimeMillis: valid.LogAppendTimeMillis, topicAt: topic, indexAt: partition}
	if h.gather(w, &ready) {
		return
	}
	h.append(w, &ready)
}

// append appends and fills the response.
func (h *produce) append(w *produceWork, a *readyAppend) {
	info, err := a.part.AppendAsLeader(a.batch, w.req.Acks == -1, storage.AppendOptions{
		Origin: storage.FromClient, LogAppendTimeMillis: a.logAppendTimeMillis, SyncLater: true,
	})
	if err != nil {
		h.refuse(w, a.appendCall, w.response(a), a.part, err)
		return
	}
	w.appended(a, info)
}

// response is where the answer for an append goes.
func (w *produceWork) response(a *readyAppend) *protocol.ProducePartitionResponse {
	return &w.resp.Topics[a.topicAt].Partitions[a.indexAt]
}

// appended fills the response and notes what it has to wait for.
func (w *produceWork) appended(a *readyAppend, info storage.AppendInfo) {
	out := w.response(a)
	out.BaseOffset, out.LogAppendTimeMillis, out.LogStartOffset = info.FirstOffset, info.LogAppendTimeMillis, info.LogStartOffset
	if info.Unsynced || w.req.Acks == -1 && a.part.State().HighWatermark <= info.LastOffset {
		w.pending = append(w.pending, pendingAppend{topic: a.topicAt, partition: a.indexAt, part: a.part, info: info})
	}
}

// partition finds the replica to append to. Clients may not write to internal topics, except Kafka's own tools,
// which say so by their client id.
func (h *produce) partition(a appendCall) (*replica.Partition, error) {
	topic := a.img.Topics.ByName(a.topic)
	if topic == nil || topic.Partition(a.index) == nil {
		return nil, kerr.UnknownTopicOrPartition
	}
	if isInternal(a.topic) && a.r.Header.ClientID != "__admin_client" {
		return nil, protocol.NewError(kerr.InvalidTopicException.Code, "Cannot append to internal topic "+a.topic)
	}
	part := h.parts.Lookup(a.topic, a.index)
	if part == nil {
		return nil, h.parts.Missing(a.topic, a.index)
	}
	return part, nil
}

func (h *produce) options(part *replica.Partition, a appendCall, version int16) record.ProduceOptions {
	c := part.LogConfig()
	o := record.ProduceOptions{
		TopicPartition: part.Name(), NowMillis: a.now.UnixMilli(),
		TimestampBeforeMaxMillis: c.TimestampBeforeMaxMillis, TimestampAfterMaxMillis: c.TimestampAfterMaxMillis,
		TargetCodec: c.TargetCodec, Level: c.Level, Compacted: c.CleanupCompact, RequestVersion: version,
		MaxBatchBytes: c.MaxMessageBytes,
		Limits:        record.Limits{MaxDecompressedBytes: int64(c.MaxDecompressedMessageBytes)},
	}
	if c.LogAppendTime {
		o.TimestampType = record.LogAppendTime
	}
	return o
}

// refuse fills the response of a partition whose append failed. The log start offset is told with errors of the
// records and of the producer, not with those of the partition or of a batch that is too large; the message is
// told where the records are at fault.
func (h *produce) refuse(w *produceWork, a appendCall, out *protocol.ProducePartitionResponse, part *replica.Partition, err error) {
	out.ErrorCode = code(h.log, "Produce", err)
	bad, ok := errors.AsType[*record.ProduceError](err)
	if ok && (len(bad.RecordErrors) > 0 || bad.Unreadable) {
		text := bad.Message
		out.ErrorMessage = &text
		for _, e := range bad.RecordErrors {
			m := e.Message
			out.RecordErrors = append(out.RecordErrors, protocol.ProduceRecordError{BatchIndex: e.Index, Message: &m})
		}
	}
	switch out.ErrorCode {
	case kerr.NotLeaderForPartition.Code:
		h.leaderHint(w, a, out)
	case kerr.UnknownTopicOrPartition.Code, kerr.MessageTooLarge.Code, kerr.RecordListTooLarge.Code, kerr.CorruptMessage.Code,
		kerr.KafkaStorageError.Code, kerr.InvalidRequiredAcks.Code, kerr.InvalidTopicException.Code:
	default:
		if part != nil && (bad == nil || !bad.BeforeLog) {
			out.LogStartOffset = part.State().LogStartOffset
		}
	}
}

// leaderHint tells the client where to go instead (KIP-951).
func (h *produce) leaderHint(w *produceWork, a appendCall, out *protocol.ProducePartitionResponse) {
	topic := a.img.Topics.ByName(a.topic)
	if w.req.Version < 10 || topic == nil || topic.Partition(a.index) == nil {
		return
	}
	p := topic.Partition(a.index)
	out.CurrentLeader = &protocol.LeaderIDAndEpoch{LeaderID: p.Leader, LeaderEpoch: p.LeaderEpoch}
	w.resp.NodeEndpoints = addEndpoint(w.resp.NodeEndpoints, a.img, a.r.Conn.ListenerName(), p.Leader)
}

// wait waits until what was appended is synced, as far as flush.messages asks for it, and then, with acks=all, until the
// in-sync replicas have it or the request's timeout is over.
func (h *produce) wait(ctx context.Context, w *produceWork) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(w.req.TimeoutMillis)*time.Millisecond)
	defer cancel()
	for i := range w.pending {
		x := &w.pending[i]
		if err := x.wait(ctx, w.req.Acks == -1); err != nil {
			h.fail(w, x, err)
		}
	}
}

// fail fills the response of an append that was not safe in the end.
func (h *produce) fail(w *produceWork, x *pendingAppend, err error) {
	out := &w.resp.Topics[x.topic].Partitions[x.partition]
	out.ErrorCode = code(h.log, "Produce", err)
	out.BaseOffset, out.LogAppendTimeMillis, out.LogStartOffset = -1, -1, -1
}

func (x *pendingAppend) wait(ctx context.Context, allInSync bool) error {
	if x.info.Unsynced {
		if err := x.part.SyncAppended(x.info); err != nil {
			return err
		}
	}
	if !allInSync {
		return nil
	}
	return x.part.WaitReplicated(ctx, x.info.LastOffset+1, x.info.LeaderEpoch)
}

// reply answers, or with acks=0 does not: a client that asked for no answer must not get one. Since it cannot be
// told of an error either, its connection is closed, so that it learns of a moved leader.
func (h *produce) reply(w *produceWork, r *network.Request) {
	if w.req.Acks == 0 {
		r.Reply(network.Response{None: true, CloseAfter: w.failed()})
	} else {
		b := network.NewBuffer(256)
		b.B = protocol.AppendProduceResponse(b.B, &r.Header, &w.resp)
		r.Reply(network.Response{Parts: append(r.Parts(), network.Part{Bytes: b.B}), Buffer: b})
	}
	w.gathered, w.memory = nil, readyAppend{} // which hold an image
	h.work.Put(w)
}

func (w *produceWork) failed() bool {
	for i := range w.resp.Topics {
		for j := range w.resp.Topics[i].Partitions {
			if w.resp.Topics[i].Partitions[j].ErrorCode != 0 {
				return true
			}
		}
	}
	return false
}
