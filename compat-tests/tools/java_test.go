package tools

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"gregor/compat-tests/harness"
)

const bootstrap = "--bootstrap-server"

// cmd is a step of a tool that takes --bootstrap-server.
func cmd(tool string, args ...string) step {
	return step{tool: tool, args: append([]string{bootstrap, "{broker}"}, args...)}
}

func (s step) hiding(norm ...string) step {
	s.norm = norm
	return s
}

func (s step) failing() step {
	s.meantToFail = true
	return s
}

func (s step) anyOrder() step {
	s.sorted = true
	return s
}

func (s step) input(lines ...string) step {
	s.stdin = strings.Join(lines, "\n") + "\n"
	return s
}

func TestTopicsTool(t *testing.T) {
	same(t,
		cmd("kafka-topics", "--create", "--topic", "tt-a", "--partitions", "3", "--replication-factor", "1"),
		cmd("kafka-topics", "--create", "--topic", "tt-a").failing(),
		cmd("kafka-topics", "--create", "--topic", "tt-a", "--if-not-exists"),
		cmd("kafka-topics", "--create", "--topic", "tt-b", "--config", "retention.ms=3600000", "--config", "cleanup.policy=compact,delete"),
		cmd("kafka-topics", "--create", "--topic", "tt.c"),
		cmd("kafka-topics", "--create", "--topic", "tt_c").failing(),
		cmd("kafka-topics", "--create", "--topic", "tt-d", "--replica-assignment", "1,1,1"),
		cmd("kafka-topics", "--create", "--topic", "bad/name").failing(),
		cmd("kafka-topics", "--create", "--topic", "tt-e", "--replication-factor", "3").failing(),
		cmd("kafka-topics", "--create", "--topic", "tt-e", "--partitions", "0").failing(),
		cmd("kafka-topics", "--create", "--topic", "tt-e", "--config", "retention.ms=x").failing(),
		cmd("kafka-topics", "--create", "--topic", "tt-e", "--config", "no.such=1").failing(),
		cmd("kafka-topics", "--list"),
		cmd("kafka-topics", "--list", "--topic", "tt-.*"),
		cmd("kafka-topics", "--describe", "--topic", "tt-a"),
		cmd("kafka-topics", "--describe", "--topic", "tt-b"),
		cmd("kafka-topics", "--describe").anyOrder(),
		cmd("kafka-topics", "--describe", "--topic", "tt-nowhere").failing(),
		cmd("kafka-topics", "--describe", "--topics-with-overrides"),
		cmd("kafka-topics", "--describe", "--under-replicated-partitions"),
		cmd("kafka-topics", "--describe", "--unavailable-partitions"),
		cmd("kafka-topics", "--describe", "--under-min-isr-partitions"),
		cmd("kafka-topics", "--describe", "--at-min-isr-partitions", "--topic", "tt-a"),
		cmd("kafka-topics", "--alter", "--topic", "tt-a", "--partitions", "5"),
		cmd("kafka-topics", "--alter", "--topic", "tt-a", "--partitions", "2").failing(),
		cmd("kafka-topics", "--alter", "--topic", "tt-nowhere", "--partitions", "2").failing(),
		cmd("kafka-topics", "--describe", "--topic", "tt-a"),
		cmd("kafka-topics", "--delete", "--topic", "tt-b"),
		cmd("kafka-topics", "--delete", "--topic", "tt-b").failing(),
		cmd("kafka-topics", "--delete", "--topic", "tt-b", "--if-exists"),
		cmd("kafka-topics", "--list"),
	)
}

