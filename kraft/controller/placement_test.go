package controller

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

func TestPlacementPutsReplicasOnDifferentRacks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		racks := rapid.IntRange(1, 5).Draw(t, "racks")
		perRack := rapid.IntRange(1, 4).Draw(t, "perRack")
		factor := rapid.IntRange(1, racks*perRack).Draw(t, "factor")
		var brokers []usableBroker
		for i := range racks * perRack {
			rack := fmt.Sprintf("r%d", i%racks)
			brokers = append(brokers, usableBroker{id: int32(i), rack: &rack})
		}
		placed, f := newPlacer(seeded(rapid.Uint64().Draw(t, "seed")), brokers).place(40, int16(factor))
		if f != nil {
			t.Fatal(f)
		}
		for _, replicas := range placed {
			if len(dedup(replicas)) != factor {
				t.Fatalf("replicas %v, want %d different ones", replicas, factor)
			}
			seen := make(map[int]int)
			for _, r := range replicas {
				seen[int(r)%racks]++
			}
			for rack, n := range seen {
				if limit := (factor + racks - 1) / racks; n > limit {
					t.Fatalf("replicas %v: %d of them on rack %d of %d, at most %d are needed", replicas, n, rack, racks, limit)
				}
			}
		}
	})
}

func TestPlacementSpreadsLeadersEvenly(t *testing.T) {
	var brokers []usableBroker
	for i := range 4 {
		brokers = append(brokers, usableBroker{id: int32(i)})
	}
	placed, f := newPlacer(seeded(7), brokers).place(400, 2)
	if f != nil {
		t.Fatal(f)
	}
	leaders, followers := map[int32]int{}, map[int32]int{}
	for _, r := range placed {
		leaders[r[0]]++
		followers[r[1]]++
	}
	for i := range int32(4) {
		if leaders[i] != 100 || followers[i] != 100 {
			t.Errorf("broker %d leads %d and follows %d of 400 partitions, want 100 each", i, leaders[i], followers[i])
		}
	}
}

func TestFencedBrokersLeadNothing(t *testing.T) {
	brokers := []usableBroker{{id: 1, fenced: true}, {id: 2}, {id: 3, fenced: true}}
	placed, f := newPlacer(seeded(1), brokers).place(20, 3)
	if f != nil {
		t.Fatal(f)
	}
	for _, r := range placed {
		if r[0] != 2 || !slices.Equal(slices.Sorted(slices.Values(r)), []int32{1, 2, 3}) {
			t.Fatalf("replicas %v", r)
		}
	}
}

func TestPlacementTakesUnfencedBrokersFirst(t *testing.T) {
	brokers := []usableBroker{{id: 1, fenced: true}, {id: 2}, {id: 3}}
	placed, _ := newPlacer(seeded(1), brokers).place(20, 2)
	for _, r := range placed {
		if slices.Contains(r, 1) {
			t.Fatalf("replicas %v include the fenced broker although two others live", r)
		}
	}
}

func TestImpossiblePlacementsAreRefused(t *testing.T) {
	one := []usableBroker{{id: 1}}
	tests := []struct {
		brokers []usableBroker
		factor  int16
		want    string
	}{
		{one, 0, "Invalid replication factor 0: the replication factor must be positive."},
		{one, -1, "Invalid replication factor -1: the replication factor must be positive."},
		{nil, 1, "All brokers are currently fenced, or have all their log directories cordoned."},
		{[]usableBroker{{id: 1, fenced: true}}, 1, "All brokers are currently fenced, or have all their log directories cordoned."},
		{one, 2, "The target replication factor of 2 cannot be reached because only 1 broker(s) are registered or some " +
			"brokers have all their log directories cordoned."},
	}
	for _, tt := range tests {
		_, f := newPlacer(seeded(1), tt.brokers).place(1, tt.factor)
		if f == nil || f.Error() != tt.want {
			t.Errorf("factor %d on %d brokers: got %v, want %q", tt.factor, len(tt.brokers), f, tt.want)
		}
	}
}
