package config

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/magiconair/properties"
	"github.com/spf13/viper"

	"gregor/internal/configdef"
)

// Options says where a Config comes from. Later sources win: file, environment, overrides.
type Options struct {
	// FileName names the file in messages; "" when the node runs without one.
	FileName string
	// File is the text of server.properties (Java properties, UTF-8 or ISO 8859-1 with \u escapes).
	File []byte
	// Environ is os.Environ(): KAFKA_LISTENERS and the like, as Kafka's container image maps them.
	Environ []string
	// Overrides are KEY=VALUE of the command line.
	Overrides []string
	// Strict makes unknown keys an error.
	Strict bool
}

// Load builds the Config. The error is an *Error, or a joined list of them for --strict. Warnings are ordered
// by where they come from.
func Load(o Options) (*Config, []Warning, error) {
	v := &values{static: map[string]static{}}
	if o.FileName != "" {
		if err := v.addFile(o.FileName, o.File); err != nil {
			return nil, nil, err
		}
	}
	v.addEnviron(o.Environ)
	if err := v.addOverrides(o.Overrides); err != nil {
		return nil, nil, err
	}
	if o.FileName == "" {
		v.addStandalone()
	}
	v.tieNodeIDs()
	c := &Config{values: v}
	warnings, err := c.checkKeys(o.Strict)
	if err != nil {
		return nil, warnings, err
	}
	if err := c.build(); err != nil {
		return nil, warnings, err
	}
	return c, append(warnings, c.advice()...), nil
}

// propertiesDecoder lets viper read Java properties. Viper's own codec for them is a module apart that does no
// more than this; values are taken literally, since Kafka expands no ${...} without a config provider.
type propertiesDecoder struct{}

func (propertiesDecoder) Decode(b []byte, out map[string]any) error {
	l := properties.Loader{Encoding: properties.UTF8, DisableExpansion: true}
	p, err := l.LoadBytes(b)
	if err != nil {
		return err
	}
	for key, value := range p.Map() {
		out[key] = value
	}
	return nil
}

// keyDelimiter is a string that no key contains: with viper's usual "." the key log.dir would be a prefix of,
// and so clash with, log.dir.failure.timeout.ms.
const keyDelimiter = "\x00"

func (v *values) addFile(name string, text []byte) error {
	codecs := viper.NewCodecRegistry()
	if err := codecs.RegisterCodec("properties", struct {
		viper.Encoder
		viper.Decoder
	}{nil, propertiesDecoder{}}); err != nil {
		return err
	}
	vp := viper.NewWithOptions(viper.KeyDelimiter(keyDelimiter), viper.WithCodecRegistry(codecs))
	vp.SetConfigType("properties")
	if err := vp.ReadConfig(bytes.NewReader(text)); err != nil {
		return &Error{Where: name, Message: "not a Java properties file: " + err.Error()}
	}
	lines := keyLines(text)
	for _, key := range vp.AllKeys() {
		at := lines[key]
		where := name
		if at.line > 0 {
			where = fmt.Sprintf("%s:%d", name, at.line)
		}
		v.static[key] = static{text: vp.GetString(key), where: where, name: cmpOr(at.name, key)}
	}
	return nil
}

