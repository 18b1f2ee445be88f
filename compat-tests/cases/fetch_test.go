package cases

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/compat-tests/harness"
	"gregor/compat-tests/wire"
)

// fetchMax is the newest version of Fetch; the last is for followers only.
const fetchMax = 17

func fetch(t *testing.T, n *harness.Node, req *kmsg.FetchRequest) *kmsg.FetchResponse {
	t.Helper()
	return wire.Do[*kmsg.FetchResponse](t, n.Addr, req)
}

func produceValues(t *testing.T, n *harness.Node, topic wire.Topic, partition int32, values ...string) {
	t.Helper()
	for _, v := range values {
		wire.MustProduce(t, n.Addr, topic, partition, wire.NewBatch(wire.None, record(v)))
	}
}

func deleteRecords(t *testing.T, n *harness.Node, topic string, before int64) kmsg.DeleteRecordsResponseTopicPartition {
	t.Helper()
	req := wire.At(kmsg.NewPtrDeleteRecordsRequest(), 2)
	req.TimeoutMillis = 10000
	rt := kmsg.NewDeleteRecordsRequestTopic()
	rt.Topic = topic
	rt.Partitions = append(rt.Partitions, kmsg.DeleteRecordsRequestTopicPartition{Offset: before})
	req.Topics = append(req.Topics, rt)
	return wire.Do[*kmsg.DeleteRecordsResponse](t, n.Addr, req).Topics[0].Partitions[0]
}

func TestOneBatchBiggerThanEveryLimit(t *testing.T) {
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		topic := wire.CreateTopic(t, n, "bigger", 2)
		for p := range int32(2) {
			wire.MustProduce(t, n.Addr, topic, p, wire.NewBatch(wire.None, wire.Record{Timestamp: nowMillis(), Value: randomBytes(900000)}))
		}
		for v := int16(4); v <= fetchMax; v++ {
			req := wire.FetchRequest(v, topic, 0, 0, 0)
			req.MaxBytes = 1000
			req.Topics[0].Partitions = append(req.Topics[0].Partitions, wire.FetchPartition(1, 0))
			for i := range req.Topics[0].Partitions {
				req.Topics[0].Partitions[i].PartitionMaxBytes = 1000
			}
			got := fetch(t, n, req).Topics[0].Partitions
			if len(got) != 2 || len(got[0].RecordBatches) < 900000 || len(got[1].RecordBatches) != 0 {
				t.Errorf("v%d: %d and %d bytes", v, len(got[0].RecordBatches), len(got[1].RecordBatches))
			}
		}
	})
}

func TestOffsetPastTheEnd(t *testing.T) {
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		topic := wire.CreateTopic(t, n, "past-the-end", 1)
		produceValues(t, n, topic, 0, "0", "1", "2", "3", "4")
		deleteRecords(t, n, topic.Name, 3)
		for v := int16(4); v <= fetchMax; v++ {
			for offset, expected := range map[int64]*kerr.Error{2: kerr.OffsetOutOfRange, 3: nil, 5: nil, 6: kerr.OffsetOutOfRange} {
				req := wire.FetchRequest(v, topic, 0, offset, 0)
				if expected != nil {
					req.MaxWaitMillis = 20000 // an error is answered at once
				}
				began := time.Now()
				p := fetch(t, n, req).Topics[0].Partitions[0]
				wantCode(t, fmt.Sprintf("v%d at %d", v, offset), p.ErrorCode, expected)
				if expected != nil {
					want(t, "high watermark", p.HighWatermark, -1)
				}
				if d := time.Since(began); d > 10*time.Second {
					t.Errorf("v%d at %d: answered after %v", v, offset, d)
				}
			}
		}
	})
}

