package record

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

// TestDecoderReadsEachBatchAsRecordsDoes goes over batches of all codecs with one decoder, and stops within some of them.
func TestDecoderReadsEachBatchAsRecordsDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := Decoder{WithoutHeaders: rapid.Bool().Draw(t, "without headers")}
		for range rapid.IntRange(1, 5).Draw(t, "batches") {
			o := someOptions().Draw(t, "options")
			builder := NewBuilder(o)
			addSomeRecords(t, builder, o)
			b := Batch(bytes.Clone(builder.Bytes()))
			var want []Record
			for r, err := range b.Records(Limits{}) {
				if err != nil {
					t.Fatal(err)
				}
				if d.WithoutHeaders {
					r.Headers = nil
				}
				want = append(want, r)
			}
			stop := rapid.IntRange(0, len(want)).Draw(t, "stop")
			n := 0
			for r, err := range d.Records(b, Limits{}) {
				if err != nil || n >= len(want) || !sameRecord(r, want[n]) {
					t.Fatalf("record %d: %+v, %v", n, r, err)
				}
				if n++; n == stop {
					break
				}
			}
			if n != len(want) && n != stop {
				t.Fatalf("%d records of %d", n, len(want))
			}
		}
	})
}

// TestDecoderUsesItsMemoryAgain leaves out the codecs whose libraries allocate when the race detector empties pools.
func TestDecoderUsesItsMemoryAgain(t *testing.T) {
	for _, codec := range []Codec{CodecLZ4, CodecSnappy} {
		b, _ := benchBatch(codec)
		var d Decoder
		read := func() {
			for _, err := range d.Records(b, Limits{}) {
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		read()
		if got := allocatedBytes(read); got > uint64(len(d.plain))/2 {
			t.Errorf("%s: %d bytes for a batch of %d", codec, got, len(d.plain))
		}
	}
}

// TestDecoderKeepsLittle has it read a batch that decompresses to more than is kept, and one that cannot be read.
func TestDecoderKeepsLittle(t *testing.T) {
	b := NewBuilder(BuilderOptions{Codec: CodecLZ4})
	b.Add(0, nil, make([]byte, maxPooledBytes), nil)
	var d Decoder
	for _, err := range d.Records(b.Bytes(), Limits{}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if d.plain != nil {
		t.Errorf("%d bytes are kept", cap(d.plain))
	}
	for _, err := range d.Records(b.Bytes(), Limits{MaxDecompressedBytes: 100}) {
		if err == nil {
			t.Error("more than the limit was read")
		}
	}
}
