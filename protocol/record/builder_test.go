package record

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// someBytes draws null, empty and other byte strings.
func someBytes() *rapid.Generator[[]byte] {
	return rapid.OneOf(rapid.Just[[]byte](nil), rapid.Just([]byte{}), rapid.SliceOfN(rapid.Byte(), 1, 200))
}

func someHeaders() *rapid.Generator[[]Header] {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Header {
		return Header{Key: rapid.StringN(0, 5, -1).Draw(t, "header key"), Value: someBytes().Draw(t, "header value")}
	}), 0, 3)
}

func someOptions() *rapid.Generator[BuilderOptions] {
	return rapid.Custom(func(t *rapid.T) BuilderOptions {
		o := BuilderOptions{
			BaseOffset:    rapid.Int64Range(0, 1<<50).Draw(t, "base offset"),
			LeaderEpoch:   rapid.Int32Min(-1).Draw(t, "leader epoch"),
			Codec:         Codec(rapid.IntRange(0, 4).Draw(t, "codec")),
			HasProducer:   rapid.Bool().Draw(t, "has producer"),
			Transactional: rapid.Bool().Draw(t, "transactional"),
			Control:       rapid.Bool().Draw(t, "control"),
		}
		if o.HasProducer {
			o.ProducerID = rapid.Int64Min(0).Draw(t, "producer id")
			o.ProducerEpoch = rapid.Int16Min(0).Draw(t, "producer epoch")
			o.BaseSequence = rapid.Int32Min(0).Draw(t, "base sequence")
		}
		if rapid.Bool().Draw(t, "append time") {
			o.TimestampType, o.LogAppendTimeMillis = LogAppendTime, rapid.Int64().Draw(t, "append time millis")
		}
		if rapid.Bool().Draw(t, "delete horizon") {
			o.HasDeleteHorizon, o.DeleteHorizonMillis = true, rapid.Int64Min(0).Draw(t, "horizon")
		}
		return o
	})
}

func TestWhatIsBuiltIsWhatIsRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := someOptions().Draw(t, "options")
		b := NewBuilder(o)
		want := addSomeRecords(t, b, o)
		batch, rest, err := Next(b.Bytes())
		if err != nil || len(rest) != 0 || !batch.CRCValid() {
			t.Fatal("not one valid batch", err)
		}
		checkBuiltHeader(t, batch, o, want)
		i := 0
		for got, err := range batch.Records(Limits{}) {
			if err != nil {
				t.Fatal(err)
			}
			if !sameRecord(got, want[i]) {
				t.Fatalf("record %d: got %+v, want %+v", i, got, want[i])
			}
			i++
		}
		if i != len(want) {
			t.Fatalf("%d records, want %d", i, len(want))
		}
	})
}

// addSomeRecords draws records, with gaps between their offsets, and returns them as they will be read.
func addSomeRecords(t *rapid.T, b *Builder, o BuilderOptions) []Record {
	offset := o.BaseOffset
	var want []Record
	for range rapid.IntRange(1, 20).Draw(t, "records") {
		offset += rapid.Int64Range(0, 1000).Draw(t, "gap")
		r := Record{
			Offset: offset, Timestamp: rapid.Int64().Draw(t, "timestamp"), Key: someBytes().Draw(t, "key"),
			Value: someBytes().Draw(t, "value"), Headers: someHeaders().Draw(t, "headers"), Sequence: NoSequence,
		}
		if o.HasProducer {
			r.Sequence = AddSequence(o.BaseSequence, int32(offset-o.BaseOffset))
		}
		b.AddAt(offset, r.Timestamp, r.Key, r.Value, r.Headers)
		if o.TimestampType == LogAppendTime {
			r.Timestamp = o.LogAppendTimeMillis
		}
		want = append(want, r)
		offset++
	}
	return want
}

func checkBuiltHeader(t *rapid.T, b Batch, o BuilderOptions, want []Record) {
	maxTimestamp := NoTimestamp
	for _, r := range want {
		maxTimestamp = max(maxTimestamp, r.Timestamp)
	}
	if o.TimestampType == LogAppendTime {
		maxTimestamp = o.LogAppendTimeMillis
	}
	if !o.HasProducer {
		o.ProducerID, o.ProducerEpoch, o.BaseSequence = -1, -1, -1
	}
	if !o.HasDeleteHorizon {
		o.DeleteHorizonMillis = NoTimestamp
	}
	got := fmt.Sprint(b.Count(), b.BaseOffset(), b.LastOffset(), b.Codec(), b.TimestampType(), b.MaxTimestamp(), b.IsControl(),
		b.IsTransactional(), b.LeaderEpoch(), b.ProducerID(), b.ProducerEpoch(), b.BaseSequence(), b.DeleteHorizonMillis())
	expected := fmt.Sprint(len(want), o.BaseOffset, want[len(want)-1].Offset, o.Codec, o.TimestampType, maxTimestamp, o.Control,
		o.Transactional, o.LeaderEpoch, o.ProducerID, o.ProducerEpoch, o.BaseSequence, o.DeleteHorizonMillis)
	if got != expected {
		t.Fatalf("got  %s\nwant %s", got, expected)
	}
}

