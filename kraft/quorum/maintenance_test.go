package quorum

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"gregor/kraft/metadata"
)

// aged makes a leader with snapshots 0-0, 4-1, 5-1, 6-1 whose last records are 0, 10, 20 and 30 minutes after 1970.
func aged(t *testing.T) (*cluster, *testNode) {
	t.Helper()
	c := newCluster(t, 1)
	c.format(1)
	c.must(c.start(1))
	n := c.nodes[1]
	for i := range 3 {
		if _, _, err := c.propose(n, strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
		id, cfg, err := n.machine.storage.snapshotAt(n.events.next, n.board.load().highWatermark)
		c.must(err)
		w, err := n.machine.storage.snapshots.newSnapshotWriter(snapshotSpec{
			id: id, config: cfg, lastContainedLogMillis: int64(i+1) * 600000,
		})
		c.must(err)
		c.must(w.Close())
	}
	return c, n
}

func TestOldSnapshotsAndTheLogBeforeThemAreDeleted(t *testing.T) {
	for _, tc := range []struct {
		name    string
		options LogOptions
		minutes int64
		want    string
	}{
		{"all young", LogOptions{RetentionBytes: -1, RetentionMillis: 3600000}, 60, "log=[0,6) snapshots=[0-0 4-1 5-1 6-1]"},
		{"one old", LogOptions{RetentionBytes: -1, RetentionMillis: 3600000}, 61, "log=[4,6) snapshots=[4-1 5-1 6-1]"},
		{"three old", LogOptions{RetentionBytes: -1, RetentionMillis: 3600000}, 81, "log=[6,6) snapshots=[6-1]"},
		{"all old: the newest stays", LogOptions{RetentionBytes: -1, RetentionMillis: 3600000}, 100000, "log=[6,6) snapshots=[6-1]"},
		{"no limits", LogOptions{RetentionBytes: -1, RetentionMillis: -1}, 100000, "log=[0,6) snapshots=[0-0 4-1 5-1 6-1]"},
		{"too large", LogOptions{RetentionBytes: 100, RetentionMillis: -1}, 0, "log=[6,6) snapshots=[6-1]"},
		{"large enough", LogOptions{RetentionBytes: 1 << 20, RetentionMillis: -1}, 0, "log=[0,6) snapshots=[0-0 4-1 5-1 6-1]"},
	} {
		c, n := aged(t)
		n.opts.Log.RetentionBytes, n.opts.Log.RetentionMillis = tc.options.RetentionBytes, tc.options.RetentionMillis
		c.must(n.machine.maintain(time.UnixMilli(0).Add(time.Duration(tc.minutes) * time.Minute)))
		st := n.machine.storage.log.State()
		got := fmt.Sprintf("log=[%d,%d) snapshots=%v", st.LogStartOffset, st.LogEndOffset, n.machine.storage.snapshots.list())
		if got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
		// Whatever went, the node starts again with the same view.
		c.crash(1, 0)
		c.must(c.start(1))
		if hw := n.board.load().highWatermark; hw != 7 || n.board.load().config.voters.Len() != 1 {
			t.Errorf("%s: after a restart: %s", tc.name, c.status())
		}
	}
}

func TestSnapshotEndsAtACommittedBatchOnly(t *testing.T) {
	c := newCluster(t, 1)
	n := c.takeOver(t, 1, "testdata/kafka/metadata")
	c.must(c.start(1))
	s := n.machine.storage
	for offset, want := range map[int64]error{
		100: ErrSnapshotExists, 243: ErrSnapshotExists, 244: nil, 245: nil, 246: nil, 247: ErrSnapshotOffset,
	} {
		id, cfg, err := s.snapshotAt(offset, n.board.load().highWatermark)
		if !errors.Is(err, want) || want == nil && (err != nil || id.Offset != offset || cfg.voters.Len() != 1) {
			t.Errorf("offset %d: %v, %v", offset, id, err)
		}
	}
	// Inside one of Kafka's batches, of which 3 to 12 is one.
	for _, id := range s.snapshots.list() {
		if err := n.fs.Remove(s.snapshots.path(id)); err != nil {
			t.Fatal(err)
		}
	}
	s.snapshots.ids = nil
	for offset, want := range map[int64]error{3: nil, 4: ErrSnapshotOffset, 12: ErrSnapshotOffset, 13: nil} {
		if _, _, err := s.snapshotAt(offset, 246); !errors.Is(err, want) || want == nil && err != nil {
			t.Errorf("offset %d: %v", offset, err)
		}
	}
}

func TestRecordsThatFitNoSegmentAreRefused(t *testing.T) {
	c := newCluster(t, 1)
	c.format(1)
	c.must(c.start(1))
	n := c.nodes[1]
	node := serverOf(n)
	large := VersionedRecord{Record: &metadata.TopicRecord{Name: strings.Repeat("x", 17<<10)}}
	small := VersionedRecord{Record: &metadata.TopicRecord{Name: "small"}}
	if _, _, err := node.Propose(1, []VersionedRecord{small, large}); !errors.Is(err, ErrRecordTooLarge) {
		t.Fatalf("a record larger than a segment: %v", err)
	}
	if _, _, err := node.Propose(1, nil); err == nil {
		t.Fatal("nothing was accepted")
	}
	if _, last, err := node.Propose(1, []VersionedRecord{small}); err != nil || last != 3 {
		t.Fatalf("afterwards: %d, %v", last, err)
	}
}
