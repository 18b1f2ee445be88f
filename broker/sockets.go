package broker

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"syscall"

	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sys/unix"

	"gregor/broker/api"
	"gregor/broker/config"
	"gregor/broker/network"
	"gregor/kraft"
)

// socket is an open listener that may not be served yet.
type socket struct {
	listener config.Listener
	net      net.Listener
}

// listen opens all listeners at once, so that a port in use is found before anything else starts. Those for clients
// are served later: until then connections wait in the backlog.
func (b *Broker) listen() ([]socket, error) {
	var out []socket
	for _, l := range b.cfg.Listeners.All {
		n, err := net.Listen("tcp", l.Address())
		if err != nil {
			for _, s := range out {
				err = errors.Join(err, s.net.Close())
			}
			return nil, fmt.Errorf("cannot listen on %s: %w%s", l, err, listenAdvice(err))
		}
		out = append(out, socket{listener: l, net: n})
	}
	return out, nil
}

// listenAdvice says what an operator can do about a socket that does not open; "" when the error says it itself.
func listenAdvice(err error) string {
	var noHost *net.DNSError
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return " (is another broker running? set listeners to another port)"
	case errors.Is(err, syscall.EACCES):
		return " (ports below 1024 need privileges; set listeners to another port)"
	case errors.Is(err, syscall.EADDRNOTAVAIL), errors.As(err, &noHost):
		return " (the host in listeners must be one of this machine's own names or addresses, or empty for all; what others connect to stands in advertised.listeners)"
	}
	return ""
}

// serve begins to accept on the controller's listeners, or on the others.
func (b *Broker) serve(sockets []socket, controller bool) error {
	handler := api.NewServer(b.table, controller, b.log)
	several := len(b.cfg.Listeners.Advertised) > 1
	for _, s := range sockets {
		if s.listener.Controller != controller {
			continue
		}
		_, err := b.network.Listen(network.ListenerOptions{
			Name: s.listener.Name, Socket: s.net, Handler: handler,
			Protected: several && s.listener.Name == b.cfg.Listeners.InterBroker,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// port is the port that a listener really has.
func (s socket) port() uint16 {
	if a, ok := s.net.Addr().(*net.TCPAddr); ok {
		return uint16(a.Port)
	}
	return s.listener.Port
}

// registrationListeners are the advertised listeners as the broker registers them.
func registrationListeners(c *config.Config, sockets []socket) []kmsg.BrokerRegistrationRequestListener {
	var out []kmsg.BrokerRegistrationRequestListener
	for _, a := range reachable(c.Listeners.Advertised, sockets) {
		x := kmsg.NewBrokerRegistrationRequestListener()
		x.Name, x.Host, x.Port, x.SecurityProtocol = a.Name, a.Host, a.Port, securityCodes[a.Protocol]
		out = append(out, x)
	}
	return out
}

// controllerListeners are the listeners that the controller registers and that voters are reached by.
func controllerListeners(c *config.Config, sockets []socket) []kraft.ControllerListener {
	var out []kraft.ControllerListener
	for _, a := range reachable(c.Listeners.AdvertisedControllers, sockets) {
		out = append(out, kraft.ControllerListener{Name: a.Name, Host: a.Host, Port: a.Port, SecurityProtocol: securityCodes[a.Protocol]})
	}
	return out
}

// reachable are listeners as others can reach them. A port of 0 is that of the socket; an empty host is this
// machine's name, as in Kafka.
func reachable(advertised []config.Listener, sockets []socket) []config.Listener {
	out := slices.Clone(advertised)
	for i := range out {
		a := &out[i]
		a.Host = advertisedHost(a.Host)
		if a.Port != 0 {
			continue
		}
		for _, s := range sockets {
			if s.listener.Name == a.Name {
				a.Port = s.port()
			}
		}
	}
	return out
}

// advertisedHost is the name that others reach a listener on all interfaces by.
func advertisedHost(host string) string {
	if host != "" {
		return host
	}
	if name, err := hostName(); err == nil && name != "" {
		return name
	}
	return "localhost"
}

// hostName is the name of this machine.
func hostName() (string, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "", err
	}
	return unix.ByteSliceToString(u.Nodename[:]), nil
}
