package inspect

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"gregor/storage"
	"gregor/storage/checkpoint"
)

// directories reads the meta.properties of all directories and returns the ones that can be read.
func (d *doctor) directories(metadataDir string) []*DirReport {
	var readable []*DirReport
	var unformatted []string
	for _, dir := range d.Dirs {
		r := &DirReport{Path: dir, NodeID: -1, BrokerEpoch: -1, Metadata: dir == metadataDir, Formats: map[string]int{}}
		d.report.Dirs = append(d.report.Dirs, r)
		_, err := d.FS.ReadDir(dir)
		switch {
		case err == nil:
			readable = append(readable, r)
			if !d.meta(r) {
				unformatted = append(unformatted, dir)
			}
		case errors.Is(err, fs.ErrNotExist):
			unformatted = append(unformatted, dir)
		default:
			d.add(Broken, dir, "cannot be read: %v: %s", err, r.offline())
		}
	}
	d.ensemble(readable, unformatted)
	return readable
}

// offline says what becomes of a start without this directory.
func (d *DirReport) offline() string {
	if d.Metadata {
		return "the node would not start without its metadata log"
	}
	return "the directory would be offline"
}

// ensemble checks that the directories belong together. Beside formatted ones, one that is not formatted is a disk that is
// not mounted as far as a start can tell, and is refused.
func (d *doctor) ensemble(readable []*DirReport, unformatted []string) {
	first, firstID := (*DirReport)(nil), map[string]string{}
	for _, r := range readable {
		if !r.Formatted {
			continue
		}
		if first == nil {
			first = r
		}
		if r.ClusterID != "" && first.ClusterID != "" && r.ClusterID != first.ClusterID {
			d.add(Broken, r.Path, "belongs to the cluster %s and %s to %s: the node would not start", r.ClusterID, first.Path, first.ClusterID)
		}
		if other, taken := firstID[r.DirectoryID]; taken && r.DirectoryID != "" {
			d.add(Broken, r.Path, "has the same directory.id as %s: the node would not start", other)
		}
		firstID[r.DirectoryID] = r.Path
	}
	if first == nil && len(unformatted) == len(d.Dirs) && len(d.Dirs) > 0 {
		d.add(Note, strings.Join(d.Dirs, ","), "no directory is formatted: a start would make and format them")
		return
	}
	for _, dir := range unformatted {
		d.add(Broken, dir, "is not formatted and others are: the node would not start (mount its disk, or format it with --ignore-formatted)")
	}
}

// meta reads meta.properties. false: there is none.
func (d *doctor) meta(r *DirReport) bool {
	path := filepath.Join(r.Path, checkpoint.MetaPropertiesFile)
	meta, err := checkpoint.ReadMetaProperties(d.FS, path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false
	case err != nil:
		d.add(Broken, path, "%v: %s", err, r.offline())
		return true
	case meta.ClusterID == "" && meta.NodeID < 0:
		d.add(Broken, path, "is empty: the node would not start (if the disk was not replaced, format the directory with --ignore-formatted)")
		return true
	}
	r.Formatted, r.ClusterID, r.NodeID = true, meta.ClusterID, meta.NodeID
	if meta.DirectoryID != [16]byte{} {
		r.DirectoryID = base64.RawURLEncoding.EncodeToString(meta.DirectoryID[:])
	} else {
		d.add(Note, path, "has no directory.id: one would be added")
	}
	if meta.Version == 0 {
		d.add(Note, path, "is of version 0 and would be written anew as version 1")
	}
	if d.nodeID < 0 {
		d.nodeID = meta.NodeID
	}
	if meta.NodeID >= 0 && meta.NodeID != d.nodeID {
		d.add(Broken, path, "belongs to node %d, and this is node %d: the node would not start", meta.NodeID, d.nodeID)
	}
	return true
}

// offsets are the checkpoint files of a directory.
type offsets struct {
	recoveryPoint, logStart map[storage.TopicPartition]int64
}

