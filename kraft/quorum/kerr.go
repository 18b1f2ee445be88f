package quorum

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Errors with a code of Kafka's.
var (
	// ErrNotLeader says that this node does not lead, or not in the epoch that was named.
	ErrNotLeader = fmt.Errorf("not the leader of the metadata quorum: %w", kerr.NotLeaderForPartition)
	// ErrDuplicateVoter says that the voter to add is one already.
	ErrDuplicateVoter = fmt.Errorf("replica is a voter already: %w", kerr.DuplicateVoter)
	// ErrVoterNotFound says that the replica to remove or change is no voter.
	ErrVoterNotFound = fmt.Errorf("replica is not a voter: %w", kerr.VoterNotFound)
	// ErrReconfigurationPending says that another change of the voters is not committed yet, or that the leader
	// has not committed anything of its epoch.
	ErrReconfigurationPending = fmt.Errorf("another change of the voters is in progress: %w", kerr.RequestTimedOut)
	// ErrNotCaughtUp says that the replica to add has not fetched up to the log end recently.
	ErrNotCaughtUp = fmt.Errorf("replica has not caught up with the leader: %w", kerr.RequestTimedOut)
	// ErrStaticVoters says that the log is of kraft.version 0, where the voters are configured.
	ErrStaticVoters = fmt.Errorf("voters are static in kraft.version 0: %w", kerr.UnsupportedVersion)
	// ErrInvalidVoters says that the wanted change of the voters is not valid.
	ErrInvalidVoters = fmt.Errorf("invalid change of the voters: %w", kerr.InvalidRequest)
	// ErrInvalidKRaftVersion says that the quorum cannot go to that kraft.version.
	ErrInvalidKRaftVersion = fmt.Errorf("invalid kraft.version: %w", kerr.InvalidUpdateVersion)
)
