package record

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// A produceCase is one records field of a Produce request. What Kafka 4.4.0 answered to each, and what it stored, is in
// testdata/produce.tsv, recorded by oracle_test.go; validate_test.go holds ValidateProduce to it.
type produceCase struct {
	name    string
	topic   string // a key of produceTopics
	version int16
	build   func(now int64) []byte
}

// produceTopics are the topics of the cases: their configs for Kafka, and what they mean here.
var produceTopics = map[string]struct {
	configs string
	opts    ProduceOptions
}{
	"plain":        {"", ProduceOptions{TargetCodec: CodecProducer}},
	"append":       {"message.timestamp.type=LogAppendTime", ProduceOptions{TargetCodec: CodecProducer, TimestampType: LogAppendTime}},
	"compact":      {"cleanup.policy=compact", ProduceOptions{TargetCodec: CodecProducer, Compacted: true}},
	"uncompressed": {"compression.type=uncompressed", ProduceOptions{TargetCodec: CodecNone}},
	"gzip":         {"compression.type=gzip", ProduceOptions{TargetCodec: CodecGzip}},
	"snappy":       {"compression.type=snappy", ProduceOptions{TargetCodec: CodecSnappy}},
	"lz4":          {"compression.type=lz4", ProduceOptions{TargetCodec: CodecLZ4}},
	"zstd":         {"compression.type=zstd", ProduceOptions{TargetCodec: CodecZstd}},
	"small":        {"max.message.bytes=2000", ProduceOptions{TargetCodec: CodecProducer, MaxBatchBytes: 2000}},
	"smallplain": {
		"max.message.bytes=2000,compression.type=uncompressed",
		ProduceOptions{TargetCodec: CodecNone, MaxBatchBytes: 2000},
	},
	"appendgzip": {
		"message.timestamp.type=LogAppendTime,compression.type=gzip",
		ProduceOptions{TargetCodec: CodecGzip, TimestampType: LogAppendTime},
	},
	"before": {
		"message.timestamp.before.max.ms=60000,message.timestamp.after.max.ms=90000",
		ProduceOptions{TargetCodec: CodecProducer, TimestampBeforeMaxMillis: 60000, TimestampAfterMaxMillis: 90000},
	},
}

// produceDelayMillis is how much earlier than the broker's clock the records of a case are, so that the time of the
// append is none of theirs.
const produceDelayMillis = 10000

// options returns the options that the topic of a case has.
func (c produceCase) options(now int64) ProduceOptions {
	o := produceTopics[c.topic].opts
	o.TopicPartition = c.topic + "-0"
	o.NowMillis = now
	o.RequestVersion = c.version
	if o.TimestampBeforeMaxMillis == 0 {
		o.TimestampBeforeMaxMillis, o.TimestampAfterMaxMillis = math.MaxInt64, 3600000
	}
	if o.MaxBatchBytes == 0 {
		o.MaxBatchBytes = 1048588
	}
	return o
}

type testRecord struct {
	timestamp  int64 // relative to now
	key, value []byte
}

func keyed(timestamps ...int64) []testRecord {
	var recs []testRecord
	for i, ts := range timestamps {
		recs = append(recs, testRecord{ts, fmt.Appendf(nil, "key%d", i), fmt.Appendf(nil, "value%d", i)})
	}
	return recs
}

// batchOf returns a batch of the records after mutations of its plain form. The CRC is right.
func batchOf(codec Codec, recs []testRecord, mutate ...func(Batch)) func(int64) []byte {
	return func(now int64) []byte {
		b := NewBuilder(BuilderOptions{Codec: codec, LeaderEpoch: NoLeaderEpoch})
		for _, r := range recs {
			b.Add(now+r.timestamp, r.key, r.value, nil)
		}
		batch := b.Bytes()
		for _, m := range mutate {
			m(batch)
		}
		return seal(batch)
	}
}

