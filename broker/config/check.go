package config

import (
	"cmp"
	_ "embed" // status.tsv
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"gregor/internal/configdef"
)

//go:embed status.tsv
var statusTSV string

// status says what Gregor does with a key.
type status struct {
	kind   string // "unused", "unsafe" or "default" (only its default is acted on); acted on when absent
	reason string
}

// statuses is the parsed status.tsv: key patterns (a trailing * stands for any rest) to their status.
var statuses = sync.OnceValue(func() map[string]status {
	m := map[string]status{}
	for line := range strings.Lines(statusTSV) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) == 3 && !strings.HasPrefix(line, "#") {
			m[f[0]] = status{kind: f[1], reason: f[2]}
		}
	}
	return m
})

// statusOf returns the status of a key; a longer pattern wins over a shorter one.
func statusOf(name string) (status, bool) {
	all := statuses()
	if s, ok := all[name]; ok {
		return s, true
	}
	for i := len(name); i > 0; i-- {
		if s, ok := all[name[:i]+"*"]; ok {
			return s, true
		}
	}
	return status{}, false
}

// checkKeys looks at every key that was set: unknown ones, and known ones that are not acted on.
func (c *Config) checkKeys(strict bool) ([]Warning, error) {
	var warnings []Warning
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(c.values.static)) {
		s := c.values.static[name]
		if KeyOf(name) == nil && !ignorable(name) {
			message := "unknown key"
			if near := configdef.Broker().Nearest(strings.ToLower(name)); near != "" {
				message += "; did you mean " + near + "?"
			}
			if strict {
				errs = append(errs, &Error{Where: s.where, Key: s.name, Message: message})
			} else {
				warnings = append(warnings, Warning{Where: s.where, Key: s.name, Message: message + " (ignored)"})
			}
			continue
		}
		w, err := c.checkStatus(name, s)
		if err != nil {
			errs = append(errs, err)
		} else if w != nil {
			warnings = append(warnings, *w)
		}
	}
	return warnings, joinByLine(errs)
}

// joinByLine joins errors in the order of the lines that they are about.
func joinByLine(errs []error) error {
	sortByLine(errs, func(err error) string {
		if e, ok := errors.AsType[*Error](err); ok {
			return e.Where
		}
		return ""
	})
	return errors.Join(errs...)
}

func sortByLine[T any](list []T, where func(T) string) {
	slices.SortStableFunc(list, func(a, b T) int { return cmp.Compare(lineOf(where(a)), lineOf(where(b))) })
}

func lineOf(where string) int {
	line := 0
	if i := strings.LastIndexByte(where, ':'); i >= 0 {
		_, _ = fmt.Sscan(where[i+1:], &line) // no number: sorted first
	}
	return line
}

// ignorable keys are read by Kafka's authorizer, not by its config table.
func ignorable(name string) bool {
	return name == "super.users" || name == "allow.everyone.if.no.acl.found"
}

// checkStatus warns of, or refuses, a key that is not acted on. A key set to its default asks for nothing.
func (c *Config) checkStatus(name string, s static) (*Warning, error) {
	st, listed := statusOf(name)
	if !listed || s.where == standaloneWhere {
		return nil, nil
	}
	if s.text == "" || isDefault(name, s.text) {
		return nil, nil
	}
	if st.kind == "unsafe" {
		return nil, &Error{Where: s.where, Key: s.name, Message: "Gregor does not act on this yet, and to go on without it would be unsafe: " + st.reason}
	}
	return &Warning{Where: s.where, Key: s.name, Message: "has no effect: " + st.reason}, nil
}

// checkDirs refuses the same directory twice, under whatever names.
func (c *Config) checkDirs() error {
	seen := map[string]string{}
	for _, dir := range c.Storage.Dirs {
		path := filepath.Clean(dir)
		if first, ok := seen[path]; ok {
			return c.errorAt(c.Synonyms("log.dirs")[0].Name, fmt.Sprintf("duplicate log directory: %s and %s are the same", first, dir))
		}
		seen[path] = dir
	}
	return nil
}

