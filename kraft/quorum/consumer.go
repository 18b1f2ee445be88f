package quorum

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"gregor/protocol/record"
	"gregor/storage"
)

// consumer feeds one state machine from the log, on one goroutine. It holds nothing but its place: what a slow
// machine has not seen yet stays in the log.
type consumer struct {
	machine   StateMachine
	log       partitionLog
	snapshots *snapshotStore
	board     *board

	next   int64 // offset of the next batch to deliver
	told   LeaderAndEpoch
	buf    []byte
	onStop <-chan struct{}
}

func newConsumer(sm StateMachine, s *raftStorage, b *board, stop <-chan struct{}) *consumer {
	return &consumer{machine: sm, log: s.log, snapshots: s.snapshots, board: b, told: LeaderAndEpoch{LeaderID: NoLeader}, onStop: stop}
}

// run delivers until the node stops.
func (c *consumer) run() error {
	for {
		changed := c.board.watch()
		busy, err := c.step()
		if err != nil {
			return err
		}
		if busy {
			select {
			case <-c.onStop:
				return nil
			default:
				continue
			}
		}
		select {
		case <-c.onStop:
			return nil
		case <-changed:
		}
	}
}

// step makes at most one round of calls. It tells whether there may be more to do.
func (c *consumer) step() (bool, error) {
	s := c.board.load()
	if c.tellLeader(s) {
		return true, nil
	}
	if c.next >= s.highWatermark {
		return false, nil
	}
	if loaded, err := c.loadSnapshot(); loaded || err != nil {
		return true, err
	}
	before := c.next
	err := c.deliver()
	return c.next > before || c.next < c.log.State().LogStartOffset, err
}

// tellLeader tells a new leader or epoch. Own leadership waits until all before the epoch, and its first batch, were
// delivered; until then the epoch is told as one without a leader, so that work of an older epoch stops.
func (c *consumer) tellLeader(s *state) bool {
	now := s.leader
	if s.epochStart >= 0 && c.next <= s.epochStart {
		now.LeaderID = NoLeader
	}
	if now == c.told {
		return false
	}
	c.told = now
	c.machine.LeaderChange(now)
	return true
}

// loadSnapshot loads the newest snapshot when the machine has nothing yet, or lacks what the log no longer has.
func (c *consumer) loadSnapshot() (bool, error) {
	id, ok := c.snapshots.latest()
	start := c.log.State().LogStartOffset
	if c.next > 0 && c.next >= start || !ok || id.Offset <= c.next {
		return false, nil
	}
	r, err := c.snapshots.openSnapshot(id)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil // a newer one has come, and this one was deleted
	}
	if err != nil {
		return false, err
	}
	if err := errors.Join(c.machine.LoadSnapshot(r), r.Close()); err != nil {
		return false, fmt.Errorf("load of snapshot %v: %w", id, err)
	}
	c.next = id.Offset
	return true, nil
}

// deliver delivers the next batches below the high watermark. A change of leadership is told between two of them.
func (c *consumer) deliver() error {
	b, err := c.log.ReadBatches(c.next, c.buf, scanBytes, storage.UpToHighWatermark)
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case errors.Is(err, storage.ErrOffsetOutOfRange) && c.log.State().LogStartOffset > c.next:
		return nil // a snapshot took the place of the log meanwhile: load it
	case err != nil:
		return fmt.Errorf("metadata log at offset %d: %w", c.next, err)
	}
	c.buf = b
	for batch, err := range record.Batches(b) {
		if err != nil {
			return fmt.Errorf("%w: metadata log at offset %d: %w", ErrCorrupt, c.next, err)
		}
		if batch.LastOffset() < c.next {
			continue
		}
		if !batch.CRCValid() {
			return fmt.Errorf("%w: batch at offset %d fails its CRC", ErrCorrupt, batch.BaseOffset())
		}
		out, err := committedBatch(batch)
		if err != nil {
			return err
		}
		c.tellLeader(c.board.load())
		c.machine.Commit(out)
		c.next = batch.NextOffset()
		select {
		case <-c.onStop:
			return nil
		default:
		}
	}
	return nil
}
