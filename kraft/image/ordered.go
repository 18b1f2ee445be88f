package image

import (
	"iter"
	"slices"
)

// edit is the right to change the nodes that carry it in place. A delta has one; giving it up freezes the nodes.
type edit struct{ _ byte }

// maxNode is the largest number of keys in a node, and minNode the number below which a node joins its neighbor.
const (
	maxNode = 32
	minNode = maxNode / 4
)

// tree is an ordered map, a B+ tree. A copy of a tree is a snapshot: set and remove copy every node on their way that
// does not carry the given edit.
type tree[K, V any] struct {
	root *node[K, V]
	size int
	cmp  func(a, b K) int
}

// node is a leaf (values, no children) or an inner node, where keys[i] is at most every key below children[i] and
// above every key below children[i-1].
type node[K, V any] struct {
	owner    *edit
	keys     []K
	values   []V
	children []*node[K, V]
}

func newTree[K, V any](cmp func(a, b K) int) tree[K, V] { return tree[K, V]{cmp: cmp} }

func (t *tree[K, V]) len() int { return t.size }

// search returns the first index whose key is not less than k, and whether it equals k.
func (t *tree[K, V]) search(keys []K, k K) (int, bool) {
	low, high := 0, len(keys)
	for low < high {
		mid := int(uint(low+high) >> 1)
		switch c := t.cmp(keys[mid], k); {
		case c == 0:
			return mid, true
		case c < 0:
			low = mid + 1
		default:
			high = mid
		}
	}
	return low, false
}

// child returns the index of the child in which k belongs.
func (t *tree[K, V]) child(n *node[K, V], k K) int {
	i, found := t.search(n.keys, k)
	if found || i == 0 {
		return i
	}
	return i - 1
}

func (t *tree[K, V]) get(k K) (v V, ok bool) {
	n := t.root
	if n == nil {
		return v, false
	}
	for n.children != nil {
		n = n.children[t.child(n, k)]
	}
	i, found := t.search(n.keys, k)
	if !found {
		return v, false
	}
	return n.values[i], true
}

// mutable returns n if it carries e, else a copy that does.
func (n *node[K, V]) mutable(e *edit) *node[K, V] {
	if n.owner == e {
		return n
	}
	c := &node[K, V]{owner: e, keys: append(make([]K, 0, len(n.keys)+1), n.keys...)}
	if n.children != nil {
		c.children = append(make([]*node[K, V], 0, len(n.children)+1), n.children...)
	} else {
		c.values = append(make([]V, 0, len(n.values)+1), n.values...)
	}
	return c
}

func (t *tree[K, V]) set(e *edit, k K, v V) {
	if t.root == nil {
		t.root = &node[K, V]{owner: e}
	}
	left, right, added := t.insert(t.root, e, k, v)
	if right != nil {
		left = &node[K, V]{owner: e, keys: []K{left.keys[0], right.keys[0]}, children: []*node[K, V]{left, right}}
	}
	t.root = left
	if added {
		t.size++
	}
}

// insert returns the changed node and, if it had to be split, its new right neighbor.
func (t *tree[K, V]) insert(n *node[K, V], e *edit, k K, v V) (left, right *node[K, V], added bool) {
	n = n.mutable(e)
	if n.children == nil {
		i, found := t.search(n.keys, k)
		if found {
			n.keys[i], n.values[i] = k, v
			return n, nil, false
		}
		n.keys = slices.Insert(n.keys, i, k)
		n.values = slices.Insert(n.values, i, v)
		added = true
	} else {
		i := t.child(n, k)
		var split *node[K, V]
		n.children[i], split, added = t.insert(n.children[i], e, k, v)
		n.keys[i] = n.children[i].keys[0]
		if split != nil {
			n.keys = slices.Insert(n.keys, i+1, split.keys[0])
			n.children = slices.Insert(n.children, i+1, split)
		}
	}
	if len(n.keys) <= maxNode {
		return n, nil, added
	}
	return n, n.split(e), added
}

// split moves the upper half of n to a new node.
func (n *node[K, V]) split(e *edit) *node[K, V] {
	half := len(n.keys) / 2
	right := &node[K, V]{owner: e, keys: slices.Clone(n.keys[half:])}
	n.keys = truncate(n.keys, half)
	if n.children != nil {
		right.children = slices.Clone(n.children[half:])
		n.children = truncate(n.children, half)
	} else {
		right.values = slices.Clone(n.values[half:])
		n.values = truncate(n.values, half)
	}
	return right
}

