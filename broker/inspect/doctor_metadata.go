package inspect

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"gregor/kraft/image"
	"gregor/kraft/metadata"
	"gregor/kraft/quorum"
	"gregor/protocol/record"
	"gregor/storage/checkpoint"
	"gregor/storage/segment"
)

const metadataLogDir = quorum.DirName

// metadataLog replays the records of a metadata log.
type metadataLog struct {
	d       *doctor
	delta   *image.Delta
	at      image.Provenance
	txns    metadata.Transactions
	kraft   int16
	next    int64
	refused int
}

// metadata examines the metadata log: the newest snapshot and the log after it.
func (d *doctor) metadata(dir string) {
	entries, err := d.FS.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		d.add(Note, dir, "there is no metadata log yet")
		return
	}
	if err != nil {
		d.add(Broken, dir, "cannot be read: %v", err)
		return
	}
	m := &metadataLog{d: d, delta: image.NewDelta(image.Empty())}
	rep := &MetadataReport{Path: dir, Leader: quorum.NoLeader, Features: map[string]int16{}, InternalTopics: []string{}}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	start := m.snapshot(dir, names, rep)
	m.segments(dir, names, start.Offset)
	if err := quorum.VerifyLog(d.FS, dir, start); err != nil {
		d.add(Broken, dir, "a controller would not start: %v", err)
	}
	if state, err := checkpoint.ReadQuorumState(d.FS, filepath.Join(dir, checkpoint.QuorumStateFile)); err == nil {
		rep.Leader, rep.LeaderEpoch = state.LeaderID, state.LeaderEpoch
	} else if !errors.Is(err, fs.ErrNotExist) {
		d.add(Broken, dir, "the quorum would not start: %v", err)
	}
	d.image = m.delta.Apply(m.at)
	rep.LogEndOffset, rep.KRaftVersion = m.next, m.kraft
	d.describeImage(rep)
}

// snapshot replays the newest snapshot that can be read.
func (m *metadataLog) snapshot(dir string, names []string, rep *MetadataReport) quorum.SnapshotID {
	for _, n := range names {
		if strings.HasSuffix(n, ".checkpoint.part") {
			m.d.add(Note, filepath.Join(dir, n), "a snapshot that was not finished would be removed")
		}
	}
	for _, n := range slices.Backward(names) { // they sort as their offsets do
		id, ok := quorum.ParseSnapshotName(n)
		if !ok {
			continue
		}
		path := filepath.Join(dir, n)
		m.delta = image.NewDelta(image.Empty())
		if err := m.replay(path, -1); err != nil {
			m.d.add(Broken, path, "the snapshot cannot be read: %v", err)
			continue
		}
		rep.Snapshot = n
		m.at, m.next = image.Provenance{Offset: id.Offset - 1, Epoch: id.Epoch}, id.Offset
		return id
	}
	return quorum.SnapshotID{}
}

// segments replays the log from an offset on.
func (m *metadataLog) segments(dir string, names []string, from int64) {
	for _, n := range names { // in the order of their offsets
		if _, suffix, ok := segment.ParseFileName(n); ok && suffix == segment.LogSuffix {
			if err := m.replay(filepath.Join(dir, n), from); err != nil {
				m.d.add(Suspicious, filepath.Join(dir, n), "the metadata log ends here: %v", err)
				return
			}
		}
	}
	if m.txns.Open() {
		m.d.add(Note, dir, "an open metadata transaction of %s would be aborted", plural(m.txns.Held(), "record"))
	}
}

// replay applies the records of a file at or above an offset; -1 for a snapshot, whose offsets are its own.
func (m *metadataLog) replay(path string, from int64) error {
	var failed error
	err := m.d.scan(path, 0, func(b record.Batch, at int64) bool {
		if !b.CRCValid() {
			failed = fmt.Errorf("position %d: %w", at, errCRC)
			return false
		}
		if from >= 0 {
			m.next = max(m.next, b.NextOffset())
		}
		for r, err := range b.Records(record.Limits{}) {
			if err != nil {
				failed = fmt.Errorf("position %d: %w", at, err)
				return false
			}
			if r.Offset >= from {
				m.record(path, b, r)
			}
		}
		if from >= 0 && b.LastOffset() >= from {
			m.at = image.Provenance{Offset: b.LastOffset(), Epoch: b.LeaderEpoch(), TimestampMillis: b.MaxTimestamp()}
		}
		return true
	})
	if failed != nil {
		return failed
	}
	return err
}

func (m *metadataLog) record(path string, b record.Batch, r record.Record) {
	if b.IsControl() {
		if kind, err := record.ParseControlKey(r.Key); err == nil && kind == record.ControlKRaftVersion {
			var v metadata.KRaftVersionRecord
			if v.Decode(r.Value, valueVersion(r.Value)) == nil {
				m.kraft = v.KRaftVersion
			}
		}
		return
	}
	rec, err := metadata.Decode(r.Value)
	if err != nil {
		m.refuse(path, r.Offset, err)
		return
	}
	due, err := m.txns.Feed(rec, r.Offset)
	if err != nil {
		m.refuse(path, r.Offset, err)
	}
	for _, l := range due {
		if err := m.delta.Replay(l.Record); err != nil {
			m.refuse(path, l.Offset, err)
		}
	}
}