func TestMinBytesAndMaxWait(t *testing.T) {
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		topic := wire.CreateTopic(t, n, "min-bytes", 2)
		timed := func(edit func(*kmsg.FetchRequest)) (*kmsg.FetchResponse, time.Duration) {
			req := wire.FetchRequest(12, topic, 0, 0, 500)
			edit(req)
			began := time.Now()
			return fetch(t, n, req), time.Since(began)
		}
		const nearlyWait = 480 * time.Millisecond
		if _, d := timed(func(*kmsg.FetchRequest) {}); d < nearlyWait {
			t.Errorf("caught up: answered after %v", d)
		}
		atOnce := map[string]func(*kmsg.FetchRequest){
			"min bytes 0": func(r *kmsg.FetchRequest) { r.MinBytes, r.MaxWaitMillis = 0, 20000 },
			"no wait":     func(r *kmsg.FetchRequest) { r.MaxWaitMillis = 0 },
			"negative":    func(r *kmsg.FetchRequest) { r.MaxWaitMillis = -1 },
			"no topics":   func(r *kmsg.FetchRequest) { r.Topics, r.MaxWaitMillis = nil, 20000 },
			"one in error": func(r *kmsg.FetchRequest) {
				r.MaxWaitMillis = 20000
				r.Topics[0].Partitions = append(r.Topics[0].Partitions, wire.FetchPartition(1, 77))
			},
			"nothing known": func(r *kmsg.FetchRequest) {
				r.MaxWaitMillis = 20000
				r.Topics[0].Partitions[0].Partition = 9
			},
		}
		for name, edit := range atOnce {
			if _, d := timed(edit); d > 5*time.Second {
				t.Errorf("%s: answered after %v", name, d)
			}
		}
		if _, d := timed(func(r *kmsg.FetchRequest) {
			r.Topics[0].Partitions = append(r.Topics[0].Partitions, wire.FetchPartition(9, 0))
		}); d < nearlyWait {
			t.Errorf("one unknown: answered after %v", d)
		}
		c := wire.Dial(t, n.Addr)
		waiting := wire.FetchRequest(12, topic, 0, 0, 20000)
		correlation := c.Send(waiting)
		between(100 * time.Millisecond)
		produceValues(t, n, topic, 0, "wakes it")
		began := time.Now()
		woken, _ := c.Receive(waiting, correlation).(*kmsg.FetchResponse)
		if d := time.Since(began); d > 5*time.Second || len(woken.Topics[0].Partitions[0].RecordBatches) == 0 {
			t.Errorf("new data: %v, %+v", d, woken)
		}
		if r, d := timed(func(r *kmsg.FetchRequest) { r.MinBytes = 1 << 20 }); d < nearlyWait || len(r.Topics[0].Partitions[0].RecordBatches) == 0 {
			t.Errorf("1 MB wanted, few bytes there: %v, %+v", d, r)
		}
	})
}

func TestIncrementalFetchWithNoPartitions(t *testing.T) {
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		topic := wire.CreateTopic(t, n, "incremental-fetch", 3)
		for v := int16(7); v <= fetchMax; v++ {
			c := wire.Dial(t, n.Addr)
			request := func(r *kmsg.FetchRequest) *kmsg.FetchResponse {
				resp, _ := c.Request(r).(*kmsg.FetchResponse)
				return resp
			}
			end := wire.ListOffset(t, n.Addr, 7, topic, 1, -1).Offset
			first := wire.FetchRequest(v, topic, 0, 0, 0)
			first.SessionEpoch = 0
			first.Topics[0].Partitions = append(first.Topics[0].Partitions, wire.FetchPartition(1, end), wire.FetchPartition(2, 0))
			opened := request(first)
			if opened.SessionID == 0 || len(opened.Topics[0].Partitions) != 3 {
				t.Fatalf("v%d: %+v", v, opened)
			}
			next := wire.FetchRequest(v, topic, 0, 0, 300)
			next.Topics, next.SessionID, next.SessionEpoch = nil, opened.SessionID, 1
			began := time.Now()
			idle := request(next)
			want(t, "session id", idle.SessionID, opened.SessionID)
			want(t, "partitions", len(idle.Topics), 0)
			if d := time.Since(began); d < 280*time.Millisecond {
				t.Errorf("v%d: answered after %v", v, d)
			}
			produceValues(t, n, topic, 1, "new")
			next.SessionEpoch, next.MaxWaitMillis = 2, 20000
			changed := request(next)
			if len(changed.Topics) != 1 || len(changed.Topics[0].Partitions) != 1 || changed.Topics[0].Partitions[0].Partition != 1 {
				t.Errorf("v%d: what changed: %+v", v, changed)
			}
			next.SessionEpoch = 9
			wantCode(t, "wrong epoch", request(next).ErrorCode, kerr.InvalidFetchSessionEpoch)
			next.SessionID = opened.SessionID + 1
			wantCode(t, "wrong session", request(next).ErrorCode, kerr.FetchSessionIDNotFound)
		}
	})
}

