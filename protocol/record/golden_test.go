package record

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"gregor/internal/recording"
)

// The golden sets were written by Apache Kafka 4.4.0 (legacy: by the builders of its client library): segments, what
// they hold batch by batch, and record by record.
var goldenSets = []string{
	"plain", "transactions", "transactions-tv1", "compacted-before", "compacted-first", "compacted", "legacy",
}

type goldenSet struct {
	segments map[string][]byte // by partition directory and file
	batches  []goldenBatch
	records  map[string]goldenRecord // by partition directory and offset
}

type goldenBatch struct {
	Topic           string
	Partition       int32
	File            string
	Position, Size  int
	Magic           int8
	BaseOffset      int64
	LastOffset      int64
	Count           *int32
	CRC             *uint32
	Codec           string
	TimestampType   string
	MaxTimestamp    int64
	LeaderEpoch     int32
	ProducerID      int64
	ProducerEpoch   int16
	BaseSequence    int32
	LastSequence    int32
	Transactional   bool
	Control         bool
	DeleteHorizonMs *int64
}

func (g goldenBatch) segment() string { return fmt.Sprintf("%s-%d/%s", g.Topic, g.Partition, g.File) }

type goldenRecord struct {
	Topic            string
	Partition        int32
	Offset           int64
	Timestamp        int64
	Key, Value       any
	Headers          [][2]*string
	Sequence         int32
	Control          *string
	CoordinatorEpoch int32
}

func loadGolden(t testing.TB, name string) goldenSet {
	t.Helper()
	set := goldenSet{segments: map[string][]byte{}, records: map[string]goldenRecord{}}
	for file, data := range recording.Read(t, os.DirFS("testdata/golden"), name+".tar.gz") {
		switch file {
		case "batches.jsonl":
			set.batches = decodeLines[goldenBatch](t, data)
		case "records.jsonl":
			for _, rec := range decodeLines[goldenRecord](t, data) {
				set.records[fmt.Sprintf("%s-%d@%d", rec.Topic, rec.Partition, rec.Offset)] = rec
			}
		default:
			set.segments[file] = data
		}
	}
	return set
}

func decodeLines[T any](t testing.TB, data []byte) []T {
	t.Helper()
	var out []T
	for d := json.NewDecoder(bytes.NewReader(data)); d.More(); {
		var v T
		if err := d.Decode(&v); err != nil {
			t.Fatal(err)
		}
		out = append(out, v)
	}
	return out
}

// batchesOf returns the batches that the set says are in a segment.
func (s goldenSet) batchesOf(segment string) []goldenBatch {
	var out []goldenBatch
	for _, b := range s.batches {
		if b.segment() == segment {
			out = append(out, b)
		}
	}
	return out
}

func eachGoldenBatch(t *testing.T, f func(t *testing.T, set goldenSet, want goldenBatch, got Batch)) {
	t.Helper()
	for _, name := range goldenSets {
		t.Run(name, func(t *testing.T) {
			set := loadGolden(t, name)
			if len(set.segments) == 0 || len(set.batches) == 0 || len(set.records) == 0 {
				t.Fatal("the set is empty")
			}
			for segment, data := range set.segments {
				want := set.batchesOf(segment)
				position := 0
				for b, err := range Batches(data) {
					if err != nil {
						t.Fatalf("%s at %d: %v", segment, position, err)
					}
					if len(want) == 0 {
						t.Fatalf("%s: a batch too many at %d", segment, position)
					}
					if want[0].Position != position || want[0].Size != b.SizeBytes() {
						t.Fatalf("%s: batch at %d of %d bytes, want %+v", segment, position, b.SizeBytes(), want[0])
					}
					f(t, set, want[0], b)
					want, position = want[1:], position+b.SizeBytes()
				}
				if len(want) != 0 {
					t.Errorf("%s: %d batches are missing", segment, len(want))
				}
			}
		})
	}
}

