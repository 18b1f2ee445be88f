package config

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"gregor/internal/configdef"
)

const combined = `# a comment
process.roles=broker,controller
node.id = 1
controller.quorum.voters=1@localhost:9093
listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
log.dirs=data/a,data/b
`

func load(t *testing.T, file string, overrides ...string) (*Config, []Warning, error) {
	t.Helper()
	return Load(Options{FileName: "server.properties", File: []byte(file), Overrides: overrides})
}

func mustLoad(t *testing.T, file string, overrides ...string) (*Config, []Warning) {
	t.Helper()
	c, warnings, err := load(t, file, overrides...)
	if err != nil {
		t.Fatal(err)
	}
	return c, warnings
}

func TestStartWithoutAFileServesLocalhost(t *testing.T) {
	c, warnings, err := Load(Options{})
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	if !c.Node.Broker || !c.Node.Controller || c.Node.ID != 1 || !slices.Equal(c.Storage.Dirs, []string{"gregor-data"}) {
		t.Errorf("node %+v, dirs %v", c.Node, c.Storage.Dirs)
	}
	if got := c.Listeners.All; len(got) != 2 || got[0].String() != "PLAINTEXT://localhost:9092" || got[1].String() != "CONTROLLER://localhost:9093" || !got[1].Controller {
		t.Errorf("listeners %v", got)
	}
	if c.Listeners.InterBroker != "PLAINTEXT" || !slices.Equal(c.Quorum.BootstrapServers, []string{"localhost:9093"}) || c.Offsets.TopicFactor != 1 {
		t.Errorf("inter broker %q, bootstrap %v, factor %d", c.Listeners.InterBroker, c.Quorum.BootstrapServers, c.Offsets.TopicFactor)
	}
}

