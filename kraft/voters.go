package kraft

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"gregor/kraft/quorum"
	"gregor/protocol"
)

// ParseVoters reads the argument of --initial-controllers: "id@host:port:directory,...". An IPv6 host is in square
// brackets. listener is the name under which the addresses are recorded. Errors have the words of Kafka's tool.
func ParseVoters(text, listener string) ([]quorum.Voter, error) {
	var out []quorum.Voter
	seen := make(map[int32]bool)
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		v, err := parseVoter(item, listener)
		if err != nil {
			return nil, err
		}
		if seen[v.Key.ID] {
			return nil, fmt.Errorf("Node id %d was specified more than once.", v.Key.ID) //nolint:revive,staticcheck // Kafka's text
		}
		seen[v.Key.ID] = true
		out = append(out, v)
	}
	if len(out) == 0 {
		return nil, errors.New("No voters given.") //nolint:revive,staticcheck // Kafka's text
	}
	return out, nil
}

// voterError is a complaint about one voter, in Kafka's words.
func voterError(format string, args ...any) (quorum.Voter, error) {
	return quorum.Voter{}, fmt.Errorf(format, args...)
}

func parseVoter(text, listener string) (quorum.Voter, error) {
	at := strings.IndexByte(text, '@')
	switch {
	case at < 0:
		return voterError("No @ found in dynamic voter string.")
	case at == 0:
		return voterError("Invalid @ at beginning of dynamic voter string.")
	}
	id, err := strconv.ParseInt(text[:at], 10, 32)
	switch {
	case err != nil:
		return voterError("Failed to parse node id in dynamic voter string.")
	case id < 0:
		return voterError("Invalid negative node id %d in dynamic voter string.", id)
	}
	host, rest, err := cutHost(text[at+1:])
	if err != nil {
		return quorum.Voter{}, err
	}
	portText, dirText, ok := strings.Cut(rest, ":")
	if !ok {
		return voterError("No colon following port could be found.")
	}
	port, err := strconv.ParseInt(portText, 10, 32)
	switch {
	case err != nil:
		return voterError("Failed to parse port in dynamic voter string.")
	case port < 0 || port > 65535:
		return voterError("Invalid port %d in dynamic voter string.", port)
	}
	dir, err := protocol.ParseUUID(dirText)
	if err != nil {
		return voterError("Failed to parse directory ID in dynamic voter string.")
	}
	return quorum.Voter{
		Key:             quorum.ReplicaKey{ID: int32(id), DirectoryID: dir},
		Endpoints:       []quorum.Endpoint{{Name: listener, Host: host, Port: uint16(port)}},
		MinKRaftVersion: 0, MaxKRaftVersion: 1,
	}, nil
}

// cutHost splits "host:rest" or "[v6]:rest".
func cutHost(text string) (host, rest string, err error) {
	if text == "" {
		return "", "", errors.New("No hostname found after node id.") //nolint:revive,staticcheck // Kafka's text
	}
	if text[0] == '[' {
		host, rest, ok := strings.Cut(text[1:], "]")
		if !ok {
			return "", "", errors.New("Hostname began with left bracket, but no right bracket was found.") //nolint:revive,staticcheck // Kafka's text
		}
		if !strings.HasPrefix(rest, ":") {
			return "", "", errors.New("Port section must start with a colon.") //nolint:revive,staticcheck // Kafka's text
		}
		return host, rest[1:], nil
	}
	host, rest, ok := strings.Cut(text, ":")
	if !ok {
		return "", "", errors.New("No colon following hostname could be found.") //nolint:revive,staticcheck // Kafka's text
	}
	return host, rest, nil
}
