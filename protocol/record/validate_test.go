package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/klauspost/compress/s2"
	"github.com/twmb/franz-go/pkg/kerr"
)

// refusal renders a refused produce for the table: the code, the records at fault, the message for the client.
func refusal(code int16, message *string, errs []RecordError) string {
	var b strings.Builder
	fmt.Fprintf(&b, "error %d", code)
	for _, e := range errs {
		fmt.Fprintf(&b, " record %d", e.Index)
		if e.Message == "" {
			b.WriteString(" (no message)")
		}
	}
	if message != nil {
		b.WriteString(" message: " + *message)
	}
	return b.String()
}

// outcome renders a stored batch for the table, with timestamps relative to now.
func outcome(sent []byte, stored Batch, now, appendTime int64) string {
	relative := func(ts int64) string {
		switch {
		case ts == NoTimestamp:
			return "none"
		case appendTime != NoTimestamp && ts == appendTime:
			return "append"
		case ts-now > -1<<42 && ts-now < 1<<42 && ts > 1<<40:
			return fmt.Sprintf("now%+d", ts-now)
		}
		return strconv.FormatInt(ts, 10)
	}
	payload := "kept"
	if len(sent) < len(stored) || !bytes.Equal(sent[HeaderSizeBytes:len(stored)], stored.Payload()) {
		payload = "rebuilt"
	}
	digest := crc32.NewIEEE()
	records := 0
	for r, err := range stored.Records(Limits{}) {
		if err != nil {
			payload += ", unreadable"
			break
		}
		fmt.Fprintf(digest, "%d %s %q %q %d;", r.Offset-stored.BaseOffset(), relative(r.Timestamp), r.Key, r.Value, len(r.Headers))
		records++
	}
	return fmt.Sprintf("stored %s attributes %#x last %d base %s max %s count %d producer %d %d %d %s records %d %08x",
		stored.Codec(), uint16(stored.Attributes()), stored.LastOffsetDelta(), relative(stored.BaseTimestamp()),
		relative(stored.MaxTimestamp()), stored.Count(), stored.ProducerID(), stored.ProducerEpoch(), stored.BaseSequence(),
		payload, records, digest.Sum32())
}

const testNow = 1_790_000_000_000

func (c produceCase) id() string { return fmt.Sprintf("%s\t%s\t%d", c.name, c.topic, c.version) }

// deviation returns what ValidateProduce answers to a case where that is meant to differ from Kafka's answer.
func deviation(c produceCase, kafka string) (string, bool) {
	if strings.HasPrefix(kafka, "error -1") || kafka == "no answer" {
		if strings.HasPrefix(c.name, "negative timestamp") {
			// Kafka stores negative timestamps, but fails when it has to write them anew.
			return "stored gzip attributes 0x1 last 1 base -5 max none count 2 producer -1 -1 -1 rebuilt records 2 76f73f5c", true
		}
		if strings.Contains(c.name, "codec") {
			return "error 76", true
		}
		return "error 87", true
	}
	if strings.Contains(kafka, "unreadable") {
		if c.name == "stream: text after gzip" || c.name == "stream: zero bytes after gzip" || c.name == "snappy: compatible 0" {
			return "", false
		}
		return "error 87", true
	}
	if strings.HasPrefix(c.name, "record: offset delta") && strings.HasPrefix(kafka, "stored none") {
		records := 2
		if strings.Contains(c.name, "large") {
			records = 1
		}
		return fmt.Sprintf("rebuilt records %d", records), true
	}
	return "", false
}

func TestAnswersAreThoseOfKafka(t *testing.T) {
	text, err := os.ReadFile("testdata/produce.tsv")
	if err != nil {
		t.Fatal(err)
	}
	kafka := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if i := strings.LastIndexByte(line, '\t'); i > 0 && line[0] != '#' {
			kafka[line[:i]] = strings.TrimSpace(line[i+1:])
		}
	}
	cases := produceCases()
	if len(cases) != len(kafka) {
		t.Errorf("%d cases, %d answers", len(cases), len(kafka))
	}
	for _, c := range cases {
		t.Run(c.name+" to "+c.topic, func(t *testing.T) {
			want, ok := kafka[c.id()]
			if !ok {
				t.Fatal("no answer is recorded")
			}
			checkAnswer(t, c, want)
		})
	}
}