func TestGoldenBatchHeaders(t *testing.T) {
	eachGoldenBatch(t, func(t *testing.T, _ goldenSet, want goldenBatch, b Batch) {
		got := goldenBatch{
			Topic: want.Topic, Partition: want.Partition, File: want.File, Position: want.Position, Size: b.SizeBytes(),
			Magic: b.Magic(), LastOffset: b.LastOffset(), Codec: b.Codec().String(), TimestampType: b.TimestampType().String(),
			MaxTimestamp: b.MaxTimestamp(), LeaderEpoch: b.LeaderEpoch(), ProducerID: b.ProducerID(),
			ProducerEpoch: b.ProducerEpoch(), BaseSequence: b.BaseSequence(), LastSequence: b.LastSequence(),
			Transactional: b.IsTransactional(), Control: b.IsControl(),
		}
		var err error
		if got.BaseOffset, err = b.FirstOffset(Limits{}); err != nil {
			t.Fatal(err)
		}
		if b.Magic() == 2 {
			count, crc := b.Count(), b.CRC()
			got.Count, got.CRC = &count, &crc
		}
		if b.HasDeleteHorizon() {
			horizon := b.DeleteHorizonMillis()
			got.DeleteHorizonMs = &horizon
		}
		gotJSON, _ := json.Marshal(got)
		wantJSON, _ := json.Marshal(want)
		if !bytes.Equal(gotJSON, wantJSON) {
			t.Errorf("got  %s\nwant %s", gotJSON, wantJSON)
		}
		if !b.CRCValid() {
			t.Errorf("CRC of %s is wrong", gotJSON)
		}
	})
}

func TestGoldenRecords(t *testing.T) {
	for _, name := range goldenSets {
		t.Run(name, func(t *testing.T) {
			set := loadGolden(t, name)
			seen := 0
			for segment, data := range set.segments {
				for b, err := range Batches(data) {
					if err != nil {
						t.Fatal(err)
					}
					for rec, err := range b.Records(Limits{}) {
						if err != nil {
							t.Fatalf("%s at %d: %v", segment, b.BaseOffset(), err)
						}
						id := fmt.Sprintf("%s@%d", path.Dir(segment), rec.Offset)
						want, ok := set.records[id]
						if !ok {
							t.Fatalf("%s is not expected", id)
						}
						compareRecord(t, id, b, rec, want)
						seen++
					}
				}
			}
			if seen != len(set.records) {
				t.Errorf("%d records, want %d", seen, len(set.records))
			}
		})
	}
}

func compareRecord(t *testing.T, id string, b Batch, got Record, want goldenRecord) {
	t.Helper()
	if got.Timestamp != want.Timestamp || got.Sequence != want.Sequence && want.Control == nil {
		t.Errorf("%s: timestamp %d sequence %d, want %d and %d", id, got.Timestamp, got.Sequence, want.Timestamp, want.Sequence)
	}
	if !sameBytes(got.Key, want.Key) || !sameBytes(got.Value, want.Value) {
		t.Errorf("%s: key %q value of %d bytes, want %v and %v", id, got.Key, len(got.Value), want.Key, want.Value)
	}
	same := slices.EqualFunc(got.Headers, want.Headers, func(h Header, w [2]*string) bool {
		if w[1] == nil {
			return h.Key == *w[0] && h.Value == nil
		}
		return h.Key == *w[0] && sameBytes(h.Value, *w[1])
	})
	if !same {
		t.Errorf("%s: headers %q, want %v", id, got.Headers, want.Headers)
	}
	if want.Control != nil {
		typ, marker, ok, err := ParseEndTxnBatch(b, Limits{})
		if err != nil || !ok || typ.String() != *want.Control || marker.CoordinatorEpoch != want.CoordinatorEpoch {
			t.Errorf("%s: marker %s %+v, %v, want %s of epoch %d", id, typ, marker, err, *want.Control, want.CoordinatorEpoch)
		}
	}
}