// rawBatch returns a batch around a payload that is given as it is.
func rawBatch(codec Codec, count int32, payload []byte, mutate ...func(Batch)) func(int64) []byte {
	return func(now int64) []byte {
		b := NewBuilder(BuilderOptions{Codec: codec, LeaderEpoch: NoLeaderEpoch})
		b.count, b.lastOffset, b.baseTimestamp, b.maxTimestamp = count, int64(count)-1, now, now
		batch := append(append(Batch(nil), b.buf...), payload...)
		b.putHeader(batch, now)
		for _, m := range mutate {
			m(batch)
		}
		return seal(batch)
	}
}

func seal(b Batch) []byte {
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-LogOverheadBytes))
	if b[magicPos] == 2 {
		b.renewCRC()
	}
	return b
}

func put16(pos int, v uint16) func(Batch) {
	return func(b Batch) { binary.BigEndian.PutUint16(b[pos:], v) }
}

func put32(pos int, v uint32) func(Batch) {
	return func(b Batch) { binary.BigEndian.PutUint32(b[pos:], v) }
}

func put64(pos int, v uint64) func(Batch) {
	return func(b Batch) { binary.BigEndian.PutUint64(b[pos:], v) }
}

func setBits(bits uint16) func(Batch) {
	return func(b Batch) { binary.BigEndian.PutUint16(b[attributesPos:], uint16(b.Attributes())|bits) }
}

// after applies f to the finished bytes, so that lengths and checksums may be wrong.
func after(build func(int64) []byte, f func([]byte) []byte) func(int64) []byte {
	return func(now int64) []byte { return f(build(now)) }
}

// rec encodes a record body and puts its length, plus extra, before it.
func rec(extra int, body ...[]byte) []byte {
	joined := bytes.Join(body, nil)
	return append(appendVarlong(nil, int64(len(joined)+extra)), joined...)
}

// body encodes attributes, timestamp delta, offset delta, key, value and header count 0.
func body(attributes byte, timestampDelta int64, offsetDelta int32) []byte {
	b := appendVarlong([]byte{attributes}, timestampDelta)
	b = appendVarint(b, offsetDelta)
	b = appendBytes(b, []byte("key"))
	return append(appendBytes(b, []byte("value")), 0)
}

func bodies(deltas ...int32) []byte {
	var payload []byte
	for _, d := range deltas {
		payload = append(payload, rec(0, body(0, 0, d))...)
	}
	return payload
}

func compressed(c Codec, payload []byte) []byte { return Compress(nil, c, DefaultLevel, payload) }

func produceCases() []produceCase {
	var cases []produceCase
	add := func(name, topic string, version int16, build func(int64) []byte) {
		cases = append(cases, produceCase{name, topic, version, build})
	}
	addCodecCases(add)
	addHeaderCases(add)
	addProducerCases(add)
	addTimestampBitCases(add)
	addCRCCases(add)
	addFramingCases(add)
	addTimestampCases(add)
	addRecordCases(add)
	addCompressionCases(add)
	return cases
}

type addCase func(name, topic string, version int16, build func(int64) []byte)

func addCodecCases(add addCase) {
	topics := []string{"plain", "append", "compact", "uncompressed", "gzip", "snappy", "lz4", "zstd", "appendgzip"}
	for codec := CodecNone; codec <= CodecZstd; codec++ {
		for _, topic := range topics {
			add("valid "+codec.String(), topic, 9, batchOf(codec, keyed(0, 5, 3)))
		}
		add("idempotent "+codec.String(), "gzip", 9, batchOf(codec, keyed(0, 5), put64(producerIDPos, 70+uint64(codec)),
			put16(producerEpochPos, 3), put32(baseSequencePos, 0)))
	}
	add("zstd", "plain", 6, batchOf(CodecZstd, keyed(0)))
	add("zstd", "plain", 7, batchOf(CodecZstd, keyed(0)))
	add("zstd", "gzip", 6, batchOf(CodecZstd, keyed(0)))
	add("gzip", "zstd", 6, batchOf(CodecGzip, keyed(0)))
	for codec := Codec(5); codec <= 7; codec++ {
		add("codec "+codec.String(), "plain", 9, batchOf(CodecNone, keyed(0), setBits(uint16(codec))))
	}
	add("large by one", "small", 9, sized(2001))
	add("large at limit", "small", 9, sized(2000))
	add("large once uncompressed", "smallplain", 9, batchOf(CodecGzip, []testRecord{{0, []byte("k"), make([]byte, 3000)}}))
	add("large and wrong crc", "small", 9, after(sized(2001), flip(crcPos)))
	add("large and base offset", "small", 9, after(sized(2001), flip(7)))
}