func checkAnswer(t *testing.T, c produceCase, kafka string) {
	t.Helper()
	sent := c.build(testNow)
	res, err := ValidateProduce(bytes.Clone(sent), c.options(testNow+produceDelayMillis))
	want, deviates := deviation(c, kafka)
	if !deviates {
		want = kafka
	}
	if err != nil {
		checkRefusal(t, c, err, want)
		return
	}
	if !res.Batch.CRCValid() {
		t.Error("CRC is wrong")
	}
	if b, rest, err := Next(res.Batch); err != nil || len(rest) != 0 || len(b) != len(res.Batch) {
		t.Error("not one batch", err)
	}
	if res.MaxTimestamp != res.Batch.MaxTimestamp() {
		t.Errorf("max timestamp %d, in the batch %d", res.MaxTimestamp, res.Batch.MaxTimestamp())
	}
	got := outcome(sent, res.Batch, testNow, res.LogAppendTimeMillis)
	if deviates && strings.HasPrefix(want, "rebuilt") {
		if !strings.Contains(got, want) || !res.Rebuilt {
			t.Errorf("got %s\nwant %s", got, want)
		}
	} else if got != strings.Replace(want, "kept, unreadable records 0 00000000", "kept records 3 128c0ccf", 1) {
		t.Errorf("got   %s\nwant  %s\nKafka %s", got, want, kafka)
	}
	for i, r := range collect(t, res.Batch) {
		if r.Offset != int64(i) {
			t.Errorf("record %d has offset %d", i, r.Offset)
		}
	}
}

func checkRefusal(t *testing.T, c produceCase, err error, want string) {
	t.Helper()
	var perr *ProduceError
	if !errors.As(err, &perr) {
		t.Fatalf("error of type %T", err)
	}
	if perr.Message == "" {
		t.Error("no message")
	}
	errs := perr.RecordErrors
	if c.version < 8 {
		errs = nil // the response has no room for them
	}
	got := refusal(perr.Err.Code, nil, errs)
	if want, _, _ = strings.Cut(want, " message: "); got != want {
		t.Errorf("got  %s (%v)\nwant %s", got, err, want)
	}
}

func collect(t *testing.T, b Batch) []Record {
	t.Helper()
	var recs []Record
	for r, err := range b.Records(Limits{}) {
		if err != nil {
			t.Fatal(err)
		}
		recs = append(recs, r)
	}
	return recs
}

func validOptions() ProduceOptions {
	return produceCase{topic: "plain", version: 9}.options(testNow)
}

func mustRefuse(t *testing.T, in []byte, o ProduceOptions, want *kerr.Error) *ProduceError {
	t.Helper()
	_, err := ValidateProduce(in, o)
	var perr *ProduceError
	if !errors.As(err, &perr) || !errors.Is(err, want) {
		t.Fatalf("got %v, want %v", err, want)
	}
	return perr
}

func TestFaultsOfRecordsNameTheRecordAndTheLimit(t *testing.T) {
	o := validOptions()
	perr := mustRefuse(t, batchOf(CodecNone, keyed(0, 7200000))(testNow), o, kerr.InvalidTimestamp)
	if len(perr.RecordErrors) != 1 || perr.RecordErrors[0].Index != 1 {
		t.Fatalf("record errors %v", perr.RecordErrors)
	}
	for _, want := range []string{"1790007200000", "offset 1", "1790003600000"} {
		if !strings.Contains(perr.RecordErrors[0].Message, want) {
			t.Errorf("message %q lacks %s", perr.RecordErrors[0].Message, want)
		}
	}
	o.Compacted = true
	perr = mustRefuse(t, batchOf(CodecNone, make([]testRecord, 5))(testNow), o, kerr.InvalidRecord)
	if len(perr.RecordErrors) != 5 || !strings.Contains(perr.Message, "due to 5 record errors") ||
		strings.Count(perr.Message, "plain-0") != 3 {
		t.Errorf("message %q, %d record errors", perr.Message, len(perr.RecordErrors))
	}
}

func TestNumberOfRecordErrorsIsBounded(t *testing.T) {
	o := validOptions()
	o.Compacted = true
	const n = 2 * maxRecordErrors
	perr := mustRefuse(t, batchOf(CodecZstd, make([]testRecord, n))(testNow), o, kerr.InvalidRecord)
	if len(perr.RecordErrors) != maxRecordErrors || !strings.Contains(perr.Message, fmt.Sprintf("due to %d record errors", n)) {
		t.Errorf("%d record errors, message %q", len(perr.RecordErrors), perr.Message)
	}
}

func TestPayloadAboveTheLimitIsTooLarge(t *testing.T) {
	o := validOptions()
	o.Limits.MaxDecompressedBytes = 100_000
	for codec := CodecGzip; codec <= CodecZstd; codec++ {
		fits := batchOf(codec, []testRecord{{0, nil, make([]byte, 99_900)}})(testNow)
		if _, err := ValidateProduce(fits, o); err != nil {
			t.Errorf("%s below the limit: %v", codec, err)
		}
		mustRefuse(t, batchOf(codec, []testRecord{{0, nil, make([]byte, 100_000)}})(testNow), o, kerr.MessageTooLarge)
	}
	o.Limits.MaxRecordBytes = 50
	mustRefuse(t, batchOf(CodecNone, []testRecord{{0, nil, make([]byte, 51)}})(testNow), o, kerr.MessageTooLarge)
}