func TestConfigsTool(t *testing.T) {
	// The directories and ports of the two nodes differ, and with them what they have set.
	own := []string{`(?m)^  (advertised\.listeners|listeners|log\.dirs|controller\.quorum\.voters)=.*$`, `  $1`}
	same(t,
		cmd("kafka-topics", "--create", "--topic", "ct"),
		cmd("kafka-configs", "--describe", "--entity-type", "topics", "--entity-name", "ct"),
		cmd("kafka-configs", "--alter", "--entity-type", "topics", "--entity-name", "ct", "--add-config", "retention.ms=3600000,cleanup.policy=[compact,delete]"),
		cmd("kafka-configs", "--describe", "--entity-type", "topics", "--entity-name", "ct"),
		cmd("kafka-configs", "--describe", "--entity-type", "topics", "--entity-name", "ct", "--all"),
		cmd("kafka-configs", "--alter", "--entity-type", "topics", "--entity-name", "ct", "--delete-config", "retention.ms"),
		cmd("kafka-configs", "--alter", "--entity-type", "topics", "--entity-name", "ct", "--delete-config", "not.set"),
		cmd("kafka-configs", "--alter", "--entity-type", "topics", "--entity-name", "ct", "--add-config", "segment.bytes=-1").failing(),
		cmd("kafka-configs", "--alter", "--entity-type", "topics", "--entity-name", "ct-nowhere", "--add-config", "retention.ms=1").failing(),
		cmd("kafka-configs", "--describe", "--entity-type", "topics", "--entity-name", "ct"),
		cmd("kafka-configs", "--describe", "--entity-type", "brokers", "--entity-name", "1"),
		cmd("kafka-configs", "--alter", "--entity-type", "brokers", "--entity-name", "1", "--add-config", "log.cleaner.threads=2"),
		cmd("kafka-configs", "--alter", "--entity-type", "brokers", "--entity-default", "--add-config", "message.max.bytes=2000000"),
		cmd("kafka-configs", "--describe", "--entity-type", "brokers", "--entity-name", "1"),
		cmd("kafka-configs", "--describe", "--entity-type", "brokers", "--entity-default"),
		cmd("kafka-configs", "--describe", "--entity-type", "topics", "--entity-name", "ct", "--all"),
		cmd("kafka-configs", "--alter", "--entity-type", "brokers", "--entity-name", "1", "--delete-config", "log.cleaner.threads"),
		cmd("kafka-configs", "--alter", "--entity-type", "brokers", "--entity-default", "--delete-config", "message.max.bytes"),
		cmd("kafka-configs", "--alter", "--entity-type", "brokers", "--entity-name", "1", "--add-config", "broker.id=7").failing(),
		cmd("kafka-configs", "--alter", "--entity-type", "brokers", "--entity-name", "1", "--add-config", "num.io.threads=x").failing(),
		cmd("kafka-configs", "--describe", "--entity-type", "brokers", "--entity-name", "1", "--all").hiding(own...),
		cmd("kafka-configs", "--describe", "--entity-type", "brokers", "--entity-name", "9"),
	)
}

// width hides how wide the columns are.
var width = []string{` +`, ` `}

