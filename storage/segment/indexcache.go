package segment

import "sync"

// IndexCache bounds the memory that indexes of sealed segments take: they are read whole on first use, and ones
// that have not been used for a while are dropped when the bound is reached. The index of the segment being
// written is not counted.
type IndexCache struct {
	maxBytes int

	mu    sync.Mutex
	ring  []loadedIndex // the hand goes round and spares the used ones once
	at    map[*index]int
	total int
	hand  int
}

type loadedIndex struct {
	x    *index
	view *[]byte // as loaded; a writer has published another one since if it differs
}

// NewIndexCache makes a cache of about maxBytes.
func NewIndexCache(maxBytes int) *IndexCache {
	return &IndexCache{maxBytes: maxBytes, at: map[*index]int{}}
}

// Bytes is the memory held now.
func (c *IndexCache) Bytes() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.total
}

// add enters a freshly loaded index and drops others until the bound holds.
func (c *IndexCache) add(x *index) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i, ok := c.at[x]; ok {
		c.forgetLocked(i)
	}
	view := x.view.Load()
	c.at[x] = len(c.ring)
	c.ring = append(c.ring, loadedIndex{x: x, view: view})
	c.total += len(*view)
	for looks := 2 * len(c.ring); c.total > c.maxBytes && looks > 0; looks-- {
		if c.hand >= len(c.ring) {
			c.hand = 0
		}
		victim := c.ring[c.hand]
		if victim.x == x || victim.x.used.Swap(false) {
			c.hand++
			continue
		}
		c.forgetLocked(c.hand)
		victim.x.view.CompareAndSwap(victim.view, nil)
	}
}

func (c *IndexCache) forgetLocked(i int) {
	gone := c.ring[i]
	c.total -= len(*gone.view)
	delete(c.at, gone.x)
	last := len(c.ring) - 1
	if i != last {
		c.ring[i] = c.ring[last]
		c.at[c.ring[i].x] = i
	}
	c.ring[last] = loadedIndex{}
	c.ring = c.ring[:last]
}

// remove forgets an index that is about to be written or closed; its entries stay in memory.
func (c *IndexCache) remove(x *index) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i, ok := c.at[x]; ok {
		c.forgetLocked(i)
	}
}
