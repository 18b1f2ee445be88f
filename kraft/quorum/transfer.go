package quorum

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"gregor/protocol"
	"gregor/storage/vfs"
)

// chunkBytes is how much of a snapshot one message carries.
const chunkBytes = 1 << 20

func appendInt64(dst []byte, v int64) []byte { return binary.BigEndian.AppendUint64(dst, uint64(v)) }

func appendInt32s(dst []byte, vs ...int32) []byte {
	for _, v := range vs {
		dst = binary.BigEndian.AppendUint32(dst, uint32(v))
	}
	return dst
}

// upload is a snapshot that a follower was told to take. The follower asks for it piece by piece.
type upload struct {
	id        SnapshotID
	idleTicks int
}

// snapshotFetch is a snapshot that is being received. It is over when download is nil.
type snapshotFetch struct {
	from      ReplicaKey
	message   *raftpb.Message // raft's MsgSnap, handed to raft when the file is complete
	download  *SnapshotDownload
	idleTicks int
}

// SnapshotDownload is a snapshot file that is being received piece by piece. It is used by one goroutine.
type SnapshotDownload struct {
	id       SnapshotID
	store    *snapshotStore
	part     string
	file     vfs.File
	position int64
	done     bool
	// installed is told when the file is complete, before Complete returns.
	install func(*SnapshotDownload) error
}

func (s *snapshotStore) newDownload(id SnapshotID, install func(*SnapshotDownload) error) (*SnapshotDownload, error) {
	unique := protocol.RandomUUID()
	d := &SnapshotDownload{id: id, store: s, part: s.partName(id, hex.EncodeToString(unique[:8])), install: install}
	f, err := s.fs.Create(d.part)
	if err != nil {
		return nil, fmt.Errorf("snapshot %v: %w", id, err)
	}
	d.file = f
	return d, nil
}

// ID names the snapshot.
func (d *SnapshotDownload) ID() SnapshotID { return d.id }

// Position is how many bytes there are: where to go on fetching.
func (d *SnapshotDownload) Position() int64 { return d.position }

// Write adds the next bytes of the file.
func (d *SnapshotDownload) Write(b []byte) (int, error) {
	if _, err := d.file.WriteAt(b, d.position); err != nil {
		return 0, fmt.Errorf("snapshot %v: %w", d.id, err)
	}
	d.position += int64(len(b))
	return len(b), nil
}

// Complete checks the file, makes it durable and puts it in the place of the log. After ErrCorrupt the snapshot is
// gone and can be fetched again.
func (d *SnapshotDownload) Complete() error {
	if err := d.check(); err != nil {
		d.Abort()
		return err
	}
	d.done = true
	if err := d.store.complete(d.part, d.id); err != nil {
		return err
	}
	if d.install == nil {
		return nil
	}
	return d.install(d)
}

// check syncs the file and reads all of it.
func (d *SnapshotDownload) check() error {
	if err := d.file.Sync(); err != nil {
		return fmt.Errorf("snapshot %v: %w", d.id, err)
	}
	r, err := newSnapshotReader(d.file, d.position, d.id)
	if err != nil {
		return err
	}
	return errors.Join(r.verify(), r.Close())
}

// Abort gives the file up. It does nothing after Complete.
func (d *SnapshotDownload) Abort() {
	if d.done {
		return
	}
	d.done = true
	_ = d.file.Close()
	_ = d.store.fs.Remove(d.part)
}

// offered handles raft's MsgSnap: the file is fetched first, then raft sees the message.
func (m *machine) offered(from ReplicaKey, msg *raftpb.Message, offer snapshotOffer) error {
	msg.Snapshot = &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
		Index: new(indexOf(offer.id.Offset) - 1), Term: new(uint64(offer.id.Epoch)), ConfState: &raftpb.ConfState{},
	}}
	if msg.GetTerm() < m.seen.term {
		return nil
	}
	// Raft ignores a snapshot of what is committed here and answers how far it is.
	if offer.id.Offset <= m.board.load().highWatermark {
		return m.step(msg)
	}
	// The sender leads: whatever else it says, do not campaign meanwhile.
	if err := m.step(&raftpb.Message{Type: raftpb.MsgHeartbeat.Enum(), From: msg.From, To: msg.To, Term: msg.Term}); err != nil || m.rn == nil {
		return err
	}
	f := &m.fetch
	if f.download != nil && f.download.id == offer.id {
		f.from, f.message = from, msg
		m.requestChunk()
		return nil
	}
	m.dropFetch()
	d, err := m.storage.snapshots.newDownload(offer.id, nil)
	if err != nil {
		return m.storage.full.putOff(err) // the leader offers it again
	}
	m.fetch = snapshotFetch{from: from, message: msg, download: d}
	m.requestChunk()
	return nil
}

