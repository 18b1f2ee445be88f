package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/klauspost/compress/s2"
)

func TestEveryCodecAndLevelRoundTrips(t *testing.T) {
	levels := map[Codec][]int{
		CodecNone: {0}, CodecGzip: {-1, 0, 1, 5, 9, 99}, CodecSnappy: {0}, CodecLZ4: {0, 1, 2, 9, 17}, CodecZstd: {-131072, -1, 0, 1, 3, 7, 19, 22},
	}
	for codec, levels := range levels {
		for _, level := range levels {
			sizes := []int{0, 1, 100, 64<<10 + 1}
			if level == DefaultLevel {
				sizes = append(sizes, 32<<10, 32<<10+1, 64<<10, 200_000)
			}
			for _, n := range sizes {
				src := mixedBytes(n)
				out := Compress([]byte("prefix"), codec, level, src)
				if string(out[:6]) != "prefix" {
					t.Fatal("the prefix is lost")
				}
				got, err := Decompress(nil, codec, out[6:], Limits{})
				if err != nil || !bytes.Equal(got, src) {
					t.Errorf("%s level %d: %d bytes: %v", codec, level, n, err)
				}
			}
		}
	}
}

func TestDecompressUsesTheBufferItIsGiven(t *testing.T) {
	src := mixedBytes(50_000)
	for codec := CodecGzip; codec <= CodecZstd; codec++ {
		buf := make([]byte, 3, 300_000)
		got, err := Decompress(buf, codec, compressed(codec, src), Limits{})
		if err != nil || !bytes.Equal(got, src) || &got[0] != &buf[0] {
			t.Errorf("%s: %v", codec, err)
		}
	}
	if got, _ := Decompress(make([]byte, 0, 100), CodecNone, src, Limits{}); &got[0] != &src[0] {
		t.Error("uncompressed bytes are copied")
	}
}

func TestLimitIsExact(t *testing.T) {
	for _, n := range []int{1, 1000, 70_000, 1 << 20, 3 << 20} {
		src := make([]byte, n)
		payloads := map[string][]byte{"zstd stream": zstdStream(t, src), "raw snappy": s2.EncodeSnappy(nil, src)}
		for codec := CodecGzip; codec <= CodecZstd; codec++ {
			payloads[codec.String()] = compressed(codec, src)
		}
		for name, payload := range payloads {
			codec, ok := ParseCodec(name)
			if !ok {
				codec = map[string]Codec{"zstd stream": CodecZstd, "raw snappy": CodecSnappy}[name]
			}
			for _, buf := range [][]byte{nil, make([]byte, 0, 4<<20)} {
				if got, err := Decompress(buf, codec, payload, Limits{MaxDecompressedBytes: int64(n)}); err != nil || len(got) != n {
					t.Errorf("%s: %d bytes at the limit, buffer %d: %v", name, n, cap(buf), err)
				}
				if n == 1 {
					continue
				}
				if _, err := Decompress(buf, codec, payload, Limits{MaxDecompressedBytes: int64(n - 1)}); !errors.Is(err, ErrLimit) {
					t.Errorf("%s: %d bytes above the limit, buffer %d: %v", name, n, cap(buf), err)
				}
			}
		}
	}
}

func TestDefaultLimitLetsALargeBatchPass(t *testing.T) {
	if (Limits{}).maxDecompressedBytes() != DefaultMaxDecompressedBytes || (Limits{MaxDecompressedBytes: 1 << 40}).maxDecompressedBytes() < 1<<30 {
		t.Error("limits")
	}
}

func TestUnknownCodecsAreCorrupt(t *testing.T) {
	for _, codec := range []Codec{CodecProducer, 5, 6, 7} {
		if _, err := Decompress(nil, codec, []byte("x"), Limits{}); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", codec, err)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("compressing with an unknown codec does not panic")
		}
	}()
	Compress(nil, 5, 0, nil)
}

func TestCorruptedStreamsNeverYieldMoreThanTheirLimit(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	lim := Limits{MaxDecompressedBytes: 100_000}
	src := mixedBytes(40_000)
	for codec := CodecGzip; codec <= CodecZstd; codec++ {
		good := compressed(codec, src)
		for range 300 {
			bad := bytes.Clone(good)
			for range 1 + r.IntN(3) {
				bad[r.IntN(len(bad))] = byte(r.Uint32())
			}
			bad = bad[:len(bad)-r.IntN(2)*r.IntN(len(bad))]
			got, err := Decompress(nil, codec, bad, lim)
			if err != nil && !isMarked(err) || len(got) > 100_000 {
				t.Errorf("%s: %d bytes, %v", codec, len(got), err)
			}
		}
	}
}

func TestCodecsAreSafeForConcurrentUse(t *testing.T) {
	src := mixedBytes(30_000)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for codec := CodecGzip; codec <= CodecZstd; codec++ {
				for level := range 3 {
					got, err := Decompress(nil, codec, Compress(nil, codec, level, src), Limits{})
					if err != nil || !bytes.Equal(got, src) {
						t.Errorf("%s: %v", codec, err)
					}
				}
			}
		})
	}
	wg.Wait()
}

