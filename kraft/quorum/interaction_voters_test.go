package quorum

import (
	"fmt"
	"time"
)

// fetchCommand: `fetch 4 from=1` copies the leader's log to an observer with KRaft's fetch.
func (in *interaction) fetchCommand() string {
	n, leader := in.node(), in.nodes[int32(in.arg("from", 0))]
	if err := in.observe(n, leader); err != nil {
		return "error: " + err.Error() + "\n"
	}
	return in.status()
}

// observe fetches until the observer has the leader's log end and high watermark.
func (c *cluster) observe(n, leader *testNode) error {
	server := &Node{machine: leader.machine, board: leader.board, acc: leader.acc, o: leader.opts}
	for range 1000 {
		if n.machine == nil {
			return nil // it crashed meanwhile
		}
		st := (&Node{machine: n.machine, board: n.board}).FetchState()
		resp, wait := server.fetchNow(FetchRequest{
			Replica: n.machine.self(), CurrentLeaderEpoch: -1, FetchOffset: st.FetchOffset,
			LastFetchedEpoch: st.LastFetchedEpoch, MaxBytes: 1 << 20, HighWatermark: st.HighWatermark,
		})
		if resp.Err != nil || wait {
			return resp.Err
		}
		if resp.Snapshot != nil {
			if err := c.download(n, server, *resp.Snapshot); err != nil {
				return err
			}
			continue
		}
		err := n.machine.follow(FetchedFromLeader{
			Leader: resp.Leader, HighWatermark: resp.HighWatermark, Records: resp.Records, Diverging: resp.Diverging,
		})
		if err != nil {
			return err
		}
		if err := c.settle(n); err != nil {
			return err
		}
	}
	return fmt.Errorf("observer %d does not catch up", n.id)
}

func (c *cluster) download(n *testNode, server *Node, id SnapshotID) error {
	d, err := n.machine.storage.snapshots.newDownload(id, func(d *SnapshotDownload) error { return n.machine.followSnapshot(d.ID()) })
	if err != nil {
		return err
	}
	for {
		piece := server.FetchSnapshot(FetchSnapshotRequest{CurrentLeaderEpoch: -1, ID: id, Position: d.Position(), MaxBytes: 100})
		if piece.Err != nil {
			d.Abort()
			return piece.Err
		}
		if _, err := d.Write(piece.Bytes); err != nil {
			return err
		}
		if d.Position() == piece.SizeBytes {
			return d.Complete()
		}
	}
}

// addVoter: `add-voter 4 leader=1` makes an observer a voter.
func (in *interaction) addVoter() string {
	leader := in.nodes[int32(in.arg("leader", 1))]
	v := testVoter(in.id(), in.incarnation)
	if in.nodes[in.id()] != nil {
		v.Key.DirectoryID = in.nodes[in.id()].opts.DirectoryID
	}
	return in.reconfigure(leader, func() (int64, error) { return leader.machine.addVoter(v) })
}

// removeVoter: `remove-voter 3 leader=1` takes a voter away.
func (in *interaction) removeVoter() string {
	leader := in.nodes[int32(in.arg("leader", 1))]
	key := testVoter(in.id(), 0).Key
	if v, ok := leader.machine.config.voters.Get(in.id()); ok {
		key = v.Key
	}
	return in.reconfigure(leader, func() (int64, error) { return leader.machine.removeVoter(key) })
}

// updateVoterCommand: `update-voter 3 leader=1 port=99` changes an endpoint.
func (in *interaction) updateVoterCommand() string {
	leader := in.nodes[int32(in.arg("leader", 1))]
	v := testVoter(in.id(), 0)
	v.Endpoints[0].Port = uint16(in.arg("port", 1))
	return in.reconfigure(leader, func() (int64, error) { return leader.machine.updateVoter(v) })
}

// upgrade: `upgrade 1 level=1` goes to another kraft.version.
func (in *interaction) upgrade() string {
	n := in.node()
	return in.reconfigure(n, func() (int64, error) { return n.machine.upgradeLevel(int16(in.arg("level", 1))) })
}

func (in *interaction) reconfigure(n *testNode, change func() (int64, error)) string {
	offset, err := change()
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	in.must(in.settle(n))
	return fmt.Sprintf("offset %d\n", offset)
}

// describeCommand: `describe 1` lists how far the leader sees the others.
func (in *interaction) describeCommand() string {
	n := in.node()
	d, err := (&Node{machine: n.machine, board: n.board, o: n.opts}).Describe()
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	out := fmt.Sprintf("leader %d epoch %d hw %d\n", d.Leader.LeaderID, d.Leader.Epoch, d.HighWatermark)
	now := time.Now().UnixMilli()
	line := func(kind string, r ReplicaState) {
		out += fmt.Sprintf("%s %d end=%d fetched=%v caught-up=%v\n", kind, r.Key.ID, r.LogEndOffset,
			now-r.LastFetchTimestampMillis < 60000, now-r.LastCaughtUpTimestampMillis < 60000)
	}
	for _, r := range d.Voters {
		line("voter", r)
	}
	for _, r := range d.Observers {
		line("observer", r)
	}
	return out
}
