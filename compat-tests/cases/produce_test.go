package cases

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/compat-tests/harness"
	"gregor/compat-tests/wire"
)

func record(value string) wire.Record {
	return wire.Record{Timestamp: nowMillis(), Value: []byte(value)}
}

func highWatermark(t *testing.T, n *harness.Node, topic wire.Topic) int64 {
	t.Helper()
	return wire.ListOffset(t, n.Addr, 8, topic, 0, -1).Offset
}

func TestNoResponseForAcksZero(t *testing.T) {
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		topic := wire.CreateTopic(t, n, "acks0", 1)
		c := wire.Dial(t, n.Addr)
		for v := int16(3); v <= 13; v++ {
			c.Send(wire.ProduceRequest(v, topic, 0, 0, wire.NewBatch(wire.None, record("silent")).Encode()))
			c.Request(metadataRequest(12, false)) // fails when the first bytes are another request's
		}
		want(t, "records", highWatermark(t, n, topic), 11)
	})
}

func TestLogAppendTimeInTheAnswer(t *testing.T) {
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		appendTime := wire.CreateTopic(t, n, "lat-answer", 1, "message.timestamp.type", "LogAppendTime")
		createTime := wire.CreateTopic(t, n, "ct-answer", 1)
		for v := int16(3); v <= 13; v++ {
			batch := wire.NewBatch(wire.None, record("x")).Encode()
			before := nowMillis()
			got := wire.Produce(t, n.Addr, v, appendTime, 0, batch)
			if got.LogAppendTime < before || got.LogAppendTime > nowMillis() {
				t.Errorf("v%d: log append time %d, now %d", v, got.LogAppendTime, nowMillis())
			}
			stored := wire.ReadAll(t, n.Addr, appendTime, 0, got.BaseOffset)
			want(t, "stored time", stored[0].MaxTimestamp, got.LogAppendTime)
			want(t, "CreateTime", wire.Produce(t, n.Addr, v, createTime, 0, batch).LogAppendTime, -1)
			want(t, "unknown topic", wire.Produce(t, n.Addr, v, wire.Topic{Name: "no-such", ID: [16]byte{1}}, 0, batch).LogAppendTime, -1)
		}
	})
}

func TestLogAppendTimeIsStoredAndIndexed(t *testing.T) {
	const year1970, year2100 = 1000, 4102444800000
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		topic := wire.CreateTopic(t, n, "lat-stored", 1, "message.timestamp.type", "LogAppendTime")
		before := nowMillis()
		sent := []wire.Record{{Timestamp: year1970, Value: []byte("a")}, {Timestamp: year2100, Value: []byte("b")}}
		for _, codec := range wire.Codecs {
			b := wire.NewBatch(codec, sent...)
			base := wire.MustProduce(t, n.Addr, topic, 0, b)
			got := wire.ReadAll(t, n.Addr, topic, 0, base)
			if len(got) != 1 || got[0].Attributes != int16(codec)|wire.LogAppendTime || got[0].MaxTimestamp < before || got[0].MaxTimestamp > nowMillis() {
				t.Fatalf("%v: %+v", codec, got)
			}
			want(t, "base timestamp", got[0].BaseTimestamp, year1970)
			want(t, "record's own time", got[0].Records[1].Timestamp, year2100)
		}
		at := wire.ListOffset(t, n.Addr, 8, topic, 0, before-60000)
		want(t, "lookup before", at.Offset, 0)
		if at.Timestamp < before {
			t.Errorf("lookup's timestamp %d is older than the append", at.Timestamp)
		}
		want(t, "lookup after", wire.ListOffset(t, n.Addr, 8, topic, 0, nowMillis()+60000).Offset, -1)
	})
}