// sameBytes compares with base64, null, or the length and SHA-256 of a large value.
func sameBytes(got []byte, want any) bool {
	switch want := want.(type) {
	case nil:
		return got == nil
	case string:
		return got != nil && base64.StdEncoding.EncodeToString(got) == want
	case map[string]any:
		sum := sha256.Sum256(got)
		return float64(len(got)) == want["len"] && hex.EncodeToString(sum[:]) == want["sha256"]
	}
	return false
}

// TestGoldenBatchesAreBuiltByteForByte builds every v2 batch again, without compression: the bytes of uncompressed
// batches must be the same, of others the payload.
func TestGoldenBatchesAreBuiltByteForByte(t *testing.T) {
	eachGoldenBatch(t, func(t *testing.T, _ goldenSet, want goldenBatch, b Batch) {
		if b.Magic() != 2 {
			return
		}
		if b.Count() == 0 {
			if again := AppendEmptyBatch([]byte("x"), b)[1:]; !bytes.Equal(again, b) {
				t.Errorf("empty batch of %s at %d: got %x, want %x", want.segment(), want.Position, again, []byte(b))
			}
			return
		}
		payload, err := Decompress(nil, b.Codec(), b.Payload(), Limits{})
		if err != nil {
			t.Fatal(err)
		}
		built := buildAgain(t, b, payload)
		if b.Codec() == CodecNone && !bytes.Equal(built, b) {
			t.Errorf("%s at %d:\ngot  %x\nwant %x", want.segment(), want.Position, []byte(built), []byte(b))
		}
		if !bytes.Equal(built.Payload(), payload) {
			t.Errorf("%s at %d: the payload differs", want.segment(), want.Position)
		}
	})
}

func buildAgain(t *testing.T, b Batch, payload []byte) Batch {
	t.Helper()
	builder := NewBuilder(BuilderOptions{
		BaseOffset: b.BaseOffset(), LeaderEpoch: b.LeaderEpoch(),
		TimestampType: b.TimestampType(), LogAppendTimeMillis: b.MaxTimestamp(),
		HasProducer: true, ProducerID: b.ProducerID(), ProducerEpoch: b.ProducerEpoch(), BaseSequence: b.BaseSequence(),
		Transactional: b.IsTransactional(), Control: b.IsControl(),
		HasDeleteHorizon: b.HasDeleteHorizon(), DeleteHorizonMillis: b.DeleteHorizonMillis(),
	})
	c := newCursor(payload, b.Count(), Limits{})
	var raw rawRecord
	for c.more() {
		if err := c.next(&raw); err != nil {
			t.Fatal(err)
		}
		headers, err := parseHeaders(raw.headers, raw.headerCount)
		if err != nil {
			t.Fatal(err)
		}
		builder.AddAt(b.BaseOffset()+int64(raw.offsetDelta), b.BaseTimestamp()+raw.timestampDelta, raw.key, raw.value, headers)
	}
	builder.SetLastOffset(b.LastOffset())
	return builder.Bytes()
}

// TestEmptiedBatchIsWhatTheCleanerLeaves empties a batch of the log before compaction as Kafka's cleaner did.
func TestEmptiedBatchIsWhatTheCleanerLeaves(t *testing.T) {
	before := map[int64]Batch{}
	for segment, data := range loadGolden(t, "compacted-before").segments {
		for b := range Batches(data) {
			if strings.HasPrefix(segment, "compact-idem-0/") {
				before[b.BaseOffset()] = b
			}
		}
	}
	empty := 0
	for segment, data := range loadGolden(t, "compacted-first").segments {
		for b := range Batches(data) {
			if !strings.HasPrefix(segment, "compact-idem-0/") || b.Count() != 0 {
				continue
			}
			empty++
			if got := AppendEmptyBatch(nil, before[b.BaseOffset()]); !bytes.Equal(got, b) {
				t.Errorf("got  %x\nwant %x", got, []byte(b))
			}
		}
	}
	if empty == 0 {
		t.Fatal("there is no empty batch")
	}
}
