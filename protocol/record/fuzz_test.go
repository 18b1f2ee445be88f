package record

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"testing"
)

// fuzzLimits are small, so that what exceeds them is seen.
var fuzzLimits = Limits{MaxDecompressedBytes: 256 << 10, MaxRecordBytes: 128 << 10}

// fuzzAllocBytes is the most that reading a batch under fuzzLimits may allocate: buffers that grow, the zstd decoder's
// tables, headers (40 bytes for 2 encoded ones) of what fits into the limit.
const fuzzAllocBytes = 32 << 20

// withinAllocation fails if f allocates more than it may.
func withinAllocation(t *testing.T, f func()) {
	t.Helper()
	if n := allocatedBytes(f); n > fuzzAllocBytes {
		t.Fatalf("%d bytes allocated", n)
	}
}

func isMarked(err error) bool {
	return errors.Is(err, ErrCorrupt) || errors.Is(err, ErrLimit) || errors.Is(err, ErrTruncated) || errors.Is(err, io.EOF)
}

func seedProduce(f *testing.F) {
	for _, c := range produceCases() {
		if data := c.build(testNow); len(data) < 4096 {
			f.Add(data)
		}
	}
}

func seedGolden(f *testing.F, sets ...string) {
	for _, name := range sets {
		for _, data := range loadGolden(f, name).segments {
			if len(data) < 4096 {
				f.Add(data)
			}
		}
	}
}

func FuzzBatches(f *testing.F) {
	seedProduce(f)
	seedGolden(f, "legacy", "compacted", "transactions")
	f.Fuzz(func(t *testing.T, data []byte) {
		withinAllocation(t, func() { readAll(t, data) })
	})
}

// readAll reads everything that can be read of data as a log.
func readAll(t *testing.T, data []byte) {
	rest := data
	for {
		b, r, err := Next(rest)
		if err != nil {
			if !isMarked(err) {
				t.Fatalf("unmarked error %v", err)
			}
			if !bytes.Equal(r, rest) {
				t.Fatal("Next consumed bytes of a batch that it refused")
			}
			return
		}
		if len(b)+len(r) != len(rest) || len(b) < LogOverheadBytes+legacyMinLengthBytes {
			t.Fatal("Next lost bytes")
		}
		rest = r
		_ = b.CRCValid()
		_, _, _, _, _, _ = b.NextOffset(), b.LastSequence(), b.MaxTimestamp(), b.BaseTimestamp(), b.DeleteHorizonMillis(), b.ProducerEpoch()
		if _, err := b.FirstOffset(fuzzLimits); err != nil && !isMarked(err) {
			t.Fatalf("unmarked error %v", err)
		}
		records := int32(0)
		for rec, err := range b.Records(fuzzLimits) {
			if err != nil {
				if !isMarked(err) {
					t.Fatalf("unmarked error %v", err)
				}
				break
			}
			if len(rec.Key)+len(rec.Value) > int(fuzzLimits.MaxDecompressedBytes)+len(b) {
				t.Fatal("record above the limit")
			}
			records++
		}
		if b.Magic() == 2 && records > max(b.Count(), 0) {
			t.Fatalf("%d records of %d", records, b.Count())
		}
		_, _, _, _ = ParseEndTxnBatch(b, fuzzLimits)
	}
}

func FuzzDecompress(f *testing.F) {
	for _, c := range produceCases() {
		if b, _, err := Next(c.build(testNow)); err == nil && b.Magic() == 2 && len(b) < 4096 {
			f.Add(uint8(b.Codec()), b.Payload())
		}
	}
	for codec := CodecGzip; codec <= CodecZstd; codec++ {
		f.Add(uint8(codec), compressed(codec, make([]byte, 300<<10)))
	}
	f.Add(uint8(CodecZstd), zstdStream(f, make([]byte, 300<<10)))
	f.Fuzz(func(t *testing.T, codec uint8, data []byte) {
		withinAllocation(t, func() {
			out, err := Decompress(nil, Codec(codec%8), data, fuzzLimits)
			if err != nil && !isMarked(err) {
				t.Fatalf("unmarked error %v", err)
			}
			if err == nil && codec%8 != 0 && int64(len(out)) > fuzzLimits.MaxDecompressedBytes {
				t.Fatalf("%d bytes are above the limit", len(out))
			}
			_, _ = unlz4(nil, data, int(fuzzLimits.MaxDecompressedBytes), true)
		})
	})
}

// FuzzLegacy compresses the data into a wrapper of an old format, so that the inner message set is reached.
func FuzzLegacy(f *testing.F) {
	inner := append(legacyEntry(1, 0, 5, []byte("k"), []byte("v")), legacyEntry(1, 0, 6, nil, nil)...)
	f.Add(uint8(1), uint8(1), inner)
	f.Add(uint8(0), uint8(2), append(legacyEntry(0, 0, 0, nil, []byte("v")), 1, 2, 3))
	f.Fuzz(func(t *testing.T, magic, codec uint8, inner []byte) {
		c := CodecGzip + Codec(codec%3)
		entry := legacyEntry(int8(magic%2), byte(c), 9, nil, compressed(c, inner))
		withinAllocation(t, func() { readAll(t, entry) })
	})
}

