package timeline

import (
	"maps"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// fataler is what *testing.T and *rapid.T have in common.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

func equal(t fataler, want, got any) {
	t.Helper()
	if !reflect.DeepEqual(want, got) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

func panics(t *testing.T, call func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Fatal("no panic")
		}
	}()
	call()
}

// twin is the dumb version of a registry with one map and one value: a full
// copy for each snapshot.
type twin struct {
	newest    map[int]int
	value     int
	snapshots []twinState
}

type twinState struct {
	offset int64
	m      map[int]int
	value  int
}

func (w *twin) snapshot(offset int64) {
	state := twinState{offset, maps.Clone(w.newest), w.value}
	if last := len(w.snapshots) - 1; w.snapshots[last].offset == offset {
		w.snapshots[last] = state
		return
	}
	w.snapshots = append(w.snapshots, state)
}

func (w *twin) commit(offset int64) {
	for len(w.snapshots) > 1 && w.snapshots[1].offset <= offset {
		w.snapshots = w.snapshots[1:]
	}
}

func (w *twin) revert(offset int64) {
	for len(w.snapshots) > 1 && w.snapshots[len(w.snapshots)-1].offset > offset {
		w.snapshots = w.snapshots[:len(w.snapshots)-1]
	}
	last := w.snapshots[len(w.snapshots)-1]
	w.newest, w.value = maps.Clone(last.m), last.value
}

func TestTimelineAgreesWithFullCopies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := NewRegistry(0)
		m, v := NewMap[int, int](r), NewValue(r, -1)
		w := &twin{newest: map[int]int{}, value: -1, snapshots: []twinState{{0, map[int]int{}, -1}}}
		end := int64(0)
		key, val := rapid.IntRange(0, 6), rapid.IntRange(0, 1000)
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				k, x := key.Draw(t, "key"), val.Draw(t, "value")
				m.Set(k, x)
				w.newest[k] = x
			},
			"delete": func(t *rapid.T) {
				k := key.Draw(t, "key")
				_, had := w.newest[k]
				equal(t, had, m.Delete(k))
				delete(w.newest, k)
			},
			"value": func(t *rapid.T) {
				w.value = val.Draw(t, "value")
				v.Set(w.value)
			},
			"snapshot": func(t *rapid.T) {
				end += int64(rapid.IntRange(0, 3).Draw(t, "records"))
				r.Snapshot(end)
				w.snapshot(end)
			},
			"commit": func(t *rapid.T) {
				offset := rapid.Int64Range(0, end).Draw(t, "offset")
				r.Commit(offset)
				w.commit(offset)
			},
			"revert": func(t *rapid.T) {
				offset := rapid.Int64Range(r.CommittedOffset(), end).Draw(t, "offset")
				r.RevertTo(offset)
				w.revert(offset)
				end = r.LastOffset()
			},
			"": func(t *rapid.T) {
				committed := w.snapshots[0]
				equal(t, w.newest, maps.Collect(m.All()))
				equal(t, committed.m, maps.Collect(m.AllCommitted()))
				equal(t, len(w.newest), m.Len())
				equal(t, w.value, v.Get())
				equal(t, committed.value, v.GetCommitted())
				equal(t, committed.offset, r.CommittedOffset())
				equal(t, w.snapshots[len(w.snapshots)-1].offset, r.LastOffset())
				for k := range 7 {
					got, ok := m.GetCommitted(k)
					want, has := committed.m[k]
					equal(t, has, ok)
					equal(t, want, got)
					_, has = w.newest[k]
					equal(t, has, m.Has(k))
				}
			},
		})
		// Once all is committed nothing of the past is held.
		r.Snapshot(end + 1)
		r.Commit(end + 1)
		equal(t, 0, len(r.dirty))
		equal(t, m.Len(), len(m.cells))
		for _, c := range m.cells {
			equal(t, true, c.older == nil)
		}
		equal(t, true, v.older == nil)
	})
}

func TestNestedMapOfARevertedKeyIsGone(t *testing.T) {
	r := NewRegistry(10)
	outer := NewMap[string, *Map[string, int]](r)
	inner := NewMap[string, int](r)
	outer.Set("g", inner)
	inner.Set("t", 1)
	r.Snapshot(11)
	r.Commit(11)

	outer.Delete("g")
	inner.Delete("t")
	again := NewMap[string, int](r)
	outer.Set("g", again)
	again.Set("t", 2)
	r.Snapshot(12)
	committed, ok := outer.GetCommitted("g")
	equal(t, true, ok)
	got, ok := committed.GetCommitted("t")
	equal(t, true, ok)
	equal(t, 1, got)

	r.RevertTo(11)
	newest, ok := outer.Get("g")
	equal(t, true, ok)
	equal(t, true, inner == newest)
	got, ok = newest.Get("t")
	equal(t, true, ok)
	equal(t, 1, got)
}

func TestRevertOfNothingKeepsTheSnapshot(t *testing.T) {
	r := NewRegistry(0)
	m := NewMap[string, int](r)
	m.Set("a", 1)
	equal(t, true, r.Changed())
	r.Snapshot(5)
	equal(t, false, r.Changed())
	r.Revert()
	equal(t, true, m.Has("a"))
	equal(t, int64(5), r.LastOffset())
}

func TestProgrammerErrorsPanic(t *testing.T) {
	r := NewRegistry(5)
	panics(t, func() { r.Snapshot(4) })
	panics(t, func() { r.RevertTo(4) })
}

func TestIterationEndsEarlyWhenAsked(t *testing.T) {
	r := NewRegistry(0)
	m := NewMap[int, int](r)
	for i := range 10 {
		m.Set(i, i)
	}
	r.Snapshot(1)
	r.Commit(1)
	n := 0
	for range m.All() {
		n++
		break
	}
	for range m.AllCommitted() {
		n++
		break
	}
	equal(t, 2, n)
}

func BenchmarkSetSnapshotCommitOfAMillionKeys(b *testing.B) {
	r := NewRegistry(0)
	m := NewMap[int, int64](r)
	for i := range 1_000_000 {
		m.Set(i, 0)
	}
	r.Snapshot(1)
	r.Commit(1)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		m.Set(i%1_000_000, int64(i))
		r.Snapshot(int64(i + 2))
		r.Commit(int64(i + 2))
	}
}
