package groupcoord

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"gregor/groupcoord/schema"
	"gregor/internal/coordinator"
	"gregor/kraft/image"
	"gregor/protocol"
)

// Coordinator is the group coordinator of a broker. All methods are safe for
// concurrent use.
//
// The requests that clients send all the time take a function that gets the
// answer: once, often before the method returns, otherwise on another goroutine,
// which it must not keep waiting. The others park their caller; they end early
// when their context does.
type Coordinator struct {
	opts Options
	rt   *coordinator.Runtime[schema.Record, *shard]

	ctx    context.Context //nolint:containedctx // ends the background work of Close
	cancel context.CancelFunc
	// background counts the goroutines that clean up after deleted topics.
	background sync.WaitGroup
}

// New returns a coordinator that leads no partition yet.
func New(opts Options) *Coordinator {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.NewUUID == nil {
		opts.NewUUID = newMemberUUID
	}
	if opts.Image == nil {
		opts.Image = image.Empty
	}
	c := &Coordinator{opts: opts}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.rt = coordinator.NewRuntime(coordinator.Options[schema.Record, *shard]{
		Name: "group", Log: opts.Log, Codec: codec{},
		New:          func(h handle) *shard { return newShard(h, &c.opts) },
		WriteTimeout: opts.Config.CommitTimeout, LoadBufferBytes: opts.Config.LoadBufferBytes,
		Compression: opts.Config.Compression, Events: opts.Events.Runtime, Logger: opts.Logger,
	})
	return c
}

// Elect makes this broker the coordinator of the groups of a partition of
// __consumer_offsets, which it leads in leaderEpoch. It does not wait for the
// load.
func (c *Coordinator) Elect(partition, leaderEpoch int32) { c.rt.Elect(partition, leaderEpoch) }

// Resign gives a partition up that is led elsewhere in leaderEpoch or that is
// gone (-1).
func (c *Coordinator) Resign(partition, leaderEpoch int32) { c.rt.Resign(partition, leaderEpoch) }

// Close gives all partitions up and waits for what runs in the background.
func (c *Coordinator) Close() {
	c.cancel()
	c.background.Wait()
	c.rt.Close()
}

// Metrics of the runtime.
func (c *Coordinator) Metrics() coordinator.Metrics { return c.rt.Metrics() }

// partition returns the partition of a group.
func (c *Coordinator) partition(groupID string) (int32, error) {
	n := c.opts.NumPartitions()
	if n <= 0 {
		return 0, coordinator.ErrNotAvailable
	}
	return PartitionFor(groupID, n), nil
}

// startWrite runs op on the shard of a group and calls done with its response.
func startWrite[T any](c *Coordinator, groupID string, op func(*shard) (T, effect, error), done func(T, error)) {
	p, err := c.partition(groupID)
	if err != nil {
		var zero T
		done(zero, err)
		return
	}
	coordinator.StartWrite(c.rt, p, op, done)
}

// startRead runs op on the committed state of the shard of a group and calls done
// with its response.
func startRead[T any](c *Coordinator, groupID string, op func(*shard) (T, error), done func(T, error)) {
	p, err := c.partition(groupID)
	if err != nil {
		var zero T
		done(zero, err)
		return
	}
	coordinator.StartRead(c.rt, p, op, done)
}

// write runs op on the shard of a group.
func write[T any](ctx context.Context, c *Coordinator, groupID string, op func(*shard) (T, effect, error)) (T, error) {
	p, err := c.partition(groupID)
	if err != nil {
		var zero T
		return zero, err
	}
	return coordinator.Write(ctx, c.rt, p, op)
}

// read runs op on the committed state of the shard of a group.
func read[T any](ctx context.Context, c *Coordinator, groupID string, op func(*shard) (T, error)) (T, error) {
	p, err := c.partition(groupID)
	if err != nil {
		var zero T
		return zero, err
	}
	return coordinator.Read(ctx, c.rt, p, op)
}

// code is the error code that a client gets for err.
func (c *Coordinator) code(operation string, err error) int16 {
	if err == nil {
		return 0
	}
	code := protocol.ErrorCode(coordinator.ClientError(err))
	if code == kerr.UnknownServerError.Code {
		c.opts.Logger.Error("group coordinator operation failed", "operation", operation, "cause", err)
	}
	return code
}

// deletedRetry is how long the offsets of a deleted topic wait for a partition
// that is still being loaded.
const deletedRetry = time.Second

// TopicsDeleted deletes the offsets of topics that exist no more, in all groups
// (R38). It works in the background.
func (c *Coordinator) TopicsDeleted(topics []DeletedTopic) {
	if len(topics) == 0 || c.ctx.Err() != nil {
		return
	}
	for _, p := range c.rt.Partitions() {
		c.background.Go(func() { c.deleteTopicOffsets(p, topics) })
	}
}

func (c *Coordinator) deleteTopicOffsets(partition int32, topics []DeletedTopic) {
	for {
		_, err := coordinator.Write(c.ctx, c.rt, partition, func(s *shard) (struct{}, effect, error) { return s.topicsDeleted(topics) })
		switch {
		case err == nil, errors.Is(err, coordinator.ErrNotCoordinator), c.ctx.Err() != nil:
			return
		case !errors.Is(err, coordinator.ErrLoading):
			// As in Kafka there is no second try: the offsets expire.
			c.opts.Logger.Error("offsets of deleted topics not deleted", "partition", partition, "cause", err)
			return
		}
		timer := time.NewTimer(deletedRetry)
		select {
		case <-timer.C:
		case <-c.ctx.Done():
			timer.Stop()
			return
		}
	}
}
