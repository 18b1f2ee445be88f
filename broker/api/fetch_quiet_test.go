package api

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/kraft/metadata"
	"gregor/storage/vfs"
)

// sessionOf opens a session of all partitions at offset 0 and returns its id.
func sessionOf(t *testing.T, c *hotClient, partitions int32) int32 {
	t.Helper()
	q := hotFetch(0, 0, 0)
	for p := range partitions {
		at(q, p, 0)
	}
	resp := c.fetched(q)
	if resp.ErrorCode != 0 || resp.SessionID == 0 || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != int(partitions) {
		t.Fatalf("the first fetch of a session answers %+v", resp)
	}
	return resp.SessionID
}

// mentioned lists what a Fetch answer says: partition, error or high watermark, log start and bytes.
func mentioned(resp *kmsg.FetchResponse) string {
	out := ""
	if resp.ErrorCode != 0 {
		out = fmt.Sprintf("error %d ", resp.ErrorCode)
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode != 0 {
				out += fmt.Sprintf("%d!%d ", p.Partition, p.ErrorCode)
				continue
			}
			out += fmt.Sprintf("%d:%d-%d", p.Partition, p.LogStartOffset, p.HighWatermark)
			if len(p.RecordBatches) > 0 {
				out += "+data"
			}
			out += " "
		}
	}
	return out
}

func (c *hotClient) checkFetch(q *kmsg.FetchRequest, want string) {
	c.tb.Helper()
	if got := mentioned(c.fetched(q)); got != want {
		c.tb.Errorf("epoch %d mentions %q, want %q", q.SessionEpoch, got, want)
	}
}

func (c *hotClient) mustProduce(partition int32) {
	c.tb.Helper()
	answer := c.roundTrip(hotFrame(hotProduce(partition, 1, hotBatch(1, 10))))
	resp := kmsg.NewPtrProduceResponse()
	resp.Version = 12
	if err := resp.ReadFrom(answer[1:]); err != nil || resp.Topics[0].Partitions[0].ErrorCode != 0 {
		c.tb.Fatalf("produce: %v, %+v", err, resp)
	}
}

// session returns the session of that id.
func (n *hotNode) session(id int32) *fetchSession {
	n.fetch.sessions.mu.Lock()
	defer n.fetch.sessions.mu.Unlock()
	return n.fetch.sessions.byID[id]
}

// pendingIn is how many partitions the session's next fetch looks at, as far as is known when none is under way.
func (n *hotNode) pendingIn(id int32) int {
	s := n.session(id)
	s.acquire(nil)
	defer s.mu.Unlock()
	return len(s.takePending())
}

func (n *hotNode) waiting(partitions int32) (total int) {
	for p := range partitions {
		total += n.replicas.Lookup(hotTopic, p).Waiting()
	}
	return total
}

func TestFetchLooksOnlyAtWhatChangedInItsSession(t *testing.T) {
	const partitions = 50
	n := newHotNode(t, vfs.NewMem(), "/d", partitions)
	c := n.dial(t)
	id := sessionOf(t, c, partitions)
	if got := n.pendingIn(id); got != 0 {
		t.Errorf("%d partitions to look at after an answer that told all of them empty", got)
	}
	c.checkFetch(hotFetch(id, 1, 0), "")
	c.mustProduce(7)
	c.mustProduce(3)
	if got := n.pendingIn(id); got != 2 {
		t.Errorf("%d partitions to look at after appends to two", got)
	}
	c.checkFetch(hotFetch(id, 2, 0), "3:0-1+data 7:0-1+data ")
	// What the client does not take up is offered again.
	c.checkFetch(at(hotFetch(id, 3, 0), 7, 1), "3:0-1+data ")
	c.checkFetch(at(hotFetch(id, 4, 0), 3, 1), "")
	if got := n.pendingIn(id); got != 0 {
		t.Errorf("%d partitions to look at after both were fetched", got)
	}
	if _, err := n.replicas.Lookup(hotTopic, 7).DeleteRecords(1); err != nil {
		t.Fatal(err)
	}
	c.checkFetch(hotFetch(id, 5, 0), "7:1-1 ")
	c.checkFetch(hotFetch(id, 6, 0), "")
}