// isDefault tells whether a text gives a key the value that it has anyway.
func isDefault(name, text string) bool {
	k := configdef.Broker().Lookup(name)
	if k == nil || k.Default == nil {
		return false
	}
	v, err := k.Parse(text)
	return err == nil && configdef.Format(v) == configdef.Format(k.DefaultValue())
}

// checkRoles applies the rules on roles, listeners and quorum of KafkaConfig.
func (c *Config) checkRoles() error {
	n, l, q := &c.Node, &c.Listeners, &c.Quorum
	if len(q.Voters) == 0 && len(q.BootstrapServers) == 0 {
		return &Error{Where: c.values.file, Key: "controller.quorum.bootstrap.servers", Message: "set this or controller.quorum.voters: the addresses of the controllers"}
	}
	isVoter := slices.ContainsFunc(q.Voters, func(v Voter) bool { return v.ID == n.ID })
	hasController := slices.ContainsFunc(l.All, func(x Listener) bool { return x.Controller })
	switch {
	case n.Controller && len(q.Voters) > 0 && !isVoter:
		return c.errorAt("controller.quorum.voters", fmt.Sprintf("this node (node.id=%d) is a controller and must be one of the voters", n.ID))
	case !n.Controller && isVoter:
		return c.errorAt("controller.quorum.voters", fmt.Sprintf("node.id=%d is a voter, but process.roles does not contain controller", n.ID))
	case n.Controller && !hasController:
		return c.errorAt("controller.listener.names", "process.roles contains controller, so listeners must contain at least one of "+strings.Join(l.ControllerNames, ", "))
	case !n.Controller && hasController:
		return c.errorAt("controller.listener.names", fmt.Sprintf("listeners must not contain a controller listener (%s) when process.roles is broker", strings.Join(l.ControllerNames, ", ")))
	case n.Broker && len(l.Advertised) == 0:
		return c.errorAt("listeners", "process.roles contains broker, so at least one listener must be for clients")
	case !n.Broker && slices.ContainsFunc(l.All, func(x Listener) bool { return !x.Controller }):
		return c.errorAt("listeners", fmt.Sprintf("with process.roles=controller every listener must be in controller.listener.names (%s)", strings.Join(l.ControllerNames, ", ")))
	}
	return nil
}

// relation is a rule between two values of KafkaConfig.validateValues.
type relation struct {
	key     string
	holds   bool
	message string
}

