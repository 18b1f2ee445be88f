package config

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
)

// Listeners holds the sockets that the node listens on and what it tells others of them.
type Listeners struct {
	Specs           []string `kafka:"listeners"`
	AdvertisedSpecs []string `kafka:"advertised.listeners"`
	ProtocolMap     string   `kafka:"listener.security.protocol.map"`
	ControllerNames []string `kafka:"controller.listener.names"`
	InterBrokerName string   `kafka:"inter.broker.listener.name"`
	InterBrokerSec  string   `kafka:"security.inter.broker.protocol"`

	// All are the listeners in the order of the file; Advertised are those of the broker that others see,
	// AdvertisedControllers those of the controller, in the order of controller.listener.names.
	All                   []Listener
	Advertised            []Listener
	AdvertisedControllers []Listener
	// InterBroker is the name of the listener that brokers use among themselves.
	InterBroker string
}

// Listener is one entry of listeners or advertised.listeners.
type Listener struct {
	Name string // as Kafka normalises it: upper case
	Host string // "" is all interfaces
	Port uint16 // 0: any free port
	// Protocol is PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
	Protocol   string
	Controller bool
}

// Address is host:port for net.Listen.
func (l Listener) Address() string { return net.JoinHostPort(l.Host, strconv.Itoa(int(l.Port))) }

func (l Listener) String() string { return l.Name + "://" + l.Address() }

// Find returns the listener of that name.
func (l Listeners) Find(name string) (Listener, bool) {
	i := slices.IndexFunc(l.All, func(x Listener) bool { return x.Name == name })
	if i < 0 {
		return Listener{}, false
	}
	return l.All[i], true
}

// defaultProtocols are the listener names that need no entry in the map.
var protocols = []string{"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"}

// protocolMap parses listener.security.protocol.map. When the map is not set, controller listeners that it does
// not name are PLAINTEXT, as in Kafka (KIP-1043's predecessor rule: the default map is used and no listener of the
// broker needs another).
func (c *Config) protocolMap() (map[string]string, error) {
	l := &c.Listeners
	m := map[string]string{}
	for pair := range strings.SplitSeq(l.ProtocolMap, ",") {
		pair = strings.TrimSpace(pair)
		if pair == "" {
			continue
		}
		name, protocol, ok := strings.Cut(pair, ":")
		name, protocol = strings.ToUpper(strings.TrimSpace(name)), strings.ToUpper(strings.TrimSpace(protocol))
		if !ok || !slices.Contains(protocols, protocol) {
			return nil, c.errorAt("listener.security.protocol.map", fmt.Sprintf("%q is not NAME:PROTOCOL with a protocol of %s", pair, strings.Join(protocols, ", ")))
		}
		m[name] = protocol
	}
	if _, set := c.values.static["listener.security.protocol.map"]; !set {
		for _, name := range l.ControllerNames {
			name = strings.ToUpper(name)
			if _, known := m[name]; !known && !slices.Contains(protocols, name) {
				m[name] = "PLAINTEXT"
			}
		}
	}
	return m, nil
}

