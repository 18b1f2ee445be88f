package timeline

import "iter"

// Map is a map with a newest and a committed state. The zero value is not
// usable; make one with [NewMap].
type Map[K comparable, V any] struct {
	registry *Registry
	cells    map[K]*cell[K, V]
	// Invariant: size is the number of cells whose newest version is present.
	size int
	// arrivals counts the keys that came, also those that came back; room is the
	// size that the map would have had at most if no value had replaced another.
	arrivals uint64
	room     int
}

// cell is the history of one key; its newest version lies inline.
type cell[K comparable, V any] struct {
	owner *Map[K, V]
	key   K
	// arrival is the number of the key among the arrivals.
	arrival uint64
	version[V]
}

// NewMap returns an empty map that belongs to registry.
func NewMap[K comparable, V any](registry *Registry) *Map[K, V] {
	return &Map[K, V]{registry: registry, cells: make(map[K]*cell[K, V])}
}

// Get returns the newest value of key.
func (m *Map[K, V]) Get(key K) (V, bool) {
	if c := m.cells[key]; c != nil && c.present {
		return c.value, true
	}
	var zero V
	return zero, false
}

// Has reports whether key is in the newest state.
func (m *Map[K, V]) Has(key K) bool {
	c := m.cells[key]
	return c != nil && c.present
}

// GetCommitted returns the value of key in the committed state.
func (m *Map[K, V]) GetCommitted(key K) (V, bool) {
	if c := m.cells[key]; c != nil {
		if v := c.at(m.registry.committedEpoch()); v != nil && v.present {
			return v.value, true
		}
	}
	var zero V
	return zero, false
}

// Set puts value under key into the newest state.
func (m *Map[K, V]) Set(key K, value V) {
	c := m.cells[key]
	m.room = max(m.room, m.size+1)
	if c == nil {
		m.arrivals++
		c = &cell[K, V]{owner: m, key: key, arrival: m.arrivals, version: version[V]{epoch: m.registry.epoch, value: value, present: true}}
		m.cells[key] = c
		m.size++
		m.registry.touched(c)
		return
	}
	if !c.present {
		m.size++
		m.arrivals++
		c.arrival = m.arrivals
	}
	c.change(value, true)
}

// Delete takes key out of the newest state and reports whether it was there.
func (m *Map[K, V]) Delete(key K) bool {
	c := m.cells[key]
	if c == nil || !c.present {
		return false
	}
	m.size--
	var zero V
	c.change(zero, false)
	return true
}

// Arrival orders the keys of the map by when they came into it. It is soft: a
// revert does not take it back.
func (m *Map[K, V]) Arrival(key K) uint64 {
	if c := m.cells[key]; c != nil {
		return c.arrival
	}
	return 0
}

// Room is the largest number of keys that a Set has made sure there is room for:
// one more than the map held before. Neither a Delete nor a revert lessens it.
func (m *Map[K, V]) Room() int { return m.room }

// Len is the number of keys in the newest state.
func (m *Map[K, V]) Len() int { return m.size }

// All iterates over the newest state in no particular order. Entries may be
// set and deleted during the iteration.
func (m *Map[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for key, c := range m.cells {
			if c.present && !yield(key, c.value) {
				return
			}
		}
	}
}

// AllCommitted iterates over the committed state in no particular order.
func (m *Map[K, V]) AllCommitted() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		epoch := m.registry.committedEpoch()
		for key, c := range m.cells {
			if v := c.at(epoch); v != nil && v.present && !yield(key, v.value) {
				return
			}
		}
	}
}

// change makes (value, present) the cell's newest version.
func (c *cell[K, V]) change(value V, present bool) {
	epoch := c.owner.registry.epoch
	if c.epoch != epoch {
		older := c.version
		c.version = version[V]{epoch: epoch, older: &older}
		c.owner.registry.touched(c)
	}
	c.value, c.present = value, present
}

func (c *cell[K, V]) trim(epoch uint64) {
	c.version.trim(epoch)
	if c.epoch <= epoch && !c.present {
		c.remove()
	}
}

func (c *cell[K, V]) revert(epoch uint64) {
	if c.epoch <= epoch {
		return
	}
	was := c.present
	v := c.at(epoch)
	if v == nil {
		if was {
			c.owner.size--
		}
		// An empty version below every epoch: further reverts and trims of
		// this cell find nothing to do.
		c.version = version[V]{}
		c.remove()
		return
	}
	c.version = *v
	switch {
	case was && !c.present:
		c.owner.size--
	case !was && c.present:
		c.owner.size++
	}
}

// remove takes the cell out of its map, unless another took its place.
func (c *cell[K, V]) remove() {
	if c.owner.cells[c.key] == c {
		delete(c.owner.cells, c.key)
	}
}