func TestTimestampTooFarAhead(t *testing.T) {
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		topic := wire.CreateTopic(t, n, "too-far-ahead", 1)
		appendTime := wire.CreateTopic(t, n, "too-far-ahead-lat", 1, "message.timestamp.type", "LogAppendTime")
		now := nowMillis()
		bad := []wire.Record{{Timestamp: now, Value: []byte("ok")}, {Timestamp: now + 2*3600000, Value: []byte("ahead")}}
		for v := int16(3); v <= 13; v++ {
			got := wire.Produce(t, n.Addr, v, topic, 0, wire.NewBatch(wire.None, bad...).Encode())
			wantCode(t, fmt.Sprintf("v%d", v), got.ErrorCode, kerr.InvalidTimestamp)
			want(t, "base offset", got.BaseOffset, -1)
			if v < 8 {
				continue
			}
			if len(got.ErrorRecords) != 1 || got.ErrorRecords[0].RelativeOffset != 1 || got.ErrorMessage == nil {
				t.Errorf("v%d: %+v", v, got)
			}
			wantCode(t, "LogAppendTime", wire.Produce(t, n.Addr, v, appendTime, 0, wire.NewBatch(wire.None, bad...).Encode()).ErrorCode, nil)
		}
		compressed := wire.Produce(t, n.Addr, 9, topic, 0, wire.NewBatch(wire.Zstd, bad...).Encode())
		wantCode(t, "compressed", compressed.ErrorCode, kerr.InvalidTimestamp)
		want(t, "stored", highWatermark(t, n, topic), 0)
		long := wire.NewBatch(wire.None, wire.Record{Timestamp: 1, Value: []byte("1970")})
		wantCode(t, "long ago", wire.Produce(t, n.Addr, 9, topic, 0, long.Encode()).ErrorCode, nil)
	})
}

func TestBatchHeaderThatDoesNotAgree(t *testing.T) {
	two := func() *wire.Batch { return wire.NewBatch(wire.None, record("a"), record("b")) }
	faults := map[string]struct {
		batch *wire.Batch
		topic string
		want  *kerr.Error
	}{
		"base offset":          {batch: edit(two(), func(b *wire.Batch) { b.BaseOffset = 1 }), want: kerr.InvalidRecord},
		"count 0":              {batch: edit(two(), func(b *wire.Batch) { b.Count = new(int32(0)) }), want: kerr.InvalidRecord},
		"negative count":       {batch: edit(two(), func(b *wire.Batch) { b.Count = new(int32(-1)) }), want: kerr.InvalidRecord},
		"count too low":        {batch: edit(two(), func(b *wire.Batch) { b.Count = new(int32(1)) }), want: kerr.InvalidRecord},
		"count too high":       {batch: edit(two(), func(b *wire.Batch) { b.Count = new(int32(3)) }), want: kerr.InvalidRecord},
		"last offset delta":    {batch: edit(two(), func(b *wire.Batch) { b.LastOffsetDelta = new(int32(5)) }), want: kerr.InvalidRecord},
		"control bit":          {batch: edit(two(), func(b *wire.Batch) { b.Attributes |= wire.Control }), want: kerr.InvalidRecord},
		"negative sequence":    {batch: two().From(4000, 0, -5), want: kerr.InvalidRecord},
		"LogAppendTime bit":    {batch: edit(two(), func(b *wire.Batch) { b.Attributes |= wire.LogAppendTime }), topic: "disagree-lat", want: kerr.InvalidTimestamp},
		"null key, compacted":  {batch: two(), topic: "disagree-compact", want: kerr.InvalidRecord},
		"LogAppendTime bit ok": {batch: edit(two(), func(b *wire.Batch) { b.Attributes |= wire.LogAppendTime }), topic: "disagree-ct"},
	}
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		topics := map[string]wire.Topic{
			"":                 wire.CreateTopic(t, n, "disagree", 1),
			"disagree-ct":      wire.CreateTopic(t, n, "disagree-ct", 1),
			"disagree-lat":     wire.CreateTopic(t, n, "disagree-lat", 1, "message.timestamp.type", "LogAppendTime"),
			"disagree-compact": wire.CreateTopic(t, n, "disagree-compact", 1, "cleanup.policy", "compact"),
		}
		for name, fault := range faults {
			t.Run(name, func(t *testing.T) {
				topic := topics[fault.topic]
				before := highWatermark(t, n, topic)
				got := wire.Produce(t, n.Addr, 12, topic, 0, fault.batch.Encode())
				wantCode(t, name, got.ErrorCode, fault.want)
				if fault.want != nil {
					want(t, "high watermark", highWatermark(t, n, topic), before)
				}
				if name == "null key, compacted" && len(got.ErrorRecords) != 2 {
					t.Errorf("record errors: %+v", got.ErrorRecords)
				}
			})
		}
		stored := wire.ReadAll(t, n.Addr, topics["disagree-ct"], 0, 0)
		want(t, "attributes after the LogAppendTime bit", stored[0].Attributes, 0)
	})
}

