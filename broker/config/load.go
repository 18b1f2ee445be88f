package config

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"gregor/internal/configdef"
)

// Options says where a Config comes from. Later sources win: file, environment, overrides.
type Options struct {
	// FileName names the file in messages; "" when the node runs without one.
	FileName string
	// File is the text of server.properties (Java properties: ISO 8859-1 with \u escapes).
	File []byte
	// Environ is os.Environ(): KAFKA_LISTENERS and the like, as Kafka's container image maps them.
	Environ []string
	// Overrides are KEY=VALUE of the command line.
	Overrides []string
	// Strict makes unknown keys an error.
	Strict bool
}

// Load builds the Config. The error is an *Error, or a joined list of them where several values are wrong. Warnings
// are ordered by where they come from.
func Load(o Options) (*Config, []Warning, error) {
	v := &values{static: map[string]static{}}
	var warnings []Warning
	if o.FileName != "" {
		var err error
		if warnings, err = v.addFile(o.FileName, o.File); err != nil {
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
	more, err := c.checkKeys(o.Strict)
	warnings = append(warnings, more...)
	sortByLine(warnings, func(w Warning) string { return w.Where })
	if err != nil {
		return nil, warnings, err
	}
	if err := c.build(); err != nil {
		return nil, warnings, err
	}
	return c, append(warnings, c.advice()...), nil
}

// notConfig are variables that look like a config's but that Kafka's image or tools use otherwise.
var notConfig = []string{
	"KAFKA_CLUSTER_ID", "KAFKA_FORMAT_ARGS", "KAFKA_VERSION", "KAFKA_HEAP_OPTS", "KAFKA_LOG4J_OPTS", "KAFKA_OPTS", "KAFKA_JMX_OPTS",
	"KAFKA_JVM_PERFORMANCE_OPTS", "KAFKA_GC_LOG_OPTS", "KAFKA_LOG4J_ROOT_LOGLEVEL", "KAFKA_LOG4J_LOGGERS",
	"KAFKA_TOOLS_LOG4J_LOGLEVEL", "KAFKA_JMX_HOSTNAME", "KAFKA_JMX_PORT",
}

// maxTypos is how many letters of a variable's name may be wrong for it to be warned of.
const maxTypos = 2

// addEnviron maps KAFKA_A_B to a.b as Kafka's container image does: ___ is a dash, __ an underscore, _ a dot.
// Variables that give no known key are left alone, since other programs' variables begin with KAFKA_ too, unless they
// are within two letters of one.
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
		if configdef.Broker().Lookup(key) == nil && !isPrefixed(key) && configdef.Broker().Near(key, maxTypos) == "" {
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
		v.static[name] = static{text: strings.TrimSpace(text), where: "--override", name: name}
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
		v.static["broker.id"] = static{text: node.text, where: node.where, name: "broker.id", tied: true}
	case isBroker && !isNode:
		v.static["node.id"] = static{text: broker.text, where: broker.where, name: "node.id", tied: true}
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
	v.addListeners()
	if _, ok := v.static["log.dir"]; !ok {
		set("log.dirs", "gregor-data")
	}
	for _, topic := range []string{"offsets.topic", "transaction.state.log", "share.coordinator.state.topic"} {
		set(topic+".replication.factor", "1")
	}
	set("transaction.state.log.min.isr", "1")
	set("share.coordinator.state.topic.min.isr", "1")
}

// addListeners sets the listeners that the roles of a node without a file need and, on a controller that is not told
// of others, itself as the quorum.
func (v *values) addListeners() {
	roles := v.static["process.roles"].text
	controller := "CONTROLLER"
	if name, _, _ := strings.Cut(v.static["controller.listener.names"].text, ","); name != "" {
		controller = strings.ToUpper(name)
	}
	s, ok := v.static["listeners"]
	if !ok {
		s = static{where: standaloneWhere, name: "listeners"}
		if strings.Contains(roles, "broker") {
			s.text = "PLAINTEXT://localhost:9092"
		}
	}
	if strings.Contains(roles, "controller") && !strings.Contains(strings.ToUpper(s.text), controller+"://") {
		port := "9093"
		if s.text != "" {
			port = nextPort(s.text)
			s.text += ","
		}
		s.text += controller + "://localhost:" + port
	}
	v.static["listeners"] = s
	_, voters := v.static["controller.quorum.voters"]
	_, servers := v.static["controller.quorum.bootstrap.servers"]
	if _, address, ok := strings.Cut(s.text, controller+"://"); ok && !voters && !servers {
		address, _, _ = strings.Cut(address, ",")
		v.static["controller.quorum.bootstrap.servers"] = static{text: address, where: standaloneWhere, name: "controller.quorum.bootstrap.servers"}
	}
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
	for _, step := range []func() error{
		c.buildListeners, c.parseVoters, c.parseServers, c.parseConnectionLimits, c.checkRoles, c.checkDirs, c.checkRelations, c.checkTopicDefaults,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// checkRequired wants the keys without a default, and every static value to be valid, also those that no
// typed field reads. All that is wrong is told at once.
func (c *Config) checkRequired() error {
	var errs []error
	for _, name := range []string{"process.roles", "node.id", "controller.listener.names"} {
		if len(c.own(name)) == 0 {
			errs = append(errs, &Error{Where: c.values.file, Key: name, Message: "is required and not set" + parenthesis(configdef.Broker().Lookup(name).Valid())})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.values.static)) {
		s := c.values.static[name]
		k := KeyOf(name)
		if k == nil || s.tied {
			continue
		}
		if _, err := k.Parse(s.text); err != nil {
			errs = append(errs, &Error{Where: s.where, Key: s.name, Message: explain(k, err)})
		}
	}
	return joinByLine(errs)
}

func parenthesis(valid string) string {
	if valid == "" {
		return ""
	}
	return " (valid: " + valid + ")"
}

// errorAt is an Error about a key at the place where it was set, or about the file that does not set it.
func (c *Config) errorAt(key, message string) error {
	return &Error{Where: cmp.Or(c.values.static[key].where, c.values.file), Key: key, Message: message}
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