func TestOverriddenListenerBringsItsControllerListenerAlong(t *testing.T) {
	c, _, err := Load(Options{Overrides: []string{"listeners=PLAINTEXT://127.0.0.1:19092"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Listeners.All[1].String(); got != "CONTROLLER://localhost:19093" || c.Quorum.BootstrapServers[0] != "localhost:19093" {
		t.Errorf("controller listener %s, bootstrap %v", got, c.Quorum.BootstrapServers)
	}
}

func TestKeysThatArePrefixesOfOthersKeepTheirValues(t *testing.T) {
	c, _ := mustLoad(t, strings.Replace(combined, "log.dirs=data/a,data/b", "log.dir=one\nlog.dir.failure.timeout.ms=7", 1))
	if !slices.Equal(c.Storage.Dirs, []string{"one"}) || c.Storage.DirFailureTimeoutMillis != 7 {
		t.Errorf("dirs %v, timeout %d", c.Storage.Dirs, c.Storage.DirFailureTimeoutMillis)
	}
}

func TestEnvironmentMapsAsInKafkasImageAndOverridesWin(t *testing.T) {
	c, warnings, err := Load(Options{
		FileName: "f", File: []byte(combined),
		Environ:   []string{"KAFKA_NUM_PARTITIONS=7", "KAFKA_LOG_RETENTION_HOURS=2", "KAFKA_HEAP_OPTS=-Xmx1G", "KAFKA_LIBS=/x", "PATH=/bin", "KAFKA_CLUSTER_ID=x"},
		Overrides: []string{"log.retention.hours=3"},
	})
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	if c.Topics.Partitions != 7 || c.TopicDefaults()["retention.ms"] != "10800000" {
		t.Errorf("partitions %d, retention %s", c.Topics.Partitions, c.TopicDefaults()["retention.ms"])
	}
}

func TestInvalidValuesNameFileLineKeyAndWhatIsValid(t *testing.T) {
	for _, c := range []struct{ lines, want string }{
		{"num.partitions=0", "server.properties:8: num.partitions: Invalid value 0 for configuration num.partitions: Value must be at least 1"},
		{"\n\nlog.segment.bytes=x", "server.properties:10: log.segment.bytes: Invalid value x"},
		{"compression.type=brotli", "must be one of: uncompressed, zstd, lz4, snappy, gzip, producer"},
		{"log.message.timestamp.type=Never", "String must be one of: CreateTime, LogAppendTime"},
		{"listeners=PLAINTEXT:9092", "NAME://HOST:PORT"},
		{"listeners=FOO://:1,CONTROLLER://localhost:9093", "listener FOO has no entry in listener.security.protocol.map"},
		{"listeners=PLAINTEXT://:1,PLAINTEXT://:2,CONTROLLER://:3", "used twice"},
		{"listeners=PLAINTEXT://:9093,CONTROLLER://:9093", "same port 9093"},
		{"advertised.listeners=PLAINTEXT://0.0.0.0:9092", "0.0.0.0"},
		{"controller.quorum.voters=2@localhost:9093", "must be one of the voters"},
		{"controller.quorum.voters=1:localhost:9093", "ID@HOST:PORT"},
		{"process.roles=broker", "must not contain controller"},
		{"process.roles=zookeeper", "must be one of: broker, controller"},
		{"max.connections.per.ip.overrides=10.0.0.1", "not of the form HOST:COUNT"},
		{"max.connections.per.ip.overrides=10.0.0.1:many", "not a number of connections"},
		{"controller.quorum.bootstrap.servers=localhost", "not of the form HOST:PORT"},
		{"log.dirs=data/a,./data/a/", "duplicate log directory: data/a and ./data/a/ are the same"},
		{"log.cleaner.min.cleanable.ratio=NaN", "Invalid value NaN"},
		{"log.cleaner.max.compaction.lag.ms=5 # soon", "a comment needs a line of its own"},
		{"listeners=SASL_PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093\nlistener.security.protocol.map=SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT", "listener SASL_PLAINTEXT uses SASL_PLAINTEXT"},
		{"inter.broker.listener.name=FOO", "listener FOO is not advertised"},
		{"log.retention.ms=0", "must be unlimited (-1) or, equal or greater than 1"},
		{"offsets.topic.compression.codec=9", "must be 0 (none)"},
		{"listener.security.protocol.map=PLAINTEXT:TLS", "is not NAME:PROTOCOL"},
	} {
		_, _, err := load(t, combined+c.lines)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			if c.lines == "process.roles=broker" && err != nil {
				continue
			}
			t.Errorf("%q: %v\nwant %q", c.lines, err, c.want)
		}
		var e *Error
		if err != nil && (!errors.As(err, &e) || !strings.HasPrefix(e.Where, "server.properties:")) {
			t.Errorf("%q: error %q does not say where", c.lines, err)
		}
	}
}

func TestMissingRequiredKeysAreNamed(t *testing.T) {
	for _, key := range []string{"node.id", "process.roles", "controller.listener.names", "controller.quorum.voters"} {
		lines := slices.DeleteFunc(strings.Split(combined, "\n"), func(l string) bool { return strings.HasPrefix(l, key) })
		_, _, err := load(t, strings.Join(lines, "\n"))
		want := key
		if key == "controller.quorum.voters" {
			want = "controller.quorum.bootstrap.servers"
		}
		if err == nil || !strings.Contains(err.Error(), "server.properties: "+want) {
			t.Errorf("without %s: %v", key, err)
		}
	}
}

func TestUnknownKeysWarnWithLineAndNearestNameAndFailWhenStrict(t *testing.T) {
	file := combined + "num.partition=3\nmy.plugin.Setting=x\n"
	_, warnings := mustLoad(t, file)
	var got []string
	for _, w := range warnings {
		got = append(got, w.String())
	}
	want := []string{
		"server.properties:8: num.partition: unknown key; did you mean num.partitions? (ignored)",
		"server.properties:9: my.plugin.Setting: unknown key (ignored)",
	}
	if !slices.Equal(got, want) {
		t.Errorf("warnings %q", got)
	}
	if _, _, err := Load(Options{FileName: "server.properties", File: []byte(file), Strict: true}); err == nil || !strings.Contains(err.Error(), "server.properties:8: num.partition") || !strings.Contains(err.Error(), "my.plugin.Setting") {
		t.Errorf("strict: %v", err)
	}
}

func TestKeysWithoutEffectWarnUnlessAtTheirDefault(t *testing.T) {
	_, warnings := mustLoad(t, combined+"num.io.threads=16\nnum.network.threads=3\n")
	if len(warnings) != 1 || warnings[0].Key != "num.io.threads" || !strings.Contains(warnings[0].Message, "has no effect") {
		t.Errorf("warnings %v", warnings)
	}
}

func TestUnsafeKeysRefuseToStart(t *testing.T) {
	for _, line := range []string{
		"authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"remote.log.storage.system.enable=true",
		"client.quota.callback.class=x.Y",
		"listeners=SASL_PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093\ninter.broker.listener.name=SASL_PLAINTEXT\nlistener.security.protocol.map=SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
	} {
		if _, _, err := load(t, combined+line); err == nil || !strings.Contains(err.Error(), "unsafe") {
			t.Errorf("%q: %v", line, err)
		}
	}
	for _, line := range []string{"remote.log.storage.system.enable=false", "authorizer.class.name="} {
		if _, _, err := load(t, combined+line); err != nil {
			t.Errorf("%q: %v", line, err)
		}
	}
}

func TestAllThatIsWrongIsToldAtOnceInTheOrderOfTheFile(t *testing.T) {
	_, _, err := load(t, "process.roles=broker\nnum.partitions=0\nlog.segment.bytes=x\nauto.create.topics.enable=perhaps\n")
	want := []string{
		"server.properties: node.id: is required and not set (valid: [0,...])",
		"server.properties: controller.listener.names: is required and not set (valid: a list of at least one element, with commas between them)",
		"server.properties:2: num.partitions:", "server.properties:3: log.segment.bytes:", "server.properties:4: auto.create.topics.enable:",
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != len(want) {
		t.Fatalf("errors:\n%v", err)
	}
	for i, w := range want {
		if !strings.HasPrefix(lines[i], w) {
			t.Errorf("error %q, want %q", lines[i], w)
		}
	}
}

func TestWhatKafkaOnlyComplainsOfIsAWarning(t *testing.T) {
	c, warnings := mustLoad(t, combined+"broker.heartbeat.interval.ms=8000\nlog.dirs=/tmp/a,/tmp/a\nremote.log.storage.system.enable = FALSE\n")
	var got []string
	for _, w := range warnings {
		got = append(got, w.Key)
	}
	if want := []string{"log.dirs", "log.dirs", "broker.heartbeat.interval.ms"}; !slices.Equal(got, want) {
		t.Errorf("warnings %v", warnings)
	}
	if want := "server.properties:9: log.dirs: is set on line 7 too; this, the later value, holds"; len(warnings) == 0 || warnings[0].String() != want {
		t.Errorf("warning %q, want %q", warnings, want)
	}
	if !slices.Equal(c.Storage.Dirs, []string{"/tmp/a"}) {
		t.Errorf("dirs %q: Kafka takes a directory that is named twice once", c.Storage.Dirs)
	}
}

func TestKeysAreCaseSensitive(t *testing.T) {
	c, warnings := mustLoad(t, combined+"num.partitions=3\nNUM.Partitions=4\n")
	if c.Topics.Partitions != 3 || len(warnings) != 1 || warnings[0].String() != "server.properties:9: NUM.Partitions: unknown key; did you mean num.partitions? (ignored)" {
		t.Errorf("partitions %d, warnings %v", c.Topics.Partitions, warnings)
	}
}

func TestMistypedVariablesAreWarnedOfAndOthersAreNot(t *testing.T) {
	_, warnings, err := Load(Options{Environ: []string{
		"KAFKA_NUM_PARTITONS=3", "KAFKA_HOME=/opt/kafka", "KAFKA_PORT=tcp://10.0.0.1:9092", "KAFKA_SERVICE_HOST=10.0.0.1", "KAFKA_PORT_9092_TCP_PROTO=tcp", "KAFKA_DEBUG=",
	}})
	if err != nil || len(warnings) != 1 || warnings[0].String() != "environment KAFKA_NUM_PARTITONS: num.partitons: unknown key; did you mean num.partitions? (ignored)" {
		t.Errorf("%v, warnings %v", err, warnings)
	}
}

func TestWithoutAFileTheRolesDecideTheListeners(t *testing.T) {
	c, _, err := Load(Options{Environ: []string{"KAFKA_PROCESS_ROLES=controller"}})
	if err != nil || len(c.Listeners.All) != 1 || c.Listeners.All[0].String() != "CONTROLLER://localhost:9093" || c.Quorum.BootstrapServers[0] != "localhost:9093" {
		t.Errorf("controller: %v, %v", c, err)
	}
	if _, _, err = Load(Options{Environ: []string{"KAFKA_PROCESS_ROLES=broker"}}); err == nil || !strings.Contains(err.Error(), "controller.quorum.bootstrap.servers: set this") {
		t.Errorf("broker that knows no controller: %v", err)
	}
	c, _, err = Load(Options{Environ: []string{"KAFKA_PROCESS_ROLES=broker", "KAFKA_CONTROLLER_QUORUM_BOOTSTRAP_SERVERS=c:9093"}})
	if err != nil || len(c.Listeners.All) != 1 || c.Listeners.All[0].String() != "PLAINTEXT://localhost:9092" {
		t.Errorf("broker: %v, %v", c, err)
	}
	if _, _, err = Load(Options{Environ: []string{"KAFKA_NODE_ID=one"}}); err == nil || !strings.HasPrefix(err.Error(), "environment KAFKA_NODE_ID: node.id:") {
		t.Errorf("node id: %v", err)
	}
}

func TestSynonymsAreListedInOrderOfPrecedence(t *testing.T) {
	c, _ := mustLoad(t, combined+"log.retention.hours=1\nlog.retention.ms=5\nlog.retention.bytes=100\n")
	c, warnings := c.WithDynamic(map[string]string{"log.retention.ms": "7", "node.id": "9"}, map[string]string{"log.retention.bytes": "200", "nonsense": "x"})
	if len(warnings) != 1 || warnings[0].Key != "node.id" {
		t.Errorf("warnings %v", warnings)
	}
	var got []string
	for _, v := range c.TopicSynonyms("retention.ms") {
		got = append(got, v.Name+"="+text(v.Text))
	}
	if want := []string{"log.retention.ms=7", "log.retention.ms=5", "log.retention.hours=3600000", "log.retention.hours=604800000"}; !slices.Equal(got, want) {
		t.Errorf("synonyms %q, want %q", got, want)
	}
	if v, _ := c.Lookup("log.retention.bytes"); text(v.Text) != "200" || v.Source != SourceDynamicBroker {
		t.Errorf("bytes %+v", v)
	}
	if c.Node.ID != 1 {
		t.Error("a read-only key was altered dynamically")
	}
}

func TestEveryStatusPatternNamesAKey(t *testing.T) {
	for pattern, s := range statuses() {
		if s.kind != "unused" && s.kind != "unsafe" {
			t.Errorf("%s: unknown kind %q", pattern, s.kind)
		}
		prefix, wild := strings.CutSuffix(pattern, "*")
		if ignorable(pattern) || pattern == "listener.name.*" {
			continue
		}
		found := false
		for k := range configdef.Broker().All() {
			found = found || k.Name == pattern || wild && strings.HasPrefix(k.Name, prefix)
		}
		if !found {
			t.Errorf("%s names no key", pattern)
		}
	}
}

func TestEveryKeyIsReadWarnedOrRefused(t *testing.T) {
	c, _ := mustLoad(t, combined)
	read := c.readKeys()
	for k := range configdef.Broker().All() {
		if _, listed := statusOf(k.Name); !listed && !read[k.Name] {
			t.Errorf("%s: nothing reads it and status.tsv does not say so", k.Name)
		}
	}
}

func FuzzLoad(f *testing.F) {
	f.Add([]byte(combined))
	f.Add([]byte("a=\\u00e9\nb\\\n=c"))
	f.Fuzz(func(_ *testing.T, file []byte) {
		_, _, _ = Load(Options{FileName: "f", File: file})
	})
}

// readKeys are the keys that have a typed field or that a topic default falls back to.
func (c *Config) readKeys() map[string]bool {
	out := map[string]bool{}
	t := reflect.TypeFor[Config]()
	for field := range t.Fields() {
		part := field.Type
		if part.Kind() != reflect.Struct {
			continue
		}
		for field := range part.Fields() {
			if name := field.Tag.Get("kafka"); name != "" {
				out[name] = true
			}
		}
	}
	for k := range configdef.Topic().All() {
		for _, s := range k.Synonyms {
			out[s.Name] = true
		}
	}
	return out
}

func TestControllerListenersAreAdvertisedAsGivenOrAsTheyListen(t *testing.T) {
	const names = "controller.listener.names=C1,C2\nlistener.security.protocol.map=C1:PLAINTEXT,C2:PLAINTEXT,PLAINTEXT:PLAINTEXT"
	file := strings.Replace(combined, "controller.listener.names=CONTROLLER", names, 1)
	file = strings.Replace(file, "CONTROLLER://localhost:9093", "C2://0.0.0.0:9094,C1://0.0.0.0:9093", 1)
	for advertised, want := range map[string][]string{
		"": {"C1://:9093", "C2://:9094"},
		"advertised.listeners=PLAINTEXT://b:9092,C2://c:1": {"C1://:9093", "C2://c:1"},
	} {
		c, _ := mustLoad(t, file+advertised)
		var got []string
		for _, l := range c.Listeners.AdvertisedControllers {
			got = append(got, l.String())
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", advertised, got, want)
		}
	}
}

func TestNodeIDAndBrokerIDAreOne(t *testing.T) {
	c, _ := mustLoad(t, combined)
	if v, _ := c.Lookup("broker.id"); v.Text == nil || *v.Text != "1" || v.Source != SourceStatic || c.Node.BrokerID != 1 {
		t.Errorf("broker.id from node.id: %+v, %d", v, c.Node.BrokerID)
	}
	c, _ = mustLoad(t, strings.ReplaceAll(combined, "node.id", "broker.id"))
	if v, _ := c.Lookup("node.id"); v.Text == nil || *v.Text != "1" || c.Node.ID != 1 {
		t.Errorf("node.id from broker.id: %+v, %d", v, c.Node.ID)
	}
}
