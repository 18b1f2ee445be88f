package record

import (
	"errors"
	"io"
	"math"
	"testing"
)

func TestSmoke(t *testing.T) {
	for c := CodecNone; c <= CodecZstd; c++ {
		b := NewBuilder(BuilderOptions{Codec: c})
		for i := range 100 {
			b.Add(int64(1000+i), []byte("key"), []byte("some value some value"), []Header{{"a", []byte("b")}})
		}
		batch := b.Bytes()
		got, rest, err := Next(batch)
		if err != nil || len(rest) != 0 || !got.CRCValid() {
			t.Fatal(c, err)
		}
		n := 0
		for r, err := range got.Records(Limits{}) {
			if err != nil || r.Offset != int64(n) || string(r.Key) != "key" || len(r.Headers) != 1 {
				t.Fatal(c, err, r)
			}
			n++
		}
		if n != 100 {
			t.Fatal(c, n)
		}
		if _, _, err := Next(nil); !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		for target := CodecProducer; target <= CodecZstd; target++ {
			res, err := ValidateProduce(append([]byte(nil), batch...), ProduceOptions{TargetCodec: target, MaxBatchBytes: 1 << 20, RequestVersion: 9, TimestampBeforeMaxMillis: math.MaxInt64, TimestampAfterMaxMillis: 3600000, NowMillis: 5000})
			if err != nil {
				t.Fatal(c, target, err)
			}
			if target != CodecProducer && res.Batch.Codec() != target || !res.Batch.CRCValid() || res.MaxTimestamp != 1099 {
				t.Fatal(c, target, res)
			}
		}
	}
}
