package checkpoint

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"time"

	"gregor/storage/vfs"
)

// Keys of meta.properties.
const (
	keyVersion     = "version"
	keyClusterID   = "cluster.id"
	keyBrokerID    = "broker.id" // version 0
	keyNodeID      = "node.id"   // version 1
	keyDirectoryID = "directory.id"
)

// MetaProperties is the meta.properties of a log directory: which node of which cluster it belongs to.
// Version 1 is written by Kafka since KRaft; version 0 (or no version) by brokers with ZooKeeper, in which
// everything is optional.
type MetaProperties struct {
	Version     int
	ClusterID   string   // "" when missing (version 0)
	NodeID      int32    // -1 when missing (version 0)
	DirectoryID [16]byte // zero when missing (before KIP-858)
	Extra       []Property
}

// Property is a key that is not known here; it is kept when the file is written again.
type Property struct{ Key, Value string }

// ReadMetaProperties reads a meta.properties.
func ReadMetaProperties(fsys vfs.FS, path string) (MetaProperties, error) {
	return read(fsys, path, parseMetaProperties)
}

func parseMetaProperties(b []byte) (MetaProperties, error) {
	props, err := parseProperties(b)
	if err != nil {
		return MetaProperties{}, err
	}
	m := MetaProperties{NodeID: -1}
	seen := map[string]property{}
	for _, p := range props {
		seen[p.Key] = p // the last one counts
	}
	if p, ok := seen[keyVersion]; ok {
		switch p.Value {
		case "0":
		case "1":
			m.Version = 1
		default:
			return MetaProperties{}, syntaxErrorf(p.line, "unknown version %q", p.Value)
		}
	}
	nodeKey := keyBrokerID
	if m.Version == 1 {
		nodeKey = keyNodeID
	}
	if m.NodeID, err = parseNodeID(seen, nodeKey, m.Version == 1); err != nil {
		return MetaProperties{}, err
	}
	m.ClusterID = seen[keyClusterID].Value
	if _, ok := seen[keyClusterID]; !ok && m.Version == 1 {
		return MetaProperties{}, syntaxErrorf(1, "%s is missing", keyClusterID)
	}
	if p, ok := seen[keyDirectoryID]; ok {
		id, ok := parseUUID(p.Value)
		if !ok {
			return MetaProperties{}, syntaxErrorf(p.line, "%s is not an id: %q", keyDirectoryID, p.Value)
		}
		m.DirectoryID = id
	}
	for _, p := range props {
		known := []string{keyVersion, keyClusterID, nodeKey, keyDirectoryID}
		if !slices.Contains(known, p.Key) && seen[p.Key].line == p.line {
			m.Extra = append(m.Extra, p.Property)
		}
	}
	return m, nil
}

func parseNodeID(seen map[string]property, key string, required bool) (int32, error) {
	p, ok := seen[key]
	if !ok {
		if required {
			return -1, syntaxErrorf(1, "%s is missing", key)
		}
		return -1, nil
	}
	id, ok := parseInt32(p.Value)
	if !ok {
		return -1, syntaxErrorf(p.line, "%s is not a number: %q", key, p.Value)
	}
	return id, nil
}

func parseInt32(text string) (int32, bool) {
	if text == "" {
		return 0, false
	}
	v, ok := parseInt(text, 32)
	return int32(v), ok
}

// WriteMetaProperties replaces a meta.properties; now goes into its header.
func WriteMetaProperties(fsys vfs.FS, path string, m MetaProperties, now time.Time) error {
	return vfs.WriteFileAtomic(fsys, path, m.format(now))
}

func (m MetaProperties) format(now time.Time) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "#\n#%s\n", now.UTC().Format("Mon Jan 02 15:04:05 MST 2006"))
	nodeKey := keyNodeID
	if m.Version == 0 {
		nodeKey = keyBrokerID
	}
	if m.NodeID >= 0 {
		appendProperty(&b, nodeKey, strconv.Itoa(int(m.NodeID)))
	}
	if m.DirectoryID != [16]byte{} {
		appendProperty(&b, keyDirectoryID, formatUUID(m.DirectoryID))
	}
	appendProperty(&b, keyVersion, strconv.Itoa(m.Version))
	if m.ClusterID != "" || m.Version == 1 {
		appendProperty(&b, keyClusterID, m.ClusterID)
	}
	for _, p := range m.Extra {
		appendProperty(&b, p.Key, p.Value)
	}
	return b.Bytes()
}