func edit[V any](v *V, f func(*V)) *V {
	f(v)
	return v
}

// randomBytes are bytes that do not compress.
func randomBytes(n int) []byte {
	r := rand.NewChaCha8([32]byte{1})
	b := make([]byte, n)
	_, _ = r.Read(b)
	return b
}

func TestWhichTooLargeError(t *testing.T) {
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		small := wire.CreateTopic(t, n, "too-large", 1, "max.message.bytes", "2000")
		segment := wire.CreateTopic(t, n, "too-large-segment", 1, "segment.bytes", "1048576", "max.message.bytes", "4000000")
		batch := func(size int) []byte {
			return wire.NewBatch(wire.None, wire.Record{Timestamp: nowMillis(), Value: randomBytes(size)}).Encode()
		}
		wantCode(t, "above max.message.bytes", wire.Produce(t, n.Addr, 9, small, 0, batch(3000)).ErrorCode, kerr.MessageTooLarge)
		wantCode(t, "above segment.bytes", wire.Produce(t, n.Addr, 9, segment, 0, batch(2000000)).ErrorCode, kerr.RecordListTooLarge)
		zeros := wire.NewBatch(wire.Gzip, wire.Record{Timestamp: nowMillis(), Value: make([]byte, 100000)}).Encode()
		wantCode(t, "small only when compressed", wire.Produce(t, n.Addr, 9, small, 0, zeros).ErrorCode, nil)
	})
}

func TestZstdAndOldVersions(t *testing.T) {
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		topic := wire.CreateTopic(t, n, "zstd-old", 1)
		batch := wire.NewBatch(wire.Zstd, record("z"))
		for v := int16(3); v <= 13; v++ {
			expected := (*kerr.Error)(nil)
			if v < 7 {
				expected = kerr.UnsupportedCompressionType
			}
			wantCode(t, fmt.Sprintf("Produce v%d", v), wire.Produce(t, n.Addr, v, topic, 0, batch.Encode()).ErrorCode, expected)
		}
		for v := int16(4); v <= 17; v++ {
			p := wire.Fetch(t, n.Addr, v, topic, 0, 0)
			wantCode(t, fmt.Sprintf("Fetch v%d", v), p.ErrorCode, nil)
			batches, err := wire.ParseBatches(p.RecordBatches)
			if err != nil || len(batches) == 0 || batches[0].Attributes != int16(wire.Zstd) {
				t.Errorf("Fetch v%d: %+v, %v", v, batches, err)
			}
		}
		for i, target := range []string{"uncompressed", "gzip", "snappy", "lz4", "zstd"} {
			fixed := wire.CreateTopic(t, n, "codec-"+target, 1, "compression.type", target)
			for _, sent := range wire.Codecs {
				base := wire.MustProduce(t, n.Addr, fixed, 0, wire.NewBatch(sent, record("one"), record("two")))
				got := wire.ReadAll(t, n.Addr, fixed, 0, base)[0]
				want(t, fmt.Sprintf("%v sent to %s", sent, target), got.Attributes, int16(i))
				want(t, "value", string(got.Records[1].Value), "two")
			}
		}
	})
}

// producerID asks for a new producer.
func producerID(t *testing.T, n *harness.Node) int64 {
	t.Helper()
	req := wire.At(kmsg.NewPtrInitProducerIDRequest(), 4)
	req.ProducerID, req.ProducerEpoch, req.TransactionTimeoutMillis = -1, -1, 60000
	for range 100 {
		r := wire.Do[*kmsg.InitProducerIDResponse](t, n.Addr, req)
		if r.ErrorCode == 0 {
			want(t, "epoch", r.ProducerEpoch, 0)
			return r.ProducerID
		}
		if r.ErrorCode != kerr.CoordinatorLoadInProgress.Code {
			t.Fatalf("InitProducerId: %v", kerr.ErrorForCode(r.ErrorCode))
		}
		between(50 * time.Millisecond)
	}
	t.Fatal("no producer id")
	return 0
}

