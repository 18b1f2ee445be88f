package storage

import (
	"errors"

	"gregor/storage/checkpoint"
	"gregor/storage/cleaner"
)

// markDamaged takes the log out of service because a file of it is not what was written: it answers ErrStorage from
// then on and nothing in its files is changed any more. Unlike after a failure of the disk, the log can still be flushed
// and closed cleanly, and is: a recovery that the next start would do otherwise could cut the log at the damage. The first
// damage counts. It may be called with the writer's lock held.
func (l *Log) markDamaged(op string, cause error) error {
	f := &StorageError{Op: op, Dir: l.opts.dir, Cause: cause}
	if l.damage.CompareAndSwap(nil, f) {
		l.log.Error("Replica is offline: a file of it is damaged", "topic", l.opts.topic, "partition", l.opts.partition, "error", f)
		if l.opts.events.Damaged != nil {
			l.opts.events.Damaged(l, f)
		}
	}
	return l.damage.Load()
}

// Damage is why the replica is offline although its directory is not: a file of it is damaged. nil while no damage has
// been met. After a repair of the file (or its deletion together with the partition's directory, where other replicas
// have the records) the next start serves the replica again.
func (l *Log) Damage() error {
	if f := l.damage.Load(); f != nil {
		return f
	}
	return nil
}

// damagedUnlessChanged is markDamaged for who worked on a view of the log, which a truncation may have made void.
func (l *Log) damagedUnlessChanged(op string, cause error, generation int64) {
	l.mu.Lock()
	defer l.unlock()
	if l.w.closed || l.w.generation != generation {
		return
	}
	_ = l.markDamaged(op, cause)
}

// isDamage tells errors that say that a file holds something else than what was written, from failures of the disk.
func isDamage(err error) bool {
	return errors.Is(err, ErrCorrupt) || errors.Is(err, checkpoint.ErrSyntax)
}

// unlessDamaged leaves out the damage that is known: what it hides need not be written at a clean close.
func (l *Log) unlessDamaged(err error) error {
	if l.damage.Load() == nil || !isDamage(err) {
		return err
	}
	return nil
}

// Damaged implements cleaner.Log.
func (c cleanable) Damaged(v *cleaner.View, err error) {
	c.l.damagedUnlessChanged("cleaning", err, v.Generation)
}