func TestConsoleProducerAndConsumer(t *testing.T) {
	consume := func(topic string, count int, args ...string) step {
		return cmd("kafka-console-consumer", append([]string{"--topic", topic, "--max-messages", strconv.Itoa(count), "--timeout-ms", "20000"}, args...)...)
	}
	stamps := []string{`CreateTime:\d+`, `CreateTime:TIME`}
	same(t,
		cmd("kafka-topics", "--create", "--topic", "cp", "--partitions", "1"),
		cmd("kafka-console-producer", "--topic", "cp").input("one", "two", "three"),
		cmd("kafka-console-producer", "--topic", "cp", "--reader-property", "parse.key=true", "--reader-property", "parse.headers=true", "--compression-codec", "zstd").
			input("h1:v1,h2:v2\tk1\tfour", "h3:v3\tk2\tfive"),
		consume("cp", 5, "--from-beginning"),
		consume("cp", 5, "--from-beginning", "--formatter-property", "print.key=true", "--formatter-property", "print.headers=true", "--formatter-property", "print.offset=true",
			"--formatter-property", "print.partition=true", "--formatter-property", "print.timestamp=true").hiding(stamps...),
		consume("cp", 2, "--partition", "0", "--offset", "2"),
		consume("cp", 1, "--partition", "0", "--offset", "earliest"),
		consume("cp", 3, "--group", "cp-group", "--from-beginning"),
		consume("cp", 2, "--group", "cp-group", "--from-beginning"),
		cmd("kafka-consumer-groups", "--describe", "--group", "cp-group"),
		cmd("kafka-consumer-groups", "--describe", "--group", "cp-group", "--state"),
		cmd("kafka-consumer-groups", "--describe", "--group", "cp-group", "--members"),
		cmd("kafka-consumer-groups", "--describe", "--offsets", "--group", "cp-group", "--verbose"),
		cmd("kafka-consumer-groups", "--describe", "--group", "cp-nobody"),
		// The console consumer gives itself groups of chance names: their places in the list and its width are chance, too.
		cmd("kafka-consumer-groups", "--list").anyOrder(),
		cmd("kafka-consumer-groups", "--list", "--state").hiding(width...).anyOrder(),
		cmd("kafka-consumer-groups", "--list", "--state", "empty").hiding(width...).anyOrder(),
		cmd("kafka-groups", "--list").hiding(width...).anyOrder(),
		cmd("kafka-consumer-groups", "--group", "cp-group", "--reset-offsets", "--to-earliest", "--topic", "cp", "--dry-run"),
		cmd("kafka-consumer-groups", "--group", "cp-group", "--reset-offsets", "--to-offset", "3", "--topic", "cp", "--execute"),
		cmd("kafka-consumer-groups", "--describe", "--group", "cp-group"),
		cmd("kafka-consumer-groups", "--delete-offsets", "--group", "cp-group", "--topic", "cp"),
		cmd("kafka-consumer-groups", "--delete", "--group", "cp-group"),
		cmd("kafka-consumer-groups", "--delete", "--group", "cp-group"),
		cmd("kafka-consumer-groups", "--list").anyOrder(),
	)
}

// TestGroupsAreListedInKafkasOrder: it is that of Kafka's hash tables, which scripts have come to see.
func TestGroupsAreListedInKafkasOrder(t *testing.T) {
	steps := []step{cmd("kafka-topics", "--create", "--topic", "go")}
	for i := range 20 {
		steps = append(steps, cmd("kafka-consumer-groups", "--reset-offsets", "--to-earliest", "--topic", "go", "--execute", "--group", fmt.Sprintf("go-group-%d", i*i)))
	}
	// Other tests leave groups of chance names, whose lengths decide how wide the columns are.
	named := append([]string{`console-consumer-N .*\n`, ``, `console-consumer-N\n`, ``}, width...)
	steps = append(steps,
		cmd("kafka-consumer-groups", "--list").hiding(named...),
		cmd("kafka-consumer-groups", "--list", "--state").hiding(named...),
		cmd("kafka-groups", "--list").hiding(named...),
	)
	same(t, steps...)
}

