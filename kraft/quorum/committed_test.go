package quorum

import (
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// TestHowMuchIsCommittedIsToldBeforeItIsApplied: raft hands out a long log in pieces, of at most scanBytes, and an
// observer fetches it so. Who takes the first piece for the whole takes the partitions in the others for deleted ones.
func TestHowMuchIsCommittedIsToldBeforeItIsApplied(t *testing.T) {
	c := newCluster(t, 1)
	c.format(1)
	c.must(c.start(1))
	c.campaign(1)
	m := c.nodes[1].machine
	node := &Node{board: m.board}
	before := node.HighWatermark()
	if before == 0 || node.CommittedTo() != before {
		t.Fatalf("committed to %d, high watermark %d", node.CommittedTo(), before)
	}
	hs := m.states.hardState()
	first := &raftpb.Entry{Index: new(indexOf(before)), Term: new(hs.term), Data: []byte{1}}
	c.must(m.handle(&raft.Ready{
		HardState:        &raftpb.HardState{Term: new(hs.term), Vote: new(hs.vote), Commit: new(indexOf(before + 9))},
		CommittedEntries: []*raftpb.Entry{first},
	}))
	if hw := node.HighWatermark(); hw != before+1 || node.CommittedTo() != before+10 {
		t.Errorf("after one entry of ten: high watermark %d, committed to %d, before %d", hw, node.CommittedTo(), before)
	}
}
