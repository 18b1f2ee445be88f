package vfs

import "math/rand/v2"

// Clone copies the file system with its knowledge of what is durable, without hooks, locks and open files.
func (m *Mem) Clone() *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	copies := map[*memNode]*memNode{}
	clone := &Mem{locks: map[*memNode]bool{}}
	clone.root = copyNode(m.root, copies)
	for _, c := range m.pending {
		c.dirs[0], c.dirs[1] = copyNode(c.dirs[0], copies), copyNode(c.dirs[1], copies)
		c.node = copyNode(c.node, copies)
		clone.pending = append(clone.pending, c)
	}
	return clone
}

func copyNode(node *memNode, copies map[*memNode]*memNode) *memNode {
	if fresh, ok := copies[node]; ok {
		return fresh
	}
	fresh := &memNode{dir: node.dir, mode: node.mode, mod: node.mod}
	copies[node] = fresh
	if !node.dir {
		fresh.now, fresh.synced = node.now.share(), node.synced.share()
		fresh.generation, node.generation = nextGeneration(), nextGeneration()
		return fresh
	}
	fresh.names, fresh.durable = copyNames(node.names, copies), copyNames(node.durable, copies)
	return fresh
}

func copyNames(names map[string]*memNode, copies map[*memNode]*memNode) map[string]*memNode {
	fresh := make(map[string]*memNode, len(names))
	for name, child := range names {
		fresh[name] = copyNode(child, copies)
	}
	return fresh
}

// Crash tells what a power cut at this moment leaves on the disk, as a new file system; the receiver goes
// on unharmed. What was synced is there. Of the rest, chosen by seed: unsynced changes of names in a
// directory survive up to some point in their order (a journal); unsynced contents of a file survive whole, not at all, up to
// some byte, or as a random choice of pages or of sectors, with zeros in the gaps, and the length
// anywhere between the synced and the written one. Seed 0 loses everything that was not synced, and
// CrashKeepAll loses nothing (a killed process rather than a power cut).
func (m *Mem) Crash(seed uint64) *Mem {
	after := m.Clone()
	dice := rand.New(rand.NewPCG(seed, seed))
	after.settleNames(seed, dice)
	after.root.settle(seed, dice, map[*memNode]bool{})
	return after
}

// CrashKeepAll is the seed under which Crash keeps all that was written.
const CrashKeepAll = ^uint64(0)

func (m *Mem) settleNames(seed uint64, dice *rand.Rand) {
	pendingIn := map[*memNode]int{}
	for _, c := range m.pending {
		pendingIn[c.dirs[0]]++
		if c.dirs[1] != c.dirs[0] {
			pendingIn[c.dirs[1]]++
		}
	}
	// Drawn in the order of the changes, not of the map, so that a seed replays.
	keep := map[*memNode]int{}
	for _, c := range m.pending {
		for _, dir := range c.dirs {
			if _, drawn := keep[dir]; drawn {
				continue
			}
			switch seed {
			case 0:
				keep[dir] = 0
			case CrashKeepAll:
				keep[dir] = pendingIn[dir]
			default:
				keep[dir] = dice.IntN(pendingIn[dir] + 1)
			}
		}
	}
	for _, c := range m.pending {
		kept := keep[c.dirs[0]] > 0 && keep[c.dirs[1]] > 0
		keep[c.dirs[0]]--
		if c.dirs[1] != c.dirs[0] {
			keep[c.dirs[1]]--
		}
		if kept {
			c.applyDurable()
		}
	}
	m.pending = nil
}

// settle makes the durable state the current one, all the way down.
func (n *memNode) settle(seed uint64, dice *rand.Rand, done map[*memNode]bool) {
	if done[n] {
		return
	}
	done[n] = true
	if !n.dir {
		n.now = n.survivor(seed, dice)
		n.generation = nextGeneration()
		n.synced = n.now.share()
		return
	}
	n.names = map[string]*memNode{}
	for _, name := range sortedNames(n.durable) {
		child := n.durable[name]
		n.names[name] = child
		child.settle(seed, dice, done)
	}
}

// survivor mixes the synced and the written contents of a file.
func (n *memNode) survivor(seed uint64, dice *rand.Rand) content {
	switch {
	case seed == CrashKeepAll || n.clean():
		return n.now.share()
	case seed == 0:
		return n.synced.share()
	}
	mode := dice.IntN(5)
	switch mode {
	case 0:
		return n.synced.share()
	case 1:
		return n.now.share()
	}
	low, high := min(n.synced.size, n.now.size), max(n.synced.size, n.now.size)
	size := low + dice.Int64N(high-low+1)
	mixed := n.synced.share()
	generation := nextGeneration()
	mixed.truncate(size, generation)
	cut := dice.Int64N(n.now.size + 1)
	unit := int64(sectorBytes)
	if mode == 3 {
		unit = pageBytes
	}
	buf := make([]byte, unit)
	for at := int64(0); at < min(size, n.now.size); at += unit {
		take := min(unit, size-at, n.now.size-at)
		switch {
		case mode == 2:
			take = min(take, cut-at)
		case dice.IntN(2) == 0:
			take = 0
		}
		if take > 0 {
			n.now.readAt(buf[:take], at)
			mixed.writeAt(buf[:take], at, generation)
		}
	}
	return mixed
}

// clean tells whether nothing is unsynced.
func (n *memNode) clean() bool {
	if n.now.size != n.synced.size {
		return false
	}
	for i := range int64(max(len(n.now.pages), len(n.synced.pages))) {
		a, b := n.now.page(i), n.synced.page(i)
		if a != b && (a == nil || b == nil || a.data != b.data) {
			return false
		}
	}
	return true
}