func cmpOr(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

// keyAt is where a key was last assigned and how it was written.
type keyAt struct {
	line int
	name string
}

// keyLines finds the line of each key (lower case, as viper has it) by the rules of Java's Properties: comments
// with # and !, continued lines with an odd number of backslashes at the end.
func keyLines(text []byte) map[string]keyAt {
	out := map[string]keyAt{}
	lines := strings.Split(strings.ReplaceAll(string(text), "\r\n", "\n"), "\n")
	for i := 0; i < len(lines); i++ {
		first := i
		line := strings.TrimLeft(lines[i], " \t\f")
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		for continued(line) && i+1 < len(lines) {
			i++
			line = line[:len(line)-1] + strings.TrimLeft(lines[i], " \t\f")
		}
		key := line
		if end := strings.IndexAny(line, "=: \t\f"); end >= 0 {
			key = line[:end]
		}
		out[strings.ToLower(key)] = keyAt{line: first + 1, name: key}
	}
	return out
}

func continued(line string) bool {
	n := len(line) - len(strings.TrimRight(line, `\`))
	return n%2 == 1
}

// notConfig are variables that look like a config's but that Kafka's image or tools use otherwise.
var notConfig = []string{
	"KAFKA_CLUSTER_ID", "KAFKA_FORMAT_ARGS", "KAFKA_VERSION", "KAFKA_HEAP_OPTS", "KAFKA_LOG4J_OPTS", "KAFKA_OPTS", "KAFKA_JMX_OPTS",
	"KAFKA_JVM_PERFORMANCE_OPTS", "KAFKA_GC_LOG_OPTS", "KAFKA_LOG4J_ROOT_LOGLEVEL", "KAFKA_LOG4J_LOGGERS",
	"KAFKA_TOOLS_LOG4J_LOGLEVEL", "KAFKA_JMX_HOSTNAME", "KAFKA_JMX_PORT",
}

// addEnviron maps KAFKA_A_B to a.b as Kafka's container image does: ___ is a dash, __ an underscore, _ a dot.
// Variables that give no known key are left alone: other programs' variables begin with KAFKA_ too.
func (v *values) addEnviron(environ []string) {
	for _, entry := range environ {
		name, text, _ := strings.Cut(entry, "=")
		rest, ok := strings.CutPrefix(name, "KAFKA_")
		if !ok || slices.Contains(notConfig, name) {
			continue
		}
		key := strings.ToLower(rest)
		key = strings.ReplaceAll(key, "___", "-")
		key = strings.ReplaceAll(key, "__", "\x01")
		key = strings.ReplaceAll(key, "_", ".")
		key = strings.ReplaceAll(key, "\x01", "_")
		if configdef.Broker().Lookup(key) == nil && !isPrefixed(key) {
			continue
		}
		v.static[key] = static{text: text, where: "environment " + name, name: key}
	}
}

func (v *values) addOverrides(overrides []string) error {
	for _, o := range overrides {
		name, text, ok := strings.Cut(o, "=")
		name = strings.TrimSpace(name)
		if !ok || name == "" {
			return &Error{Where: "--override", Message: fmt.Sprintf("%q is not of the form KEY=VALUE", o)}
		}
		v.static[strings.ToLower(name)] = static{text: strings.TrimSpace(text), where: "--override", name: name}
	}
	return nil
}

// tieNodeIDs gives node.id and its old name broker.id the value of the one that is set, as Kafka does before it looks
// at either.
func (v *values) tieNodeIDs() {
	node, isNode := v.static["node.id"]
	broker, isBroker := v.static["broker.id"]
	switch {
	case isNode && !isBroker:
		v.static["broker.id"] = static{text: node.text, where: node.where, name: "broker.id"}
	case isBroker && !isNode:
		v.static["node.id"] = static{text: broker.text, where: broker.where, name: "node.id"}
	}
}

// standaloneWhere is the place of values that a start without a file brings along.
const standaloneWhere = "the defaults of a start without a file"

// addStandalone sets what a node without a file runs with: broker and controller on localhost:9092 with its
// data in ./gregor-data and internal topics of one replica. What was set otherwise stays; the controller
// listens on the port after the broker's.
func (v *values) addStandalone() {
	set := func(key, text string) {
		if _, ok := v.static[key]; !ok {
			v.static[key] = static{text: text, where: standaloneWhere, name: key}
		}
	}
	set("process.roles", "broker,controller")
	set("node.id", "1")
	set("controller.listener.names", "CONTROLLER")
	controller := "CONTROLLER"
	if name, _, _ := strings.Cut(v.static["controller.listener.names"].text, ","); name != "" {
		controller = strings.ToUpper(name)
	}
	listeners := "PLAINTEXT://localhost:9092"
	if s, ok := v.static["listeners"]; ok {
		listeners = s.text
	}
	if !strings.Contains(strings.ToUpper(listeners), controller+"://") {
		at := standaloneWhere
		if s, ok := v.static["listeners"]; ok {
			at = s.where
		}
		v.static["listeners"] = static{text: listeners + "," + controller + "://localhost:" + nextPort(listeners), where: at, name: "listeners"}
	}
	if _, ok := v.static["controller.quorum.voters"]; !ok {
		_, address, _ := strings.Cut(v.static["listeners"].text, controller+"://")
		address, _, _ = strings.Cut(address, ",")
		set("controller.quorum.bootstrap.servers", address)
	}
	if _, ok := v.static["log.dir"]; !ok {
		set("log.dirs", "gregor-data")
	}
	for _, topic := range []string{"offsets.topic", "transaction.state.log", "share.coordinator.state.topic"} {
		set(topic+".replication.factor", "1")
	}
	set("transaction.state.log.min.isr", "1")
	set("share.coordinator.state.topic.min.isr", "1")
}

// nextPort is the port after that of the first listener; "0" (any) after 0 or what is no port.
func nextPort(listeners string) string {
	first, _, _ := strings.Cut(listeners, ",")
	var port uint16
	if _, err := fmt.Sscan(first[strings.LastIndexByte(first, ':')+1:], &port); err != nil || port == 0 || port == 65535 {
		return "0"
	}
	return strconv.FormatUint(uint64(port+1), 10)
}

// build fills the typed fields and checks them against each other.
func (c *Config) build() error {
	parts := []any{
		&c.Node, &c.Listeners, &c.Sockets, &c.Quorum, &c.Metadata, &c.Storage, &c.Cleaner, &c.Topics,
		&c.Replication, &c.Offsets, &c.Groups, &c.Producers,
	}
	if err := c.checkRequired(); err != nil {
		return err
	}
	for _, part := range parts {
		if err := c.fill(reflect.ValueOf(part).Elem()); err != nil {
			return err
		}
	}
	c.Node.Broker = slices.Contains(c.Node.Roles, "broker")
	c.Node.Controller = slices.Contains(c.Node.Roles, "controller")
	c.Storage.Dirs = c.Storage.DirsKey
	if len(c.Storage.Dirs) == 0 {
		c.Storage.Dirs = c.Storage.Dir
	}
	for _, step := range []func() error{c.buildListeners, c.parseVoters, c.checkRoles, c.checkRelations, c.checkTopicDefaults} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// checkRequired wants the keys without a default, and every static value to be valid, also those that no
// typed field reads.
func (c *Config) checkRequired() error {
	for k := range configdef.Broker().All() {
		if k.Required && len(c.own(k.Name)) == 0 {
			return &Error{Where: c.fileName(), Key: k.Name, Message: "is required and not set" + parenthesis(k.Valid())}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.values.static)) {
		s := c.values.static[name]
		k := KeyOf(name)
		if k == nil {
			continue
		}
		if _, err := k.Parse(s.text); err != nil {
			return &Error{Where: s.where, Key: s.name, Message: explain(k, err)}
		}
	}
	return nil
}

func parenthesis(valid string) string {
	if valid == "" {
		return ""
	}
	return " (valid: " + valid + ")"
}

// fileName is the file that the static values come from, for messages about what is missing in it.
func (c *Config) fileName() string {
	for _, s := range c.values.static {
		if file, _, ok := strings.Cut(s.where, ":"); ok {
			return file
		}
	}
	return ""
}

// errorAt is an Error about a key at the place where it was set.
func (c *Config) errorAt(key, message string) error {
	return &Error{Where: c.values.static[key].where, Key: key, Message: message}
}

// KeyOf returns the definition that a key's value must obey: its own, or that of the key behind a
// listener.name.NAME. prefix; nil for unknown keys.
func KeyOf(name string) *configdef.Key {
	if k := configdef.Broker().Lookup(name); k != nil {
		return k
	}
	rest, ok := strings.CutPrefix(name, "listener.name.")
	if !ok {
		return nil
	}
	_, rest, _ = strings.Cut(rest, ".")
	for rest != "" {
		if k := configdef.Broker().Lookup(rest); k != nil {
			return k
		}
		_, rest, _ = strings.Cut(rest, ".") // a SASL mechanism before the key
	}
	return nil
}

// isPrefixed tells whether a key is a known key of one listener: listener.name.NAME[.MECHANISM].KEY.
func isPrefixed(name string) bool {
	return strings.HasPrefix(name, "listener.name.") && KeyOf(name) != nil
}