func TestIdempotentRetrySucceeds(t *testing.T) {
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		topic := wire.CreateTopic(t, n, "idempotent", 1)
		pid := producerID(t, n)
		send := func(sequence int32) kmsg.ProduceResponseTopicPartition {
			return wire.Produce(t, n.Addr, 11, topic, 0, wire.NewBatch(wire.None, record(strconv.Itoa(int(sequence)))).From(pid, 0, sequence).Encode())
		}
		for sequence := range int32(7) {
			want(t, "offset", send(sequence).BaseOffset, int64(sequence))
		}
		for sequence := int32(2); sequence < 7; sequence++ {
			again := send(sequence)
			wantCode(t, "resend", again.ErrorCode, nil)
			want(t, "original offset", again.BaseOffset, int64(sequence))
		}
		wantCode(t, "older than five", send(0).ErrorCode, kerr.OutOfOrderSequenceNumber)
		wantCode(t, "gap", send(9).ErrorCode, kerr.OutOfOrderSequenceNumber)
		want(t, "log end", highWatermark(t, n, topic), 7)
		wantCode(t, "goes on", send(7).ErrorCode, nil)
	})
}

func TestSequenceWrap(t *testing.T) {
	const last = 1<<31 - 1
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		topic := wire.CreateTopic(t, n, "wrap", 1)
		pid := producerID(t, n)
		send := func(sequence int32, records ...wire.Record) int16 {
			return wire.Produce(t, n.Addr, 9, topic, 0, wire.NewBatch(wire.None, records...).From(pid, 0, sequence).Encode()).ErrorCode
		}
		wantCode(t, "up to the last", send(last-1, record("a"), record("b")), nil)
		wantCode(t, "0 after it", send(0, record("c")), nil)
		wantCode(t, "negative", send(-1, record("d")), kerr.InvalidRecord)
		pid = producerID(t, n)
		wantCode(t, "across the limit", send(last-1, record("a"), record("b"), record("c"), record("d")), nil)
		wantCode(t, "after crossing", send(2, record("e")), nil)
		want(t, "log end", highWatermark(t, n, topic), 8)
	})
}

func TestUnknownOrForbiddenTopic(t *testing.T) {
	// The forbidden half needs an authorizer, which Gregor does not have yet.
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		batch := wire.NewBatch(wire.None, record("x")).Encode()
		for v := int16(3); v <= 13; v++ {
			expected := kerr.UnknownTopicOrPartition
			if v >= 13 {
				expected = kerr.UnknownTopicID
			}
			got := wire.Produce(t, n.Addr, v, wire.Topic{Name: "not-there", ID: [16]byte{9, 9}}, 0, batch)
			wantCode(t, fmt.Sprintf("v%d", v), got.ErrorCode, expected)
			want(t, "base offset", got.BaseOffset, -1)
		}
		topic := wire.CreateTopic(t, n, "one-partition", 1)
		wantCode(t, "no such partition", wire.Produce(t, n.Addr, 12, topic, 7, batch).ErrorCode, kerr.UnknownTopicOrPartition)
	})
}

func TestProduceWithNothingInIt(t *testing.T) {
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		topic := wire.CreateTopic(t, n, "nothing-in-it", 1)
		for v := int16(3); v <= 13; v++ {
			for _, acks := range []int16{-1, 1} {
				empty := wire.ProduceRequest(v, topic, 0, acks, nil)
				empty.Topics = nil
				want(t, "topics", len(wire.Do[*kmsg.ProduceResponse](t, n.Addr, empty).Topics), 0)
			}
			bad := wire.ProduceRequest(v, topic, 0, 2, wire.NewBatch(wire.None, record("x")).Encode())
			got := wire.Do[*kmsg.ProduceResponse](t, n.Addr, bad).Topics[0].Partitions[0]
			wantCode(t, "acks 2", got.ErrorCode, kerr.InvalidRequiredAcks)
		}
		want(t, "records", highWatermark(t, n, topic), 0)
		for _, codec := range wire.Codecs { // all codecs are stored as sent
			b := wire.NewBatch(codec, record("a"), record("b"))
			base := wire.MustProduce(t, n.Addr, topic, 0, b)
			p := wire.Fetch(t, n.Addr, 12, topic, 0, base)
			if !bytes.Equal(p.RecordBatches[16:], b.Encode()[16:]) {
				t.Errorf("%v: other bytes after the leader epoch than were sent", codec)
			}
		}
	})
}
