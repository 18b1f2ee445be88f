package schema

import (
	"encoding/binary"
	"fmt"

	"gregor/protocol/wire"
)

// AppendSubscription appends a subscription of the consumer protocol with its version to dst.
func AppendSubscription(dst []byte, s *ConsumerProtocolSubscription, version int16) ([]byte, error) {
	return s.Append(binary.BigEndian.AppendUint16(dst, uint16(version)), version)
}

// DecodeSubscription reads a subscription of the consumer protocol, as it is in the metadata of a classic consumer's
// JoinGroup. A version above the highest known one is read as the highest, and bytes after it are ignored, as
// consumers do: a newer client's is read as far as it is known. It returns the version that was written.
func DecodeSubscription(b []byte) (s *ConsumerProtocolSubscription, version int16, err error) {
	s = new(ConsumerProtocolSubscription)
	version, err = decodeVersioned(b, s)
	return s, version, err
}

// AppendAssignment appends an assignment of the consumer protocol with its version to dst.
func AppendAssignment(dst []byte, a *ConsumerProtocolAssignment, version int16) ([]byte, error) {
	return a.Append(binary.BigEndian.AppendUint16(dst, uint16(version)), version)
}

// DecodeAssignment is DecodeSubscription for an assignment, as it is in SyncGroup.
func DecodeAssignment(b []byte) (a *ConsumerProtocolAssignment, version int16, err error) {
	a = new(ConsumerProtocolAssignment)
	version, err = decodeVersioned(b, a)
	return a, version, err
}

// decodeVersioned reads a version and a message that may be of a newer one.
func decodeVersioned(b []byte, m wire.Message) (int16, error) {
	r := wire.NewReader(b)
	version := r.Int16()
	if err := r.Err(); err != nil {
		return 0, fmt.Errorf("version of %s: %w", m.MessageName(), err)
	}
	_, highest := m.Versions()
	if _, err := m.DecodePrefix(r.Rest(), min(version, highest)); err != nil {
		return version, fmt.Errorf("%s version %d: %w", m.MessageName(), version, err)
	}
	return version, nil
}

// AppendPrincipal appends the principal of a forwarded request, as it is in Envelope, with its version to dst.
func AppendPrincipal(dst []byte, p *DefaultPrincipalData) ([]byte, error) {
	return p.Append(append(dst, 0, 0), 0)
}

// DecodePrincipal reads what AppendPrincipal writes. Another version is an error that wraps wire.ErrVersion.
func DecodePrincipal(b []byte) (*DefaultPrincipalData, error) {
	p := new(DefaultPrincipalData)
	r := wire.NewReader(b)
	version := r.Int16()
	if err := r.Err(); err != nil {
		return nil, fmt.Errorf("version of a principal: %w", err)
	}
	if _, err := p.DecodePrefix(r.Rest(), version); err != nil {
		return nil, fmt.Errorf("principal: %w", err)
	}
	return p, nil
}