// sized returns a batch of n bytes.
func sized(n int) func(int64) []byte {
	return func(now int64) []byte {
		value := make([]byte, n-len(batchOf(CodecNone, []testRecord{{0, []byte("k"), make([]byte, 1000)}})(now))+1000)
		b := batchOf(CodecNone, []testRecord{{0, []byte("k"), value}})(now)
		if len(b) != n {
			panic(fmt.Sprintf("size %d, want %d", len(b), n))
		}
		return b
	}
}

func flip(pos int) func([]byte) []byte {
	return func(b []byte) []byte { b[pos] ^= 1; return b }
}

func addHeaderCases(add addCase) {
	for _, codec := range []Codec{CodecNone, CodecGzip} {
		with := func(name, topic string, m ...func(Batch)) {
			add(name+" "+codec.String(), topic, 9, batchOf(codec, keyed(0, 0, 0), m...))
		}
		with("base offset 1", "plain", put64(0, 1))
		with("count 0", "plain", put32(countPos, 0))
		with("count 0 last -1", "plain", put32(countPos, 0), put32(lastOffsetDeltaPos, math.MaxUint32))
		with("count -1", "plain", put32(countPos, math.MaxUint32))
		with("count 2", "plain", put32(countPos, 2))
		with("count and delta 2", "plain", put32(countPos, 2), put32(lastOffsetDeltaPos, 1))
		with("count 4", "plain", put32(countPos, 4))
		with("count and delta 4", "plain", put32(countPos, 4), put32(lastOffsetDeltaPos, 3))
		with("huge count", "plain", put32(countPos, math.MaxInt32), put32(lastOffsetDeltaPos, math.MaxInt32-1))
		with("last delta 1", "plain", put32(lastOffsetDeltaPos, 1))
		with("last delta 5", "plain", put32(lastOffsetDeltaPos, 5))
		with("last delta -3", "plain", put32(lastOffsetDeltaPos, math.MaxUint32-2))
		with("control", "plain", setBits(controlFlag))
		with("control idempotent", "plain", setBits(controlFlag), put64(producerIDPos, 7), put32(baseSequencePos, 0))
		with("delete horizon", "plain", setBits(deleteHorizonFlag))
		with("delete horizon", "append", setBits(deleteHorizonFlag))
		with("delete horizon", "zstd", setBits(deleteHorizonFlag))
		with("bit 7", "plain", setBits(0x80))
		with("high bits", "plain", setBits(0xff00))
		with("high bits", "append", setBits(0xff00))
		with("leader epoch 9", "plain", put32(leaderEpochPos, 9))
	}
}

func addProducerCases(add addCase) {
	for _, codec := range []Codec{CodecNone, CodecGzip} {
		with := func(name, topic string, m ...func(Batch)) {
			add(name+" "+codec.String(), topic, 9, batchOf(codec, keyed(0, 0, 0), m...))
		}
		with("no sequence", "plain", put64(producerIDPos, 7), put16(producerEpochPos, 0))
		with("sequence -5", "plain", put64(producerIDPos, 7), put16(producerEpochPos, 0), put32(baseSequencePos, math.MaxUint32-4))
		with("no producer epoch", "plain", put64(producerIDPos, 1000+uint64(codec)), put32(baseSequencePos, 0))
		with("producer id -2", "plain", put64(producerIDPos, math.MaxUint64-1), put32(baseSequencePos, 0))
		with("sequence without producer", "plain", put32(baseSequencePos, 5))
	}
}

