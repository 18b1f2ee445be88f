package quorum

import (
	"errors"
	"fmt"
	"io/fs"
	"math"

	"go.etcd.io/raft/v3/raftpb"

	"gregor/storage/checkpoint"
	"gregor/storage/vfs"
)

// quorumStateFile is the name of the file that holds raft's term and vote.
const quorumStateFile = "quorum-state"

// quorumState is what the file says, in raft's terms, with the leader that Kafka keeps beside them.
type quorumState struct {
	term   uint64
	vote   uint64 // raft id, 0 for none
	leader int32  // of the term, NoLeader when unknown
	config config // decides the version of the file
}

// stateFile is quorum-state. The vote of a term is durable before anybody hears of it; the leader's id is only
// informative and may be written late.
type stateFile struct {
	fs    vfs.FS
	path  string
	saved quorumState
	dirty bool // the leader in saved is newer than the file
}

// openStateFile reads the file. A node without one has the term of its log: it has not voted in that epoch, for else
// it would have the file.
func openStateFile(fsys vfs.FS, path string, logEpoch int32) (*stateFile, error) {
	s := &stateFile{fs: fsys, path: path, saved: quorumState{leader: NoLeader}}
	qs, err := checkpoint.ReadQuorumState(fsys, path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("quorum state: %w", err)
	default:
		s.saved.term = uint64(max(qs.LeaderEpoch, 0))
		s.saved.leader = qs.LeaderID
		// In an epoch whose leader is known Kafka votes for nobody, without having noted a vote.
		if voted := max(qs.VotedID, NoLeader); voted >= 0 {
			s.saved.vote = raftID(voted)
		} else if qs.LeaderID >= 0 {
			s.saved.vote = raftID(qs.LeaderID)
		}
	}
	if term := uint64(max(logEpoch, 0)); s.saved.term < term {
		s.saved = quorumState{term: term, leader: NoLeader}
	}
	return s, nil
}

func (s *stateFile) hardState() quorumState { return s.saved }

// differs tells whether term or vote have to be written.
func (s *stateFile) differs(hs *raftpb.HardState) bool {
	return hs.GetTerm() != s.saved.term || hs.GetVote() != s.saved.vote
}

// save makes a state durable.
func (s *stateFile) save(qs quorumState) error {
	if qs.term > math.MaxInt32 {
		return fmt.Errorf("%w: term %d does not fit a leader epoch", ErrLogLost, qs.term)
	}
	out := checkpoint.QuorumState{LeaderID: max(qs.leader, NoLeader), LeaderEpoch: int32(qs.term), VotedID: NoLeader}
	if qs.vote != 0 {
		out.VotedID = nodeID(qs.vote)
	}
	if qs.config.level >= 1 {
		out.Version = 1
		if v, ok := qs.config.voters.Get(out.VotedID); ok {
			out.VotedDirectoryID = v.Key.DirectoryID
		}
	} else {
		out.CurrentVoters = qs.config.voters.IDs()
	}
	if err := checkpoint.WriteQuorumState(s.fs, s.path, out); err != nil {
		return fmt.Errorf("quorum state: %w", err)
	}
	s.saved, s.dirty = qs, false
	return nil
}

// note keeps the leader of a term for the next flush.
func (s *stateFile) note(term uint64, leader int32, c config) {
	if term != s.saved.term || leader == s.saved.leader || leader == NoLeader {
		return
	}
	s.saved.leader, s.saved.config, s.dirty = leader, c, true
}

// flush writes what was noted.
func (s *stateFile) flush() error {
	if !s.dirty {
		return nil
	}
	return s.save(s.saved)
}
