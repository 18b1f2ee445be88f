package offsets

import (
	"errors"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"gregor/groupcoord/schema"
	"gregor/internal/timeline"
	"gregor/protocol"
)

// anyGroup allows everything.
type anyGroup struct{ judge error }

func (g anyGroup) ValidateCommit(Commit) (func(string, protocol.UUID, int32) error, error) {
	return func(string, protocol.UUID, int32) error { return g.judge }, nil
}
func (anyGroup) ValidateFetch(*string, int32, bool) error { return nil }
func (anyGroup) ValidateOffsetDelete() error              { return nil }
func (anyGroup) Subscribed(string) bool                   { return false }
func (anyGroup) ExpiryBase() (func(*Offset) int64, bool) {
	return func(o *Offset) int64 { return o.CommitMillis }, true
}

func newTestStore() *Store {
	return NewStore(timeline.NewRegistry(0), Config{MetadataMaxBytes: 4, RetentionMillis: 1000})
}

// twin is the dumb version of a store: the log itself, folded anew each time.
type twin []entry

type entry struct {
	producer int64
	end      int8 // 1 commit, -1 abort, 0 an offset
	key      schema.OffsetCommitKey
	offset   int64 // -1 for a tombstone
}

// state folds the log as its rules say: plain records count at their place,
// those of a transaction at theirs if its end committed it and nothing later is
// there when it ends.
func (w twin) state() (committed map[schema.OffsetCommitKey]int64, pending map[schema.OffsetCommitKey]bool) {
	type at struct {
		offset int64
		record int
	}
	done := map[schema.OffsetCommitKey]at{}
	open := map[int64]map[schema.OffsetCommitKey]at{}
	for i, e := range w {
		switch {
		case e.end != 0:
			for key, o := range open[e.producer] {
				if old, ok := done[key]; e.end > 0 && (!ok || o.record > old.record) {
					done[key] = o
				}
			}
			delete(open, e.producer)
		case e.offset < 0:
			delete(done, e.key)
			for _, keys := range open {
				delete(keys, e.key)
			}
		case e.producer == noProducer:
			done[e.key] = at{e.offset, i}
		default:
			if open[e.producer] == nil {
				open[e.producer] = map[schema.OffsetCommitKey]at{}
			}
			open[e.producer][e.key] = at{e.offset, i}
		}
	}
	committed, pending = map[schema.OffsetCommitKey]int64{}, map[schema.OffsetCommitKey]bool{}
	for key, o := range done {
		committed[key] = o.offset
	}
	for _, keys := range open {
		for key := range keys {
			pending[key] = true
		}
	}
	return committed, pending
}

func TestStoreAgreesWithAFoldOverTheLog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newTestStore()
		var w twin
		keys := []schema.OffsetCommitKey{{Group: "g", Topic: "t", Partition: 0}, {Group: "g", Topic: "t", Partition: 1}, {Group: "g", Topic: "u"}, {Group: "h", Topic: "t"}}
		for i := range rapid.IntRange(0, 40).Draw(t, "records") {
			e := entry{producer: rapid.Int64Range(-1, 2).Draw(t, "producer"), key: rapid.SampledFrom(keys).Draw(t, "key"), offset: int64(i)}
			switch rapid.IntRange(0, 5).Draw(t, "kind") {
			case 0:
				e.offset, e.producer = -1, noProducer
			case 1:
				if e.producer >= 0 {
					e.end = rapid.SampledFrom([]int8{-1, 1}).Draw(t, "end")
				}
			}
			w = append(w, e)
			switch {
			case e.end != 0:
				s.ReplayEndTxn(e.producer, e.end > 0)
			case e.offset < 0:
				s.Replay(int64(i), e.producer, &e.key, nil)
			default:
				s.Replay(int64(i), e.producer, &e.key, &schema.OffsetCommitValue{Offset: e.offset})
			}
		}
		committed, pending := w.state()
		for _, key := range keys {
			want, ok := committed[key]
			got := s.Get(key.Group, key.Topic, key.Partition)
			if ok != (got != nil) || (ok && got.Offset != want) {
				t.Fatalf("%v: got %+v, want %d %v\nlog %+v", key, got, want, ok, w)
			}
			if got := s.hasPending(key.Group, key.Topic, key.Partition); got != pending[key] {
				t.Fatalf("%v: pending %v\nlog %+v", key, got, w)
			}
		}
		for _, group := range []string{"g", "h"} {
			has := false
			for _, key := range keys {
				_, ok := committed[key]
				has = has || (key.Group == group && (ok || pending[key]))
			}
			if s.HasOffsets(group) != has {
				t.Fatalf("group %s has offsets: %v", group, !has)
			}
			// Its tombstones leave nothing.
			for _, rec := range s.DeleteAll(group) {
				s.Replay(1000, noProducer, rec.Key.(*schema.OffsetCommitKey), nil)
			}
			if s.HasOffsets(group) {
				t.Fatalf("group %s still has offsets", group)
			}
		}
	})
}

