package main

import (
	"runtime"
	"runtime/debug"
	"testing"
)

func TestAQuietBrokerWithMuchGarbageIsWasteful(t *testing.T) {
	before := memoryUse{allocatedBytes: 100 << 20}
	for _, c := range []struct {
		allocatedBytes, spareBytes uint64
		want                       bool
	}{
		{0, spareBytes + 1, true},
		{0, spareBytes, false},               // not worth a collection
		{quietBytes, 10 * spareBytes, false}, // at work: it will want it again
	} {
		now := memoryUse{allocatedBytes: before.allocatedBytes + c.allocatedBytes, spareBytes: c.spareBytes}
		if got := now.wasteful(before); got != c.want {
			t.Errorf("%d bytes allocated, %d spare: wasteful is %v", c.allocatedBytes, c.spareBytes, got)
		}
	}
}

func TestSpareMemoryIsGarbageAndWhatIsFreeUntilItIsGivenBack(t *testing.T) {
	const size = 64 << 20
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // nothing is collected but by us
	debug.FreeOSMemory()
	before := readMemoryUse()
	b := make([]byte, size)
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
	}
	runtime.KeepAlive(b)
	dirty := readMemoryUse()
	if dirty.allocatedBytes < before.allocatedBytes+size || dirty.spareBytes < before.spareBytes+size-size/100 { // some may have been spare before
		t.Errorf("%+v after %d bytes of garbage, %+v before", dirty, size, before)
	}
	debug.FreeOSMemory()
	if clean := readMemoryUse(); clean.spareBytes > spareBytes {
		t.Errorf("%+v after all was given back", clean)
	}
}
