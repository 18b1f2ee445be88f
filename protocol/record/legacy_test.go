package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
)

// wrapper returns a compressed wrapper around entries, at the offset of its last record.
func wrapper(magic int8, codec Codec, attributes byte, timestamp, offset int64, entries ...[]byte) Batch {
	b := Batch(legacyEntry(magic, byte(codec)|attributes, timestamp, nil, compressed(codec, bytes.Join(entries, nil))))
	b.SetBaseOffset(offset)
	return b
}

func at(offset int64, entry []byte) []byte {
	binary.BigEndian.PutUint64(entry, uint64(offset))
	return entry
}

func TestOffsetsInsideWrappersAreRelativeInFormatOne(t *testing.T) {
	for _, codec := range []Codec{CodecGzip, CodecSnappy, CodecLZ4} {
		for magic := range int8(2) {
			base := int64(0)
			if magic == 0 {
				base = 100 // absolute
			}
			w := wrapper(magic, codec, 0, 55, 104, at(base, legacyEntry(magic, 0, 50, []byte("a"), nil)),
				at(base+2, legacyEntry(magic, 0, 55, nil, []byte{})), at(base+4, legacyEntry(magic, 0, 52, []byte("c"), []byte("v"))))
			var got []string
			for _, r := range collect(t, w) {
				got = append(got, fmt.Sprint(r.Offset, r.Timestamp, r.Key == nil, r.Value == nil))
			}
			want := "[100 50 false true 102 55 true false 104 52 false false]"
			if magic == 0 {
				want = "[100 -1 false true 102 -1 true false 104 -1 false false]"
			}
			if fmt.Sprint(got) != want {
				t.Errorf("%s magic %d: got %s, want %s", codec, magic, got, want)
			}
			if first, err := w.FirstOffset(Limits{}); err != nil || first != 100 {
				t.Error(first, err)
			}
			if w.Count() != -1 || w.LastOffset() != 104 {
				t.Error("count or last offset")
			}
		}
	}
}

func TestAppendTimeOfAWrapperHoldsForAllInside(t *testing.T) {
	w := wrapper(1, CodecGzip, timestampTypeFlag, 999, 1, at(0, legacyEntry(1, 0, 5, nil, nil)), at(1, legacyEntry(1, 0, 6, nil, nil)))
	for _, r := range collect(t, w) {
		if r.Timestamp != 999 {
			t.Errorf("timestamp %d", r.Timestamp)
		}
	}
	if w.TimestampType() != LogAppendTime || w.MaxTimestamp() != 999 {
		t.Error("timestamp type")
	}
}

func TestBrokenWrappersAreCorrupt(t *testing.T) {
	good := legacyEntry(1, 0, 5, nil, nil)
	badCRC := bytes.Clone(good)
	badCRC[legacyCRCPos] ^= 1
	nested := legacyEntry(1, byte(CodecGzip), 5, nil, compressed(CodecGzip, good))
	longKey := legacyEntry(1, 0, 5, []byte("k"), nil)
	binary.BigEndian.PutUint32(longKey[legacyTimestampPos+8:], 1000)
	trailing := Batch(legacyEntry(1, 0, 5, nil, nil))
	binary.BigEndian.PutUint32(trailing[len(trailing)-4:], 3)
	for name, b := range map[string]Batch{
		"empty":             wrapper(1, CodecGzip, 0, 0, 0),
		"other magic":       wrapper(1, CodecGzip, 0, 0, 0, legacyEntry(0, 0, 0, nil, nil)),
		"v2 batch inside":   wrapper(1, CodecGzip, 0, 0, 0, fullBatch()),
		"wrong CRC inside":  wrapper(1, CodecGzip, 0, 0, 0, badCRC),
		"nested":            wrapper(1, CodecGzip, 0, 0, 0, nested),
		"cut inside":        wrapper(1, CodecGzip, 0, 0, 0, good, good[:20]),
		"null value":        legacyEntry(1, byte(CodecGzip), 0, nil, nil),
		"zstd":              legacyEntry(1, byte(CodecZstd), 0, nil, compressed(CodecZstd, good)),
		"unknown codec":     legacyEntry(1, 5, 0, nil, good),
		"not compressed":    legacyEntry(1, byte(CodecGzip), 0, nil, []byte("plain")),
		"key too long":      longKey,
		"value too long":    trailing,
		"bytes after value": append(legacyEntry(1, 0, 5, nil, nil), 1),
	} {
		records := 0
		var last error
		for _, err := range b.Records(Limits{}) {
			records, last = records+1, err
		}
		if !errors.Is(last, ErrCorrupt) {
			t.Errorf("%s: %d records, %v", name, records, last)
		}
		if b.Codec() != CodecNone {
			if _, err := b.FirstOffset(Limits{}); !errors.Is(err, ErrCorrupt) {
				t.Errorf("first offset, %s: %v", name, err)
			}
		}
	}
}

func TestWrapperBombIsRefused(t *testing.T) {
	w := wrapper(1, CodecGzip, 0, 0, 0, make([]byte, 1<<20))
	for _, err := range w.Records(Limits{MaxDecompressedBytes: 1 << 19}) {
		if !errors.Is(err, ErrLimit) {
			t.Error(err)
		}
	}
}