// logDir examines the partitions of a directory.
func (d *doctor) logDir(r *DirReport) {
	d.stop(r)
	points := d.checkpoints(r)
	entries, err := d.FS.ReadDir(r.Path)
	if err != nil {
		d.add(Broken, r.Path, "cannot be read and would be offline: %v", err)
		return
	}
	for _, e := range entries {
		if e.IsDir() {
			d.entry(r, e.Name(), points)
		} else if !knownFile(e.Name()) {
			d.add(Note, filepath.Join(r.Path, e.Name()), "is no file of a log directory and is left alone")
		}
	}
	if !r.Clean && r.Partitions > 0 {
		d.add(Suspicious, r.Path, "the last stop was not clean: %s of %d bytes would be read from the recovery points on", plural(r.Partitions, "log"), r.RecoveryBytes)
	}
}

// knownFile tells whether a name is one that a log directory has.
func knownFile(name string) bool {
	name = strings.TrimSuffix(name, ".tmp")
	return slices.Contains([]string{
		checkpoint.MetaPropertiesFile, checkpoint.CleanShutdownFile, checkpoint.RecoveryPointFile, checkpoint.LogStartOffsetFile,
		checkpoint.HighWatermarkFile, checkpoint.CleanerOffsetFile, ".lock", "bootstrap.checkpoint",
	}, name)
}

// stop looks for the proof of a clean stop.
func (d *doctor) stop(r *DirReport) {
	path := filepath.Join(r.Path, checkpoint.CleanShutdownFile)
	epoch, err := checkpoint.ReadCleanShutdown(d.FS, path)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	r.Clean = true
	if err != nil {
		d.add(Suspicious, path, "the broker epoch of the last stop is not known: %v", err)
		return
	}
	r.BrokerEpoch = epoch
}

// checkpoints reads the offset checkpoints.
func (d *doctor) checkpoints(r *DirReport) offsets {
	var out offsets
	for name, into := range map[string]*map[storage.TopicPartition]int64{
		checkpoint.RecoveryPointFile: &out.recoveryPoint, checkpoint.LogStartOffsetFile: &out.logStart,
		checkpoint.HighWatermarkFile: nil, checkpoint.CleanerOffsetFile: nil,
	} {
		path := filepath.Join(r.Path, name)
		found, err := checkpoint.ReadOffsets(d.FS, path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			d.add(Suspicious, path, "%v: the file would be ignored", err)
		}
		if into != nil {
			*into = found
		}
	}
	return out
}

// entry examines what is in a log directory.
func (d *doctor) entry(r *DirReport, name string, points offsets) {
	path := filepath.Join(r.Path, name)
	p, kind, ok := storage.ParseDirName(name)
	switch {
	case name == metadataLogDir:
		if !r.Metadata {
			d.add(Broken, path, "is a metadata log outside the metadata directory: the node would not start")
		}
		return
	case name == "remote-log-index-cache":
		return
	case !ok:
		d.add(Suspicious, path, "is not named as a directory of a partition and is left alone")
		return
	}
	switch kind {
	case storage.DirDelete:
		r.Deleted++
		d.add(Note, path, "waits for its deletion, which would be done")
		return
	case storage.DirStray:
		r.Stray++
		d.add(Suspicious, path, "is a stray replica of an earlier start and is left alone")
		return
	case storage.DirFuture:
		r.Future++
		d.add(Note, path, "is a replica on its way into this directory")
	case storage.DirCurrent:
		r.Partitions++
		if other, taken := d.seen[name]; taken {
			d.add(Broken, path, "the same partition is in %s too: the node would not start", other)
		}
		d.seen[name] = r.Path
	}
	d.partition(r, path, p, points)
}

// isStray tells why a replica does not belong to this node, "" when it does or when that is not known.
func (d *doctor) isStray(p storage.TopicPartition, id [16]byte) string {
	if d.image == nil {
		return ""
	}
	t := d.image.Topics.ByName(p.Topic)
	switch {
	case t == nil:
		return "the metadata has no such topic"
	case id != [16]byte{} && t.ID != id:
		return fmt.Sprintf("the topic of that name has the id %s now, not %s", t.ID, base64.RawURLEncoding.EncodeToString(id[:]))
	}
	if x := t.Partition(p.Partition); x == nil {
		return "the topic has no such partition"
	} else if d.nodeID >= 0 && !x.HasReplica(d.nodeID) {
		return fmt.Sprintf("this node (%d) is none of its replicas %v", d.nodeID, x.Replicas)
	}
	return ""
}

// sortedFormats lists message formats with their counts.
func sortedFormats(m map[string]int) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, fmt.Sprintf("%d of %s", m[k], k))
	}
	return strings.Join(out, ", ")
}
