package cleaner

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"gregor/protocol/record"
	"gregor/storage/vfs"
)

// TestSourceFindsEachBatch walks over batches of sizes around those of its buffers, passing some over.
func TestSourceFindsEachBatch(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := newFakeLog(t, vfs.NewMem(), "t-0")
		var want []record.Batch
		for range rapid.IntRange(1, 30).Draw(rt, "batches") {
			size := rapid.SampledFrom([]int{1, 100, 2000, minBufferBytes - 80, minBufferBytes, 3 * minBufferBytes, headBytes}).Draw(rt, "size")
			b := keyed(record.BuilderOptions{}, 1, "a="+string(bytes.Repeat([]byte{'x'}, size+rapid.IntRange(0, 40).Draw(rt, "more"))))
			l.add(b)
			want = append(want, b)
		}
		read, all := 0, 0
		v := l.View()
		src, err := openSource(l.active(), &v, 0, newBuffers(0), func(n int) error {
			read += n
			return nil
		})
		must(rt, err)
		defer src.close()
		position := int64(0)
		for i, b := range want {
			head, err := src.head()
			must(rt, err)
			if src.at != position || src.size != len(b) || !bytes.Equal(head, b[:record.HeaderSizeBytes]) {
				rt.Fatalf("batch %d is at %d, want %d, and has %d bytes", i, src.at, position, src.size)
			}
			position += int64(len(b))
			all += len(b)
			if rapid.Bool().Draw(rt, "skip") {
				must(rt, src.skip(head))
				continue
			}
			got, err := src.body()
			must(rt, err)
			if !bytes.Equal(got, b) {
				rt.Fatalf("batch %d differs", i)
			}
		}
		if b, err := src.head(); b != nil || err != nil {
			rt.Fatalf("more: %d bytes, %v", len(b), err)
		}
		if read > all {
			rt.Fatalf("%d bytes were read of %d", read, all)
		}
	})
}

func TestLargeBatchesThatArePassedOverAreNotRead(t *testing.T) {
	l := newFakeLog(t, vfs.NewMem(), "t-0")
	for range 5 {
		l.add(keyed(record.BuilderOptions{}, 1, "a="+string(make([]byte, 100_000))))
	}
	read := 0
	v := l.View()
	src, err := openSource(l.active(), &v, 0, newBuffers(0), func(n int) error {
		read += n
		return nil
	})
	must(t, err)
	defer src.close()
	for {
		head, err := src.head()
		must(t, err)
		if head == nil {
			break
		}
		must(t, src.skip(head))
	}
	if want := minBufferBytes + 4*record.HeaderSizeBytes; read != want {
		t.Errorf("%d bytes were read, want %d", read, want)
	}
}
