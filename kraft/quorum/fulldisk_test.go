package quorum

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"gregor/storage/vfs"
)

var growth = vfs.MatchKind(vfs.OpWrite, vfs.OpCreate, vfs.OpRename, vfs.OpAllocate)

// quorumOnDisks is quorumOf with disks that a test can fill.
func quorumOnDisks(t *testing.T, ids ...int32) (nodes map[int32]*Node, machines map[int32]*lockedMachine, mems map[int32]*vfs.Mem, disks map[int32]*vfs.Switch) {
	t.Helper()
	board := &switchboard{nodes: map[int32]*Node{}, cut: map[int32]bool{}}
	voters := set(t, ids...)
	machines, mems, disks = map[int32]*lockedMachine{}, map[int32]*vfs.Mem{}, map[int32]*vfs.Switch{}
	for _, id := range ids {
		mems[id], disks[id] = vfs.NewMem(), &vfs.Switch{}
		dir := fmt.Sprintf("/n%d", id)
		if err := mems[id].MkdirAll(dir); err != nil {
			t.Fatal(err)
		}
		writeBootstrap(t, mems[id], dir+"/"+DirName, config{level: 1, voters: voters})
		for _, d := range []string{"/", dir, dir + "/" + DirName} {
			if err := mems[id].SyncDir(d); err != nil {
				t.Fatal(err)
			}
		}
		machines[id] = openNode(t, board, vfs.NewErr(mems[id], disks[id]), id)
	}
	return board.nodes, machines, mems, disks
}

// TestOnlyVoterCommitsNothingOnAFullDiskAndGoesOn fills the disk at each operation in turn.
func TestOnlyVoterCommitsNothingOnAFullDiskAndGoesOn(t *testing.T) {
	for nth := int64(1); ; nth++ {
		met := false
		synctest.Test(t, func(t *testing.T) {
			nodes, machines, mems, disks := quorumOnDisks(t, 1)
			startAll(t, nodes)
			n := nodes[1]
			var refused atomic.Int64
			full := vfs.FailFrom(nth, syscall.ENOSPC, growth)
			disks[1].Set(vfs.InjectorFunc(func(op vfs.Op) error {
				err := full.Inject(op)
				if err != nil {
					refused.Add(1)
				}
				return err
			}))
			var want []string
			for i := range 5 {
				name := fmt.Sprint("t", i)
				if _, _, err := n.Propose(1, topicRecords(name)); err != nil {
					t.Fatalf("operation %d: %v", nth, err)
				}
				want = append(want, name)
				time.Sleep(15 * time.Second) // maintenance too
				synctest.Wait()
				// What the state machine has been told is on the disk.
				if end := n.LogEndOffset(); n.HighWatermark() > end {
					t.Fatalf("operation %d: %d is committed, the log ends at %d", nth, n.HighWatermark(), end)
				}
			}
			if n.Err() != nil {
				t.Fatalf("operation %d: %v", nth, n.Err())
			}
			met = refused.Load() > 0
			disks[1].Set(nil)
			time.Sleep(15 * time.Second)
			synctest.Wait()
			if got := machines[1].names(); !slices.Equal(got, want) || n.Leader() != (LeaderAndEpoch{1, 1}) {
				t.Errorf("operation %d: committed %v, leader %v", nth, got, n.Leader())
			}
			board := &switchboard{nodes: map[int32]*Node{}, cut: map[int32]bool{}}
			again := openNode(t, board, mems[1].Crash(0), 1)
			startAll(t, board.nodes)
			synctest.Wait()
			if got := again.names(); !slices.Equal(got, want) {
				t.Errorf("operation %d: after a power cut %v", nth, got)
			}
			stopAll(t, board.nodes)
			stopAll(t, nodes)
		})
		if t.Failed() {
			return
		}
		if !met {
			if nth < 6 {
				t.Errorf("only %d operations", nth)
			}
			return
		}
	}
}

func TestNodeThatWaitsForSpaceCanBeStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, machines, mems, disks := quorumOnDisks(t, 1)
		startAll(t, nodes)
		n := nodes[1]
		disks[1].Set(vfs.FailFrom(1, syscall.EDQUOT, growth))
		if _, _, err := n.Propose(1, topicRecords("never")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if n.Err() != nil || len(machines[1].names()) > 0 {
			t.Fatalf("%v, committed %v", n.Err(), machines[1].names())
		}
		began := time.Now()
		if err := n.Stop(t.Context()); err == nil {
			t.Error("the stop found space for what it has to write")
		}
		if took := time.Since(began); took > 10*time.Second || n.Err() != nil {
			t.Errorf("stopped after %v, %v", took, n.Err())
		}
		board := &switchboard{nodes: map[int32]*Node{}, cut: map[int32]bool{}}
		again := openNode(t, board, mems[1], 1)
		startAll(t, board.nodes)
		synctest.Wait()
		if got := again.names(); len(got) > 0 {
			t.Errorf("committed %v", got)
		}
		stopAll(t, board.nodes)
	})
}

func TestNodeThatHasNoSpaceToStartSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, _, _, disks := quorumOnDisks(t, 1)
		disks[1].Set(vfs.FailFrom(1, syscall.ENOSPC, growth))
		if err := nodes[1].Start(); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("started with %v", err)
		}
		_ = nodes[1].Stop(t.Context())
	})
}

func TestLeaderWithoutSpaceIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, machines, _, disks := quorumOnDisks(t, 1, 2, 3)
		startAll(t, nodes)
		first := settledLeader(t, nodes)
		id := first.o.NodeID
		disks[id].Set(vfs.FailFrom(1, syscall.ENOSPC, growth))
		if _, _, err := first.Propose(first.Leader().Epoch, topicRecords("a")); err != nil {
			t.Fatal(err)
		}
		second := settledLeader(t, nodes, id)
		if _, _, err := second.Propose(second.Leader().Epoch, topicRecords("b")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		disks[id].Set(nil)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		want := machines[second.o.NodeID].names()
		if !slices.Contains(want, "b") {
			t.Fatalf("the new leader has committed %v", want)
		}
		for id, m := range machines {
			if got := m.names(); !slices.Equal(got, want) || nodes[id].Err() != nil {
				t.Errorf("node %d has %v, want %v, %v", id, got, want, nodes[id].Err())
			}
		}
		stopAll(t, nodes)
	})
}