// truncate drops the elements from n on, so that they can be collected.
func truncate[T any](s []T, n int) []T {
	clear(s[n:])
	return s[:n]
}

// remove removes k and reports whether it was there.
func (t *tree[K, V]) remove(e *edit, k K) bool {
	if _, ok := t.get(k); !ok {
		return false
	}
	t.root = t.delete(t.root, e, k)
	for t.root != nil && len(t.root.children) == 1 {
		t.root = t.root.children[0]
	}
	t.size--
	return true
}

// delete removes k, which is there, and returns the changed node, nil if it is empty.
func (t *tree[K, V]) delete(n *node[K, V], e *edit, k K) *node[K, V] {
	n = n.mutable(e)
	if n.children == nil {
		i, _ := t.search(n.keys, k)
		n.keys = slices.Delete(n.keys, i, i+1)
		n.values = slices.Delete(n.values, i, i+1)
	} else {
		i := t.child(n, k)
		if c := t.delete(n.children[i], e, k); c != nil {
			n.children[i], n.keys[i] = c, c.keys[0]
			n.join(e, i)
		} else {
			n.keys = slices.Delete(n.keys, i, i+1)
			n.children = slices.Delete(n.children, i, i+1)
		}
	}
	if len(n.keys) == 0 {
		return nil
	}
	return n
}

// join merges child i into a neighbor if it has become small and both fit into one node.
func (n *node[K, V]) join(e *edit, i int) {
	if len(n.children[i].keys) >= minNode || len(n.children) < 2 {
		return
	}
	left := max(i-1, 0)
	a, b := n.children[left], n.children[left+1]
	if len(a.keys)+len(b.keys) > maxNode {
		return
	}
	a = a.mutable(e)
	a.keys = append(a.keys, b.keys...)
	if a.children != nil {
		a.children = append(a.children, b.children...)
	} else {
		a.values = append(a.values, b.values...)
	}
	n.children[left] = a
	n.keys = slices.Delete(n.keys, left+1, left+2)
	n.children = slices.Delete(n.children, left+1, left+2)
}

// all iterates in ascending order.
func (t *tree[K, V]) all() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		if t.root != nil {
			t.root.walk(yield)
		}
	}
}

func (n *node[K, V]) walk(yield func(K, V) bool) bool {
	for i := range n.values {
		if !yield(n.keys[i], n.values[i]) {
			return false
		}
	}
	for _, c := range n.children {
		if !c.walk(yield) {
			return false
		}
	}
	return true
}

// from iterates in ascending order over the keys that are not less than k.
func (t *tree[K, V]) from(k K) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		if t.root != nil {
			t.walkFrom(t.root, k, yield)
		}
	}
}

func (t *tree[K, V]) walkFrom(n *node[K, V], k K, yield func(K, V) bool) bool {
	if n.children == nil {
		i, _ := t.search(n.keys, k)
		rest := node[K, V]{keys: n.keys[i:], values: n.values[i:]}
		return rest.walk(yield)
	}
	i := t.child(n, k)
	if !t.walkFrom(n.children[i], k, yield) {
		return false
	}
	for _, c := range n.children[i+1:] {
		if !c.walk(yield) {
			return false
		}
	}
	return true
}

// equalTrees reports whether both have the same keys with equal values.
func equalTrees[K, V any](a, b *tree[K, V], equal func(x, y V) bool) bool {
	if a.root == b.root {
		return true
	}
	if a.size != b.size {
		return false
	}
	next, stop := iter.Pull2(b.all())
	defer stop()
	for k, v := range a.all() {
		k2, v2, ok := next()
		if !ok || a.cmp(k, k2) != 0 || !equal(v, v2) {
			return false
		}
	}
	return true
}

// differences calls changed for every key whose value differs between the trees or that only one of them has.
func differences[K, V any](a, b *tree[K, V], equal func(x, y V) bool, changed func(k K)) {
	if a.root == b.root {
		return
	}
	for k, v := range a.all() {
		if other, ok := b.get(k); !ok || !equal(v, other) {
			changed(k)
		}
	}
	for k := range b.all() {
		if _, ok := a.get(k); !ok {
			changed(k)
		}
	}
}