func TestOffsetTools(t *testing.T) {
	dir := t.TempDir()
	deletions := filepath.Join(dir, "delete.json")
	if err := os.WriteFile(deletions, []byte(`{"version":1,"partitions":[{"topic":"ot","partition":0,"offset":2},{"topic":"ot","partition":1,"offset":99}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	same(t,
		cmd("kafka-topics", "--create", "--topic", "ot", "--partitions", "2"),
		cmd("kafka-console-producer", "--topic", "ot", "--command-property", "partitioner.class=org.apache.kafka.clients.producer.RoundRobinPartitioner").input("a", "b", "c", "d", "e", "f", "g", "h"),
		cmd("kafka-get-offsets", "--topic", "ot"),
		cmd("kafka-get-offsets", "--topic", "ot", "--time", "-2"),
		cmd("kafka-get-offsets", "--topic", "ot", "--time", "earliest"),
		cmd("kafka-get-offsets", "--topic", "ot", "--time", "-4"),
		cmd("kafka-get-offsets", "--topic", "ot", "--time", "1000"),
		cmd("kafka-get-offsets", "--topic", "ot", "--time", "4102444800000"),
		cmd("kafka-get-offsets", "--topic-partitions", "ot:1"),
		cmd("kafka-get-offsets", "--topic", "ot-nowhere").failing(),
		cmd("kafka-delete-records", "--offset-json-file", deletions).anyOrder(),
		cmd("kafka-get-offsets", "--topic", "ot", "--time", "-2"),
	)
}

func TestLogDirsTool(t *testing.T) {
	// Free space moves while the tests run.
	space := []string{`"(usableBytes|totalBytes)":\d+`, `"$1":N`}
	same(t,
		cmd("kafka-topics", "--create", "--topic", "ld"),
		cmd("kafka-console-producer", "--topic", "ld").input("a"),
		cmd("kafka-log-dirs", "--describe", "--topic-list", "ld").hiding(space...),
		cmd("kafka-log-dirs", "--describe", "--topic-list", "ld", "--broker-list", "1").hiding(space...),
		cmd("kafka-log-dirs", "--describe", "--topic-list", "ld", "--broker-list", "1,7").hiding(space...).failing(),
	)
}

func TestClusterTools(t *testing.T) {
	const controller = "--bootstrap-controller"
	moving := []string{
		`(HighWatermark|MaxFollowerLag|MaxFollowerLagTimeMs):(\s+)-?\d+`, `$1:${2}N`,
		`(LeaderEpoch):(\s+)\d+`, `$1:${2}N`,
		`(?m)^(1\s+)[\w-]{22}(\s+)\d+(\s+)\d+(\s+)-?\d+(\s+)-?\d+(\s+)(Leader|Observer)\s*$`, `1 DIRECTORY N N N N $7`,
		`"directoryId": ?"[\w-]{22}"`, `"directoryId":"ID"`,
	}
	same(t,
		step{tool: "kafka-metadata-quorum", args: []string{bootstrap, "{broker}", "describe", "--status"}}.hiding(moving...),
		step{tool: "kafka-metadata-quorum", args: []string{bootstrap, "{broker}", "describe", "--replication"}}.hiding(moving...),
		step{tool: "kafka-metadata-quorum", args: []string{controller, "{controller}", "describe", "--status"}}.hiding(moving...),
		step{tool: "kafka-cluster", args: []string{"cluster-id", bootstrap, "{broker}"}},
		step{tool: "kafka-cluster", args: []string{"cluster-id", controller, "{controller}"}},
		step{tool: "kafka-cluster", args: []string{"list-endpoints", bootstrap, "{broker}"}},
		step{tool: "kafka-cluster", args: []string{"list-endpoints", controller, "{controller}"}},
		step{tool: "kafka-cluster", args: []string{"unregister", bootstrap, "{broker}", "--id", "77"}}.failing(),
		step{tool: "kafka-features", args: []string{bootstrap, "{broker}", "describe"}}.hiding(`Epoch: \d+`, `Epoch: N`),
		step{tool: "kafka-features", args: []string{controller, "{controller}", "describe"}}.hiding(`Epoch: \d+`, `Epoch: N`),
		step{tool: "kafka-features", args: []string{bootstrap, "{broker}", "upgrade", "--feature", "group.version=1", "--dry-run"}},
		step{tool: "kafka-features", args: []string{bootstrap, "{broker}", "upgrade", "--feature", "group.version=9"}}.failing(),
		step{tool: "kafka-features", args: []string{bootstrap, "{broker}", "upgrade", "--feature", "no.such=1"}}.failing(),
		step{tool: "kafka-features", args: []string{bootstrap, "{broker}", "downgrade", "--feature", "metadata.version=7"}}.failing(),
	)
}

// TestBrokerAPIVersionsTool compares what Gregor lists; what it does not serve yet is logged.
func TestBrokerAPIVersionsTool(t *testing.T) {
	s := cmd("kafka-broker-api-versions")
	got := strings.Split(s.run(t, harness.Shared(t, harness.Gregor)), "\n")
	wanted := strings.Split(s.run(t, harness.Shared(t, harness.Kafka)), "\n")
	if len(got) != len(wanted) {
		t.Fatalf("gregor:\n%s\nkafka:\n%s", strings.Join(got, "\n"), strings.Join(wanted, "\n"))
	}
	for i, line := range got {
		switch {
		case strings.HasSuffix(strings.TrimSuffix(line, ","), ": UNSUPPORTED"):
			t.Logf("not served: %s; kafka: %s", strings.TrimSpace(line), strings.TrimSpace(wanted[i]))
		case line != wanted[i]:
			t.Errorf("gregor: %s\nkafka:  %s", line, wanted[i])
		}
	}
}

func TestPerfTools(t *testing.T) {
	const records = "20000"
	produce := func(acks, size, codec string) step {
		return step{tool: "kafka-producer-perf-test", args: []string{
			"--topic", "perf-" + acks + "-" + codec, "--num-records", records, "--record-size", size, "--throughput", "-1",
			"--reporting-interval", "600000",
			"--bootstrap-server", "{broker}", "--command-property", "acks=" + acks, "--command-property", "compression.type=" + codec,
		}}.hiding(`[\d.]+ (records/sec|MB/sec|ms)`, `N $1`)
	}
	same(t,
		cmd("kafka-topics", "--create", "--topic", "perf-1-none", "--partitions", "2"),
		produce("1", "100", "none"),
		produce("all", "100", "none"),
		produce("all", "1024", "lz4"),
		produce("0", "100", "gzip"),
		cmd("kafka-get-offsets", "--topic", "perf-all.*"),
		cmd("kafka-consumer-perf-test", "--topic", "perf-all-lz4", "--num-records", records, "--timeout", "60000", "--hide-header").
			hiding(`(?s)^(.*?), (.*?), ([\d.]+), ([\d.]+), (\d+), .*$`, `$3 MB, $5 records`),
		cmd("kafka-e2e-latency", "--topic", "perf-e2e", "--num-records", "200", "--producer-acks", "1", "--record-size", "100").hiding(`[\d.]+`, `N`),
	)
}

// besideKafkaVariable has TestFullPerf drive Kafka too, to see both rates in its log.
const besideKafkaVariable = "GREGOR_COMPAT_FULL_PERF"

// TestFullPerf takes the runs that people judge a broker by; how fast they are is for `make bench` to say.
func TestFullPerf(t *testing.T) {
	kinds := []harness.Kind{harness.Gregor}
	if os.Getenv(besideKafkaVariable) != "" {
		kinds = append(kinds, harness.Kafka)
	}
	for _, c := range []struct{ acks, size, count, codec string }{
		{"1", "100", "5000000", "none"}, {"all", "100", "5000000", "none"}, {"all", "1024", "500000", "lz4"},
	} {
		for _, kind := range kinds {
			n := harness.Shared(t, kind)
			r := run(t, n, "kafka-producer-perf-test", "", "--topic", "full-"+c.acks+"-"+c.codec, "--num-records", c.count, "--record-size", c.size, "--throughput", "-1",
				"--reporting-interval", "600000", "--bootstrap-server", "{broker}", "--command-property", "acks="+c.acks, "--command-property", "compression.type="+c.codec)
			t.Logf("%s acks=%s %s bytes %s: %s", kind, c.acks, c.size, c.codec, r.Stdout)
			if r.Status != 0 || !strings.Contains(r.Stdout, c.count+" records sent") {
				t.Errorf("%s: %+v", kind, r)
			}
		}
	}
}
