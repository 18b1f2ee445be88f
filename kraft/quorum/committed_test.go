package quorum

import (
	"testing"
	"testing/synctest"

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
	node := serverOf(c.nodes[1])
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

// The first image of a voter that comes back must have all that it had acted on. The leader may commit less of it at
// first: a heartbeat tells no more than what the leader knows to be in this log.
func TestLogThatAVoterBringsAlongCountsAsCommittedUntilALeaderCutsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board, nodes, _ := quorumOf(t, 1, 2, 3)
		startAll(t, nodes)
		leader := settledLeader(t, nodes)
		if _, _, err := leader.Propose(leader.Leader().Epoch, topicRecords("a", "b", "c")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		stopAll(t, nodes)
		openNode(t, board, leader.o.FS, leader.o.NodeID)
		n := board.nodes[leader.o.NodeID]
		end := n.LogEndOffset()
		if got := n.CommittedTo(); n.HighWatermark() > 0 || got != end {
			t.Errorf("high watermark %d, committed to %d; the log ends at %d", n.HighWatermark(), got, end)
		}
		if err := n.machine.storage.log.TruncateTo(end - 1); err != nil {
			t.Fatal(err)
		}
		if got := n.CommittedTo(); got != end-1 {
			t.Errorf("committed to %d of a log that was cut to %d", got, end-1)
		}
		if err := n.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
