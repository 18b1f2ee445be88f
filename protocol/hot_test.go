package protocol

import (
	"bytes"
	"errors"
	"math"
	"testing"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestFetchResponseLeavesGapsForFiles(t *testing.T) {
	for version := int16(4); version <= 18; version++ {
		hdr := RequestHeader{Key: KeyFetch, Version: version, CorrelationID: 7}
		build := func(spliced bool) *FetchResponse {
			records := func(p FetchPartitionResponse, b []byte) FetchPartitionResponse {
				if spliced {
					p.SplicedBytes = len(b)
				} else {
					p.Records = b
				}
				return p
			}
			part := FetchPartitionResponse{HighWatermark: 10, LastStableOffset: 9, PreferredReadReplica: -1}
			leader := part
			leader.CurrentLeader = &LeaderIDAndEpoch{LeaderID: 3, LeaderEpoch: 4}
			return &FetchResponse{SessionID: 5, Topics: []FetchTopicResponse{
				{Name: "a", ID: UUID{1}, Partitions: []FetchPartitionResponse{records(part, bytes.Repeat([]byte("x"), 200)), part}},
				{Name: "b", ID: UUID{2}, Partitions: []FetchPartitionResponse{records(leader, bytes.Repeat([]byte("y"), 20_000)), records(part, []byte("z"))}},
			}}
		}
		want, none := AppendFetchResponse([]byte("head"), &hdr, build(false), nil)
		if len(none) != 0 {
			t.Fatalf("v%d: %d gaps without files", version, len(none))
		}
		buf, gaps := AppendFetchResponse([]byte("head"), &hdr, build(true), nil)
		var got []byte
		at := 0
		for i, gap := range gaps {
			got = append(got, buf[at:gap.At]...)
			got = append(got, bytes.Repeat([]byte{"xyz"[i]}, gap.Len)...)
			at = gap.At
		}
		got = append(got, buf[at:]...)
		differ(t, "spliced answer", got, want)
		if len(gaps) != 3 || gaps[2].Topic != 1 || gaps[2].Partition != 1 || gaps[1].Len != 20_000 {
			t.Errorf("v%d: gaps %+v", version, gaps)
		}
	}
}

// TestAbsentRecordsAreEmptyNotNull reads the answer with another implementation.
func TestAbsentRecordsAreEmptyNotNull(t *testing.T) {
	for version := int16(4); version <= 18; version++ {
		resp := &FetchResponse{Topics: []FetchTopicResponse{{Name: "a", Partitions: []FetchPartitionResponse{
			{ErrorCode: 6, PreferredReadReplica: -1},
			{AbortedTransactions: []AbortedTransaction{}},
		}}}}
		body, _ := resp.AppendTo(nil, version, nil)
		k := kmsg.NewPtrFetchResponse()
		k.SetVersion(version)
		if err := k.ReadFrom(body); err != nil {
			t.Fatal(err)
		}
		parts := k.Topics[0].Partitions
		if parts[0].RecordBatches == nil || len(parts[0].RecordBatches) != 0 || parts[0].ErrorCode != 6 {
			t.Errorf("v%d: records %v", version, parts[0].RecordBatches)
		}
		if parts[0].AbortedTransactions != nil || parts[1].AbortedTransactions == nil {
			t.Errorf("v%d: aborted transactions %v and %v", version, parts[0].AbortedTransactions, parts[1].AbortedTransactions)
		}
	}
}

func TestFetchDefaultsAreTheSchemas(t *testing.T) {
	var f FetchRequest
	for _, m := range goldenMessages(t) {
		if m.key != KeyFetch || !m.request || m.variant != "default" {
			continue
		}
		if err := f.Decode(m.version, m.body); err != nil {
			t.Fatal(err)
		}
		if f.ReplicaID != -1 || f.ReplicaEpoch != -1 || f.SessionEpoch != -1 || f.MaxBytes != math.MaxInt32 || f.ClusterID != nil {
			t.Errorf("v%d: %+v", m.version, f)
		}
		f.Reset(m.version)
		differ(t, "reset request", f.AppendTo(nil), m.body)
	}
}

// produceBody is a request for so many partitions of one topic.
func produceBody(version int16, partitions, recordBytes int) []byte {
	req := ProduceRequest{Version: version, Acks: -1, TimeoutMillis: 1500}
	topic := ProduceTopic{Name: "topic", ID: UUID{9}}
	for i := range partitions {
		topic.Partitions = append(topic.Partitions, ProducePartition{Index: int32(i), Records: make([]byte, recordBytes)})
	}
	req.Topics = append(req.Topics, topic)
	return req.AppendTo(nil)
}

func TestHotDecodersDoNotAllocateOnceWarm(t *testing.T) {
	body := produceBody(13, 50, 1000)
	var req ProduceRequest
	decode := func() {
		if err := req.Decode(13, body); err != nil || len(req.Topics[0].Partitions) != 50 {
			t.Fatal(err)
		}
	}
	decode()
	if n := testing.AllocsPerRun(50, decode); n > 1 { // the variable behind the closure of tags
		t.Errorf("Produce: %v allocations", n)
	}
	fetch := FetchRequest{Version: 18, RackID: "rack", Topics: []FetchTopic{{ID: UUID{1}}}}
	for i := range int32(100) {
		fetch.Topics[0].Partitions = append(fetch.Topics[0].Partitions, FetchPartition{Index: i, HighWatermark: math.MaxInt64})
	}
	fetchBody := fetch.AppendTo(nil)
	var back FetchRequest
	decodeFetch := func() {
		if err := back.Decode(18, fetchBody); err != nil || len(back.Topics[0].Partitions) != 100 {
			t.Fatal(err)
		}
	}
	decodeFetch()
	if n := testing.AllocsPerRun(50, decodeFetch); n > 2 {
		t.Errorf("Fetch: %v allocations", n)
	}
}

func TestProduceAliasesTheFrame(t *testing.T) {
	body := produceBody(3, 1, 100)
	var req ProduceRequest
	if err := req.Decode(3, body); err != nil {
		t.Fatal(err)
	}
	records := req.Topics[0].Partitions[0].Records
	records[0] = 77
	if body[len(body)-100] != 77 || cap(records) != 100 {
		t.Errorf("records of capacity %d are a copy", cap(records))
	}
}

func TestHotDecodersForgetTheRequestBefore(t *testing.T) {
	var used, fresh ProduceRequest
	var usedFetch FetchRequest
	for _, m := range goldenMessages(t) {
		if !m.request {
			continue
		}
		switch m.key {
		case KeyProduce:
			fresh = ProduceRequest{}
			if err := errors.Join(used.Decode(m.version, m.body), fresh.Decode(m.version, m.body)); err != nil {
				t.Fatal(err)
			}
			differ(t, m.String(), used.AppendTo(nil), fresh.AppendTo(nil))
			if (used.TransactionalID == nil) != (fresh.TransactionalID == nil) {
				t.Errorf("%v keeps a transactional id", &m)
			}
		case KeyFetch:
			freshFetch := FetchRequest{}
			if err := errors.Join(usedFetch.Decode(m.version, m.body), freshFetch.Decode(m.version, m.body)); err != nil {
				t.Fatal(err)
			}
			differ(t, m.String(), usedFetch.AppendTo(nil), freshFetch.AppendTo(nil))
		}
	}
}

// TestTruncatedHotMessagesAreMalformed cuts every golden Produce and Fetch
// message everywhere.
func TestTruncatedHotMessagesAreMalformed(t *testing.T) {
	for _, m := range goldenMessages(t) {
		decode := hotDecoder(m.key, m.version, m.request)
		if decode == nil {
			continue
		}
		for cut := range m.body {
			if err := decode(m.body[:cut]); !errors.Is(err, ErrMalformed) {
				t.Fatalf("%v cut to %d of %d bytes: %v", &m, cut, len(m.body), err)
			}
		}
	}
}

// hotDecoder returns the decoder of our own for a message, or nil.
func hotDecoder(key, version int16, request bool) func([]byte) error {
	switch {
	case key == KeyProduce && request:
		return func(b []byte) error { return new(ProduceRequest).Decode(version, b) }
	case key == KeyProduce:
		return func(b []byte) error { return new(ProduceResponse).Decode(version, b) }
	case key == KeyFetch && request:
		return func(b []byte) error { return new(FetchRequest).Decode(version, b) }
	case key == KeyFetch:
		return func(b []byte) error { return new(FetchResponse).Decode(version, b) }
	default:
		return nil
	}
}

func TestHotDecodersHaveABudget(t *testing.T) {
	w := writer{}
	w.nullableString(nil)
	w.int16(1)
	w.int32(1)
	const topics = 900_000
	w.int32(topics)
	w.buf = append(w.buf, make([]byte, topics*6)...) // empty names, no partitions
	got := 0
	var err error
	if grown := allocatedBy(func() { err = new(ProduceRequest).Decode(8, w.buf) }); grown > DecodeBudgetBytes(len(w.buf)) {
		got = grown
	}
	if !errors.Is(err, ErrBudget) || got != 0 {
		t.Errorf("%d topics of %d bytes: %v, %d bytes allocated", topics, unsafe.Sizeof(ProduceTopic{}), err, got)
	}
	claim := writer{}
	claim.nullableString(nil)
	claim.int16(1)
	claim.int32(1)
	claim.int32(math.MaxInt32)
	if err := new(ProduceRequest).Decode(8, claim.buf); !errors.Is(err, ErrMalformed) {
		t.Errorf("a claim of two billion topics: %v", err)
	}
}

func BenchmarkProduceDecode(b *testing.B) {
	body := produceBody(13, 1, 1024)
	var req ProduceRequest
	b.ReportAllocs()
	for b.Loop() {
		if err := req.Decode(13, body); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFetchDecode10000Partitions(b *testing.B) {
	fetch := FetchRequest{Version: 18, Topics: make([]FetchTopic, 100)}
	for i := range fetch.Topics {
		for p := range int32(100) {
			fetch.Topics[i].Partitions = append(fetch.Topics[i].Partitions, FetchPartition{Index: p, HighWatermark: math.MaxInt64})
		}
	}
	body := fetch.AppendTo(nil)
	var req FetchRequest
	b.ReportAllocs()
	for b.Loop() {
		if err := req.Decode(18, body); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWalkMetadata(b *testing.B) {
	req := kmsg.NewMetadataRequest()
	req.Version = 12
	for range 10 {
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = new("some-topic-name")
		req.Topics = append(req.Topics, topic)
	}
	body := req.AppendTo(nil)
	schema := requestSchema(KeyMetadata, 12)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := schema.walk(body); err != nil {
			b.Fatal(err)
		}
	}
}