func TestFetchWaitsForQuietPartitionsToo(t *testing.T) {
	n := newHotNode(t, vfs.NewMem(), "/d", 20)
	c, producer := n.dial(t), n.dial(t)
	id := sessionOf(t, c, 20)
	for i := range int32(9) {
		p, epoch, count := i%3, 2*i+1, int64(i/3+1)
		if _, err := c.Write(hotFrame(hotFetch(id, epoch, 60_000))); err != nil {
			t.Fatal(err)
		}
		producer.mustProduce(p)
		want := fmt.Sprintf("%d:0-%d+data ", p, count)
		if got := mentioned(c.parseFetch(c.receive())); got != want {
			t.Fatalf("epoch %d mentions %q, want %q", epoch, got, want)
		}
		c.checkFetch(at(hotFetch(id, epoch+1, 0), p, count), "")
	}
}

func TestWaitingFetchEndsWhenAQuietPartitionChangesItsLeader(t *testing.T) {
	n := newHotNode(t, vfs.NewMem(), "/d", 5)
	c := n.dial(t)
	id := sessionOf(t, c, 5)
	if _, err := c.Write(hotFrame(hotFetch(id, 1, 60_000))); err != nil {
		t.Fatal(err)
	}
	r := metadata.NewPartitionChangeRecord()
	r.TopicID, r.PartitionID, r.Leader = hotTopicID, 4, 2
	n.publish(t, r)
	want := fmt.Sprintf("4!%d ", kerr.NotLeaderForPartition.Code)
	if got := mentioned(c.parseFetch(c.receive())); got != want {
		t.Errorf("the fetch mentions %q, want %q", got, want)
	}
	c.checkFetch(hotFetch(id, 2, 0), want)
}

func TestDeletedTopicIsToldInEachAnswer(t *testing.T) {
	n := newHotNode(t, vfs.NewMem(), "/d", 2)
	c := n.dial(t)
	id := sessionOf(t, c, 2)
	n.publish(t, &metadata.RemoveTopicRecord{TopicID: hotTopicID})
	want := fmt.Sprintf("0!%d 1!%d ", kerr.UnknownTopicOrPartition.Code, kerr.UnknownTopicOrPartition.Code)
	c.checkFetch(hotFetch(id, 1, 0), want)
	c.checkFetch(hotFetch(id, 2, 0), want)
}

func TestNextFetchOfASessionEndsTheWaitOfTheOneBefore(t *testing.T) {
	n := newHotNode(t, vfs.NewMem(), "/d", 3)
	first, second := n.dial(t), n.dial(t)
	id := sessionOf(t, first, 3)
	if _, err := first.Write(hotFrame(hotFetch(id, 1, 60_000))); err != nil {
		t.Fatal(err)
	}
	// Until the first has been taken, the second's epoch is one too many.
	var resp *kmsg.FetchResponse
	for range 10_000 {
		resp = second.fetched(at(hotFetch(id, 2, 0), 1, 0))
		if resp.ErrorCode != kerr.InvalidFetchSessionEpoch.Code {
			break
		}
	}
	if got := mentioned(resp); got != "" {
		t.Errorf("the second fetch mentions %q", got)
	}
	if got := mentioned(first.parseFetch(first.receive())); got != "" {
		t.Errorf("the first fetch mentions %q", got)
	}
	first.mustProduce(2)
	second.checkFetch(hotFetch(id, 3, 60_000), "2:0-1+data ")
}

func TestEndOfASessionWaitsForTheFetchBeforeItOnItsConnection(t *testing.T) {
	const waitMillis = 200
	n := newHotNode(t, vfs.NewMem(), "/d", 3)
	c := n.dial(t)
	id := sessionOf(t, c, 3)
	began := time.Now()
	frames := append(hotFrame(hotFetch(id, 1, waitMillis)), hotFrame(hotFetch(id, -1, 0))...)
	if _, err := c.Write(frames); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got := mentioned(c.parseFetch(c.receive())); got != "" {
			t.Errorf("a fetch mentions %q", got)
		}
		if took := time.Since(began); took < waitMillis*time.Millisecond {
			t.Errorf("answered after %v, not after the %d ms that it was to wait", took, waitMillis)
		}
	}
	if got := n.waiting(3); got != 0 {
		t.Errorf("%d subscriptions after the session's end", got)
	}
}

