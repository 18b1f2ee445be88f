package record

import "encoding/binary"

// The control records of the metadata log. All are flexible messages that start with their own version; unknown tagged
// fields are kept, so that what another version (or Gregor's quorum, which stores the raft configuration in one) put
// there survives.

// TaggedField is a tagged field (KIP-482) as it is stored. Tags ascend within a message.
type TaggedField struct {
	Tag   uint32
	Value []byte
}

// Voter names a voter of the metadata quorum. DirectoryID is not stored in version 0 of LeaderChange.
type Voter struct {
	ID          int32
	DirectoryID [16]byte
	Tags        []TaggedField
}

// LeaderChange is the first record of a leader epoch.
type LeaderChange struct {
	Version        int16
	LeaderID       int32
	Voters         []Voter
	GrantingVoters []Voter
	Tags           []TaggedField
}

// SnapshotHeader is the first record of a snapshot.
type SnapshotHeader struct {
	Version int16
	// LastContainedLogTimestampMillis is the append time of the last record that the snapshot stands for.
	LastContainedLogTimestampMillis int64
	Tags                            []TaggedField
}

// SnapshotFooter is the last record of a snapshot.
type SnapshotFooter struct {
	Version int16
	Tags    []TaggedField
}

// KRaftVersion sets kraft.version: 0 has a static quorum, 1 a dynamic one.
type KRaftVersion struct {
	Version      int16
	KRaftVersion int16
	Tags         []TaggedField
}

// VoterEndpoint is where a voter can be reached on one listener.
type VoterEndpoint struct {
	Name string
	Host string
	Port uint16
	Tags []TaggedField
}

// VersionRange is the range of kraft.version that a voter supports.
type VersionRange struct {
	Min, Max int16
	Tags     []TaggedField
}

// VoterDetails is a voter with what others need to reach it.
type VoterDetails struct {
	ID           int32
	DirectoryID  [16]byte
	Endpoints    []VoterEndpoint
	KRaftVersion VersionRange
	Tags         []TaggedField
}

// KRaftVoters is the voter set of a dynamic quorum.
type KRaftVoters struct {
	Version int16
	Voters  []VoterDetails
	Tags    []TaggedField
}

// Type returns ControlLeaderChange.
func (*LeaderChange) Type() ControlType { return ControlLeaderChange }

// Type returns ControlSnapshotHeader.
func (*SnapshotHeader) Type() ControlType { return ControlSnapshotHeader }

// Type returns ControlSnapshotFooter.
func (*SnapshotFooter) Type() ControlType { return ControlSnapshotFooter }

// Type returns ControlKRaftVersion.
func (*KRaftVersion) Type() ControlType { return ControlKRaftVersion }

// Type returns ControlKRaftVoters.
func (*KRaftVoters) Type() ControlType { return ControlKRaftVoters }

// leaderChangeWithDirectories is the first version of LeaderChange whose voters have directory ids.
const leaderChangeWithDirectories = 1

// Append appends the message in version 1 if Version is at least 1, else in version 0.
func (m *LeaderChange) Append(dst []byte) []byte {
	dst = appendInt16(dst, m.Version)
	dst = appendInt32(dst, m.LeaderID)
	for _, voters := range [][]Voter{m.Voters, m.GrantingVoters} {
		dst = appendUvarint(dst, uint32(len(voters)+1))
		for i := range voters {
			dst = appendInt32(dst, voters[i].ID)
			if m.Version >= leaderChangeWithDirectories {
				dst = append(dst, voters[i].DirectoryID[:]...)
			}
			dst = appendTags(dst, voters[i].Tags)
		}
	}
	return appendTags(dst, m.Tags)
}

// Append appends the message.
func (m *SnapshotHeader) Append(dst []byte) []byte {
	dst = appendInt16(dst, m.Version)
	dst = binary.BigEndian.AppendUint64(dst, uint64(m.LastContainedLogTimestampMillis))
	return appendTags(dst, m.Tags)
}

// Append appends the message.
func (m *SnapshotFooter) Append(dst []byte) []byte {
	return appendTags(appendInt16(dst, m.Version), m.Tags)
}

// Append appends the message.
func (m *KRaftVersion) Append(dst []byte) []byte {
	return appendTags(appendInt16(appendInt16(dst, m.Version), m.KRaftVersion), m.Tags)
}

// Append appends the message.
func (m *KRaftVoters) Append(dst []byte) []byte {
	dst = appendInt16(dst, m.Version)
	dst = appendUvarint(dst, uint32(len(m.Voters)+1))
	for i := range m.Voters {
		v := &m.Voters[i]
		dst = appendInt32(dst, v.ID)
		dst = append(dst, v.DirectoryID[:]...)
		dst = appendUvarint(dst, uint32(len(v.Endpoints)+1))
		for j := range v.Endpoints {
			e := &v.Endpoints[j]
			dst = appendCompactString(dst, e.Name)
			dst = appendCompactString(dst, e.Host)
			dst = binary.BigEndian.AppendUint16(dst, e.Port)
			dst = appendTags(dst, e.Tags)
		}
		dst = appendInt16(appendInt16(dst, v.KRaftVersion.Min), v.KRaftVersion.Max)
		dst = appendTags(dst, v.KRaftVersion.Tags)
		dst = appendTags(dst, v.Tags)
	}
	return appendTags(dst, m.Tags)
}

