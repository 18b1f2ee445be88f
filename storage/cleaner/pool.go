package cleaner

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"gregor/protocol/record"
	"gregor/storage/segment"
	"gregor/storage/vfs"
)

// Config is log.cleaner.* of the broker.
type Config struct {
	Threads           int     // log.cleaner.threads
	DedupeBytes       int64   // log.cleaner.dedupe.buffer.size, of all threads together
	LoadFactor        float64 // log.cleaner.io.buffer.load.factor
	IOBufferBytes     int     // log.cleaner.io.buffer.size, of all threads together
	MaxBytesPerSecond float64 // log.cleaner.io.max.bytes.per.second, reads and writes of all threads together
	BackoffMillis     int64   // log.cleaner.backoff.ms
}

// DefaultConfig is Kafka's.
func DefaultConfig() Config {
	return Config{
		Threads: 1, DedupeBytes: 128 << 20, LoadFactor: 0.9, IOBufferBytes: 512 << 10,
		MaxBytesPerSecond: 1e300, BackoffMillis: 15000,
	}
}

// keepMapBytes is how much memory for keys an idle goroutine keeps.
const keepMapBytes = 1 << 20

// fullDiskRest is how long a log is left alone that there was no space to clean: each try reads it, and may write much of
// it, before it finds out.
const fullDiskRest = 30 * time.Second

// Pool cleans logs on several goroutines: each takes the filthiest log that nobody is cleaning, and rests for
// BackoffMillis when there is none. Start it, then Stop it before the logs are closed.
type Pool struct {
	logs     Logs
	log      *slog.Logger
	throttle throttle
	metrics  metrics

	// config is guarded by mu, as all below.
	mu          sync.Mutex
	config      Config
	workers     []*worker
	work        sync.WaitGroup
	stopped     bool
	busy        map[Log]*job
	uncleanable map[Log]error
	resting     map[Log]time.Time // logs that there was no space to clean, until when they are left alone
}

// job is a round that runs.
type job struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// worker is one goroutine of a Pool.
type worker struct {
	pool   *Pool
	config Config
	cancel context.CancelFunc
	done   chan struct{}

	// Of its goroutine.
	newest  *offsetMap
	buffers *buffers
}

// NewPool makes a pool that has not started.
func NewPool(logs Logs, c Config, log *slog.Logger) *Pool {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	p := &Pool{logs: logs, log: log, config: c, busy: map[Log]*job{}, uncleanable: map[Log]error{}, resting: map[Log]time.Time{}}
	p.throttle.setRate(c.MaxBytesPerSecond)
	return p
}

// Start begins to clean.
func (p *Pool) Start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.metrics.lastRun.Store(time.Now().UnixMilli())
	p.startLocked()
}

// startLocked replaces the workers. The new ones begin when the old ones have given up their memory.
func (p *Pool) startLocked() {
	old := p.workers
	for _, w := range old {
		w.cancel()
	}
	p.workers = make([]*worker, max(p.config.Threads, 1))
	for i := range p.workers {
		ctx, cancel := context.WithCancel(context.Background())
		w := &worker{pool: p, config: p.config, cancel: cancel, done: make(chan struct{})}
		p.workers[i] = w
		p.work.Go(func() {
			defer close(w.done)
			for _, o := range old {
				<-o.done
			}
			w.run(ctx)
		})
	}
}

// Stop ends the rounds that run, without their effect, and returns when all goroutines have ended.
func (p *Pool) Stop() {
	p.mu.Lock()
	p.stopped = true
	for _, w := range p.workers {
		w.cancel()
	}
	p.mu.Unlock()
	p.work.Wait()
}

// Reconfigure puts another config in force. A change of the rate or of the rest alone leaves rounds alone; others
// begin them anew.
func (p *Pool) Reconfigure(c Config) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.config
	if c == old {
		return
	}
	p.config = c
	if c.MaxBytesPerSecond != old.MaxBytesPerSecond {
		p.throttle.setRate(c.MaxBytesPerSecond)
		old.MaxBytesPerSecond = c.MaxBytesPerSecond
	}
	if c != old && !p.stopped && p.workers != nil {
		p.startLocked()
	}
	p.log.Info("Log cleaner is reconfigured", "threads", c.Threads, "dedupeBytes", c.DedupeBytes, "ioBufferBytes", c.IOBufferBytes,
		"maxBytesPerSecond", c.MaxBytesPerSecond, "backoffMillis", c.BackoffMillis)
}