func addTimestampBitCases(add addCase) {
	for _, codec := range []Codec{CodecNone, CodecGzip} {
		with := func(name, topic string, m ...func(Batch)) {
			add(name+" "+codec.String(), topic, 9, batchOf(codec, keyed(0, 0, 0), m...))
		}
		with("append time bit", "plain", setBits(timestampTypeFlag))
		with("append time bit", "append", setBits(timestampTypeFlag))
		with("append time bit", "compact", setBits(timestampTypeFlag))
		with("append time bit", "zstd", setBits(timestampTypeFlag))
		with("append time bit no max", "plain", setBits(timestampTypeFlag), put64(maxTimestampPos, math.MaxUint64))
		with("append time bit far max", "plain", setBits(timestampTypeFlag), put64(maxTimestampPos, 1<<50))
		with("max timestamp lies", "plain", put64(maxTimestampPos, 12345))
		with("max timestamp lies", "append", put64(maxTimestampPos, 12345))
		with("max timestamp lies", "lz4", put64(maxTimestampPos, 12345))
	}
}

func addCRCCases(add addCase) {
	three := func(m ...func(Batch)) func(int64) []byte { return batchOf(CodecNone, keyed(0, 0, 0), m...) }
	add("crc", "plain", 9, after(three(), flip(crcPos)))
	add("crc and base offset", "plain", 9, after(three(), func(b []byte) []byte { b[crcPos] ^= 1; b[7] = 1; return b }))
	add("crc and count", "plain", 9, after(three(), func(b []byte) []byte { b[crcPos] ^= 1; b[countPos+3] = 9; return b }))
	add("crc and zstd", "plain", 6, after(batchOf(CodecZstd, keyed(0)), flip(crcPos)))
	add("crc and unknown codec", "plain", 9, after(batchOf(CodecNone, keyed(0), setBits(6)), flip(crcPos)))
	add("control and unknown codec", "plain", 9, batchOf(CodecNone, keyed(0), setBits(6|controlFlag)))
	add("count and record", "compact", 9, three(put32(countPos, 4)))
}

func addFramingCases(add addCase) {
	valid := batchOf(CodecNone, keyed(0, 0))
	set := func(pos int, v ...byte) func([]byte) []byte {
		return func(b []byte) []byte { copy(b[pos:], v); return b }
	}
	for _, version := range []int16{3, 8, 9, 12} {
		add("empty", "plain", version, func(int64) []byte { return []byte{} })
		add("null", "plain", version, func(int64) []byte { return nil })
		add("wrong crc", "plain", version, after(valid, flip(crcPos)))
		add("null key", "compact", version, batchOf(CodecNone, []testRecord{{0, nil, []byte("v")}}))
		add("valid", "plain", version, valid)
		add("valid", "append", version, valid)
	}
	for magic := range 5 {
		add(fmt.Sprintf("magic %d", magic-1), "plain", 9, after(valid, set(magicPos, byte(magic-1))))
	}
	add("real magic 0", "plain", 9, func(int64) []byte { return legacyEntry(0, 0, 0, []byte("k"), []byte("v")) })
	add("real magic 1", "plain", 9, func(now int64) []byte { return legacyEntry(1, 0, now, []byte("k"), []byte("v")) })
	for _, n := range []int32{math.MinInt32, -1, 0, 13, 14, 20, 48, 49, 200, 1 << 20, math.MaxInt32} {
		add(fmt.Sprintf("length %d", n), "plain", 9,
			after(valid, func(b []byte) []byte { binary.BigEndian.PutUint32(b[8:], uint32(n)); return b }))
	}
	for _, n := range []int{1, 11, 12, 16, 17, 40, 61, 80} {
		add(fmt.Sprintf("cut to %d", n), "plain", 9, after(valid, func(b []byte) []byte { return b[:n] }))
	}
	add("two batches", "plain", 9, after(valid, func(b []byte) []byte { return append(b, b...) }))
	add("two batches second zstd", "plain", 6, func(now int64) []byte {
		return append(valid(now), batchOf(CodecZstd, keyed(0))(now)...)
	})
	for _, n := range []int{1, 11, 12, 17, 40} {
		add(fmt.Sprintf("%d zero bytes after", n), "plain", 9, after(valid, func(b []byte) []byte { return append(b, make([]byte, n)...) }))
		add(fmt.Sprintf("second batch cut to %d", n), "plain", 9, after(valid, func(b []byte) []byte { return append(b, b[:n]...) }))
	}
	add("cut batch and large", "small", 9, after(sized(1900), func(b []byte) []byte { return append(b, b[:200]...) }))
	add("second batch magic 9", "plain", 9, after(valid, func(b []byte) []byte {
		second := bytes.Clone(b)
		second[magicPos] = 9
		return append(b, second...)
	}))
}