func parseLeaderChange(r *fieldReader) *LeaderChange {
	m := &LeaderChange{Version: r.int16(), LeaderID: r.int32()}
	for _, voters := range []*[]Voter{&m.Voters, &m.GrantingVoters} {
		for range r.arrayLen(5) {
			v := Voter{ID: r.int32()}
			if m.Version >= leaderChangeWithDirectories {
				v.DirectoryID = r.uuid()
			}
			v.Tags = r.tags()
			*voters = append(*voters, v)
		}
	}
	m.Tags = r.tags()
	return m
}

func parseSnapshotHeader(r *fieldReader) *SnapshotHeader {
	return &SnapshotHeader{Version: r.int16(), LastContainedLogTimestampMillis: r.int64(), Tags: r.tags()}
}

func parseSnapshotFooter(r *fieldReader) *SnapshotFooter {
	return &SnapshotFooter{Version: r.int16(), Tags: r.tags()}
}

func parseKRaftVersion(r *fieldReader) *KRaftVersion {
	return &KRaftVersion{Version: r.int16(), KRaftVersion: r.int16(), Tags: r.tags()}
}

func parseKRaftVoters(r *fieldReader) *KRaftVoters {
	m := &KRaftVoters{Version: r.int16()}
	for range r.arrayLen(27) {
		v := VoterDetails{ID: r.int32(), DirectoryID: r.uuid()}
		for range r.arrayLen(5) {
			v.Endpoints = append(v.Endpoints, VoterEndpoint{
				Name: r.compactString(), Host: r.compactString(), Port: uint16(r.int16()), Tags: r.tags(),
			})
		}
		v.KRaftVersion = VersionRange{Min: r.int16(), Max: r.int16(), Tags: r.tags()}
		v.Tags = r.tags()
		m.Voters = append(m.Voters, v)
	}
	m.Tags = r.tags()
	return m
}

func appendInt16(dst []byte, v int16) []byte { return binary.BigEndian.AppendUint16(dst, uint16(v)) }

func appendInt32(dst []byte, v int32) []byte { return binary.BigEndian.AppendUint32(dst, uint32(v)) }

func appendCompactString(dst []byte, s string) []byte {
	return append(appendUvarint(dst, uint32(len(s)+1)), s...)
}

func appendTags(dst []byte, tags []TaggedField) []byte {
	dst = appendUvarint(dst, uint32(len(tags)))
	for i := range tags {
		dst = appendUvarint(dst, tags[i].Tag)
		dst = appendUvarint(dst, uint32(len(tags[i].Value)))
		dst = append(dst, tags[i].Value...)
	}
	return dst
}

// fieldReader reads the fields of a flexible message. After a failure it yields zeros.
type fieldReader struct {
	b      []byte
	failed bool
}

func (r *fieldReader) take(n int) []byte {
	if r.failed || n < 0 || n > len(r.b) {
		r.failed = true
		return nil
	}
	taken := r.b[:n:n]
	r.b = r.b[n:]
	return taken
}

func (r *fieldReader) int16() int16 {
	if b := r.take(2); b != nil {
		return int16(binary.BigEndian.Uint16(b))
	}
	return 0
}

func (r *fieldReader) int32() int32 {
	if b := r.take(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (r *fieldReader) int64() int64 {
	if b := r.take(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

func (r *fieldReader) uuid() (id [16]byte) {
	copy(id[:], r.take(16))
	return id
}

func (r *fieldReader) uvarint() uint32 {
	v, pos := readUvarint(r.b, 0)
	if pos < 0 {
		r.failed = true
		return 0
	}
	r.take(pos)
	return v
}

// arrayLen returns the length of an array whose elements have at least minBytes; null is invalid here.
func (r *fieldReader) arrayLen(minBytes int) int {
	n := int(r.uvarint()) - 1
	if n < 0 || n > len(r.b)/minBytes {
		r.failed = true
	}
	if r.failed {
		return 0
	}
	return n
}

func (r *fieldReader) compactString() string {
	return string(r.take(int(r.uvarint()) - 1))
}

func (r *fieldReader) tags() []TaggedField {
	n := int(r.uvarint())
	if r.failed || n > len(r.b)/2 {
		r.failed = true
		return nil
	}
	var tags []TaggedField
	for i := range n {
		tag := r.uvarint()
		value := r.take(int(r.uvarint()))
		if r.failed || (i > 0 && tag <= tags[i-1].Tag) {
			r.failed = true
			return nil
		}
		tags = append(tags, TaggedField{Tag: tag, Value: value})
	}
	return tags
}
