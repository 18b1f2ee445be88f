package controller

import (
	"slices"
	"strings"
	"testing"
)

func TestCollisionVariantsAreAllSpellings(t *testing.T) {
	got, ok := collisionVariants("a.b_c")
	slices.Sort(got)
	want := []string{"a.b.c", "a.b_c", "a_b.c", "a_b_c"}
	if !ok || !slices.Equal(got, want) {
		t.Errorf("got %v, %v", got, ok)
	}
	if _, ok := collisionVariants(strings.Repeat(".x", 9)); ok {
		t.Error("512 variants are looked up instead of scanning")
	}
}

func TestCollisionIsFoundByScanningWhenThereAreTooManyVariants(t *testing.T) {
	w := newWorld()
	w.start(1)
	long := strings.Repeat("x.", 12) + "y"
	w.do(createTopic(long, 1, 1))
	other := strings.Repeat("x_", 12) + "y"
	name, ok := w.decider().collidingTopic(other)
	if !ok || name != long {
		t.Errorf("got %q, %v", name, ok)
	}
	if _, ok := w.decider().collidingTopic("x" + other); ok {
		t.Error("a name of another length collides")
	}
}