// legacyEntry returns one record of an old format.
func legacyEntry(magic int8, attributes byte, timestamp int64, key, value []byte) []byte {
	b := append(make([]byte, 16), byte(magic), attributes)
	if magic == 1 {
		b = binary.BigEndian.AppendUint64(b, uint64(timestamp))
	}
	for _, field := range [][]byte{key, value} {
		if field == nil {
			b = binary.BigEndian.AppendUint32(b, math.MaxUint32)
			continue
		}
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(field))), field...)
	}
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-LogOverheadBytes))
	binary.BigEndian.PutUint32(b[legacyCRCPos:], crc32.ChecksumIEEE(b[magicPos:]))
	return b
}

func addTimestampCases(add addCase) {
	const hour = 3600000
	for _, codec := range []Codec{CodecNone, CodecLZ4} {
		for _, topic := range []string{"plain", "append", "gzip"} {
			add("far ahead "+codec.String(), topic, 9, batchOf(codec, keyed(0, 2*hour, 3*hour)))
			add("2100 "+codec.String(), topic, 9, batchOf(codec, keyed(1<<41)))
			add("1970 "+codec.String(), topic, 9, func(now int64) []byte { return batchOf(codec, keyed(1-now, 7-now))(now) })
			add("no timestamp "+codec.String(), topic, 9, func(now int64) []byte { return batchOf(codec, keyed(-1-now))(now) })
			add("negative timestamp "+codec.String(), topic, 9, func(now int64) []byte { return batchOf(codec, keyed(-5-now, -9-now))(now) })
			add("smallest timestamp "+codec.String(), topic, 9, func(now int64) []byte { return batchOf(codec, keyed(math.MinInt64-now))(now) })
			add("largest timestamp "+codec.String(), topic, 9, func(now int64) []byte { return batchOf(codec, keyed(math.MaxInt64-now))(now) })
		}
		add("half an hour ahead "+codec.String(), "plain", 9, batchOf(codec, keyed(hour/2)))
		add("old "+codec.String(), "before", 9, batchOf(codec, keyed(0, -600000, 0, -700000)))
		add("ahead "+codec.String(), "before", 9, batchOf(codec, keyed(600000)))
		add("descending "+codec.String(), "zstd", 9, batchOf(codec, keyed(0, -5, -9, 4)))
	}
	add("far ahead", "plain", 7, batchOf(CodecNone, keyed(2*hour)))
	add("far ahead", "plain", 8, batchOf(CodecNone, keyed(2*hour)))
	add("null key and far ahead", "compact", 9, batchOf(CodecNone,
		[]testRecord{{0, nil, nil}, {2 * hour, []byte("k"), nil}, {2 * hour, nil, nil}}))
	add("null keys", "compact", 9, batchOf(CodecNone,
		[]testRecord{{0, nil, nil}, {0, nil, nil}, {0, []byte{}, nil}, {0, nil, nil}, {0, nil, nil}, {0, nil, nil}}))
	add("null key zstd", "compact", 9, batchOf(CodecZstd, []testRecord{{0, nil, nil}, {0, []byte("k"), nil}}))
}