// buildListeners derives the parsed listeners and checks them as KafkaConfig does.
func (c *Config) buildListeners() error {
	l := &c.Listeners
	for i, name := range l.ControllerNames {
		l.ControllerNames[i] = strings.ToUpper(name)
	}
	m, err := c.protocolMap()
	if err != nil {
		return err
	}
	if l.All, err = c.parseListeners("listeners", l.Specs, m); err != nil {
		return err
	}
	for _, step := range []func() error{c.checkProtocols, c.checkPorts, func() error { return c.buildAdvertised(m) }, c.buildInterBroker} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// checkProtocols refuses listeners that promise what is not there.
func (c *Config) checkProtocols() error {
	for _, x := range c.Listeners.All {
		if x.Protocol != "PLAINTEXT" {
			return c.errorAt("listeners", fmt.Sprintf("listener %s uses %s: Gregor does not authenticate or encrypt yet, and to open it without would be unsafe", x.Name, x.Protocol))
		}
	}
	return nil
}

func (c *Config) parseListeners(key string, specs []string, m map[string]string) ([]Listener, error) {
	var out []Listener
	for _, spec := range specs {
		name, address, ok := strings.Cut(spec, "://")
		name = strings.ToUpper(strings.TrimSpace(name))
		if !ok || name == "" {
			return nil, c.errorAt(key, fmt.Sprintf("listener %q is not of the form NAME://HOST:PORT", spec))
		}
		colon := strings.LastIndexByte(address, ':')
		if colon < 0 {
			return nil, c.errorAt(key, fmt.Sprintf("listener %q has no port (NAME://HOST:PORT)", spec))
		}
		port, err := strconv.ParseUint(address[colon+1:], 10, 16)
		if err != nil {
			return nil, c.errorAt(key, fmt.Sprintf("listener %q: port %q is not a number from 0 to 65535", spec, address[colon+1:]))
		}
		protocol, ok := m[name]
		if !ok {
			return nil, c.errorAt(key, fmt.Sprintf("listener %s has no entry in listener.security.protocol.map; add %s:PLAINTEXT (or SSL, SASL_PLAINTEXT, SASL_SSL)", name, name))
		}
		if slices.ContainsFunc(out, func(x Listener) bool { return x.Name == name }) {
			return nil, c.errorAt(key, fmt.Sprintf("listener name %s is used twice; each listener needs its own name", name))
		}
		host := strings.TrimSuffix(strings.TrimPrefix(address[:colon], "["), "]")
		out = append(out, Listener{
			Name: name, Host: host, Port: uint16(port), Protocol: protocol,
			Controller: slices.Contains(c.Listeners.ControllerNames, name),
		})
	}
	return out, nil
}

// checkPorts refuses two listeners on one port, unless one is IPv4 and the other IPv6.
func (c *Config) checkPorts() error {
	for i, a := range c.Listeners.All {
		for _, b := range c.Listeners.All[:i] {
			if a.Port == 0 || a.Port != b.Port || strings.Contains(a.Host, ":") != strings.Contains(b.Host, ":") {
				continue
			}
			return c.errorAt("listeners", fmt.Sprintf("%s and %s use the same port %d; each listener needs its own port", b.Name, a.Name, a.Port))
		}
	}
	return nil
}

func (c *Config) buildAdvertised(m map[string]string) error {
	l := &c.Listeners
	specs, key := l.AdvertisedSpecs, "advertised.listeners"
	if len(specs) == 0 {
		for _, x := range l.All {
			if !x.Controller {
				l.Advertised = append(l.Advertised, x)
			}
		}
		l.advertiseControllers(nil)
		return nil
	}
	advertised, err := c.parseListeners(key, specs, m)
	if err != nil {
		return err
	}
	for _, a := range advertised {
		if a.Host == "0.0.0.0" {
			return c.errorAt(key, "0.0.0.0 is no address that a client can connect to; advertise a routable IP address or name")
		}
		if _, ok := l.Find(a.Name); !ok && !a.Controller {
			return c.errorAt(key, a.Name+" is advertised but not in listeners; it must be one of them")
		}
		if !a.Controller {
			l.Advertised = append(l.Advertised, a)
		}
	}
	l.advertiseControllers(advertised)
	return nil
}

// advertiseControllers fills AdvertisedControllers: a controller listener that is not advertised is told as it listens,
// and on all interfaces by this machine's name.
func (l *Listeners) advertiseControllers(advertised []Listener) {
	for _, name := range l.ControllerNames {
		named := func(x Listener) bool { return x.Name == name }
		if i := slices.IndexFunc(advertised, named); i >= 0 {
			l.AdvertisedControllers = append(l.AdvertisedControllers, advertised[i])
		} else if own, ok := l.Find(name); ok {
			if own.Host == "0.0.0.0" {
				own.Host = ""
			}
			l.AdvertisedControllers = append(l.AdvertisedControllers, own)
		}
	}
}

func (c *Config) buildInterBroker() error {
	l := &c.Listeners
	if !c.Node.Broker {
		return nil
	}
	name := strings.ToUpper(l.InterBrokerName)
	_, securitySet := c.values.static["security.inter.broker.protocol"]
	switch {
	case name != "" && securitySet:
		return c.errorAt("inter.broker.listener.name", "set either this or security.inter.broker.protocol, not both")
	case name == "":
		name = l.InterBrokerSec
	}
	found := slices.ContainsFunc(l.Advertised, func(x Listener) bool { return x.Name == name })
	if !found && l.InterBrokerName == "" && !securitySet && len(l.Advertised) > 0 {
		return c.errorAt("inter.broker.listener.name", fmt.Sprintf("the listener that brokers use among themselves is %s by default and is not advertised; set inter.broker.listener.name to one of the advertised listeners (%s)", name, l.Advertised[0].Name))
	}
	if !found {
		return c.errorAt("inter.broker.listener.name", fmt.Sprintf("listener %s is not advertised", name))
	}
	if slices.Contains(l.ControllerNames, name) {
		return c.errorAt("inter.broker.listener.name", name+" is a controller listener (controller.listener.names); brokers need one of their own")
	}
	l.InterBroker = name
	return nil
}

// Address is where a controller or a client is reached.
type Address struct {
	Host string
	Port uint16
}

func parseAddress(text string) (Address, bool) {
	host, portText, err := net.SplitHostPort(text)
	port, portErr := strconv.ParseUint(portText, 10, 16)
	return Address{Host: host, Port: uint16(port)}, err == nil && portErr == nil && host != ""
}

// parseServers reads controller.quorum.bootstrap.servers: host:port.
func (c *Config) parseServers() error {
	c.Quorum.Bootstrap = nil
	for _, spec := range c.Quorum.BootstrapServers {
		a, ok := parseAddress(spec)
		if !ok {
			return c.errorAt("controller.quorum.bootstrap.servers", fmt.Sprintf("%q is not of the form HOST:PORT", spec))
		}
		c.Quorum.Bootstrap = append(c.Quorum.Bootstrap, a)
	}
	return nil
}

// parseConnectionLimits reads max.connections.per.ip.overrides: host:count.
func (c *Config) parseConnectionLimits() error {
	const key = "max.connections.per.ip.overrides"
	c.Sockets.ConnectionsPerHost = map[string]int{}
	for entry := range strings.SplitSeq(c.Sockets.PerIPOverrides, ",") {
		if entry = strings.TrimSpace(entry); entry == "" {
			continue
		}
		colon := strings.LastIndexByte(entry, ':')
		if colon <= 0 {
			return c.errorAt(key, fmt.Sprintf("%q is not of the form HOST:COUNT", entry))
		}
		n, err := strconv.ParseInt(entry[colon+1:], 10, 32)
		if err != nil {
			return c.errorAt(key, fmt.Sprintf("%q: %q is not a number of connections", entry, entry[colon+1:]))
		}
		c.Sockets.ConnectionsPerHost[strings.Trim(entry[:colon], "[]")] = int(n)
	}
	return nil
}

// parseVoters reads controller.quorum.voters: id@host:port, ids unique.
func (c *Config) parseVoters() error {
	const key = "controller.quorum.voters"
	q := &c.Quorum
	q.Voters = nil
	for _, spec := range q.VoterSpecs {
		idText, address, ok := strings.Cut(spec, "@")
		id, err := strconv.ParseInt(idText, 10, 32)
		to, isAddress := parseAddress(address)
		if !ok || err != nil || !isAddress || id < 0 {
			return c.errorAt(key, fmt.Sprintf("%q is not of the form ID@HOST:PORT", spec))
		}
		if slices.ContainsFunc(q.Voters, func(v Voter) bool { return v.ID == int32(id) }) {
			return c.errorAt(key, fmt.Sprintf("voter id %d is used twice", id))
		}
		q.Voters = append(q.Voters, Voter{ID: int32(id), Host: to.Host, Port: to.Port})
	}
	return nil
}