func TestEmptyRecordsAreNotNull(t *testing.T) {
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		topic := wire.CreateTopic(t, n, "not-null", 1)
		for v := int16(4); v <= fetchMax; v++ {
			for offset := range int64(2) { // the end, and out of range
				p := wire.Fetch(t, n.Addr, v, topic, 0, offset)
				if p.RecordBatches == nil || len(p.RecordBatches) != 0 {
					t.Errorf("v%d at %d: records %v", v, offset, p.RecordBatches)
				}
			}
			p := wire.Fetch(t, n.Addr, v, wire.Topic{Name: "nowhere", ID: [16]byte{1}}, 0, 0)
			if p.RecordBatches == nil {
				t.Errorf("v%d, unknown topic: null records", v)
			}
		}
	})
}

func TestAbortedListOnlyForReadCommitted(t *testing.T) {
	// With nothing aborted; transactions themselves are not part of Gregor yet.
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		topic := wire.CreateTopic(t, n, "aborted-list", 1)
		produceValues(t, n, topic, 0, "x")
		for v := int16(4); v <= fetchMax; v++ {
			req := wire.FetchRequest(v, topic, 0, 0, 0)
			if p := fetch(t, n, req).Topics[0].Partitions[0]; p.AbortedTransactions != nil {
				t.Errorf("v%d, read uncommitted: %v", v, p.AbortedTransactions)
			}
			req.IsolationLevel = 1
			if p := fetch(t, n, req).Topics[0].Partitions[0]; p.AbortedTransactions == nil || len(p.AbortedTransactions) != 0 {
				t.Errorf("v%d, read committed: %v", v, p.AbortedTransactions)
			}
		}
	})
}

func deleteTopic(t *testing.T, n *harness.Node, name string) {
	t.Helper()
	req := wire.At(kmsg.NewPtrDeleteTopicsRequest(), 5)
	req.TopicNames, req.TimeoutMillis = []string{name}, 10000
	wantCode(t, "delete "+name, wire.Do[*kmsg.DeleteTopicsResponse](t, n.Addr, req).Topics[0].ErrorCode, nil)
}

func TestTopicMadeAgainUnderTheSameName(t *testing.T) {
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		old := wire.CreateTopic(t, n, "made-again", 1)
		produceValues(t, n, old, 0, "old")
		c := wire.Dial(t, n.Addr)
		first := wire.FetchRequest(13, old, 0, 1, 0)
		first.SessionEpoch = 0
		opened, _ := c.Request(first).(*kmsg.FetchResponse)
		deleteTopic(t, n, old.Name)
		harness.Eventually(t, waitTimeout, "the topic is gone", func() bool {
			return metadata(t, n, metadataRequest(12, false, old.Name)).Topics[0].ErrorCode == kerr.UnknownTopicOrPartition.Code
		})
		made := wire.CreateTopic(t, n, "made-again", 1)
		if made.ID == old.ID {
			t.Fatal("the new topic has the old one's id")
		}
		produceValues(t, n, made, 0, "new", "new")
		for v := int16(13); v <= fetchMax; v++ {
			wantCode(t, fmt.Sprintf("v%d, new session, old id", v), wire.Fetch(t, n.Addr, v, old, 0, 0).ErrorCode, kerr.UnknownTopicID)
		}
		next := wire.FetchRequest(13, old, 0, 0, 0)
		next.Topics, next.SessionID, next.SessionEpoch = nil, opened.SessionID, 1
		inSession, _ := c.Request(next).(*kmsg.FetchResponse)
		if len(inSession.Topics) != 1 {
			t.Fatalf("in the session: %+v", inSession)
		}
		wantCode(t, "in the session", inSession.Topics[0].Partitions[0].ErrorCode, kerr.InconsistentTopicID)
		byName := wire.Fetch(t, n.Addr, 12, old, 0, 0)
		wantCode(t, "by name", byName.ErrorCode, nil)
		want(t, "high watermark by name", byName.HighWatermark, 2)
	})
}

