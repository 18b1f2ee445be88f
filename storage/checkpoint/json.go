package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"

	"gregor/storage/vfs"
)

// unmarshal decodes one JSON value; errors carry the line. Unknown fields are passed over, as Kafka does.
func unmarshal(b []byte, v any) error {
	err := json.Unmarshal(b, v)
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	offset := int64(0)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &syntax):
		offset = syntax.Offset
	case errors.As(err, &kind):
		offset = kind.Offset
	}
	before := b[:min(max(offset, 0), int64(len(b)))]
	return syntaxErrorf(1+bytes.Count(before, []byte{'\n'}), "%v", err)
}

// QuorumState is the quorum-state file of the metadata log. Version 0 belongs to kraft.version 0 (static
// voters), version 1 to kraft.version 1 (KIP-853). Ids are -1 when there is none.
type QuorumState struct {
	Version          int16
	LeaderID         int32
	LeaderEpoch      int32
	VotedID          int32
	VotedDirectoryID [16]byte // version 1
	ClusterID        string   // version 0; Kafka writes it empty
	AppliedOffset    int64    // version 0; Kafka writes 0
	CurrentVoters    []int32  // version 0; empty on observers
}

type quorumVoter struct {
	VoterID *int32 `json:"voterId"`
}

type quorumFields struct {
	ClusterID        *string        `json:"clusterId"`
	LeaderID         *int32         `json:"leaderId"`
	LeaderEpoch      *int32         `json:"leaderEpoch"`
	VotedID          *int32         `json:"votedId"`
	VotedDirectoryID *string        `json:"votedDirectoryId"`
	AppliedOffset    *int64         `json:"appliedOffset"`
	CurrentVoters    *[]quorumVoter `json:"currentVoters"`
	DataVersion      *int16         `json:"data_version"`
}

// ReadQuorumState reads a quorum-state file.
func ReadQuorumState(fsys vfs.FS, path string) (QuorumState, error) {
	return read(fsys, path, parseQuorumState)
}

func parseQuorumState(b []byte) (QuorumState, error) {
	var f quorumFields
	if err := unmarshal(b, &f); err != nil {
		return QuorumState{}, err
	}
	if f.DataVersion == nil {
		return QuorumState{}, syntaxErrorf(1, "data_version is missing")
	}
	if *f.DataVersion < 0 || *f.DataVersion > 1 {
		return QuorumState{}, syntaxErrorf(1, "unknown data_version %d", *f.DataVersion)
	}
	for name, missing := range map[string]bool{
		"leaderId": f.LeaderID == nil, "leaderEpoch": f.LeaderEpoch == nil, "votedId": f.VotedID == nil,
	} {
		if missing {
			return QuorumState{}, syntaxErrorf(1, "%s is missing", name)
		}
	}
	s := QuorumState{
		Version: *f.DataVersion, LeaderID: *f.LeaderID, LeaderEpoch: *f.LeaderEpoch, VotedID: *f.VotedID,
	}
	if s.Version == 1 {
		return s, f.version1(&s)
	}
	return s, f.version0(&s)
}

func (f *quorumFields) version0(s *QuorumState) error {
	if f.ClusterID == nil || f.AppliedOffset == nil {
		return syntaxErrorf(1, "clusterId or appliedOffset is missing")
	}
	s.ClusterID, s.AppliedOffset = *f.ClusterID, *f.AppliedOffset
	if f.CurrentVoters == nil {
		return nil
	}
	for _, v := range *f.CurrentVoters {
		if v.VoterID == nil {
			return syntaxErrorf(1, "a voter lacks voterId")
		}
		s.CurrentVoters = append(s.CurrentVoters, *v.VoterID)
	}
	return nil
}

func (f *quorumFields) version1(s *QuorumState) error {
	if f.VotedDirectoryID == nil {
		return syntaxErrorf(1, "votedDirectoryId is missing")
	}
	id, ok := parseUUID(*f.VotedDirectoryID)
	if !ok {
		return syntaxErrorf(1, "%q is not a directory id", *f.VotedDirectoryID)
	}
	s.VotedDirectoryID = id
	return nil
}

// WriteQuorumState replaces a quorum-state file.
func WriteQuorumState(fsys vfs.FS, path string, s QuorumState) error {
	return vfs.WriteFileAtomic(fsys, path, formatQuorumState(s))
}

func formatQuorumState(s QuorumState) []byte {
	b := []byte{'{'}
	if s.Version == 0 {
		id, err := json.Marshal(s.ClusterID)
		if err != nil {
			panic(err) // a string can always be marshaled
		}
		b = append(append(append(b, `"clusterId":`...), id...), ',')
	}
	b = appendField(b, `"leaderId":`, int64(s.LeaderID))
	b = appendField(b, `,"leaderEpoch":`, int64(s.LeaderEpoch))
	b = appendField(b, `,"votedId":`, int64(s.VotedID))
	if s.Version == 0 {
		b = appendField(b, `,"appliedOffset":`, s.AppliedOffset)
		b = append(b, `,"currentVoters":[`...)
		for i, voter := range s.CurrentVoters {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendField(b, `{"voterId":`, int64(voter)), '}')
		}
		b = append(b, ']')
	} else {
		b = append(append(append(b, `,"votedDirectoryId":"`...), formatUUID(s.VotedDirectoryID)...), '"')
	}
	return append(appendField(b, `,"data_version":`, int64(s.Version)), '}')
}

func appendField(b []byte, name string, v int64) []byte {
	return strconv.AppendInt(append(b, name...), v, 10)
}

// ReadCleanShutdown reads a .kafka_cleanshutdown (KIP-966): the epoch that the broker had when it stopped. A
// file that cannot be parsed still says that the stop was clean; only the epoch is unknown then.
func ReadCleanShutdown(fsys vfs.FS, path string) (brokerEpoch int64, err error) {
	return read(fsys, path, parseCleanShutdown)
}

func parseCleanShutdown(b []byte) (int64, error) {
	var f struct {
		BrokerEpoch *int64 `json:"brokerEpoch"`
	}
	if err := unmarshal(b, &f); err != nil {
		return -1, err
	}
	if f.BrokerEpoch == nil {
		return -1, syntaxErrorf(1, "brokerEpoch is missing")
	}
	return *f.BrokerEpoch, nil
}

// WriteCleanShutdown writes a .kafka_cleanshutdown.
func WriteCleanShutdown(fsys vfs.FS, path string, brokerEpoch int64) error {
	return vfs.WriteFileAtomic(fsys, path, formatCleanShutdown(brokerEpoch))
}

func formatCleanShutdown(brokerEpoch int64) []byte {
	return append(appendField([]byte(`{"version":0`), `,"brokerEpoch":`, brokerEpoch), '}')
}

// DeleteCleanShutdown removes a .kafka_cleanshutdown durably, before anything is loaded: a crash while
// loading must not look like a clean stop (KAFKA-10471).
func DeleteCleanShutdown(fsys vfs.FS, dir, path string) error {
	if err := fsys.Remove(path); err != nil {
		return err
	}
	return fsys.SyncDir(dir)
}