func addRecordCases(add addCase) {
	payloads := map[string]struct {
		count   int32
		payload []byte
	}{
		"offset deltas 0 5":      {2, bodies(0, 5)},
		"offset deltas 1 2":      {2, bodies(1, 2)},
		"offset deltas 0 0":      {2, bodies(0, 0)},
		"offset deltas 1 0":      {2, bodies(1, 0)},
		"offset deltas -1 0":     {2, bodies(-1, 0)},
		"offset delta large":     {1, bodies(math.MaxInt32)},
		"attributes":             {1, rec(0, body(0x7f, 0, 0))},
		"codec attribute":        {1, rec(0, body(1, 0, 0))},
		"first timestamp delta":  {2, append(rec(0, body(0, 10, 0)), rec(0, body(0, 4, 1))...)},
		"timestamp overflow":     {1, rec(0, body(0, math.MaxInt64, 0))},
		"length too long":        {1, rec(3, body(0, 0, 0))},
		"length too short":       {1, rec(-3, body(0, 0, 0))},
		"length too long, two":   {2, append(rec(3, body(0, 0, 0)), rec(0, body(0, 0, 1))...)},
		"length 0":               {1, append([]byte{0}, body(0, 0, 0)...)},
		"length -1":              {1, append([]byte{1}, body(0, 0, 0)...)},
		"length varint":          {1, bytes.Repeat([]byte{0xff}, 20)},
		"extra bytes in record":  {1, rec(0, body(0, 0, 0), []byte{1, 2, 3})},
		"bytes after":            {1, append(rec(0, body(0, 0, 0)), 1, 2, 3)},
		"zero bytes after":       {1, append(rec(0, body(0, 0, 0)), 0, 0, 0)},
		"key too long":           {1, rec(0, []byte{0, 0, 0, 0x7e, 'k'})},
		"key length -2":          {1, rec(0, []byte{0, 0, 0, 3, 1, 0})},
		"value too long":         {1, rec(0, []byte{0, 0, 0, 1, 0x7e, 'v', 0})},
		"value length -2":        {1, rec(0, []byte{0, 0, 0, 2, 'k', 3, 0})},
		"no header count":        {1, rec(0, []byte{0, 0, 0, 1, 1})},
		"negative headers":       {1, rec(0, []byte{0, 0, 0, 2, 'k', 1, 1})},
		"too many headers":       {1, rec(0, []byte{0, 0, 0, 2, 'k', 1, 100})},
		"huge header count":      {1, rec(0, []byte{0, 0, 0, 2, 'k', 1, 0xfe, 0xff, 0xff, 0xff, 0xf})},
		"valid header":           {1, rec(0, []byte{0, 0, 0, 2, 'k', 1, 2, 2, 'h', 1})},
		"null header key":        {1, rec(0, []byte{0, 0, 0, 2, 'k', 1, 2, 1, 1})},
		"header value too long":  {1, rec(0, []byte{0, 0, 0, 2, 'k', 1, 2, 2, 'h', 100})},
		"header key not utf-8":   {1, rec(0, []byte{0, 0, 0, 2, 'k', 1, 2, 2, 0xff, 1})},
		"timestamp varint":       {1, rec(0, []byte{0}, bytes.Repeat([]byte{0x80}, 11), []byte{0, 0, 2, 'k', 1, 0})},
		"offset varint":          {1, rec(0, []byte{0, 0}, bytes.Repeat([]byte{0x80}, 6), []byte{0, 2, 'k', 1, 0})},
		"padded varints":         {1, rec(0, []byte{0, 0x80, 0, 0x80, 0, 2, 'k', 1, 0})},
		"empty":                  {1, nil},
		"only attributes":        {1, rec(0, []byte{0})},
		"cut in the last record": {2, append(rec(0, body(0, 0, 0)), rec(0, body(0, 0, 1))[:7]...)},
	}
	for name, p := range payloads {
		for _, codec := range []Codec{CodecNone, CodecGzip, CodecZstd} {
			add("record: "+name+" "+codec.String(), "plain", 9, rawBatch(codec, p.count, compressed(codec, p.payload)))
		}
		add("record: "+name, "lz4", 9, rawBatch(CodecNone, p.count, p.payload))
		add("record: "+name, "append", 9, rawBatch(CodecNone, p.count, p.payload))
	}
	add("structure and null key", "compact", 9, rawBatch(CodecNone, 2, append(rec(0, []byte{0, 0, 0, 1, 1, 0}), 9, 9)))
}

