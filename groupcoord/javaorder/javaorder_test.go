package javaorder_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"gregor/groupcoord/javaorder"
)

// key is the i-th key of the tables of testdata/java.txt.
func key(i int) string {
	if i%2 == 0 {
		return fmt.Sprintf("group-%d", i)
	}
	return fmt.Sprintf("consumer-%d-é", i*i)
}

// table is what decides the order of a table.
type table struct {
	arrivals map[string]uint64
	next     uint64
	peak     int
}

func (t *table) put(k string, replaceGrows bool) {
	_, there := t.arrivals[k]
	if !there {
		t.next++
		t.arrivals[k] = t.next
	}
	n := len(t.arrivals)
	if there && replaceGrows {
		n++
	}
	t.peak = max(t.peak, n)
}

func (t *table) show(order func([]javaorder.Entry[string], int)) string {
	var entries []javaorder.Entry[string]
	for k, a := range t.arrivals {
		entries = append(entries, javaorder.Entry[string]{Hash: javaorder.String(k), Arrival: a, Value: k})
	}
	order(entries, t.peak)
	var out []string
	for _, e := range entries {
		out = append(out, e.Value)
	}
	return strings.Join(out, ",")
}

// play fills a table with n keys, as what is read from the file was: all of them, then without some that partly come
// again, then each one replaced.
func play(n int, order func([]javaorder.Entry[string], int)) (filled, again, updated string) {
	t := &table{arrivals: map[string]uint64{}}
	for i := range n {
		t.put(key(i), true)
	}
	filled = t.show(order)
	for i := 0; i < n; i += 3 {
		delete(t.arrivals, key(i))
	}
	for i := 0; i < n; i += 6 {
		t.put(key(i), true)
	}
	again = t.show(order)
	for k := range t.arrivals {
		t.put(k, true)
	}
	return filled, again, t.show(order)
}

func TestOrderIsThatOfTheTablesOfKafka(t *testing.T) {
	// The file is the output of a program that filled Java's and Kafka 4.4.0's tables.
	text, err := os.ReadFile("testdata/java.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var kind string
		var n int
		fields := strings.SplitN(strings.TrimSpace(line), " ", 3)
		kind = fields[0]
		if _, err := fmt.Sscan(fields[1], &n); err != nil {
			t.Fatal(line)
		}
		var got string
		switch kind {
		case "hash":
			got, _, _ = play(n, javaorder.HashMap[string])
		case "hash-again":
			_, got, _ = play(n, javaorder.HashMap[string])
		case "timeline":
			got, _, _ = play(n, javaorder.Timeline[string])
		case "timeline-again":
			_, got, _ = play(n, javaorder.Timeline[string])
		case "timeline-updated":
			_, _, got = play(n, javaorder.Timeline[string])
		case "concurrent":
			got = concurrent(n)
		case "string":
			if h := javaorder.String("grüppe 😀"); int(h) != n {
				t.Errorf("hash %d, want %d", h, n)
			}
			continue
		}
		if got != fields[2] {
			t.Errorf("%s of %d:\n got %s\nwant %s", kind, n, got, fields[2])
		}
	}
}

func concurrent(n int) string {
	var entries []javaorder.Entry[int]
	for p := range n {
		entries = append(entries, javaorder.Entry[int]{Hash: javaorder.TopicPartition("__consumer_offsets", int32(p)), Value: p})
	}
	javaorder.ConcurrentHashMap(entries, n)
	var out []string
	for _, e := range entries {
		out = append(out, strconv.Itoa(e.Value))
	}
	return strings.Join(out, ",")
}