// checkRelations applies the rules between values.
func (c *Config) checkRelations() error {
	g, r, q := &c.Groups, &c.Replication, &c.Quorum
	for _, x := range []relation{
		{"broker.id", c.Node.BrokerID < 0 || c.Node.BrokerID == c.Node.ID, "must be the same as node.id, where it is set at all"},
		{"replica.fetch.wait.max.ms", r.FetchWaitMaxMillis <= r.SocketTimeoutMillis, "must be at most replica.socket.timeout.ms, or followers time out in vain"},
		{"replica.fetch.wait.max.ms", int64(r.FetchWaitMaxMillis) <= r.LagTimeMaxMillis, "must be at most replica.lag.time.max.ms, or idle followers leave the ISR"},
		{"offsets.topic.compression.codec", c.Offsets.TopicCodec >= 0 && c.Offsets.TopicCodec <= 4, "must be 0 (none), 1 (gzip), 2 (snappy), 3 (lz4) or 4 (zstd)"},
		{"max.connections.per.ip", c.Sockets.MaxConnectionsPerIP > 0 || c.Sockets.PerIPOverrides != "", "can only be 0 when max.connections.per.ip.overrides lets some addresses in"},
		{"group.min.session.timeout.ms", g.MinSessionMillis <= g.MaxSessionMillis, "must be at most group.max.session.timeout.ms"},
		{"group.consumer.max.heartbeat.interval.ms", g.ConsumerMaxHeartbeatMillis >= g.ConsumerMinHeartbeatMillis, "must be at least group.consumer.min.heartbeat.interval.ms"},
		{"group.consumer.heartbeat.interval.ms", g.ConsumerHeartbeatMillis >= g.ConsumerMinHeartbeatMillis && g.ConsumerHeartbeatMillis <= g.ConsumerMaxHeartbeatMillis, "must be between group.consumer.min.heartbeat.interval.ms and group.consumer.max.heartbeat.interval.ms"},
		{"group.consumer.max.session.timeout.ms", g.ConsumerMaxSessionMillis >= g.ConsumerMinSessionMillis, "must be at least group.consumer.min.session.timeout.ms"},
		{"group.consumer.session.timeout.ms", g.ConsumerSessionMillis >= g.ConsumerMinSessionMillis && g.ConsumerSessionMillis <= g.ConsumerMaxSessionMillis, "must be between group.consumer.min.session.timeout.ms and group.consumer.max.session.timeout.ms"},
		{"group.consumer.heartbeat.interval.ms", g.ConsumerHeartbeatMillis < g.ConsumerSessionMillis, "must be below group.consumer.session.timeout.ms"},
		{"log.cleaner.dedupe.buffer.size", c.Cleaner.DedupeBytes/int64(max(c.Cleaner.Threads, 1)) > 1<<20, "must be at least 1MB per cleaner thread"},
		{"controller.quorum.fetch.timeout.ms", q.FetchTimeoutMillis > 0, "must be above 0"},
	} {
		if !x.holds {
			at := c.Synonyms(x.key)[0]
			return &Error{Where: cmp.Or(at.Where, c.values.file), Key: x.key, Message: fmt.Sprintf("Invalid value %s: %s", text(at.Text), x.message)}
		}
	}
	return nil
}

func text(s *string) string {
	if s == nil {
		return "null"
	}
	return *s
}

// checkTopicDefaults validates what topics without overrides get, by the topic keys' own rules:
// log.retention.ms=0 for instance is a number, but no valid retention.
func (c *Config) checkTopicDefaults() error {
	for k := range configdef.Topic().All() {
		v := c.TopicSynonyms(k.Name)[0]
		if v.Text == nil {
			continue
		}
		if _, err := k.Parse(*v.Text); err != nil {
			return &Error{Where: v.Where, Key: v.Name, Message: fmt.Sprintf("Invalid value %s: as the default of topics' %s it is not valid: %s", *v.Text, k.Name, explain(k, err))}
		}
	}
	if v := c.TopicSynonyms("retention.ms")[0]; v.Text != nil && *v.Text == "0" {
		return &Error{Where: v.Where, Key: v.Name, Message: "must be unlimited (-1) or, equal or greater than 1"}
	}
	return nil
}

// advice warns of settings that work but that an operator will regret.
func (c *Config) advice() []Warning {
	var out []Warning
	add := func(key, message string) {
		at := c.Synonyms(key)[0]
		out = append(out, Warning{Where: cmp.Or(at.Where, c.values.file), Key: at.Name, Message: message})
	}
	for _, dir := range c.Storage.Dirs {
		if c.Node.Broker && strings.HasPrefix(dir, "/tmp/") {
			add("log.dirs", dir+" is below /tmp, which many systems empty at boot")
			break
		}
	}
	if c.Node.Broker && c.Node.HeartbeatMillis*2 > c.Node.SessionTimeoutMillis {
		add("broker.heartbeat.interval.ms", fmt.Sprintf("%d is more than half of broker.session.timeout.ms (%d on this node, the controllers' holds): one lost heartbeat fences the broker",
			c.Node.HeartbeatMillis, c.Node.SessionTimeoutMillis))
	}
	return out
}
