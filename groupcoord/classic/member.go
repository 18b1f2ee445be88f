package classic

import (
	"bytes"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Protocol is one of the protocols that a member supports, in its order of
// preference, with the metadata for it.
type Protocol struct {
	Name     string
	Metadata []byte
}

// terms are what a member says anew with each join.
type terms struct {
	Protocols              []Protocol
	RebalanceTimeoutMillis int32
	SessionTimeoutMillis   int32
}

// Member of a classic group.
type Member struct {
	ID                   string
	InstanceID           *string
	ClientID, ClientHost string
	ProtocolType         string
	terms
	Assignment []byte

	// join and sync answer a request that waits; nil when none does.
	join func(*kmsg.JoinGroupResponse)
	sync func(*kmsg.SyncGroupResponse)
	// isNew is set until the member's first rebalance ends: its client does not
	// know its id yet and cannot send heartbeats.
	isNew bool
}

func (m *Member) sessionTimeout() time.Duration {
	return time.Duration(m.SessionTimeoutMillis) * time.Millisecond
}

// heartbeatSatisfied reports whether the member is excused from heartbeats.
func (m *Member) heartbeatSatisfied() bool {
	return !m.isNew && (m.join != nil || m.sync != nil)
}

// Metadata returns what the member gave for a protocol, nil when it does not
// support it.
func (m *Member) Metadata(protocol *string) []byte {
	if protocol == nil {
		return nil
	}
	for _, p := range m.Protocols {
		if p.Name == *protocol {
			return p.Metadata
		}
	}
	return nil
}

// matches reports whether the member has exactly these protocols.
func (m *Member) matches(protocols []Protocol) bool {
	if len(m.Protocols) != len(protocols) {
		return false
	}
	for i, p := range m.Protocols {
		if p.Name != protocols[i].Name || !bytes.Equal(p.Metadata, protocols[i].Metadata) {
			return false
		}
	}
	return true
}
