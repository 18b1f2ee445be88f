// Package tools runs the command line tools of Apache Kafka, and kcat, in the same way against Gregor and against
// Kafka, and compares what they print.
package tools

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"gregor/compat-tests/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// classes are the main classes behind the scripts of Kafka's bin directory.
var classes = map[string]string{
	"kafka-topics":              "org.apache.kafka.tools.TopicCommand",
	"kafka-configs":             "org.apache.kafka.tools.ConfigCommand",
	"kafka-console-producer":    "org.apache.kafka.tools.ConsoleProducer",
	"kafka-console-consumer":    "org.apache.kafka.tools.consumer.ConsoleConsumer",
	"kafka-producer-perf-test":  "org.apache.kafka.tools.ProducerPerformance",
	"kafka-consumer-perf-test":  "org.apache.kafka.tools.ConsumerPerformance",
	"kafka-e2e-latency":         "org.apache.kafka.tools.EndToEndLatency",
	"kafka-get-offsets":         "org.apache.kafka.tools.GetOffsetShell",
	"kafka-delete-records":      "org.apache.kafka.tools.DeleteRecordsCommand",
	"kafka-log-dirs":            "org.apache.kafka.tools.LogDirsCommand",
	"kafka-metadata-quorum":     "org.apache.kafka.tools.MetadataQuorumCommand",
	"kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
	"kafka-consumer-groups":     "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
	"kafka-groups":              "org.apache.kafka.tools.GroupsCommand",
	"kafka-features":            "org.apache.kafka.tools.FeatureCommand",
	"kafka-cluster":             "org.apache.kafka.tools.ClusterTool",
	"kafka-dump-log":            "org.apache.kafka.tools.DumpLogSegments",
	"kafka-storage":             "kafka.tools.StorageTool",
}

// run runs a tool against a node; "{broker}" and "{controller}" in its arguments become the node's addresses, "{dir}"
// its directory.
func run(t *testing.T, n *harness.Node, tool, stdin string, args ...string) harness.Result {
	t.Helper()
	place := strings.NewReplacer("{broker}", n.Addr, "{controller}", n.ControllerAddr, "{dir}", n.Dir)
	for i := range args {
		args[i] = place.Replace(args[i])
	}
	return harness.RunTool(t, classes[tool], stdin, args...)
}

// on runs a tool with --bootstrap-server.
func on(t *testing.T, n *harness.Node, tool, stdin string, args ...string) harness.Result {
	t.Helper()
	return run(t, n, tool, stdin, append([]string{"--bootstrap-server", n.Addr}, args...)...)
}

// step is one command that must print the same on both brokers.
type step struct {
	tool, stdin string
	args        []string
	// norm are further normalizations, in pairs of a regular expression and what takes its place.
	norm []string
	// sorted compares the lines in any order.
	sorted bool
	// statusOnly compares nothing but the exit status.
	statusOnly bool
	// meantToFail says that the command is meant to fail. One that is not must succeed on both, or two refusals of a command
	// that was written wrong would pass for two equal answers.
	meantToFail bool
}

// usual hides what differs between any two clusters.
var usual = []string{
	`TopicId: [\w-]{22}`, `TopicId: ID`,
	`20\d\d-\d\d-\d\d[ T]\d\d:\d\d:\d\d[.,]\d{3}`, `TIME`,
	// Java's stack depends on how often a method was called before, client ids on how many clients there were.
	`\tat [^\n]*\n`, ``,
	`adminclient-\d+`, `adminclient-N`,
	`console-consumer-\d+`, `console-consumer-N`,
}

func normalize(n *harness.Node, text string, norm []string) string {
	text = n.Anonymous(text)
	for i := 0; i+1 < len(norm); i += 2 {
		text = regexp.MustCompile(norm[i]).ReplaceAllString(text, norm[i+1])
	}
	return text
}

// same runs the steps one after the other on both brokers and compares their output and exit status.
func same(t *testing.T, steps ...step) {
	t.Helper()
	gregor, kafka := harness.Shared(t, harness.Gregor), harness.Shared(t, harness.Kafka)
	for _, s := range steps {
		name := strings.Join(append([]string{s.tool}, s.args...), " ")
		if len(name) > 120 {
			name = name[:120]
		}
		t.Run(strings.ReplaceAll(name, "/", "_"), func(t *testing.T) {
			got := s.run(t, gregor)
			wanted := s.run(t, kafka)
			if succeeded := strings.HasPrefix(wanted, "exit status 0"); succeeded == s.meantToFail {
				t.Errorf("on kafka, where a failure was meant: %t\n%s", s.meantToFail, wanted)
			}
			if got != wanted {
				t.Errorf("gregor:\n%s\nkafka:\n%s", got, wanted)
			}
		})
	}
}

// run is what the step prints on a node, normalized.
func (s step) run(t *testing.T, n *harness.Node) string {
	t.Helper()
	var r harness.Result
	if s.tool == "kcat" {
		r = harness.Kcat(t, n, s.stdin, s.args...)
	} else {
		r = run(t, n, s.tool, s.stdin, slices.Clone(s.args)...)
	}
	status := "exit status " + string(rune('0'+r.Status))
	if s.statusOnly {
		if r.Status != 0 {
			t.Logf("%s%s", r.Stdout, r.Stderr)
		}
		return status
	}
	norm := append(slices.Clone(usual), s.norm...)
	out := normalize(n, r.Stdout, norm) + normalize(n, r.Stderr, norm)
	if s.sorted {
		lines := strings.Split(out, "\n")
		slices.Sort(lines)
		out = strings.Join(lines, "\n")
	}
	return status + "\n" + out
}
