package quorum

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"go.etcd.io/raft/v3/raftpb"

	"gregor/protocol"
	"gregor/protocol/record"
)

// A message between controllers:
//
//	int8    1                version of this format
//	int8    kind             what follows
//	string  cluster id       uint8 length
//	int32   from, uuid       sender's node and directory
//	int32   to, uuid         whom it is for; a zero uuid is any directory
//	body                     by kind, below
//
// kindRaft: int8 type, uint8 reject, uint64 term, logTerm, index, commit, rejectHint, uint8-length context; then to
// the end whole batches (MsgApp) or a snapshot's int64 offset, int32 epoch, int64 size (MsgSnap).
// kindChunkRequest: int64 offset, int32 epoch of the snapshot, int64 position.
// kindChunk: the same, int64 size of the snapshot (-1: it is gone), then bytes.
// kindNotVoter: int32 leader, int32 epoch.
const wireVersion = 1

type messageKind int8

const (
	kindRaft messageKind = iota
	kindChunkRequest
	kindChunk
	kindNotVoter
)

// maxClusterIDBytes and maxContextBytes are what their length bytes can say.
const (
	maxClusterIDBytes = math.MaxUint8
	maxContextBytes   = math.MaxUint8
)

var errShortMessage = errors.New("message ends early")

// envelope is the part that all messages have.
type envelope struct {
	kind      messageKind
	clusterID string
	from, to  ReplicaKey
}

// SnapshotID names a snapshot: the offset after its contents and the epoch of the last record in it.
type SnapshotID struct {
	Offset int64
	Epoch  int32
}

// IsBootstrap tells whether it is the checkpoint that the format command writes.
func (s SnapshotID) IsBootstrap() bool { return s == SnapshotID{} }

// chunk is a piece of a snapshot file, or the request for one.
type chunk struct {
	id        SnapshotID
	position  int64
	sizeBytes int64 // of the whole file, -1 when the sender no longer has it
	bytes     []byte
}

func encodeEnvelope(e envelope) []byte {
	dst := append([]byte(nil), wireVersion, byte(e.kind), byte(min(len(e.clusterID), maxClusterIDBytes)))
	dst = append(dst, e.clusterID[:min(len(e.clusterID), maxClusterIDBytes)]...)
	for _, k := range []ReplicaKey{e.from, e.to} {
		dst = binary.BigEndian.AppendUint32(dst, uint32(k.ID))
		dst = append(dst, k.DirectoryID[:]...)
	}
	return dst
}

// appendRaft appends a raft message without its entries or snapshot.
func appendRaft(dst []byte, m *raftpb.Message) []byte {
	dst = append(dst, byte(m.GetType()), 0)
	if m.GetReject() {
		dst[len(dst)-1] = 1
	}
	for _, v := range []uint64{m.GetTerm(), m.GetLogTerm(), m.GetIndex(), m.GetCommit(), m.GetRejectHint()} {
		dst = binary.BigEndian.AppendUint64(dst, v)
	}
	dst = append(dst, byte(len(m.GetContext())))
	return append(dst, m.GetContext()...)
}

func appendSnapshotID(dst []byte, id SnapshotID) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(id.Offset))
	return binary.BigEndian.AppendUint32(dst, uint32(id.Epoch))
}

func appendChunk(dst []byte, c chunk, request bool) []byte {
	dst = appendSnapshotID(dst, c.id)
	dst = binary.BigEndian.AppendUint64(dst, uint64(c.position))
	if request {
		return dst
	}
	dst = binary.BigEndian.AppendUint64(dst, uint64(c.sizeBytes))
	return append(dst, c.bytes...)
}

// scanner reads a message; after an error all reads give zero.
type scanner struct {
	b   []byte
	err error
}

func (s *scanner) take(n int) []byte {
	if s.err != nil || len(s.b) < n {
		if s.err == nil {
			s.err = errShortMessage
		}
		return nil
	}
	out := s.b[:n:n]
	s.b = s.b[n:]
	return out
}