func TestEndedSessionsLeaveNothingBehind(t *testing.T) {
	const partitions = 10
	n := newHotNode(t, vfs.NewMem(), "/d", partitions)
	c := n.dial(t)
	id := sessionOf(t, c, partitions)
	if got := n.waiting(partitions); got != partitions {
		t.Errorf("a quiet session of %d partitions has %d subscriptions", partitions, got)
	}
	forget := hotFetch(id, 1, 0)
	f := kmsg.NewFetchRequestForgottenTopic()
	f.Topic, f.Partitions = hotTopic, []int32{0, 1, 2, 3}
	forget.ForgottenTopics = append(forget.ForgottenTopics, f)
	c.checkFetch(forget, "")
	if got := n.waiting(partitions); got != partitions-4 {
		t.Errorf("%d subscriptions after 4 of %d partitions were forgotten", got, partitions)
	}
	c.fetched(hotFetch(id, -1, 0))
	if got := n.waiting(partitions); got != 0 {
		t.Errorf("%d subscriptions after the session's end", got)
	}
	// A session that is ended while a fetch of it waits.
	id = sessionOf(t, c, partitions)
	waiter := n.dial(t)
	if _, err := waiter.Write(hotFrame(hotFetch(id, 1, 60_000))); err != nil {
		t.Fatal(err)
	}
	c.fetched(hotFetch(id, -1, 0))
	waiter.receive()
	if got := n.waiting(partitions); got != 0 {
		t.Errorf("%d subscriptions after the end of a session in use", got)
	}
	// Fetches without a session leave none either.
	c.checkFetch(at(hotFetch(0, -1, 20), 1, 0), "1:0-0 ")
	if got := n.waiting(partitions); got != 0 {
		t.Errorf("%d subscriptions after a fetch without a session", got)
	}
}

func TestPartitionNamedTwiceIsFetchedOnceAsTheLastMentionWants(t *testing.T) {
	for _, partitions := range []int32{3, 30} { // listed by a scan, and by a map
		n := newHotNode(t, vfs.NewMem(), "/d", partitions)
		c := n.dial(t)
		c.mustProduce(1)
		for _, epoch := range []int32{-1, 0} {
			q := hotFetch(0, epoch, 0)
			want := ""
			for p := range partitions {
				at(q, p, 0)
				want += fmt.Sprintf("%d:0-0 ", p)
			}
			at(q, 1, 1)
			want = strings.Replace(want, "1:0-0 ", "1:0-1 ", 1)
			if got := mentioned(c.fetched(q)); got != want {
				t.Errorf("session epoch %d mentions %q, want %q", epoch, got, want)
			}
		}
	}
}

func TestProduceLeavesTopicsWithoutPartitionsOut(t *testing.T) {
	n := newHotNode(t, vfs.NewMem(), "/d", 1)
	q := hotProduce(0, -1, hotBatch(1, 10))
	empty := kmsg.NewProduceRequestTopic()
	empty.Topic = "nothing"
	q.Topics = []kmsg.ProduceRequestTopic{empty, q.Topics[0], empty}
	answer := n.dial(t).roundTrip(hotFrame(q))
	resp := kmsg.NewPtrProduceResponse()
	resp.Version = 12
	if err := resp.ReadFrom(answer[1:]); err != nil {
		t.Fatal(err)
	}
	if len(resp.Topics) != 1 || resp.Topics[0].Topic != hotTopic || resp.Topics[0].Partitions[0].ErrorCode != 0 {
		t.Errorf("the answer is %+v", resp.Topics)
	}
}

// TestSessionAnswersAreThoseOfAWalkOverAllPartitions compares random sessions with what a broker that looks at every
// partition for each fetch would mention.
func TestSessionAnswersAreThoseOfAWalkOverAllPartitions(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) { compareWithWalk(t, rand.New(rand.NewPCG(seed, 1))) })
	}
}

// walked is a partition of the model of a session.
type walked struct{ offset, sentHigh, sentStart int64 }

