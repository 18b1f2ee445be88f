package quorum

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gregor/internal/invariants"
	"gregor/protocol/record"
	"gregor/storage/vfs"
)

// flipTries is how many damaged directories are opened; fewer with assertions and the race detector.
func flipTries() int {
	if invariants.Enabled {
		return 200
	}
	return 2000
}

// TestFlippedBitsNeverGiveAWrongRecord damages metadata logs of Kafka at random places of their files. The node refuses
// to start with an error that names the file, or it goes on with batches and topics that were there.
func TestFlippedBitsNeverGiveAWrongRecord(t *testing.T) {
	kept := map[string][]byte{}
	topics := map[string][]string{}
	for _, dir := range []string{"metadata", "plain"} {
		raw, err := os.ReadFile(filepath.Join("testdata", "kafka", dir, "00000000000000000000.log"))
		if err != nil {
			t.Fatal(err)
		}
		kept[dir] = raw
		n, problem, err := startFlipped(t, dir, nil)
		if err != nil || problem != "" {
			t.Fatal(err, problem)
		}
		topics[dir] = n.events.topics
	}
	refused, started := 0, 0
	for try := range flipTries() {
		r := rand.New(rand.NewPCG(uint64(try), 5))
		dir := []string{"metadata", "plain"}[r.IntN(2)]
		var flipped string
		n, problem, err := startFlipped(t, dir, func(n *testNode) { flipped = flipOne(t, n, r) })
		file, _, _ := strings.Cut(flipped, " ")
		switch {
		case problem != "":
		case err != nil:
			refused++
			if !strings.Contains(err.Error(), file) {
				problem = "the error does not name the file: " + err.Error()
			}
		default:
			started++
			problem = compareFlipped(t, n, kept[dir], topics[dir])
		}
		if problem != "" {
			t.Errorf("seed %d: %s, %s: %s", try, dir, flipped, problem)
		}
	}
	if refused == 0 || started == 0 {
		t.Errorf("%d refused, %d started", refused, started)
	}
}

// startFlipped starts a node on a damaged copy of a directory.
func startFlipped(t *testing.T, dir string, damage func(n *testNode)) (n *testNode, problem string, err error) {
	t.Helper()
	defer func() {
		if p := recover(); p != nil {
			problem = fmt.Sprintf("panic: %v", p)
		}
	}()
	level, static := int16(1), []int32(nil)
	if dir == "plain" {
		level, static = 0, []int32{1}
	}
	c := newCluster(t, level)
	n = c.takeOver(t, 1, "testdata/kafka/"+dir, static...)
	if damage != nil {
		damage(n)
	}
	return n, "", c.start(1)
}

// flipOne flips one to three bits of a file.
func flipOne(t *testing.T, n *testNode, r *rand.Rand) string {
	t.Helper()
	entries, err := n.fs.ReadDir(n.opts.Dir)
	if err != nil {
		t.Fatal(err)
	}
	entries = slices.DeleteFunc(entries, func(e os.DirEntry) bool { return e.IsDir() || e.Name() == "meta.properties" })
	name := entries[r.IntN(len(entries))].Name()
	b, err := vfs.ReadFile(n.fs, n.opts.Dir+"/"+name)
	if err != nil {
		t.Fatal(err)
	}
	b = bytes.Clone(b)
	what := name
	for range 1 + r.IntN(3) {
		bit := r.IntN(8 * len(b))
		b[bit/8] ^= 1 << (bit % 8)
		what += fmt.Sprintf(" bit %d", bit)
	}
	if err := vfs.WriteFile(n.fs, n.opts.Dir+"/"+name, b); err != nil {
		t.Fatal(err)
	}
	return what
}

// compareFlipped compares what a node has with what it had before the damage.
func compareFlipped(t *testing.T, n *testNode, kept []byte, topics []string) string {
	t.Helper()
	var before []record.Batch
	for b := range record.Validated(kept) {
		before = append(before, b)
	}
	const covered = 21 // what the CRC covers
	end := before[len(before)-1].NextOffset()
	for b, err := range record.Batches(readLog(t, n, n.machine.storage.log.State().LogStartOffset)) {
		if err != nil {
			return err.Error()
		}
		if b.BaseOffset() >= end || b.IsControl() {
			continue // of the new epoch
		}
		if !b.CRCValid() {
			return fmt.Sprintf("the batch at %d is not what its CRC says", b.BaseOffset())
		}
		if !slices.ContainsFunc(before, func(x record.Batch) bool { return len(x) == len(b) && bytes.Equal(x[covered:], b[covered:]) }) {
			return fmt.Sprintf("the batch at %d was never written", b.BaseOffset())
		}
	}
	for _, topic := range n.events.topics {
		if !slices.Contains(topics, topic) {
			return fmt.Sprintf("the topic %q was never made", topic)
		}
	}
	return ""
}