func (m *machine) dropFetch() {
	if m.fetch.download != nil {
		m.fetch.download.Abort()
	}
	m.fetch = snapshotFetch{}
}

func (m *machine) requestChunk() {
	f := &m.fetch
	f.idleTicks = 0
	out := encodeEnvelope(m.envelope(kindChunkRequest, f.from))
	m.send(m.peer(f.from), appendChunk(out, chunk{id: f.download.id, position: f.download.position}, true))
}

// serveChunk answers a follower that fetches a snapshot.
func (m *machine) serveChunk(to ReplicaKey, req chunk) error {
	if u := m.uploads[raftID(to.ID)]; u != nil && u.id == req.id {
		u.idleTicks = 0
	}
	answer := chunk{id: req.id, position: req.position, sizeBytes: -1}
	f, size, err := m.storage.snapshots.open(req.id)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return fmt.Errorf("snapshot %v: %w", req.id, err)
	default:
		answer.sizeBytes = size
		answer.bytes = make([]byte, max(0, min(chunkBytes, size-req.position)))
		n, err := f.ReadAt(answer.bytes, req.position)
		if err != nil && !errors.Is(err, io.EOF) {
			return errors.Join(fmt.Errorf("snapshot %v: %w", req.id, err), f.Close())
		}
		answer.bytes = answer.bytes[:n]
		if err := f.Close(); err != nil {
			return fmt.Errorf("snapshot %v: %w", req.id, err)
		}
	}
	m.send(m.peer(to), appendChunk(encodeEnvelope(m.envelope(kindChunk, to)), answer, false))
	return nil
}

// takeChunk adds a piece to the snapshot that is being fetched.
func (m *machine) takeChunk(from ReplicaKey, c chunk) error {
	f := &m.fetch
	if m.rn == nil || f.download == nil || f.download.id != c.id || from.ID != f.from.ID || c.position != f.download.position {
		return nil
	}
	if c.sizeBytes < 0 || f.message.GetTerm() < m.seen.term {
		m.dropFetch() // gone there, or the sender no longer leads: a leader will offer another one
		return nil
	}
	if _, err := f.download.Write(c.bytes); err != nil {
		if isFull(err) {
			m.dropFetch() // it takes the space that is wanted; the leader offers it again
		}
		return m.storage.full.putOff(err)
	}
	if f.download.position < c.sizeBytes {
		if len(c.bytes) > 0 {
			m.requestChunk()
		}
		return nil
	}
	return m.fetched()
}

// fetched installs the snapshot that has arrived.
func (m *machine) fetched() error {
	f := m.fetch
	m.fetch = snapshotFetch{}
	if err := f.download.Complete(); err != nil {
		if errors.Is(err, ErrCorrupt) {
			m.o.Logger.Warn("metadata quorum: received a corrupt snapshot", "snapshot", f.download.id.String(), "error", err)
			return nil
		}
		return m.storage.full.putOff(err)
	}
	r, err := m.storage.snapshots.openSnapshot(f.download.id)
	if err != nil {
		return err
	}
	voters := r.config(m.storage.base).voters
	if err := r.Close(); err != nil {
		return err
	}
	// Raft ignores a snapshot whose voters lack this node: it was added after it. The leader counts it in, so it
	// may take part as a learner until the log says that it votes.
	var learner *int32
	if _, ok := voters.Get(m.o.NodeID); !ok {
		learner = &m.o.NodeID
	}
	f.message.Snapshot.Metadata.ConfState = confStateOf(voters, learner)
	return m.step(f.message)
}

// tickTransfers asks again for what did not arrive, and tells raft of followers that stopped asking.
func (m *machine) tickTransfers() error {
	patience := m.o.Timing.electionTicks()
	if f := &m.fetch; f.download != nil {
		f.idleTicks++
		switch {
		case f.message.GetTerm() < m.seen.term || f.idleTicks > 0 && m.seen.lead == raft.None:
			m.dropFetch()
		case f.idleTicks >= patience/2:
			m.requestChunk()
		}
	}
	for id, u := range m.uploads {
		if u.idleTicks++; u.idleTicks <= 2*patience {
			continue
		}
		delete(m.uploads, id)
		err := guard(func() error {
			m.rn.ReportSnapshot(id, raft.SnapshotFailure)
			return m.ready()
		})
		if err != nil || m.rn == nil {
			return err
		}
	}
	return nil
}

// unreachable tells raft that a peer's connection failed.
func (m *machine) unreachable(id int32) error {
	if m.rn == nil {
		return nil
	}
	return guard(func() error {
		m.rn.ReportUnreachable(raftID(id))
		return m.ready()
	})
}