func addCompressionCases(add addCase) {
	plain := bodies(0, 1, 2)
	add("raw snappy", "plain", 9, rawBatch(CodecSnappy, 3, s2.EncodeSnappy(nil, plain)))
	for codec := CodecGzip; codec <= CodecZstd; codec++ {
		with := func(name string, payload []byte) {
			add("stream: "+name+" "+codec.String(), "plain", 9, rawBatch(codec, 3, payload))
		}
		good := compressed(codec, plain)
		with("no payload", nil)
		with("random", []byte("this is not compressed at all, by any codec"))
		with("cut by one", good[:len(good)-1])
		with("cut by half", good[:len(good)/2])
		with("zero bytes after", append(bytes.Clone(good), 0, 0, 0, 0, 0))
		with("text after", append(bytes.Clone(good), "trailing"...))
		with("two streams", append(compressed(codec, bodies(0)), compressed(codec, bodies(1, 2))...))
		with("stream and a second of nothing", append(bytes.Clone(good), compressed(codec, nil)...))
		with("stream and a second too many", append(bytes.Clone(good), compressed(codec, bodies(4))...))
		for _, at := range []int{0, 4, 8, 12, len(good) / 2, len(good) - 6} {
			flipped := bytes.Clone(good)
			flipped[at] ^= 0x55
			with(fmt.Sprintf("flipped at %d", at), flipped)
		}
	}
	addLZ4Cases(add, plain)
	addSnappyCases(add, plain)
	addLevelCases(add)
	var level bytes.Buffer
	zw, _ := gzip.NewWriterLevel(&level, gzip.BestCompression)
	zw.Name, zw.Comment, zw.Extra = "name", "comment", []byte{1, 2, 3, 4}
	_, _ = zw.Write(plain)
	_ = zw.Close()
	add("gzip: header fields", "plain", 9, rawBatch(CodecGzip, 3, level.Bytes()))
	enc, _ := zstd.NewWriter(nil, zstd.WithEncoderCRC(true), zstd.WithEncoderConcurrency(1))
	add("zstd: checksum", "plain", 9, rawBatch(CodecZstd, 3, enc.EncodeAll(plain, nil)))
	wrong := enc.EncodeAll(plain, nil)
	wrong[len(wrong)-1] ^= 1
	add("zstd: wrong checksum", "plain", 9, rawBatch(CodecZstd, 3, wrong))
	skippable := append([]byte{0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3}, compressed(CodecZstd, plain)...)
	add("zstd: skippable frame", "plain", 9, rawBatch(CodecZstd, 3, skippable))
}

// addLevelCases makes Kafka's decoders read what the encoders here write, in several blocks and at all kinds of levels.
func addLevelCases(add addCase) {
	payload := rec(0, bytes.Join([][]byte{{0, 0, 0, 1}, appendVarlong(nil, 300_000), mixedBytes(300_000), {0}}, nil))
	levels := map[Codec][]int{
		CodecNone: {0}, CodecGzip: {0, -1, 1, 9}, CodecSnappy: {0}, CodecLZ4: {0, 1, 9, 17}, CodecZstd: {0, -100, 1, 3, 9, 22},
	}
	for codec, levels := range levels {
		for _, level := range levels {
			add(fmt.Sprintf("level %d %s", level, codec), "plain", 9, rawBatch(codec, 1, Compress(nil, codec, level, payload)))
		}
		add("level "+codec.String(), "zstd", 9, rawBatch(codec, 1, compressed(codec, payload)))
	}
}

// mixedBytes returns n bytes of which some compress and some do not.
func mixedBytes(n int) []byte {
	r := rand.New(rand.NewPCG(3, 4))
	out := make([]byte, n)
	for i := range out {
		if i>>14&1 == 0 {
			out[i] = byte(r.Uint32())
		} else {
			out[i] = "the quick brown fox"[i%19] + byte(r.IntN(2))
		}
	}
	return out
}