func TestAnswersComeInTimeAndInOrder(t *testing.T) {
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		topic := wire.CreateTopic(t, n, "in-order", 1)
		c := wire.Dial(t, n.Addr)
		began := time.Now()
		waits := wire.FetchRequest(12, topic, 0, 0, 1000)
		first := c.Send(waits)
		follows := metadataRequest(12, false)
		second := c.Send(follows)
		c.Receive(waits, first)
		if d := time.Since(began); d < 900*time.Millisecond || d > 15*time.Second {
			t.Errorf("fetch answered after %v", d)
		}
		c.Receive(follows, second)
		produceValues(t, n, topic, 0, "a", "b")
		var ids []int32
		var reqs []*kmsg.FetchRequest
		for i := range int64(20) {
			reqs = append(reqs, wire.FetchRequest(12, topic, 0, i%2, 1000))
			ids = append(ids, c.Send(reqs[i]))
		}
		for i := range reqs {
			r, _ := c.Receive(reqs[i], ids[i]).(*kmsg.FetchResponse)
			if len(r.Topics[0].Partitions[0].RecordBatches) == 0 {
				t.Errorf("queued request %d: no data", i)
			}
		}
	})
}

func TestLeaderEpochsInFetch(t *testing.T) {
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		topic := wire.CreateTopic(t, n, "epochs", 1)
		produceValues(t, n, topic, 0, "a", "b")
		for v := int16(9); v <= fetchMax; v++ {
			for epoch, expected := range map[int32]*kerr.Error{-1: nil, 0: nil, 5: kerr.UnknownLeaderEpoch} {
				req := wire.FetchRequest(v, topic, 0, 0, 0)
				req.Topics[0].Partitions[0].CurrentLeaderEpoch = epoch
				wantCode(t, fmt.Sprintf("v%d epoch %d", v, epoch), fetch(t, n, req).Topics[0].Partitions[0].ErrorCode, expected)
			}
			if v < 12 {
				continue
			}
			req := wire.FetchRequest(v, topic, 0, 1, 0)
			req.Topics[0].Partitions[0].LastFetchedEpoch = 0
			p := fetch(t, n, req).Topics[0].Partitions[0]
			if p.ErrorCode != 0 || len(p.RecordBatches) == 0 || p.DivergingEpoch.EndOffset != -1 {
				t.Errorf("v%d, right last epoch: %+v", v, p)
			}
			req.Topics[0].Partitions[0].LastFetchedEpoch = 7
			wantCode(t, "an epoch that never was", fetch(t, n, req).Topics[0].Partitions[0].ErrorCode, kerr.OffsetOutOfRange)
			req.Topics[0].Partitions[0] = wire.FetchPartition(0, 9)
			req.Topics[0].Partitions[0].LastFetchedEpoch = 0
			p = fetch(t, n, req).Topics[0].Partitions[0]
			if p.ErrorCode != 0 || len(p.RecordBatches) != 0 || p.DivergingEpoch.Epoch != 0 || p.DivergingEpoch.EndOffset != 2 {
				t.Errorf("v%d, beyond the epoch's end: %+v", v, p)
			}
		}
	})
}

func TestFetchedBatchIsWhatWasProduced(t *testing.T) {
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		topic := wire.CreateTopic(t, n, "verbatim", 1)
		b := wire.NewBatch(wire.None,
			wire.Record{Timestamp: nowMillis(), Key: []byte("k"), Value: nil, Headers: []wire.Header{{Key: "h", Value: []byte("v")}, {Key: "", Value: nil}}},
			wire.Record{Timestamp: nowMillis(), Key: nil, Value: []byte{}})
		base := wire.MustProduce(t, n.Addr, topic, 0, b)
		got := wire.Fetch(t, n.Addr, 17, topic, 0, base).RecordBatches
		b.LeaderEpoch = 0
		if !bytes.Equal(got, b.Encode()) {
			t.Errorf("got  % x\nwant % x", got, b.Encode())
		}
	})
}