func (s *scanner) uint8() uint8 {
	if b := s.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (s *scanner) int32() int32 {
	if b := s.take(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (s *scanner) int64() int64 {
	if b := s.take(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

func (s *scanner) key() ReplicaKey {
	k := ReplicaKey{ID: s.int32()}
	copy(k.DirectoryID[:], s.take(len(protocol.UUID{})))
	return k
}

func (s *scanner) snapshotID() SnapshotID { return SnapshotID{Offset: s.int64(), Epoch: s.int32()} }

func (s *scanner) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf(format, args...)
	}
}

// parseEnvelope reads the common part and leaves the scanner at the body.
func parseEnvelope(msg []byte) (envelope, *scanner) {
	s := &scanner{b: msg}
	var e envelope
	if v := s.uint8(); v != wireVersion {
		s.fail("message version %d", v)
	}
	e.kind = messageKind(s.uint8())
	e.clusterID = string(s.take(int(s.uint8())))
	e.from, e.to = s.key(), s.key()
	if e.from.ID < 0 || e.to.ID < 0 {
		s.fail("node ids %d and %d", e.from.ID, e.to.ID)
	}
	return e, s
}

// snapshotOffer is what MsgSnap says about the file.
type snapshotOffer struct {
	id        SnapshotID
	sizeBytes int64
}

// parseRaft reads a raft message. Its entries alias the message.
func parseRaft(e envelope, s *scanner) (*raftpb.Message, *snapshotOffer, error) {
	kind := raftpb.MessageType(s.uint8())
	m := &raftpb.Message{Type: kind.Enum(), From: new(raftID(e.from.ID)), To: new(raftID(e.to.ID))}
	if s.uint8() != 0 {
		m.Reject = new(true)
	}
	m.Term, m.LogTerm = new(uint64(s.int64())), new(uint64(s.int64()))
	m.Index, m.Commit, m.RejectHint = new(uint64(s.int64())), new(uint64(s.int64())), new(uint64(s.int64()))
	m.Context = s.take(int(s.uint8()))
	if len(m.Context) == 0 {
		m.Context = nil
	}
	if s.err != nil {
		return nil, nil, s.err
	}
	if err := checkRaft(m); err != nil {
		return nil, nil, err
	}
	switch kind {
	case raftpb.MsgApp:
		entries, err := parseEntries(s.b, m.GetIndex(), m.GetLogTerm(), m.GetTerm())
		m.Entries = entries
		return m, nil, err
	case raftpb.MsgSnap:
		offer := &snapshotOffer{id: s.snapshotID(), sizeBytes: s.int64()}
		if s.err == nil && (offer.id.Offset <= 0 || offer.id.Epoch < 0 || offer.sizeBytes <= 0) {
			s.fail("snapshot %v of %d bytes", offer.id, offer.sizeBytes)
		}
		return m, offer, s.err
	default:
		return m, nil, nil
	}
}

// checkRaft refuses what a controller of this kind never sends and raft may not be shown.
func checkRaft(m *raftpb.Message) error {
	switch m.GetType() {
	case raftpb.MsgApp, raftpb.MsgAppResp, raftpb.MsgVote, raftpb.MsgVoteResp, raftpb.MsgPreVote, raftpb.MsgPreVoteResp,
		raftpb.MsgHeartbeat, raftpb.MsgHeartbeatResp, raftpb.MsgSnap, raftpb.MsgTimeoutNow:
	default:
		return fmt.Errorf("raft message of type %d", m.GetType())
	}
	if m.GetTerm() == 0 || m.GetTerm() > math.MaxInt32 || m.GetLogTerm() > m.GetTerm() && !isResponse(m) {
		return fmt.Errorf("raft message of term %d, log term %d", m.GetTerm(), m.GetLogTerm())
	}
	if max(m.GetIndex(), m.GetCommit(), m.GetRejectHint()) > math.MaxInt64 {
		return fmt.Errorf("raft message with index %d, commit %d, hint %d", m.GetIndex(), m.GetCommit(), m.GetRejectHint())
	}
	return nil
}

func isResponse(m *raftpb.Message) bool {
	switch m.GetType() {
	case raftpb.MsgAppResp, raftpb.MsgVoteResp, raftpb.MsgPreVoteResp, raftpb.MsgHeartbeatResp:
		return true
	default:
		return false
	}
}

// parseEntries turns the batches after the entry (prev, prevTerm) into entries of terms up to term, which must not
// decrease. A batch that begins at or before prev gives only its entries after it.
func parseEntries(b []byte, prev, prevTerm, term uint64) ([]*raftpb.Entry, error) {
	var entries []*raftpb.Entry
	next := prev + 1
	for {
		batch, rest, err := record.Next(b)
		if errors.Is(err, io.EOF) {
			return entries, nil
		}
		if err == nil {
			err = checkBatch(batch)
		}
		if err != nil {
			return nil, fmt.Errorf("batch of a raft message: %w", err)
		}
		first, last := indexOf(batch.BaseOffset()), indexOf(batch.LastOffset())
		epoch := uint64(batch.LeaderEpoch())
		if first > next || last < next || first < next && len(entries) > 0 || epoch < prevTerm || epoch > term {
			return nil, fmt.Errorf("batch of indexes %d to %d, epoch %d, where index %d of a term from %d to %d belongs",
				first, last, epoch, next, prevTerm, term)
		}
		prevTerm = epoch
		if entries, err = entriesOf(entries, batch, next, last+1); err != nil {
			return nil, err
		}
		next, b = last+1, rest
	}
}

func (s *scanner) chunk(request bool) (chunk, error) {
	c := chunk{id: s.snapshotID(), position: s.int64()}
	if !request {
		c.sizeBytes = s.int64()
		c.bytes = s.b
	}
	if s.err == nil && (c.id.Offset < 0 || c.id.Epoch < 0 || c.position < 0) {
		s.fail("snapshot %v at byte %d", c.id, c.position)
	}
	return c, s.err
}
