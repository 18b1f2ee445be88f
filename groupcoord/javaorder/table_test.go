package javaorder_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"gregor/groupcoord/javaorder"
)

// The file is the output of a program that filled Java 17's tables with numbers: n multiples of a stride, downwards.
// No slot becomes a tree. "sized" put 9, 8, 18, 4 and 3 into a table made with that argument, removed 8 and put 24.
func TestTablesGrowAsJavas(t *testing.T) {
	text, err := os.ReadFile("testdata/tables.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var kind, want string
		var stride, n int32
		if _, err := fmt.Sscan(line, &kind, &stride, &n, &want); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if got := fill(kind, stride, n); got != want {
			t.Errorf("%s of %d multiples of %d:\n got %s\nwant %s", kind, n, stride, got, want)
		}
	}
}

func fill(kind string, stride, n int32) string {
	var table *javaorder.Table[int32]
	switch kind {
	case "put":
		table = javaorder.NewTable[int32](16)
		for i := n - 1; i >= 0; i-- {
			table.Put(i*stride, i*stride)
		}
	case "compute":
		table = javaorder.NewTable[int32](javaorder.Capacity(2))
		for i := n - 1; i >= 0; i-- {
			table.Touch()
			table.Compute(i*stride, i*stride)
		}
	case "sized":
		table = javaorder.NewTable[int32](javaorder.Capacity(int(n)))
		for _, i := range []int32{9, 8, 18, 4, 3} {
			table.Put(i, i)
		}
		table.Delete(func(i int32) bool { return i == 8 })
		table.Put(24, 24)
	case "copy":
		var entries []javaorder.Entry[int32]
		for i := n - 1; i >= 0; i-- {
			entries = append(entries, javaorder.Entry[int32]{Hash: i * stride, Value: i * stride})
		}
		javaorder.Copied(entries, javaorder.CopyCapacity(len(entries)))
		return show(entries)
	}
	return show(table.Entries())
}

func show(entries []javaorder.Entry[int32]) string {
	var out []string
	for _, e := range entries {
		out = append(out, strconv.Itoa(int(e.Value)))
	}
	return strings.Join(out, ",")
}

func TestHashOfAnIDIsKafkas(t *testing.T) {
	// Both halves are mixed, then the halves of that.
	for id, want := range map[[16]byte]int32{
		{}:                         0,
		{3: 1}:                     1,
		{7: 2}:                     2,
		{0: 0x80}:                  -1 << 31,
		{7: 1, 15: 1, 3: 4}:        4,
		{3: 1, 7: 2, 11: 4, 15: 8}: 15,
	} {
		if got := javaorder.UUID(id); got != want {
			t.Errorf("%x: %d, want %d", id, got, want)
		}
	}
}
