package api

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/protocol/record"
	"gregor/storage/vfs"
)

// sharer is a producer with a connection of its own, and what it must be answered.
type sharer struct {
	client     *hotClient
	id         int64
	partition  int32
	sent       int
	next       int32 // sequence
	recent     []sharedAppend
	idempotent bool

	frame []byte
	value string // of the record in frame
	want  error
	retry *sharedAppend // what frame repeats
}

// sharedAppend is an append that was answered.
type sharedAppend struct {
	sequence int32
	value    string
	offset   int64
}

func (s *sharer) batch(sequence int32, epoch int16, value string) []byte {
	o := record.BuilderOptions{}
	if s.idempotent {
		o.HasProducer, o.ProducerID, o.ProducerEpoch, o.BaseSequence = true, s.id, epoch, sequence
	}
	b := record.NewBuilder(o)
	b.Add(time.Now().UnixMilli(), nil, []byte(value), nil)
	return slices.Clone(b.Bytes())
}

// prepare draws the next request.
func (s *sharer) prepare(rnd *rand.Rand) {
	s.want, s.retry = nil, nil
	s.sent++
	s.value = fmt.Sprintf("%d/%d", s.id, s.sent)
	sequence, epoch := s.next, int16(3)
	if s.idempotent && s.sent > 1 {
		switch rnd.IntN(10) {
		case 0:
			s.retry = &s.recent[rnd.IntN(len(s.recent))]
			sequence, s.value = s.retry.sequence, s.retry.value
		case 1:
			sequence, s.want = s.next+7, kerr.OutOfOrderSequenceNumber
		case 2:
			epoch, s.want = 2, kerr.InvalidProducerEpoch
		}
	}
	acks := []int16{1, -1}[rnd.IntN(2)]
	s.frame = hotFrame(hotProduce(s.partition, acks, s.batch(sequence, epoch, s.value)))
}

// check looks at the answer.
func (s *sharer) check(t *testing.T) {
	t.Helper()
	resp := kmsg.NewPtrProduceResponse()
	resp.Version = 12
	if err := resp.ReadFrom(s.client.receive()[1:]); err != nil {
		t.Fatal(err)
	}
	got := resp.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(got.ErrorCode); !errors.Is(err, s.want) {
		t.Fatalf("%s is answered %v, want %v", s.value, err, s.want)
	}
	switch {
	case s.want != nil:
	case s.retry != nil:
		if got.BaseOffset != s.retry.offset {
			t.Fatalf("the retry of %+v is answered with offset %d", s.retry, got.BaseOffset)
		}
	default:
		s.recent = append(s.recent, sharedAppend{sequence: s.next, value: s.value, offset: got.BaseOffset})
		s.recent = s.recent[max(0, len(s.recent)-5):]
		s.next++
	}
}

func TestAppendsThatShareAWriteAreAnsweredLikeThoseThatDoNot(t *testing.T) {
	const partitions, producers, rounds = 2, 48, 60
	var writes atomic.Int64
	fs := vfs.NewErr(vfs.NewMem(), vfs.InjectorFunc(func(op vfs.Op) error {
		if op.Kind == vfs.OpWrite && strings.HasSuffix(op.Name, ".log") {
			writes.Add(1)
		}
		return nil
	}))
	n := newHotNode(t, fs, "/d", partitions)
	rnd := rand.New(rand.NewPCG(rand.Uint64(), 1))
	all := make([]*sharer, producers)
	for i := range all {
		all[i] = &sharer{client: n.dial(t), id: int64(i), partition: int32(i % partitions), idempotent: i%5 > 0}
	}
	stored := make([]map[int64]string, partitions)
	for p := range stored {
		stored[p] = map[int64]string{}
	}
	for range rounds {
		for _, s := range all {
			s.prepare(rnd)
		}
		for _, s := range all {
			if _, err := s.client.Write(s.frame); err != nil {
				t.Fatal(err)
			}
		}
		for _, s := range all {
			s.check(t)
			if s.want == nil && s.retry == nil {
				last := s.recent[len(s.recent)-1]
				if other, ok := stored[s.partition][last.offset]; ok {
					t.Fatalf("%q and %q both got offset %d", other, last.value, last.offset)
				}
				stored[s.partition][last.offset] = last.value
			}
		}
	}
	appends := 0
	for p, want := range stored {
		appends += len(want)
		if got := n.values(t, int32(p)); len(got) != len(want) {
			t.Errorf("partition %d has %d records, want %d", p, len(got), len(want))
		} else {
			for offset, value := range got {
				if value != want[int64(offset)] {
					t.Errorf("partition %d has %q at offset %d, want %q", p, value, offset, want[int64(offset)])
				}
			}
		}
	}
	if w := writes.Load(); w >= int64(appends) {
		t.Errorf("%d appends took %d writes: none was shared", appends, w)
	}
}

// values are those of all records of a partition, by offset, which begin at 0 without a gap.
func (n *hotNode) values(t *testing.T, partition int32) (values []string) {
	t.Helper()
	client := n.dial(t)
	for {
		resp := client.fetched(at(hotFetch(0, -1, 0), partition, int64(len(values))))
		raw := resp.Topics[0].Partitions[0].RecordBatches
		if len(raw) == 0 {
			return values
		}
		for b, err := range record.Batches(raw) {
			if err != nil {
				t.Fatal(err)
			}
			for r, err := range b.Records(record.Limits{}) {
				if err != nil {
					t.Fatal(err)
				}
				if r.Offset < int64(len(values)) {
					continue // of the batch that the fetch began in
				}
				if r.Offset != int64(len(values)) {
					t.Fatalf("partition %d: offset %d after %d records", partition, r.Offset, len(values))
				}
				values = append(values, string(r.Value))
			}
		}
	}
}
