package image

import (
	"cmp"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The tree must behave like a map that is sorted when read, and its copies must not change.
func TestTreeAgreesWithSortedMapAndSnapshotsStayAsTheyWere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr := newTree[int, int](cmp.Compare[int])
		twin := map[int]int{}
		e := new(edit)
		type snapshot struct {
			tree tree[int, int]
			twin map[int]int
		}
		var snapshots []snapshot
		limit := rapid.SampledFrom([]int{8, 100, 3000}).Draw(t, "keys")
		seed := rapid.Uint64().Draw(t, "seed")
		next := func(n int) int {
			seed = seed*6364136223846793005 + 1442695040888963407
			return int(seed>>33) % n
		}
		for range rapid.IntRange(0, 3000).Draw(t, "steps") {
			k := next(limit)
			switch next(10) {
			case 0, 1, 2, 3:
				_, had := twin[k]
				delete(twin, k)
				if tr.remove(e, k) != had {
					t.Fatalf("remove %d", k)
				}
			case 4:
				if next(20) == 0 {
					snapshots = append(snapshots, snapshot{tr, maps.Clone(twin)})
					e = new(edit)
				}
			default:
				v := next(1000)
				twin[k] = v
				tr.set(e, k, v)
			}
		}
		for _, s := range append(snapshots, snapshot{tr, twin}) {
			sameAsMap(t, &s.tree, s.twin, next(limit))
		}
	})
}

func sameAsMap(t *rapid.T, tr *tree[int, int], twin map[int]int, from int) {
	keys := slices.Sorted(maps.Keys(twin))
	if tr.len() != len(keys) {
		t.Fatalf("len %d, want %d", tr.len(), len(keys))
	}
	var got []int
	for k, v := range tr.all() {
		got = append(got, k)
		if twin[k] != v {
			t.Fatalf("all: %d is %d, want %d", k, v, twin[k])
		}
	}
	if !slices.Equal(got, keys) {
		t.Fatalf("keys %v, want %v", got, keys)
	}
	i, _ := slices.BinarySearch(keys, from)
	got = nil
	for k := range tr.from(from) {
		got = append(got, k)
	}
	if !slices.Equal(got, keys[i:]) {
		t.Fatalf("from %d: %v, want %v", from, got, keys[i:])
	}
	for k, v := range twin {
		if found, ok := tr.get(k); !ok || found != v {
			t.Fatalf("get %d: %d %v, want %d", k, found, ok, v)
		}
	}
	if _, ok := tr.get(-1); ok {
		t.Fatal("a key that was never set is there")
	}
	checkNode(t, tr.root, true)
}

// checkNode checks what node's comment promises.
func checkNode(t *rapid.T, n *node[int, int], root bool) {
	if n == nil {
		return
	}
	if len(n.keys) == 0 || len(n.keys) > maxNode || root && len(n.children) == 1 {
		t.Fatalf("node with %d keys", len(n.keys))
	}
	for i, c := range n.children {
		if c.keys[0] != n.keys[i] {
			t.Fatalf("key %d above child that begins with %d", n.keys[i], c.keys[0])
		}
		checkNode(t, c, false)
	}
}

func TestTreeIterationStopsWhenTheConsumerDoes(t *testing.T) {
	tr := newTree[int, int](cmp.Compare[int])
	e := new(edit)
	for i := range 500 {
		tr.set(e, i, i)
	}
	n := 0
	for range tr.all() {
		if n++; n == 40 {
			break
		}
	}
	for range tr.from(100) {
		if n++; n == 80 {
			break
		}
	}
	if n != 80 {
		t.Fatalf("%d steps", n)
	}
}

func TestSettingOneKeyCopiesOnlyItsPath(t *testing.T) {
	tr := newTree[int, int](cmp.Compare[int])
	e := new(edit)
	for i := range 100_000 {
		tr.set(e, i, i)
	}
	perSet := testing.AllocsPerRun(100, func() {
		c := tr
		c.set(new(edit), 50_000, 1)
	})
	// A node is three allocations; the tree is four levels high.
	if perSet > 20 {
		t.Errorf("%v allocations", perSet)
	}
	c := tr
	e = new(edit)
	c.set(e, 50_000, 1)
	if again := testing.AllocsPerRun(100, func() { c.set(e, 50_000, 2) }); again != 0 {
		t.Errorf("%v allocations for a second change by the same delta", again)
	}
}
