package quorum

import (
	"errors"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

func entry(n int) *raftpb.Entry { return &raftpb.Entry{Data: make([]byte, n)} }

func TestAccumulatorGivesContiguousOffsetsWithinAnEpoch(t *testing.T) {
	woken := 0
	a := newAccumulator(100, func() { woken++ })
	if _, _, err := a.add(1, []*raftpb.Entry{entry(1)}); !errors.Is(err, ErrNotLeader) {
		t.Fatalf("before any epoch: %v", err)
	}
	a.open(3, 50)
	for _, epoch := range []int32{0, 2, 4} {
		if _, _, err := a.add(epoch, []*raftpb.Entry{entry(1)}); !errors.Is(err, ErrNotLeader) {
			t.Errorf("epoch %d: %v", epoch, err)
		}
	}
	base, last, err := a.add(3, []*raftpb.Entry{entry(10), entry(10)})
	if err != nil || base != 50 || last != 51 {
		t.Fatalf("%d to %d, %v", base, last, err)
	}
	if base, last, err = a.add(3, []*raftpb.Entry{entry(10)}); err != nil || base != 52 || last != 52 || woken != 2 {
		t.Fatalf("%d to %d, %v, woken %d times", base, last, err, woken)
	}
	if p := a.take(15); p.baseOffset != 50 || len(p.entries) != 1 {
		t.Fatalf("taken in part %+v", p)
	}
	if p := a.take(0); p.baseOffset != 51 || len(p.entries) != 1 {
		t.Fatalf("taken one at least %+v", p)
	}
	p := a.take(1000)
	if p.epoch != 3 || p.baseOffset != 52 || len(p.entries) != 1 {
		t.Fatalf("taken %+v", p)
	}
	if p := a.take(1000); len(p.entries) != 0 || p.baseOffset != 53 {
		t.Fatalf("taken again %+v", p)
	}
	a.close()
	if _, _, err := a.add(3, []*raftpb.Entry{entry(1)}); !errors.Is(err, ErrNotLeader) {
		t.Fatalf("after the epoch: %v", err)
	}
}

func TestAccumulatorReleasesMemoryAtTheCommit(t *testing.T) {
	a := newAccumulator(100, func() {})
	a.open(1, 0)
	if _, _, err := a.add(1, []*raftpb.Entry{entry(150)}); err != nil {
		t.Fatalf("a single large one must pass: %v", err)
	}
	if _, _, err := a.add(1, []*raftpb.Entry{entry(1)}); !errors.Is(err, ErrTooManyUncommitted) {
		t.Fatalf("above the limit: %v", err)
	}
	a.take(1000)
	if _, _, err := a.add(1, []*raftpb.Entry{entry(1)}); !errors.Is(err, ErrTooManyUncommitted) {
		t.Fatalf("taken is not committed: %v", err)
	}
	a.committed(1)
	if _, last, err := a.add(1, []*raftpb.Entry{entry(60)}); err != nil || last != 1 {
		t.Fatalf("after the commit: %d, %v", last, err)
	}
	if _, _, err := a.add(1, []*raftpb.Entry{entry(41)}); !errors.Is(err, ErrTooManyUncommitted) {
		t.Fatalf("60 + 41 of 100: %v", err)
	}
	a.open(2, 7)
	if _, last, err := a.add(2, []*raftpb.Entry{entry(99)}); err != nil || last != 7 {
		t.Fatalf("a new epoch starts empty: %d, %v", last, err)
	}
}