// sameRecord compares with null and empty apart.
func sameRecord(a, b Record) bool {
	same := func(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }
	return a.Offset == b.Offset && a.Timestamp == b.Timestamp && a.Sequence == b.Sequence && same(a.Key, b.Key) && same(a.Value, b.Value) &&
		slices.EqualFunc(a.Headers, b.Headers, func(x, y Header) bool { return x.Key == y.Key && same(x.Value, y.Value) })
}

// TestValidationKeepsRecords validates what was built for every target codec.
func TestValidationKeepsRecords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := NewBuilder(BuilderOptions{Codec: Codec(rapid.IntRange(0, 4).Draw(t, "codec"))})
		var want []Record
		for i := range rapid.IntRange(1, 10).Draw(t, "records") {
			r := Record{
				Offset: int64(i), Timestamp: testNow + rapid.Int64Range(-1<<40, 1000).Draw(t, "timestamp"), Sequence: NoSequence,
				Key: someBytes().Draw(t, "key"), Value: someBytes().Draw(t, "value"), Headers: someHeaders().Draw(t, "headers"),
			}
			b.Add(r.Timestamp, r.Key, r.Value, r.Headers)
			want = append(want, r)
		}
		o := validOptions()
		o.TargetCodec = Codec(rapid.IntRange(-1, 4).Draw(t, "target"))
		res, err := ValidateProduce(bytes.Clone(b.Bytes()), o)
		if err != nil {
			t.Fatal(err)
		}
		i := 0
		for got, err := range res.Batch.Records(Limits{}) {
			if err != nil || !sameRecord(got, want[i]) {
				t.Fatalf("record %d: got %+v, %v, want %+v", i, got, err, want[i])
			}
			i++
		}
		if i != len(want) {
			t.Fatal("records are missing")
		}
	})
}

func TestBuilderIsReusable(t *testing.T) {
	b := NewBuilder(BuilderOptions{Codec: CodecLZ4, BaseOffset: 5, HasProducer: true, ProducerID: 3})
	b.Add(9, []byte("old"), nil, nil)
	_ = b.Bytes()
	b.Reset(BuilderOptions{})
	b.Add(1, []byte("new"), nil, nil)
	got := b.Bytes()
	if recs := collect(t, got); len(recs) != 1 || string(recs[0].Key) != "new" || got.BaseOffset() != 0 || got.HasProducerID() || got.Codec() != CodecNone {
		t.Errorf("%+v", recs)
	}
	if b.Count() != 1 || b.SizeBytes() != len(got) {
		t.Error("count and size")
	}
}

func TestSizeWithIsAnUpperBoundAndTight(t *testing.T) {
	b := NewBuilder(BuilderOptions{})
	for _, n := range []int{0, 10, 200, 70_000} {
		bound := b.SizeWith(-1, n)
		b.Add(math.MaxInt64, nil, make([]byte, n), nil)
		if got := b.SizeBytes(); got > bound || got < bound-maxRecordOverheadBytes {
			t.Errorf("%d bytes: size %d, bound %d", n, got, bound)
		}
	}
}

func TestBuilderRefusesOffsetsThatDoNotAscend(t *testing.T) {
	for name, f := range map[string]func(b *Builder){
		"same":           func(b *Builder) { b.AddAt(10, 0, nil, nil, nil) },
		"lower":          func(b *Builder) { b.AddAt(9, 0, nil, nil, nil) },
		"too far":        func(b *Builder) { b.AddAt(10+1<<31, 0, nil, nil, nil) },
		"last below":     func(b *Builder) { b.SetLastOffset(9) },
		"last too far":   func(b *Builder) { b.SetLastOffset(10 + 1<<31) },
		"no such codec ": func(b *Builder) { b.opts.Codec = 9; b.Bytes() },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s does not panic", name)
				}
			}()
			b := NewBuilder(BuilderOptions{BaseOffset: 10})
			b.Add(0, nil, nil, nil)
			f(b)
		}()
	}
}

func TestEmptyBatchKeepsWhatRetriesNeed(t *testing.T) {
	b := NewBuilder(BuilderOptions{
		BaseOffset: 50, Codec: CodecGzip, HasProducer: true, ProducerID: 8, ProducerEpoch: 1, BaseSequence: 100,
		HasDeleteHorizon: true, DeleteHorizonMillis: 12345,
	})
	b.Add(77, []byte("k"), nil, nil)
	b.Add(66, []byte("l"), nil, nil)
	empty, rest, err := Next(AppendEmptyBatch(nil, b.Bytes()))
	if err != nil || len(rest) != 0 || !empty.CRCValid() {
		t.Fatal(err)
	}
	got := fmt.Sprint(empty.SizeBytes(), empty.Count(), empty.BaseOffset(), empty.LastOffset(), empty.ProducerID(), empty.ProducerEpoch(),
		empty.BaseSequence(), empty.LastSequence(), empty.MaxTimestamp(), empty.BaseTimestamp(), empty.Codec(), empty.HasDeleteHorizon())
	if got != "61 0 50 51 8 1 100 101 77 -1 none false" {
		t.Error(got)
	}
	if len(collect(t, empty)) != 0 {
		t.Error("records")
	}
}