// refuse notes a record that cannot be applied; the first few are told.
func (m *metadataLog) refuse(path string, offset int64, err error) {
	const told = 5
	if m.refused++; m.refused <= told {
		m.d.add(Broken, path, "the record at offset %d cannot be applied: %v", offset, err)
	}
}

// describeImage fills in what the metadata says.
func (d *doctor) describeImage(rep *MetadataReport) {
	img := d.image
	d.report.Metadata = rep
	rep.MetadataVersion = img.Features.MetadataVersion().String()
	for name, level := range img.Features.All() {
		rep.Features[name] = level
		if name == metadata.FeatureMetadataVersion {
			if !img.Features.MetadataVersion().Valid() {
				d.add(Broken, rep.Path, "metadata.version is finalized at level %d, which Gregor does not know", level)
			}
			continue
		}
		f, known := metadata.FeatureByName(name)
		if !known {
			d.add(Broken, rep.Path, "the feature %s is finalized at level %d, and Gregor does not know it", name, level)
		} else if level > f.Max() {
			d.add(Broken, rep.Path, "the feature %s is finalized at level %d, and Gregor knows levels up to %d", name, level, f.Max())
		}
	}
	if v := img.Features.MetadataVersion(); v == 0 {
		d.add(Note, rep.Path, "no metadata.version is finalized: the log holds no bootstrap records yet")
		rep.MetadataVersion = ""
	}
	counts := img.Topics.Counts()
	rep.Topics, rep.Partitions = counts.Topics, counts.Partitions
	for t := range img.Topics.All() {
		if strings.HasPrefix(t.Name, "__") {
			rep.InternalTopics = append(rep.InternalTopics, t.Name)
		}
		for _, p := range t.Partitions() {
			if p.HasReplica(d.nodeID) {
				rep.Local++
			}
		}
	}
	for range img.Cluster.Brokers() {
		rep.Brokers++
	}
	rep.ACLs, rep.Quotas, rep.ScramUsers, rep.Tokens = img.ACLs.Len(), img.ClientQuotas.Len(), img.Scram.Len(), img.DelegationTokens.Len()
	d.notServed(rep)
}

// notServed tells of what the metadata holds and this version of Gregor keeps, but does not act on.
func (d *doctor) notServed(rep *MetadataReport) {
	if rep.Brokers > 1 {
		d.add(Broken, rep.Path, "the metadata knows %d brokers, and nothing is replicated between brokers yet: this node would not follow the leaders of its replicas", rep.Brokers)
	}
	for _, kept := range []struct {
		count int
		what  string
		so    string
	}{
		{rep.ACLs, "access rule", "no request is checked against them"},
		{rep.Quotas, "quota", "no client is slowed down"},
		{rep.ScramUsers, "SCRAM credential", "nobody can log in with them"},
		{rep.Tokens, "delegation token", "nobody can log in with them"},
	} {
		if kept.count > 0 {
			d.add(Suspicious, rep.Path, "the metadata holds %s, which are kept, but not acted on yet: %s", plural(kept.count, kept.what), kept.so)
		}
	}
	for _, kept := range []struct{ topic, so string }{
		{"__transaction_state", "transactional producers are turned away, and transactions that are open stay so"},
		{"__share_group_state", "share groups are not served"},
		{"__remote_log_metadata", "what is in tiered storage is not served"},
	} {
		if slices.Contains(rep.InternalTopics, kept.topic) {
			d.add(Suspicious, rep.Path, "the topic %s is kept, but not acted on yet: %s", kept.topic, kept.so)
		}
	}
}

// missing reports replicas of this node that the metadata knows and no directory holds.
func (d *doctor) missing(dirs []*DirReport) {
	if d.image == nil || d.nodeID < 0 || len(dirs) == 0 {
		return
	}
	for t := range d.image.Topics.All() {
		for id, p := range t.Partitions() {
			name := fmt.Sprintf("%s-%d", t.Name, id)
			if _, ok := d.seen[name]; ok || !p.HasReplica(d.nodeID) {
				continue
			}
			severity, what := Note, "would be created"
			if len(p.Replicas) == 1 || len(p.ISR) == 1 && p.ISR[0] == d.nodeID {
				severity, what = Suspicious, "would be created empty: if it held records, they are lost"
			}
			where := ""
			if dir, ok := p.Directory(d.nodeID); ok && !dir.IsReservedDirectory() {
				where = " (directory.id " + dir.String() + ")"
			}
			d.add(severity, name, "the metadata knows this replica and no directory has it%s: it %s", where, what)
		}
	}
}