func TestXXH32IsThePublishedHash(t *testing.T) {
	for in, want := range map[string]uint32{
		"": 0x02cc5d05, "a": 0x550d7456, "abc": 0x32d153ff, "Nobody inspects the spammish repetition": 0xe2293b2f,
	} {
		if got := xxh32([]byte(in)); got != want {
			t.Errorf("%q: %#x, want %#x", in, got, want)
		}
	}
}

func TestLZ4FrameIsWhatKafkaExpects(t *testing.T) {
	frame := compressed(CodecLZ4, []byte("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"))
	// Version 1, independent blocks, no checksums, blocks of 64 KiB; 0x82 is the header checksum that Kafka writes too.
	if !bytes.Equal(frame[:7], []byte{0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82}) {
		t.Errorf("frame header %x", frame[:7])
	}
	if !bytes.HasSuffix(frame, []byte{0, 0, 0, 0}) {
		t.Error("no end mark")
	}
}

func TestLZ4HeaderChecksumIsIgnoredOnlyForFormatZero(t *testing.T) {
	frame := compressed(CodecLZ4, []byte("data"))
	frame[6] ^= 1
	if _, err := unlz4(nil, frame, 100, false); !errors.Is(err, ErrCorrupt) {
		t.Error(err)
	}
	if got, err := unlz4(nil, frame, 100, true); err != nil || string(got) != "data" {
		t.Error(got, err)
	}
}

func TestSnappyIsWrittenInBlocksOf32KiB(t *testing.T) {
	out := compressed(CodecSnappy, mixedBytes(70_000))
	if !bytes.Equal(out[:16], xerialHeader) {
		t.Fatalf("header %x", out[:16])
	}
	var sizes []int
	for rest := out[16:]; len(rest) > 0; {
		n := binary.BigEndian.Uint32(rest)
		size, err := s2.DecodedLen(rest[4 : 4+n])
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, size)
		rest = rest[4+n:]
	}
	if fmt.Sprint(sizes) != "[32768 32768 4464]" {
		t.Error(sizes)
	}
}

// TestSnappyWalkAgreesWithTheDecoder compares the walk with the decoder on valid blocks and on mutated ones.
func TestSnappyWalkAgreesWithTheDecoder(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	accepted := 0
	for i := range 5000 {
		src := make([]byte, r.IntN(300))
		for j := range src {
			src[j] = byte(r.IntN(3))
		}
		block := s2.EncodeSnappy(nil, src)
		if i%2 == 1 {
			block[r.IntN(len(block))] = byte(r.Uint32())
		}
		claimed, n := binary.Uvarint(block)
		if n <= 0 || claimed > 1000 {
			continue
		}
		walked := snappyFills(block[n:], int(claimed))
		_, err := s2.Decode(nil, block)
		if walked && err != nil {
			t.Fatalf("%x: the walk accepts, the decoder says %v", block, err)
		}
		if i%2 == 0 && !walked {
			t.Fatalf("%x is refused", block)
		}
		if walked {
			accepted++
		}
	}
	if accepted < 2500 {
		t.Error("too few blocks are valid")
	}
}

func TestClaimsAboveTheLimitAreRefusedAtOnce(t *testing.T) {
	lz4Claim := binary.LittleEndian.AppendUint64([]byte{0x04, 0x22, 0x4d, 0x18, 0x68, 0x40}, 1<<40)
	lz4Claim = append(lz4Claim, byte(xxh32(lz4Claim[4:])>>8), 0, 0, 0, 0)
	// A zstd frame that claims 2^40 bytes in one empty block.
	zstdClaim := binary.LittleEndian.AppendUint64([]byte{0x28, 0xb5, 0x2f, 0xfd, 0xe0}, 1<<40)
	zstdClaim = append(zstdClaim, 1, 0, 0)
	for codec, claim := range map[Codec][]byte{CodecLZ4: lz4Claim, CodecZstd: zstdClaim, CodecSnappy: {0xff, 0xff, 0xff, 0xff, 0x0f}} {
		var err error
		n := uint64(math.MaxUint64)
		for range 5 { // the runtime counts what other goroutines allocate, and fills pools again after a collection
			n = min(n, allocatedBytes(func() { _, err = Decompress(nil, codec, claim, Limits{}) }))
		}
		if !errors.Is(err, ErrLimit) || n > 4096 {
			t.Errorf("%s: %d bytes allocated, %v", codec, n, err)
		}
	}
}

func TestSnappyFramingOfVersionZeroIsRefused(t *testing.T) {
	out := compressed(CodecSnappy, []byte("data"))
	for _, version := range []uint32{0, 1 << 31} {
		binary.BigEndian.PutUint32(out[xerialMagicBytes:], version)
		if _, err := Decompress(nil, CodecSnappy, out, Limits{}); !errors.Is(err, ErrCorrupt) {
			t.Errorf("version %d: %v", version, err)
		}
	}
}
