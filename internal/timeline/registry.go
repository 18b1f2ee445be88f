// Package timeline holds maps and values that remember what they were at
// earlier points of a log.
//
// A replicated state machine has two states at once: the newest, which contains
// every write that was decided, and the committed, which contains only those
// that the log has replicated. A [Registry] keeps both for all structures that
// belong to it: [Registry.Snapshot] names the present state by the offset up to
// which the log is written, [Registry.Commit] moves the committed view forward,
// [Registry.RevertTo] takes back writes that the log did not accept. Each costs
// O(changes), never O(size).
//
// Nothing here is safe for concurrent use; one goroutine owns a registry and
// all its structures.
package timeline

import (
	"fmt"
	"sort"

	"gregor/internal/invariants"
)

// Registry is the clock of a set of timeline structures.
type Registry struct {
	// Invariant: offsets and epochs ascend strictly; snapshots[0] is the
	// committed state and always there.
	snapshots []snapshot
	// Invariant: epoch > snapshots[last].epoch. Changes are made at epoch.
	epoch uint64
	// Invariant: epochs ascend; none is at or below snapshots[0].epoch.
	dirty []dirtyEpoch
	// spare is memory for the cells of a dirty epoch.
	spare []versioned
}

// maxSpareCells is the largest list of cells whose memory is kept.
const maxSpareCells = 256

// snapshot says that the state made of all changes up to epoch is that of the
// log written up to offset (exclusive).
type snapshot struct {
	offset int64
	epoch  uint64
}

// dirtyEpoch lists the cells that were changed at one epoch.
type dirtyEpoch struct {
	epoch uint64
	cells []versioned
}

// versioned is a cell with versions.
type versioned interface {
	// trim forgets the versions that are older than the one seen at epoch.
	trim(epoch uint64)
	// revert forgets the versions that are newer than epoch.
	revert(epoch uint64)
}

// NewRegistry returns a registry whose committed state, empty, is that of
// offset.
func NewRegistry(offset int64) *Registry {
	return &Registry{snapshots: []snapshot{{offset: offset}}, epoch: 1}
}

// Snapshot records that the present state is what the log holds up to offset,
// exclusive. Offsets never go back; taking the newest snapshot's offset again
// moves that snapshot to the present state.
func (r *Registry) Snapshot(offset int64) {
	last := &r.snapshots[len(r.snapshots)-1]
	switch {
	case offset < last.offset:
		panic(fmt.Sprintf("timeline: snapshot at %d after one at %d", offset, last.offset))
	case offset == last.offset && len(r.snapshots) > 1:
		last.epoch = r.epoch
	case offset == last.offset:
		// The committed state itself takes in the change.
		last.epoch = r.epoch
		r.trimTo(last.epoch)
	default:
		r.snapshots = append(r.snapshots, snapshot{offset: offset, epoch: r.epoch})
	}
	r.epoch++
}

// Commit moves the committed view to the newest snapshot at or below offset.
// A lower offset than before changes nothing.
func (r *Registry) Commit(offset int64) {
	next := sort.Search(len(r.snapshots), func(i int) bool { return r.snapshots[i].offset > offset }) - 1
	if next <= 0 {
		return
	}
	r.snapshots = append(r.snapshots[:0], r.snapshots[next:]...)
	r.trimTo(r.snapshots[0].epoch)
}

// RevertTo takes back every change made after the newest snapshot at or below
// offset, and the snapshots themselves. The committed state cannot be taken
// back: an offset below it panics.
func (r *Registry) RevertTo(offset int64) {
	keep := sort.Search(len(r.snapshots), func(i int) bool { return r.snapshots[i].offset > offset })
	if keep == 0 {
		panic(fmt.Sprintf("timeline: revert to %d below the committed %d", offset, r.snapshots[0].offset))
	}
	target := r.snapshots[keep-1].epoch
	for len(r.dirty) > 0 && r.dirty[len(r.dirty)-1].epoch > target {
		for _, cell := range r.dirty[len(r.dirty)-1].cells {
			cell.revert(target)
		}
		r.dirty[len(r.dirty)-1].cells = nil
		r.dirty = r.dirty[:len(r.dirty)-1]
	}
	r.snapshots = r.snapshots[:keep]
}

// Revert takes back every change made after the newest snapshot.
func (r *Registry) Revert() { r.RevertTo(r.LastOffset()) }

// CommittedOffset is the offset of the committed view.
func (r *Registry) CommittedOffset() int64 { return r.snapshots[0].offset }

// LastOffset is the offset of the newest snapshot.
func (r *Registry) LastOffset() int64 { return r.snapshots[len(r.snapshots)-1].offset }

// Changed reports whether anything was changed since the newest snapshot.
func (r *Registry) Changed() bool {
	return len(r.dirty) > 0 && r.dirty[len(r.dirty)-1].epoch == r.epoch
}

// trimTo forgets what only views older than epoch could see.
func (r *Registry) trimTo(epoch uint64) {
	n := 0
	for n < len(r.dirty) && r.dirty[n].epoch <= epoch {
		cells := r.dirty[n].cells
		for _, cell := range cells {
			cell.trim(epoch)
		}
		if cap(cells) <= maxSpareCells {
			clear(cells)
			r.spare = cells[:0]
		}
		r.dirty[n].cells = nil
		n++
	}
	r.dirty = append(r.dirty[:0], r.dirty[n:]...)
}

// touched remembers that cell has its first version of the present epoch.
func (r *Registry) touched(cell versioned) {
	if n := len(r.dirty); n > 0 && r.dirty[n-1].epoch == r.epoch {
		r.dirty[n-1].cells = append(r.dirty[n-1].cells, cell)
		return
	}
	if invariants.Enabled {
		invariants.Assert(len(r.dirty) == 0 || r.dirty[len(r.dirty)-1].epoch < r.epoch, "epochs of changes ascend")
	}
	r.dirty = append(r.dirty, dirtyEpoch{epoch: r.epoch, cells: append(r.spare, cell)})
	r.spare = nil
}

// committedEpoch is the epoch of the committed view.
func (r *Registry) committedEpoch() uint64 { return r.snapshots[0].epoch }

// version is one state of a cell: value, or absent, since epoch.
type version[V any] struct {
	epoch   uint64
	value   V
	present bool
	older   *version[V]
}

// at returns the version seen at epoch, nil when there was none.
func (v *version[V]) at(epoch uint64) *version[V] {
	for v != nil && v.epoch > epoch {
		v = v.older
	}
	return v
}

// trim cuts the versions that are older than the one seen at epoch, and that
// one too where it only says "absent" below a newer one.
func (v *version[V]) trim(epoch uint64) {
	for n := v; n != nil; n = n.older {
		if n.epoch <= epoch {
			n.older = nil
			return
		}
		if n.older != nil && n.older.epoch <= epoch && !n.older.present {
			n.older = nil
			return
		}
	}
}