func TestMetadataIsMeasuredAsInJava(t *testing.T) {
	for text, n := range map[string]int{"": 0, "abcd": 4, "äöüß": 4, "𝄞𝄞": 4, "𝄞𝄞𝄞": 6, "\xff": 1} {
		if got := utf16Len(text); got != n {
			t.Errorf("%q has %d units, want %d", text, got, n)
		}
		if got := newTestStore().metadataTooLarge(&text); got != (n > 4) {
			t.Errorf("%q too large: %v", text, got)
		}
	}
}

func TestJudgementOfOnePartitionFailsTheCommit(t *testing.T) {
	s := newTestStore()
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "t", Partitions: make([]kmsg.OffsetCommitRequestTopicPartition, 2)}}
	if _, records, err := s.Commit(anyGroup{kerr.StaleMemberEpoch}, req); !errors.Is(err, kerr.StaleMemberEpoch) || records != nil {
		t.Errorf("records %v, error %v", records, err)
	}
	txn := kmsg.NewPtrTxnOffsetCommitRequest()
	txn.Topics = []kmsg.TxnOffsetCommitRequestTopic{{Topic: "t", Partitions: make([]kmsg.TxnOffsetCommitRequestTopicPartition, 1)}}
	for version, want := range map[int16]error{3: kerr.IllegalGeneration, 5: kerr.IllegalGeneration, 6: kerr.StaleMemberEpoch} {
		txn.Version = version
		if _, _, err := s.CommitTxn(anyGroup{kerr.StaleMemberEpoch}, txn); !errors.Is(err, want) {
			t.Errorf("version %d: %v", version, err)
		}
	}
}

func TestOffsetOfAnEarlierTopicOfTheNameIsNotFound(t *testing.T) {
	s := newTestStore()
	put := func(topic string, id protocol.UUID) {
		s.Replay(0, noProducer, &schema.OffsetCommitKey{Group: "g", Topic: topic}, &schema.OffsetCommitValue{Offset: 5, TopicID: id})
	}
	put("old", protocol.UUID{1})
	put("unknown", protocol.ZeroUUID)
	for _, c := range []struct {
		topic string
		asked protocol.UUID
		want  int64
	}{{"old", protocol.UUID{1}, 5}, {"old", protocol.UUID{2}, -1}, {"old", protocol.ZeroUUID, 5}, {"unknown", protocol.UUID{2}, 5}} {
		resp, err := s.Fetch(Newest, anyGroup{}, &kmsg.OffsetFetchRequestGroup{
			Group: "g", Topics: []kmsg.OffsetFetchRequestGroupTopic{{Topic: c.topic, TopicID: c.asked, Partitions: []int32{0}}},
		})
		if err != nil || resp.Topics[0].Partitions[0].Offset != c.want || resp.Topics[0].TopicID != c.asked {
			t.Errorf("%+v: %+v, %v", c, resp, err)
		}
	}
}

func TestReadsOfTheCommittedViewDoNotSeeNewOffsets(t *testing.T) {
	r := timeline.NewRegistry(0)
	s := NewStore(r, Config{})
	key := &schema.OffsetCommitKey{Group: "g", Topic: "t"}
	s.Replay(0, noProducer, key, &schema.OffsetCommitValue{Offset: 1})
	r.Snapshot(1)
	r.Commit(1)
	s.Replay(1, noProducer, key, &schema.OffsetCommitValue{Offset: 2})
	r.Snapshot(2)
	read := func(view View) string {
		all, _ := s.Fetch(view, anyGroup{}, &kmsg.OffsetFetchRequestGroup{Group: "g"})
		one, _ := s.Fetch(view, anyGroup{}, &kmsg.OffsetFetchRequestGroup{Group: "g", Topics: []kmsg.OffsetFetchRequestGroupTopic{{Topic: "t", Partitions: []int32{0, 1}}}})
		return fmt.Sprint(all.Topics[0].Partitions[0].Offset, one.Topics[0].Partitions[0].Offset, one.Topics[0].Partitions[1].Offset)
	}
	if got := read(Committed); got != "1 1 -1" {
		t.Errorf("committed: %s", got)
	}
	if got := read(Newest); got != "2 2 -1" {
		t.Errorf("newest: %s", got)
	}
	r.RevertTo(1)
	if got := read(Newest); got != "1 1 -1" {
		t.Errorf("after the rollback: %s", got)
	}
}
