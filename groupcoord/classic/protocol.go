package classic

import (
	"encoding/binary"

	"gregor/groupcoord/javaorder"
	"gregor/groupcoord/schema"
)

// supports reports whether a member with these protocols could be in the group.
func (g *Group) supports(protocolType string, protocols []Protocol) bool {
	if g.state == Empty {
		return protocolType != "" && len(protocols) > 0
	}
	if g.ProtocolType == "" || g.ProtocolType != protocolType {
		return false
	}
	for _, p := range protocols {
		if g.supported[p.Name] == len(g.members) {
			return true
		}
	}
	return false
}

// selectProtocol lets each member vote for the first of its protocols that all
// members have. On a tie Kafka takes the first in the order of a Java hash map,
// so that every coordinator takes the same.
func (g *Group) selectProtocol() string {
	votes := make(map[string]int)
	for _, m := range g.order {
		for _, p := range m.Protocols {
			if g.supported[p.Name] == len(g.members) {
				votes[p.Name]++
				break
			}
		}
	}
	best, bucket := "", 0
	for name, n := range votes {
		b := javaBucket(name)
		switch {
		case n > votes[best], n == votes[best] && b < bucket, n == votes[best] && b == bucket && name < best:
			best, bucket = name, b
		}
	}
	return best
}

// javaBucket is where a small java.util.HashMap keeps a string.
func javaBucket(s string) int {
	h := javaorder.String(s)
	return int((uint32(h) ^ uint32(h)>>16) & 15)
}

// subscribedTopics reads the topics out of the members' metadata; nil when they
// cannot be known.
func (g *Group) subscribedTopics() map[string]struct{} {
	if g.ProtocolType != ConsumerProtocolType {
		return nil
	}
	topics := make(map[string]struct{})
	if len(g.members) == 0 {
		return topics
	}
	if g.protocol == nil {
		return nil
	}
	for _, m := range g.order {
		names, ok := subscription(m.Metadata(g.protocol))
		if !ok {
			return nil
		}
		for _, name := range names {
			topics[name] = struct{}{}
		}
	}
	return topics
}

// subscription reads the topics of a consumer's metadata. All versions begin
// with version 0.
func subscription(metadata []byte) (topics []string, ok bool) {
	if len(metadata) < 2 || int16(binary.BigEndian.Uint16(metadata)) < 0 {
		return nil, false
	}
	var s schema.ConsumerProtocolSubscription
	if _, err := s.DecodePrefix(metadata[2:], 0); err != nil {
		return nil, false
	}
	return s.Topics, true
}
