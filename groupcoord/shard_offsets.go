package groupcoord

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/groupcoord/offsets"
)

// groupNotFoundVersion is the first OffsetCommit whose clients know
// GROUP_ID_NOT_FOUND, and txnGroupNotFoundVersion the first TxnOffsetCommit.
const (
	groupNotFoundVersion    = 9
	txnGroupNotFoundVersion = 6
)

// commitGroup returns the group to commit to. Without members an unknown group
// is made: a simple one, which only stores offsets.
func (s *shard) commitGroup(id string, generation int32, knowsNotFound bool) (group, error) {
	g, err := s.lookup(id)
	switch {
	case err == nil:
		return g, nil
	case generation < 0:
		return s.newSimple(id), nil
	case knowsNotFound:
		return nil, err
	default:
		return nil, kerr.IllegalGeneration
	}
}

// commitOffsets handles OffsetCommit.
func (s *shard) commitOffsets(req *kmsg.OffsetCommitRequest) (*kmsg.OffsetCommitResponse, effect, error) {
	g, err := s.commitGroup(req.Group, req.Generation, req.Version >= groupNotFoundVersion)
	if err != nil {
		return nil, effect{}, err
	}
	resp, records, err := s.offsets.Commit(g, req)
	if err != nil {
		return nil, effect{}, err
	}
	if c, ok := g.(classicGroup); ok {
		s.classic.Committed(c.Group, req.MemberID)
	}
	return resp, effect{Records: records}, nil
}

// commitTxnOffsets handles TxnOffsetCommit.
func (s *shard) commitTxnOffsets(req *kmsg.TxnOffsetCommitRequest) (*kmsg.TxnOffsetCommitResponse, effect, error) {
	g, err := s.commitGroup(req.Group, req.Generation, req.Version >= txnGroupNotFoundVersion)
	if err != nil {
		return nil, effect{}, err
	}
	resp, records, err := s.offsets.CommitTxn(g, req)
	return resp, effect{Records: records}, err
}

// fetchOffsets handles one group of OffsetFetch.
func (s *shard) fetchOffsets(view offsets.View, req *kmsg.OffsetFetchRequestGroup) (kmsg.OffsetFetchResponseGroup, error) {
	g, ok := s.groups.Get(req.Group)
	if view == offsets.Committed {
		g, ok = s.groups.GetCommitted(req.Group)
	}
	if !ok {
		return s.offsets.Fetch(view, nil, req)
	}
	return s.offsets.Fetch(view, g, req)
}

// deleteOffsets handles OffsetDelete.
func (s *shard) deleteOffsets(req *kmsg.OffsetDeleteRequest) (*kmsg.OffsetDeleteResponse, effect, error) {
	g, err := s.lookup(req.Group)
	if err != nil {
		return nil, effect{}, err
	}
	resp, records, err := s.offsets.Delete(g, req)
	return resp, effect{Records: records}, err
}
