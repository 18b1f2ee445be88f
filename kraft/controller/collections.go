package controller

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
)

// splitDuplicates gives the items that are in the list once and those that are in it more often, each in order of
// first appearance.
func splitDuplicates[T comparable](items []T) (once, twice []T) {
	count := make(map[T]int, len(items))
	for _, x := range items {
		count[x]++
	}
	for _, x := range dedup(items) {
		if count[x] == 1 {
			once = append(once, x)
		} else {
			twice = append(twice, x)
		}
	}
	return once, twice
}

// dedup gives each item once, in order of first appearance.
func dedup[T comparable](items []T) []T {
	seen := make(map[T]bool, len(items))
	var out []T
	for _, x := range items {
		if !seen[x] {
			seen[x] = true
			out = append(out, x)
		}
	}
	return out
}

// sortedKeys gives the keys of a map in order, so that decisions do not depend on map order.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	return slices.Sorted(maps.Keys(m))
}

func itoa[T int16 | int32](n T) string { return strconv.Itoa(int(n)) }
