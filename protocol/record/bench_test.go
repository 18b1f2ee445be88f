package record

import (
	"bytes"
	"testing"
)

// benchBatch is a batch of 16 KiB of records of 100 bytes.
func benchBatch(codec Codec) (Batch, int) {
	b := NewBuilder(BuilderOptions{Codec: codec})
	value := mixedBytes(1 << 16)
	for b.SizeBytes() < 16<<10 {
		at := 97 * b.Count() % (len(value) - 100)
		b.Add(testNow, value[at:at+10], value[at:at+90], nil)
	}
	return b.Bytes(), b.Count()
}

func perRecord(b *testing.B, records int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(records), "ns/record")
}

func BenchmarkValidateProduce(b *testing.B) {
	for codec := CodecNone; codec <= CodecZstd; codec++ {
		b.Run(codec.String(), func(b *testing.B) {
			batch, records := benchBatch(codec)
			o := validOptions()
			b.SetBytes(int64(len(batch)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := ValidateProduce(batch, o); err != nil {
					b.Fatal(err)
				}
			}
			perRecord(b, records)
		})
	}
}

func BenchmarkRecompress(b *testing.B) {
	batch, records := benchBatch(CodecLZ4)
	o := validOptions()
	o.TargetCodec = CodecZstd
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ValidateProduce(batch, o); err != nil {
			b.Fatal(err)
		}
	}
	perRecord(b, records)
}

func BenchmarkRecords(b *testing.B) {
	batch, records := benchBatch(CodecNone)
	b.ReportAllocs()
	for b.Loop() {
		for _, err := range batch.Records(Limits{}) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	perRecord(b, records)
}

func BenchmarkBuild(b *testing.B) {
	value := bytes.Repeat([]byte("v"), 90)
	builder := NewBuilder(BuilderOptions{})
	b.ReportAllocs()
	for b.Loop() {
		builder.Reset(BuilderOptions{})
		for range 150 {
			builder.Add(testNow, value[:10], value, nil)
		}
		_ = builder.Bytes()
	}
	perRecord(b, 150)
}
