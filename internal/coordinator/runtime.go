package coordinator

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"gregor/protocol/record"
)

// Options of a [Runtime].
type Options[R any, M Machine[R]] struct {
	// Name of the coordinator in log lines.
	Name string
	Log  Log
	// Codec of the machine's records.
	Codec Codec[R]
	// New makes the empty machine of a partition.
	New func(Handle[R]) M
	// WriteTimeout bounds how long a write waits for the high watermark.
	WriteTimeout time.Duration
	// LoadBufferBytes is how much is read from the log at once.
	LoadBufferBytes int
	// Compression of the batches written.
	Compression record.Codec
	Events      Events
	Logger      *slog.Logger
}

// Runtime runs the machines of all partitions that this broker leads.
type Runtime[R any, M Machine[R]] struct {
	opts Options[R, M]

	mu         sync.RWMutex
	partitions map[int32]*partition[R, M]
	closed     bool
	// stopping counts the goroutines of partitions, also of those that were
	// taken out of the map already.
	stopping sync.WaitGroup

	counters counters
}

// NewRuntime returns a runtime without any partition.
func NewRuntime[R any, M Machine[R]](opts Options[R, M]) *Runtime[R, M] {
	opts.WriteTimeout = cmp.Or(opts.WriteTimeout, 5*time.Second)
	opts.LoadBufferBytes = cmp.Or(opts.LoadBufferBytes, 5<<20)
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	return &Runtime[R, M]{opts: opts, partitions: make(map[int32]*partition[R, M])}
}

// Elect makes this broker the coordinator of partition in leaderEpoch: the
// partition is loaded in the background and serves afterwards. An election of
// the same or an older epoch than the present one changes nothing.
func (rt *Runtime[R, M]) Elect(partitionID, leaderEpoch int32) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if rt.closed {
		return
	}
	old := rt.partitions[partitionID]
	var oldStopped <-chan struct{}
	if old != nil {
		if old.epoch >= leaderEpoch {
			return
		}
		old.stop()
		oldStopped = old.stopped
	}
	p := newPartition(rt, partitionID, leaderEpoch)
	rt.partitions[partitionID] = p
	rt.stopping.Go(func() { p.run(oldStopped) })
}

// Resign gives up partition, unless it was elected in a later epoch than
// leaderEpoch. A negative epoch means any. It does not wait until the machine
// is unloaded, but from now on every request gets NOT_COORDINATOR.
func (rt *Runtime[R, M]) Resign(partitionID, leaderEpoch int32) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	p := rt.partitions[partitionID]
	if p == nil || (leaderEpoch >= 0 && p.epoch > leaderEpoch) {
		return
	}
	delete(rt.partitions, partitionID)
	p.stop()
}

// Close gives up all partitions and waits until they are unloaded.
func (rt *Runtime[R, M]) Close() {
	rt.mu.Lock()
	rt.closed = true
	for id, p := range rt.partitions {
		delete(rt.partitions, id)
		p.stop()
	}
	rt.mu.Unlock()
	rt.stopping.Wait()
}

// Partitions lists the partitions that this broker was elected for, in order,
// loaded or not.
func (rt *Runtime[R, M]) Partitions() []int32 {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	return slices.Sorted(maps.Keys(rt.partitions))
}

// Metrics returns the present counters.
func (rt *Runtime[R, M]) Metrics() Metrics {
	m := rt.counters.metrics()
	rt.mu.Lock()
	defer rt.mu.Unlock()
	for _, p := range rt.partitions {
		switch p.state.Load() {
		case stateLoading:
			m.Loading++
		case stateActive:
			m.Active++
		default:
			m.Failed++
		}
		m.Queued += p.queued()
	}
	return m
}

// submit hands a task to its partition.
func (rt *Runtime[R, M]) submit(partitionID int32, t task[R, M]) error {
	rt.mu.RLock()
	p := rt.partitions[partitionID]
	rt.mu.RUnlock()
	if p == nil {
		return ErrNotCoordinator
	}
	return p.submit(t)
}

// call is the operation of a caller.
type call[T, R any, M Machine[R]] struct {
	write    func(M) (T, Effect[R], error)
	read     func(M) (T, error) // instead of write
	response T
	reply    func(T, error)
}

