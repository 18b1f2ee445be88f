package quorum

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"gregor/kraft/metadata"
	"gregor/protocol/record"
)

// batchAt makes a batch of n records.
func batchAt(t testing.TB, offset int64, epoch int32, n int) record.Batch {
	t.Helper()
	b := record.NewBuilder(record.BuilderOptions{BaseOffset: offset, LeaderEpoch: epoch})
	for range n {
		value, err := metadata.Append(nil, &metadata.NoOpRecord{}, 0)
		if err != nil {
			t.Fatal(err)
		}
		b.Add(1, nil, value, nil)
	}
	return slices.Clone(b.Bytes())
}

func noLeaderChange(e *raftpb.Entry) (record.Batch, error) {
	return nil, errors.New("no leader change was expected")
}

func TestBatchOfManyRecordsIsOneEntryPerOffset(t *testing.T) {
	b := batchAt(t, 10, 4, 3)
	entries, err := entriesOf(nil, b, 0, 1000)
	if err != nil || len(entries) != 3 {
		t.Fatalf("%d entries, %v", len(entries), err)
	}
	for i, e := range entries {
		if e.GetIndex() != uint64(11+i) || e.GetTerm() != 4 || (len(e.GetData()) > 0) != (i == 2) {
			t.Errorf("entry %d: index %d, term %d, %d bytes", i, e.GetIndex(), e.GetTerm(), len(e.GetData()))
		}
	}
	// Whatever part of them is sent, the batch travels whole if its last entry is among them.
	for from := range entries {
		out, err := appendBatches(nil, entries[from:], noLeaderChange)
		if err != nil || !bytes.Equal(out, b) {
			t.Errorf("from entry %d: %d bytes, %v", from, len(out), err)
		}
	}
	if part, err := entriesOf(nil, b, 12, 13); err != nil || len(part) != 1 || part[0].GetIndex() != 12 {
		t.Errorf("the middle one: %v, %v", part, err)
	}
}

func TestProposalGetsOffsetAndEpochOutsideItsCRC(t *testing.T) {
	plain := batchAt(t, 0, 0, 1)
	out, err := appendBatches(nil, []*raftpb.Entry{{Index: new(uint64(42)), Term: new(uint64(7)), Data: plain}}, noLeaderChange)
	if err != nil {
		t.Fatal(err)
	}
	b := record.Batch(out)
	if b.BaseOffset() != 41 || b.LeaderEpoch() != 7 || !b.CRCValid() {
		t.Fatalf("offset %d, epoch %d, CRC valid %v", b.BaseOffset(), b.LeaderEpoch(), b.CRCValid())
	}
	if plain.BaseOffset() != 0 || plain.LeaderEpoch() != 0 {
		t.Fatal("the entry's own bytes were changed; raft shares them")
	}
}

func TestEmptyEntryIsTheLeaderChangeBatch(t *testing.T) {
	change, err := leaderChangeBatch(3, []int32{1, 2, 3}, []int32{2, 3}, 1000)
	if err != nil {
		t.Fatal(err)
	}
	entries := []*raftpb.Entry{
		{Index: new(uint64(5)), Term: new(uint64(2))}, {Index: new(uint64(6)), Term: new(uint64(2)), Data: batchAt(t, 0, 0, 1)},
	}
	out, err := appendBatches(nil, entries, func(e *raftpb.Entry) (record.Batch, error) {
		if e.GetIndex() != 5 {
			t.Errorf("asked for index %d", e.GetIndex())
		}
		return change, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	first, rest, err := record.Next(out)
	if err != nil || first.BaseOffset() != 4 || first.LeaderEpoch() != 2 || record.Batch(rest).BaseOffset() != 5 {
		t.Fatalf("first batch %d, %v", first.BaseOffset(), err)
	}
	c, err := readControl(first)
	if err != nil || c.leaderChange == nil || c.leaderChange.LeaderID != 3 || len(c.leaderChange.GrantingVoters) != 2 {
		t.Fatalf("control %+v, %v", c.leaderChange, err)
	}
}

func TestVotersBatchIsAConfChangeEntry(t *testing.T) {
	entry, err := votersEntry(set(t, 1, 2), []*raftpb.ConfChangeSingle{{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: new(uint64(3))}}, 1000)
	if err != nil {
		t.Fatal(err)
	}
	entry.Index, entry.Term = new(uint64(9)), new(uint64(2))
	out, err := appendBatches(nil, []*raftpb.Entry{entry}, noLeaderChange)
	if err != nil {
		t.Fatal(err)
	}
	back, err := entriesOf(nil, out, 0, 100)
	if err != nil || len(back) != 1 || back[0].GetType() != raftpb.EntryConfChangeV2 {
		t.Fatalf("read back as %v, %v", back, err)
	}
	again, err := appendBatches(nil, back, noLeaderChange)
	if err != nil || !bytes.Equal(again, out) {
		t.Fatalf("the copy differs: %v", err)
	}
}

func TestForeignEntriesAreErrors(t *testing.T) {
	for name, e := range map[string]*raftpb.Entry{
		"old conf change": {Type: raftpb.EntryConfChange.Enum(), Data: []byte{1}},
		"garbage":         {Type: raftpb.EntryConfChangeV2.Enum(), Data: []byte{0xff, 0xff}},
	} {
		if _, err := carriedBatch(e); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestEntriesOfAMessageMustFitTheirPlace(t *testing.T) {
	ten := batchAt(t, 10, 4, 3) // indexes 11 to 13
	thirteen := batchAt(t, 13, 4, 1)
	later := batchAt(t, 13, 5, 1)
	bad := slices.Clone(ten)
	bad[len(bad)-1] ^= 1
	gap := batchAt(t, 14, 4, 1)
	for _, tc := range []struct {
		name           string
		bytes          []byte
		prev, prevTerm uint64
		term           uint64
		entries        int // -1: refused
	}{
		{"in order", slices.Concat(ten, thirteen), 10, 4, 4, 4},
		{"new term", slices.Concat(ten, later), 10, 3, 5, 4},
		{"none", nil, 10, 3, 5, 0},
		{"begins inside the batch", ten, 11, 4, 4, 2},
		{"ends before", ten, 13, 4, 4, -1},
		{"gap before", ten, 9, 4, 4, -1},
		{"gap between", slices.Concat(ten, gap), 10, 4, 4, -1},
		{"overlap", slices.Concat(ten, ten), 10, 4, 4, -1},
		{"term above the message's", ten, 10, 3, 3, -1},
		{"term below the one before", ten, 10, 5, 6, -1},
		{"terms go back", slices.Concat(batchAt(t, 10, 5, 1), batchAt(t, 11, 4, 1)), 10, 4, 5, -1},
		{"bad CRC", bad, 10, 4, 4, -1},
		{"cut", ten[:len(ten)-1], 10, 4, 4, -1},
	} {
		entries, err := parseEntries(tc.bytes, tc.prev, tc.prevTerm, tc.term)
		if tc.entries < 0 && err == nil {
			t.Errorf("%s: accepted as %d entries", tc.name, len(entries))
		}
		if tc.entries >= 0 && (err != nil || len(entries) != tc.entries) {
			t.Errorf("%s: %d entries, %v", tc.name, len(entries), err)
		}
	}
}
