package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"testing"
)

func fullBatch() Batch {
	b := NewBuilder(BuilderOptions{
		BaseOffset: 1000, LeaderEpoch: 7, HasProducer: true, ProducerID: 4242, ProducerEpoch: 5, BaseSequence: 30, Transactional: true,
	})
	b.Add(1500, []byte("k"), []byte("v"), nil)
	b.AddAt(1004, 1400, nil, nil, nil)
	b.SetLastOffset(1009)
	return b.Bytes()
}

func TestAccessorsOfAFullHeader(t *testing.T) {
	b := fullBatch()
	got := fmt.Sprint(b.BaseOffset(), b.LastOffset(), b.NextOffset(), b.LastOffsetDelta(), b.LeaderEpoch(), b.Magic(), b.Attributes(),
		b.Codec(), b.TimestampType(), b.IsTransactional(), b.IsControl(), b.HasDeleteHorizon(), b.DeleteHorizonMillis(),
		b.BaseTimestamp(), b.MaxTimestamp(), b.ProducerID(), b.HasProducerID(), b.ProducerEpoch(), b.BaseSequence(), b.LastSequence(),
		b.Count(), b.SizeBytes() == len(b), b.CRCValid())
	want := "1000 1009 1010 9 7 2 16 none CreateTime true false false -1 1500 1500 4242 true 5 30 39 2 true true"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestAccessorsOfOldFormatsSayNone(t *testing.T) {
	for magic := range int8(2) {
		b, _, err := Next(legacyEntry(magic, 0, 77, []byte("k"), nil))
		if err != nil {
			t.Fatal(err)
		}
		b.SetBaseOffset(12)
		b.SetLeaderEpoch(3) // there is no place for it
		b.SetMaxTimestamp(LogAppendTime, 9)
		got := fmt.Sprint(b.BaseOffset(), b.LastOffset(), b.NextOffset(), b.LeaderEpoch(), b.Magic(), b.Codec(), b.TimestampType(),
			b.IsTransactional(), b.IsControl(), b.HasDeleteHorizon(), b.BaseTimestamp(), b.MaxTimestamp(), b.ProducerID(),
			b.ProducerEpoch(), b.BaseSequence(), b.LastSequence(), b.Count(), len(b.Payload()), b.CRCValid())
		want := map[int8]string{
			0: "12 12 13 -1 0 none NoTimestampType false false false -1 -1 -1 -1 -1 -1 1 0 true",
			1: "12 12 13 -1 1 none CreateTime false false false 77 77 -1 -1 -1 -1 1 0 true",
		}[magic]
		if got != want {
			t.Errorf("magic %d:\ngot  %s\nwant %s", magic, got, want)
		}
	}
}

func TestOffsetAndEpochLieOutsideTheCRC(t *testing.T) {
	b := fullBatch()
	crc := b.CRC()
	b.SetBaseOffset(1 << 40)
	b.SetLeaderEpoch(99)
	if !b.CRCValid() || b.CRC() != crc || b.BaseOffset() != 1<<40 || b.LeaderEpoch() != 99 || b.LastOffset() != 1<<40+9 {
		t.Errorf("header %x", []byte(b[:HeaderSizeBytes]))
	}
}

func TestSetMaxTimestampRenewsTheCRCOnlyWhenNeeded(t *testing.T) {
	b := fullBatch()
	before := bytes.Clone(b)
	b.SetMaxTimestamp(CreateTime, 1500)
	if !bytes.Equal(before, b) {
		t.Error("an equal timestamp changed the batch")
	}
	b.SetMaxTimestamp(LogAppendTime, 1500)
	if b.TimestampType() != LogAppendTime || !b.CRCValid() || !b.IsTransactional() {
		t.Error("append time")
	}
	b.SetMaxTimestamp(CreateTime, 3)
	if b.TimestampType() != CreateTime || b.MaxTimestamp() != 3 || !b.CRCValid() {
		t.Error("create time")
	}
}

func TestEveryFlippedBitBehindTheEpochBreaksTheCRC(t *testing.T) {
	b := fullBatch()
	for bit := crcPos * 8; bit < len(b)*8; bit++ {
		b[bit/8] ^= 1 << (bit % 8)
		if b.CRCValid() {
			t.Errorf("bit %d of byte %d is not covered", bit%8, bit/8)
		}
		b[bit/8] ^= 1 << (bit % 8)
	}
}

func TestSequencesWrapFromTheLargestToZero(t *testing.T) {
	for _, c := range []struct{ sequence, by, sum int32 }{
		{0, 0, 0}, {5, 3, 8}, {math.MaxInt32, 1, 0}, {math.MaxInt32 - 1, 1, math.MaxInt32}, {math.MaxInt32 - 2, 10, 7}, {math.MaxInt32, math.MaxInt32, math.MaxInt32 - 1},
	} {
		if got := AddSequence(c.sequence, c.by); got != c.sum {
			t.Errorf("%d + %d = %d, want %d", c.sequence, c.by, got, c.sum)
		}
		if got := SubtractSequence(c.sum, c.by); got != c.sequence {
			t.Errorf("%d - %d = %d, want %d", c.sum, c.by, got, c.sequence)
		}
	}
	b := NewBuilder(BuilderOptions{HasProducer: true, BaseSequence: math.MaxInt32 - 1})
	for range 4 {
		b.Add(1, nil, nil, nil)
	}
	var got []int32
	for _, r := range collect(t, b.Bytes()) {
		got = append(got, r.Sequence)
	}
	if fmt.Sprint(got) != "[2147483646 2147483647 0 1]" || b.Bytes().LastSequence() != 1 {
		t.Error(got)
	}
}

func TestNextCutsBatchesAndTellsTruncatedFromCorrupt(t *testing.T) {
	first, second := fullBatch(), batchOf(CodecGzip, keyed(0))(testNow)
	log := append(bytes.Clone(first), second...)
	b, rest, err := Next(log)
	if err != nil || !bytes.Equal(b, first) || !bytes.Equal(rest, second) {
		t.Fatal("first batch", err)
	}
	if cap(b) != len(b) {
		t.Error("an append to the batch would overwrite the next one")
	}
	if _, _, err := Next(nil); !errors.Is(err, io.EOF) {
		t.Error("end", err)
	}
	for n := 1; n < len(first); n++ {
		if _, rest, err := Next(log[:n]); !errors.Is(err, ErrTruncated) || len(rest) != n {
			t.Errorf("cut to %d: %v", n, err)
		}
	}
	for name, mutate := range map[string]func([]byte){
		"negative length": func(b []byte) { binary.BigEndian.PutUint32(b[8:], math.MaxUint32) },
		"length 13":       func(b []byte) { binary.BigEndian.PutUint32(b[8:], 13) },
		"length 48":       func(b []byte) { binary.BigEndian.PutUint32(b[8:], 48) },
		"magic 3":         func(b []byte) { b[magicPos] = 3 },
		"magic -1":        func(b []byte) { b[magicPos] = 0xff },
		"magic 1 short":   func(b []byte) { b[magicPos] = 1; binary.BigEndian.PutUint32(b[8:], 21) },
	} {
		bad := bytes.Clone(log)
		mutate(bad)
		if _, rest, err := Next(bad); !errors.Is(err, ErrCorrupt) || len(rest) != len(bad) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestEntrySizeNeedsOnlyTheStartOfABatch(t *testing.T) {
	b := fullBatch()
	if n, err := EntrySize(b[:EntrySizeBytes]); err != nil || n != len(b) {
		t.Error(n, err)
	}
	if _, err := EntrySize(b[:EntrySizeBytes-1]); !errors.Is(err, ErrTruncated) {
		t.Error(err)
	}
}

func TestBatchesStopsAtTheFirstBadOne(t *testing.T) {
	log := append(fullBatch(), fullBatch()[:30]...)
	var got []string
	for b, err := range Batches(log) {
		got = append(got, fmt.Sprint(len(b), err))
	}
	if len(got) != 2 || got[1] != "0 "+ErrTruncated.Error() {
		t.Error(got)
	}
	for range Batches(log) {
		break // must not panic
	}
}

func TestIterationStopsWhenTheCallerDoes(t *testing.T) {
	for _, codec := range []Codec{CodecNone, CodecZstd} {
		for r, err := range Batch(batchOf(codec, keyed(0, 0, 0))(testNow)).Records(Limits{}) {
			if err != nil || r.Offset != 0 {
				t.Error(r, err)
			}
			break
		}
	}
}

func TestNamesAreThoseOfTheConfigs(t *testing.T) {
	for name, want := range map[string]Codec{
		"producer": CodecProducer, "uncompressed": CodecNone, "none": CodecNone, "gzip": CodecGzip, "snappy": CodecSnappy, "lz4": CodecLZ4, "zstd": CodecZstd,
	} {
		if got, ok := ParseCodec(name); !ok || got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
	for _, name := range []string{"", "brotli", "GZIP", "codec 7"} {
		if _, ok := ParseCodec(name); ok {
			t.Errorf("%q is a codec", name)
		}
	}
	if Codec(6).String() != "codec 6" {
		t.Error(Codec(6).String())
	}
}

func TestVarintsSurvive(t *testing.T) {
	values := []int64{0, -1, 1, 63, 64, -64, -65, 8191, 8192, math.MaxInt32, math.MinInt32, math.MaxInt64, math.MinInt64}
	for shift := range 63 {
		values = append(values, 1<<shift, -(1 << shift), 1<<shift-1)
	}
	for _, v := range values {
		b := appendVarlong(nil, v)
		if len(b) != sizeOfVarlong(v) {
			t.Errorf("size of %d is %d, want %d", v, sizeOfVarlong(v), len(b))
		}
		if !bytes.Equal(b, binary.AppendVarint(nil, v)) {
			t.Errorf("%d is %x", v, b)
		}
		if got, pos := readVarlong(append([]byte{9}, b...), 1); got != v || pos != len(b)+1 {
			t.Errorf("%d is read as %d", v, got)
		}
		if v == int64(int32(v)) {
			if got, pos := readVarint(append([]byte{9}, b...), 1); int64(got) != v || pos != len(b)+1 {
				t.Errorf("%d is read as %d", v, got)
			}
		}
		for n := range b {
			if _, pos := readVarlong(b[:n], 0); pos >= 0 {
				t.Errorf("%d of %d bytes of %d are read", n, len(b), v)
			}
		}
	}
	long := bytes.Repeat([]byte{0x80}, 12)
	if _, pos := readVarlong(append(long, 0), 0); pos >= 0 {
		t.Error("13 bytes are no varlong")
	}
	if _, pos := readVarint(append(bytes.Repeat([]byte{0x80}, 5), 0), 0); pos >= 0 {
		t.Error("6 bytes are no varint")
	}
	if _, pos := readUvarint(append(bytes.Repeat([]byte{0x80}, 5), 0), 0); pos >= 0 {
		t.Error("6 bytes are no uvarint")
	}
}