func FuzzValidateProduce(f *testing.F) {
	for _, c := range produceCases() {
		if data := c.build(testNow); len(data) < 4096 {
			f.Add(data, uint8(0), uint8(c.version))
			f.Add(data, uint8(0xff), uint8(9))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, options, version uint8) {
		o := ProduceOptions{
			TopicPartition: "t-0", NowMillis: testNow, TimestampBeforeMaxMillis: 1 << 40, TimestampAfterMaxMillis: 3600000,
			TargetCodec: Codec(options&7)%6 - 1, TimestampType: TimestampType(options >> 3 & 1), Compacted: options&16 != 0,
			RequestVersion: int16(version), MaxBatchBytes: 1 << 20, Limits: fuzzLimits,
		}
		// The CRC is made right: the fuzzer would not find it, and the checks behind it are the interesting ones.
		if b, _, err := Next(data); err == nil && b.Magic() == 2 {
			data = bytes.Clone(data)
			Batch(data[:len(b)]).renewCRC()
		}
		withinAllocation(t, func() { checkValidated(t, data, o) })
	})
}

// checkValidated checks what must hold for every batch that is accepted.
func checkValidated(t *testing.T, data []byte, o ProduceOptions) {
	// As in Kafka, records sent with the LogAppendTime bit are judged by the timestamp of their batch, and then keep theirs.
	sent, _, err := Next(data)
	ownTimestamps := err != nil || sent.Magic() != 2 || sent.TimestampType() == CreateTime
	res, err := ValidateProduce(data, o)
	if err != nil {
		var perr *ProduceError
		if !errors.As(err, &perr) || perr.Err == nil || perr.Message == "" {
			t.Fatalf("error %v", err)
		}
		return
	}
	checkAcceptedHeader(t, res, o)
	checkAcceptedRecords(t, res.Batch, o, ownTimestamps)
	if o.TimestampType == LogAppendTime || !ownTimestamps {
		return
	}
	o.RequestVersion = 9 // a rebuilt batch may be zstd
	again, err := ValidateProduce(bytes.Clone(res.Batch), o)
	if err != nil || again.Rebuilt || !bytes.Equal(again.Batch, res.Batch) {
		t.Fatalf("validating again: %v, rebuilt %v", err, again.Rebuilt)
	}
}

func checkAcceptedHeader(t *testing.T, res ProduceResult, o ProduceOptions) {
	t.Helper()
	b := res.Batch
	if got, rest, err := Next(b); err != nil || len(rest) != 0 || len(got) != len(b) || !b.CRCValid() {
		t.Fatal("not a batch", err)
	}
	if b.TimestampType() != o.TimestampType || b.MaxTimestamp() != res.MaxTimestamp || b.BaseOffset() != 0 || b.IsControl() {
		t.Fatalf("header %x", []byte(b[:HeaderSizeBytes]))
	}
	if o.TargetCodec != CodecProducer && b.Codec() != o.TargetCodec {
		t.Fatalf("codec %s, want %s", b.Codec(), o.TargetCodec)
	}
}

func checkAcceptedRecords(t *testing.T, b Batch, o ProduceOptions, ownTimestamps bool) {
	t.Helper()
	next := int64(0)
	for rec, err := range b.Records(Limits{}) {
		if err != nil {
			t.Fatal("an accepted batch cannot be read", err)
		}
		if rec.Offset != next || (o.Compacted && rec.Key == nil) || ownTimestamps && rec.Timestamp > b.MaxTimestamp() && rec.Timestamp > NoTimestamp {
			t.Fatalf("record %+v, want offset %d", rec, next)
		}
		next++
	}
	if next != int64(b.Count()) || b.LastOffset() != next-1 {
		t.Fatalf("%d records of %d, last offset %d", next, b.Count(), b.LastOffset())
	}
}

func FuzzControl(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1}, []byte{0, 0, 0, 0, 0, 7})
	f.Fuzz(func(t *testing.T, key, value []byte) {
		if typ, err := ParseControlKey(key); err == nil {
			if again, err := ParseControlKey(AppendControlKey(nil, typ)); err != nil || again != typ {
				t.Fatalf("type %d came back as %d, %v", typ, again, err)
			}
		}
		m, err := ParseEndTxnMarker(value)
		if err != nil {
			return
		}
		if again, err := ParseEndTxnMarker(m.Append(nil)); err != nil || again != m {
			t.Fatalf("%+v came back as %+v, %v", m, again, err)
		}
	})
}

// FuzzShortRecords compares the reader of usual records with the one that reads all.
func FuzzShortRecords(f *testing.F) {
	f.Add(body(0, 0, 0))
	f.Add(body(3, 100, 200))
	f.Add([]byte{0, 0, 0, 1, 1, 0})
	f.Add([]byte{0, 0x80, 1, 0x80, 1, 0x80, 1, 1, 0})
	f.Fuzz(func(t *testing.T, body []byte) {
		var short, full rawRecord
		if !short.parseShort(body) {
			return
		}
		if !full.parse(body) {
			t.Fatalf("%x is accepted as a usual record only", body)
		}
		if len(full.headers) == 0 {
			full.headers = nil
		}
		if !reflect.DeepEqual(short, full) {
			t.Fatalf("%x: got %+v, want %+v", body, short, full)
		}
	})
}

// TestUsualRecordsTakeTheShortWay makes sure that the fast reader is used at all.
func TestUsualRecordsTakeTheShortWay(t *testing.T) {
	for _, b := range [][]byte{body(0, 0, 0), body(0, 5, 300), {0, 0, 0, 1, 1, 0}, rec(0, body(0, 0, 0))[1:]} {
		var r rawRecord
		if !r.parseShort(b) {
			t.Errorf("%x", b)
		}
	}
	for _, b := range [][]byte{nil, {0}, {0, 0, 0, 1, 1, 2, 2, 'h', 1}, body(0, 1<<40, 0)} {
		var r rawRecord
		if r.parseShort(b) {
			t.Errorf("%x", b)
		}
	}
}