func (c *call[T, R, M]) run(m M) (effect Effect[R], err error) {
	if c.read != nil {
		c.response, err = c.read(m)
		return Effect[R]{}, err
	}
	c.response, effect, err = c.write(m)
	return effect, err
}

func (c *call[T, R, M]) done(err error) {
	if err != nil {
		var zero T
		c.response = zero
	}
	c.reply(c.response, err)
}

// start submits the task of a caller.
func start[R any, M Machine[R]](rt *Runtime[R, M], partitionID int32, t task[R, M]) {
	if err := rt.submit(partitionID, t); err != nil {
		t.done(err)
	}
}

// StartWrite runs op on the newest state of partition, and calls done once: with op's response when its records are
// committed, or with an error, which is ErrTimedOut when that takes longer than WriteTimeout; the write goes on then.
// When nobody else is at the partition op runs before StartWrite returns, and so may done; both are short. done does not
// wait for anything; it may call StartWrite and StartRead.
func StartWrite[T, R any, M Machine[R]](rt *Runtime[R, M], partitionID int32, op func(M) (T, Effect[R], error), done func(T, error)) {
	start(rt, partitionID, task[R, M]{kind: taskWrite, operation: &call[T, R, M]{write: op, reply: done}})
}

// StartRead runs op on partition, which looks only at committed state. It calls done as [StartWrite] does.
func StartRead[T, R any, M Machine[R]](rt *Runtime[R, M], partitionID int32, op func(M) (T, error), done func(T, error)) {
	start(rt, partitionID, task[R, M]{kind: taskRead, operation: &call[T, R, M]{read: op, reply: done}})
}

// Write is [StartWrite] for callers that wait, and for operations that may be long: no caller of StartWrite or StartRead
// runs them. Canceling ctx ends the wait but not the write.
func Write[T, R any, M Machine[R]](ctx context.Context, rt *Runtime[R, M], partitionID int32, op func(M) (T, Effect[R], error)) (T, error) {
	return await(ctx, func(done func(T, error)) {
		start(rt, partitionID, task[R, M]{kind: taskWrite, long: true, operation: &call[T, R, M]{write: op, reply: done}})
	})
}

// WriteTxn is [Write] for records that belong to the transaction v. They count
// when the transaction is committed.
func WriteTxn[T, R any, M Machine[R]](ctx context.Context, rt *Runtime[R, M], v VerifyTxn, op func(M) (T, Effect[R], error)) (T, error) {
	verified, err := rt.opts.Log.VerifyTxn(ctx, v)
	if err != nil {
		var zero T
		return zero, err
	}
	return await(ctx, func(done func(T, error)) {
		c := &call[T, R, M]{write: op, reply: done}
		start(rt, v.Partition, task[R, M]{kind: taskTxnWrite, long: true, producer: v.Producer, verified: verified, operation: c})
	})
}

// EndTxn writes the marker that commits or aborts the producer's transaction on
// partition, and waits until it is committed.
func EndTxn[R any, M Machine[R]](ctx context.Context, rt *Runtime[R, M], partitionID int32, producer Producer, coordinatorEpoch int32, commit bool) error {
	_, err := await(ctx, func(done func(struct{}, error)) {
		c := &call[struct{}, R, M]{reply: done}
		start(rt, partitionID, task[R, M]{kind: taskEndTxn, long: true, producer: producer, coordinatorEpoch: coordinatorEpoch, commit: commit, operation: c})
	})
	return err
}

// Read is [StartRead] for callers that wait, as Write is StartWrite.
func Read[T, R any, M Machine[R]](ctx context.Context, rt *Runtime[R, M], partitionID int32, op func(M) (T, error)) (T, error) {
	return await(ctx, func(done func(T, error)) {
		start(rt, partitionID, task[R, M]{kind: taskRead, long: true, operation: &call[T, R, M]{read: op, reply: done}})
	})
}

// await starts an operation and waits for its end, or that of ctx.
func await[T any](ctx context.Context, start func(done func(T, error))) (T, error) {
	type result struct {
		response T
		err      error
	}
	results := make(chan result, 1)
	start(func(response T, err error) { results <- result{response, err} })
	select {
	case r := <-results:
		return r.response, r.err
	default:
	}
	select {
	case r := <-results:
		return r.response, r.err
	case <-ctx.Done():
		var zero T
		return zero, ctx.Err()
	}
}