func compareWithWalk(t *testing.T, random *rand.Rand) {
	t.Helper()
	const partitions = 6
	n := newHotNode(t, vfs.NewMem(), "/d", partitions)
	c := n.dial(t)
	id := sessionOf(t, c, partitions)
	model := map[int32]*walked{}
	for p := range int32(partitions) {
		model[p] = &walked{}
	}
	for epoch := int32(1); epoch <= 60; epoch++ {
		q := hotFetch(id, epoch, int32(random.IntN(2)*5))
		for range random.IntN(4) {
			p := random.Int32N(partitions)
			state := n.replicas.Lookup(hotTopic, p).State()
			switch random.IntN(5) {
			case 0, 1:
				c.mustProduce(p)
			case 2:
				if _, err := n.replicas.Lookup(hotTopic, p).DeleteRecords(state.LogStartOffset + (state.HighWatermark-state.LogStartOffset)/2); err != nil {
					t.Fatal(err)
				}
			case 3:
				if mentions(q, p) {
					continue
				}
				offset := state.HighWatermark
				if random.IntN(3) == 0 {
					offset = state.LogStartOffset
				}
				at(q, p, offset)
				if model[p] == nil {
					model[p] = &walked{sentHigh: -1, sentStart: -1}
				}
				model[p].offset = offset
			case 4:
				if mentions(q, p) {
					continue
				}
				f := kmsg.NewFetchRequestForgottenTopic()
				f.Topic, f.Partitions = hotTopic, []int32{p}
				q.ForgottenTopics = append(q.ForgottenTopics, f)
				delete(model, p)
			}
		}
		if len(model) == 0 {
			return // a session without partitions is none
		}
		want := n.walk(model)
		got := map[int32]string{}
		resp := c.fetched(q)
		for _, x := range resp.Topics {
			for _, p := range x.Partitions {
				got[p.Partition] = mentioned(&kmsg.FetchResponse{Topics: []kmsg.FetchResponseTopic{{Partitions: []kmsg.FetchResponseTopicPartition{p}}}})
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) || resp.ErrorCode != 0 {
			t.Fatalf("epoch %d: error %d, mentions %v, want %v", epoch, resp.ErrorCode, got, want)
		}
	}
}

// mentions tells whether a request names the partition already; it may do so once.
func mentions(q *kmsg.FetchRequest, partition int32) bool {
	for _, t := range q.Topics {
		for _, p := range t.Partitions {
			if p.Partition == partition {
				return true
			}
		}
	}
	for _, f := range q.ForgottenTopics {
		if f.Partitions[0] == partition {
			return true
		}
	}
	return false
}

// walk is what an answer has to mention of each partition of the model.
func (n *hotNode) walk(model map[int32]*walked) map[int32]string {
	out := map[int32]string{}
	for p, m := range model {
		s := n.replicas.Lookup(hotTopic, p).State()
		if m.offset < s.LogStartOffset {
			out[p] = fmt.Sprintf("%d!%d ", p, kerr.OffsetOutOfRange.Code)
			m.sentHigh, m.sentStart = -1, -1
			continue
		}
		data := ""
		if m.offset < s.HighWatermark {
			data = "+data"
		}
		if data != "" || s.HighWatermark != m.sentHigh || s.LogStartOffset != m.sentStart {
			out[p] = fmt.Sprintf("%d:%d-%d%s ", p, s.LogStartOffset, s.HighWatermark, data)
		}
		m.sentHigh, m.sentStart = s.HighWatermark, s.LogStartOffset
	}
	return out
}

// TestManyFetchesOfOneSessionEnd has clients fight over a session while records arrive: every fetch must be answered,
// and the session must know in the end what it has to tell.
func TestManyFetchesOfOneSessionEnd(t *testing.T) {
	const partitions = 8
	n := newHotNode(t, vfs.NewMem(), "/d", partitions)
	c := n.dial(t)
	id := sessionOf(t, c, partitions)
	epoch := func() int32 {
		n.fetch.sessions.mu.Lock()
		defer n.fetch.sessions.mu.Unlock()
		return n.fetch.sessions.byID[id].epoch
	}
	done := make(chan int)
	for range 4 {
		fighter := n.dial(t)
		go func() {
			answers := 0
			for range 200 {
				if resp := fighter.fetched(hotFetch(id, epoch(), 20)); resp.ErrorCode == 0 {
					answers++
				}
			}
			done <- answers
		}()
	}
	for i := range int32(200) {
		c.mustProduce(i % partitions)
	}
	answers := 0
	for range 4 {
		answers += <-done
	}
	if answers < 200 {
		t.Errorf("only %d of 800 fetches were answered", answers)
	}
	want := ""
	for p := range partitions {
		want += fmt.Sprintf("%d:0-%d+data ", p, 200/partitions)
	}
	q := hotFetch(id, epoch(), 0)
	got := n.dial(t).fetched(q)
	slices.SortFunc(got.Topics, func(a, b kmsg.FetchResponseTopic) int {
		return int(a.Partitions[0].Partition - b.Partitions[0].Partition)
	})
	for _, t := range got.Topics {
		slices.SortFunc(t.Partitions, func(a, b kmsg.FetchResponseTopicPartition) int { return int(a.Partition - b.Partition) })
	}
	if text := mentioned(got); text != want {
		t.Errorf("in the end the session mentions %q, want %q", text, want)
	}
}
