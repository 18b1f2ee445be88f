package quorum

import (
	"errors"
	"math"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"gregor/storage/vfs"
)

func TestQuorumStateOfKafkaIsRaftsTermAndVote(t *testing.T) {
	for name, tc := range map[string]struct {
		file     string
		logEpoch int32
		want     quorumState
	}{
		"leader known, vote not noted": {
			`{"clusterId":"","leaderId":1,"leaderEpoch":4,"votedId":-1,"appliedOffset":0,"currentVoters":[{"voterId":1}],"data_version":0}`, 4,
			quorumState{term: 4, vote: raftID(1), leader: 1},
		},
		"voted for another than the leader": {
			`{"leaderId":2,"leaderEpoch":4,"votedId":3,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAQ","data_version":1}`, 4,
			quorumState{term: 4, vote: raftID(3), leader: 2},
		},
		"voted, no leader": {
			`{"leaderId":-1,"leaderEpoch":9,"votedId":0,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAQ","data_version":1}`, 4,
			quorumState{term: 9, vote: raftID(0), leader: NoLeader},
		},
		"nothing known": {
			`{"leaderId":-1,"leaderEpoch":9,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}`, 4,
			quorumState{term: 9, leader: NoLeader},
		},
		"behind the log": {
			`{"leaderId":1,"leaderEpoch":3,"votedId":1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAQ","data_version":1}`, 4,
			quorumState{term: 4, leader: NoLeader},
		},
		"no file": {"", 6, quorumState{term: 6, leader: NoLeader}},
	} {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewMem()
			if tc.file != "" {
				if err := vfs.WriteFile(fs, "/quorum-state", []byte(tc.file)); err != nil {
					t.Fatal(err)
				}
			}
			s, err := openStateFile(fs, "/quorum-state", tc.logEpoch)
			if err != nil {
				t.Fatal(err)
			}
			if got := s.hardState(); got.term != tc.want.term || got.vote != tc.want.vote || got.leader != tc.want.leader {
				t.Errorf("term %d vote %d leader %d, want %+v", got.term, got.vote, got.leader, tc.want)
			}
		})
	}
}

func TestQuorumStateIsWrittenInKafkasForm(t *testing.T) {
	fs := vfs.NewMem()
	s, err := openStateFile(fs, "/quorum-state", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		state quorumState
		want  string
	}{
		{
			quorumState{term: 3, vote: raftID(2), leader: 2, config: config{0, set(t, 1, 2)}},
			`{"clusterId":"","leaderId":2,"leaderEpoch":3,"votedId":2,"appliedOffset":0,"currentVoters":[{"voterId":1},{"voterId":2}],"data_version":0}`,
		},
		{
			quorumState{term: 4, leader: NoLeader, config: config{1, set(t, 1, 2)}},
			`{"leaderId":-1,"leaderEpoch":4,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}`,
		},
		{
			quorumState{term: 5, vote: raftID(2), leader: NoLeader, config: config{1, set(t, 1, 2)}},
			`{"leaderId":-1,"leaderEpoch":5,"votedId":2,"votedDirectoryId":"` + testVoter(2, 0).Key.DirectoryID.String() + `","data_version":1}`,
		},
	} {
		if err := s.save(tc.state); err != nil {
			t.Fatal(err)
		}
		// The name and the bytes survive a power cut.
		got, err := vfs.ReadFile(fs.Crash(0), "/quorum-state")
		if err != nil || string(got) != tc.want {
			t.Errorf("%s, %v; want %s", got, err, tc.want)
		}
	}
	if s.differs(&raftpb.HardState{Term: new(uint64(5)), Vote: new(raftID(2)), Commit: new(uint64(99))}) {
		t.Error("a new commit index alone needs no write")
	}
	if !s.differs(&raftpb.HardState{Term: new(uint64(6)), Vote: new(raftID(2))}) || !s.differs(&raftpb.HardState{Term: new(uint64(5))}) {
		t.Error("a new term or vote needs a write")
	}
	if err := s.save(quorumState{term: math.MaxInt32 + 1}); !errors.Is(err, ErrLogLost) {
		t.Errorf("a term that is no epoch: %v", err)
	}
}

func TestLeaderIsNotedLate(t *testing.T) {
	fs := vfs.NewMem()
	s, err := openStateFile(fs, "/quorum-state", 0)
	if err != nil {
		t.Fatal(err)
	}
	c := config{1, set(t, 1, 2)}
	if err := s.save(quorumState{term: 4, vote: raftID(1), leader: NoLeader, config: c}); err != nil {
		t.Fatal(err)
	}
	s.note(3, 2, c)
	s.note(4, NoLeader, c)
	if s.dirty {
		t.Fatal("an older term, or no leader, is no news")
	}
	s.note(4, 2, c)
	before := fs.Ops()
	if err := s.flush(); err != nil {
		t.Fatal(err)
	}
	again, err := openStateFile(fs, "/quorum-state", 0)
	if err != nil || again.saved.leader != 2 || again.saved.vote != raftID(1) {
		t.Fatalf("%+v, %v", again.saved, err)
	}
	after := fs.Ops()
	if err := s.flush(); err != nil || after == before || fs.Ops() != after {
		t.Fatal("a second flush has nothing to write")
	}
}

func TestDamagedQuorumStateIsAnError(t *testing.T) {
	fs := vfs.NewMem()
	if err := vfs.WriteFile(fs, "/quorum-state", []byte(`{"leaderId":1`)); err != nil {
		t.Fatal(err)
	}
	if _, err := openStateFile(fs, "/quorum-state", 5); err == nil {
		t.Fatal("a vote that cannot be read must not be forgotten")
	}
}