func TestSnappyClaimOfFourGibibytesCostsNothing(t *testing.T) {
	claim := []byte{0xff, 0xff, 0xff, 0xff, 0x0f, 0xfc, 1, 2, 3}
	batch := rawBatch(CodecSnappy, 1, claim)(testNow)
	o := validOptions()
	if perBatch := allocatedBytes(func() { mustRefuse(t, bytes.Clone(batch), o, kerr.MessageTooLarge) }); perBatch > 16<<10 {
		t.Errorf("%d bytes allocated", perBatch)
	}
	o.Limits.MaxDecompressedBytes = math.MaxInt32
	lie := rawBatch(CodecSnappy, 1, append([]byte{0x80, 0x80, 0x80, 0x40}, s2.EncodeSnappy(nil, make([]byte, 100))[1:]...))(testNow)
	if perBatch := allocatedBytes(func() { mustRefuse(t, bytes.Clone(lie), o, kerr.InvalidRecord) }); perBatch > 16<<10 {
		t.Errorf("%d bytes allocated for a claim that the elements do not bear out", perBatch)
	}
}

func TestZstdBombIsRefusedWithoutItsMemory(t *testing.T) {
	o := validOptions()
	o.Limits.MaxDecompressedBytes = 1 << 20
	for name, bomb := range map[string][]byte{"with its size": zstdBomb(true), "streamed": zstdBomb(false)} {
		batch := rawBatch(CodecZstd, 1, bomb)(testNow)
		if n := allocatedBytes(func() { mustRefuse(t, bytes.Clone(batch), o, kerr.MessageTooLarge) }); n > 8<<20 {
			t.Errorf("%s: %d bytes allocated", name, n)
		}
		if bound, err := zstdBound(bomb, math.MaxInt32); err != nil || bound != 256<<20 || len(bomb) > 8300 {
			t.Errorf("%s: a bomb of %d bytes in %d, %v", name, bound, len(bomb), err)
		}
	}
}

// zstdBomb returns 256 MiB of zeros in 8 KiB: blocks of 128 KiB that repeat one byte.
func zstdBomb(withSize bool) []byte {
	const blocks = 2048
	bomb := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x80, 0x38} // a content size of 4 bytes, a window of 128 KiB
	if withSize {
		bomb = binary.LittleEndian.AppendUint32(bomb, blocks*zstdMaxBlockBytes)
	} else {
		bomb[4] = 0
	}
	for i := range blocks {
		header := zstdMaxBlockBytes<<3 | 1<<1
		if i == blocks-1 {
			header |= 1
		}
		bomb = append(bomb, byte(header), byte(header>>8), byte(header>>16), 0)
	}
	return bomb
}

func TestKeptBatchesCostNoAllocation(t *testing.T) {
	for codec := CodecNone; codec <= CodecZstd; codec++ {
		var recs []testRecord
		for range 200 {
			recs = append(recs, testRecord{0, []byte("some key"), []byte("some value that is a little longer")})
		}
		batch := batchOf(codec, recs)(testNow)
		o := validOptions()
		allocs := testing.AllocsPerRun(50, func() {
			if res, err := ValidateProduce(batch, o); err != nil || res.Rebuilt {
				t.Fatal(err, res.Rebuilt)
			}
		})
		// The pools may be emptied by a collection, and the frame decoders make small values.
		if allocs > 4 {
			t.Errorf("%s: %v allocations", codec, allocs)
		}
	}
}

func TestKeptBatchIsTheInput(t *testing.T) {
	in := batchOf(CodecLZ4, keyed(0, 1))(testNow)
	o := validOptions()
	o.TimestampType, o.NowMillis = LogAppendTime, testNow+5
	res, err := ValidateProduce(in, o)
	if err != nil || &res.Batch[0] != &in[0] || res.LogAppendTimeMillis != testNow+5 {
		t.Fatal(res, err)
	}
	for _, r := range collect(t, res.Batch) {
		if r.Timestamp != testNow+5 {
			t.Errorf("timestamp %d", r.Timestamp)
		}
	}
	if res.Batch.BaseTimestamp() != testNow {
		t.Error("the base timestamp is not what was sent")
	}
}

func TestRebuiltBatchKeepsProducerAndTransaction(t *testing.T) {
	b := NewBuilder(BuilderOptions{
		Codec: CodecGzip, HasProducer: true, ProducerID: 9, ProducerEpoch: 2, BaseSequence: 41, Transactional: true,
	})
	b.Add(testNow, []byte("k"), nil, []Header{{"h", nil}, {"h", []byte{}}})
	b.Add(testNow+1, nil, []byte{}, nil)
	o := validOptions()
	o.TargetCodec = CodecZstd
	res, err := ValidateProduce(b.Bytes(), o)
	if err != nil {
		t.Fatal(err)
	}
	got := res.Batch
	if got.ProducerID() != 9 || got.ProducerEpoch() != 2 || got.BaseSequence() != 41 || !got.IsTransactional() || got.LastSequence() != 42 {
		t.Error("producer fields differ")
	}
	recs := collect(t, got)
	if len(recs[0].Headers) != 2 || recs[0].Headers[0].Value != nil || recs[0].Headers[1].Value == nil || recs[0].Value != nil ||
		recs[1].Key != nil || recs[1].Value == nil || recs[1].Sequence != 42 {
		t.Errorf("records differ: %v", recs)
	}
}
