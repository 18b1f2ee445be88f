package quorum

import (
	"context"
	"fmt"
)

// AddVoter makes an observer that keeps up with the leader a voter. With ackWhenCommitted it waits until the new
// voter set is committed, else until it is in the leader's log. Errors wrap those of kerr.go.
func (n *Node) AddVoter(ctx context.Context, v Voter, ackWhenCommitted bool) error {
	return n.reconfigure(ctx, ackWhenCommitted, func(m *machine) (int64, error) { return m.addVoter(v) })
}

// RemoveVoter takes a voter away and waits until that is committed. A leader may remove itself.
func (n *Node) RemoveVoter(ctx context.Context, k ReplicaKey) error {
	return n.reconfigure(ctx, true, func(m *machine) (int64, error) { return m.removeVoter(k) })
}

// UpdateVoter changes the endpoints or supported versions of a voter. Under kraft.version 0 they are remembered by the
// leader for UpgradeKRaftVersion.
func (n *Node) UpdateVoter(ctx context.Context, v Voter) error {
	return n.reconfigure(ctx, true, func(m *machine) (int64, error) { return m.updateVoter(v) })
}

// UpgradeKRaftVersion changes static voters (level 0) to voters in the log (level 1).
func (n *Node) UpgradeKRaftVersion(ctx context.Context, level int16) error {
	return n.reconfigure(ctx, true, func(m *machine) (int64, error) { return m.upgradeLevel(level) })
}

// reconfigure proposes on the loop's goroutine and waits for the commit of the offset.
func (n *Node) reconfigure(ctx context.Context, wait bool, propose func(*machine) (int64, error)) error {
	var offset int64
	var epoch int32
	err := n.do(ctx, func(m *machine) (error, error) {
		var err error
		offset, err = propose(m)
		epoch = m.board.load().leader.Epoch
		return err, nil
	})
	if err != nil || !wait {
		return err
	}
	for {
		changed := n.board.watch()
		s := n.board.load()
		// A leader that removed itself is one no more when the change is committed.
		if s.highWatermark > offset {
			return nil
		}
		if s.leader.Epoch != epoch {
			return fmt.Errorf("%w: epoch %d ended before the change of voters was committed", ErrNotLeader, epoch)
		}
		select {
		case <-changed:
		case <-n.stop:
			return ErrClosed
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ErrReconfigurationPending, ctx.Err())
		}
	}
}