// Abort ends the round of a log, if one runs, and returns when nobody works on its files any more. The log must
// have stopped to be current before: no other round begins then.
func (p *Pool) Abort(l Log) {
	p.mu.Lock()
	delete(p.uncleanable, l)
	delete(p.resting, l)
	j := p.busy[l]
	p.mu.Unlock()
	if j != nil {
		j.cancel()
		<-j.done
	}
}

// IsBusy tells whether a log is being cleaned.
func (p *Pool) IsBusy(l Log) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.busy[l] != nil
}

func (w *worker) run(ctx context.Context) {
	n := max(w.config.Threads, 1)
	w.newest = newOffsetMap(w.config.DedupeBytes/int64(n), w.config.LoadFactor)
	defer w.newest.release()
	for ctx.Err() == nil {
		if w.pass(ctx) {
			continue
		}
		if w.newest.usedBytes() > keepMapBytes {
			w.newest.release()
		}
		w.buffers = nil
		timer := time.NewTimer(time.Duration(min(w.config.BackoffMillis, int64(time.Hour/time.Millisecond)*24*365)) * time.Millisecond)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// pass cleans the filthiest log and applies retention to compacted ones; it tells whether there may be more to clean.
func (w *worker) pass(ctx context.Context) bool {
	cleaned := false
	if t, ok := w.pool.choose(ctx); ok {
		cleaned = w.clean(t)
		w.pool.done(t)
	}
	w.pool.deleteOldSegments(ctx)
	return cleaned
}

// target is a log that a worker has taken.
type target struct {
	log  Log
	view View
	plan Plan
	ctx  context.Context //nolint:containedctx // of the job
	job  *job
}

// choose takes the filthiest log.
func (p *Pool) choose(ctx context.Context) (target, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now().UnixMilli()
	var best target
	dirtiest, maxDelay := 0.0, int64(0)
	current := map[Log]bool{}
	for l := range p.logs.Compacted() {
		if len(p.uncleanable)+len(p.resting) > 0 {
			current[l] = true
		}
		if p.busy[l] != nil || p.uncleanable[l] != nil || p.rests(l, now) {
			continue
		}
		v := l.View()
		plan, err := newPlan(v.Offsets, &v.Policy, v.Segments, now)
		if err != nil {
			p.failedLocked(l, &v, err)
			continue
		}
		if plan.Invalid {
			p.resetLocked(l, &v, &plan)
		}
		dirtiest, maxDelay = max(dirtiest, plan.Ratio()), max(maxDelay, plan.DelayMillis)
		if plan.due(&v.Policy) && (best.log == nil || plan.Ratio() > best.plan.Ratio()) {
			best = target{log: l, view: v, plan: plan}
		}
	}
	p.forgetLocked(current)
	p.metrics.chosen(now, dirtiest, maxDelay)
	if best.log == nil || ctx.Err() != nil {
		return target{}, false
	}
	best.job = &job{done: make(chan struct{})}
	best.ctx, best.job.cancel = context.WithCancel(ctx)
	p.busy[best.log] = best.job
	if !p.logs.IsCurrent(best.log) {
		// Deleted since it was listed; whoever did may have asked for the job just before it was there.
		best.job.cancel()
		close(best.job.done)
		delete(p.busy, best.log)
		return target{}, false
	}
	return best, true
}

// rests tells whether a log is left alone for want of space.
func (p *Pool) rests(l Log, nowMillis int64) bool {
	until, ok := p.resting[l]
	if ok && nowMillis >= until.UnixMilli() {
		delete(p.resting, l)
		ok = false
	}
	return ok
}

// forgetLocked forgets what is known of logs that are no longer current.
func (p *Pool) forgetLocked(current map[Log]bool) {
	for l := range p.uncleanable {
		if !current[l] {
			delete(p.uncleanable, l)
		}
	}
	for l := range p.resting {
		if !current[l] {
			delete(p.resting, l)
		}
	}
}

// resetLocked notes that a log has to be cleaned from its start.
func (p *Pool) resetLocked(l Log, v *View, plan *Plan) {
	if v.CleanedTo > v.LogEnd || !v.Policy.Delete {
		p.log.Warn("Resetting the first dirty offset, which is not in the log", "log", l.Name(), "offset", v.CleanedTo,
			"logStart", v.LogStart, "logEnd", v.LogEnd)
	}
	if err := l.SetCleanedTo(v, plan.FirstDirty); err != nil {
		p.log.Debug("Cannot reset the first dirty offset", "log", l.Name(), "error", err)
	}
}

func (p *Pool) done(t target) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t.job.cancel()
	delete(p.busy, t.log)
	close(t.job.done)
}

// clean runs a round; it tells whether to look for the next log at once.
func (w *worker) clean(t target) bool {
	if w.buffers == nil {
		w.buffers = newBuffers(w.config.IOBufferBytes / max(w.config.Threads, 1) / 2)
	}
	r := round{
		ctx: t.ctx, log: t.log, view: t.view, plan: t.plan, newest: w.newest, throttle: &w.pool.throttle, buffers: w.buffers,
	}
	p := w.pool
	end, err := r.run()
	switch {
	case err == nil:
		p.metrics.cleaned(&r.stats)
		p.report(&t, &r.stats, end)
	case aborted(err):
		p.log.Info("Cleaning of a log was aborted", "log", t.log.Name(), "reason", err)
		return false
	default:
		p.mu.Lock()
		defer p.mu.Unlock()
		p.failedLocked(t.log, &t.view, err)
		_, full := p.resting[t.log]
		return full // another may be in a directory that has space
	}
	return true
}

// aborted tells errors that only say that the log has changed: its segments were truncated or deleted.
func aborted(err error) bool {
	return errors.Is(err, ErrAborted) || errors.Is(err, segment.ErrRangeGone) || errors.Is(err, fs.ErrClosed)
}

// failedLocked sorts out a failure: without space the log rests for a while, that of the disk is the log's, anything else
// makes the log uncleanable.
func (p *Pool) failedLocked(l Log, v *View, err error) {
	if aborted(err) || l.Check(v) != nil {
		return
	}
	if vfs.IsNoSpace(err) {
		p.resting[l] = time.Now().Add(fullDiskRest)
		p.log.Debug("No space to clean a log; trying again later", "log", l.Name(), "error", err)
		l.NoSpace(err)
		return
	}
	limited := errors.Is(err, record.ErrLimit)
	damaged := !limited && (errors.Is(err, segment.ErrCorrupt) || errors.Is(err, record.ErrCorrupt))
	if !damaged && !limited && !errors.Is(err, segment.ErrOffsetOverflow) {
		p.log.Error("Cannot clean a log: its directory fails", "log", l.Name(), "dir", l.Dir(), "error", err)
		l.Fail(err)
		return
	}
	p.log.Error("Cannot clean a log: it is uncleanable from now on", "log", l.Name(), "dir", l.Dir(), "error", err)
	p.uncleanable[l] = err
	if damaged {
		l.Damaged(v, err)
	}
}

func (p *Pool) report(t *target, s *Stats, end int64) {
	p.log.Info("Cleaned a log", "log", t.log.Name(), "from", t.plan.FirstDirty, "to", end, "millis", s.Took.Milliseconds(),
		"indexMillis", s.IndexTook.Milliseconds(), "bytesBefore", s.BytesRead, "bytesAfter", s.BytesWritten,
		"recordsBefore", s.RecordsRead, "recordsAfter", s.RecordsWritten, "segmentsBefore", s.SegmentsBefore,
		"segmentsAfter", s.SegmentsAfter, "mapPercent", int(100*s.MapUtilization))
	if s.InvalidRecords > 0 {
		p.log.Warn("Records without a key were removed from a compacted log", "log", t.log.Name(), "records", s.InvalidRecords)
	}
}

// deleteOldSegments applies retention to compacted logs: those with cleanup.policy=compact,delete, and records below
// the log start of all.
func (p *Pool) deleteOldSegments(ctx context.Context) {
	for l := range p.logs.Compacted() {
		if ctx.Err() != nil {
			return
		}
		if p.IsBusy(l) {
			continue
		}
		if err := l.DeleteOldSegments(time.Now()); err != nil && !aborted(err) {
			p.log.Error("Cannot apply retention", "log", l.Name(), "error", err)
		}
	}
}
