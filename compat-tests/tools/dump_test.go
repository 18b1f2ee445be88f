package tools

import (
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gregor/compat-tests/harness"
	"gregor/compat-tests/wire"
)

// complaints are what DumpLogSegments prints when something is wrong with a file.
var complaints = []string{
	"Mismatches in", "isvalid: false", "invalid", "Found timestamp mismatch", "Found out of order timestamp", "Exception", "non-consecutive",
	"Could not", "corrupt", "Error", "unable",
}

func TestDumpLogSegmentsReadsEveryFile(t *testing.T) {
	n := harness.Start(t, harness.Gregor, harness.Options{Properties: harness.Properties{"log.roll.ms": "3600000"}})
	fill(t, n)
	n.Stop(t) // the indexes of a running node have room at their end, in Kafka too
	dumpAll(t, n)
}

// fill makes files of every kind: several segments, all codecs, producers, group offsets, topics that come and go.
func fill(t *testing.T, n *harness.Node) {
	t.Helper()
	rolled := wire.CreateTopic(t, n, "dump-rolled", 1, "segment.bytes", "1048576", "index.interval.bytes", "512")
	value := make([]byte, 10000)
	for i := range 300 {
		wire.MustProduce(t, n.Addr, rolled, 0, wire.NewBatch(wire.None, wire.Record{Timestamp: int64(1000000 + i), Key: []byte("k"), Value: value}))
	}
	codecs := wire.CreateTopic(t, n, "dump-codecs", 2)
	for _, codec := range wire.Codecs {
		wire.MustProduce(t, n.Addr, codecs, 0, wire.NewBatch(codec, wire.Record{Timestamp: 1, Value: []byte("a")}, wire.Record{Timestamp: 2, Value: []byte("b")}))
	}
	on(t, n, "kafka-console-producer", "one\ntwo\nthree\n", "--topic", "dump-idempotent")
	on(t, n, "kafka-console-consumer", "", "--topic", "dump-idempotent", "--group", "dump-group", "--from-beginning", "--max-messages", "3", "--timeout-ms", "20000")
	on(t, n, "kafka-topics", "", "--create", "--topic", "dump-gone")
	on(t, n, "kafka-topics", "", "--delete", "--topic", "dump-gone")
	on(t, n, "kafka-configs", "", "--alter", "--entity-type", "topics", "--entity-name", "dump-codecs", "--add-config", "retention.ms=100000000")
}

// dumpAll runs DumpLogSegments over all files of the log directory and fails on any complaint.
func dumpAll(t *testing.T, n *harness.Node) {
	t.Helper()
	kinds := map[string][]string{}
	err := filepath.WalkDir(n.LogDir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.Contains(path, "-delete") {
			return nil //nolint:nilerr // deleted files go away meanwhile
		}
		kinds[filepath.Ext(path)] = append(kinds[filepath.Ext(path)], path)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	dump := func(files []string, args ...string) {
		t.Helper()
		if len(files) == 0 {
			return
		}
		r := harness.RunTool(t, classes["kafka-dump-log"], "", append([]string{"--files", strings.Join(files, ",")}, args...)...)
		if r.Status != 0 {
			t.Errorf("%v: status %d\n%s", args, r.Status, tail(r.Stdout+r.Stderr))
		}
		for _, c := range complaints {
			if i := strings.Index(r.Stdout+r.Stderr, c); i >= 0 {
				t.Errorf("%v: %q in\n%s", args, c, tail((r.Stdout + r.Stderr)[:min(i+500, len(r.Stdout+r.Stderr))]))
			}
		}
	}
	var metadata, offsets, logs []string
	for _, path := range kinds[".log"] {
		switch {
		case strings.Contains(path, "__cluster_metadata"):
			metadata = append(metadata, path)
		case strings.Contains(path, "__consumer_offsets"):
			offsets = append(offsets, path)
		default:
			logs = append(logs, path)
		}
	}
	if len(logs) < 5 || len(metadata) == 0 || len(offsets) == 0 || len(kinds[".checkpoint"]) == 0 || len(kinds[".index"]) == 0 {
		t.Fatalf("not the files that were meant to be there: %v", kinds)
	}
	dump(logs, "--deep-iteration")
	dump(logs, "--print-data-log")
	dump(metadata, "--cluster-metadata-decoder")
	dump(kinds[".checkpoint"], "--cluster-metadata-decoder")
	dump(offsets, "--offsets-decoder")
	dump(kinds[".index"], "--index-sanity-check")
	dump(kinds[".index"], "--verify-index-only")
	// The metadata log keeps its active segment's indexes at their full size, as Kafka's does; the tool takes the room
	// at the end for entries.
	times := slices.DeleteFunc(kinds[".timeindex"], func(path string) bool { return strings.Contains(path, "__cluster_metadata") })
	dump(times, "--index-sanity-check")
	dump(times)
	dump(kinds[".snapshot"])
	dump(kinds[".txnindex"])
}

// tail is the end of a text, for a message.
func tail(s string) string { return s[max(0, len(s)-2000):] }
