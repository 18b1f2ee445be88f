package tools

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"gregor/compat-tests/harness"
	"gregor/compat-tests/wire"
)

func kcat(args ...string) step { return step{tool: "kcat", args: args} }

// notes hides what kcat says of itself on standard error.
var notes = []string{`(?m)^%.*\n`, ``}

func TestKcat(t *testing.T) {
	harness.Need(t, "kcat")
	format := "%p/%o key=%k value=%s headers=%h\n"
	steps := []step{
		cmd("kafka-topics", "--create", "--topic", "kc", "--partitions", "1"),
		cmd("kafka-topics", "--create", "--topic", "kc-parts", "--partitions", "3"),
	}
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		steps = append(steps, kcat("-P", "-t", "kc", "-z", codec, "-K", ":", "-H", "codec="+codec, "-H", "empty=").input("k1:"+codec+" one", "k2:"+codec+" two"))
	}
	for p := range 3 {
		steps = append(steps, kcat("-P", "-t", "kc-parts", "-p", strconv.Itoa(p)).input("a", "b"))
	}
	steps = append(steps,
		kcat("-C", "-t", "kc", "-o", "beginning", "-e", "-f", format).hiding(notes...),
		kcat("-C", "-t", "kc", "-o", "4", "-e", "-f", format).hiding(notes...),
		kcat("-C", "-t", "kc", "-o", "-3", "-e", "-f", format).hiding(notes...),
		kcat("-C", "-t", "kc", "-o", "s@1000", "-e", "-f", format).hiding(notes...),
		kcat("-C", "-t", "kc", "-o", "s@4102444800000", "-e", "-f", format).hiding(notes...),
		kcat("-C", "-t", "kc", "-o", "beginning", "-c", "2", "-f", "%T %o\n").hiding(append(notes, `\d{13}`, `TIME`)...),
		kcat("-C", "-t", "kc-parts", "-o", "beginning", "-e", "-f", "%p %o %s\n").hiding(notes...).anyOrder(),
		kcat("-C", "-t", "kc", "-o", "beginning", "-e", "-q", "-X", "fetch.message.max.bytes=1000", "-X", "fetch.max.bytes=1000", "-X", "message.max.bytes=1000", "-f", format),
		kcat("-Q", "-t", "kc:0:-1"), kcat("-Q", "-t", "kc:0:-2"), kcat("-Q", "-t", "kc:0:1000"), kcat("-Q", "-t", "kc:0:4102444800000"),
		kcat("-L", "-t", "kc").hiding(`from broker [^)]*`, `from BROKER`),
		kcat("-L", "-t", "kc-parts").hiding(`from broker [^)]*`, `from BROKER`),
		kcat("-L", "-J", "-t", "kc").hiding(`"originating_broker":\{[^}]*\}`, ``, `"id":\d+`, `"id":N`),
		kcat("-G", "kc-group", "-X", "auto.offset.reset=earliest", "-e", "-f", format, "kc").hiding(notes...),
		kcat("-G", "kc-group", "-X", "auto.offset.reset=earliest", "-e", "-f", format, "kc").hiding(notes...),
		kcat("-P", "-t", "kc", "-X", "enable.idempotence=true").input("idempotent").hiding(notes...),
		kcat("-P", "-t", "kc", "-X", "acks=0").input("unacknowledged"),
		kcat("-P", "-t", "kc", "-Z", "-K", ":").input("null:"),
		kcat("-C", "-t", "kc", "-o", "-3", "-e", "-f", "%o [%k] [%s] %S\n").hiding(notes...),
	)
	same(t, steps...)
}

// TestKcatCompresses checks that librdkafka takes the broker for one that knows every codec: it decides by the lowest
// version of Produce that is listed.
func TestKcatCompresses(t *testing.T) {
	n := harness.Shared(t, harness.Gregor)
	topic := wire.CreateTopic(t, n, "kc-compressed", 1)
	file := filepath.Join(t.TempDir(), "zeros")
	if err := os.WriteFile(file, []byte(strings.Repeat("0", 600000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, codec := range wire.Codecs[1:] {
		r := harness.Kcat(t, n, "", "-P", "-t", "kc-compressed", "-z", codec.String(), "-X", "debug=msg", file)
		if r.Status != 0 || strings.Contains(r.Stderr, "does not support compression type") {
			t.Errorf("%v: status %d\n%s", codec, r.Status, r.Stderr)
		}
	}
	batches := wire.ReadAll(t, n.Addr, topic, 0, 0)
	if len(batches) != 4 {
		t.Fatalf("%d batches", len(batches))
	}
	for i, b := range batches {
		if got := wire.Codec(b.Attributes & 7); got != wire.Codecs[i+1] {
			t.Errorf("batch %d is %v, want %v", i, got, wire.Codecs[i+1])
		}
	}
}