func addLZ4Cases(add addCase, plain []byte) {
	options := map[string][]lz4.Option{
		"content checksum": {lz4.ChecksumOption(true)},
		"block checksum":   {lz4.ChecksumOption(false), lz4.BlockChecksumOption(true)},
		"content size":     {lz4.ChecksumOption(false), lz4.SizeOption(uint64(len(plain)))},
		"wrong size":       {lz4.ChecksumOption(false), lz4.SizeOption(uint64(len(plain)) + 5)},
		"4 MiB blocks":     {lz4.ChecksumOption(true), lz4.BlockSizeOption(lz4.Block4Mb)},
	}
	for _, name := range slices.Sorted(maps.Keys(options)) {
		o := options[name]
		var buf bytes.Buffer
		w := lz4.NewWriter(&buf)
		if err := w.Apply(append(o, lz4.ConcurrencyOption(1))...); err != nil {
			panic(err)
		}
		_, _ = w.Write(plain)
		_ = w.Close()
		frame := bytes.Clone(buf.Bytes())
		add("lz4: "+name, "plain", 9, rawBatch(CodecLZ4, 3, frame))
		if strings.HasSuffix(name, "checksum") {
			frame = bytes.Clone(frame)
			at := len(frame) - 1 // of the content checksum
			if name == "block checksum" {
				at -= 4 // before the end mark
			}
			frame[at] ^= 1
			add("lz4: wrong "+name, "plain", 9, rawBatch(CodecLZ4, 3, frame))
		}
	}
	for name, flags := range map[string]byte{"linked blocks": 0x40, "version 0": 0x20, "dictionary": 0x61, "reserved flag": 0x62} {
		frame := compressed(CodecLZ4, plain)
		frame[4] = flags
		frame[6] = byte(xxh32(frame[4:6]) >> 8)
		add("lz4: "+name, "plain", 9, rawBatch(CodecLZ4, 3, frame))
	}
	for _, descriptor := range []byte{0x30, 0x41, 0xc0} {
		frame := compressed(CodecLZ4, plain)
		frame[5] = descriptor
		frame[6] = byte(xxh32(frame[4:6]) >> 8)
		add(fmt.Sprintf("lz4: block descriptor %#x", descriptor), "plain", 9, rawBatch(CodecLZ4, 3, frame))
	}
}

func addSnappyCases(add addCase, plain []byte) {
	block := s2.EncodeSnappy(nil, plain)
	framed := func(header []byte, blocks ...[]byte) []byte {
		out := bytes.Clone(header)
		for _, b := range blocks {
			out = append(binary.BigEndian.AppendUint32(out, uint32(len(b))), b...)
		}
		return out
	}
	version := func(v, compatible byte) []byte {
		h := bytes.Clone(xerialHeader)
		h[11], h[15] = v, compatible
		return h
	}
	r := rand.New(rand.NewPCG(1, 2))
	random := make([]byte, len(plain))
	for i := range random {
		random[i] = byte(r.Uint32())
	}
	add("snappy: version 2", "plain", 9, rawBatch(CodecSnappy, 3, framed(version(2, 1), block)))
	add("snappy: compatible 0", "plain", 9, rawBatch(CodecSnappy, 3, framed(version(1, 0), block)))
	add("snappy: compatible 2", "plain", 9, rawBatch(CodecSnappy, 3, framed(version(1, 2), block)))
	add("snappy: two blocks", "plain", 9, rawBatch(CodecSnappy, 3,
		framed(xerialHeader, s2.EncodeSnappy(nil, plain[:20]), s2.EncodeSnappy(nil, plain[20:]))))
	add("snappy: empty blocks", "plain", 9, rawBatch(CodecSnappy, 3, framed(xerialHeader, []byte{0}, block, []byte{0})))
	add("snappy: block of no bytes", "plain", 9, rawBatch(CodecSnappy, 3, framed(xerialHeader, nil, block)))
	add("snappy: negative block", "plain", 9, rawBatch(CodecSnappy, 3, append(bytes.Clone(xerialHeader), 0xff, 0xff, 0xff, 0xf0, 1, 2)))
	add("snappy: block too long", "plain", 9, rawBatch(CodecSnappy, 3, append(bytes.Clone(xerialHeader), 0, 1, 0, 0, 1, 2)))
	add("snappy: length lies", "plain", 9, rawBatch(CodecSnappy, 3, append([]byte{block[0] + 1}, block[1:]...)))
	// A copy with offset 0 is S2's "repeat the last offset", not Snappy.
	repeat := append(binary.AppendUvarint(nil, uint64(len(plain)+4)), block[1:]...)
	add("snappy: s2 repeat", "plain", 9, rawBatch(CodecSnappy, 3, append(repeat, 0x01, 0x00)))
	add("snappy: random block", "plain", 9, rawBatch(CodecSnappy, 3, framed(xerialHeader, random)))
}
