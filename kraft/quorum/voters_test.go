package quorum

import (
	"slices"
	"testing"

	"gregor/kraft/metadata"
	"gregor/protocol/record"
)

func set(t testing.TB, ids ...int32) VoterSet {
	t.Helper()
	var voters []Voter
	for _, id := range ids {
		voters = append(voters, testVoter(id, 0))
	}
	s, err := NewVoterSet(voters)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestVoterSetIsOrderedAndHasOneVoterPerID(t *testing.T) {
	s := set(t, 3, 1, 2)
	if !slices.Equal(s.IDs(), []int32{1, 2, 3}) {
		t.Fatalf("ids %v", s.IDs())
	}
	if _, err := NewVoterSet([]Voter{testVoter(1, 0), testVoter(1, 1)}); err == nil {
		t.Error("two directories under one id were accepted")
	}
	if _, err := NewVoterSet([]Voter{{Key: ReplicaKey{ID: -1}}}); err == nil {
		t.Error("a negative id was accepted")
	}
	bigger := s.With(testVoter(9, 0))
	if !slices.Equal(bigger.IDs(), []int32{1, 2, 3, 9}) || s.Len() != 3 {
		t.Errorf("with 9: %v, and %v before", bigger.IDs(), s.IDs())
	}
	if smaller := s.Without(2); !slices.Equal(smaller.IDs(), []int32{1, 3}) || s.Len() != 3 {
		t.Errorf("without 2: %v, and %v before", smaller.IDs(), s.IDs())
	}
	replaced := s.With(testVoter(2, 5))
	if replaced.Len() != 3 || replaced.Contains(testVoter(2, 0).Key) || !replaced.Contains(testVoter(2, 5).Key) {
		t.Errorf("another directory of voter 2: %v", replaced)
	}
}

func TestDirectoryCountsOnlyWhenBothAreKnown(t *testing.T) {
	known, unknown := testVoter(1, 0).Key, ReplicaKey{ID: 1}
	other := testVoter(1, 1).Key
	s := set(t, 1)
	static, err := NewVoterSet([]Voter{{Key: unknown}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		set  VoterSet
		key  ReplicaKey
		want bool
	}{
		{"same", s, known, true},
		{"other directory", s, other, false},
		{"unknown to the asker", s, unknown, true},
		{"unknown to the set", static, other, true},
		{"other id", s, testVoter(2, 0).Key, false},
	} {
		if got := tc.set.Contains(tc.key); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}

func TestVotersRecordKeepsRaftBytesInATagThatKafkaSkips(t *testing.T) {
	voters := set(t, 1, 2)
	b, err := buildControl(record.BuilderOptions{BaseOffset: 7, LeaderEpoch: 3}, 1000, votersRecord(voters, []byte{1, 2, 3}))
	if err != nil {
		t.Fatal(err)
	}
	c, err := readControl(b)
	if err != nil {
		t.Fatal(err)
	}
	if c.voters == nil || !c.voters.Equal(voters) || string(c.raftBytes) != "\x01\x02\x03" {
		t.Fatalf("read back %v with %x", c.voters, c.raftBytes)
	}
	for rec := range b.Records(recordLimits) {
		plain := metadata.NewVotersRecord()
		if err := plain.Decode(rec.Value, 0); err != nil || len(plain.Voters) != 2 {
			t.Fatalf("as Kafka reads it: %v, %v", plain, err)
		}
	}
	without, err := buildControl(record.BuilderOptions{}, 1000, votersRecord(voters, nil))
	if err != nil {
		t.Fatal(err)
	}
	if c, err := readControl(without); err != nil || c.raftBytes != nil {
		t.Fatalf("without raft bytes: %x, %v", c.raftBytes, err)
	}
}

func TestConfigHistoryAnswersForEveryOffset(t *testing.T) {
	a, b, c := config{0, set(t, 1)}, config{1, set(t, 1, 2)}, config{1, set(t, 1, 2, 3)}
	h := newConfigHistory(a)
	h.add(10, b)
	h.add(20, c)
	size := func(end int64) int { return h.at(end).config.voters.Len() }
	for end, want := range map[int64]int{0: 1, 10: 1, 11: 2, 20: 2, 21: 3, 1000: 3} {
		if got := size(end); got != want {
			t.Errorf("before offset %d: %d voters, want %d", end, got, want)
		}
	}
	h.truncate(20)
	if got := size(1000); got != 2 {
		t.Errorf("after truncation to 20: %d voters", got)
	}
	h.add(20, c)
	h.compact(15)
	if len(h.points) != 2 || size(15) != 2 || size(30) != 3 {
		t.Errorf("after compaction to 15: %d points, %d and %d voters", len(h.points), size(15), size(30))
	}
	h.truncate(0)
	if h.last().config.voters.Len() != 2 {
		t.Errorf("the config before the log was forgotten: %v", h.last())
	}
}
